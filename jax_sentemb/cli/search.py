"""jax-sentemb search --model runs/micse --corpus corpus.txt --query TEXT: what is most similar to a query."""

from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, say_empty, say_noise, show
from jax_sentemb.cli.program import Parser, positive, start
from jax_sentemb.errors import ConfigError
from jax_sentemb.files import user_path

EPILOG = """\
prints number of the query, row of the corpus, cosine, query and sentence, best first, then the ids of both where records have them;
query and row are numbers of records, from 0: of lines, or of rows of a table, also counting those without text

examples:
  jax-sentemb search --model runs/micse --corpus corpus.txt --query "where is the station?"
  jax-sentemb search --model runs/micse --corpus vectors --corpus-text corpus.txt --queries queries.txt --top-k 3 --json
"""


def parser() -> Parser:
    """The options."""
    found = parser_of("search", "The sentences of a corpus that are most similar to each query; all are compared.", EPILOG)
    found.add_argument("--queries", help="a text file, one query a line; - reads standard input")
    found.add_argument("--query-column", default="", help="the field of the queries (default: that of --column)")
    found.add_argument("--query-id", default="", help="the field with the ids of the queries (default: _id, where there is one)")
    found.add_argument("--query", action="append", default=[], help="a query itself; may be repeated")
    found.add_argument("--top-k", type=positive, default=10, help="sentences for a query (default: 10)")
    found.add_argument("--index", type=user_path, help="approximate search in this file, built when it is not there (needs [ann])")
    return found


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    options = parser().parse_args(argv[1:])
    if bool(options.queries) == bool(options.query):
        raise ConfigError("give --queries FILE or --query TEXT, one of the two")
    for query in options.query:
        try:
            query.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--query {query}: the text is not UTF-8") from None
        if not query.strip():
            raise ConfigError(f"--query {query!r}: the text is empty; give words to search for")
    from jax_sentemb.retrieval.index import build_index, check_index, search_index
    from jax_sentemb.retrieval.search import search
    from jax_sentemb.retrieval.sources import rows_with_text

    opener = Opener(options)
    verify = not options.no_verify
    has_index = bool(options.index and options.index.exists())
    corpus = opener.corpus((lambda sources: check_index(options.index, sources, verify)) if has_index else None)
    if options.queries:
        queries = opener.text("--queries", options.queries, corpus.vectors)
    else:
        queries = opener.sentences(options.query, corpus.vectors)
    asked, numbers = rows_with_text(queries.vectors)
    if options.index:
        if not has_index:
            build_index(corpus.vectors, options.index, corpus.sources())
        hits = search_index(asked[:], options.index, options.top_k, sources=corpus.sources(), verify=False)
    else:
        hits = search(asked, corpus.vectors, options.top_k)
    say_empty(corpus, queries)
    say_noise(corpus)
    show(
        (
            _hit(queries, query, corpus, row, score)
            for place, (rows, scores) in enumerate(zip(hits.indices.tolist(), hits.scores.tolist(), strict=True))
            for query in [place if numbers is None else int(numbers[place])]
            for row, score in zip(rows, scores, strict=True)
            if row >= 0  # an index may find fewer than top_k
        ),
        options.json,
    )
    return 0


def _hit(queries: Collection, query: int, corpus: Collection, number: int, score: float) -> dict[str, Any]:
    """Return a result as it is printed."""
    query_record, record = queries.record(query), corpus.record(number)
    numbers = {"query": query_record.row, "row": record.row, "score": score}
    texts = {**queries.texts_as(query_text=query), **corpus.texts_as(text=number)}
    return {**numbers, **texts, **corpus.names(record), **queries.names(query_record, "query_")}


if __name__ == "__main__":
    start(main)
