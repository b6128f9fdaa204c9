"""QuickThoughts: two encoders find a sentence's neighbours among the sentences of a batch (Logeswaran and Lee 2018)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import neighbour_loss
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.word_vectors import check_words, word_states
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

ENCODERS = ("source", "target")


class Encoded(NamedTuple):
    source: Array  # [B, 2H]
    target: Array  # [B, 2H]


@dataclass
class QuickThoughts(Method):
    """Two bidirectional GRUs over word vectors; the embedding is the last states of both side by side [4 hidden].

    The dot product of a sentence by the one encoder with another by the other one says whether they stand at most `context` apart.
    itself: "zero" leaves a sentence's score with itself at 0 in the softmax, as the published code; "excluded" takes it out. The
    code gives each encoder embeddings of its own where they are trained; here both read the same. A batch is consecutive sentences.
    """

    hidden: int = 600
    context: int = 1
    itself: str = "zero"
    pooling: str = "last"

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """The parts of the parameters that an embedding depends on, beside word vectors."""
        return ENCODERS

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        if self.itself not in ("zero", "excluded"):
            raise ConfigError(f"method.itself={self.itself!r} is not zero or excluded")
        if not 1 <= self.context < batch_size:
            raise ConfigError(f"method.context={self.context} must be at least 1 and below data.batch_size={batch_size}")
        if self.hidden < 1 or self.pooling != "last":
            raise ConfigError("method: hidden must be at least 1, pooling last")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Sentences in the order of the corpus."""
        return corpus.ordered()

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """Two fresh GRUs around the word vectors, as torch initialises them."""
        keys = zip(ENCODERS, jax.random.split(key), strict=True)
        return Learned({**loaded, **{name: init_rnn(one, "gru", encoder.config.hidden_size, self.hidden) for name, one in keys}})

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Every sentence by both encoders."""
        return Encoded(*self._both(encoder, params, batch.rows))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Cross entropy over the batch."""
        loss, accuracy = neighbour_loss(encoded.source, encoded.target, self.context, self.itself)
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """Last states of both encoders."""
        return jnp.concatenate(self._both(encoder, params, rows), axis=-1)

    def _both(self, encoder: Any, params: Params, rows: Rows) -> list[Array]:
        words = word_states(encoder, params, rows)
        return [run_rnn("gru", params[name], words, rows.mask, encoder.dtype).last for name in ENCODERS]
