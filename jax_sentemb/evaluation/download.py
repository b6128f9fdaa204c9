"""Download evaluation sets from the Hugging Face hub and write them as a SentEval folder (extra `hub`).

The hub has the sentences as published, without SentEval's tokenisation, and the years of STS without their subsets. The aggregate
"all" (protocol simcse) is comparable with papers that score raw text. Means over subsets cannot be computed from these files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ConfigError, DataError, first_line
from jax_sentemb.evaluation.catalog import SETS, EvalSet, HubSource, select
from jax_sentemb.evaluation.downloaded import NAME, damage, write_mark
from jax_sentemb.files import path_in_errors, remove, sole_writer, staging


def fetch(names: str, root: Path) -> list[str]:
    """Write those sets of a comma-separated list that the hub has and `root` does not have, or has damaged.

    Returns:
        The names of the sets that were written.

    Raises:
        ConfigError: The `datasets` package is not installed, or the hub has none of the sets.
        DataError: A set cannot be loaded, or its folder was not downloaded and is incomplete.
    """
    rows = {SETS[name].files(root)[0].parent: SETS[name] for name, _ in select(names)}  # sets that share files are written once
    on_hub = [row for row in rows.values() if row.hub]
    if not on_hub:
        available = ", ".join(name for name, row in SETS.items() if row.hub)
        raise ConfigError(f"--fetch: the hub has none of {', '.join(row.name for row in rows.values())}; it has {available}")
    return [row.name for row in on_hub if _write(row, root)]


def _write(row: EvalSet, root: Path) -> bool:
    """Write a set once all of it is loaded; return False if its folder is complete, from the hub or from SentEval."""
    folder = row.files(root)[0].parent
    if row.hub is None or _is_complete(folder, row, root):
        return False
    files = LAYOUTS[row.hub.layout](row.hub)
    encoding = "latin-1" if row.hub.layout == "reviews" else "utf-8"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with sole_writer(folder), path_in_errors(folder), staging(folder) as stage:
        for file, lines in files.items():
            (stage / file).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding, errors="replace"))
        write_mark(stage, _sources(row.hub))
        remove(folder)
        stage.rename(folder)
    return True


def _sources(source: HubSource) -> dict[str, Any]:
    return {"data set": source.name, "config": source.config, "splits": source.splits}


def _is_complete(folder: Path, row: EvalSet, root: Path) -> bool:
    """Return whether the folder of a set needs no download.

    Raises:
        DataError: The folder was not downloaded and lacks files.
    """
    if row.hub and (folder / NAME).exists():
        return not damage(folder, _sources(row.hub))
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    if missing := [file for file in row.files(root) if not file.is_file()]:
        raise DataError(
            f"{missing[0]} is missing, and {folder} was not written by --fetch: complete it, or delete it and fetch again"
        )
    return True


def _year(source: HubSource) -> dict[str, list[str]]:
    rows = list(_rows(source, "test", "sentence1", "sentence2", "score"))
    return {
        "STS.input.all.txt": [f"{first}\t{second}" for first, second, _ in rows],
        "STS.gs.all.txt": [str(score) for _, _, score in rows],
    }


def _benchmark(source: HubSource) -> dict[str, list[str]]:
    return {
        f"sts-{split}.csv": [
            "\t".join(map(str, fields))
            for fields in _rows(source, split, "genre", "dataset", "year", "sid", "score", "sentence1", "sentence2")
        ]
        for split in source.splits
    }


def _paraphrases(source: HubSource) -> dict[str, list[str]]:
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    return {
        f"msr_paraphrase_{split}.txt": [header]
        + [
            f"{label}\t{number}\t{number}\t{first}\t{second}"
            for number, (first, second, label) in enumerate(_rows(source, split, "sentence1", "sentence2", "label"))
        ]
        for split in source.splits
    }


def _reviews(source: HubSource) -> dict[str, list[str]]:
    rows = list(_rows(source, "all", "text", "label"))
    files = ((1, "rt-polarity.pos"), (0, "rt-polarity.neg"))
    return {file: [text for text, row_label in rows if row_label == label] for label, file in files}


def _rows(source: HubSource, split: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of a split's rows, with each text on one line."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise ConfigError("--fetch needs the datasets package: pip install datasets") from None
    for hub_split in source.splits[split]:
        try:
            table: Any = load_dataset(source.name, source.config, split=hub_split)
        except Exception as error:  # the hub client raises a dozen kinds of exceptions
            raise DataError(
                f"{source.name} cannot be loaded from the hub ({first_line(error)}); check the network, and run the same "
                "command again"
            ) from error
        for row in table:
            if missing := [column for column in columns if column not in row]:
                raise DataError(
                    f"{source.name} has no column {missing[0]!r}: the data set on the hub has changed; copy its files "
                    "into the folder of --data"
                )
            yield tuple(" ".join(row[column].split()) if isinstance(row[column], str) else row[column] for column in columns)


LAYOUTS = {"year": _year, "benchmark": _benchmark, "paraphrases": _paraphrases, "reviews": _reviews}
