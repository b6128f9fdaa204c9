"""Base class of all methods: the contract between a method and the train step.

A method is a dataclass of hyper-parameters with pure functions. There is no list of methods: a config file imports the one it uses.
The loss is objective(encode(...)). The split lets the train step encode a large batch in chunks (gradient caching) for every
method. All randomness in `encode` comes from one seed for each sentence, so a sentence gets the same dropout in every chunk, on
every device and at every padding.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Learned(NamedTuple):
    """The fields of a fresh TrainState that a method owns."""

    params: Params
    ema_params: Params | None = None
    queue: Array | None = None
    queue_rows: Array | None = None


class Method(ABC):
    """What training, evaluation and export use of a method. Subclasses are dataclasses; their fields are the hyper-parameters.

    A subclass defines `check`, `init`, `encode`, `objective` and a field `pooling`; the rest has defaults. The attributes below are
    no fields: a subclass overrides them as a field, a constant or a property.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # of the subclass

    pooling: str
    ami: AttentionMI | None = None  # attention mutual information, subtracted from the loss
    convolution: Convolution | None = None  # between the encoder and the pooling
    is_cross_encoder: ClassVar[bool] = False  # True: `embed` takes rows of joined pairs and returns their score
    reads_packed: ClassVar[bool] = False  # True: rows may hold several sentences (`data.pack`)

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """The parts of the parameters that an embedding depends on, beside word vectors. For methods on word vectors only."""
        return ()

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """The share of the steps in which a part of the parameters is trained, for parts that are not trained in every step.

        Each of these parts has an optimiser of its own.
        """
        return {}

    @abstractmethod
    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or does not fit the encoder or the number of sentences."""

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """The examples to train on, from the run's files: distinct sentences."""
        return corpus.plain()

    @abstractmethod
    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """Return the state of the method around `loaded["encoder"]`, which is loaded or freshly initialised.

        `loaded` has the other parts of a model directory too ("cnn", "token_head", "pooler"), for methods that go on with them.
        """

    @abstractmethod
    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Any:
        """Return a NamedTuple of float arrays whose leading axis is the sentence; `seeds` uint32 [B].

        `batch` may be a part of the batch, narrower than the others: an array with an axis of tokens must be one in which zeros
        behind the last token are padding.
        """

    @abstractmethod
    def objective(self, params: Params, state: TrainState, encoded: Any) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Return the scalar loss over the global batch, and (metrics, carry for `post_update`)."""

    def post_update(self, state: TrainState, carry: Any) -> TrainState:
        """Return the state after the optimiser's update, with new moving averages and queues. The default changes nothing."""
        return state

    def encoders(self, params: Params) -> dict[str, Params]:
        """Return the parameters with each encoder that may be exported, by name, the default first. The best one is kept.

        A method with one encoder has one entry, named "".
        """
        return {"": params}

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """Return the embeddings float32 [R, E] that evaluation, encoding and export use; without dropout.

        The default is the pooled state of the encoder, through the convolution if the method has one.
        """
        return sentence_embedding(encoder, params, rows, self.pooling, self.convolution)

    def check_ami(self, encoder: Any) -> None:
        """Raise ConfigError if the attention mutual information does not fit the encoder."""
        if self.ami is not None:
            self.ami.check(encoder.config.num_hidden_layers, encoder.config.num_attention_heads)
