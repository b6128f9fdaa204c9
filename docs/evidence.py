"""Writes evidence.md and the sentence about it in README.md: `python docs/evidence.py` compares our studies with the papers.

The claims are in evidence.toml, our numbers in experiments/*/*.csv.
"""

import csv
import re
import statistics
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from scipy import stats

ROOT = Path(__file__).parents[1]
PAGE, TABLE, README = ROOT / "docs" / "evidence.md", ROOT / "docs" / "evidence.toml", ROOT / "README.md"
HOLDS, NOT_SEEN, CONTRADICTED = "holds", "not seen", "contradicted"
SAME, OPPOSITE = "same direction, one run", "opposite direction, one run"
START, END = "<!-- evidence -->", "<!-- /evidence -->"
HEAD = """\
# Claims of the papers and what came out here

Each row is a claim of one of the papers and the study of this repository that tests it. The published models are mostly
BERT-base, trained on up to a million sentences. Ours have four layers of width 256, or word vectors of 50 or 300
dimensions, and were trained for minutes. So the levels cannot be compared, only the differences. Published similarity
scores are Spearman x 100 over seven sets, ours over five (STS12, STS14, STS15, STS-B, SICK-R) where the claim does not
say otherwise.

The verdict is computed. With several seeds (or topics, or folds), *holds* and *contradicted* mean that the 95 % interval of
the paired difference (Student's t) lies above or below 0, and *not seen* that 0 is in it. With one run there is no interval,
only a direction.

`python docs/evidence.py` writes this page from [evidence.toml](evidence.toml) and the CSV files of each study. The READMEs
of the studies have their commands.
"""


class Row(NamedTuple):
    """A claim with our numbers."""

    claim: dict
    without: float
    with_: float
    differences: list[float]

    @property
    def verdict(self) -> str:
        low, high = interval(self.differences)
        if len(self.differences) == 1:
            return SAME if self.differences[0] > 0 else OPPOSITE
        return HOLDS if low > 0 else CONTRADICTED if high < 0 else NOT_SEEN


def interval(differences: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of paired differences; infinite for one."""
    if len(differences) < 2:
        return float("-inf"), float("inf")
    spread = stats.sem(differences) * stats.t.ppf(0.975, len(differences) - 1)
    mean = statistics.mean(differences)
    return mean - spread, mean + spread


def compare(claim: dict) -> Row:
    """Our scores for a claim; ValueError where a selection has no rows or several rows of a seed."""
    folder, _, name = claim["study"].partition("/")
    with (ROOT / "experiments" / folder / (name or "results.csv")).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    without, with_ = (_scores(rows, claim[side], claim) for side in ("without", "with"))
    shared = sorted(without.keys() & with_.keys())
    if len(without) == 1 and not shared:  # an untrained model has one run
        differences = [score - next(iter(without.values())) for score in with_.values()]
    elif without.keys() == with_.keys():
        differences = [with_[seed] - without[seed] for seed in shared]
    else:
        raise ValueError(f"{claim['says']}: seeds {sorted(without)} and {sorted(with_)}")
    return Row(claim, statistics.mean(without.values()), statistics.mean(with_.values()), differences)


def _scores(rows: list[dict[str, str]], chosen: dict[str, str], claim: dict) -> dict[str, float]:
    unit = claim.get("unit")
    found = [row for row in rows if all(row[column] == wanted for column, wanted in chosen.items())]
    seeds = [row[unit] if unit else row.get("seed") or row.get("train.seed") or "" for row in found]
    if not found or len(set(seeds)) < len(seeds):
        raise ValueError(f"{chosen} selects {len(found)} rows with the seeds {seeds}")
    if len(found) == 1:
        seeds = ["the only one"]
    return {seed: float(row[claim["value"]]) for seed, row in zip(seeds, found, strict=True)}


def page(rows: list[Row]) -> str:
    """evidence.md."""
    lines = [HEAD]
    for paper in dict.fromkeys(row.claim["paper"].partition(",")[0] for row in rows):
        lines += [f"## {paper}\n", "| claim | source | published | here | difference here | verdict |", "|---|---|--:|--:|--:|---|"]
        for row in rows:
            name, _, place = row.claim["paper"].partition(", ")
            if name == paper:
                low, high = row.claim["published"]
                study = row.claim["study"].partition("/")[0]
                difference = _difference(row.differences, row.claim.get("unit", "seed"))
                lines.append(
                    f"| {row.claim['says']} | {place}; [{study}](../experiments/{study}/README.md) | {low:.1f} → {high:.1f} | "
                    f"{row.without:.1f} → {row.with_:.1f} | {difference} | {row.verdict} |"
                )
        lines.append("")
    return "\n".join(lines)


def _difference(differences: list[float], unit: str) -> str:
    mean = statistics.mean(differences)
    if len(differences) == 1:
        return f"{mean:+.1f}"
    low, high = interval(differences)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}], {len(differences)} {unit}s"


def sentence(rows: list[Row]) -> str:
    """What the README says."""
    counts = Counter(row.verdict for row in rows)
    return (
        f"{len(rows)} comparisons test claims of the papers, some of them at several sizes: {counts[HOLDS]} claims hold here "
        f"over several seeds or topics, {counts[NOT_SEEN]} are not seen and {counts[CONTRADICTED]} are contradicted; of those "
        f"tested by one run, {counts[SAME]} go in the same direction and "
        f"{counts[OPPOSITE]} in the opposite one ([evidence](docs/evidence.md))."
    )


def main() -> int:
    rows = [compare(claim) for claim in tomllib.loads(TABLE.read_text(encoding="utf-8"))["claims"]]
    PAGE.write_text(page(rows), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(re.sub(f"{START}.*?{END}", lambda _: f"{START}\n{sentence(rows)}\n{END}", text, flags=re.S), encoding="utf-8")
    print(sentence(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
