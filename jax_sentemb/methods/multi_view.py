"""Multi-view sentence representations: a recurrent and a linear encoder learn from neighbouring sentences (Tang and de Sa 2019)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import (
    context_loss,
    l2_normalize,
    negative_sampling,
    remove_top_direction,
    rows_from_orthonormal,
    towards_orthonormal_rows,
)
from jax_sentemb.methods.base import Carry, InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.word_vectors import FROZEN, check_words, pooled_states, vector_part, word_states
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

VIEWS = {"fg": ("f", "g"), "f": ("f",), "g": ("g",), "ff": ("f", "f2"), "gg": ("g", "g2")}
POOLINGS = ("mean", "max", "min", "last")
EXPONENT = 0.75  # of word counts in the distribution of negative words (word2vec)


class ContextViews(NamedTuple):
    """One or two views, the numbers of the words as floats (exact below 2^24), and the token mask as numbers."""

    views: list[Float[Array, "batch embedding"]]
    tokens: Float[Array, "batch tokens"]
    mask: Float[Array, "batch tokens"]


@dataclass
class MultiView(Method):
    """Two views of a sentence, both [2 hidden] wide: f, the last states of a bidirectional GRU, and g, a linear map of the mean.

    The values of `form` are:

    * "discriminative": sentences at most `context` apart in the corpus learn similar views. The score of two sentences is
      (cos(f_i, g_j) + cos(g_i, f_j)) / temperature, which is trained. The negatives are the rest of the batch. The top direction of
      each view is removed before (`remove_component`).
    * "generative": f of a sentence, mapped by U, predicts the words of the next sentence by negative sampling. After each step the
      rows of U are brought closer to orthonormal (`invertible`), and g is U^T. The metric "orthonormality" is the Frobenius norm of
      U U^T - I.
    * "both": f, g and U with both losses, and three views: f, g, and h, which is U^T (the paper's third encoder).

    views: "fg", or an ablation of Table 6 for the discriminative form: one view ("f", "g"), whose score is one cosine divided by
    the temperature, or two of the same type ("ff", "gg"). In an ablation a sentence is not a neighbour of itself (the paper does
    not say); with "fg" it is.
    The embedding takes f's mean over time instead of its last states, and averages the views at unit length, as the paper does
    without labels. For classifiers the paper takes `pooling` "max+mean+min+last" (g has no last) and `ensemble` "concatenation".
    `ensemble` can also be the name of one view. jax-sentemb evaluate takes both as options (runs/mv@f,
    runs/mv@max+mean+min+last+concatenation); @remove-first, or its multiview protocol, removes the first component of each view
    over a data set before the views are joined.
    A batch is consecutive sentences. `params`: "f", "g", "f2", "g2", "U", "log_temperature" as needed, and the word vectors.
    """

    form: str = setting(
        "discriminative", choices=("discriminative", "generative", "both")
    )  # what is learned: similar views, the next words, or both
    views: str = setting("fg", choices=VIEWS)  # fg, or an ablation: f, g, ff, gg
    hidden: int = setting(1024, least=1)  # width of the GRU in each direction, and half the width of a linear view
    context: int = setting(3, least=1, used_if="form=discriminative|both")  # largest distance of neighbouring sentences
    negatives: int = setting(5, least=1, used_if="form=generative|both")  # random words that each word is compared with
    # Size of the step towards orthonormal rows of U.
    beta: float = setting(0.01, least=0, below=1, used_if="form=generative|both and invertible")
    invertible: bool = setting(True, used_if="form=generative|both")  # keep the rows of U nearly orthonormal, and take U^T as g
    # Initial temperature of the discriminative score, which is trained.
    temperature: float = setting(1.0, above=0, used_if="form=discriminative|both")
    remove_component: bool = setting(True, used_if="form=discriminative|both")  # remove the first direction of each view of a batch
    # Steps of the power iteration that finds this direction.
    iterations: int = setting(5, least=1, used_if="form=discriminative|both and remove_component")
    ensemble: str = "average"  # how views are joined: average, concatenation, or the name of one view
    pooling: str = "mean"  # pooling of each view over time: mean, max, min, last, or several joined by +
    reads_consecutive: ClassVar[bool] = True

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the views that an embedding joins."""
        return self._all_views() if self.ensemble in ("average", "concatenation") else (self.ensemble,)

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)
        if self.views != "fg" and self.form != "discriminative":
            raise ConfigError(
                Setting("method.views", self.views), f": give fg or, with the discriminative objective, {', '.join(VIEWS)}"
            )
        if self.ensemble not in ("average", "concatenation", *self._all_views()):
            raise ConfigError(
                Setting("method.ensemble", self.ensemble), f" is not average, concatenation or {' or '.join(self._all_views())}"
            )
        poolings = self.pooling.split("+")
        if not set(poolings) <= set(POOLINGS) or len(set(poolings)) < len(poolings):
            raise ConfigError(Setting("method.pooling", self.pooling), f": give one or more of {', '.join(POOLINGS)}, joined by +")
        if self.pooling == "last" and any(name[0] != "f" for name in self.embedding_params):
            raise ConfigError(Setting("method.pooling", "last"), ": a linear view has no last state; add mean, max or min")
        if self.ensemble == "average" and "last" in poolings and len({name[0] == "f" for name in self.embedding_params}) == 2:
            raise ConfigError(
                Setting("method.pooling", self.pooling), " with ensemble=average: f is wider than g; choose concatenation"
            )
        if self.form != "generative" and self.context >= batch_size:
            raise ConfigError(Setting("method.context", self.context), " must be below ", Setting("data.batch_size", batch_size))

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return sentences in the order of the corpus."""
        return corpus.ordered()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return fresh views and the word vectors: GRU gates with bias 1, linear maps and U from N(0, 2 / inputs) (He)."""
        inputs, width = encoder.config.hidden_size, 2 * self.hidden
        params: Params = dict(loaded)
        *view_keys, decoder_key = jax.random.split(key, 3)
        for name, view_key in zip(self._learned_views(), view_keys, strict=False):
            if name[0] == "f":
                params[name] = init_rnn(view_key, "gru", inputs, self.hidden, gate_bias=1.0)
            else:
                params[name] = {"kernel": jax.random.normal(view_key, (inputs, width)) * (2.0 / inputs) ** 0.5}
        if self.form != "generative":
            params["log_temperature"] = jnp.log(jnp.asarray(self.temperature, jnp.float32))
        if self.form != "discriminative":
            params["U"] = jax.random.normal(decoder_key, (inputs, width)) * (2.0 / width) ** 0.5
        return InitialState(params)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> ContextViews:
        """Return the last states of f and the means of g."""
        rows = batch.rows
        words = word_states(encoder, params, rows)
        views = [
            run_rnn("gru", params[name], words, rows.mask, encoder.dtype).last
            if name[0] == "f"
            else self._linear_view(name, params, words, rows.mask)
            for name in self._learned_views()
        ]
        return ContextViews(views, rows.tokens.astype(jnp.float32), rows.mask.astype(jnp.float32))

    def objective(self, params: Params, state: TrainState, encoded: ContextViews) -> Objective:
        """Return the sum of the losses of `form`, and the metrics."""
        loss, metrics = jnp.zeros(()), {}
        if self.form != "generative":
            views = encoded.views
            if self.remove_component:
                views = [remove_top_direction(view, self.iterations) for view in views]
            first, second = l2_normalize(views[0]), l2_normalize(views[-1])
            anchors, others = first, second  # cos(first_i, first_j) of one view alone
            if len(views) > 1:  # cos(first_i, second_j) + cos(second_i, first_j), as one product
                anchors, others = jnp.concatenate([first, second], axis=1), jnp.concatenate([second, first], axis=1)
            anchors = anchors * jnp.exp(-params["log_temperature"])
            metrics["discriminative"], metrics["accuracy"] = context_loss(anchors, others, self.context, itself=self.views == "fg")
            metrics["temperature"] = jnp.exp(params["log_temperature"])
            loss = loss + metrics["discriminative"]
        if self.form != "discriminative":
            metrics["generative"] = self._generative(params, state, encoded)
            metrics["orthonormality"] = rows_from_orthonormal(params["U"])
            loss = loss + metrics["generative"]
        return loss, (metrics, None)

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Bring the rows of U closer to orthonormal."""
        if "U" not in state.params or not self.invertible:
            return state
        return state._replace(params={**state.params, "U": towards_orthonormal_rows(state.params["U"], self.beta)})

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the views at unit length, averaged or side by side, or one of them."""
        views = [l2_normalize(view) for view in self.views_of(encoder, params, rows)]
        return jnp.concatenate(views, axis=-1) if self.ensemble == "concatenation" else sum(views[1:], views[0]) / len(views)

    def views_of(self, encoder: TokenEncoder, params: Params, rows: Rows) -> list[Float[Array, "rows _"]]:
        """Return the views that the embedding joins, before normalisation: f from its states, g from W times each word vector."""
        words, views = word_states(encoder, params, rows), []
        poolings = self.pooling.split("+")
        for name in self.embedding_params:
            if name[0] == "f":
                states, last = run_rnn("gru", params[name], words, rows.mask, encoder.dtype)
                parts = [last if pooling == "last" else pooled_states(states, rows.mask, pooling) for pooling in poolings]
            elif poolings == ["mean"]:  # equal to the general case, and cheaper
                parts = [self._linear_view(name, params, words, rows.mask)]
            else:
                states = jnp.matmul(words, self._kernel(name, params), precision="highest")
                parts = [pooled_states(states, rows.mask, pooling) for pooling in poolings if pooling != "last"]
            views.append(jnp.concatenate(parts, axis=-1))
        return views

    def _all_views(self) -> tuple[str, ...]:
        """Return the views of a trained model."""
        return (*VIEWS[self.views], "h") if self.form == "both" else VIEWS[self.views]

    def _learned_views(self) -> tuple[str, ...]:
        """Return the views that have parameters; the generative g and h are U^T."""
        return ("f",) if self.form == "generative" else VIEWS[self.views]

    def _linear_view(self, name: str, params: Params, words: Array, mask: Array) -> Float[Array, "rows width"]:
        return jnp.matmul(pooled_states(words, mask, "mean"), self._kernel(name, params), precision="highest")

    def _kernel(self, name: str, params: Params) -> Array:
        return params[name]["kernel"] if name in params else params["U"]

    def _generative(self, params: Params, state: TrainState, encoded: ContextViews) -> Array:
        """Return the loss of negative sampling of the words of the next sentence, for all sentences but the last of the batch."""
        vectors = vector_part(params)["vectors"]
        predicted = jnp.matmul(encoded.views[0][:-1], params["U"].T, precision="highest")
        words, mask = encoded.tokens[1:].astype(jnp.int32), encoded.mask[1:]
        key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
        drawn = draw_words(jax.random.fold_in(key, 1), params[FROZEN]["counts"], (*words.shape, self.negatives))
        return negative_sampling(predicted, vectors[words], vectors[drawn], mask)


def draw_words(key: Key[Array, ""], counts: Float[Array, " vocabulary"], shape: tuple[int, ...]) -> Int[Array, "..."]:
    """Draw word numbers, int32 of this shape, with probabilities proportional to counts ** 0.75 (`counts` [V])."""
    share = jnp.cumsum(counts**EXPONENT)
    drawn = jnp.searchsorted(share, jax.random.uniform(key, shape) * share[-1], side="right")
    return jnp.minimum(drawn, len(counts) - 1).astype(jnp.int32)
