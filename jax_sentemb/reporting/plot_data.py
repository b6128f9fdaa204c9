"""Read the data of plots and reports: the log of a run, and the table of a low-shot study."""

import io
import json
import math
import statistics
from pathlib import Path
from typing import Any

from jax_sentemb.data import delimited
from jax_sentemb.errors import REPLACE_FILE, DataError, ModelFileError
from jax_sentemb.files import DATA_LIMIT, check_regular, read_limited, user_path


def read_metrics(workdir: str | Path) -> list[dict[str, Any]]:
    """Return the events of a run, {"step": ..., name: value}, as `workdir`/metrics.jsonl has them.

    Raises:
        ModelFileError: The file is missing, damaged, or not a file.
    """
    file = user_path(workdir) / "metrics.jsonl"
    try:
        check_regular(file)
        lines = read_limited(file, DATA_LIMIT).decode("utf-8").split("\n")
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}; give the work directory of a run") from None
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{file}: byte {error.start} is not UTF-8; {REPLACE_FILE}") from None
    if not lines[-1] or (not _event(lines[-1]) and lines[-1].startswith(_BEGINNING[: len(lines[-1])])):
        lines.pop()  # the end of the file, or an event that a crash has cut
    records = list(map(_event, lines))
    if not records or None in records:
        line = 1 + (records.index(None) if records else 0)
        raise ModelFileError(f"{file}:{line}: not an event of a run, a JSON object with a step; remove the line")
    return [record for record in records if record]


_BEGINNING = '{"step": '  # of a line of metrics.jsonl


def _event(line: str) -> dict[str, Any] | None:
    """Return the event of a line, or None for any other text."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def read_low_shot(file: str | Path, column: str = "average") -> dict[str, list[tuple[int, float, float]]]:
    """Read curves for `low_shot_curves` from a CSV file with a row for each run.

    Runs of a method with equally many sentences (the seeds) become mean and sample standard deviation, 0 for a single run.

    Args:
        file: A table with the columns method, sentences and `column`.
        column: The column of the scores.

    Raises:
        DataError: A line or column is wrong; the message names it.
    """
    file = user_path(file)
    runs = delimited.read_rows(file, io.StringIO(delimited.decode_file(file), newline=""), ",", quotes=True)
    remedy = (f"a row for each run with its method, sentences and {column}",)
    groups: dict[str, dict[int, list[float]]] = {}
    for number, (method, sentences, score) in delimited.select_columns(file, runs, ("method", "sentences", column), remedy):
        try:
            size, value = int(sentences), float(score)
        except ValueError:
            size, value = -1, math.nan
        if size < 0 or not math.isfinite(value):
            raise DataError(
                f"{file} line {number}: sentences={sentences!r} or {column}={score!r} is not a number; correct the line"
            )
        groups.setdefault(method, {}).setdefault(size, []).append(value)
    if not groups:
        raise DataError(f"{file}: no run below the header; add one")
    return {
        method: [
            (sentences, statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0)
            for sentences, scores in sorted(points.items())
        ]
        for method, points in groups.items()
    }
