"""Sentences as token ids, block by block, in this process or in several: the same bytes however many there are."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple, Protocol

import numpy as np

from jax_sentemb.data.corpus_files import Sentences
from jax_sentemb.data.shuffle import hash64
from jax_sentemb.errors import ResourceError

SENTENCES = 10_000  # tokenised at once
PARALLEL = 200_000  # sentences from which on workers pay: each takes half a second to start


class Reader(Protocol):
    """What is asked of a tokenizer here: a Tokenizer or a WordTokenizer."""

    added: int  # special tokens of a row
    vocab_size: int
    fingerprint: str
    pad_id: int
    unk_id: int

    def encode(self, sentences: Sequence[str], max_seq_length: int, /) -> tuple[list[np.ndarray], int]: ...


class Block(NamedTuple):
    """Consecutive sentences as tokens."""

    ids: bytes  # of all rows, one after the other, in `id_type`
    lengths: np.ndarray  # int32 [N]
    digests: np.ndarray  # uint64 [N]: equal for equal rows
    truncated: int
    pieces: int
    unknown: int


class Job(NamedTuple):
    """What a worker has to know."""

    sentences: Sentences
    tokenizer: Reader
    max_seq_length: int

    def block(self, lines: Sequence[int] | np.ndarray) -> Block:
        """The tokens of some lines."""
        rows, cut = self.tokenizer.encode([self.sentences[line] for line in lines], self.max_seq_length)
        flat, lengths = np.concatenate(rows), np.array([len(row) for row in rows], np.int32)
        unknown = int((flat == self.tokenizer.unk_id).sum())
        pieces = len(flat) - self.tokenizer.added * len(rows)
        return Block(flat.astype(id_type(self.tokenizer)).tobytes(), lengths, digests(flat, lengths), cut, pieces, unknown)


def id_type(tokenizer: Reader) -> np.dtype:
    """What ids are stored as."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


def blocks(job: Job, lines: Sequence[int] | np.ndarray, workers: int) -> Iterator[Block]:
    """The tokens of the lines, SENTENCES at once, in their order.

    `workers`: processes that tokenise beside this one; 0 for none, -1 for one a core where there are several. Small corpora are
    not worth them.
    """
    parts = (lines[start : start + SENTENCES] for start in range(0, len(lines), SENTENCES))
    if workers < 0:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = workers if workers > 1 else 0
    if workers and job.sentences.indexed and len(lines) >= PARALLEL:
        return _in_workers(job, parts, workers)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    return map(job.block, map(_numbers, parts))


def _numbers(lines: Sequence[int] | np.ndarray) -> Sequence[int]:
    return lines.tolist() if isinstance(lines, np.ndarray) else lines


def _in_workers(job: Job, parts: Iterator[Sequence[int] | np.ndarray], workers: int) -> Iterator[Block]:
    waiting: deque[Future[Block]] = deque()
    spawn = multiprocessing.get_context("spawn")  # JAX has threads: a forked copy of this process could hang
    with ProcessPoolExecutor(workers, spawn, _start, (job,)) as pool:
        try:
            for part in parts:
                waiting.append(pool.submit(_work, part))
                if len(waiting) > 2 * workers:  # so many results are held at most
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise ResourceError(
                "a worker process that tokenises the corpus ended (killed, or out of memory): the same command tries again, "
                "data.num_workers=0 does without workers"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


_job: Job | None = None  # of a worker


def _start(job: Job) -> None:
    """The first thing in a worker."""
    global _job
    _job = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are as many workers as cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker of a parent that was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(lines: Sequence[int] | np.ndarray) -> Block:
    assert _job is not None
    if not _job.sentences.opened:
        _job.sentences.open()
    return _job.block(_numbers(lines))


def digests(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """uint64 of each row of `flat`: the sum of a random-looking number for each (place, id), so equal for equal rows.

    Two of 10^8 different rows share one with a chance of 3e-4, and then one sentence of the corpus is left out.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    place = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
    mixed = hash64(flat.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64))
    return np.add.reduceat(mixed, ends - lengths)
