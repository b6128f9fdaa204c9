"""Lay out a comparison of methods: baselines, every method with its budget, and paired differences with intervals."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.evaluation.catalog import SEVEN, heading
from jax_sentemb.files import replacing
from jax_sentemb.public_text import markdown, spreadsheet_cell
from jax_sentemb.reporting.sweep_table import average_note, mean_and_deviation, mean_and_interval
from jax_sentemb.system import terminal

FACTS = ("readout", "length", "batch", "steps", "rate")
START, WORDS = "start", "words"


class Entry(NamedTuple):
    """A line of the table."""

    name: str
    group: str  # START, WORDS, or a budget
    facts: Mapping[str, Any]  # FACTS of a training
    scores: Mapping[int, Mapping[str, float]]  # seed -> set -> Spearman x 100; seed 0: the same for every seed
    selected: Sequence[int] = ()  # the steps of the scored weights

    def averages(self, sets: Sequence[str]) -> dict[int, float]:
        """Return the average of each seed over some sets."""
        return {seed: float(np.mean([scores[name] for name in sets])) for seed, scores in self.scores.items()}


class Table(NamedTuple):
    """A table, whose first column has the labels."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Layout(NamedTuple):
    """The tables of a comparison and their notes."""

    budgets: Table
    scores: Table
    differences: Table
    notes: list[str]


def layout(entries: Sequence[Entry], seeds: int, notes: Sequence[str] = ()) -> Layout:
    """Return the tables of the entries that have scores.

    Args:
        entries: Starts, word baselines and methods; in each budget the first method is the one that others are compared with.
        seeds: The number of runs that a method should have.
        notes: Further notes.
    """
    scored = [entry for entry in entries if entry.scores]
    trained = [entry for entry in scored if entry.group not in (START, WORDS)]
    sets = [name for name in SEVEN if all(name in scores for entry in scored for scores in entry.scores.values())]
    by_set = [[_label(entry), *_means(entry, sets)] for entry in scored]
    failed = [_label(entry) for entry in entries if not entry.scores]
    starts = [entry for entry in scored if entry.group == START]
    start = max(starts, key=lambda entry: _mean(entry.averages(sets)), default=None)
    all_notes = [
        average_note(sets),
        *([f"best start: {start.name}, the one with the highest average on these sets"] if start else []),
        "± is the standard deviation over seeds",
        "differences: mean [95 % interval of Student's t over seeds], paired by seed; one run has no interval",
        *notes,
        *([f"failed: {', '.join(failed)}"] if failed else []),
    ]
    return Layout(
        Table("Budgets", ["", "runs", "readout", "length", "batch", "steps", "rate"], [_budget(entry, seeds) for entry in trained]),
        Table("Spearman x 100, means over seeds", ["", *map(heading, sets), "average"], by_set),
        _differences(entries, trained, start, sets),
        all_notes,
    )


def _differences(entries: Sequence[Entry], trained: Sequence[Entry], start: Entry | None, sets: Sequence[str]) -> Table:
    """Return the averages of the trained methods and their differences from the best start and from the first method."""
    names = list(dict.fromkeys(entry.name for entry in entries if entry.group not in (START, WORDS)))
    averages = {(entry.group, entry.name): entry.averages(sets) for entry in trained}
    columns = ["", "average", *(["from the best start"] if start else []), *(f"from {name}" for name in names[:1] if names[1:])]
    rows = []
    for entry in trained:
        own = averages[entry.group, entry.name]
        cells = [difference(own, start.averages(sets))] if start else []
        if names[1:]:
            first = averages.get((entry.group, names[0]), {})  # nothing if all its runs failed
            cells.append(difference(own, first) if entry.name != names[0] else "")
        rows.append([_label(entry), mean_and_deviation(list(own.values())), *cells])
    return Table("Differences of averages", columns, rows)


def difference(own: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Return mean and 95 % interval of the paired differences of averages; seed 0 of `other` is paired with every seed."""
    values = [value - (other[seed] if seed in other else other[0]) for seed, value in own.items() if seed in other or 0 in other]
    return mean_and_interval(values) if values else ""


def as_text(tables: Layout) -> str:
    """Return the tables for the terminal."""
    blocks = [terminal.table(table.columns, table.rows, table.title) for table in tables[:3]]
    return "\n\n".join([*blocks, terminal.bullets(tables.notes)])


def as_markdown(tables: Layout) -> str:
    """Return the tables as Markdown."""
    lines = []
    for title, columns, rows in tables[:3]:
        lines += [f"**{title}**", "", f"| {' | '.join(map(markdown, columns))} |", "|---|" + "--:|" * (len(columns) - 1)]
        lines += [f"| {' | '.join([markdown(label), *cells])} |" for label, *cells in rows]
        lines.append("")
    return "\n".join([*lines, *(f"* {markdown(note)}" for note in tables.notes)]) + "\n"


def write_csv(path: Path, entries: Sequence[Entry]) -> None:
    """Write a line for each entry and seed: facts, the step of the scored weights, and scores of all sets."""
    sets = list(dict.fromkeys(name for entry in entries for scores in entry.scores.values() for name in scores))
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "group", *FACTS, "seed", "scored_step", *sets])
        for entry in entries:
            facts = [entry.facts.get(name, "") for name in FACTS]
            for (seed, scores), step in zip(entry.scores.items(), entry.selected or [""] * len(entry.scores), strict=True):
                numbers = [scores.get(name, "") for name in sets]
                writer.writerow(map(spreadsheet_cell, [entry.name, entry.group, *facts, seed or "", step, *numbers]))


def _mean(averages: Mapping[int, float]) -> float:
    return float(np.mean(list(averages.values())))


def _means(entry: Entry, sets: Sequence[str]) -> list[str]:
    """Return the mean over seeds of each set and of the average."""
    by_set = [np.mean([scores[name] for scores in entry.scores.values()]) for name in sets]
    return [f"{value:.2f}" for value in (*by_set, _mean(entry.averages(sets)))]


def _budget(entry: Entry, seeds: int) -> list[str]:
    """Return the row of a method: its runs, and its facts with the mean step of the scored weights if it is not the last."""
    runs = f"{len(entry.scores)} of {seeds}" if len(entry.scores) < seeds else f"{seeds}"
    steps = entry.facts["steps"]
    selected = round(float(np.mean(entry.selected))) if entry.selected else steps
    steps_text = f"{steps:,}" if selected == steps else f"{selected:,} of {steps:,}"
    facts = {**entry.facts, "steps": steps_text}
    return [_label(entry), runs, *(_cell(facts[name]) for name in FACTS)]


def _label(entry: Entry) -> str:
    return {START: f"untrained, {entry.name}", WORDS: entry.name}.get(entry.group, f"{entry.name}, {entry.group}")


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
