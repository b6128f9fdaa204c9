"""QuickThoughts: two encoders learn to find a sentence's neighbours in a batch (Logeswaran and Lee 2018)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import neighbour_loss
from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.word_vectors import check_words, word_states
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

ENCODERS = ("source", "target")


class SourceAndTarget(NamedTuple):
    """Every sentence by the source encoder and by the target encoder."""

    source: Float[Array, "batch embedding"]
    target: Float[Array, "batch embedding"]


@dataclass
class QuickThoughts(Method):
    """Two bidirectional GRUs over word vectors; the embedding is the last states of both side by side [4 hidden].

    The score of two sentences, the dot product of their embeddings by the two encoders, predicts whether they are at most
    `context` apart. With itself="zero" a sentence's score with itself is 0 in the softmax, as in the published code; "excluded"
    removes it. If word embeddings are trained, the published code gives each encoder a table; here both have the same. A batch is
    consecutive sentences.
    """

    hidden: int = setting(600, least=1)  # width of the GRU in each direction
    context: int = setting(1, least=1)  # largest distance of neighbouring sentences
    itself: str = setting("zero", choices=("zero", "excluded"))  # score of a sentence with itself; zero: the code
    pooling: str = setting("last", choices=("last",))  # the last states
    reads_consecutive: ClassVar[bool] = True

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the parts of the parameters that an embedding depends on, in addition to word vectors."""
        return ENCODERS

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)
        if self.context >= batch_size:
            raise ConfigError(Setting("method.context", self.context), " must be below ", Setting("data.batch_size", batch_size))

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return sentences in the order of the corpus."""
        return corpus.ordered()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return two fresh GRUs, initialised as in torch, and the word vectors."""
        keys = zip(ENCODERS, jax.random.split(key), strict=True)
        return InitialState(
            {
                **loaded,
                **{name: init_rnn(encoder_key, "gru", encoder.config.hidden_size, self.hidden) for name, encoder_key in keys},
            }
        )

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> SourceAndTarget:
        """Encode every sentence with both encoders."""
        return SourceAndTarget(*self._both(encoder, params, batch.rows))

    def objective(self, params: Params, state: TrainState, encoded: SourceAndTarget) -> Objective:
        """Return the cross entropy of the neighbours over the batch."""
        loss, accuracy = neighbour_loss(encoded.source, encoded.target, self.context, self.itself)
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the last states of both encoders, side by side."""
        return jnp.concatenate(self._both(encoder, params, rows), axis=-1)

    def _both(self, encoder: TokenEncoder, params: Params, rows: Rows) -> list[Float[Array, "rows width"]]:
        words = word_states(encoder, params, rows)
        return [run_rnn("gru", params[name], words, rows.mask, encoder.dtype).last for name in ENCODERS]
