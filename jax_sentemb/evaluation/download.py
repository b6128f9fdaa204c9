"""Downloads evaluation sets from the Hugging Face hub and writes them as a SentEval folder (extra `hub`).

The hub has the sentences as published, without SentEval's tokenisation, and the years of STS without their subsets. The aggregate
"all" (protocol simcse) is comparable with papers that score raw text; means over subsets cannot be computed from these files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.evaluation.suite import select
from jax_sentemb.files import naming, staging


class Source(NamedTuple):
    """A task on the hub: data set, configuration, and for each of our splits the splits of the hub."""

    name: str
    config: str | None
    splits: dict[str, tuple[str, ...]]


SOURCES = {
    **{f"STS{year}": Source(f"mteb/sts{year}-sts", None, {"test": ("test",)}) for year in range(12, 17)},
    "STSBenchmark": Source("mteb/stsbenchmark-sts", None, {"train": ("train",), "dev": ("validation",), "test": ("test",)}),
    "MRPC": Source("nyu-mll/glue", "mrpc", {"train": ("train", "validation"), "test": ("test",)}),
    "MR": Source("cornell-movie-review-data/rotten_tomatoes", None, {"all": ("train", "validation", "test")}),
}
FOLDERS = {"STSBenchmark": "STS/STSBenchmark", "MRPC": "MRPC", "MR": "MR"}
SAME_FILES = {"STSBenchmark-dev": "STSBenchmark", "STSBenchmark-test": "STSBenchmark"}


def fetch(tasks: str, root: Path) -> list[str]:
    """Writes those tasks of a comma-separated list that the hub has and `root` has not; returns their names.

    ConfigError without the `datasets` package or if the hub has none of the tasks; DataError for a task that cannot be loaded.
    """
    wanted = list(dict.fromkeys(SAME_FILES.get(name, name) for name, _ in select(tasks)))
    known = [name for name in wanted if name in SOURCES]
    if not known:
        raise ConfigError(f"--fetch: the hub has none of {', '.join(wanted)}; it has {', '.join(SOURCES)}")
    return [name for name in known if _write(name, root)]


def _write(name: str, root: Path) -> bool:
    """Writes a task after all of it is loaded; returns False if its folder exists, from the hub or from SentEval."""
    folder = root / "downstream" / FOLDERS.get(name, f"STS/{name}-en-test")
    if folder.is_dir():
        return False
    files = {"MR": _reviews, "MRPC": _paraphrases, "STSBenchmark": _benchmark}.get(name, _year)(name)
    encoding = "latin-1" if name == "MR" else "utf-8"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with naming(folder), staging(folder) as stage:  # a folder that exists counts as complete
        for file, lines in files.items():
            (stage / file).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding, errors="replace"))
        stage.rename(folder)
    return True


def _year(name: str) -> dict[str, list[str]]:
    rows = list(_rows(name, "test", "sentence1", "sentence2", "score"))
    return {
        "STS.input.all.txt": [f"{one}\t{other}" for one, other, _ in rows],
        "STS.gs.all.txt": [str(score) for _, _, score in rows],
    }


def _benchmark(name: str) -> dict[str, list[str]]:
    return {
        f"sts-{split}.csv": [
            "\t".join(map(str, fields))
            for fields in _rows(name, split, "genre", "dataset", "year", "sid", "score", "sentence1", "sentence2")
        ]
        for split in SOURCES[name].splits
    }


def _paraphrases(name: str) -> dict[str, list[str]]:
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    return {
        f"msr_paraphrase_{split}.txt": [header]
        + [
            f"{label}\t{number}\t{number}\t{one}\t{other}"
            for number, (one, other, label) in enumerate(_rows(name, split, "sentence1", "sentence2", "label"))
        ]
        for split in SOURCES[name].splits
    }


def _reviews(name: str) -> dict[str, list[str]]:
    rows = list(_rows(name, "all", "text", "label"))
    files = ((1, "rt-polarity.pos"), (0, "rt-polarity.neg"))
    return {file: [text for text, found in rows if found == label] for label, file in files}


def _rows(name: str, split: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ConfigError("--fetch needs the datasets package: pip install 'jax_sentemb[hub]'") from None
    source = SOURCES[name]
    for part in source.splits[split]:
        try:
            table: Any = load_dataset(source.name, source.config, split=part)
        except Exception as error:  # the hub client raises a dozen kinds of exceptions
            problem = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise DataError(f"{name}: {source.name} cannot be loaded from the hub: {problem}") from error
        for row in table:
            if missing := [column for column in columns if column not in row]:
                raise DataError(f"{name}: {source.name} has no column {missing[0]!r}: the data set on the hub has changed")
            yield tuple(" ".join(row[column].split()) if isinstance(row[column], str) else row[column] for column in columns)
