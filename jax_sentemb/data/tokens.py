"""Tokenise corpora: the token ids of all sentences are written to the cache once and then memory-mapped."""

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from jaxtyping import Int, Integer

from jax_sentemb.data.cache import cache_folder, cached, map_array, read_about
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.workers import Reader, TokenizeJob, blocks, id_type
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.provenance import TOKENS, Source, fingerprint
from jax_sentemb.types import Rows

COLUMNS = {"starts": np.dtype("<i8"), "lengths": np.dtype("<i4"), "line": np.dtype("<i8")}
CHUNK = 1 << 18  # rows that are processed at once
PARTITION = 1 << 21  # average number of rows that are searched for duplicates at once; they take about 100 MB
DIGEST = np.dtype([("digest", np.uint64), ("row", np.int64)])


class Subsample(NamedTuple):
    """A random subset of a corpus, for low-shot training."""

    size: float = 0  # a number of sentences (1 or more), a fraction (below 1), or 0 for the whole corpus
    seed: int = 0


ALL = Subsample()


class Tokens:
    """Token rows. No row is empty and, unless the corpus is `ordered`, no two rows are equal.

    Attributes:
        line: The number of the sentence of each row in the corpus.
        lengths: The number of tokens of each row.
        report: Counts: lines, blank (lines without text), sentences (tokenised), usable (rows), duplicates (removed, so that no
            batch has a sentence twice), truncated, mean_tokens, median_tokens, p95_tokens (of the rows), unknown_token_rate (of all
            pieces), and max_seq_length.
        fingerprint: Identifies corpus, tokenizer, length and subset.
    """

    def __init__(
        self,
        columns: dict[str, Integer[np.ndarray, " _"]],
        report: dict[str, Any],
        fingerprint: str,
        pad_id: int,
        max_seq_length: int,
        ordered: bool = False,
    ) -> None:
        """Define the rows by `columns`: "ids" of all rows, concatenated, and for each row "starts" (in ids), "lengths", "line"."""
        self.ordered = ordered
        self.line, self.lengths, self.report = columns["line"], columns["lengths"], report
        self.fingerprint, self.pad_id, self.max_seq_length = fingerprint, pad_id, max_seq_length
        self._ids, self._starts = columns["ids"], columns["starts"]

    def __len__(self) -> int:
        return len(self.line)

    @property
    def id_type(self) -> np.dtype:
        """Return the dtype in which ids are stored."""
        return self._ids.dtype

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the ids of the rows: one text each, the same in every epoch."""
        return [[self.ids(row) for row in rows.tolist()]]

    def word_counts(self, vocab_size: int) -> Int[np.ndarray, " vocab"]:
        """Return the number of occurrences of each token in the rows, int64 [V]."""
        counts = np.zeros(vocab_size, np.int64)
        for first in range(0, len(self), CHUNK):
            starts, lengths = self._starts[first : first + CHUNK], self.lengths[first : first + CHUNK]
            ids = self._ids[starts[0] : starts[-1] + lengths[-1]]  # ids of removed duplicates lie between the rows
            change = np.zeros(len(ids) + 1, np.int8)
            change[starts - starts[0]] += 1
            change[starts - starts[0] + lengths] -= 1
            counts += np.bincount(ids[np.cumsum(change[:-1], dtype=np.int8) > 0], minlength=vocab_size)
        return counts

    def rows_of_one_word(self) -> Int[np.ndarray, " rows"]:
        """Return the rows whose tokens are all equal, int64."""
        rows = [np.zeros(0, np.int64)]
        for first in range(0, len(self), CHUNK):
            starts, lengths = self._starts[first : first + CHUNK], self.lengths[first : first + CHUNK]
            ids = self._ids[starts[0] : starts[-1] + lengths[-1]]
            changes = np.concatenate([[0], np.cumsum(ids[1:] != ids[:-1])])  # up to each token, how often neighbours differ
            first_piece = starts - starts[0]
            rows.append(first + np.flatnonzero(changes[first_piece + lengths - 1] == changes[first_piece]))
        return np.concatenate(rows)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> None:
        """Return None: a corpus has no labels."""
        return None

    def ids(self, row: SupportsIndex) -> Int[np.ndarray, " tokens"]:
        """Return the int32 ids of a row."""
        start = self._starts[row]
        return self._ids[start : start + self.lengths[row]].astype(np.int32)


def pad(ids: Sequence[Int[np.ndarray, " _"]], width: int, pad_id: int) -> Rows:
    """Return right-padded rows [R, width] from arrays of at most `width` ids."""
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
    subset: Subsample = ALL,
    ordered: bool = False,
    workers: int = 0,
) -> Tokens:
    """Tokenise a corpus, or read its tokens from the cache.

    Memory does not grow with the corpus, except by 8 bytes for each sentence of a subset.

    Args:
        sentences: The corpus.
        tokenizer: The tokenizer.
        max_seq_length: The number of tokens after which a sentence is cut.
        cache: The folder of the cache, by default that of the user.
        subset: The sentences to read and tokenise.
        ordered: Whether to keep duplicates.
        workers: The number of processes that tokenise, as in `workers.blocks`. It does not change the rows.

    Raises:
        ConfigError: The size of the subset is invalid.
        DataError: The subset is larger than the corpus.
        ResourceError: A worker ended.
    """
    lines = draw(len(sentences), subset) if subset.size else range(len(sentences))
    sources = {
        "corpus": Source("corpus", sentences.fingerprint),
        "tokenizer": Source("tokenizer", tokenizer.fingerprint),
        "max_seq_length": max_seq_length,
        "ordered": ordered,
        "subset": [float(subset.size), subset.seed if subset.size else 0],
    }

    def write(partial: Path) -> dict[str, Any]:
        report = _write(partial, TokenizeJob(sentences, tokenizer, max_seq_length), lines, ordered, workers)
        # For a small subset, reading the whole corpus again to compare it would take too long.
        sentences.check_unchanged(content=not (subset.size and sentences.is_indexed))
        return {"report": report}

    folder = cached(cache or cache_folder(), TOKENS, sources, write)
    columns = {name: map_array(folder / f"{name}.bin", dtype) for name, dtype in {"ids": id_type(tokenizer), **COLUMNS}.items()}
    identity = fingerprint(TOKENS, sources)
    return Tokens(columns, read_about(folder)["report"], identity, tokenizer.pad_id, max_seq_length, ordered)


def draw(count: int, subset: Subsample) -> Int[np.ndarray, " drawn"]:
    """Draw the numbers of the sentences of a subset out of 0 .. count - 1; int64, sorted. Errors are those of `subset_size`."""
    number = subset_size(count, subset)
    return np.sort(np.random.Generator(np.random.Philox(subset.seed)).choice(count, number, replace=False))


def subset_size(count: int, subset: Subsample) -> int:
    """Return how many of `count` sentences a subset has.

    Raises:
        ConfigError: The size of the subset is invalid.
        DataError: The subset is larger than the corpus.
    """
    size = subset.size
    number = int(size) if size >= 1 else max(round(size * count), 1)
    if size < 0 or (size > 1 and size != number):
        raise ConfigError(Setting("data.subset", size), " must be a whole number of sentences, or a fraction between 0 and 1")
    if number > count:
        raise DataError(Setting("data.subset", size), f" exceeds the {count} sentences of the corpus; lower it")
    return number


def _write(folder: Path, job: TokenizeJob, lines: Sequence[int] | np.ndarray, ordered: bool, workers: int) -> dict[str, Any]:
    """Write ids.bin (the rows of all sentences, concatenated) and COLUMNS (of the distinct rows), and return the report.

    Values for all sentences are in files, because the corpus may be larger than memory.
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
    is_first = np.memmap(work / "first", bool, "w+", shape=len(lines))
    if ordered:
        is_first[:] = True
    else:
        _mark_first(map_array(work / "digests", np.uint64), is_first, work)
    measured = map_array(work / "lengths", np.int32), map_array(work / "digests", np.uint64)
    histogram, sentences = _write_columns(folder, *measured, is_first, lines, job)
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


