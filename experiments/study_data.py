"""Read the results of a study, and its options for data: `--data DIR` is the folder of data.md, and each file has an option too."""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data import MODELS, SETS

from jax_sentemb.files import replacing

MISSING = 3  # exit code


def parse(parser: argparse.ArgumentParser, **files: str) -> argparse.Namespace:
    """Parse the command line; set each option of `files` to its path below `--data`, unless it is given.

    If a file is missing, print it, where to get it, and how to check all data, and exit with code 3. With `--tables-only` nothing
    is read.

    Args:
        parser: The parser of the study.
        files: The path of each option below the folder, or several paths with commas.
    """
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data of experiments/data.md")
    for name, paths in files.items():
        parser.add_argument(f"--{name}", default="", help=f"instead of {paths} in --data")
    options = parser.parse_args()
    if getattr(options, "tables_only", False):
        return options
    for name, paths in files.items():
        if getattr(options, name):
            continue
        if not options.data:
            parser.error(f"give --data DIR, the folder of experiments/data.md, or --{name}")
        setattr(options, name, ",".join(str(options.data / path) for path in paths.split(",")))
    require([Path(path) for name in files for path in getattr(options, name).split(",")])
    return options


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kept_rows(path: Path, found: Iterable[Sequence[Any]], value: str) -> list[tuple[Any, ...]]:
    """Return the rows of a CSV file that `found`, rows with the same columns, does not replace; the column `value` is a number."""
    rows = read_rows(path)
    place = list(rows[0]).index(value) if rows else 0
    measured = {tuple(map(str, (*row[:place], *row[place + 1 :]))) for row in found}
    kept = [row for row in rows if tuple(text for name, text in row.items() if name != value) not in measured]
    return [tuple(float(text) if name == value else text for name, text in row.items()) for row in kept]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | Sequence[Any]], fields: Sequence[str] = ()) -> None:
    """Replace a CSV file as a whole, so that a kill leaves the old one or the new one.

    Args:
        path: The file.
        rows: Its rows; an entry that a mapping lacks is empty.
        fields: The names of the columns (default: those of all rows, which are mappings).
    """
    rows = list(rows)
    fields = fields or list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows([row.get(name, "") for name in fields] if isinstance(row, Mapping) else row for row in rows)


def add_rows(path: Path, new: Iterable[Mapping[str, Any]], fields: Sequence[str] = ()) -> None:
    """Add rows to a CSV file, which is made if it is not there."""
    write_rows(path, [*read_rows(path), *new], fields)


def rounded(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with four digits after the point."""
    return [{name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()} for row in rows]


def require(paths: list[Path]) -> None:
    """Exit with code 3 if a file or folder is missing, after printing where to get it."""
    absent = [path for path in paths if not path.exists()]
    for path in absent:
        sources = [row for row in SETS if path.as_posix().endswith(row["path"])]
        lines = [f"missing: {path}", *(f"  get it from: {row['source']} ({row['licence']})" for row in sources)]
        print(*lines, sep="\n", file=sys.stderr)
    if absent:
        print("python experiments/data.py --data DIR checks all data", file=sys.stderr)
        sys.exit(MISSING)


def require_model(name: str | Path) -> None:
    """Exit with code 3 if the BERT of `--weights` is missing, after printing what to give instead on one line."""
    from jax_sentemb.errors import UserError
    from jax_sentemb.formats.huggingface import resolve

    path = Path(name)
    sources = [row["source"] for row in MODELS if path.name in row["name"].split(", ")]
    if sources and not path.exists():
        print(f"error: --weights {name}: no such directory; {sources[0]}", file=sys.stderr)
        sys.exit(MISSING)
    try:
        resolve(str(name), "")
    except UserError as error:
        print(f"error: --weights {error}", file=sys.stderr)
        sys.exit(MISSING)
