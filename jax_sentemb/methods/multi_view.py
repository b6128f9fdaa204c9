"""Multi-view sentence representations: a recurrent and a linear view of a sentence learn from its context (Tang and de Sa 2019)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import context_loss, cosine, negative_sampling, remove_top_direction, towards_orthonormal_rows, unit
from jax_sentemb.methods import Learned
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.words import FROZEN, word_states
from jax_sentemb.text.examples import Corpus, Examples
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

VIEWS = {"fg": ("f", "g"), "f": ("f",), "g": ("g",), "ff": ("f", "f2"), "gg": ("g", "g2")}
EXPONENT = 0.75  # of word counts, as word2vec draws negative words


class Encoded(NamedTuple):
    views: list[Array]  # [B, 2H] each, one or two
    tokens: Array  # float32 [B, T]: word numbers, exact below 2^24
    mask: Array  # float32 [B, T]


@dataclass
class MultiView:
    """f is a bidirectional GRU over word vectors (its last states), g a linear map of their mean; both are [2 hidden] wide.

    form "discriminative": sentences at most `context` apart in the corpus have agreeing views, cos(f_i, g_j) + cos(g_i, f_j) over
    a trained temperature, against the rest of the batch; the top direction of each view is taken out before (`remove_component`).
    "generative": f of a sentence, mapped by U, predicts the words of the next one by negative sampling; after each step U is
    brought towards orthonormal rows (`invertible`), and g is U^T. "both": f, g and U with both losses.
    views: "fg"; or an ablation of Table 6, discriminative only: one view alone ("f", "g") or two of a kind ("ff", "gg"). There a
    sentence is no neighbour of itself (the paper does not say; with f and g it is one).
    The embedding takes f's mean over time, not its last states, and averages the views at unit length (`ensemble`: "average",
    "concatenation", or one view: "f", "g"). The paper removes the first component of each view over a data set before that; here
    @remove-first of jax_sentemb.evaluate and its multiview protocol do so on the whole embedding.
    A batch is consecutive sentences. `params`: "f", "g", "f2", "g2", "U", "log_temperature" as needed, and the word vectors.
    """

    form: str = "discriminative"
    views: str = "fg"
    hidden: int = 1024
    context: int = 3
    negatives: int = 5
    beta: float = 0.01
    invertible: bool = True
    remove_component: bool = True
    iterations: int = 5
    ensemble: str = "average"
    pooling: str = "mean"  # over time, of each view

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        if encoder.config.model_type != "words":
            raise ConfigError("this method works on word vectors: build the config with encoder=Words(vectors=...)")
        if self.form not in ("discriminative", "generative", "both"):
            raise ConfigError(f"method.form={self.form!r} is not discriminative, generative or both")
        if self.views not in VIEWS or (self.views != "fg" and self.form != "discriminative"):
            raise ConfigError(f"method.views={self.views!r}: give fg or, with the discriminative objective, {', '.join(VIEWS)}")
        if self.ensemble not in ("average", "concatenation", *VIEWS[self.views]):
            raise ConfigError(
                f"method.ensemble={self.ensemble!r} is not average, concatenation or {' or '.join(VIEWS[self.views])}"
            )
        if min(self.hidden, self.negatives, self.iterations) < 1 or not 0 <= self.beta < 1 or self.pooling != "mean":
            raise ConfigError("method: hidden, negatives and iterations must be at least 1, beta from 0 to below 1, pooling mean")
        if not 1 <= self.context < batch_size:
            raise ConfigError(f"method.context={self.context} must be at least 1 and below data.batch_size={batch_size}")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Sentences in the order of the corpus."""
        return corpus.ordered()

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """Fresh views around the word vectors: GRU gates open by 1, linear maps from N(0, 2 / inputs) (He)."""
        inputs, width = encoder.config.hidden_size, 2 * self.hidden
        params: Params = dict(loaded)
        for name, view_key in zip(self._learned_views(), jax.random.split(key, 2), strict=False):
            if name[0] == "f":
                params[name] = init_rnn(view_key, "gru", inputs, self.hidden, gate_bias=1.0)
            else:
                params[name] = {"kernel": jax.random.normal(view_key, (inputs, width)) * (2.0 / inputs) ** 0.5}
        if self.form != "generative":
            params["log_temperature"] = jnp.zeros(())
        if self.form != "discriminative":
            params["U"] = jax.random.normal(jax.random.fold_in(key, 1), (inputs, width)) * (1.0 / width) ** 0.5
        return Learned(params)

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Last states of f, means of g."""
        rows = batch.rows
        words = word_states(encoder, params, rows)
        views = [self._view(name, params, words, rows.mask, encoder.dtype, training=True) for name in self._learned_views()]
        return Encoded(views, rows.tokens.astype(jnp.float32), rows.mask.astype(jnp.float32))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """The losses of the chosen objectives."""
        loss, metrics = jnp.zeros(()), {}
        if self.form != "generative":
            views = encoded.views
            if self.remove_component:
                views = [remove_top_direction(view, self.iterations) for view in views]
            first, second = views[0], views[-1]
            agreement = cosine(first, second)
            agreement = (agreement + agreement.T) * jnp.exp(-params["log_temperature"])
            metrics["discriminative"], metrics["accuracy"] = context_loss(agreement, self.context, itself=self.views == "fg")
            metrics["temperature"] = jnp.exp(params["log_temperature"])
            loss = loss + metrics["discriminative"]
        if self.form != "discriminative":
            metrics["generative"] = self._generative(params, state, encoded)
            loss = loss + metrics["generative"]
        return loss, (metrics, None)

    def after(self, state: TrainState, carry: Any) -> TrainState:
        """U closer to orthonormal rows."""
        if "U" not in state.params or not self.invertible:
            return state
        return state._replace(params={**state.params, "U": towards_orthonormal_rows(state.params["U"], self.beta)})

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The views at unit length, averaged or side by side; or one of them."""
        words = word_states(encoder, params, rows)
        names = VIEWS[self.views] if self.ensemble in ("average", "concatenation") else (self.ensemble,)
        views = [self._view(name, params, words, rows.mask, encoder.dtype, training=False) for name in names]
        if self.ensemble == "concatenation":
            return jnp.concatenate([unit(view) for view in views], axis=-1)
        return sum((unit(view) for view in views[1:]), unit(views[0])) / len(views)

    def _learned_views(self) -> tuple[str, ...]:
        """The views with parameters of their own: the generative g is U^T."""
        return ("f",) if self.form == "generative" else VIEWS[self.views]

    def _view(self, name: str, params: Params, words: Array, mask: Array, dtype: Any, training: bool) -> Array:
        count = jnp.maximum(mask.sum(-1, keepdims=True), 1)
        if name[0] == "f":
            found = run_rnn("gru", params[name], words, mask, dtype)
            return found.last if training else found.states.sum(1) / count
        kernel = params[name]["kernel"] if name in params else params["U"]
        return jnp.matmul(words.sum(1) / count, kernel, precision="highest")

    def _generative(self, params: Params, state: TrainState, encoded: Encoded) -> Array:
        """Negative sampling of the words of the next sentence; the last sentence of a batch has none."""
        vectors = (params["encoder"] if "encoder" in params else params[FROZEN])["vectors"]
        predicted = jnp.matmul(encoded.views[0][:-1], params["U"].T, precision="highest")
        words, mask = encoded.tokens[1:].astype(jnp.int32), encoded.mask[1:]
        key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
        drawn = draw_words(jax.random.fold_in(key, 1), params[FROZEN]["counts"], (*words.shape, self.negatives))
        return negative_sampling(predicted, vectors[words], vectors[drawn], mask)


def draw_words(key: Array, counts: Array, shape: tuple[int, ...]) -> Array:
    """Word numbers int32 of this shape, each with a chance in proportion to counts ** 0.75 (`counts` [V])."""
    share = jnp.cumsum(counts**EXPONENT)
    drawn = jnp.searchsorted(share, jax.random.uniform(key, shape) * share[-1], side="right")
    return jnp.minimum(drawn, len(counts) - 1).astype(jnp.int32)
