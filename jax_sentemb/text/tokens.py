"""A corpus as token ids, tokenised once and memory-mapped from the cache afterwards."""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock

from jax_sentemb.errors import DataError
from jax_sentemb.text.files import Sentences, cache_folder
from jax_sentemb.text.tokenizer import Tokenizer

FORMAT = 1  # of the cached files
BLOCK = 20_000  # sentences tokenised at once


class Tokens:
    """Distinct token rows. `line[row]` is the number of its sentence in the corpus, `lengths[row]` its number of tokens.

    `report`: lines, blank, usable (rows), duplicates (left out, so that no batch holds a sentence twice), truncated, mean_tokens,
    p95_tokens, unknown_rate. `fingerprint` stands for corpus, tokenizer, length and subset.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray, line: np.ndarray, report: dict, fingerprint: str, pad_id: int) -> None:
        self._ids, self._ends = ids, ends
        self.lengths = np.diff(ends, prepend=0).astype(np.int32)
        self.line, self.report, self.fingerprint, self.pad_id = line, report, fingerprint, pad_id
        self.max_seq_length = report["max_seq_length"]

    def __len__(self) -> int:
        return len(self._ends)

    def ids(self, row: int) -> np.ndarray:
        """int32 ids of a row."""
        end = self._ends[row]
        return self._ids[end - self.lengths[row] : end].astype(np.int32)


def tokenize(
    sentences: Sentences,
    tokenizer: Tokenizer,
    max_seq_length: int,
    cache: Path | None = None,
    subset: int | float | None = None,
    seed: int = 0,
) -> Tokens:
    """The tokens of a corpus, from `cache` (default: the user's cache folder) if they are there.

    `subset` draws a low-shot corpus by seed: a number of sentences from 1 on, a fraction below 1; only those are tokenised.
    """
    lines = np.arange(len(sentences))
    if subset:
        count = int(subset) if subset >= 1 else max(round(subset * len(sentences)), 1)
        if count > len(sentences):
            raise DataError(f"data.subset={subset} exceeds the {len(sentences)} sentences of the corpus")
        lines = np.sort(np.random.Generator(np.random.Philox(seed)).choice(len(sentences), count, replace=False))
    known = f"{FORMAT}|{sentences.fingerprint}|{tokenizer.fingerprint}|{max_seq_length}"
    fingerprint = hashlib.sha256(f"{known}|{subset or 0}|{seed if subset else 0}".encode()).hexdigest()
    folder = (cache or cache_folder()) / f"{fingerprint[:24]}.tokens"
    with FileLock(f"{folder}.lock"):
        tokens = _load(folder, fingerprint, tokenizer.pad_id)
        if tokens is None:
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            _write(partial, sentences, lines, tokenizer, max_seq_length)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
            tokens = _load(folder, fingerprint, tokenizer.pad_id)
            assert tokens is not None
    return tokens


def _load(folder: Path, fingerprint: str, pad_id: int) -> Tokens | None:
    """The cached tokens; None if there are none, or they are damaged and have to be made again."""
    try:
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        ends, line = np.load(folder / "ends.npy", mmap_mode="r"), np.load(folder / "line.npy", mmap_mode="r")
        ids = np.load(folder / "ids.npy", mmap_mode="r")
        if len(ends) != report["usable"] or len(line) != len(ends) or len(ids) != (ends[-1] if len(ends) else 0):
            return None
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return Tokens(ids, np.asarray(ends), np.asarray(line), report, fingerprint, pad_id)


def _write(folder: Path, sentences: Sentences, lines: np.ndarray, tokenizer: Tokenizer, max_seq_length: int) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    kind = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    seen: set[int] = set()
    lengths, kept, truncated, unknown = [], [], 0, 0
    raw = folder / "ids.raw"
    total = 0
    with raw.open("wb") as file:
        for block in _blocks(lines, BLOCK):
            rows, cut = tokenizer.encode([sentences[int(line)] for line in block], max_seq_length)
            truncated += cut
            new = [(row, line) for row, line in zip(rows, block, strict=True) if _first_time(row, seen)]
            flat = np.fromiter(itertools.chain.from_iterable(row for row, _ in new), kind)
            file.write(flat.tobytes())
            total += len(flat)
            unknown += int((flat == tokenizer.unk_id).sum())
            lengths.append(np.array([len(row) for row, _ in new], np.int64))
            kept.append(np.array([line for _, line in new], np.int64))
    length = np.concatenate([np.zeros(0, np.int64), *lengths])
    report = {
        "lines": sentences.report["lines"],
        "blank": sentences.report["blank"],
        "usable": len(length),
        "duplicates": len(lines) - len(length),
        "truncated": truncated,
        "mean_tokens": round(float(length.mean()), 1) if len(length) else 0.0,
        "p95_tokens": int(np.percentile(length, 95)) if len(length) else 0,
        "unknown_rate": round(unknown / max(total, 1), 5),
        "max_seq_length": max_seq_length,
    }
    stored = np.lib.format.open_memmap(folder / "ids.npy", mode="w+", dtype=kind, shape=(total,))
    if total:
        stored[:] = np.memmap(raw, kind, "r")
    stored.flush()
    raw.unlink()
    np.save(folder / "ends.npy", np.cumsum(length))
    np.save(folder / "line.npy", np.concatenate([np.zeros(0, np.int64), *kept]))
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def _blocks(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _first_time(row: np.ndarray, seen: set[int]) -> bool:
    # 64 bits of a digest: among 10^8 rows the chance of one false duplicate is 3e-4.
    digest = int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")
    if digest in seen:
        return False
    seen.add(digest)
    return True
