"""Lay out the scores of one command's runs: means and standard deviations, low-shot tables, paired differences, CSV.

A row is a dictionary as in sweep.json: `settings` {name: text}, `folder`, and `baseline` (a variant) if there is one. A finished
run has `scores` {set: Spearman x 100 or another number}, `step` of its weights and its number of `sentences`. A failed run has
`error`.
"""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.evaluation.catalog import SEVEN, heading
from jax_sentemb.files import replacing, write_text
from jax_sentemb.public_text import markdown, spreadsheet_cell
from jax_sentemb.system import terminal

REPEATED = ("train.seed", "data.subset_seed", "data.fold")  # runs that differ only in these are one row, with mean and spread
ARGUMENTS = "arguments"  # argument_folds.NAME; that module loads slowly
VARIANT, SUBSET = "variant", "data.subset"
PICTURES = tuple(f"low_shot{part}.{suffix}" for part in ("", "_differences") for suffix in ("png", "csv"))
GENERATED = "grammar-test"  # the set of generated pairs

Row = dict[str, Any]


class Cell(NamedTuple):
    """Scores of the runs of a method at a size, or their differences to the baseline in the same seeds."""

    method: str
    variant: str  # the method without other varying settings; "" if methods do not vary
    subset: str  # as in data.subset
    sentences: int
    values: list[float]


class Study(NamedTuple):
    """A table and a figure over the number of training sentences; `text` writes the values of a cell."""

    title: str
    note: str
    foot: str
    unit: str
    cells: list[Cell]
    text: Callable[[list[float]], str]


