"""Define the base class of all methods: the contract between a method and the train step.

A method is a dataclass of hyper-parameters with pure functions. There is no list of methods: a config file imports the one it uses.
The loss is objective(encode(...)): in two functions, so that the train step can encode a large batch in chunks (gradient caching).
All randomness in `encode` comes from one seed for each sentence, so a sentence has the same dropout in every chunk, on every device
and at every padding.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeAlias

from jaxtyping import Float, Int, Key, PyTree, UInt

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.losses import Scalar
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.settings import check_settings, setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

Seeds: TypeAlias = UInt[Array, " batch"]  # of the dropout of each sentence
Encoded: TypeAlias = PyTree[Float[Array, "batch ..."]]  # a NamedTuple of each method
Carry: TypeAlias = PyTree[Array]  # what `post_update` needs of the step
Objective: TypeAlias = tuple[Scalar, tuple[dict[str, Scalar], Carry]]  # loss, (metrics, carry)


class InitialState(NamedTuple):
    """The fields of a fresh TrainState that a method owns."""

    params: Params
    ema_params: Params | None = None
    queue: Float[Array, "queue embedding"] | None = None
    queue_rows: Int[Array, " queue"] | None = None


class Method(ABC):
    """Interface of a method for training, evaluation and export. Subclasses are dataclasses with hyper-parameters as fields.

    A subclass defines `init`, `encode`, `objective` and a field `pooling`; the rest has defaults. The attributes below are
    not fields: a subclass overrides them with a field, a constant or a property.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # of the subclass

    pooling: str
    ami: AttentionMI | None = None  # attention mutual information, subtracted from the loss
    anchor: float = 0.0  # a field of EmbeddingMethod
    convolution: Convolution | None = None  # between the encoder and the pooling
    encoder_parts: ClassVar[tuple[str, ...]] = ("encoder",)  # parts of the parameters that are encoders (`train.last_layers`)
    # Fields of what `encode` returns that hold embeddings which the loss compares by their cosine alone (`train.matryoshka`).
    embeddings: ClassVar[tuple[str, ...]] = ()
    queues_embeddings: ClassVar[bool] = False  # True: the queue holds such embeddings
    trains_sentences: ClassVar[bool] = True  # False: the encoder is the start of a method that learns sentence embeddings
    # False: held-out accuracy improves while the embeddings get worse, so it selects weights only where eval.select asks for it.
    validation_selects: ClassVar[bool] = True
    text_role: ClassVar[str] = "document"  # the prompt of the start that training texts have; "": its default prompt
    is_cross_encoder: ClassVar[bool] = False  # True: `embed` takes rows of joined pairs and returns their score
    reads_consecutive: ClassVar[bool] = False  # True: a batch has consecutive sentences of the corpus
    reads_pairs: ClassVar[bool] = False  # True: the text is labelled pairs, in the columns sentence1 and sentence2
    reads_packed: ClassVar[bool] = False  # True: rows may hold several sentences (`data.pack`)

    @property
    def dense(self) -> tuple[str, ...] | None:
        """Return the activations of the layers after the pooling that the method trains ("dense"), or None for the start's."""
        return None

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the other parts of the parameters that an embedding of a method on word vectors depends on."""
        return ()

    def prefix_params(self, params: Params, width: int) -> Params:
        """Return the parameters for a loss on the first `width` numbers of the embeddings (`train.matryoshka`).

        The default returns them unchanged. A method whose loss compares an output of its parameters with such embeddings cuts it.
        """
        return params

    @property
    def step_shares(self) -> Mapping[str, Fraction]:
        """Return the parts of the parameters that are not trained in every step, and the share of the steps that train each.

        Each of these parts has its own optimiser.
        """
        return {}

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of its limits, or does not fit the encoder or the number of sentences.

        The default checks the limits of the fields (`setting`) and the attention mutual information. A subclass adds what depends
        on several settings.
        """
        check_settings(self, "method.")
        if self.ami is not None:
            config = bert_config(encoder)
            self.ami.check(config.num_hidden_layers, config.num_attention_heads)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return the examples to train on. The default is the distinct sentences of the run's files."""
        return corpus.plain()

    def from_examples(self, examples: Examples, seed: int) -> Params:
        """Return parts, computed from the examples, for the argument `loaded` of `init`. The default returns none."""
        return {}

    @abstractmethod
    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the first state of the method, with the encoder `loaded["encoder"]`, which is read from a directory or fresh.

        `loaded` also has the other parts of a model directory ("cnn", "token_head", "pooler") for methods that continue with them.
        """

    @abstractmethod
    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Encoded:
        """Return a NamedTuple of float arrays whose leading axis is the sentence; `seeds` uint32 [B].

        `batch` may be a part of the batch that is narrower than the others. Arrays with an axis of tokens are padded with zeros to
        the width of the whole batch, so zeros there must mean padding.
        """

    @abstractmethod
    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> Objective:
        """Return the scalar loss over the global batch, and (metrics, carry for `post_update`)."""

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Return the state after the optimiser's update with new moving averages and queues. The default returns it unchanged."""
        return state

    def encoders(self, params: Params) -> dict[str, Params]:
        """Return the parameters of each model that may be exported, by name, the default first; the best one is exported.

        A method with one encoder has one entry, named "".
        """
        return {"": params}

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the embeddings float32 [R, E] that evaluation, encoding and export use, without dropout.

        The default pools the states of the encoder, or of the convolution if the method has one.
        """
        return sentence_embedding(encoder, params, rows, self.pooling, self.convolution)


@dataclass
class EmbeddingMethod(Method):
    """A method that trains the embedding of a transformer, and can hold it near that of the start."""

    # Weight of the distance to the embeddings of the start (methods/anchor.py); 0: none.
    anchor: float = setting(0.0, kw_only=True, least=0)

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError as `Method.check` does, or if the encoder is a table of word vectors."""
        super().check(encoder, batch_size)
        bert_config(encoder)
