"""Write evidence.md and a sentence in comparing.md: `python docs/evidence.py` compares the papers' claims with our studies.

The claims and the tables that can test them are in evidence.toml, our numbers in experiments/*/*.csv. A claim is compared in every
table that has both of its methods.
"""

import argparse
import csv
import itertools
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

ROOT = Path(__file__).parents[1]
PAGE, TABLE, COMPARING = (ROOT / "docs" / name for name in ("evidence.md", "evidence.toml", "comparing.md"))
START, END = "<!-- evidence -->", "<!-- /evidence -->"
LEVEL = 0.05
SEEDS = 5  # of a setting that is tested enough
ROUNDING = 0.005  # of a score in a CSV file
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
be compared, differences can. Claims FAMILIES are exceptions. They compare models of
different families or with and without labels, so the levels enter their differences. AMI's weight
is 0.0001 to 0.0025 in the paper and mostly 3 or 10 here. The paper's arguments are those of AFS,
ours those of UKP ASPECT. STS-B dev selected the step of most runs, and 69 % of its pairs are in the
scored sets ([scores](evaluation.md#reading-the-scores)). `bert-mini` is
[not published](../experiments/data.md#bert-mini), so its settings cannot be repeated exactly.

Our similarity scores are means over STS12, STS14, STS15, STS-B and SICK-R, those for transfer and
probing over six and three tasks. If the paper prints all of a setting's sets or tasks for both
methods, the published difference is the one over these same sets. Otherwise it is that of the
printed means, for similarity over six or seven sets.

| verdict | meaning |
|---|---|
| {AS_LARGE} | the corrected interval is above 0, the plain one reaches the published difference, and no setting excludes it |
| {SMALLER} | the corrected interval is above 0, and the plain one, or another setting, excludes the published difference |
| {NO_SIZE} | two one-sided tests show a difference within ±{PRACTICAL}, whatever was published |
| {OPPOSITE} | the corrected interval is below 0 |
| {UNDECIDED} | none of these, or settings contradict each other |
| {NOT_TESTED} | no table has both methods |

Only settings with {SEEDS} seeds or more (or topics or folds) decide. A decided claim shows how many
of its settings do. Where runs have a last step too, it shows how many of these have the same sign
there. An undecided claim shows the reason:

| reason | meaning |
|---|---|
| settings contradict | some settings have one verdict, others another |
| not above 0, not below 0 | settings with {SEEDS} seeds or more decide nothing |
| too few seeds | no setting has {SEEDS} seeds |
| no setting can decide | each has a reason in its last column; the hours are those of runs that could |

It also shows how many of the settings that can decide it have {SEEDS} seeds or more. If some have
fewer, the hours of one core follow that their missing runs would take. The time of a run is from
the README of the study. Where it has only the time of a longer or shorter run, this is scaled by
the number of steps.

"Published size excluded" counts the settings whose one-sided interval ends below the published
difference, of those with {SEEDS} seeds or more. So the size of an undecided claim can be refuted.

**Which uncertainty the intervals cover.** They cover other seeds of the training, or other topics,
folds and tasks where a table has these as units. They do not cover other test sentences, since all
seeds are scored on the same pairs. A verdict therefore holds for these sets. On other sets it may
differ. Rows marked "exact" compare two models without training, so they have no seeds. Their 95 %
intervals cover other test sentences and are not corrected. They are bootstrap intervals over the
pairs of each set ([items.csv](../experiments/items.csv)). `jax-sentemb evaluate` gives such
intervals for your models ([scores](evaluation.md#reading-the-scores)).

The intervals over seeds are those of Student's t for the mean of differences, paired by seed (or
topic, fold). Folds and topics of a table are those of one seed, and folds share training pairs.
The table of claims counts plain 95 % intervals of settings with {SEEDS} seeds or more. The
corrected intervals are those of the single settings below.

**The correction** is that of Holm, once for each of three questions. Is a difference not 0? Is it
within ±{PRACTICAL}? Is it below the published one? The family of each question has every setting
that can decide a claim and has {SEEDS} seeds or more. Settings that do not decide are in no family,
and their intervals below are plain 95 % intervals. An interval below is the one for the first
question. The interval of the second may be narrower. One row more or fewer in a family can
therefore change the verdict of another claim whose interval ends near 0.

A claim takes the verdict of its decided settings. It is undecided if some of them are above 0 and
others are not. Where a run has two checkpoints, the one that the development set selects counts,
and the last step is shown next to it. Of a learning curve, the last point counts that both methods
have.

Some settings are listed and counted, but do not decide. The last column says why. The readout, the
objective or the start differs from the paper's, or a method has a rate that is too high for it. Or
the two runs differ in more than the claim names. Or the run was a trial of a weight, a rate or a
temperature. Or the paper itself has no gain above {PRACTICAL} at that number of sentences.

`python docs/evidence.py` writes this page from [evidence.toml](evidence.toml) and the CSV files of
the studies. The READMEs of the studies have the commands.
[items.py](../experiments/items.py) has the command that writes items.csv.
"""
HEADER = (
    "| | claim | published | settings | plain interval above 0, below 0, with 0 | below published | differences here | verdict |",
    "|--:|---|--:|--:|---|--:|--:|---|",
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
    missing: tuple[tuple[tuple[str, ...], float], ...] = ()  # the runs that five seeds lack: (their name, minutes of one core)
    over_items: tuple[float, float] | None = None  # neither of the two is trained: the interval over test items
    sets: tuple[str, ...] = ()  # the sets or tasks of the score, by the names in the papers


class Claim(NamedTuple):
    """A claim with its settings."""

    row: dict[str, Any]
    settings: list[Setting]
    sizes: list[float] = []  # the published differences, on the sets of its tables


class Levels(NamedTuple):
    """The Holm levels of a setting, one for each question that is tested."""

    zero: float = LEVEL  # does the difference differ from 0 (two sides)?
    practical: float = LEVEL  # is it within ±PRACTICAL (two one-sided tests)?
    published: float = LEVEL  # is it below the published difference (one side)?


def files_of(table: dict[str, Any]) -> list[str]:
    """Return the CSV files of a table."""
    return [table["file"]] if isinstance(table["file"], str) else table["file"]


def read(table: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a table that pass its `where`, with the method in the column "method", and its `baselines`."""
    rows = [row for file in files_of(table) for row in read_file(file)]
    where = table.get("where", {})
    allowed = {key: value if isinstance(value, list) else [value] for key, value in where.items()}
    rows = [row for row in rows if all(row.get(key, values[0]) in values for key, values in allowed.items())]
    rows = [row | {"method": row[table["method"]]} for row in rows]
    if "select" in table:
        rows = list(_checkpoints(table, rows))
    known = {row["baseline"]: row["average"] for row in read_file("baselines.csv")} if "baselines" in table else {}
    return rows + [{"method": name, table["value"]: known[name]} for name in table.get("baselines", ())]


def _checkpoints(table: dict[str, Any], rows: Sequence[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield of each run the row with the highest score in the column `select` as "dev", and its last row as "last"."""
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        runs.setdefault((row["method"], *(row[name] for name in (*table.get("by", ()), *table["unit"]))), []).append(row)
    for some in runs.values():
        yield max(some, key=lambda row: float(row[table["select"]])) | {"checkpoint": "dev"}
        yield max(some, key=lambda row: float(row["step"])) | {"checkpoint": "last"}


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
    """Return {unit: score} of the rows of one method, {(): score} without training; ValueError for two scores of a unit."""
    if len(rows) == 1 and rows[0]["method"] in untrained(table):
        return {(): float(rows[0][table["value"]])}
    column = checkpoint_of(table)
    found: dict[tuple[str, ...], float] = {}
    for row in rows:
        if column and row[column] != checkpoint:
            continue
        unit, score = tuple(row[name] for name in table["unit"]), float(row[table["value"]])
        if abs(found.setdefault(unit, score) - score) > ROUNDING:  # two files may have the same run
            raise ValueError(f"{table['file']}: two rows of {row['method']} have the unit {unit}")
    return found


def checkpoint_of(table: dict[str, Any]) -> str:
    """Return the column that tells the selected from the last step, "" if there is none."""
    return table.get("checkpoint", "checkpoint" if "select" in table else "")


Pairs = list[tuple[float, float]]


def paired(without: dict[tuple[str, ...], float], with_: dict[tuple[str, ...], float]) -> Pairs:
    """Return the scores of both methods for each unit that both have; a score of the unit () pairs with every unit."""
    units = sorted((without.keys() | with_.keys()) - {()}) or [()]
    pairs = [(without.get(unit, without.get(())), with_.get(unit, with_.get(()))) for unit in units]
    return [(first, second) for first, second in pairs if first is not None and second is not None]


def differences_of(pairs: Pairs) -> list[float]:
    """Return the second score minus the first of each unit."""
    return [second - first for first, second in pairs]


def published(claim: dict[str, Any], sentences: int | None, pair: Sequence[str] = (), sets: Sequence[str] = ()) -> float:
    """Return the published difference of a pair of methods, of the number of sentences that is nearest by ratio."""
    options = [option for option in claim["published"] if option.get("pair", list(pair)) == list(pair)]
    if sentences:
        options = sorted(options, key=lambda option: abs(np.log(option.get("sentences", sentences) / sentences)))
    return difference_of(options[0], sets) if options else float("nan")


def difference_of(option: dict[str, Any], sets: Sequence[str]) -> float:
    """Return a published difference: over `sets` if the paper prints each of them, otherwise that of the printed means."""
    printed = option.get("printed", {})
    if sets and set(sets) <= printed.keys():
        return statistics.mean(high - low for low, high in (printed[name] for name in sets))
    low, high = option["scores"]
    return high - low


def compare(claim: dict[str, Any], tables: Sequence[dict[str, Any]]) -> Claim:
    """Return the claim with a setting for each group of each table that has both methods of one of its pairs."""
    matching = [table for table in tables if table["measure"] == claim["measure"]]
    make = _over_sizes if claim.get("sizes") else _settings
    settings: list[Setting] = []
    for table in matching:
        settings += [setting for pair in claim["pairs"] for setting in make(claim, table, pair)]
    return Claim(claim, settings, _published_sizes(claim, {setting.sets: None for setting in settings}))


def _settings(claim: dict[str, Any], table: dict[str, Any], pair: Sequence[str]) -> Iterator[Setting]:
    names = {column: name.split(" | ") for column, name in table["names"].items()}
    for key, methods in groups(table).items():
        sides = [[column for column in methods if column in names and names[column][0] == name] for name in pair]
        for first, second in itertools.product(*sides):
            rows = at_last_common_point(table, (methods[first], methods[second]))
            if not all(rows):
                continue
            by_unit = {at: [scores(table, some, at) for some in rows] for at in ("dev", "last")}
            selected, last = paired(*by_unit["dev"]), paired(*by_unit["last"]) if checkpoint_of(table) else []
            if not selected:
                continue
            sentences = sentences_of(table, rows[1][0])
            shown = [table["about"], *([pair[1]] if len(claim["pairs"]) > 1 else [])]
            shown += [f"{sentences:,} sentences"] if sentences else []
            columns = (*zip(table.get("by", ()), key, strict=True), *((name, rows[1][0][name]) for name in curve_of(table)))
            shown += [f"{name} {value}" for name, value in columns if name not in SIZES]
            shown += [setting for name in (names[first], names[second]) for setting in name[1:]]
            size = published(claim, sentences, pair, sets_of(table))
            yield Setting(
                study=files_of(table)[0].partition("/")[0],
                about="; ".join(dict.fromkeys(shown)),
                without=statistics.mean(score for score, _ in selected),
                with_=statistics.mean(score for _, score in selected),
                differences=differences_of(selected),
                last=differences_of(last),
                unit=_unit(table),
                published=size,
                differs=differs(table, (first, second)) or (NO_GAIN if size < PRACTICAL else ""),
                over_items=_over_items(table, first, second),
                missing=_missing(table, (*_run_key(table, key), str(sentences)), (first, second), by_unit["dev"]),
                sets=sets_of(table),
            )


NO_GAIN = f"no gain above {PRACTICAL} in the paper"
# The sets of each measure, by the names in the papers; a table has its own `sets` if they differ.
SETS = {
    "sts": ("STS12", "STS14", "STS15", "STS-B", "SICK-R"),
    "transfer": ("CR", "TREC", "MRPC", "SICK-E", "SICK-R", "STS-B"),
    "probing": ("SLen", "WC", "BShift"),
    "sts pearson": ("STS12", "STS14", "STS15", "STS-B", "SICK-R"),
}


def sets_of(table: dict[str, Any]) -> tuple[str, ...]:
    """Return the sets whose mean is the score of a table."""
    return tuple(table.get("sets", SETS.get(table["measure"], ())))


def _published_sizes(claim: dict[str, Any], sets: Iterable[tuple[str, ...]]) -> list[float]:
    """Return every published difference of a claim, on the sets of its tables."""
    sizes = [[difference_of(option, some) for option in claim["published"]] for some in sets]
    if claim.get("sizes"):
        return [gains[0] - gain for gains in sizes for gain in gains[1:]]
    return [size for gains in sizes for size in gains]


def _missing(
    table: dict[str, Any], group: tuple[str, ...], methods: Sequence[str], units: Sequence[dict[tuple[str, ...], float]]
) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Return the runs that trained methods lack to have SEEDS units; views of one model share its runs."""
    minutes, result = table.get("minutes", 0), {}
    for method, scored in zip(methods, units, strict=True):
        model = table.get("same_run", {}).get(method, method)
        if method not in untrained(table) and len(scored) < SEEDS:
            cost = minutes if isinstance(minutes, int | float) else minutes[model]
            result[*files_of(table), *group, model] = (SEEDS - len(scored)) * cost
    return tuple(result.items())


def _run_key(table: dict[str, Any], key: Sequence[str]) -> list[str]:
    """Return the values of the columns `by` that tell runs apart, not the scores of one run."""
    return [value for name, value in zip(table.get("by", ()), key, strict=True) if name not in table.get("scored", ())]


def differs(table: dict[str, Any], methods: Sequence[str]) -> str:
    """Return why a comparison does not decide: the reason of the table, that of one of the methods, or that of both."""
    reason, names = table.get("differs", ""), (*methods, " and ".join(methods))
    return reason if isinstance(reason, str) else next((reason[name] for name in names if name in reason), "")


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
    names: dict[int, list[str]] = {}
    for methods in groups(table).values():
        columns = [[column for column in methods if table["names"].get(column, "").split(" | ")[0] == name] for name in pair]
        if all(columns):
            rows = [methods[some[0]] for some in columns]
            size = sentences_of(table, rows[0][0]) or 0
            names[size] = [some[0] for some in columns]
            by_size[size] = tuple(scores(table, some, "dev") for some in rows)  # pyright: ignore
    if len(by_size) < 2:
        return
    few, many = min(by_size), max(by_size)
    units = sorted(set.intersection(*(set(side) for size in (few, many) for side in by_size[size])))
    gains = {size: [by_size[size][1][unit] - by_size[size][0][unit] for unit in units] for size in (few, many)}
    differences = [small - large for small, large in zip(gains[few], gains[many], strict=True)]
    about = f"{table['about']}; the gain on {few:,} against {many:,} sentences"
    means = statistics.mean(gains[many]), statistics.mean(gains[few])
    study, sets = files_of(table)[0].partition("/")[0], sets_of(table)
    size = published(claim, few, sets=sets) - published(claim, many, sets=sets)
    missing = [run for at in (few, many) for run in _missing(table, (str(at),), names[at], by_size[at])]
    yield Setting(study, about, *means, differences, [], _unit(table), size, differs(table, ()), tuple(missing), sets=sets)


def p_value(differences: Sequence[float]) -> float:
    """Return the p-value of a t-test of the mean against 0; 1 for fewer than two differences."""
    if len(differences) < 2:
        return 1.0
    spread = stats.sem(differences)
    if not spread:
        return float(not any(differences))
    return float(2 * stats.t.sf(abs(statistics.mean(differences)) / spread, len(differences) - 1))


def p_below(differences: Sequence[float], bound: float) -> float:
    """Return the p-value of a one-sided t-test of a mean below `bound`; 1 for fewer than two differences."""
    if len(differences) < 2 or np.isnan(bound):
        return 1.0
    gap, spread = statistics.mean(differences) - bound, float(stats.sem(differences))
    return float(stats.t.cdf(gap / spread, len(differences) - 1)) if spread else float(gap >= 0)


def p_practical(differences: Sequence[float]) -> float:
    """Return the p-value of two one-sided tests (TOST) of a mean within ±PRACTICAL."""
    return max(p_below(differences, PRACTICAL), p_below([-each for each in differences], PRACTICAL))


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


def verdict_of(setting: Setting, levels: Levels) -> str:
    """Return the verdict of a setting; the plain interval is compared with the published difference."""
    if not is_tested(setting):
        return UNDECIDED
    low, high = interval_of(setting, levels.zero)
    if within(interval_of(setting, 2 * levels.practical)):
        return NO_SIZE
    if low > 0:
        return AS_LARGE if interval_of(setting, LEVEL)[1] >= setting.published else SMALLER
    return OPPOSITE if high < 0 else UNDECIDED


def is_tested(setting: Setting) -> bool:
    """Return whether a setting has enough seeds to decide, or has no seeds at all."""
    return setting.over_items is not None or len(setting.differences) >= SEEDS


def within(interval: tuple[float, float]) -> bool:
    """Return whether an interval has no difference of a practical size."""
    return interval[0] > -PRACTICAL and interval[1] < PRACTICAL


def excludes_published(setting: Setting, levels: Levels) -> bool:
    """Return whether the one-sided interval of a setting ends below the published difference."""
    return interval_of(setting, 2 * levels.published)[1] < setting.published


def deciding(settings: Sequence[Setting], levels: Sequence[Levels]) -> list[tuple[Setting, Levels, str]]:
    """Return the settings that decide a claim, with their levels and verdicts."""
    verdicts = [(setting, level, verdict_of(setting, level)) for setting, level in zip(settings, levels, strict=True)]
    return [each for each in verdicts if not each[0].differs and each[2] != UNDECIDED]


def verdict(settings: Sequence[Setting], levels: Sequence[Levels]) -> str:
    """Return the verdict of a claim from those of its settings."""
    if not settings:
        return NOT_TESTED
    decided = {result for _, _, result in deciding(settings, levels)}
    if decided and decided <= {AS_LARGE, SMALLER}:
        return SMALLER if SMALLER in decided or exclusions(settings, levels)[0] else AS_LARGE
    return decided.pop() if len(decided) == 1 else UNDECIDED


def exclusions(settings: Sequence[Setting], levels: Sequence[Levels]) -> tuple[int, int]:
    """Return how many settings exclude the published difference, and how many could."""
    tested = [each for each in zip(settings, levels, strict=True) if is_tested(each[0]) and not each[0].differs]
    return sum(excludes_published(*each) for each in tested), len(tested)


def levels_of(claims: Sequence[Claim]) -> list[list[Levels]]:
    """Return the Holm levels of every setting, claim by claim.

    The family of each question has the settings that can decide a claim: not those with few seeds or that differ from the paper.
    """
    tested = [setting for claim in claims for setting in claim.settings if _can_decide(setting)]
    questions = (
        [p_value(setting.differences) for setting in tested],
        [p_practical(setting.differences) for setting in tested],
        [p_below(setting.differences, setting.published) for setting in tested],
    )
    levels = (Levels(*each) for each in zip(*(holm_levels(values) for values in questions), strict=True))
    return [[next(levels) if _can_decide(setting) else Levels() for setting in claim.settings] for claim in claims]


def _can_decide(setting: Setting) -> bool:
    """Return whether a setting over seeds can decide its claim."""
    return not setting.differs and setting.over_items is None and is_tested(setting)


def page(claims: Sequence[Claim]) -> str:
    """Return evidence.md."""
    families = [str(number) for number, claim in enumerate(claims, 1) if claim.row.get("families")]
    lines, levels = [HEAD.replace("FAMILIES", f"{', '.join(families[:-1])} and {families[-1]}")], levels_of(claims)
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


def _summary(claim: Claim, levels: Sequence[Levels]) -> str:
    row = claim.row
    cells = [f"{row['text']} ({row['paper']}, {row['table']})"]
    cells.append(_range(claim.sizes) if claim.sizes else "")
    tested = [setting for setting in claim.settings if is_tested(setting)]
    intervals = [interval_of(setting, LEVEL) for setting in tested]
    above, below = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    smaller = sum(high < setting.published for setting, (_, high) in zip(tested, intervals, strict=True))
    cells.append(str(len(claim.settings)))
    cells += [f"{above}, {below}, {len(intervals) - above - below}", str(smaller)] if intervals else ["", ""]
    cells.append(_range([statistics.mean(setting.differences) for setting in claim.settings]) if claim.settings else "")
    return " | ".join([*cells, _explained(claim, levels)])


def _explained(claim: Claim, levels: Sequence[Levels]) -> str:
    """Return the verdict of a claim, and how many of its settings decide it or could."""
    result, decided = verdict(claim.settings, levels), deciding(claim.settings, levels)
    if result == NOT_TESTED:
        return f"{result} ({claim.row['hours']:g} core-hours)"
    if result == UNDECIDED:
        return _undecided(claim, levels, contradictory=bool(decided))
    candidates = [setting for setting in claim.settings if not setting.differs]
    both = [(own, verdict_of(setting._replace(differences=setting.last), level)) for setting, level, own in decided if setting.last]
    same = sum(last != UNDECIDED and (last == OPPOSITE) == (own == OPPOSITE) for own, last in both)
    at_last = f", {same} at the last step" if both else ""
    excluded = _excluded(claim, levels) if result in (AS_LARGE, SMALLER) else ""
    return f"{result}; {len(decided)} of {len(candidates)} settings{at_last}{excluded}"


def _excluded(claim: Claim, levels: Sequence[Levels]) -> str:
    excluded, tested = exclusions(claim.settings, levels)
    return f"; published size excluded in {excluded} of {tested}" if claim.row["published"] and tested else ""


def _undecided(claim: Claim, levels: Sequence[Levels], *, contradictory: bool) -> str:
    """Return why a claim is undecided, what is excluded all the same, and what the missing runs would take."""
    candidates = [setting for setting in claim.settings if not setting.differs]
    if not candidates:
        return f"{UNDECIDED} (no setting can decide); {claim.row.get('needs') or format(claim.row['hours'], 'g') + ' core-hours'}"
    tested = sum(map(is_tested, candidates))
    reason = "settings contradict" if contradictory else "not above 0, not below 0" if tested else "too few seeds"
    text = f"{UNDECIDED} ({reason}); {tested} of {len(candidates)} have {SEEDS} seeds{_excluded(claim, levels)}"
    return f"{text}; the others: {core_hours(candidates):.2g} core-hours" if tested < len(candidates) else text


def core_hours(settings: Iterable[Setting]) -> float:
    """Return the hours of one core of the runs that settings lack; a run that several settings lack counts once."""
    return sum({name: minutes for setting in settings for name, minutes in setting.missing}.values()) / 60


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):+.1f}", f"{max(values):+.1f}"
    return low if low == high else f"{low} to {high}"


def _detail(setting: Setting, levels: Levels) -> str:
    study = f"[{setting.study}](../experiments/{setting.study}/README.md), {setting.about}"
    count = len(setting.differences)
    level = levels.zero if is_tested(setting) else None
    last = _difference(setting.last, level) if setting.last else ""
    if setting.over_items:
        low, high = setting.over_items
        shown = f"{setting.differences[0]:+.2f} [{low:+.2f}, {high:+.2f}] over pairs, exact"
    else:
        shown = f"{_difference(setting.differences, level)}, {f'{count} {setting.unit}s' if count > 1 else 'one run'}"
    size = "" if np.isnan(setting.published) else f"{setting.published:+.1f}"
    few = "" if is_tested(setting) else f"fewer than {SEEDS} {setting.unit}s"
    reason = setting.differs or few
    result = f"does not decide: {reason}" if reason else verdict_of(setting, levels)
    return f"| {study} | {setting.without:.1f} → {setting.with_:.1f} | {shown} | {last} | {size} | {result} |"


def _difference(differences: Sequence[float], level: float | None) -> str:
    """Return a mean difference with its interval; without one for level None."""
    mean = statistics.mean(differences)
    if level is None:
        return f"{mean:+.2f}"
    low, high = interval(differences, level)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def sentence(claims: Sequence[Claim]) -> str:
    """Return what comparing.md says."""
    counts = Counter(verdict(claim.settings, some) for claim, some in zip(claims, levels_of(claims), strict=True))
    came_out = (AS_LARGE, SMALLER, NO_SIZE, OPPOSITE)
    shown = ", ".join(f"{counts[name]} *{name}*" for name in came_out)
    untested = f"\n{counts[NOT_TESTED]} {'was' if counts[NOT_TESTED] == 1 else 'were'} not tested." if counts[NOT_TESTED] else ""
    return (
        f"Of {len(claims)} claims of the papers, {counts[UNDECIDED]} are undecided here ([evidence](evidence.md)).{untested}\n"
        f"The verdicts on the others:\n{shown}."
    )


def load() -> tuple[list[Claim], list[dict[str, Any]], dict[str, str]]:
    """Return the claims with their settings, the tables, and the CSV files that test no claim with the reason."""
    content = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for option in (option for claim in content["claims"] for option in claim["published"] if "rows" in option):
        table, *rows = option["rows"]
        low, high = (dict(zip(content["printed"][table]["sets"], content["printed"][table][row], strict=True)) for row in rows)
        option["printed"] = {name: (low[name], high[name]) for name in low}
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
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help and a typo write nothing
    sys.exit(main())
