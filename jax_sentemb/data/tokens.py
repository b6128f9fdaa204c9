"""A corpus as token ids, tokenised once and memory-mapped from the cache afterwards."""

import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.data.cache import cache_folder, cached, mapped, read_about
from jax_sentemb.data.corpus_files import Sentences
from jax_sentemb.data.workers import Job, Reader, blocks, id_type
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.types import Rows

FORMAT = 2  # of the rows: part of the fingerprint, so a change ends the runs that were interrupted before it
COLUMNS = {"starts": np.dtype("<i8"), "lengths": np.dtype("<i4"), "line": np.dtype("<i8")}
CHUNK = 1 << 18  # rows that are looked at in one go
PARTITION = 1 << 21  # rows, about, among which duplicates are looked for at once: some 100 MB
DIGEST = np.dtype([("digest", np.uint64), ("row", np.int64)])


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

    @property
    def id_type(self) -> np.dtype:
        """What ids are stored as."""
        return self._ids.dtype

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """The ids of the rows: one text each, the same in every epoch."""
        return [[self.ids(row) for row in rows.tolist()]]

    def word_counts(self, vocab_size: int) -> np.ndarray:
        """How often each token stands in the rows, int64 [V]."""
        counts = np.zeros(vocab_size, np.int64)
        for first in range(0, len(self), CHUNK):
            starts, lengths = self._starts[first : first + CHUNK], self.lengths[first : first + CHUNK]
            ids = self._ids[starts[0] : starts[-1] + lengths[-1]]  # those of duplicates stand between the rows
            change = np.zeros(len(ids) + 1, np.int8)
            change[starts - starts[0]] += 1
            change[starts - starts[0] + lengths] -= 1
            counts += np.bincount(ids[np.cumsum(change[:-1], dtype=np.int8) > 0], minlength=vocab_size)
        return counts

    def rows_of_one_word(self) -> np.ndarray:
        """int64: the rows whose tokens are all the same."""
        found = [np.zeros(0, np.int64)]
        for first in range(0, len(self), CHUNK):
            starts, lengths = self._starts[first : first + CHUNK], self.lengths[first : first + CHUNK]
            ids = self._ids[starts[0] : starts[-1] + lengths[-1]]
            changes = np.concatenate([[0], np.cumsum(ids[1:] != ids[:-1])])  # between neighbours, up to each token
            begin = starts - starts[0]
            found.append(first + np.flatnonzero(changes[begin + lengths - 1] == changes[begin]))
        return np.concatenate(found)

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
    workers: int = 0,
) -> Tokens:
    """The tokens of a corpus, from `cache` (default: the user's cache folder) if they are there; `ordered` keeps duplicates.

    `subset` draws a low-shot corpus by seed: a number of sentences from 1 on, a fraction below 1, None or 0 for all. Only those are
    read and tokenised. `workers`: processes that tokenise, as for `workers.blocks`; the rows are the same for any number. Memory
    does not grow with the corpus (with a subset: 8 bytes a sentence of it). ResourceError if a worker dies.
    """
    lines = range(len(sentences)) if not subset else draw(len(sentences), subset, seed)
    known = f"{FORMAT}|{sentences.fingerprint}|{tokenizer.fingerprint}|{max_seq_length}{'|ordered' * ordered}"
    fingerprint = hashlib.sha256(f"{known}|{float(subset or 0)}|{seed if subset else 0}".encode()).hexdigest()

    def write(partial: Path) -> dict[str, Any]:
        report = _write(partial, Job(sentences, tokenizer, max_seq_length), lines, ordered, workers)
        sentences.check_unchanged(content=not (subset and sentences.indexed))  # to read all of it for a few lines would take long
        return {"report": report}

    folder = cached((cache or cache_folder()) / f"{fingerprint[:24]}.tokens", write)
    rows = {name: mapped(folder / f"{name}.bin", kind) for name, kind in COLUMNS.items()}
    ids = mapped(folder / "ids.bin", id_type(tokenizer))
    return Tokens(ids, rows, read_about(folder)["report"], fingerprint, tokenizer.pad_id, max_seq_length, ordered)


def draw(count: int, subset: int | float, seed: int) -> np.ndarray:
    """The sorted numbers of a subset of `count` things: a number of them from 1 on, a fraction below 1; drawn by seed."""
    wanted = int(subset) if subset >= 1 else max(round(subset * count), 1)
    if subset < 0 or (subset > 1 and subset != wanted):
        raise ConfigError(f"data.subset={subset} must be a whole number of sentences, or a fraction between 0 and 1")
    if wanted > count:
        raise DataError(f"data.subset={subset} exceeds the {count} sentences of the corpus")
    return np.sort(np.random.Generator(np.random.Philox(seed)).choice(count, wanted, replace=False))


