"""A corpus as token ids, tokenised once and memory-mapped from the cache afterwards."""

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.text.files import Sentences, cache_folder, cached
from jax_sentemb.types import Rows

FORMAT = 2  # of the cached files
SENTENCES = 10_000  # tokenised at once


class Reader(Protocol):
    """What is asked of a tokenizer here: a Tokenizer or a WordTokenizer."""

    vocab_size: int
    fingerprint: str
    pad_id: int
    unk_id: int

    def encode(self, sentences: Sequence[str], max_seq_length: int, /) -> tuple[list[np.ndarray], int]: ...


class Tokens:
    """Token rows, none empty and, unless the corpus is `ordered`, all distinct.

    `line[row]`: number of its sentence in the corpus, `lengths[row]`: its number of tokens.

    `report`: lines, blank (lines without text), sentences (tokenised), usable (rows), duplicates (left out, so that no batch holds
    a sentence twice), truncated, mean_tokens, median_tokens, p95_tokens (of the rows), unknown_token_rate (of all pieces),
    max_seq_length. `fingerprint` stands for corpus, tokenizer, length and subset.
    """

    def __init__(
        self,
        ids: np.ndarray,
        rows: dict[str, np.ndarray],
        report: dict[str, Any],
        fingerprint: str,
        pad_id: int,
        max_seq_length: int,
        ordered: bool = False,
    ) -> None:
        self.ordered = ordered
        self.line, self.lengths, self.report = rows["line"], rows["lengths"], report
        self.fingerprint, self.pad_id, self.max_seq_length = fingerprint, pad_id, max_seq_length
        self._ids, self._starts = ids, rows["starts"]

    def __len__(self) -> int:
        return len(self.line)

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """The ids of the rows: one text each, the same in every epoch."""
        return [[self.ids(row) for row in rows.tolist()]]

    def word_counts(self, vocab_size: int) -> np.ndarray:
        """How often each token stands in the rows, int64 [V]."""
        counts = np.zeros(vocab_size, np.int64)
        for first in range(0, len(self), SENTENCES):
            ids = [self.ids(row) for row in range(first, min(first + SENTENCES, len(self)))]
            counts += np.bincount(np.concatenate(ids), minlength=vocab_size)
        return counts

    def labels(self, rows: np.ndarray, epoch: int) -> None:
        """There are none."""
        return None

    def ids(self, row: int) -> np.ndarray:
        """int32 ids of a row."""
        start = self._starts[row]
        return self._ids[start : start + self.lengths[row]].astype(np.int32)


def pad(ids: Sequence[np.ndarray], width: int, pad_id: int) -> Rows:
    """Right-padded rows [R, width] of id arrays that are no longer than `width`."""
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(width) < lengths[:, None]
    tokens = np.full((len(ids), width), pad_id, np.int32)
    tokens[mask] = np.concatenate(ids)
    return Rows(tokens, mask)


def tokenize(
    sentences: Sentences,
    tokenizer: Reader,
    max_seq_length: int,
    cache: Path | None = None,
    subset: int | float | None = None,
    seed: int = 0,
    ordered: bool = False,
) -> Tokens:
    """The tokens of a corpus, from `cache` (default: the user's cache folder) if they are there; `ordered` keeps duplicates.

    `subset` draws a low-shot corpus by seed: a number of sentences from 1 on, a fraction below 1, None or 0 for all. Only those are
    read and tokenised.
    """
    lines = np.arange(len(sentences)) if not subset else draw(len(sentences), subset, seed)
    known = f"{FORMAT}|{sentences.fingerprint}|{tokenizer.fingerprint}|{max_seq_length}{'|ordered' * ordered}"
    fingerprint = hashlib.sha256(f"{known}|{float(subset or 0)}|{seed if subset else 0}".encode()).hexdigest()
    folder = cached(
        (cache or cache_folder()) / f"{fingerprint[:24]}.tokens",
        lambda partial: _write(partial, sentences, lines, tokenizer, max_seq_length, ordered),
        _undamaged,
    )
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    # Plain arrays on the mapped files: NumPy's memmap class costs a microsecond with every row.
    rows = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ("starts", "lengths", "line")}
    ids = np.asarray(np.memmap(folder / "ids.bin", about["type"], "r")) if about["checksums"]["ids.bin"] else np.zeros(0, np.int32)
    return Tokens(ids, rows, about["report"], fingerprint, tokenizer.pad_id, max_seq_length, ordered)


