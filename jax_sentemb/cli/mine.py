"""jax-sentemb mine --model runs/micse --corpus corpus.txt: the most similar pairs of a corpus."""

from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, say_empty, say_noise, show
from jax_sentemb.cli.program import Parser, finite, positive, start

EPILOG = """\
prints cosine, row and row, sentence and sentence, best first, then the ids where records have them; rows are numbers of records,
from 0: of lines, or of rows of a table, also counting those without text

examples:
  jax-sentemb mine --model runs/micse --corpus corpus.txt --top-k 20
  jax-sentemb mine --corpus vectors --corpus-text corpus.txt --threshold 0.95 --top-k 100000
"""


def parser() -> Parser:
    """The options."""
    found = parser_of("mine", "The most similar pairs of a corpus; every pair is compared.", EPILOG)
    found.add_argument("--top-k", type=positive, default=100, help="how many pairs (default: 100)")
    found.add_argument("--threshold", type=finite, help="only pairs with this cosine or more")
    return found


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    options = parser().parse_args(argv[1:])
    from jax_sentemb.retrieval.search import mine_pairs

    corpus = Opener(options).corpus()
    say_empty(corpus)
    say_noise(corpus)
    pairs = mine_pairs(corpus.vectors, options.top_k, options.threshold)
    show(
        (_pair(corpus, score, first, second) for first, second, score in zip(*(side.tolist() for side in pairs), strict=True)),
        options.json,
    )
    return 0


def _pair(corpus: Collection, score: float, first: int, second: int) -> dict[str, Any]:
    """Return a pair as it is printed."""
    records = corpus.record(first), corpus.record(second)
    texts = corpus.texts_as(first_text=first, second_text=second)
    names = {**corpus.names(records[0], "first_"), **corpus.names(records[1], "second_")}
    return {"score": score, "first": records[0].row, "second": records[1].row, **texts, **names}


if __name__ == "__main__":
    start(main)
