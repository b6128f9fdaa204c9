"""jax-sentemb cluster --model runs/micse --corpus corpus.txt: groups of similar sentences of a corpus."""

import sys

from jax_sentemb.collection import Opener, parser_of, show
from jax_sentemb.command_line import positive, program

EPILOG = """\
prints number of the group (from 0, largest first), row (from 0) and sentence; the first of a group is its centre

examples:
  jax-sentemb cluster --model runs/micse --corpus corpus.txt --threshold 0.8 --min-size 5
  jax-sentemb cluster --corpus vectors --corpus-text corpus.txt
"""


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    parser = parser_of("cluster", "Groups of sentences that are near to a common centre; most sentences may be in none.", EPILOG)
    parser.add_argument("--threshold", type=float, default=0.75, help="least cosine to the centre (default: 0.75)")
    parser.add_argument("--min-size", type=positive, default=10, help="sentences that make a group (default: 10)")
    options = parser.parse_args(argv[1:])
    from jax_sentemb.search import community_detection

    corpus = Opener(options).corpus()
    groups = community_detection(corpus.vectors, options.threshold, options.min_size)
    rows = ({"cluster": number, "row": row, "text": corpus.text(row)} for number, group in enumerate(groups) for row in group)
    show(rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
