"""Run `jax-sentemb search --model runs/micse --corpus corpus.txt --query TEXT`: find the sentences most similar to a query."""

from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, print_empty, print_rows
from jax_sentemb.cli.program import Parser, leave_out, positive, start
from jax_sentemb.data.corpus_files import sources_of_option
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.files import user_path
from jax_sentemb.system.terminal import counted

EPILOG = """\
Each line of the output has the number of the query, the row of the corpus, the cosine, the query, the sentence and, if records
have ids, both ids; the best result comes first. A terminal also gets a line with the names of the columns. Query and row count
all records from 0, even those without text: lines, or rows of a table. With --chunks each, a result is the best chunk of a text:
the sentence is the chunk, and its first character and the number after its last character follow.

examples:
  jax-sentemb search --model runs/micse --corpus corpus.txt --query "where is the station?"
  jax-sentemb search --model runs/micse --corpus vectors --corpus-text corpus.txt --queries queries.txt --top-k 3 --json
"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = parser_of("search", "Find the sentences of a corpus that are most similar to each query.", EPILOG)
    parser.add_argument("--queries", help="a text file with one query on each line; - reads standard input")
    parser.add_argument("--query-column", default="", help="the field with the queries (default: that of --column)")
    parser.add_argument("--query-id", default="", help="the field with the ids of the queries (default: _id, if it exists)")
    parser.add_argument("--query", action="append", default=[], help="the text of a query; may be repeated")
    parser.add_argument("--top-k", type=positive, default=10, help="results for each query (default: 10)")
    parser.add_argument(
        "--index", type=user_path, help="search approximately with this index file, which is built if missing (needs [ann])"
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if bool(options.queries) == bool(options.query):
        raise ConfigError("give either --queries FILE or --query TEXT")
    if options.query:
        leave_out(options, ("query_column", "query_id"), "--query gives the texts themselves")
    if [options.corpus, options.corpus_text, options.queries].count("-") > 1:
        raise ConfigError("only one option can read standard input (-): name a file for the others")
    for query in options.query:
        try:
            query.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--query {query}: not UTF-8; write the text into a UTF-8 file and give --queries FILE") from None
        if not query.strip():
            raise ConfigError(f"--query {query!r}: the text is empty; give words to search for")
    from jax_sentemb.retrieval.documents import best_chunks
    from jax_sentemb.retrieval.index import build_index, check_index, search_index
    from jax_sentemb.retrieval.search import Hits, search
    from jax_sentemb.retrieval.sources import rows_with_text

    if options.queries:
        _check_queries(options.queries)  # a missing file is told before the corpus is encoded
    opener = Opener(options, reads_chunks=True)
    verify = not options.no_verify
    has_index = bool(options.index and options.index.exists())
    corpus = opener.corpus((lambda sources: check_index(options.index, sources, verify)) if has_index else None)
    if options.queries:
        queries = opener.text("--queries", options.queries, corpus.vectors)
    else:
        queries = opener.sentences(options.query, corpus.vectors)
    query_vectors, numbers = rows_with_text(queries.vectors)
    if options.index:
        if not has_index:
            with counted("index", "rows") as progress:
                build_index(corpus.vectors, options.index, corpus.sources(), progress)

    def find(queries: Any, count: int) -> Hits:
        if options.index:
            return search_index(queries[:], options.index, count, sources=corpus.sources(), verify=False)
        with counted("search", "blocks") as progress:
            return search(queries, corpus.vectors, count, progress=progress)

    if corpus.documents is None:
        hits = find(query_vectors, options.top_k)
    else:
        in_memory, documents = query_vectors[:], corpus.documents.copy()
        documents[corpus.vectors.empty_rows] = -1
        hits = best_chunks(lambda rows, count: find(in_memory[rows], count), len(in_memory), documents, options.top_k)
    empty = set(corpus.vectors.empty_rows.tolist())  # an index of vectors without a record of their text has these rows
    print_empty(corpus, queries)
    print_rows(
        (
            _hit(queries, query, corpus, row, score)
            for number, (rows, scores) in enumerate(zip(hits.indices.tolist(), hits.scores.tolist(), strict=True))
            for query in [number if numbers is None else int(numbers[number])]
            for row, score in zip(rows, scores, strict=True)
            if row >= 0 and (row not in empty or corpus.documents is not None)  # -1: there are fewer results than top_k
        ),
        options.json,
    )
    return 0


def _check_queries(files: str) -> None:
    """Raise DataError if the files of --queries do not exist; name --query if they look like the text of a query."""
    try:
        sources_of_option("--queries", files)
    except DataError as error:
        raise (error.change([*error.message, "; give a text with --query"]) if " " in files.strip() else error) from None


def _hit(queries: Collection, query: int, corpus: Collection, number: int, score: float) -> dict[str, Any]:
    """Return the fields of a result."""
    query_record, record = queries.record(query), corpus.record(number)
    numbers = {"query": query_record.row, "row": record.row, "score": score}
    texts = {**queries.texts_as(query_text=query), **corpus.texts_as(text=number)}
    return {**numbers, **texts, **corpus.span(record), **corpus.names(record), **queries.names(query_record, "query_")}


if __name__ == "__main__":
    start(main)
