"""Vectors of a corpus on disk: shards of rows in .npy files, and vectors.json. Writing continues after an interruption.

vectors.json identifies the model and the text of the rows, and lists the complete shards with their SHA-256. The same
content for a single file NAME is in NAME.json.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Float

from jax_sentemb.data.tables import import_arrow
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import BusyError, ConfigError, DataError, ModelFileError
from jax_sentemb.files import fingerprint, inside, replacing, say, sha256, shown, sole_writer, write_json
from jax_sentemb.retrieval.quantize import PRECISIONS, quantize, ranges_of, restore

MANIFEST = "vectors.json"
# Settings that all shards of a directory share.
SAME = (
    "model_sha256", "corpus_sha256", "precision", "dtype", "normalize", "truncate_dim", "max_seq_length", "rows_per_shard",
    "format",
)  # fmt: skip
STORED = {"float32": "float32", "int8": "int8", "uint8": "uint8", "binary": "int8", "ubinary": "uint8"}


class EncodedSentences(NamedTuple):
    """Embeddings of sentences."""

    vectors: Float[np.ndarray, "n width"]  # float32
    truncated: int  # number of distinct sentences that were cut


_intact: set[tuple] = set()  # verified shards: path, inode, size and times of the file, and SHA-256
Encode = Callable[[list[str]], EncodedSentences]


def write_shards(
    directory: Path, metadata: dict[str, Any], sentences: Lines, encode: Encode, progress: Callable[[int], object]
) -> dict[str, Any]:
    """Encodes the shards that are missing or damaged in `directory`; returns the manifest.

    `metadata` has all keys of SAME and is written to the manifest. `progress` is called with the number of rows of each shard.
    ConfigError if the directory contains other files, BusyError while another process writes to it.
    """
    _check_place(directory)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(directory / "LOCK", timeout=0):
            manifest = _begin(directory, metadata, len(sentences))
            starts = range(0, len(sentences), metadata["rows_per_shard"])
            for number, start in enumerate(starts):
                end = min(start + metadata["rows_per_shard"], len(sentences))
                if _is_missing(directory, manifest, number, end - start):
                    _write_shard(directory, manifest, number, [sentences[row] for row in range(start, end)], encode)
                progress(end - start)
            if not manifest["complete"] or len(manifest["shards"]) > len(starts):  # all required shards existed before
                del manifest["shards"][len(starts) :]
                _write_manifest(directory / MANIFEST, manifest)
    except Timeout:
        raise BusyError(f"--output {directory} is being written by another process: wait for it, or give another one") from None
    return manifest


def write_file(
    file: Path, metadata: dict[str, Any], sentences: Lines, encode: Encode, progress: Callable[[int], object]
) -> dict[str, Any]:
    """Writes all vectors to one .npy or .parquet file, which appears when it is complete, and the manifest FILE.json; returns it.

    `metadata` and `progress` as for `write_shards`.
    """
    precision, at_once, place = metadata["precision"], metadata["rows_per_shard"], manifest_path(file)
    if precision in ("int8", "uint8"):
        raise ConfigError(f"--precision {precision} needs a directory as --output, which also stores the ranges of the values")
    with sole_writer(file):
        for existing in (file, place):
            if existing.exists():
                raise ConfigError(f"--output {existing} exists: give another name or move it away")
        truncated, parts, width = 0, [], 0
        for start in range(0, len(sentences), at_once):
            texts = [sentences[row] for row in range(start, min(start + at_once, len(sentences)))]
            found = encode(texts)
            parts.append(quantize(found.vectors, precision))
            truncated, width = truncated + found.truncated, found.vectors.shape[1]
            progress(len(texts))
        rows = np.concatenate(parts)
        _save(file, rows, [sentences[row] for row in range(len(sentences))] if file.suffix == ".parquet" else [])
        shards = [_described(file, len(rows), truncated)]
        manifest = {**metadata, "format": file.suffix[1:], "rows": len(rows), "width": width, "ranges": None, "shards": shards}
        _write_manifest(place, manifest)
    return manifest


def manifest_path(path: Path) -> Path:
    """The manifest of a directory of vectors, or of a single file."""
    return path / MANIFEST if path.is_dir() else path.with_name(f"{path.name}.json")


def _check_place(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--output {directory} is a file: give a directory, or a name that ends in .npy")
    if directory.is_dir() and not (directory / MANIFEST).is_file():
        if others := [path.name for path in directory.iterdir() if path.name != "LOCK" and path.suffix != ".partial"]:
            raise ConfigError(f"--output {directory} contains {sorted(others)[0]} and no {MANIFEST}: give an empty directory")


def _begin(directory: Path, metadata: dict[str, Any], rows: int) -> dict[str, Any]:
    """The existing manifest, after a check that it describes the same vectors; or a new manifest."""
    if (directory / MANIFEST).is_file():
        manifest = read_manifest(directory)
        for name in SAME:
            if manifest[name] != metadata[name]:
                raise ConfigError(
                    f"--output {directory} was begun with {name}={manifest[name]}, this command has {name}={metadata[name]}: "
                    "give another directory"
                )
        if manifest["rows"] != rows:
            raise _damaged(directory / MANIFEST, f"rows={shown(manifest['rows'])}, but the corpus has {rows}")
        return manifest
    manifest = {**metadata, "rows": rows, "width": None, "ranges": None, "shards": []}
    _write_manifest(directory / MANIFEST, manifest)
    return manifest


def _is_missing(directory: Path, manifest: dict[str, Any], number: int, rows: int) -> bool:
    """Whether a shard has to be encoded; warns if the manifest lists it."""
    listed = manifest["shards"][number : number + 1]
    if not listed:
        return True
    name = _name(number, manifest["format"])
    as_listed = (listed[0]["file"], listed[0]["rows"]) == (name, rows)
    problem = _damage(directory / name, listed[0], MANIFEST) if as_listed else f"{MANIFEST} is wrong"
    if problem:
        say(f"{directory / name}: {problem}; it is encoded again")
    return bool(problem)


def _name(number: int, kind: str) -> str:
    return f"{number:06d}.{kind}"


def _damage(file: Path, shard: dict[str, Any], described_in: str) -> str:
    """The fault of a file that a manifest describes, "" if it has none."""
    try:
        intact = file.stat().st_size == shard["bytes"] and sha256(file) == shard["sha256"]
    except (OSError, ModelFileError):
        return "it cannot be read"
    return "" if intact else f"its size or SHA-256 differs from {described_in}"


def _write_shard(directory: Path, manifest: dict[str, Any], number: int, texts: list[str], encode: Encode) -> None:
    found = encode(texts)
    precision = manifest["precision"]
    if precision in ("int8", "uint8") and manifest["ranges"] is None:
        manifest["ranges"] = ranges_of(found.vectors).tolist()  # those of the first shard are used for all shards
    ranges = manifest["ranges"] and np.array(manifest["ranges"], np.float32)
    file = directory / _name(number, manifest["format"])
    _save(file, quantize(found.vectors, precision, ranges), texts)
    manifest["shards"][number : number + 1] = [_described(file, len(texts), found.truncated)]
    manifest["width"] = found.vectors.shape[1]
    _write_manifest(directory / MANIFEST, manifest)


def _described(file: Path, rows: int, truncated: int) -> dict[str, Any]:
    """The entry of a file in the manifest."""
    return {"file": file.name, "rows": rows, "truncated": truncated, "bytes": file.stat().st_size, "sha256": sha256(file)}


def _write_manifest(place: Path, manifest: dict[str, Any]) -> None:
    """Writes a manifest with its totals, and the SHA-256 of the entries that cannot be computed from others."""
    manifest["truncated"] = sum(shard["truncated"] for shard in manifest["shards"])
    manifest["complete"] = sum(shard["rows"] for shard in manifest["shards"]) == manifest["rows"]
    manifest["sha256"] = _digest(manifest)
    write_json(place, manifest)


def _digest(manifest: dict[str, Any]) -> str:
    return fingerprint({name: value for name, value in manifest.items() if name not in ("sha256", "complete", "truncated")})


def _save(file: Path, rows: np.ndarray, texts: list[str]) -> None:
    with replacing(file) as partial:
        if file.suffix == ".parquet":
            _save_parquet(partial, rows, texts)
        else:
            with partial.open("wb") as opened:  # the error of np.save for a full disk has no error number
                np.lib.format.write_array_header_1_0(opened, np.lib.format.header_data_from_array_1_0(rows))
                opened.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)


def _save_parquet(file: Path, rows: np.ndarray, texts: list[str]) -> None:
    """Writes the columns `text` and `embedding`, a list of fixed size."""
    pyarrow = import_arrow("Parquet")
    flat = pyarrow.array(rows.reshape(-1))
    embedding = pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string()), "embedding": embedding}), file)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a directory or of a single file; DataError where it is missing or damaged."""
    file = manifest_path(path)
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        _check_manifest(file.parent, manifest)
    except FileNotFoundError:
        raise DataError(f"{path} has no {MANIFEST}: it is no directory of vectors") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, ModelFileError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}") from None
    return manifest


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(f"{file} is damaged ({reason}): encode the corpus into a new directory, or a new file")


