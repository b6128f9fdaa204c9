"""Write report.html: settings, curves, scores, cosines and nearest neighbours in one file without scripts or external resources.

A run writes it at its end, and `jax-sentemb report --workdir runs/micse` writes it again. It is made from the files of the work
directory, without loading a model.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from jax_sentemb.errors import REPLACE_FILE, ModelFileError
from jax_sentemb.files import check_regular, write_text
from jax_sentemb.provenance import SWEEP, check
from jax_sentemb.public_text import without_folders
from jax_sentemb.reporting import sweep_table
from jax_sentemb.reporting.html_parts import Figure, templates
from jax_sentemb.reporting.report_data import Run, read_json_file, read_run
from jax_sentemb.reporting.report_sections import context
from jax_sentemb.reporting.svg import SERIES, element, size_chart
from jax_sentemb.system.streams import print_line


@contextlib.contextmanager
def not_vital(workdir: Path) -> Iterator[None]:
    """Print an error of the report instead of raising it: the result and exit code of a run do not depend on its report."""
    try:
        yield
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        command = f"jax-sentemb report --workdir {workdir}"
        print_line(f"warning: the report is not complete: {problem}; {command} tries again", "stderr")


def write_report(workdir: Path) -> Path:
    """Write `workdir`/report.html for a run, finished or not, or for the runs that sweep.json lists; return its path.

    Raises:
        ModelFileError: The folder has no run.json, or a file is missing or damaged.
    """
    rows = read_json_file(workdir / "sweep.json", list)
    for row in rows:
        check(workdir / "sweep.json", row, SWEEP)
    run = None if rows else read_run(workdir)
    try:
        content = run_page(run) if run else sweep_page(workdir, rows)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{workdir}: a file of the run is damaged ({type(error).__name__}: {error}); {REPLACE_FILE}"
        ) from error
    output = workdir / "report.html"
    check_regular(output)
    write_text(output, content)
    return output


def run_page(run: Run) -> str:
    """Return the report of one run as HTML."""
    return templates().get_template("run.html").render(context(run))


def sweep_page(workdir: Path, rows: list[dict[str, Any]]) -> str:
    """Return the report of the runs of config.sweep: low-shot tables and figures, means with spreads, links to single reports."""
    columns, groups = sweep_table.summary(rows)
    runs = []
    for row in rows:
        label = without_folders(" ".join(f"{name}={value}" for name, value in row["settings"].items()))
        name: str | Markup = element("a", label, href=f"{quote(row['folder'])}/report.html") if "folder" in row else label
        scores = row.get("scores", {})
        runs.append(
            [
                name,
                *(f"{scores[column]:.2f}" if column in scores else "" for column in columns),
                without_folders(row.get("error", "")),
            ]
        )
    failed = any("error" in row for row in rows)
    return (
        templates()
        .get_template("sweep.html")
        .render(
            name=workdir.resolve().name,
            count=len(rows),
            average=sweep_table.average_note(sweep_table.averaged(rows)) if "average" in columns else "",
            studies=_studies(rows),
            columns=["settings", "runs", *columns],
            groups=[[without_folders(label), count, *cells] for label, count, cells in groups],
            run_columns=["run", *columns, *["error"] * failed],
            runs=[run if failed else run[:-1] for run in runs],
        )
    )


def _studies(rows: Sequence[sweep_table.Row]) -> list[dict[str, Any]]:
    """Return scores over the number of training sentences, and paired differences to the baselines; [] if sizes do not vary."""
    studies = []
    colours: dict[str, str] = {}  # a method has the same colour in both figures
    for study in sweep_table.low_shot_studies(rows):
        curves = sweep_table.curves(study.cells)
        colours = colours or {method: _series_class(number) for number, method in enumerate(curves)}
        classes = {method: colours[method.rpartition(" - ")[0] or method] for method in curves}
        keys = [(name, method) for method, name in classes.items()]
        picture = size_chart(study.title, {classes[method]: points for method, points in curves.items()}, study.unit)
        columns, table = sweep_table.by_size(study.cells, study.text)
        figure = Figure(picture, study.title, "Bars: one standard deviation over seeds.", keys)
        note = f"{study.note} {study.foot[:1].upper()}{study.foot[1:]}"
        studies.append({"title": study.title, "note": note, "figure": figure, "columns": columns, "rows": table})
    return studies


def _series_class(number: int) -> str:
    """Return one of eight colours, solid lines first."""
    return SERIES[number % len(SERIES)] + (" dashed" if number >= len(SERIES) else "")
