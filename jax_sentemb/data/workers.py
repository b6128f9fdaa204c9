"""Tokenise sentences block by block, in this process or in several. The result does not depend on the number of processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt64

from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.shuffle import hash64
from jax_sentemb.errors import ResourceError, Setting
from jax_sentemb.system.host import usable_cpus

SENTENCES = 10_000  # sentences that are tokenised at once
CHARACTERS = 1 << 24  # characters of these sentences that are in memory
PARALLEL = 200_000  # workers are used from this number of sentences on, since each takes half a second to start


@runtime_checkable
class Reader(Protocol):
    """The interface of a tokenizer that tokenises a corpus. Tokenizer and WordTokenizer implement it."""

    added: int  # special tokens of a row
    vocab_size: int
    fingerprint: str
    pad_id: int
    unk_id: int

    def encode(self, sentences: Sequence[str], max_seq_length: int, /) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return the int32 ids of each sentence, at most `max_seq_length`, and the number of sentences that were cut."""
        ...


class Block(NamedTuple):
    """Consecutive sentences as tokens."""

    ids: bytes  # of all rows, concatenated, in `id_type`
    lengths: Int[np.ndarray, " rows"]  # int32
    digests: UInt64[np.ndarray, " rows"]  # equal for equal rows
    truncated: int
    pieces: int
    unknown: int


class TokenizeJob(NamedTuple):
    """Sentences, tokenizer and maximal length, from which a worker tokenises lines."""

    sentences: Sentences
    tokenizer: Reader
    max_seq_length: int

    def block(self, lines: Sequence[int] | Int[np.ndarray, " lines"]) -> Block:
        """Return the tokens of some lines."""
        rows, cut = [], 0
        for texts in texts_in_parts(self.sentences, lines):
            encoded, cut_texts = self.tokenizer.encode(texts, self.max_seq_length)
            rows, cut = rows + encoded, cut + cut_texts
        flat, lengths = np.concatenate(rows), np.array([len(row) for row in rows], np.int32)
        unknown = int((flat == self.tokenizer.unk_id).sum())
        pieces = len(flat) - self.tokenizer.added * len(rows)
        return Block(flat.astype(id_type(self.tokenizer)).tobytes(), lengths, digests(flat, lengths), cut, pieces, unknown)

    def digest_without_text(self) -> np.uint64:
        """Return the hash of a row that has only what the tokenizer adds: [CLS], [SEP] and the pieces of a prompt."""
        rows, _ = self.tokenizer.encode([""], self.max_seq_length)
        return digests(rows[0], np.array([len(rows[0])]))[0]


def texts_in_parts(sentences: Sentences, lines: Sequence[int] | Int[np.ndarray, " lines"]) -> Iterator[list[str]]:
    """Yield the sentences of these lines in parts of about CHARACTERS, so that not many long lines are in memory together."""
    texts: list[str] = []
    size = 0
    for line in lines:
        texts.append(sentences[line])
        size += len(texts[-1])
        if size >= CHARACTERS:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def id_type(tokenizer: Reader) -> np.dtype:
    """Return the dtype in which ids are stored."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


def blocks(job: TokenizeJob, lines: Sequence[int] | Int[np.ndarray, " lines"], workers: int) -> Iterator[Block]:
    """Return the tokens of the lines in order, SENTENCES at once.

    Args:
        job: Sentences, tokenizer and maximal length.
        lines: The numbers of the sentences.
        workers: The number of additional processes that tokenise: 0 for none, -1 for one on each core if there are several. Corpora
            below PARALLEL sentences are tokenised in this process.

    Raises:
        ResourceError: A worker ended.
    """
    parts = (lines[start : start + SENTENCES] for start in range(0, len(lines), SENTENCES))
    if workers < 0:
        workers = usable_cpus()
        workers = workers if workers > 1 else 0
    if workers and job.sentences.is_indexed and len(lines) >= PARALLEL:
        return _in_workers(job, parts, workers)
    return map(job.block, map(_numbers, parts))


def _numbers(lines: Sequence[int] | np.ndarray) -> Sequence[int]:
    return lines.tolist() if isinstance(lines, np.ndarray) else lines


def _in_workers(job: TokenizeJob, parts: Iterator[Sequence[int] | np.ndarray], workers: int) -> Iterator[Block]:
    pending: deque[Future[Block]] = deque()
    spawn = multiprocessing.get_context("spawn")  # JAX has threads, so a forked copy of this process could hang
    with ProcessPoolExecutor(workers, spawn, _start, (job,)) as pool:
        try:
            for part in parts:
                pending.append(pool.submit(_work, part))
                if len(pending) > 2 * workers:  # limits the results in memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise ResourceError(
                "a worker process that tokenises the corpus ended (killed, or out of memory): run the same command again, or set ",
                Setting("data.num_workers", 0),
                " to tokenise without workers",
            ) from None
        finally:
            for future in pending:
                future.cancel()


_job: TokenizeJob | None = None  # set in a worker process


def _start(job: TokenizeJob) -> None:
    """Initialise a worker process."""
    global _job
    _job = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each core has a worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent ends; otherwise the worker of a killed parent would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(lines: Sequence[int] | np.ndarray) -> Block:
    assert _job is not None
    if not _job.sentences.is_open:
        _job.sentences.open()
    return _job.block(_numbers(lines))


def digests(flat: Int[np.ndarray, " tokens"], lengths: Int[np.ndarray, " rows"]) -> UInt64[np.ndarray, " rows"]:
    """Return a hash of each row of the concatenated rows `flat`: the sum of a pseudo-random number for each (position, id).

    An empty row, such as a zero-width space without words, has the hash 0.

    Equal rows have equal hashes. Among 10^8 different rows, two have the same hash with probability 3e-4. Then one sentence of the
    corpus is left out.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    position = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
    mixed = hash64(flat.astype(np.uint64) << np.uint64(32) | position.astype(np.uint64))
    result, filled = np.zeros(len(lengths), np.uint64), lengths > 0
    if filled.any():  # reduceat gives an empty row the first number of the next
        result[filled] = np.add.reduceat(mixed, (ends - lengths)[filled])
    return result
