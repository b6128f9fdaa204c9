"""Write and read vectors.json, the list of the shards of a corpus, and the lists of parts that are encoded separately.

Of the S shards of a corpus, part K of N has those from floor((K - 1) S / N) to floor(K S / N) - 1. So a part is a range of lines.
Its list of shards is part-K-of-N.json. `vector_parts` joins the lists of all N parts.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real

from jax_sentemb.data.chunks import CHUNKS
from jax_sentemb.data.npy import check_npy
from jax_sentemb.errors import DataError, ModelFileError, first_line
from jax_sentemb.files import fingerprint, join_inside, quote, read_limited, sha256, write_json
from jax_sentemb.provenance import KEY, VECTORS, check, difference, is_marked, mark
from jax_sentemb.retrieval.quantize import PRECISIONS
from jax_sentemb.retrieval.vector_records import records_file

MANIFEST = "vectors.json"
# Sources of vectors, which all shards of a directory share: content, and how it was encoded and stored.
CONTENT = ("corpus", "model", "prompt", "dtype", "normalize", "truncate_dim", "max_seq_length", "chunks", "precision")
SOURCES = (*CONTENT, "records", "rows_per_shard", "format")
LISTS = "part-*-of-*.json"
LIST_LIMIT = 1 << 26  # bytes of a manifest: a shard takes about 200


class Part(NamedTuple):
    """Part `number` of `total`, counted from 1. The default is the whole corpus."""

    number: int = 1
    total: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Parse NUMBER/TOTAL, for instance 3/64; raise ValueError for other text."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        part = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= part.number <= part.total:
            raise ValueError(f"{text!r} is not a part: write 1/64 to 64/64")
        return part

    @property
    def list_name(self) -> str:
        """Return the name of the file that lists the shards of this part."""
        return f"part-{self.number:0{len(str(self.total))}d}-of-{self.total}.json"

    def shards(self, count: int) -> range:
        """Return the numbers of the shards of this part if the corpus has `count` shards."""
        return range((self.number - 1) * count // self.total, self.number * count // self.total)

    def all_parts(self) -> list["Part"]:
        """Return all parts of the corpus, in order."""
        return [Part(number, self.total) for number in range(1, self.total + 1)]


def shard_name(number: int, extension: str) -> str:
    """Return the name of the file of a shard."""
    return f"{number:06d}.{extension}"


def manifest_path(path: Path) -> Path:
    """Return the path of the manifest of a directory of vectors, or of a single file."""
    return path / MANIFEST if path.is_dir() else path.with_name(f"{path.name}.json")


def find_damage(file: Path, shard: dict[str, Any], manifest_name: str) -> str:
    """Return the fault of a file that a manifest describes, "" if it has none."""
    try:
        is_intact = file.stat().st_size == shard["bytes"] and sha256(file) == shard["sha256"]
    except (OSError, ModelFileError):
        return "it cannot be read"
    return "" if is_intact else f"its size or SHA-256 differs from {manifest_name}"


def described_files(file: Path, shard: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the files of a shard, and the entries with their sizes and SHA-256."""
    yield file, shard
    if shard["records"] is not None:
        yield records_file(file), shard["records"]


def find_shard_damage(file: Path, shard: dict[str, Any], manifest_name: str) -> str:
    """Return the fault of the first damaged file of a shard, "" if it has none."""
    for path, entry in described_files(file, shard):
        if problem := find_damage(path, entry, manifest_name):
            return problem if path == file else f"{path.name}: {problem}"
    return ""


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with its totals, and the SHA-256 of the entries that cannot be computed from others."""
    manifest["truncated"] = sum(shard["truncated"] for shard in manifest["shards"])
    manifest["complete"] = sum(shard["rows"] for shard in manifest["shards"]) == manifest["rows"]
    manifest["sha256"] = digest(manifest)
    write_json(path, manifest)


def digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of the entries that cannot be computed from others."""
    return fingerprint({name: value for name, value in manifest.items() if name not in ("sha256", "complete", "truncated")})


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a directory or of a single file.

    Raises:
        DataError: The manifest is missing or damaged.
    """
    file = manifest_path(path)
    if not file.is_file() and list(path.glob(LISTS)):
        missing = missing_parts(path)
        advice = f"encode {missing} with jax-sentemb encode --part" if missing else "run the command of any part again"
        raise DataError(f"{path} has only parts of vectors: {advice}")
    if not file.is_file():
        is_model = any((path / name).is_file() for name in ("modules.json", "config.json", "model.json"))
        advice = "it is a model; name the text that it embeds" if is_model else "it does not hold vectors of jax-sentemb encode"
        raise DataError(f"{path} has no {MANIFEST}: {advice}")
    return read_list(file)


def missing_parts(directory: Path) -> str:
    """Return the names of at most five parts of a directory that are not complete: "1/4, 3/4 (started) and 2 others"."""
    lists = map(read_list, sorted(directory.glob(LISTS)))
    complete = {Part(*shard_list["part"]): shard_list["complete"] for shard_list in lists}
    total = max((part.total for part in complete), default=0)
    unfinished = (part for number in range(1, total + 1) if not complete.get(part := Part(number, total)))
    names = [f"{part} (started)" if part in complete else str(part) for part in itertools.islice(unfinished, 5)]
    more = total - sum(complete.values()) - len(names)
    return ", ".join(names) + (f" and {more} others" if more > 0 else "")


def marked(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a manifest that names the sources of its vectors. SOURCES that are not given are None."""
    return {KEY: mark(VECTORS, {**dict.fromkeys(SOURCES), **sources})}


