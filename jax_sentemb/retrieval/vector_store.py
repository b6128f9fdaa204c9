"""Vectors of a corpus on disk: shards of rows in .npy files, and vectors.json. Writing continues after an interruption.

vectors.json identifies the model and the text of the rows, and lists the complete shards with their SHA-256. The same
content for a single file NAME is in NAME.json. There is a row for each text of the corpus; that of an empty text is zero.
"""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Bool, Float, Int, Real

from jax_sentemb.checks import flag, limits_of, row_numbers, whole_number
from jax_sentemb.data.records import Record
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import BusyError, ConfigError, DataError
from jax_sentemb.files import PARTIAL, say, sha256, shown, sole_writer, user_path
from jax_sentemb.provenance import KEY, VECTORS, Source, check
from jax_sentemb.retrieval.quantize import quantize, ranges_of, restore
from jax_sentemb.retrieval.vector_files import TextRows, new_file
from jax_sentemb.retrieval.vector_manifest import (
    CONTENT,
    LISTS,
    MANIFEST,
    Part,
    damage,
    damaged,
    described_files,
    is_complete,
    manifest_path,
    mapped,
    marked,
    read_list,
    read_manifest,
    shard_damage,
    shard_name,
    sources_of,
    write_manifest,
)  # fmt: skip
from jax_sentemb.retrieval.vector_parts import check_part, join_parts
from jax_sentemb.retrieval.vector_records import RecordOf, VectorRecords, encode_texts
from jax_sentemb.types import EncodedSentences

STORED = {"float32": "float32", "float16": "float16", "int8": "int8", "uint8": "uint8", "binary": "int8", "ubinary": "uint8"}
LENGTHS = 1 << 12  # rows whose lengths are computed at once
_intact: set[tuple] = set()  # verified shards: path, inode, size and times of the file, and SHA-256
Encode = Callable[[list[str]], EncodedSentences]


