"""Write and read the vectors of a corpus: shards of rows in .npy files, and vectors.json. Writing resumes after an interruption.

vectors.json identifies the model and the text of the rows, and lists the complete shards with their SHA-256. A single file NAME
has the same content in NAME.json. There is a row for each text of the corpus. The row of an empty text is zero.
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
from jax_sentemb.files import PARTIAL, print_warning, quote, sha256, sole_writer, user_path
from jax_sentemb.provenance import KEY, VECTORS, Source, check
from jax_sentemb.retrieval.quantize import quantize, ranges_of, restore
from jax_sentemb.retrieval.vector_files import TextRows, new_file
from jax_sentemb.retrieval.vector_manifest import (
    CONTENT,
    LISTS,
    MANIFEST,
    Part,
    damage_error,
    described_files,
    find_damage,
    find_shard_damage,
    is_complete,
    manifest_path,
    map_rows,
    marked,
    read_list,
    read_manifest,
    shard_name,
    sources_of,
    write_manifest,
)  # fmt: skip
from jax_sentemb.retrieval.vector_parts import check_part, join_parts
from jax_sentemb.retrieval.vector_records import RecordOf, VectorRecords, encode_texts
from jax_sentemb.types import EncodedSentences, OnCount

STORED_DTYPES = {"float32": "float32", "float16": "float16", "int8": "int8", "uint8": "uint8", "binary": "int8", "ubinary": "uint8"}
LENGTH_BLOCK = 1 << 12  # rows whose lengths are computed at once
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".npz", ".gz", ".xz")  # a directory of such a name would be a surprise
RANGE_TEXTS = 1 << 12  # texts of later shards for the ranges of int8 and uint8: the first shard may be on one topic
_verified: set[tuple] = set()  # verified shards: path, inode, size and times of the file, and SHA-256
Encode = Callable[[list[str]], EncodedSentences]


def write_shards(
    directory: Path,
    metadata: dict[str, Any],
    sentences: Lines,
    encode: Encode,
    progress: OnCount,
    part: Part = Part(),
    record_of: RecordOf | None = None,
) -> dict[str, Any]:
    """Encode the missing and damaged shards of a part.

    Args:
        directory: The folder of the shards.
        metadata: Content of the manifest: the result of `marked` with all SOURCES.
        sentences: The texts of the whole corpus.
        encode: Returns the embeddings of texts.
        progress: Called with the number of rows of each shard.
        part: The part of the corpus to encode.
        record_of: Returns the record of a row. None means that row i is record i, has no id and is not empty.

    Returns:
        The manifest of the part, or vectors.json if this was the last part.

    Raises:
        BusyError: Another process writes the same part.
        ConfigError: The directory holds other files or other vectors.
    """
    _check_directory(directory)
    check_part(directory, part, metadata)
    directory.mkdir(parents=True, exist_ok=True)
    size = sources_of(metadata)["rows_per_shard"]
    shards = part.shards(-(-len(sentences) // size))
    try:
        with FileLock(directory / _lock_name(_list_name(directory, part)), timeout=0):
            manifest = _open_manifest(directory, metadata, len(sentences), part)
            for number in shards:
                rows = range(number * size, min((number + 1) * size, len(sentences)))
                if _is_missing(directory, manifest, number, len(rows)):
                    text_rows = TextRows(rows, [sentences[row] for row in rows], record_of)
                    others = functools.partial(_spread_texts, sentences, rows.stop)
                    _write_shard(directory, manifest, number, text_rows, encode, others)
                progress(len(rows))
            count = len(shards) if "part" in manifest else -(-len(sentences) // size)
            if not manifest["complete"] or len(manifest["shards"]) > count:  # no shard was written, so the manifest was not either
                del manifest["shards"][count:]
                write_manifest(_manifest_path(directory, manifest), manifest)
        return join_parts(directory, part) or manifest if "part" in manifest else manifest
    except Timeout:
        raise BusyError(f"--output {directory} is being written by another process: wait for it, or give another name") from None


def _manifest_path(directory: Path, manifest: dict[str, Any]) -> Path:
    return directory / (Part(*manifest["part"]).list_name if "part" in manifest else MANIFEST)


def _list_name(directory: Path, part: Part) -> str:
    """Return the name of the file that lists the shards of a part: vectors.json if all parts have been joined."""
    return MANIFEST if part.total == 1 or (directory / MANIFEST).is_file() else part.list_name


def _lock_name(list_name: str) -> str:
    return "LOCK" if list_name == MANIFEST else list_name.replace(".json", ".LOCK")


def write_file(
    file: Path,
    metadata: dict[str, Any],
    sentences: Lines,
    encode: Encode,
    progress: OnCount,
    record_of: RecordOf | None = None,
) -> dict[str, Any]:
    """Write all vectors to one .npy or .parquet file, which appears when it is complete.

    Args:
        file: The file to write. Its manifest is FILE.json.
        metadata: As in `write_shards`.
        sentences: The texts of the corpus.
        encode: Returns the embeddings of texts.
        progress: Called with the number of rows of each block.
        record_of: As in `write_shards`.

    Returns:
        The manifest.

    Raises:
        BusyError: Another process writes the same file.
        ConfigError: The file exists, or its precision needs a directory.
    """
    precision, block_size = (sources_of(metadata)[name] for name in ("precision", "rows_per_shard"))
    path = manifest_path(file)
    if precision in ("int8", "uint8"):
        raise ConfigError(f"--precision {precision} needs a directory as --output, which also stores the ranges of the values")
    with sole_writer(file):
        _check_free(file, path)
        truncated, parts, width = 0, [], 0
        for start in range(0, len(sentences), block_size):
            texts = [sentences[row] for row in range(start, min(start + block_size, len(sentences)))]
            encoded = encode_texts(texts, encode)
            parts.append(quantize(encoded.vectors, precision))
            truncated, width = truncated + encoded.truncated, encoded.vectors.shape[1]
            progress(len(texts))
        texts = list(sentences)
        with new_file(file, np.concatenate(parts), TextRows(range(len(texts)), texts, record_of)) as shard:
            shards = [{**shard, "truncated": truncated}]
            sources = marked({**sources_of(metadata), "format": file.suffix[1:]})
            manifest = {**metadata, **sources, "rows": len(texts), "width": width, "ranges": None, "shards": shards}
            write_manifest(path, manifest)  # before the vectors: a file without a manifest could not be identified
    return manifest


def _check_free(file: Path, manifest: Path) -> None:
    """Raise ConfigError if a file of vectors exists. A manifest alone, of a process that was killed, is replaced."""
    if file.exists():
        raise ConfigError(f"--output {file} exists: give another name or move it away")
    if manifest.exists():
        try:
            read_list(manifest)
        except DataError:
            raise ConfigError(f"--output {manifest} exists: give another name or move it away") from None


def _check_directory(directory: Path) -> None:
    names = "give a directory, or a name that ends in .npy or .parquet"
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--output {directory} is a file: {names}")
    if not directory.exists() and directory.suffix.lower() in TABLES:
        raise ConfigError(f"--output {directory}: vectors are not written as {directory.suffix}; {names}")
    if directory.is_dir() and not (directory / MANIFEST).is_file():
        parts = [*directory.glob(LISTS), *directory.glob(LISTS.replace(".json", ".LOCK"))]  # the list of a part may be deleted
        suffixes = (".LOCK", PARTIAL, *((".npy", ".parquet", ".json", ".jsonl") if parts else ()))
        if others := [path.name for path in directory.iterdir() if path.name != "LOCK" and path.suffix not in suffixes]:
            raise ConfigError(f"--output {directory} contains {sorted(others)[0]} and no {MANIFEST}: give an empty directory")


def _open_manifest(directory: Path, metadata: dict[str, Any], rows: int, part: Part) -> dict[str, Any]:
    """Return the existing manifest, after checking that it describes the same vectors, or a new manifest."""
    file = directory / _list_name(directory, part)
    if file.is_file():
        manifest = read_list(file)
        check(f"--output {directory}", manifest, VECTORS, sources_of(metadata), ConfigError, ("give another directory",))
        if part.total > 1 and "part" not in manifest and not manifest["complete"]:
            raise ConfigError(f"--output {directory} was started without --part: leave --part out, or give another directory")
        if manifest["rows"] != _total_rows(manifest, rows, part):
            raise damage_error(file, f"rows={quote(manifest['rows'])}, but the corpus has {rows}")
        return manifest
    manifest = {**metadata, "rows": rows, "width": None, "ranges": None, "shards": []}
    if part.total > 1:
        manifest |= {"part": list(part), "first_shard": part.shards(-(-rows // sources_of(metadata)["rows_per_shard"])).start}
        manifest["rows"] = _total_rows(manifest, rows, part)
    write_manifest(_manifest_path(directory, manifest), manifest)
    return manifest


def _total_rows(manifest: dict[str, Any], rows: int, part: Part) -> int:
    """Return the number of rows in the finished manifest, if the corpus has `rows` rows."""
    size = sources_of(manifest)["rows_per_shard"]
    shards = part.shards(-(-rows // size)) if "part" in manifest else range(-(-rows // size))
    return min(shards.stop * size, rows) - min(shards.start * size, rows)


def _is_missing(directory: Path, manifest: dict[str, Any], number: int, rows: int) -> bool:
    """Return whether a shard has to be encoded. If the manifest lists it, warn."""
    index = number - manifest.get("first_shard", 0)
    entries = manifest["shards"][index : index + 1]
    if not entries:
        return True
    name, list_name = shard_name(number, sources_of(manifest)["format"]), _manifest_path(directory, manifest).name
    is_expected = (entries[0]["file"], entries[0]["rows"]) == (name, rows)
    problem = find_shard_damage(directory / name, entries[0], list_name) if is_expected else f"{list_name} is wrong"
    if problem:
        print_warning(f"{directory / name}: {problem}; it is encoded again")
    return bool(problem)


def _spread_texts(sentences: Lines, start: int) -> list[str]:
    """Return up to RANGE_TEXTS texts that are not empty, spread over the rows from `start` on."""
    rows = np.unique(np.linspace(start, len(sentences) - 1, RANGE_TEXTS).astype(int)) if start < len(sentences) else []
    return [text for row in rows if (text := sentences[int(row)])]


def _write_shard(
    directory: Path, manifest: dict[str, Any], number: int, text_rows: TextRows, encode: Encode, others: Callable[[], list[str]]
) -> None:
    """Encode and write a shard, and list it. `others` returns texts of other shards, which widen the ranges of int8 and uint8."""
    encoded = encode_texts(text_rows.texts, encode)
    precision = sources_of(manifest)["precision"]
    if precision in ("int8", "uint8") and manifest["ranges"] is None:  # all shards use the ranges of the first that is written
        vectors = [encoded.vectors[[row for row, text in enumerate(text_rows.texts) if text]]]
        if texts := others():
            vectors.append(encode(texts).vectors)
        manifest["ranges"] = ranges_of(np.concatenate(vectors)).tolist()
    ranges = manifest["ranges"] and np.array(manifest["ranges"], np.float32)
    file = directory / shard_name(number, sources_of(manifest)["format"])
    with new_file(file, quantize(encoded.vectors, precision, ranges), text_rows) as shard:
        shard["truncated"] = encoded.truncated
    index = number - manifest.get("first_shard", 0)
    manifest["shards"][index : index + 1] = [shard]
    manifest["width"] = encoded.vectors.shape[1]
    write_manifest(_manifest_path(directory, manifest), manifest)


class Vectors:
    """Rows on disk with the interface of a float32 array: `shape`, `len()`, and slices, which are read on demand.

    Quantised rows are restored to float32. Only the slices need memory. Row i belongs to text i of the corpus, even if some texts
    are empty. The rows `empty_rows` of empty texts are zero, and `search` and the other functions skip them.
    """

    def __init__(self, path: str | Path, verify: bool = True) -> None:
        """Open a directory that `jax-sentemb encode` wrote, or one .npy file.

        Args:
            path: The directory or the file.
            verify: Whether to compare each shard with its SHA-256, once per process. A single .npy file has a SHA-256 only if
                NAME.json is next to it.

        Raises:
            DataError: The vectors are incomplete or damaged.
        """
        path, verify = user_path(path), flag("verify", verify)
        is_single = not path.is_dir()
        if is_single and not manifest_path(path).is_file():
            self.manifest: dict[str, Any] = {"ranges": None, "width": None}
            files = [path]
        else:
            self.manifest = read_manifest(path)
            if not is_complete(self.manifest, is_single):
                raise DataError(f"{path} is not complete: run the same encode command again")
            if (file_format := sources_of(self.manifest)["format"]) != "npy":
                raise DataError(f"{path} contains {quote(file_format)} files; only .npy files can be searched")
            shards = self.manifest["shards"]
            files = [path] if is_single else [path / shard["file"] for shard in shards]
        self.is_marked = KEY in self.manifest  # otherwise neither corpus nor model is known
        self.precision = sources_of(self.manifest)["precision"] if self.is_marked else "float32"
        if not files:
            raise DataError(f"{path} has no shards: encode the corpus into a new directory")
        self._files = [(file, file.stat().st_size) for file in files if file.exists()]  # map_rows reports missing files
        self._shards = [map_rows(file, STORED_DTYPES[self.precision]) for file in files]
        for file, shard in zip(files, self.manifest.get("shards", []), strict=False) if verify else ():
            for described in described_files(file, shard):
                _verify(*described, manifest_path(path).name)
        row_counts = [shard["rows"] for shard in self.manifest.get("shards", [])]
        if row_counts and row_counts != [len(shard) for shard in self._shards]:
            raise DataError(f"{path}: the shards have other numbers of rows than {MANIFEST}; encode the text again")
        width, bits = self.manifest["width"] or self._shards[0].shape[1], self.precision in ("binary", "ubinary")
        if any(shard.shape[1] != (-(-width // 8) if bits else width) for shard in self._shards):
            raise DataError(f"{path}: the shards have another width than {MANIFEST} ({width}); encode the text again")
        self._ends = np.cumsum([len(shard) for shard in self._shards])
        self.ranges = self.manifest["ranges"] and np.array(self.manifest["ranges"], np.float32)
        self.shape = (int(self._ends[-1]), width)
        has_records = bool(row_counts) and self.manifest["shards"][0]["records"] is not None
        self._records = VectorRecords(files, self.manifest["shards"]) if has_records else None
        self.empty_rows = self._records.empty_rows() if self._records else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    @functools.cached_property
    def sources(self) -> dict[str, Any]:
        """Return what the rows were made from, the content sources in the manifest, or the .npy file itself."""
        if not self.is_marked:
            file = self._files[0][0]
            return {"vectors": Source(file.name, sha256(file))}
        return {name: value for name, value in sources_of(self.manifest).items() if name in CONTENT}

    @property
    def is_int8(self) -> bool:
        """Return whether the numbers are stored as int8 or uint8."""
        return self.precision in ("int8", "uint8")

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "n width"]:
        return self._restored(self.stored(rows), rows)

    def stored(self, rows: slice) -> Real[np.ndarray, "n columns"]:
        """Return the rows of a slice as they are in the files."""
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
        """Return the length of every row, float32. It is computed when it is first needed."""
        parts = (self[start : start + LENGTH_BLOCK] for start in range(0, len(self), LENGTH_BLOCK))
        return np.concatenate([np.linalg.norm(rows.astype(np.float64), axis=1) for rows in parts]).astype(np.float32)

    def take(self, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n width"]:
        """Return the rows with these numbers, in this order, as float32."""
        rows = row_numbers(rows, len(self))
        shard = np.searchsorted(self._ends, rows, side="right")
        stored = np.empty((len(rows), self._shards[0].shape[1]), self._shards[0].dtype)
        for number in np.unique(shard).tolist():
            _check_size(*self._files[number])
            in_shard = shard == number
            stored[in_shard] = self._shards[number][rows[in_shard] - (self._ends[number] - len(self._shards[number]))]
        return self._restored(stored, rows)

    @property
    def has_chunks(self) -> bool:
        """Return whether each chunk of a text has a row."""
        return self.is_marked and sources_of(self.manifest)["chunks"] == "each"

    def chunk_spans(self) -> Int[np.ndarray, "rows 3"]:
        """Return for each row the number of its text, counted from 0, and the start and end of its chunk in the text; int64.

        Raises:
            DataError: The rows are not chunks of texts.
        """
        if not self._records or not self.has_chunks:
            raise DataError(f"{self._files[0][0]}: its rows are not chunks of texts; encode them with --chunks each")
        return self._records.chunk_spans()

    @property
    def has_ids(self) -> bool:
        """Return whether records may have ids."""
        return self.is_marked and sources_of(self.manifest)["records"] is not None

    def record(self, row: SupportsIndex) -> Record:
        """Return the record of a row: its number, column (of several texts), id, and the span of its chunk, or None for each."""
        row = whole_number("row", row, 0, len(self) - 1)
        return self._records.record(row) if self._records else Record(row)

    def _restored(self, stored: np.ndarray, rows: slice | Int[np.ndarray, " n"]) -> np.ndarray:
        """Return stored rows as float32; `rows` are their numbers."""
        restored = restore(stored, self.precision, self.shape[1], self.ranges)
        if len(self.empty_rows) and self.precision not in ("float32", "float16"):  # a byte or a bit cannot represent 0
            restored[self._is_empty[rows]] = 0
        return restored

    @functools.cached_property
    def _is_empty(self) -> Bool[np.ndarray, " rows"]:
        return np.isin(np.arange(len(self)), self.empty_rows)


def _verify(file: Path, shard: dict[str, Any], manifest_name: str) -> None:
    """Raise DataError for a damaged file. Skip files that this process has verified before."""
    with contextlib.suppress(OSError):
        stat = file.stat()
        identity = (str(file.absolute()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, shard["sha256"])
        if identity not in _verified:
            if problem := find_damage(file, shard, manifest_name):
                advice = "run the same encode command again" if manifest_name == MANIFEST else "delete both, and encode again"
                raise DataError(f"{file}: {problem}; {advice}")
            _verified.add(identity)


def _check_size(file: Path, size: int) -> None:
    """Raise DataError if a memory-mapped shard has shrunk, because reading beyond its end kills the process by SIGBUS."""
    with contextlib.suppress(FileNotFoundError):  # a deleted file stays mapped
        if file.stat().st_size < size:
            raise DataError(f"{file} was truncated while it was read: run the same encode command again to restore it")
