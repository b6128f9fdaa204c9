"""Write evidence.md and a sentence in comparing.md: `python docs/evidence.py` compares the papers' claims with our studies.

The claims and the tables that can test them are in evidence.toml, our numbers in experiments/*/*.csv. A claim is compared in every
table that has both of its methods.
"""

import csv
import itertools
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

ROOT = Path(__file__).parents[1]
PAGE, TABLE, COMPARING = (ROOT / "docs" / name for name in ("evidence.md", "evidence.toml", "comparing.md"))
START, END = "<!-- evidence -->", "<!-- /evidence -->"
LEVEL = 0.05
SEEDS = 5  # of a setting that is tested enough
PRACTICAL = 0.25  # a difference below this has no practical size
AS_LARGE, SMALLER, NO_SIZE, OPPOSITE, UNDECIDED = VERDICTS = (
    "as large as published", "same sign, smaller", "no practical size", "opposite", "undecided",
)  # fmt: skip
NOT_TESTED = "not tested"
HEAD = f"""\
# The claims of the papers, and the results here

This page shows how to tell which claims of the papers hold for a small encoder on a CPU. It lists
every claim that can be tested so, whatever the outcome.

The published models are mostly BERT-base, trained on up to a million sentences. Ours have four
layers of width 256, or word vectors of 50 or 300 dimensions, and train for minutes. Levels cannot
be compared, differences can. Published similarity scores are means over seven sets. Ours are means
over five: STS12, STS14, STS15, STS-B and SICK-R. AMI's weight is 0.0025 in the paper and mostly 3
or 10 here. STS-B dev selected the step of most runs, and 69 % of its pairs are in the scored sets
([scores](evaluation.md#reading-the-scores)).

| verdict | meaning |
|---|---|
| {AS_LARGE} | the interval is above 0 and does not exclude the published difference |
| {SMALLER} | the interval is above 0 and below the published difference |
| {NO_SIZE} | the interval is within ±{PRACTICAL} |
| {OPPOSITE} | the interval is below 0 |
| {UNDECIDED} | the interval includes 0, there is a single run, or settings contradict each other |
| {NOT_TESTED} | no table has both methods |

An undecided claim shows its number of seeds. With fewer than {SEEDS} seeds it shows the hours of
one core that {SEEDS} would take.

**Which uncertainty the intervals cover.** They cover other seeds of the training, or other topics,
folds and tasks where a table has these as units. They do not cover other test sentences, since all
seeds are scored on the same pairs. A verdict therefore holds for these sets. On other sets it may
differ. Rows marked "exact" compare two models without training, so they have no seeds. Their 95 %
intervals cover other test sentences. They are bootstrap intervals over the pairs of each set
([items.csv](../experiments/items.csv)). `jax-sentemb evaluate` gives such intervals for your models
([scores](evaluation.md#reading-the-scores)).

The intervals over seeds are those of Student's t for the mean of differences, paired by seed (or
topic, fold, task). The table of claims counts plain 95 % intervals. The verdicts, and the intervals
of the single settings below, have Holm's correction over all settings with several seeds. A claim
takes the verdict of its decided settings. It is undecided if some of them are above 0 and others
are not. A setting that differs from the paper in its readout is listed and counted, but does not
decide. Where a run has two checkpoints, the one that the development set selects counts, and the
last step is shown next to it. Of a learning curve, the last point counts.

`python docs/evidence.py` writes this page from [evidence.toml](evidence.toml) and the CSV files of
the studies. The READMEs of the studies have the commands.
[items.py](../experiments/items.py) has the command that writes items.csv.
"""
HEADER = (
    "| | claim | published | settings: above 0, below 0, undecided | below the published difference | differences here | verdict |",
    "|--:|---|--:|---|--:|--:|---|",
)


class Setting(NamedTuple):
    """One comparison: two methods in one group of one table."""

    study: str
    about: str
    without: float
    with_: float
    differences: list[float]  # one for each unit
    last: list[float]  # the same at the last step; empty if the table has no checkpoints
    unit: str
    published: float  # difference
    decides: bool  # False: something differs from the paper
    over_items: tuple[float, float] | None = None  # neither of the two is trained: the interval over test items


class Claim(NamedTuple):
    """A claim with its settings."""

    row: dict[str, Any]
    settings: list[Setting]


