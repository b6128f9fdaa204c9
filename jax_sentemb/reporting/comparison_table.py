"""Lay out a comparison of methods: baselines, every method with its budget, and paired differences with intervals."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.evaluation.catalog import SEVEN, heading
from jax_sentemb.files import replacing
from jax_sentemb.public_text import markdown, spreadsheet_cell
from jax_sentemb.reporting.sweep_table import average_note, half_interval, mean_and_deviation
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


class Layout(NamedTuple):
    """Two tables, as (columns, rows), and their notes."""

    results: tuple[list[str], list[list[str]]]
    sets: tuple[list[str], list[list[str]]]
    notes: list[str]


def layout(entries: Sequence[Entry], seeds: int, notes: Sequence[str] = ()) -> Layout:
    """Return the tables of the entries that have scores.

    Args:
        entries: Starts, word baselines and methods; in each budget the first method is the one that others are compared with.
        seeds: The number of runs that a method should have.
        notes: Further notes.
    """
    scored = [entry for entry in entries if entry.scores]
    sets = [name for name in SEVEN if all(name in scores for entry in scored for scores in entry.scores.values())]
    averages = {(entry.group, entry.name): entry.averages(sets) for entry in scored}
    start = max(
        (entry for entry in scored if entry.group == START), key=lambda entry: _mean(averages[START, entry.name]), default=None
    )
    rows = []
    first_name = next((entry.name for entry in entries if entry.group not in (START, WORDS)), "first")
    for entry in scored:
        own = averages[entry.group, entry.name]
        cells = ["", ""]
        if entry.group not in (START, WORDS):
            first = averages.get((entry.group, first_name), {})  # nothing if all its runs failed
            cells = [
                difference(own, averages[START, start.name]) if start else "",
                difference(own, first) if entry.name != first_name else "",
            ]
        steps = {"steps": _steps(entry)} if entry.facts else {}
        facts = {**entry.facts, **steps}
        rows.append(
            [_label(entry, seeds), *(_cell(facts.get(name, "")) for name in FACTS), mean_and_deviation(list(own.values())), *cells]
        )
    columns = ["", *FACTS, "average", "against the best start", f"against {first_name}"]
    by_set = [
        [_label(entry, seeds), *(mean_and_deviation([scores[name] for scores in entry.scores.values()]) for name in sets)]
        for entry in scored
    ]
    failed = [_label(entry, seeds) for entry in entries if not entry.scores]
    best = [f"best start: {start.name}, chosen by its average on these sets, so it is the strictest of them"] if start else []
    differences = "differences: mean [95 % interval of Student's t over seeds], paired by seed; one run has no interval"
    all_notes = [average_note(sets), *best, differences, *notes, *([f"failed: {', '.join(failed)}"] if failed else [])]
    return Layout((columns, rows), (["", *map(heading, sets)], by_set), all_notes)


def difference(own: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Return mean and 95 % interval of the paired differences of averages; seed 0 of `other` is paired with every seed."""
    values = [value - (other[seed] if seed in other else other[0]) for seed, value in own.items() if seed in other or 0 in other]
    if not values:
        return ""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.2f}"
    half = half_interval(values)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def as_text(tables: Layout) -> str:
    """Return the tables for the terminal."""
    blocks = [terminal.table(*tables.results), terminal.table(*tables.sets, "Spearman x 100")]
    return "\n\n".join([*blocks, "\n".join(tables.notes)])


def as_markdown(tables: Layout) -> str:
    """Return the tables as Markdown."""
    lines = []
    for columns, rows in (tables.results, tables.sets):
        lines += [f"| {' | '.join(map(markdown, columns))} |", "|---|" + "--:|" * (len(columns) - 1)]
        lines += [f"| {' | '.join([markdown(label), *cells])} |" for label, *cells in rows]
        lines.append("")
    return "\n".join([*lines, *(f"* {markdown(note)}" for note in tables.notes)]) + "\n"


def write_csv(path: Path, entries: Sequence[Entry]) -> None:
    """Write a line for each entry and seed: facts and scores of all sets."""
    sets = list(dict.fromkeys(name for entry in entries for scores in entry.scores.values() for name in scores))
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "group", *FACTS, "seed", *sets])
        for entry in entries:
            for seed, scores in entry.scores.items():
                facts = [entry.facts.get(name, "") for name in FACTS]
                numbers = [scores.get(name, "") for name in sets]
                writer.writerow(map(spreadsheet_cell, [entry.name, entry.group, *facts, seed or "", *numbers]))


def _mean(averages: Mapping[int, float]) -> float:
    return float(np.mean(list(averages.values())))


def _label(entry: Entry, seeds: int) -> str:
    runs = f" ({len(entry.scores)} of {seeds} runs)" if entry.group not in (START, WORDS) and len(entry.scores) < seeds else ""
    return {START: f"untrained, {entry.name}", WORDS: entry.name}.get(entry.group, f"{entry.name}, {entry.group}") + runs


def _steps(entry: Entry) -> str:
    """Return the number of steps, and the mean step of the scored weights if it is another."""
    steps = entry.facts["steps"]
    selected = round(float(np.mean(entry.selected))) if entry.selected else steps
    return f"{steps:,}" if selected == steps else f"{selected:,} of {steps:,}"


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
