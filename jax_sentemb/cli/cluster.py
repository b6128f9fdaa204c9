"""Run `jax-sentemb cluster --model runs/micse --corpus corpus.txt`: find groups of similar sentences of a corpus."""

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

from jax_sentemb.cli.collection import Collection, Opener, parser_of, print_empty, print_noise, print_rows
from jax_sentemb.cli.program import Parser, cosine, count, leave_out, positive, start
from jax_sentemb.errors import ConfigError
from jax_sentemb.system.terminal import counted, table

MIN_SIZE, MAX_LISTED = 10, 10  # sentences of a group; groups that are listed
EPILOG = """\
Each line of the output has the number of the group (from 0, the largest first), the row, the sentence and, if records have ids, the
id. The first sentence of a group is its centre. Rows count all records from 0, even those without text: lines, or rows of a table.

With --k, every sentence is in one of K groups (k-means), and the sentence nearest to the mean of a group comes first. Without --k,
sentences whose cosine to a central sentence is at least --threshold are a group, and most sentences may be in no group. The default
threshold is the cosine that 1 of 1,000 random pairs of the corpus reaches. A higher threshold gives smaller, tighter groups. The
sizes of the groups go to standard error.

examples:
  jax-sentemb cluster --model runs/micse --corpus corpus.txt --threshold 0.8 --min-size 5
  jax-sentemb cluster --corpus vectors --corpus-text corpus.txt --k 50
"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = parser_of("cluster", "Find groups of sentences that are near to a common centre.", EPILOG)
    parser.add_argument("--threshold", type=cosine, help="lowest cosine to the centre (default: chosen from the corpus)")
    parser.add_argument("--min-size", type=positive, help=f"smallest number of sentences in a group (default: {MIN_SIZE})")
    parser.add_argument("--k", type=positive, help="number of groups, instead of the two options above")
    parser.add_argument("--seed", type=count, default=0, help="seed of the first centres of --k (default: 0)")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if options.k and (options.threshold is not None or options.min_size):
        raise ConfigError("--k puts every sentence into a group: leave out --threshold and --min-size")
    if not options.k:
        leave_out(options, ["seed"], "only --k draws first centres")
    from jax_sentemb.retrieval.kmeans import kmeans
    from jax_sentemb.retrieval.search import community_detection

    check_count = functools.partial(_check_groups, options.k) if options.k else None
    corpus, threshold, noise = Opener(options).corpus(check_count=check_count), 0.0, 0.0
    size = options.min_size or MIN_SIZE
    if options.k:
        with counted("cluster", "passes") as progress:
            groups = kmeans(corpus.vectors, options.k, options.seed, progress=progress).rows()
    else:
        noise = print_noise(corpus)
        threshold = _round_up(noise) if options.threshold is None else options.threshold
        with counted("compare", "blocks") as progress:
            groups = community_detection(corpus.vectors, threshold, size, progress)
    print_empty(corpus)
    print_rows((_member(corpus, number, row) for number, group in enumerate(groups) for row in group), options.json)
    condition = "" if options.k else f" of {size:,} or more at threshold {threshold:g}"
    print(_sizes(groups, corpus, condition), file=sys.stderr)
    if not groups:
        print(_advice(corpus, size, threshold, noise), file=sys.stderr)
    return 0


def _check_groups(groups: int, sentences: int) -> None:
    """Raise ConfigError for more groups than sentences."""
    if groups > sentences:
        raise ConfigError(f"--k {groups}: the corpus has {sentences:,} sentences; give at most this number")


def _member(corpus: Collection, group: int, number: int) -> dict[str, Any]:
    """Return the fields of a sentence of a group."""
    record = corpus.record(number)
    return {"cluster": group, "row": record.row, **corpus.texts_as(text=number), **corpus.names(record)}


def _round_up(noise: float) -> float:
    """Round `noise` up to two digits, or to four if the cosines of a model lie close together."""
    digits = 100 if noise < 0.9 else 10_000
    return math.ceil(digits * noise) / digits


def _advice(corpus: Collection, size: int, threshold: float, noise: float) -> str:
    """Return advice if there is no group: a threshold that gives one, and a warning if random pairs reach it as well."""
    from jax_sentemb.retrieval.noise import group_threshold

    proposed = math.floor(10_000 * group_threshold(corpus.vectors, size)) / 10_000
    if corpus.filled < size or not proposed < threshold:
        return f"no group of {size} among {corpus.filled:,} sentences: lower --min-size"
    advice = f"no group at this threshold: try --threshold {proposed:g}, or a lower --min-size"
    if proposed < noise:
        advice += "; random pairs reach that threshold too, so prefer --k, or train a model on this text"
    return advice


def _sizes(groups: Sequence[Sequence[int]], corpus: Collection, condition: str) -> str:
    """Return the number of groups and of their sentences, and a table of the largest groups."""
    grouped, count = sum(map(len, groups)), corpus.filled
    line = f"{len(groups):,} {'group' if len(groups) == 1 else 'groups'}{condition} with {grouped:,} of {count:,} sentences"
    if not groups:
        return line
    rows = [
        [str(number), f"{len(group):,}", (corpus.text(group[0]) or f"row {corpus.record(group[0]).row}")[:80]]
        for number, group in enumerate(groups[:MAX_LISTED])
    ]
    more = f"\nand {len(groups) - MAX_LISTED:,} smaller groups" if len(groups) > MAX_LISTED else ""
    return f"{table(('group', 'sentences', 'centre'), rows, text_columns=(2,))}{more}\n{line}"


if __name__ == "__main__":
    start(main)