def read(table: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a table that pass its `where`."""
    with (ROOT / "experiments" / table["file"]).open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in table.get("where", {}).items())]


def sentences_of(table: dict[str, Any], row: dict[str, str]) -> int | None:
    """Return the number of training sentences of a row, if the table knows it."""
    if "sentences" in table:
        return table["sentences"]
    value = float(row.get("sentences") or row.get("data.subset") or 0)
    return int(value * table["corpus"] if "corpus" in table else value) or None


def groups(table: dict[str, Any]) -> dict[tuple[str, ...], dict[str, list[dict[str, str]]]]:
    """Return {values of the columns `by`: {method: rows}}; methods of `everywhere` are in each group."""
    rows, everywhere = read(table), table.get("everywhere", ())
    columns = table.get("by", ())
    keys = dict.fromkeys(tuple(row[name] for name in columns) for row in rows if row[table["method"]] not in everywhere)
    if curve := table.get("curve"):
        last = str(max(float(row[curve]) for row in rows)).removesuffix(".0")
        keys = [key for key in keys if key[columns.index(curve)] == last]
    result: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = {key: {} for key in keys}
    for row, key in itertools.product(rows, keys):
        if row[table["method"]] in everywhere or tuple(row[name] for name in columns) == key:
            result[key].setdefault(row[table["method"]], []).append(row)
    return result


def scores(table: dict[str, Any], rows: Sequence[dict[str, str]], checkpoint: str) -> dict[tuple[str, ...], float]:
    """Return {unit: score} of the rows of one method, {(): score} without training; ValueError for two rows of a unit."""
    column = table.get("checkpoint")
    chosen = [row for row in rows if not column or row[column] == checkpoint]
    if len(chosen) == 1 and chosen[0][table["method"]] in table.get("everywhere", ()):
        return {(): float(chosen[0][table["value"]])}
    units = [tuple(row[name] for name in table["unit"]) for row in chosen]
    if len(set(units)) < len(units):
        raise ValueError(f"{table['file']}: {len(units)} rows of {rows[0][table['method']]} have the units {sorted(set(units))}")
    return {unit: float(row[table["value"]]) for unit, row in zip(units, chosen, strict=True)}


def paired(without: dict[tuple[str, ...], float], with_: dict[tuple[str, ...], float]) -> list[float]:
    """Return the differences by unit; a score of the unit () pairs with every unit."""
    units = sorted((without.keys() | with_.keys()) - {()}) or [()]
    pairs = [(without.get(unit, without.get(())), with_.get(unit, with_.get(()))) for unit in units]
    return [second - first for first, second in pairs if first is not None and second is not None]


def published(claim: dict[str, Any], sentences: int | None) -> float:
    """Return the published difference, of the number of sentences that is nearest by ratio."""
    options = claim["published"]
    if sentences:
        options = sorted(options, key=lambda option: abs(np.log(option.get("sentences", sentences) / sentences)))
    low, high = options[0]["scores"]
    return high - low


def compare(claim: dict[str, Any], tables: Sequence[dict[str, Any]]) -> Claim:
    """Return the claim with a setting for each group of each table that has both methods of one of its pairs."""
    matching = [table for table in tables if table["measure"] == claim["measure"]]
    make = _over_sizes if claim.get("sizes") else _settings
    return Claim(claim, [setting for table in matching for pair in claim["pairs"] for setting in make(claim, table, pair)])


def _settings(claim: dict[str, Any], table: dict[str, Any], pair: Sequence[str]) -> Iterator[Setting]:
    names = {column: name.split(" | ") for column, name in table["names"].items()}
    for key, methods in groups(table).items():
        sides = [[column for column in methods if column in names and names[column][0] == name] for name in pair]
        for first, second in itertools.product(*sides):
            rows = methods[first], methods[second]
            by_unit = {at: [scores(table, some, at) for some in rows] for at in ("dev", "last")}
            selected, last = paired(*by_unit["dev"]), paired(*by_unit["last"]) if "checkpoint" in table else []
            if not selected:
                continue
            sentences = sentences_of(table, rows[1][0])
            shown = [table["about"], *([f"{sentences:,} sentences"] if sentences else [])]
            shown += [f"{name} {value}" for name, value in zip(table.get("by", ()), key, strict=True) if name not in SIZES]
            shown += [setting for name in (names[first], names[second]) for setting in name[1:]]
            yield Setting(
                study=table["file"].partition("/")[0],
                about="; ".join(dict.fromkeys(shown)),
                without=statistics.mean(by_unit["dev"][0].values()),
                with_=statistics.mean(by_unit["dev"][1].values()),
                differences=selected,
                last=last,
                unit=_unit(table),
                published=published(claim, sentences),
                decides="differs" not in table,
                over_items=_over_items(table, first, second),
            )


def _over_items(table: dict[str, Any], first: str, second: str) -> tuple[float, float] | None:
    """Return the interval of the difference of two untrained models over test items; None if one of them is trained."""
    if not {first, second} <= set(table.get("everywhere", ())):
        return None
    with (ROOT / "experiments" / "items.csv").open(newline="", encoding="utf-8") as file:
        rows = {(row["encoder"], row["first"], row["second"]): row for row in csv.DictReader(file)}
    row = rows[table["encoder"], first, second]
    return float(row["low"]), float(row["high"])


def _unit(table: dict[str, Any]) -> str:
    return " and ".join({"score": "task"}.get(name, name.rpartition(".")[2]) for name in table["unit"])


SIZES = ("sentences", "data.subset")


def _over_sizes(claim: dict[str, Any], table: dict[str, Any], pair: Sequence[str]) -> Iterator[Setting]:
    """Compare the gain on the fewest sentences with the gain on the most, of a table with several numbers of sentences."""
    if not set(table.get("by", ())) & set(SIZES):
        return
    by_size: dict[int, tuple[dict, dict]] = {}
    for methods in groups(table).values():
        columns = [[column for column in methods if table["names"].get(column) == name] for name in pair]
        if all(columns):
            rows = [methods[some[0]] for some in columns]
            by_size[sentences_of(table, rows[0][0]) or 0] = tuple(scores(table, some, "dev") for some in rows)  # pyright: ignore
    if len(by_size) < 2:
        return
    few, many = min(by_size), max(by_size)
    units = sorted(set.intersection(*(set(side) for size in (few, many) for side in by_size[size])))
    gains = {size: [by_size[size][1][unit] - by_size[size][0][unit] for unit in units] for size in (few, many)}
    differences = [small - large for small, large in zip(gains[few], gains[many], strict=True)]
    about = f"{table['about']}; the gain on {few:,} against {many:,} sentences"
    means = statistics.mean(gains[many]), statistics.mean(gains[few])
    name = table["file"].partition("/")[0]
    yield Setting(name, about, *means, differences, [], _unit(table), published(claim, None), "differs" not in table)


def p_value(differences: Sequence[float]) -> float:
    """Return the p-value of a t-test of the mean against 0; 1 for fewer than two differences."""
    if len(differences) < 2:
        return 1.0
    spread = stats.sem(differences)
    if not spread:
        return float(not any(differences))
    return float(2 * stats.t.sf(abs(statistics.mean(differences)) / spread, len(differences) - 1))


def holm_levels(values: Sequence[float]) -> list[float]:
    """Return the level of each of several tests by Holm's step-down procedure, so that a test is rejected where p <= level."""
    levels, level, stopped = [0.0] * len(values), LEVEL, False
    for done, index in enumerate(sorted(range(len(values)), key=lambda index: values[index])):
        if not stopped:
            level = LEVEL / (len(values) - done)
            stopped = values[index] > level
        levels[index] = level
    return levels


def interval(differences: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of the mean of differences at 1 - `level`; infinite for a single one."""
    if len(differences) < 2:
        return float("-inf"), float("inf")
    half = float(stats.sem(differences) * stats.t.ppf(1 - level / 2, len(differences) - 1))
    mean = statistics.mean(differences)
    return mean - half, mean + half


def interval_of(setting: Setting, level: float) -> tuple[float, float]:
    """Return the interval of a setting: over test items if neither model is trained, otherwise over seeds."""
    return setting.over_items or interval(setting.differences, level)


def verdict_of(setting: Setting, level: float) -> str:
    """Return the verdict of one setting."""
    low, high = interval_of(setting, level)
    if low > -PRACTICAL and high < PRACTICAL:
        return NO_SIZE
    if low > 0:
        return AS_LARGE if high >= setting.published else SMALLER
    return OPPOSITE if high < 0 else UNDECIDED


def verdict(settings: Sequence[Setting], levels: Sequence[float]) -> str:
    """Return the verdict of a claim from those of its settings."""
    if not settings:
        return NOT_TESTED
    decided = {verdict_of(*pair) for pair in zip(settings, levels, strict=True) if pair[0].decides} - {UNDECIDED}
    if len(decided) == 1:
        return decided.pop()
    return SMALLER if decided == {AS_LARGE, SMALLER} else UNDECIDED


def levels_of(claims: Sequence[Claim]) -> list[list[float]]:
    """Return the Holm level of every setting, claim by claim; a single run is no test."""
    tested = [setting for claim in claims for setting in claim.settings if len(setting.differences) > 1]
    levels = iter(holm_levels([p_value(setting.differences) for setting in tested]))
    return [[next(levels) if len(setting.differences) > 1 else LEVEL for setting in claim.settings] for claim in claims]


def page(claims: Sequence[Claim]) -> str:
    """Return evidence.md."""
    lines, levels = [HEAD], levels_of(claims)
    lines += ["## All claims\n", *HEADER]
    for number, (claim, some) in enumerate(zip(claims, levels, strict=True), 1):
        lines.append(f"| {number} | {_summary(claim, some)} |")
    lines += ["", "## Settings of each claim\n"]
    for number, (claim, some) in enumerate(zip(claims, levels, strict=True), 1):
        lines += [
            f"### {number}. {claim.row['text']}\n",
            f"{claim.row['paper']}, {claim.row['table']}. Refuted by: {claim.row['refuted']}.\n",
        ]
        if claim.settings:
            lines += ["| study and setting | here | difference | last step | published | verdict |", "|---|--:|--:|--:|--:|---|"]
            lines += [_detail(setting, level) for setting, level in zip(claim.settings, some, strict=True)]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _summary(claim: Claim, levels: Sequence[float]) -> str:
    row, result = claim.row, verdict(claim.settings, levels)
    cells = [f"{row['text']} ({row['paper']}, {row['table']})"]
    differences = [option["scores"][1] - option["scores"][0] for option in row["published"]]
    cells.append(_range(differences) if differences else "")
    intervals = [interval_of(setting, LEVEL) for setting in claim.settings]
    above, below = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    smaller = sum(high < setting.published for setting, (_, high) in zip(claim.settings, intervals, strict=True))
    cells += [f"{len(intervals)}: {above}, {below}, {len(intervals) - above - below}", str(smaller)] if intervals else ["0", ""]
    cells.append(_range([statistics.mean(setting.differences) for setting in claim.settings]) if intervals else "")
    if result in (NOT_TESTED, UNDECIDED):
        counts = [(len(setting.differences), setting.unit) for setting in claim.settings if setting.decides]
        count, unit = max(counts, default=(0, ""))
        result += f" after {count} {unit}s" if count >= SEEDS else f" ({row['hours']:g} core-hours)"
    return " | ".join([*cells, result])


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):+.1f}", f"{max(values):+.1f}"
    return low if low == high else f"{low} to {high}"


def _detail(setting: Setting, level: float) -> str:
    study = f"[{setting.study}](../experiments/{setting.study}/README.md), {setting.about}"
    last = _difference(setting.last, level) if setting.last else ""
    count = len(setting.differences)
    if setting.over_items:
        low, high = setting.over_items
        shown = f"{setting.differences[0]:+.2f} [{low:+.2f}, {high:+.2f}] over pairs, exact"
    else:
        shown = f"{_difference(setting.differences, level)}, {f'{count} {setting.unit}s' if count > 1 else 'one run'}"
    return (
        f"| {study} | {setting.without:.1f} → {setting.with_:.1f} | {shown} | {last} | {setting.published:+.1f} | "
        f"{verdict_of(setting, level)}{'' if setting.decides else ', other readout'} |"
    )


def _difference(differences: Sequence[float], level: float) -> str:
    mean = statistics.mean(differences)
    if len(differences) < 2:
        return f"{mean:+.1f}"
    low, high = interval(differences, level)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def sentence(claims: Sequence[Claim]) -> str:
    """Return what comparing.md says."""
    counts = Counter(verdict(claim.settings, some) for claim, some in zip(claims, levels_of(claims), strict=True))
    came_out = (AS_LARGE, SMALLER, NO_SIZE, OPPOSITE)
    shown = ", ".join(f"{name}: {counts[name]}" for name in came_out)
    return (
        f"Of {len(claims)} claims of the papers {counts[UNDECIDED]} are undecided here and {counts[NOT_TESTED]} are not tested\n"
        f"([evidence](evidence.md)). The others came out\n{shown}."
    )


def load() -> tuple[list[Claim], list[dict[str, Any]], dict[str, str]]:
    """Return the claims with their settings, the tables, and the CSV files that test no claim with the reason."""
    content = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [compare(claim, content["tables"]) for claim in content["claims"]], content["tables"], content["no_claim"]


def main() -> int:
    """Write the page and the sentence in comparing.md."""
    claims, _, _ = load()
    PAGE.write_text(page(claims), encoding="utf-8")
    text = COMPARING.read_text(encoding="utf-8")
    COMPARING.write_text(
        re.sub(f"{START}.*?{END}", lambda _: f"{START}\n{sentence(claims)}\n{END}", text, flags=re.S), encoding="utf-8"
    )
    print(sentence(claims))
    return 0


if __name__ == "__main__":
    sys.exit(main())
