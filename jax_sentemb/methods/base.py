"""The contract between a method and the one train step. There is no list of methods: a config imports the one it uses.

A method is a dataclass of hyper-parameters with pure functions. loss = objective(encode(...)); the split lets the train step
encode a large batch in chunks (gradient caching) for every method. What is random in `encode` comes from one seed a sentence, so
a sentence gets the same dropout in any chunk, on any device, at any padding.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Learned(NamedTuple):
    """The fields of a fresh TrainState that a method owns."""

    params: Params
    ema_params: Params | None = None
    queue: Array | None = None
    queue_rows: Array | None = None


@runtime_checkable
class Method(Protocol):
    """What train, evaluation and export know of a method.

    Attributes: `pooling`; `convolution` (a Convolution between encoder and pooling), `is_cross_encoder` (True: `embed` takes rows
    of
    joined pairs and gives their score), `reads_packed` (True: `data.pack` is allowed) and `shares` (parts of the parameters with an
    optimiser of their own, and in which share of the steps each of them is trained) where a method has them.
    `encoders(params)`, where there is one, gives by name the parameters with each encoder that may be exported, the default
    first: the one with the best score is kept.
    """

    pooling: str

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or does not fit the encoder or the sentences of a batch."""

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """What the method reads from the run's files: sentences, sentences with a masked copy, labelled pairs."""
        ...

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """The state of the method around `loaded["encoder"]`, which is loaded or freshly initialised.

        `loaded` has the other parts of a model directory too ("cnn", "token_head", "pooler"), for methods that go on with them.
        """
        ...

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Any:
        """A NamedTuple of float arrays whose leading axis is the sentence; `seeds` uint32 [B].

        `batch` may be a part of the batch, narrower than the others: an array with an axis of tokens must be one in which zeros
        behind the last token are padding.
        """

    def objective(self, params: Params, state: TrainState, encoded: Any) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Scalar loss over the global batch, (metrics, carry for `post_update`)."""
        ...

    def post_update(self, state: TrainState, carry: Any) -> TrainState:
        """State after the optimiser's update: moving averages, queues."""
        ...

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The embedding float32 [R, E] that evaluation, encode and export use: pooling is defined once."""
        ...
