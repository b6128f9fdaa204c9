"""Embed any number of sentences through a small, fixed set of compiled shapes."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jaxtyping import Float, Int

from jax_sentemb.data.batches import bucket, common_widths
from jax_sentemb.data.containers import problem_with
from jax_sentemb.data.tokens import pad
from jax_sentemb.parallel import commit, compiler_options, put_whole, replicate
from jax_sentemb.types import Array, EncodedSentences, OnCount, Params, Rows, no_progress

# Widths in tokens, fine for common lengths and coarse above. Each width that is used costs one compilation.
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
COARSE_BUCKETS = (16, 32, 64, 128, 256, 512)  # for the few sentences of the evaluations of a run
# For many sentences on a CPU, where a padding token costs as much as a word and compilation is fast: 8 % padding instead of 30 %.
FINE_BUCKETS = (*range(4, 64, 4), *range(64, 128, 8), *range(128, 513, 32))
MANY = 1 << 10  # sentences of a call from which fine buckets are worth their compilation
CPU_ROWS = 16  # rows of a CPU's batch at most: the activations of a layer stay in the cache (benchmarks/README.md)
FEW = (1, 8)  # rows of a last batch that is not full, so that one or two queries do not cost a whole batch
FEW_BATCHES = 8  # batches of a call below which FEW is used; in a larger call the last batch matters less than a compilation
COMPILATION = 1 << 11  # tokens that are computed in the time of a compilation, measured for MiniLM on a CPU
WASTE = 16  # a width is left out if that adds at most one token in this number, because later calls may be like this one
IN_FLIGHT = 4  # batches whose results are still on the device: enough to keep it busy with little memory
FIRST_WINDOW, WINDOW = 1 << 12, 1 << 16  # sentences tokenised and sorted by length together


@runtime_checkable
class TextEncoder(Protocol):
    """Converts texts to ids: a Tokenizer or WordTokenizer, or JoinedPairs, whose texts are pairs of sentences."""

    pad_id: int

    def encode(self, sentences: Any, max_seq_length: int, /) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return the ids of each text, at most `max_seq_length`, and how many texts were cut."""
        ...