def write_shards(
    directory: Path,
    metadata: dict[str, Any],
    sentences: Lines,
    encode: Encode,
    progress: Callable[[int], object],
    part: Part = Part(),
    record_of: RecordOf | None = None,
) -> dict[str, Any]:
    """Encode what is missing or damaged of `part` in `directory` and return its manifest, or vectors.json of all parts.

    `metadata` is `marked` with all SOURCES, and goes into the manifest. `progress` is called with the rows of each shard.
    `record_of` returns the record of each row; None: row i is record i, has no id and is not empty. ConfigError where the directory
    holds anything else, BusyError while another process writes the same part.
    """
    _check_place(directory)
    check_part(directory, part, metadata)
    directory.mkdir(parents=True, exist_ok=True)
    size = sources_of(metadata)["rows_per_shard"]
    shards = part.shards(-(-len(sentences) // size))
    try:
        with FileLock(directory / _lock_of(_list_of(directory, part)), timeout=0):
            manifest = _begin(directory, metadata, len(sentences), part)
            for number in shards:
                rows = range(number * size, min((number + 1) * size, len(sentences)))
                if _is_missing(directory, manifest, number, len(rows)):
                    _write_shard(directory, manifest, number, TextRows(rows, [sentences[row] for row in rows], record_of), encode)
                progress(len(rows))
            count = len(shards) if "part" in manifest else -(-len(sentences) // size)
            if not manifest["complete"] or len(manifest["shards"]) > count:  # all that is needed was there
                del manifest["shards"][count:]
                write_manifest(_place(directory, manifest), manifest)
        return join_parts(directory, part) or manifest if "part" in manifest else manifest
    except Timeout:
        raise BusyError(f"--output {directory} is being written by another process: wait for it, or give another one") from None


def _place(directory: Path, manifest: dict[str, Any]) -> Path:
    return directory / (Part(*manifest["part"]).list_name if "part" in manifest else MANIFEST)


def _list_of(directory: Path, part: Part) -> str:
    """The file that lists the shards of a part: vectors.json once all parts were put together."""
    return MANIFEST if part.total == 1 or (directory / MANIFEST).is_file() else part.list_name


def _lock_of(file: str) -> str:
    return "LOCK" if file == MANIFEST else file.replace(".json", ".LOCK")


def write_file(
    file: Path,
    metadata: dict[str, Any],
    sentences: Lines,
    encode: Encode,
    progress: Callable[[int], object],
    record_of: RecordOf | None = None,
) -> dict[str, Any]:
    """Writes all vectors to one .npy or .parquet file, which appears when it is complete, and the manifest FILE.json; returns it.

    `metadata`, `progress` and `record_of` as for `write_shards`.
    """
    precision, at_once = (sources_of(metadata)[name] for name in ("precision", "rows_per_shard"))
    place = manifest_path(file)
    if precision in ("int8", "uint8"):
        raise ConfigError(f"--precision {precision} needs a directory as --output, which also stores the ranges of the values")
    with sole_writer(file):
        _check_free(file, place)
        truncated, parts, width = 0, [], 0
        for start in range(0, len(sentences), at_once):
            texts = [sentences[row] for row in range(start, min(start + at_once, len(sentences)))]
            found = encode_texts(texts, encode)
            parts.append(quantize(found.vectors, precision))
            truncated, width = truncated + found.truncated, found.vectors.shape[1]
            progress(len(texts))
        texts = [sentences[row] for row in range(len(sentences))]
        with new_file(file, np.concatenate(parts), TextRows(range(len(texts)), texts, record_of)) as shard:
            shards = [{**shard, "truncated": truncated}]
            sources = marked({**sources_of(metadata), "format": file.suffix[1:]})
            manifest = {**metadata, **sources, "rows": len(texts), "width": width, "ranges": None, "shards": shards}
            write_manifest(place, manifest)  # before the vectors: without a manifest nobody could continue
    return manifest


def _check_free(file: Path, place: Path) -> None:
    """Raise ConfigError if a file of vectors exists. A manifest alone, of a process that was killed, is replaced."""
    if file.exists():
        raise ConfigError(f"--output {file} exists: give another name or move it away")
    if place.exists():
        try:
            read_list(place)
        except DataError:
            raise ConfigError(f"--output {place} exists: give another name or move it away") from None


def _check_place(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--output {directory} is a file: give a directory, or a name that ends in .npy")
    if directory.is_dir() and not (directory / MANIFEST).is_file():
        parts = [*directory.glob(LISTS), *directory.glob(LISTS.replace(".json", ".LOCK"))]  # the list of one may have been deleted
        mine = (".npy", ".parquet", ".json", ".jsonl") if parts else ()
        ours = (".LOCK", PARTIAL, *mine)
        if others := [path.name for path in directory.iterdir() if path.name != "LOCK" and path.suffix not in ours]:
            raise ConfigError(f"--output {directory} contains {sorted(others)[0]} and no {MANIFEST}: give an empty directory")


def _begin(directory: Path, metadata: dict[str, Any], rows: int, part: Part) -> dict[str, Any]:
    """The existing manifest, checked to describe the same vectors; or a new one."""
    file = directory / _list_of(directory, part)
    if file.is_file():
        manifest = read_list(file)
        check(f"--output {directory}", manifest, VECTORS, sources_of(metadata), ConfigError, "give another directory")
        if part.total > 1 and "part" not in manifest and not manifest["complete"]:
            raise ConfigError(f"--output {directory} was begun without --part: leave it out, or give another directory")
        if manifest["rows"] != _rows_of(manifest, rows, part):
            raise damaged(file, f"rows={shown(manifest['rows'])}, but the corpus has {rows}")
        return manifest
    manifest = {**metadata, "rows": rows, "width": None, "ranges": None, "shards": []}
    if part.total > 1:
        manifest |= {"part": list(part), "first_shard": part.shards(-(-rows // sources_of(metadata)["rows_per_shard"])).start}
        manifest["rows"] = _rows_of(manifest, rows, part)
    write_manifest(_place(directory, manifest), manifest)
    return manifest


def _rows_of(manifest: dict[str, Any], rows: int, part: Part) -> int:
    """The rows that a manifest of a corpus with `rows` lists in the end."""
    size = sources_of(manifest)["rows_per_shard"]
    shards = part.shards(-(-rows // size)) if "part" in manifest else range(-(-rows // size))
    return min(shards.stop * size, rows) - min(shards.start * size, rows)


def _is_missing(directory: Path, manifest: dict[str, Any], number: int, rows: int) -> bool:
    """Whether a shard has to be encoded; warns if the manifest lists it."""
    place = number - manifest.get("first_shard", 0)
    listed = manifest["shards"][place : place + 1]
    if not listed:
        return True
    name, list_name = shard_name(number, sources_of(manifest)["format"]), _place(directory, manifest).name
    as_listed = (listed[0]["file"], listed[0]["rows"]) == (name, rows)
    problem = shard_damage(directory / name, listed[0], list_name) if as_listed else f"{list_name} is wrong"
    if problem:
        say(f"{directory / name}: {problem}; it is encoded again")
    return bool(problem)


def _write_shard(directory: Path, manifest: dict[str, Any], number: int, text_rows: TextRows, encode: Encode) -> None:
    found = encode_texts(text_rows.texts, encode)
    precision = sources_of(manifest)["precision"]
    if precision in ("int8", "uint8") and manifest["ranges"] is None:
        present = [row for row, text in enumerate(text_rows.texts) if text]
        manifest["ranges"] = ranges_of(found.vectors[present]).tolist()  # those of the first shard are used for all shards
    ranges = manifest["ranges"] and np.array(manifest["ranges"], np.float32)
    file = directory / shard_name(number, sources_of(manifest)["format"])
    with new_file(file, quantize(found.vectors, precision, ranges), text_rows) as shard:
        shard["truncated"] = found.truncated
    place = number - manifest.get("first_shard", 0)
    manifest["shards"][place : place + 1] = [shard]
    manifest["width"] = found.vectors.shape[1]
    write_manifest(_place(directory, manifest), manifest)


class Vectors:
    """Rows on disk with the interface of one float32 array: `shape`, `len()`, and slices, which are read on demand.

    Quantised rows are restored to float32. Memory is needed for the slices only. Row i belongs to text i of the corpus, also where
    texts are empty. The rows `empty_rows` of empty texts are zero; `search` and the other functions leave them out.
    """

    def __init__(self, path: str | Path, verify: bool = True) -> None:
        """Opens a directory of `write_shards`, or one .npy file; DataError if it is incomplete or damaged.

        `verify`: reads each shard once per process and compares it with its SHA-256, also a single .npy file with a
        NAME.json beside it; other files have no SHA-256.
        """
        path, verify = user_path(path), flag("verify", verify)
        single = not path.is_dir()
        if single and not manifest_path(path).is_file():
            self.manifest: dict[str, Any] = {"ranges": None, "width": None}
            files = [path]
        else:
            self.manifest = read_manifest(path)
            if not is_complete(self.manifest, single):
                raise DataError(f"{path} is not complete: run the same encode command again")
            if (stored_as := sources_of(self.manifest)["format"]) != "npy":
                raise DataError(f"{path} contains {shown(stored_as)} files; only .npy files can be searched")
            shards = self.manifest["shards"]
            files = [path] if single else [path / shard["file"] for shard in shards]
        self.is_marked = KEY in self.manifest  # otherwise neither corpus nor model is known
        self.precision = sources_of(self.manifest)["precision"] if self.is_marked else "float32"
        if not files:
            raise DataError(f"{path} has no shards: encode the corpus into a new directory")
        self._files = [(file, file.stat().st_size) for file in files if file.exists()]  # mapped raises DataError for missing files
        self._shards = [mapped(file, STORED[self.precision]) for file in files]
        for file, shard in zip(files, self.manifest.get("shards", []), strict=False) if verify else ():
            for described in described_files(file, shard):
                _verify(*described, manifest_path(path).name)
        stated = [shard["rows"] for shard in self.manifest.get("shards", [])]
        if stated and stated != [len(shard) for shard in self._shards]:
            raise DataError(f"{path}: the shards do not have the numbers of rows in {MANIFEST}")
        width, bits = self.manifest["width"] or self._shards[0].shape[1], self.precision in ("binary", "ubinary")
        if any(shard.shape[1] != (-(-width // 8) if bits else width) for shard in self._shards):
            raise DataError(f"{path}: the shards do not have the width {width} in {MANIFEST}")
        self._ends = np.cumsum([len(shard) for shard in self._shards])
        self.ranges = self.manifest["ranges"] and np.array(self.manifest["ranges"], np.float32)
        self.shape = (int(self._ends[-1]), width)
        has_records = bool(stated) and self.manifest["shards"][0]["records"] is not None
        self._records = VectorRecords(files, self.manifest["shards"]) if has_records else None
        self.empty_rows = self._records.empty_rows() if self._records else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    @functools.cached_property
    def sources(self) -> dict[str, Any]:
        """What the rows were made from: the content sources of the manifest, or for other .npy files the file itself."""
        if not self.is_marked:
            file = self._files[0][0]
            return {"vectors": Source(file.name, sha256(file))}
        return {name: value for name, value in sources_of(self.manifest).items() if name in CONTENT}

    @property
    def is_int8(self) -> bool:
        """Whether a number is stored in a byte, as int8 or uint8."""
        return self.precision in ("int8", "uint8")

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "n width"]:
        return self._restored(self.stored(rows), rows)

    def stored(self, rows: slice) -> Real[np.ndarray, "n columns"]:
        """The rows of a slice as they are in the files."""
        start, end = limits_of(rows, len(self))
        parts = []
        for file, shard, stop in zip(self._files, self._shards, self._ends.tolist(), strict=True):
            first = stop - len(shard)
            if first < end and start < stop:
                _check_size(*file)
                parts.append(shard[max(start - first, 0) : end - first])
        parts = parts or [self._shards[0][:0]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)  # no copy for rows of one shard

    @functools.cached_property
    def lengths(self) -> Float[np.ndarray, " rows"]:
        """The length of every row, float32; computed when it is first needed."""
        parts = (self[start : start + LENGTHS] for start in range(0, len(self), LENGTHS))
        return np.concatenate([np.linalg.norm(rows.astype(np.float64), axis=1) for rows in parts]).astype(np.float32)

    def take(self, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n width"]:
        """The rows of these numbers, in this order, as float32."""
        rows = row_numbers(rows, len(self))
        shard = np.searchsorted(self._ends, rows, side="right")
        found = np.empty((len(rows), self._shards[0].shape[1]), self._shards[0].dtype)
        for number in np.unique(shard).tolist():
            _check_size(*self._files[number])
            here = shard == number
            found[here] = self._shards[number][rows[here] - (self._ends[number] - len(self._shards[number]))]
        return self._restored(found, rows)

    @property
    def has_ids(self) -> bool:
        """Whether records may have ids."""
        return self.is_marked and sources_of(self.manifest)["records"] is not None

    def record(self, row: SupportsIndex) -> Record:
        """Return the record of a row: its number, its column if a record has several texts, and its id, None if it has none."""
        row = whole_number("row", row, 0, len(self) - 1)
        return self._records.record(row) if self._records else Record(row)

    def _restored(self, found: np.ndarray, rows: slice | Int[np.ndarray, " n"]) -> np.ndarray:
        """Return stored rows as float32; `rows` are their numbers."""
        restored = restore(found, self.precision, self.shape[1], self.ranges)
        if len(self.empty_rows) and self.precision not in ("float32", "float16"):  # no byte stands for 0
            restored[self._is_empty[rows]] = 0
        return restored

    @functools.cached_property
    def _is_empty(self) -> Bool[np.ndarray, " rows"]:
        return np.isin(np.arange(len(self)), self.empty_rows)


def _verify(file: Path, shard: dict[str, Any], described_in: str) -> None:
    """DataError for a damaged file; skips files that this process has verified before."""
    with contextlib.suppress(OSError):
        stat = file.stat()
        known = (str(file.absolute()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, shard["sha256"])
        if known not in _intact:
            if problem := damage(file, shard, described_in):
                repair = "run the same encode command again" if described_in == MANIFEST else "delete both, and encode again"
                raise DataError(f"{file}: {problem}; {repair}")
            _intact.add(known)


def _check_size(file: Path, size: int) -> None:
    """DataError if a memory-mapped shard has shrunk, because reading beyond its end kills the process by SIGBUS."""
    with contextlib.suppress(FileNotFoundError):  # a deleted file stays mapped
        if file.stat().st_size < size:
            raise DataError(f"{file} was truncated while it was read: run the same encode command again to restore it")