def headline(scores: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of scores.json that a table shows: Spearman x 100 over all pairs and scores of other tasks.

    Without them they are the measures on the user's own labels or queries, or the agreement with a teacher, or else retrieval and
    uniformity. Argument pairs have both correlations, as means over topics.
    """
    numbers = {name: result["spearman"]["all"] for name, result in scores["scores"].items() if name != ARGUMENTS}
    if ARGUMENTS in scores["scores"]:
        numbers |= {
            f"{ARGUMENTS} {correlation}": scores["scores"][ARGUMENTS][correlation]["mean"]
            for correlation in ("pearson", "spearman")
        }
    for result in scores.get("transfer", {}).values():
        numbers |= result["headline"]
    numbers |= {f"dev {name}": value for name, value in scores.get("dev", {}).items()}
    if not numbers and "teacher" in scores:
        numbers = {f"agreement {name}": value for name, value in scores["teacher"]["agreement"].items()}
    return numbers or {name: scores["diagnostics"][name] for name in ("retrieval", "uniformity") if name in scores["diagnostics"]}


def averaged(rows: Iterable[Row]) -> list[str]:
    """Return the sets of the average: those of the seven, and the generated one, on which every finished run was scored."""
    scored = [row["scores"] for row in rows if "scores" in row]
    return [name for name in (*SEVEN, GENERATED) if scored and all(name in scores for scores in scored)]


def average_note(sets: Sequence[str]) -> str:
    """Return a note that names the sets of the average and those that are missing."""
    missing = [name for name in SEVEN if name not in sets]
    if not missing:
        return f"average: mean of the seven sets {', '.join(sets)}"
    return f"average: mean of {', '.join(sets)}; missing: {', '.join(missing)}"


def table(rows: list[Row]) -> str:
    """Return Markdown with one row for runs that differ only in their seeds: the mean and the sample standard deviation."""
    columns, groups = summary(rows)
    lines = [f"| {' | '.join(['settings', 'runs', *map(markdown, columns)])} |", "|---|--:|" + "--:|" * len(columns)]
    lines += [f"| {' | '.join([markdown(label), runs, *cells])} |" for label, runs, cells in groups]
    if "average" in columns:
        lines += ["", average_note(averaged(rows))]
    return "\n".join(lines)


def terminal_table(rows: list[Row]) -> str:
    """Return the same table for the terminal."""
    columns, groups = summary(rows)
    note = f"\n{average_note(averaged(rows))}" if "average" in columns else ""
    return (
        terminal.table(("settings", "runs", *map(heading, columns)), [(label, runs, *cells) for label, runs, cells in groups])
        + note
    )


def summary(rows: list[Row]) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """Return (columns, [(settings, number of runs, cells), ...]) of that table."""
    sets = averaged(rows)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_label(row["settings"]), []).append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row.get("scores", {})))
    columns += ["average"] * (len(sets) > 1)
    table_rows = []
    for label, group in groups.items():
        scored = [row["scores"] | {"average": _average(row, sets)} for row in group if "scores" in row]
        values = [[scores[column] for scores in scored if column in scores] for column in columns]
        failed = f" ({len(group) - len(scored)} failed)" if len(scored) < len(group) else ""
        table_rows.append((label, f"{len(scored)}{failed}", [mean_and_deviation(column) for column in values]))
    return columns, table_rows


def group_label(settings: Mapping[str, str]) -> str:
    """Return the label of the runs of a sweep that differ only in their seeds."""
    return " ".join(f"{name}={value}" for name, value in settings.items() if name not in REPEATED) or "all"


def mean_and_deviation(values: Sequence[float]) -> str:
    """Return "46.86 ± 0.19", the sample standard deviation of several values; "" if there are none."""
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}" if values else ""


def low_shot_cells(rows: Sequence[Row]) -> list[Cell]:
    """Return the average of every run, by method and size; [] if sizes do not vary or no similarity set was scored."""
    return _cells((row, _average(row, averaged(rows))) for row in _sized(rows))


def difference_cells(rows: Sequence[Row], baselines: Mapping[str, str]) -> list[Cell]:
    """Return the average of each run minus that of its baseline with the same seeds and settings (miCSE Fig. 4)."""
    sets, sized = averaged(rows), _sized(rows)
    twins = {_pair(row, row["settings"].get(VARIANT, "")): _average(row, sets) for row in sized}
    compared = [row for row in sized if row["settings"].get(VARIANT) in baselines]
    pairs = ((row, twins.get(_pair(row, baselines[row["settings"][VARIANT]]))) for row in compared)
    return _cells((row, _average(row, sets) - base) for row, base in pairs if base is not None)


def low_shot_studies(rows: Sequence[Row], baselines: Mapping[str, str] | None = None) -> list[Study]:
    """Return scores and, with baselines, differences over the number of sentences, as miCSE's Tables 2 and 3; [] without cells.

    `baselines` is {variant: baseline}; None takes them from the rows.
    """
    if baselines is None:
        baselines = {row["settings"][VARIANT]: row["baseline"] for row in rows if row.get("baseline")}
    cells, differences = low_shot_cells(rows), difference_cells(rows, baselines)
    if not cells:
        return []
    sets = averaged(rows)
    note = "Mean ± standard deviation (runs) of the average over the sets, Spearman x 100."
    unit = f"Spearman × 100, average of {len(sets)} sets"
    studies = [Study("Scores by number of sentences", note, average_note(sets), unit, cells, _score_text)]
    if differences:
        named = [cell._replace(method=f"{cell.method} - {baselines[cell.variant]}") for cell in differences]
        note = "Difference to the baseline in the same seeds: mean [95 % interval of Student's t] (pairs)."
        studies.append(Study("Differences to the baseline", note, "", "difference of averages", named, _interval_text))
    return studies


def low_shot_table(rows: Sequence[Row], baselines: Mapping[str, str]) -> str:
    """Return the studies as Markdown, a row a method, a column a size; "" without cells."""
    lines: list[str] = []
    for study in low_shot_studies(rows, baselines):
        columns, table = by_size(study.cells, study.text)
        lines += [study.note, "", f"| {' | '.join(map(markdown, columns))} |", "|---|" + "--:|" * (len(columns) - 1)]
        lines += [
            *(f"| {' | '.join([markdown(method), *cells])} |" for method, *cells in table),
            "",
            *([study.foot, ""] if study.foot else []),
        ]
    return "\n".join([*lines, *_failed_note(rows)]).rstrip() + "\n" if lines else ""


def write_tables(workdir: Path, rows: list[Row], baselines: Mapping[str, str]) -> None:
    """Write sweep.md, sweep.csv (a row for every finished run) and, if sizes vary, low_shot.md into `workdir`."""
    texts = {"sweep.md": table(rows) + "\n", "low_shot.md": low_shot_table(rows, baselines)}
    for name, text in texts.items():
        if text:
            write_text(workdir / name, text)
        else:
            (workdir / name).unlink(missing_ok=True)  # of an earlier sweep
    sets, done = averaged(rows), [row for row in rows if "scores" in row]
    lines = [
        {
            "method": _method(row),
            "sentences": row.get("sentences", ""),
            **row["settings"],
            "step": row.get("step", ""),
            **row["scores"],
            **({"average": _average(row, sets)} if sets else {}),
        }
        for row in done
    ]
    columns = list(dict.fromkeys(name for line in lines for name in line if name != "average")) + ["average"] * bool(sets)
    with replacing(workdir / "sweep.csv") as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(spreadsheet_cell, columns))
        writer.writerows([spreadsheet_cell(line.get(name, "")) for name in columns] for line in lines)


def draw(workdir: Path, rows: Sequence[Row], baselines: Mapping[str, str]) -> None:
    """Draw low_shot.png and, with baselines, low_shot_differences.png (miCSE Figs. 3 and 4).

    If matplotlib is missing, a line is printed instead. Those of an earlier sweep are removed.
    """
    for name in PICTURES:
        (workdir / name).unlink(missing_ok=True)
    cells, differences = low_shot_cells(rows), difference_cells(rows, baselines)
    if not cells:
        return
    from jax_sentemb.reporting.low_shot import low_shot_differences
    from jax_sentemb.reporting.plots import low_shot_curves

    score = f"Spearman x 100, average of {len(averaged(rows))} sets"
    try:
        low_shot_curves(workdir / "low_shot.png", curves(cells), "Training on few sentences", score)
        if differences:
            roots = {baselines[cell.variant] for cell in differences}
            compared = roots | {cell.variant for cell in differences}
            compared_cells = [cell for cell in cells if cell.variant in compared]
            low_shot_differences(
                workdir / "low_shot_differences.png", curves(compared_cells), curves(differences), "Against the baseline", score
            )
    except ConfigError as error:
        print(plain(f"not drawn: {error}"))


def curves(cells: Iterable[Cell]) -> dict[str, list[tuple[int, float, float]]]:
    """Return {method: [(sentences, mean, sample standard deviation, 0 of one run)]}, as the plots take it."""
    by_method: dict[str, list[tuple[int, float, float]]] = {}
    for cell in cells:
        deviation = float(np.std(cell.values, ddof=1)) if len(cell.values) > 1 else 0.0
        by_method.setdefault(cell.method, []).append((cell.sentences, float(np.mean(cell.values)), deviation))
    return by_method


def _sized(rows: Iterable[Row]) -> list[Row]:
    rows = list(rows)
    return [row for row in rows if SUBSET in row["settings"] and "scores" in row and "sentences" in row] if averaged(rows) else []


def _average(row: Row, sets: Sequence[str]) -> float:
    return float(np.mean([row["scores"][name] for name in sets])) if sets else math.nan


def _method(row: Row) -> str:
    """Return the variant and all other settings that vary, except seeds and sizes."""
    settings = {name: value for name, value in row["settings"].items() if name not in (*REPEATED, SUBSET)}
    return " ".join(value if name == VARIANT else f"{name}={value}" for name, value in settings.items()) or "all"


def _pair(row: Row, variant: str) -> tuple[Any, ...]:
    return variant, *sorted((name, value) for name, value in row["settings"].items() if name != VARIANT)


def _cells(scored: Iterable[tuple[Row, float]]) -> list[Cell]:
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row, value in scored:
        settings = row["settings"]
        groups.setdefault((_method(row), settings.get(VARIANT, ""), settings[SUBSET]), []).append((row["sentences"], value))
    cells = [Cell(*key, max(sized_values)[0], [value for _, value in sized_values]) for key, sized_values in groups.items()]
    return sorted(cells, key=lambda cell: -cell.sentences)


def by_size(cells: Sequence[Cell], text: Callable[[list[float]], str]) -> tuple[list[str], list[list[str]]]:
    """Return (columns, rows) of a table of cells: methods down in the order of the runs, sizes across from the smallest."""
    sizes = {cell.subset: cell.sentences for cell in sorted(cells, key=lambda cell: cell.sentences)}
    text_of = {(cell.method, cell.subset): text(cell.values) for cell in cells}
    methods = dict.fromkeys(cell.method for cell in cells)
    rows = [[method, *(text_of.get((method, subset), "") for subset in sizes)] for method in methods]
    return ["method", *(_size_text(float(subset), count) for subset, count in sizes.items())], rows


def _size_text(subset: float, sentences: int) -> str:
    """Return "0.1 % (1,000)" of a fraction, "1,000" of a number of sentences."""
    return f"{sentences:,}" if subset >= 1 else f"{100 * (subset or 1):g} % ({sentences:,})"


def _score_text(values: list[float]) -> str:
    return f"{mean_and_deviation(values)} ({len(values)})"


def _interval_text(values: list[float]) -> str:
    return f"{mean_and_interval(values)} ({len(values)})"


def mean_and_interval(values: Sequence[float]) -> str:
    """Return the mean and its 95 % interval of Student's t as text; one value has no interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.2f}"
    half = half_interval(values)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def half_interval(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of Student's t around the mean of two or more values."""
    count = len(values)
    return float(scipy.stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))


def _failed_note(rows: Sequence[Row]) -> list[str]:
    failed = sum("error" in row for row in rows)
    return [f"{failed} runs failed: sweep.md", ""] if failed else []
