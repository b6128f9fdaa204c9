"""Embeddings of any number of sentences through a small, fixed set of compiled shapes."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jax_sentemb.sharding import gathered, put_whole
from jax_sentemb.text.batches import bucket
from jax_sentemb.text.tokens import pad
from jax_sentemb.types import Array, Params, Rows

# Widths in tokens: fine where most sentences are, coarse above; one compilation each, and only for those that occur.
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
IN_FLIGHT = 4  # batches whose results are still on the device: enough to keep it busy, little memory


class Reader(Protocol):
    """Texts to ids: a Tokenizer, or JoinedPairs whose texts are pairs of sentences."""

    pad_id: int

    def encode(self, sentences: Any, max_seq_length: int, /) -> tuple[list[np.ndarray], int]: ...


class Embedder:
    """Sentences to vectors: each distinct sentence encoded once, in batches of like length, in the caller's order.

    `embed` maps (params, rows) to [R, E]; it is compiled once for every bucket that occurs. Params are an argument of
    the call, so that training can evaluate again and again without compiling anew. `sharding` spreads the rows of a
    batch over devices (first axis); without it they go to the default device. `truncated` counts the distinct sentences
    of the latest call that were longer than `max_seq_length` tokens.
    """

    def __init__(
        self,
        embed: Callable[[Params, Rows], Array],
        tokenizer: Reader,
        max_seq_length: int,
        batch_size: int = 64,
        buckets: Sequence[int] = BUCKETS,
        sharding: Sharding | None = None,
    ) -> None:
        devices = 1 if sharding is None else len(sharding.device_set)
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = -(-batch_size // devices) * devices  # every device gets equally many rows
        self.buckets = (*(width for width in sorted(buckets) if width < max_seq_length), max_seq_length)
        self.truncated = 0
        self._sharding = sharding
        self._replicated = NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else None
        self._embed = jax.jit(embed, out_shardings=self._replicated)  # every process reads all of it

    def __call__(self, params: Params, sentences: Sequence[Any]) -> np.ndarray:
        """float32 [N, E], row i for sentence i; [0, E] for no sentence."""
        # Once, not with every batch; free where it already lies there.
        params = put_whole(gathered(params), self._replicated)
        place = {sentence: index for index, sentence in enumerate(dict.fromkeys(sentences))}
        ids, self.truncated = self.tokenizer.encode(list(place), self.max_seq_length)
        vectors = np.zeros((len(place), self._width(params)), np.float32)
        running = deque()
        for chosen in self._batches(ids):
            running.append((chosen, self._embed(params, self._rows([ids[index] for index in chosen]))))
            if len(running) > IN_FLIGHT:
                _collect(vectors, *running.popleft())
        for chosen, output in running:
            _collect(vectors, chosen, output)
        return vectors[[place[sentence] for sentence in sentences]]

    def _batches(self, ids: list[np.ndarray]) -> list[np.ndarray]:
        """Indices of the sentences of each batch, longest first: what does not fit into memory fails at once."""
        order = np.argsort([-len(row) for row in ids], kind="stable")
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]

    def _rows(self, ids: list[np.ndarray]) -> Rows:
        """A full batch on the device; the last batch is filled up with copies of its first row."""
        width = bucket(max(len(row) for row in ids), self.buckets)
        rows = pad(ids + [ids[0]] * (self.batch_size - len(ids)), width, self.tokenizer.pad_id)
        return put_whole(rows, self._sharding)

    def _width(self, params: Params) -> int:
        shape = (self.batch_size, self.buckets[0])
        rows = Rows(np.zeros(shape, np.int32), np.ones(shape, np.bool_))
        return jax.eval_shape(self._embed, params, rows).shape[-1]


def _collect(vectors: np.ndarray, chosen: np.ndarray, output: Array) -> None:
    vectors[chosen] = jax.device_get(output)[: len(chosen)]