def sources_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what the vectors of a manifest were made from."""
    return manifest[KEY]["sources"]


def read_list(file: Path) -> dict[str, Any]:
    """Read a manifest or the list of a part.

    Raises:
        DataError: The file is damaged or has another format.
    """
    try:
        manifest = json.loads(read_limited(file, LIST_LIMIT))
        if is_marked(manifest, VECTORS):
            check(file, manifest, VECTORS)
        _check_manifest(file, manifest)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, ModelFileError) as error:
        raise damage_error(file, f"{type(error).__name__}: {error}") from None
    return manifest


def damage_error(file: Path, reason: str) -> DataError:
    """Return the error for a list of shards that cannot be used."""
    advice = (
        "delete it and encode this part again" if file.match(LISTS) else "encode the corpus into a new directory, or a new file"
    )
    return DataError(f"{file} is damaged ({reason}): {advice}")


def _check_manifest(file: Path, manifest: dict[str, Any]) -> None:
    """Raise an error if a manifest is not as `write_shards` writes it."""
    if not isinstance(manifest, dict):
        raise TypeError(f"its content is a {type(manifest).__name__}")
    if manifest["sha256"] != digest(manifest):
        raise ValueError("its SHA-256 does not match its content")
    if problem := difference(manifest, VECTORS, {}):
        raise ValueError(f"it {problem}")
    sources = sources_of(manifest)
    for value, names in ((manifest, ("rows", "width", "ranges", "complete", "truncated")), (sources, SOURCES)):
        for name in names:
            value[name]
    for name, type_ in (("complete", bool), ("truncated", int)):  # the SHA-256 does not cover these two
        if type(manifest[name]) is not type_ or manifest[name] < 0:
            raise TypeError(f"{name} {quote(manifest[name])}")
    if not isinstance(manifest["shards"], list):
        raise TypeError(f"shards {quote(manifest['shards'])}")
    for shard in manifest["shards"]:
        join_inside(file.parent, shard["file"], file)
        if not (isinstance(shard["rows"] + shard["bytes"] + shard["truncated"], int) and isinstance(shard["sha256"], str)):
            raise ValueError("the description of a shard is malformed")
        if (records := shard["records"]) is not None and not (
            isinstance(records["bytes"] + records["empty"], int) and isinstance(records["sha256"], str)
        ):
            raise ValueError("the description of records is malformed")
    if len({shard["records"] is None for shard in manifest["shards"]}) > 1:
        raise ValueError("only some of the shards have records")
    for value, name in ((manifest, "rows"), (manifest, "width"), (sources, "truncate_dim"), (sources, "max_seq_length")):
        if not isinstance(value[name], int | None):
            raise TypeError(f"{name} {quote(value[name])}")
    if sources["chunks"] not in (None, *CHUNKS):
        raise ValueError(f"chunks {quote(sources['chunks'])}")
    if not isinstance(sources["prompt"], str | None):
        raise TypeError(f"prompt {quote(sources['prompt'])}")
    if not isinstance(sources["precision"], str) or sources["precision"] not in PRECISIONS:
        raise ValueError(f"precision {quote(sources['precision'])}")
    if manifest["ranges"] is not None:
        ranges = np.array(manifest["ranges"], np.float64)
        if ranges.shape != (2, manifest["width"]) or not (np.abs(ranges) <= np.finfo(np.float32).max).all():
            raise ValueError("ranges have another width or are not finite")
    if "part" in manifest and (Part(*manifest["part"]).list_name != file.name or not isinstance(manifest["first_shard"], int)):
        raise ValueError("it lists another part")


def is_complete(manifest: dict[str, Any], single: bool) -> bool:
    """Return whether all shards are listed, in order. A single file may have been renamed."""
    rows = sum(shard["rows"] for shard in manifest["shards"])
    if single:
        return bool(manifest["complete"]) and len(manifest["shards"]) == 1 and rows == manifest["rows"]
    names = [shard_name(number, sources_of(manifest)["format"]) for number in range(len(manifest["shards"]))]
    return bool(manifest["complete"]) and names == [shard["file"] for shard in manifest["shards"]] and rows == manifest["rows"]


def map_rows(file: Path, dtype: str) -> Real[np.ndarray, "rows width"]:
    """Return the rows of a .npy file, which are read on demand.

    Raises:
        DataError: The file is damaged, or its content is not a matrix of this dtype.
    """
    try:
        with file.open("rb") as stream:
            check_npy(stream, file.stat().st_size)
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python literals, which raises half a dozen kinds of exceptions
        raise DataError(f"{file} cannot be read as .npy: {first_line(error)}") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or not rows.size or rows.dtype != dtype:
        content = f"{getattr(rows, 'dtype', type(rows).__name__)} {getattr(rows, 'shape', '')}"
        raise DataError(f"{file} contains {content}, expected {dtype} [rows, width]; encode the text again")
    return np.asarray(rows)
