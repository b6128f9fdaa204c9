"""jax-sentemb cluster --model runs/micse --corpus corpus.txt: groups of similar sentences of a corpus."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, say_empty, say_noise, show
from jax_sentemb.cli.program import Parser, count, finite, positive, start
from jax_sentemb.errors import ConfigError
from jax_sentemb.system.terminal import table

MIN_SIZE, SHOWN = 10, 10
EPILOG = """\
prints number of the group (from 0, largest first), row and sentence, then the id where records have one; the first of a group is
its centre; rows are numbers of records, from 0: of lines, or of rows of a table, also counting those without text
--k puts all sentences into so many groups (k-means), the one nearest to the mean of a group first; without it, what lies closer
to a sentence than --threshold is a group, and most sentences may be in none; the default is the cosine that 1 of 1,000 random
pairs of the corpus reaches. The sizes of the groups go to standard error: raise the threshold for smaller, tighter groups

examples:
  jax-sentemb cluster --model runs/micse --corpus corpus.txt --threshold 0.8 --min-size 5
  jax-sentemb cluster --corpus vectors --corpus-text corpus.txt --k 50
"""


def parser() -> Parser:
    """The options."""
    found = parser_of("cluster", "Groups of sentences that are near to a common centre.", EPILOG)
    found.add_argument("--threshold", type=finite, help="least cosine to the centre (default: proposed from the corpus)")
    found.add_argument("--min-size", type=positive, help=f"sentences that make a group (default: {MIN_SIZE})")
    found.add_argument("--k", type=positive, help="how many groups, in place of the two above")
    found.add_argument("--seed", type=count, default=0, help="of the first centres of --k (default: 0)")
    return found


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    options = parser().parse_args(argv[1:])
    if options.k and (options.threshold is not None or options.min_size):
        raise ConfigError("--k puts every sentence into a group: leave out --threshold and --min-size")
    from jax_sentemb.retrieval.kmeans import kmeans
    from jax_sentemb.retrieval.search import community_detection

    corpus, threshold, noise = Opener(options).corpus(), 0.0, 0.0
    if options.k:
        groups = kmeans(corpus.vectors, options.k, options.seed).rows()
    else:
        noise = say_noise(corpus)
        threshold = _above(noise) if options.threshold is None else options.threshold
        groups = community_detection(corpus.vectors, threshold, options.min_size or MIN_SIZE)
    say_empty(corpus)
    show((_member(corpus, number, row) for number, group in enumerate(groups) for row in group), options.json)
    print(_sizes(groups, corpus, "" if options.k else f" at threshold {threshold:g}"), file=sys.stderr)
    if not groups:
        print(_lower(corpus, options.min_size or MIN_SIZE, threshold, noise), file=sys.stderr)
    return 0


def _member(corpus: Collection, group: int, number: int) -> dict[str, Any]:
    """Return a sentence of a group as it is printed."""
    record = corpus.record(number)
    return {"cluster": group, "row": record.row, **corpus.texts_as(text=number), **corpus.names(record)}


def _above(noise: float) -> float:
    """`noise` rounded up to two digits, to four where the cosines of a model lie close together."""
    digits = 100 if noise < 0.9 else 10_000
    return math.ceil(digits * noise) / digits


def _lower(corpus: Collection, size: int, threshold: float, noise: float) -> str:
    """Advice where no group was found: a threshold at which there is one, and a warning if random pairs reach it, too."""
    from jax_sentemb.retrieval.noise import group_threshold

    proposed = math.floor(10_000 * group_threshold(corpus.vectors, size)) / 10_000
    if not proposed < threshold:
        return f"{corpus.filled:,} sentences have no group of {size}: lower --min-size"
    advice = f"--threshold {proposed:g} gives groups, or lower --min-size"
    if proposed < noise:
        advice += "; random pairs are as similar with this model: train one on the corpus, or give --k"
    return advice


def _sizes(groups: Sequence[Sequence[int]], corpus: Collection, how: str) -> str:
    """The number of groups and of their sentences, and a table of the largest ones."""
    inside, count = sum(map(len, groups)), corpus.filled
    line = f"{len(groups):,} {'group' if len(groups) == 1 else 'groups'}{how} with {inside:,} of {count:,} sentences"
    if not groups:
        return line
    rows = [
        [str(number), f"{len(group):,}", (corpus.text(group[0]) or f"row {corpus.record(group[0]).row}")[:80]]
        for number, group in enumerate(groups[:SHOWN])
    ]
    more = f"\nand {len(groups) - SHOWN:,} smaller ones" if len(groups) > SHOWN else ""
    return f"{table(('group', 'sentences', 'centre'), rows, text_columns=(2,))}{more}\n{line}"


if __name__ == "__main__":
    start(main)
