"""Run `jax-sentemb search --model runs/micse --corpus corpus.txt --query TEXT`: find the sentences most similar to a query."""

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_sentemb.cli.collection import Collection, Opener, is_vectors, parser_of, print_empty, print_rows
from jax_sentemb.cli.program import Parser, leave_out, positive, start
from jax_sentemb.data.corpus_files import sources_of_option
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.evaluation import bm25
from jax_sentemb.evaluation.rankings import NO_DOCUMENT, Run, fuse
from jax_sentemb.files import user_path
from jax_sentemb.system.terminal import counted

if TYPE_CHECKING:
    from jax_sentemb.retrieval.search import Hits

EPILOG = """\
Each line of the output has the number of the query, the row of the corpus, the cosine, the query, the sentence and, if records
have ids, both ids; the best result comes first. With --bm25, the sum of 1 / (60 + rank) takes the place of the cosine. A terminal
also gets a line with the names of the columns. Query and row count all records from 0, even those without text: lines, or rows of
a table. With --chunks each, a result is the best chunk of a text: the sentence is the chunk, and its first character and the number
after its last character follow.

examples:
  jax-sentemb search --model runs/micse --corpus corpus.txt --query "where is the station?"
  jax-sentemb search --model runs/micse --corpus vectors --corpus-text corpus.txt --queries queries.txt --top-k 3 --json
  jax-sentemb search --model runs/micse --corpus corpus.txt --query "where is the station?" --bm25
"""
RANKED = 100  # results of each of two searches that are fused, as in `evaluate --retrieval`


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
    parser.add_argument(
        "--bm25", action="store_true", help="also search by words, and order results by the ranks of both searches (needs [bm25])"
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    _check(options)
    from jax_sentemb.retrieval.documents import best_chunks
    from jax_sentemb.retrieval.index import build_index, check_index, search_index
    from jax_sentemb.retrieval.search import Hits, search
    from jax_sentemb.retrieval.sources import rows_with_text

    if options.queries:
        _check_queries(options.queries)  # a missing file is reported before the corpus is encoded
    opener = Opener(options, reads_chunks=True)
    verify = not options.no_verify
    has_index = bool(options.index and options.index.exists())
    corpus = opener.corpus((lambda sources: check_index(options.index, sources, verify)) if has_index else None)
    if options.queries:
        queries = opener.text("--queries", options.queries, corpus.vectors)
    else:
        queries = opener.sentences(options.query, corpus.vectors)
    query_vectors, numbers = rows_with_text(queries.vectors)
    numbers = range(len(query_vectors)) if numbers is None else numbers.tolist()
    if options.index:
        if not has_index:
            with counted("index", "rows") as progress:
                build_index(corpus.vectors, options.index, corpus.sources(), progress)

    def find(queries: Any, count: int) -> Hits:
        if options.index:
            return search_index(queries[:], options.index, count, sources=corpus.sources(), verify=False)
        with counted("search", "blocks") as progress:
            return search(queries, corpus.vectors, count, progress=progress)

    if options.bm25:
        texts = [queries.text(number) or "" for number in numbers]
        hits = _fused(find(query_vectors, max(RANKED, options.top_k)), texts, corpus, options.top_k)
    elif corpus.documents is None:
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
            for query, rows, scores in zip(numbers, hits.indices.tolist(), hits.scores.tolist(), strict=True)
            for row, score in zip(rows, scores, strict=True)
            if row >= 0 and (row not in empty or corpus.documents is not None)  # -1: there are fewer results than top_k
        ),
        options.json,
    )
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not fit each other."""
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
    if options.bm25:
        _check_bm25(options)


def _check_bm25(options: argparse.Namespace) -> None:
    """Raise ConfigError if the corpus cannot be searched by words."""
    if bm25.package() is None:
        raise ConfigError("--bm25 needs a package: pip install bm25s")
    if is_vectors(options.corpus) and not options.corpus_text:
        raise ConfigError(f"--bm25 searches by words, and --corpus {options.corpus} has vectors: give their text by --corpus-text")
    if options.chunks == "each":
        raise ConfigError("--bm25 ranks whole texts: give --chunks mean or max, or leave it out")


def _fused(hits: "Hits", queries: list[str], corpus: Collection, top_k: int) -> "Hits":
    """Return the best results by cosine and by BM25 together. The score is that of reciprocal-rank fusion."""
    if corpus.documents is not None:
        raise DataError("--bm25 ranks whole texts, and --corpus has a vector for each chunk; encode it with --chunks mean or max")
    assert corpus.texts is not None
    rows = np.where(np.isin(hits.indices, corpus.vectors.empty_rows), NO_DOCUMENT, hits.indices)
    words = bm25.rank(queries, corpus.texts, RANKED)
    fused = fuse([Run(rows, hits.scores), words], top_k)
    return hits._replace(indices=fused.rows, scores=fused.scores)


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