def _mark_first(digests: np.ndarray, is_first: np.ndarray, folder: Path) -> None:
    """Set `is_first` to True at the first of equal digests. Digests are distributed to files by value, and each file is sorted."""
    count = -(-len(digests) // PARTITION)
    for start in range(0, len(digests), CHUNK):
        chunk = digests[start : start + CHUNK]
        part = chunk % np.uint64(count)
        order = np.argsort(part, kind="stable")
        rows = np.empty(len(chunk), DIGEST)
        rows["digest"], rows["row"] = chunk[order], start + order
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=count))
        for number, group in enumerate(np.split(rows, ends[:-1])):
            with (folder / f"{number}.part").open("ab") as file:
                file.write(group.tobytes())
    for number in range(count):
        part = folder / f"{number}.part"
        rows = np.fromfile(part, DIGEST)
        part.unlink()
        is_first[rows["row"][np.unique(rows["digest"], return_index=True)[1]]] = True


def _write_columns(
    folder: Path,
    lengths: np.ndarray,
    digests: np.ndarray,
    is_first: np.ndarray,
    lines: Sequence[int] | np.ndarray,
    job: TokenizeJob,
) -> tuple[np.ndarray, int]:
    """Write COLUMNS; return the number of rows of each length, int64 [max_seq_length + 1], and of sentences with text."""
    histogram, sentences, offset = np.zeros(job.max_seq_length + 1, np.int64), 0, 0
    without_text = job.digest_without_text()
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in COLUMNS}
        for start in range(0, len(lengths), CHUNK):
            part = slice(start, start + CHUNK)
            length = lengths[part]
            has_text = digests[part] != without_text
            rows = np.flatnonzero(is_first[part] & has_text)
            ends = offset + np.cumsum(length, dtype=np.int64)
            for name, values in (("starts", ends - length), ("lengths", length), ("line", np.asarray(lines[part]))):
                files[name].write(values[rows].astype(COLUMNS[name]).tobytes())
            histogram += np.bincount(length[rows], minlength=len(histogram))
            sentences += int(has_text.sum())
            offset = int(ends[-1])
    return histogram, sentences


def length_report(histogram: Int[np.ndarray, " lengths"]) -> dict[str, float | int]:
    """Return mean, median and 95th percentile of lengths. The last two are interpolated as in NumPy and rounded down.

    Args:
        histogram: The number of rows of each length from 0 on.
    """
    count, cumulative = int(histogram.sum()), np.cumsum(histogram)
    if not count:
        return {"mean_tokens": 0.0, "median_tokens": 0, "p95_tokens": 0}

    def percentile(percent: int) -> int:
        index, rest = divmod((count - 1) * percent, 100)
        low, high = np.searchsorted(cumulative, [index, min(index + 1, count - 1)], side="right").tolist()
        return (low * (100 - rest) + high * rest) // 100

    mean = float(histogram @ np.arange(len(histogram))) / count
    return {"mean_tokens": round(mean, 1), "median_tokens": percentile(50), "p95_tokens": percentile(95)}