class Embedder:
    """Embed sentences: encode each distinct sentence once, in batches of similar length, and return the caller's order.

    `embed` maps (params, rows) to [R, E]. It is compiled once for every shape that is used: the width is one of the buckets, the
    number of rows `batch_size` or one of FEW. Rare widths of a call are padded to a wider one. On a CPU a batch has at most
    CPU_ROWS rows, and calls with MANY sentences also use FINE_BUCKETS. Parameters are an argument of the call, so that training
    evaluates repeatedly without compiling again. `sharding` splits the rows of a batch over devices (first axis); without it they
    go to the default device.

    Threads may share an Embedder: a call changes no attribute.
    """

    def __init__(
        self,
        embed: Callable[[Params, Rows], Float[Array, "rows embedding"]],
        tokenizer: TextEncoder,
        max_seq_length: int,
        batch_size: int = 64,
        buckets: Sequence[int] | None = None,
        sharding: Sharding | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        """`parts` names the parameters that `embed` reads; () means all."""
        self.embed, self.parts = embed, parts
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.buckets = BUCKETS if buckets is None else buckets
        self._sharding = sharding
        self._cpu = jax.default_backend() == "cpu"
        self.batch_size = self._full(batch_size)
        self._replicated = NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else None
        options = compiler_options(jax.default_backend())
        # Every process reads all embeddings.
        self._embed = jax.jit(embed, out_shardings=self._replicated, compiler_options=options)

    def __call__(
        self, params: Params, sentences: Sequence[Any], batch_size: int = 0, progress: OnCount = no_progress
    ) -> Float[np.ndarray, "sentences embedding"]:
        """Return embeddings float32 [N, E] in the order of the sentences."""
        return self.encode(params, sentences, batch_size, progress).vectors

    def encode(
        self,
        params: Params,
        sentences: Sequence[Any],
        batch_size: int = 0,
        progress: OnCount = no_progress,
        max_seq_length: int = 0,
    ) -> EncodedSentences:
        """Return embeddings float32 [N, E] in the order of the sentences, and how many distinct sentences were cut.

        Args:
            params: The parameters of the model.
            sentences: Texts, or pairs of texts for a cross-encoder.
            batch_size: Sentences of a batch; 0 is that of the embedder.
            progress: Called with the size of each finished batch.
            max_seq_length: The number of tokens that a sentence is cut to; 0 is that of the embedder.

        Raises:
            TypeError: An element is not a sentence.
        """
        if problem := problem_with(sentences):
            raise TypeError(problem)
        params = self.put(params)  # once for all batches
        numbers = {sentence: index for index, sentence in enumerate(dict.fromkeys(sentences))}
        vectors = np.zeros((0, 0), np.float32)  # allocated when the width of the first batch is known
        full = self._full(batch_size or self.batch_size)
        longest = max_seq_length or self.max_seq_length
        is_small, is_large = len(numbers) < FEW_BATCHES * full, self._cpu and len(numbers) >= MANY
        buckets = (*self.buckets, *(FINE_BUCKETS if is_large else ()))
        row_counts = [*(few for few in map(self._full, FEW) if is_small and few < full), full]
        running: deque[tuple[np.ndarray, Array]] = deque()
        truncated = 0

        def collect() -> None:
            chosen, output = running.popleft()
            vectors[chosen] = jax.device_get(output)[: len(chosen)]
            progress(len(chosen))

        for first, ids, cut in self._tokenized(list(numbers), longest):
            truncated += cut
            batches = batches_by_length(ids, full)
            widths = used_widths([len(ids[chosen[0]]) for chosen in batches], full, buckets, longest)
            for chosen in batches:
                rows = self._rows([ids[index] for index in chosen], row_counts, widths)
                output = self._embed(params, rows)
                if not vectors.size:
                    vectors = np.zeros((len(numbers), output.shape[-1]), np.float32)
                running.append((first + chosen, output))
                if len(running) > IN_FLIGHT:
                    collect()
        while running:
            collect()
        if not numbers:
            return EncodedSentences(np.zeros((0, self.width(params)), np.float32), 0)
        return EncodedSentences(vectors[[numbers[sentence] for sentence in sentences]], truncated)

    def put(self, params: Params) -> Params:
        """Return the used parameters on the devices. This costs little if they are already there."""
        used = {name: params[name] for name in self.parts or params}
        return commit(used) if self._replicated is None else put_whole(replicate(used), self._replicated)

    def sharded(self, sharding: Sharding | None, batch_size: int = 64, buckets: Sequence[int] | None = None) -> "Embedder":
        """Return an Embedder with the same function, with its rows split over these devices."""
        return Embedder(self.embed, self.tokenizer, self.max_seq_length, batch_size, buckets, sharding, self.parts)

    def width(self, params: Params) -> int:
        """Return E, the width of an embedding, without running the model."""
        shape = (self.batch_size, min((*self.buckets, self.max_seq_length)))
        rows = Rows(np.zeros(shape, np.int32), np.ones(shape, np.bool_))
        return jax.eval_shape(self._embed, params, rows).shape[-1]

    def _tokenized(self, sentences: list[Any], max_seq_length: int) -> Iterator[tuple[int, list[np.ndarray], int]]:
        """Yield for each window the number of its first sentence, the ids, and how many sentences were cut.

        A thread tokenises the next window while the device works on this one; the first is small so that the device starts early.
        A single window needs no thread.
        """
        ends = [min(FIRST_WINDOW, len(sentences)), *range(FIRST_WINDOW + WINDOW, len(sentences), WINDOW), len(sentences)]

        def tokenize(window: tuple[int, int]) -> tuple[int, list[np.ndarray], int]:
            return window[0], *self.tokenizer.encode(sentences[window[0] : window[1]], max_seq_length)

        windows = list(pairwise([0, *dict.fromkeys(ends)]))
        if len(windows) == 1:
            yield tokenize(windows[0])
            return
        with ThreadPoolExecutor(1) as thread:
            yield from thread.map(tokenize, windows)

    def _rows(self, ids: list[np.ndarray], row_counts: Sequence[int], widths: Sequence[int]) -> Rows:
        """Return a batch on the device; a batch that is not full is filled up with copies of its first row."""
        width, count = bucket(max(len(row) for row in ids), widths), bucket(len(ids), row_counts)
        return put_whole(pad(ids + [ids[0]] * (count - len(ids)), width, self.tokenizer.pad_id), self._sharding)

    def _full(self, rows: int) -> int:
        """Return `rows` rounded up to a multiple of the devices; on a CPU at most CPU_ROWS for each."""
        devices = 1 if self._sharding is None else len(self._sharding.device_set)
        share = -(-rows // devices)
        return devices * (min(share, CPU_ROWS) if self._cpu else share)


def used_widths(longest: Sequence[int], rows: int, buckets: Sequence[int], max_seq_length: int) -> tuple[int, ...]:
    """Return the widths, in ascending order, for batches of `rows` rows whose longest rows have these lengths."""
    batches = Counter(min(bucket(length, (*buckets, max_seq_length)), max_seq_length) for length in longest)
    rows_of_width = {width: count * rows for width, count in batches.items()}
    tokens = sum(width * count for width, count in rows_of_width.items())
    return common_widths(rows_of_width, min(COMPILATION, tokens // WASTE)) if tokens else ()


def batches_by_length(ids: list[Int[np.ndarray, " _"]], size: int) -> list[Int[np.ndarray, " _"]]:
    """Return the indices of the sentences of each batch, longest first, so that a batch that exceeds the memory fails at once."""
    order = np.argsort([-len(row) for row in ids], kind="stable")
    return [order[start : start + size] for start in range(0, len(order), size)]