def draw(count: int, subset: int | float, seed: int) -> np.ndarray:
    """The sorted numbers of a subset of `count` things: a number of them from 1 on, a fraction below 1; drawn by seed."""
    wanted = int(subset) if subset >= 1 else max(round(subset * count), 1)
    if subset < 0 or (subset > 1 and subset != wanted):
        raise ConfigError(f"data.subset={subset} must be a whole number of sentences, or a fraction between 0 and 1")
    if wanted > count:
        raise DataError(f"data.subset={subset} exceeds the {count} sentences of the corpus")
    return np.sort(np.random.Generator(np.random.Philox(seed)).choice(count, wanted, replace=False))


def _write(folder: Path, sentences: Sentences, lines: np.ndarray, tokenizer: Reader, max_seq_length: int, ordered: bool) -> None:
    """ids.bin (the rows of all sentences, one after the other), starts, lengths and line (of the distinct ones), about.json."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    folder.mkdir()
    kind = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    lengths, digests = np.zeros(len(lines), np.int32), np.zeros(len(lines), np.uint64)
    truncated = pieces = unknown = 0
    added = getattr(tokenizer, "added", 2)
    with (folder / "ids.bin").open("wb") as file:
        for start in range(0, len(lines), SENTENCES):
            part = slice(start, start + SENTENCES)
            rows, cut = tokenizer.encode([sentences[line] for line in lines[part].tolist()], max_seq_length)
            flat = np.concatenate(rows)
            lengths[part] = [len(row) for row in rows]
            digests[part] = _digests(flat, lengths[part])
            file.write(flat.astype(kind).tobytes())
            truncated += cut
            pieces += len(flat) - added * len(rows)
            unknown += int((flat == tokenizer.unk_id).sum())
    first = np.sort(np.unique(digests, return_index=True)[1])
    if ordered:
        first = np.arange(len(lines))
    kept = first[lengths[first] > added]  # a row of [CLS] and [SEP] alone has no text
    empty = int((lengths <= added).sum())
    np.save(folder / "starts.npy", (np.cumsum(lengths, dtype=np.int64) - lengths)[kept])
    np.save(folder / "lengths.npy", lengths[kept])
    np.save(folder / "line.npy", lines[kept])
    report = {
        "lines": sentences.report["lines"],
        "blank": sentences.report["blank"] + empty,
        "sentences": len(lines) - empty,
        "usable": len(kept),
        "duplicates": len(lines) - empty - len(kept),
        "truncated": truncated,
        **_length_report(lengths[kept]),
        "unknown_token_rate": round(unknown / max(pieces, 1), 5),
        "max_seq_length": max_seq_length,
    }
    checksums = {file.name: _checksum(file) for file in sorted(folder.iterdir())}
    about = {"report": report, "type": kind.str, "checksums": checksums}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _length_report(lengths: np.ndarray) -> dict[str, float | int]:
    if not len(lengths):
        return {"mean_tokens": 0.0, "median_tokens": 0, "p95_tokens": 0}
    median, p95 = np.percentile(lengths, [50, 95]).astype(int).tolist()
    return {"mean_tokens": round(float(lengths.mean()), 1), "median_tokens": median, "p95_tokens": p95}


def _digests(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """uint64 of each row of `flat`: the sum of a random-looking number for each (place, id), so equal for equal rows.

    Two of 10^8 different rows share one with a chance of 3e-4, and then one sentence of the corpus is left out.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    place = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
    mixed = flat.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.add.reduceat(mixed ^ (mixed >> np.uint64(31)), ends - lengths)


def _undamaged(folder: Path) -> bool:
    try:
        checksums = json.loads((folder / "about.json").read_text(encoding="utf-8"))["checksums"]
        return all(_checksum(folder / name) == checksum for name, checksum in checksums.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum
