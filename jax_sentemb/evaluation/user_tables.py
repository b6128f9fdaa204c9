"""Write the scores of a user's task as a table for the terminal, JSON and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from jax_sentemb.evaluation.suite import versions
from jax_sentemb.evaluation.user_scores import Row, Table
from jax_sentemb.public_text import spreadsheet_cell
from jax_sentemb.system.terminal import table

CSV_COLUMNS = ("model", "measure", "value", "low", "high", "difference", "difference_low", "difference_high")


def as_text(scores: Table, failed: Mapping[str, str], intervals: bool = True) -> str:
    """Return the tables of a task: values, with their 95 % intervals if these were computed, and differences to the first model."""
    rows = scores.rows
    measures = list(rows[0].values) if rows else []
    facts = list(dict.fromkeys(name for row in rows for name in row.facts))
    lines = [[row.system, *(_value(row, name) for name in measures), *(_fact(row, name) for name in facts)] for row in rows]
    lines += [[system, *["failed"] * len(measures), *[""] * len(facts)] for system in failed]
    texts = [
        table(("model", *measures, *facts), lines, f"{scores.task.title}; x 100{', with 95 % intervals' if intervals else ''}")
    ]
    compared = [row for row in rows if row.differences]
    if compared:
        lines = [[row.system, *(_signed(row, name) for name in measures)] for row in compared]
        title = f"Difference to {scores.first} on the same {scores.task.item_name}; an interval with 0 in it decides nothing"
        texts.append(table(("model", *measures), lines, title))
    return "\n\n".join(texts)


def as_json(scores: Table, failed: Mapping[str, str], models: Mapping[str, Any], resamples: int) -> dict[str, Any]:
    """Return the content of the JSON file of a task."""
    return {
        "task": scores.task.name,
        "items": scores.items,
        "item_name": scores.task.item_name,
        **scores.task.facts,
        "notes": scores.task.notes,
        "models": dict(models),
        "first": scores.first,
        "resamples": resamples,
        "scores": {row.system: _described(row) for row in scores.rows},
        "failed": dict(failed),
        "versions": versions(),
    }


def as_csv(rows: Sequence[Row]) -> str:
    """Return a line for each model and measure."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        for name, value in row.values.items():
            interval, difference = row.intervals.get(name), row.differences.get(name)
            bounds = interval[1:] if interval else ("", "")
            writer.writerow([spreadsheet_cell(row.system), name, value, *bounds, *(difference or ("", "", ""))])
    return output.getvalue()


def line(row: Row) -> str:
    """Return the values of a model in one line."""
    return ", ".join(f"{name} {value:.2f}" for name, value in row.values.items())


def _described(row: Row) -> dict[str, Any]:
    values = {
        name: {
            "value": value,
            **({"interval": list(row.intervals[name][1:])} if name in row.intervals else {}),
            **({"difference": row.differences[name]._asdict()} if name in row.differences else {}),
        }
        for name, value in row.values.items()
    }
    return {**values, **row.facts}


def _value(row: Row, name: str) -> str:
    if name not in row.values:
        return ""
    interval = row.intervals.get(name)
    return f"{row.values[name]:.2f}" + (f" [{interval.low:.1f}, {interval.high:.1f}]" if interval else "")


def _fact(row: Row, name: str) -> str:
    return f"{row.facts[name]:.3f}" if name in row.facts else ""


def _signed(row: Row, name: str) -> str:
    if name not in row.differences:
        return ""
    difference = row.differences[name]
    return f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
