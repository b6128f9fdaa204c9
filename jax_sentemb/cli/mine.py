"""Run `jax-sentemb mine --model runs/micse --corpus corpus.txt`: find the most similar pairs of a corpus."""

from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, print_empty, print_noise, print_rows
from jax_sentemb.cli.encode import note
from jax_sentemb.cli.program import Parser, cosine, positive, start
from jax_sentemb.system.terminal import counted

EPILOG = """\
Each line of the output has the cosine, both rows, both sentences and, if records have ids, both ids; the most similar pair comes
first. Rows count all records from 0, even those without text: lines, or rows of a table.

examples:
  jax-sentemb mine --model runs/micse --corpus corpus.txt --top-k 20
  jax-sentemb mine --corpus vectors --corpus-text corpus.txt --threshold 0.95 --top-k 100000
"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = parser_of("mine", "Find the most similar pairs of a corpus. Every pair is compared.", EPILOG)
    parser.add_argument("--top-k", type=positive, default=100, help="number of pairs (default: 100)")
    parser.add_argument("--threshold", type=cosine, help="lowest cosine of a pair (default: none)")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    from jax_sentemb.retrieval.search import mine_pairs

    corpus = Opener(options).corpus()
    print_empty(corpus)
    print_noise(corpus)
    with counted("compare", "blocks") as progress:
        pairs = mine_pairs(corpus.vectors, options.top_k, options.threshold, progress)
    print_rows(
        (_pair(corpus, score, first, second) for first, second, score in zip(*(side.tolist() for side in pairs), strict=True)),
        options.json,
    )
    if options.threshold is not None and not len(pairs.first):
        note(f"no pair has a cosine of {options.threshold:g} or more: lower --threshold")
    return 0


def _pair(corpus: Collection, score: float, first: int, second: int) -> dict[str, Any]:
    """Return the fields of a pair."""
    records = corpus.record(first), corpus.record(second)
    texts = corpus.texts_as(first_text=first, second_text=second)
    names = {**corpus.names(records[0], "first_"), **corpus.names(records[1], "second_")}
    return {"score": score, "first": records[0].row, "second": records[1].row, **texts, **names}


if __name__ == "__main__":
    start(main)