def _write(folder: Path, job: Job, lines: Sequence[int] | np.ndarray, ordered: bool, workers: int) -> dict[str, Any]:
    """The report, after writing ids.bin (the rows of all sentences, one after the other) and COLUMNS (of the distinct rows).

    What is known of all sentences goes through files, as the corpus may be larger than memory.
    """
    work = folder / "work"
    work.mkdir()
    names = folder / "ids.bin", work / "lengths", work / "digests"
    truncated = pieces = unknown = 0
    with names[0].open("wb") as ids, names[1].open("wb") as lengths, names[2].open("wb") as digests:
        for block in blocks(job, lines, workers):
            ids.write(block.ids)
            lengths.write(block.lengths.tobytes())
            digests.write(block.digests.tobytes())
            truncated += block.truncated
            pieces += block.pieces
            unknown += block.unknown
    kept = np.memmap(work / "kept", bool, "w+", shape=len(lines))
    if ordered:
        kept[:] = True
    else:
        _mark_first(mapped(work / "digests", np.uint64), kept, work)
    histogram, sentences = _write_columns(folder, mapped(work / "lengths", np.int32), kept, lines, job)
    shutil.rmtree(work)
    usable, counts = int(histogram.sum()), job.sentences.report
    return {
        "lines": counts["lines"],
        "blank": counts["blank"] + len(lines) - sentences,
        "sentences": sentences,
        "usable": usable,
        "duplicates": sentences - usable,
        "truncated": truncated,
        **length_report(histogram),
        "unknown_token_rate": round(unknown / max(pieces, 1), 5),
        "max_seq_length": job.max_seq_length,
    }


def _mark_first(digests: np.ndarray, kept: np.ndarray, folder: Path) -> None:
    """True in `kept` for the first of equal digests: these are dealt out to files by digest, and each file is sorted alone."""
    count = -(-len(digests) // PARTITION)
    for start in range(0, len(digests), CHUNK):
        chunk = digests[start : start + CHUNK]
        part = chunk % np.uint64(count)
        order = np.argsort(part, kind="stable")
        rows = np.empty(len(chunk), DIGEST)
        rows["digest"], rows["row"] = chunk[order], start + order
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=count))
        for number, some in enumerate(np.split(rows, ends[:-1])):
            with (folder / f"{number}.part").open("ab") as file:
                file.write(some.tobytes())
    for number in range(count):
        part = folder / f"{number}.part"
        rows = np.fromfile(part, DIGEST)
        part.unlink()
        kept[rows["row"][np.unique(rows["digest"], return_index=True)[1]]] = True


def _write_columns(
    folder: Path, lengths: np.ndarray, kept: np.ndarray, lines: Sequence[int] | np.ndarray, job: Job
) -> tuple[np.ndarray, int]:
    """How many rows have each length, int64 [max_seq_length + 1], and how many sentences have text."""
    histogram, sentences, at = np.zeros(job.max_seq_length + 1, np.int64), 0, 0
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in COLUMNS}
        for start in range(0, len(lengths), CHUNK):
            part = slice(start, start + CHUNK)
            length = lengths[part]
            text = length > job.tokenizer.added  # a row of [CLS] and [SEP] alone has none
            rows = np.flatnonzero(kept[part] & text)
            ends = at + np.cumsum(length, dtype=np.int64)
            for name, values in (("starts", ends - length), ("lengths", length), ("line", np.asarray(lines[part]))):
                files[name].write(values[rows].astype(COLUMNS[name]).tobytes())
            histogram += np.bincount(length[rows], minlength=len(histogram))
            sentences += int(text.sum())
            at = int(ends[-1])
    return histogram, sentences


def length_report(histogram: np.ndarray) -> dict[str, float | int]:
    """Mean, median and 95th percentile, the last two interpolated as NumPy's and rounded down."""
    count, below = int(histogram.sum()), np.cumsum(histogram)
    if not count:
        return {"mean_tokens": 0.0, "median_tokens": 0, "p95_tokens": 0}

    def percentile(percent: int) -> int:
        place, rest = divmod((count - 1) * percent, 100)
        low, high = np.searchsorted(below, [place, min(place + 1, count - 1)], side="right").tolist()
        return (low * (100 - rest) + high * rest) // 100

    mean = float(histogram @ np.arange(len(histogram))) / count
    return {"mean_tokens": round(mean, 1), "median_tokens": percentile(50), "p95_tokens": percentile(95)}
