"""jax-sentemb search --model runs/micse --corpus corpus.txt --query TEXT: what is most similar to a query."""

from jax_sentemb.cli.collection import Opener, parser_of, say_noise, show
from jax_sentemb.cli.program import Parser, positive, start
from jax_sentemb.errors import ConfigError
from jax_sentemb.files import user_path

EPILOG = """\
prints number of the query, row of the corpus (both from 0), cosine, query and sentence, best first

examples:
  jax-sentemb search --model runs/micse --corpus corpus.txt --query "where is the station?"
  jax-sentemb search --model runs/micse --corpus vectors --corpus-text corpus.txt --queries queries.txt --top-k 3 --json
"""


def parser() -> Parser:
    """The options."""
    found = parser_of("search", "The sentences of a corpus that are most similar to each query; all are compared.", EPILOG)
    found.add_argument("--queries", help="a text file, one query a line; - reads standard input")
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
    from jax_sentemb.retrieval.index import build_index, check_index, search_index
    from jax_sentemb.retrieval.search import search

    opener = Opener(options)
    verify = not options.no_verify
    has_index = bool(options.index and options.index.exists())
    corpus = opener.corpus((lambda sources: check_index(options.index, sources, verify)) if has_index else None)
    if options.queries:
        queries = opener.text("--queries", options.queries, corpus.vectors)
    else:
        queries = opener.sentences(options.query, corpus.vectors)
    if options.index:
        if not has_index:
            build_index(corpus.vectors, options.index, corpus.sources())
        hits = search_index(queries.vectors, options.index, options.top_k, sources=corpus.sources(), verify=False)
    else:
        hits = search(queries.vectors, corpus.vectors, options.top_k)
    say_noise(corpus)
    show(
        (
            {"query": query, "row": row, "score": score, "query_text": queries.text(query), "text": corpus.text(row)}
            for query, (rows, scores) in enumerate(zip(hits.indices.tolist(), hits.scores.tolist(), strict=True))
            for row, score in zip(rows, scores, strict=True)
        ),
        options.json,
    )
    return 0


if __name__ == "__main__":
    start(main)
