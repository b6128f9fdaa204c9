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
| {AS_LARGE} | the corrected interval is above 0, and the plain one reaches the published difference |
| {SMALLER} | the corrected interval is above 0, and the plain one ends below the published difference |
| {NO_SIZE} | the corrected interval is within ±{PRACTICAL} |
| {OPPOSITE} | the corrected interval is below 0 |
| {UNDECIDED} | the corrected interval includes 0, there is a single run, or settings contradict each other |
| {NOT_TESTED} | no table has both methods |

A decided claim shows how many of its settings decide it. Where runs have a last step too, it shows
how many of these have the same sign there. An undecided claim shows how many of its settings have
{SEEDS} seeds or more. If some have fewer, it shows the hours of one core that the others would take.

**Which uncertainty the intervals cover.** They cover other seeds of the training, or other topics,
folds and tasks where a table has these as units. They do not cover other test sentences, since all
seeds are scored on the same pairs. A verdict therefore holds for these sets. On other sets it may
differ. Rows marked "exact" compare two models without training, so they have no seeds. Their 95 %
intervals cover other test sentences. They are bootstrap intervals over the pairs of each set
([items.csv](../experiments/items.csv)). `jax-sentemb evaluate` gives such intervals for your models
([scores](evaluation.md#reading-the-scores)).

The intervals over seeds are those of Student's t for the mean of differences, paired by seed (or
topic, fold, task). The table of claims counts plain 95 % intervals. The corrected intervals are
those of the single settings below. They have Holm's correction over all settings with several
seeds. A claim takes the verdict of its decided settings. It is undecided if some of them are above
0 and others are not. Where a run has two checkpoints, the one that the development set selects
counts, and the last step is shown next to it. Of a learning curve, the last point counts that both
methods have.

Some settings are listed and counted, but do not decide. The last column says why. The readout
differs from the paper's, or a method has a rate that is too high for it. Or the paper itself has no
gain at that number of sentences.

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
    differs: str = ""  # why it does not decide
    over_items: tuple[float, float] | None = None  # neither of the two is trained: the interval over test items


class Claim(NamedTuple):
    """A claim with its settings."""

    row: dict[str, Any]
    settings: list[Setting]


def files_of(table: dict[str, Any]) -> list[str]:
    """Return the CSV files of a table."""
    return [table["file"]] if isinstance(table["file"], str) else table["file"]


def read(table: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a table that pass its `where`, with the method in the column "method", and its `baselines`."""
    rows = [row for file in files_of(table) for row in read_file(file)]
    where = table.get("where", {})
    rows = [row for row in rows if all(row.get(key, value) == value for key, value in where.items())]
    rows = [row | {"method": row[table["method"]]} for row in rows]
    known = {row["baseline"]: row["average"] for row in read_file("baselines.csv")} if "baselines" in table else {}
    return rows + [{"method": name, table["value"]: known[name]} for name in table.get("baselines", ())]


def read_file(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of experiments/."""
    with (ROOT / "experiments" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def untrained(table: dict[str, Any]) -> set[str]:
    """Return the methods without training, which belong to every group."""
    return {*table.get("everywhere", ()), *table.get("baselines", ())}


def sentences_of(table: dict[str, Any], row: dict[str, str]) -> int | None:
    """Return the number of training sentences of a row, if the table knows it."""
    if "sentences" in table:
        return table["sentences"]
    value = float(row.get("sentences") or row.get("data.subset") or 0)
    return int(value * table["corpus"] if "corpus" in table else value) or None


def groups(table: dict[str, Any]) -> dict[tuple[str, ...], dict[str, list[dict[str, str]]]]:
    """Return {values of the columns `by`: {method: rows}}; methods without training are in each group."""
    rows, everywhere = read(table), untrained(table)
    key_of = lambda row: tuple(row[name] for name in table.get("by", ()))  # noqa: E731
    keys = dict.fromkeys(key_of(row) for row in rows if row["method"] not in everywhere)
    result: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = {key: {} for key in keys}
    for row, key in itertools.product(rows, keys):
        if row["method"] in everywhere or key_of(row) == key:
            result[key].setdefault(row["method"], []).append(row)
    return result


def at_last_common_point(table: dict[str, Any], sides: Sequence[list[dict[str, str]]]) -> list[list[dict[str, str]]]:
    """Return the rows of two methods at the last point of a learning curve that both have; all rows without a `curve`."""
    if not (curve := table.get("curve")):
        return list(sides)
    points = [{float(row[curve]) for row in rows} for rows in sides if rows[0]["method"] not in untrained(table)]
    last = max(set.intersection(*points), default=None)
    return [[row for row in rows if row["method"] in untrained(table) or float(row[curve]) == last] for rows in sides]


def scores(table: dict[str, Any], rows: Sequence[dict[str, str]], checkpoint: str) -> dict[tuple[str, ...], float]:
    """Return {unit: score} of the rows of one method, {(): score} without training; ValueError for two rows of a unit."""
    if len(rows) == 1 and rows[0]["method"] in untrained(table):
        return {(): float(rows[0][table["value"]])}
    column = table.get("checkpoint")
    chosen = [row for row in rows if not column or row[column] == checkpoint]
    units = [tuple(row[name] for name in table["unit"]) for row in chosen]
    if len(set(units)) < len(units):
        raise ValueError(f"{table['file']}: {len(units)} rows of {rows[0]['method']} have the units {sorted(set(units))}")
    return {unit: float(row[table["value"]]) for unit, row in zip(units, chosen, strict=True)}


Pairs = list[tuple[float, float]]


def paired(without: dict[tuple[str, ...], float], with_: dict[tuple[str, ...], float]) -> Pairs:
    """Return the scores of both methods for each unit that both have; a score of the unit () pairs with every unit."""
    units = sorted((without.keys() | with_.keys()) - {()}) or [()]
    pairs = [(without.get(unit, without.get(())), with_.get(unit, with_.get(()))) for unit in units]
    return [(first, second) for first, second in pairs if first is not None and second is not None]


def differences_of(pairs: Pairs) -> list[float]:
    """Return the second score minus the first of each unit."""
    return [second - first for first, second in pairs]


def published(claim: dict[str, Any], sentences: int | None, method: str = "") -> float:
    """Return the published difference of a stronger method, of the number of sentences that is nearest by ratio."""
    options = [option for option in claim["published"] if option.get("method", method) == method]
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
            rows = at_last_common_point(table, (methods[first], methods[second]))
            if not all(rows):
                continue
            by_unit = {at: [scores(table, some, at) for some in rows] for at in ("dev", "last")}
            selected, last = paired(*by_unit["dev"]), paired(*by_unit["last"]) if "checkpoint" in table else []
            if not selected:
                continue
            sentences = sentences_of(table, rows[1][0])
            shown = [table["about"], *([pair[1]] if len(claim["pairs"]) > 1 else [])]
            shown += [f"{sentences:,} sentences"] if sentences else []
            columns = (*zip(table.get("by", ()), key, strict=True), *((name, rows[1][0][name]) for name in curve_of(table)))
            shown += [f"{name} {value}" for name, value in columns if name not in SIZES]
            shown += [setting for name in (names[first], names[second]) for setting in name[1:]]
            size = published(claim, sentences, pair[1])
            yield Setting(
                study=files_of(table)[0].partition("/")[0],
                about="; ".join(dict.fromkeys(shown)),
                without=statistics.mean(score for score, _ in selected),
                with_=statistics.mean(score for _, score in selected),
                differences=differences_of(selected),
                last=differences_of(last),
                unit=_unit(table),
                published=size,
                differs=differs(table, (first, second)) or (NO_GAIN if size <= 0 else ""),
                over_items=_over_items(table, first, second),
            )


NO_GAIN = "no gain in the paper"


def differs(table: dict[str, Any], methods: Sequence[str]) -> str:
    """Return why a comparison does not decide: the reason of the table, or that of one of the methods."""
    reason = table.get("differs", "")
    return reason if isinstance(reason, str) else next((reason[name] for name in methods if name in reason), "")


def curve_of(table: dict[str, Any]) -> list[str]:
    """Return the column of a learning curve, if the table has one."""
    return [table["curve"]] if "curve" in table else []


def _over_items(table: dict[str, Any], first: str, second: str) -> tuple[float, float] | None:
    """Return the interval of the difference of two untrained models over test items; None if one of them is trained."""
    if not {first, second} <= untrained(table):
        return None
    rows = {(row["encoder"], row["first"], row["second"]): row for row in read_file("items.csv")}
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
    study, size = files_of(table)[0].partition("/")[0], published(claim, few) - published(claim, many)
    yield Setting(study, about, *means, differences, [], _unit(table), size, differs(table, ()))


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
    """Return the verdict of a setting; the interval at `level` is compared with 0, the plain one with the published difference."""
    low, high = interval_of(setting, level)
    if low > -PRACTICAL and high < PRACTICAL:
        return NO_SIZE
    if low > 0:
        return AS_LARGE if interval_of(setting, LEVEL)[1] >= setting.published else SMALLER
    return OPPOSITE if high < 0 else UNDECIDED


def deciding(settings: Sequence[Setting], levels: Sequence[float]) -> list[tuple[Setting, float, str]]:
    """Return the settings that decide a claim, with their levels and verdicts."""
    verdicts = [(setting, level, verdict_of(setting, level)) for setting, level in zip(settings, levels, strict=True)]
    return [each for each in verdicts if not each[0].differs and each[2] != UNDECIDED]


def verdict(settings: Sequence[Setting], levels: Sequence[float]) -> str:
    """Return the verdict of a claim from those of its settings."""
    if not settings:
        return NOT_TESTED
    decided = {result for _, _, result in deciding(settings, levels)}
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
    row = claim.row
    cells = [f"{row['text']} ({row['paper']}, {row['table']})"]
    differences = _published_range(row)
    cells.append(_range(differences) if differences else "")
    intervals = [interval_of(setting, LEVEL) for setting in claim.settings]
    above, below = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    smaller = sum(high < setting.published for setting, (_, high) in zip(claim.settings, intervals, strict=True))
    cells += [f"{len(intervals)}: {above}, {below}, {len(intervals) - above - below}", str(smaller)] if intervals else ["0", ""]
    cells.append(_range([statistics.mean(setting.differences) for setting in claim.settings]) if intervals else "")
    return " | ".join([*cells, _explained(claim, levels)])


def _published_range(row: dict[str, Any]) -> list[float]:
    gains = [option["scores"][1] - option["scores"][0] for option in row["published"]]
    return [gains[0] - gain for gain in gains[1:]] if row.get("sizes") else gains


def _explained(claim: Claim, levels: Sequence[float]) -> str:
    """Return the verdict of a claim, and how many of its settings decide it or could."""
    result, decided = verdict(claim.settings, levels), deciding(claim.settings, levels)
    if result == NOT_TESTED:
        return f"{result} ({claim.row['hours']:g} core-hours)"
    candidates = [setting for setting in claim.settings if not setting.differs]
    if result == UNDECIDED:
        tested = sum(bool(setting.over_items) or len(setting.differences) >= SEEDS for setting in candidates)
        rest = f"; the others: {claim.row['hours']:g} core-hours" if tested < len(candidates) else ""
        return f"{result}; {tested} of {len(candidates)} have {SEEDS} seeds{rest}"
    both = [(own, verdict_of(setting._replace(differences=setting.last), level)) for setting, level, own in decided if setting.last]
    same = sum(last != UNDECIDED and (last == OPPOSITE) == (own == OPPOSITE) for own, last in both)
    at_last = f", {same} at the last step" if both else ""
    return f"{result}; {len(decided)} of {len(candidates)} settings{at_last}"


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
        f"{verdict_of(setting, level)}{f'; {setting.differs}' if setting.differs else ''} |"
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
    shown = ", ".join(f"{counts[name]} *{name}*" for name in came_out)
    return (
        f"Of {len(claims)} claims of the papers, {counts[UNDECIDED]} are undecided here, and {counts[NOT_TESTED]} was not tested\n"
        f"([evidence](evidence.md)). The verdicts on the others:\n{shown}."
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
