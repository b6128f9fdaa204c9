"""jax-sentemb cluster --model runs/micse --corpus corpus.txt: groups of similar sentences of a corpus."""

import sys

from jax_sentemb.cli.collection import Opener, parser_of, show
from jax_sentemb.cli.program import positive, program
from jax_sentemb.errors import ConfigError

THRESHOLD, MIN_SIZE = 0.75, 10
EPILOG = """\
prints number of the group (from 0, largest first), row (from 0) and sentence; the first of a group is its centre
--k puts all sentences into so many groups (k-means), the one nearest to the mean of a group first; without it, what lies closer
to a sentence than --threshold is a group, and most sentences may be in none

examples:
  jax-sentemb cluster --model runs/micse --corpus corpus.txt --threshold 0.8 --min-size 5
  jax-sentemb cluster --corpus vectors --corpus-text corpus.txt --k 50
"""


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    parser = parser_of("cluster", "Groups of sentences that are near to a common centre.", EPILOG)
    parser.add_argument("--threshold", type=float, help=f"least cosine to the centre (default: {THRESHOLD})")
    parser.add_argument("--min-size", type=positive, help=f"sentences that make a group (default: {MIN_SIZE})")
    parser.add_argument("--k", type=positive, help="how many groups, in place of the two above")
    parser.add_argument("--seed", type=int, default=0, help="of the first centres of --k (default: 0)")
    options = parser.parse_args(argv[1:])
    if options.k and (options.threshold is not None or options.min_size):
        raise ConfigError("--k puts every sentence into a group: leave out --threshold and --min-size")
    from jax_sentemb.retrieval.kmeans import kmeans
    from jax_sentemb.retrieval.search import community_detection

    corpus = Opener(options).corpus()
    if options.k:
        groups = kmeans(corpus.vectors, options.k, options.seed).rows()
    else:
        threshold = THRESHOLD if options.threshold is None else options.threshold
        groups = community_detection(corpus.vectors, threshold, options.min_size or MIN_SIZE)
    rows = ({"cluster": number, "row": row, "text": corpus.text(row)} for number, group in enumerate(groups) for row in group)
    show(rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