def _check_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Raises an error if a manifest is not as `write_shards` writes it. Early versions wrote it without its own SHA-256."""
    if not isinstance(manifest, dict):
        raise TypeError(f"its content is a {type(manifest).__name__}")
    if manifest.get("sha256", "") not in ("", _digest(manifest)):
        raise ValueError("its SHA-256 does not match its content")
    for name in (*SAME, "rows", "width", "ranges", "complete"):
        manifest[name]
    if not isinstance(manifest["shards"], list):
        raise TypeError(f"shards {shown(manifest['shards'])}")
    for shard in manifest["shards"]:
        inside(directory, shard["file"], directory / MANIFEST)
        if not (isinstance(shard["rows"] + shard["bytes"] + shard["truncated"], int) and isinstance(shard["sha256"], str)):
            raise ValueError("the description of a shard is malformed")
    for name, kind in (("rows", int), ("width", int), ("truncate_dim", int), ("model_sha256", str), ("corpus_sha256", str)):
        if not isinstance(manifest[name], kind | None):
            raise TypeError(f"{name} {shown(manifest[name])}")
    if manifest["precision"] not in PRECISIONS:
        raise ValueError(f"precision {shown(manifest['precision'])}")
    if manifest["ranges"] is not None:
        ranges = np.array(manifest["ranges"], np.float64)
        if ranges.shape != (2, manifest["width"]) or not (np.abs(ranges) <= np.finfo(np.float32).max).all():
            raise ValueError("ranges have another width or are not finite")


def _is_complete(manifest: dict[str, Any], single: bool) -> bool:
    """Whether all shards are listed, in order. A single file may have been renamed."""
    rows = sum(shard["rows"] for shard in manifest["shards"])
    if single:
        return bool(manifest["complete"]) and len(manifest["shards"]) == 1 and rows == manifest["rows"]
    names = [_name(number, manifest["format"]) for number in range(len(manifest["shards"]))]
    return bool(manifest["complete"]) and names == [shard["file"] for shard in manifest["shards"]] and rows == manifest["rows"]


class Vectors:
    """Rows on disk with the interface of one float32 array: `shape`, `len()`, and slices, which are read on demand.

    Quantised rows are restored to float32. Memory is needed for the slices only.
    """

    def __init__(self, path: Path, verify: bool = True) -> None:
        """Opens a directory of `write_shards`, or one .npy file; DataError if it is incomplete or damaged.

        `verify`: reads each shard once per process and compares it with its SHA-256, also a single .npy file with a
        NAME.json beside it; other files have no SHA-256.
        """
        single = not path.is_dir()
        if single and not manifest_path(path).is_file():
            self.manifest = {"precision": "float32", "ranges": None, "width": None, "model_sha256": None, "corpus_sha256": None}
            files = [path]
        else:
            self.manifest = read_manifest(path)
            if not _is_complete(self.manifest, single):
                raise DataError(f"{path} is not complete: run the same encode command again")
            if self.manifest["format"] != "npy":
                raise DataError(f"{path} contains {shown(self.manifest['format'])} files; only .npy files can be searched")
            shards = self.manifest["shards"]
            files = [path] if single else [path / shard["file"] for shard in shards]
            for file, shard in zip(files, shards, strict=True) if verify else ():
                _verify(file, shard, manifest_path(path).name)
        kind = STORED[self.manifest["precision"]]
        if not files:
            raise DataError(f"{path} has no shards: encode the corpus into a new directory")
        self._files = [(file, file.stat().st_size) for file in files if file.exists()]  # _mapped raises DataError for missing files
        self._shards = [_mapped(file, kind) for file in files]
        stated = [shard["rows"] for shard in self.manifest.get("shards", [])]
        if stated and stated != [len(shard) for shard in self._shards]:
            raise DataError(f"{path}: the shards do not have the numbers of rows in {MANIFEST}")
        width, bits = self.manifest["width"] or self._shards[0].shape[1], self.manifest["precision"] in ("binary", "ubinary")
        if any(shard.shape[1] != (-(-width // 8) if bits else width) for shard in self._shards):
            raise DataError(f"{path}: the shards do not have the width {width} in {MANIFEST}")
        self._ends = np.cumsum([len(shard) for shard in self._shards])
        self._ranges = self.manifest["ranges"] and np.array(self.manifest["ranges"], np.float32)
        self.shape = (int(self._ends[-1]), width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "n width"]:
        start, end, _ = rows.indices(len(self))
        parts = []
        for file, shard, stop in zip(self._files, self._shards, self._ends.tolist(), strict=True):
            first = stop - len(shard)
            if first < end and start < stop:
                _check_size(*file)
                parts.append(shard[max(start - first, 0) : end - first])
        if not parts:
            parts = [self._shards[0][:0]]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)  # no copy for rows of one shard
        return restore(found, self.manifest["precision"], self.shape[1], self._ranges)


def _verify(file: Path, shard: dict[str, Any], described_in: str) -> None:
    """DataError for a damaged file; skips files that this process has verified before."""
    with contextlib.suppress(OSError):
        stat = file.stat()
        known = (str(file.absolute()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, shard["sha256"])
        if known not in _intact:
            if problem := _damage(file, shard, described_in):
                repair = "run the same encode command again" if described_in == MANIFEST else "delete both, and encode again"
                raise DataError(f"{file}: {problem}; {repair}")
            _intact.add(known)


def _check_size(file: Path, size: int) -> None:
    """DataError if a memory-mapped shard has shrunk, because reading beyond its end kills the process by SIGBUS."""
    with contextlib.suppress(FileNotFoundError):  # a deleted file stays mapped
        if file.stat().st_size < size:
            raise DataError(f"{file} was truncated while it was read: run the same encode command again to restore it")


def _mapped(file: Path, kind: str) -> np.ndarray:
    try:
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python literals, which raises half a dozen kinds of exceptions
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{file} cannot be read as .npy: {reason[:200]}") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype != kind:
        raise DataError(
            f"{file} contains {getattr(rows, 'dtype', type(rows).__name__)} {getattr(rows, 'shape', '')}, not {kind} [rows, width]"
        )
    return np.asarray(rows)
