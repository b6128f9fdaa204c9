"""SCT: two views of a sentence have the same similarities to earlier sentences (Limkonchotiwat et al., TACL 2023).

References:
    Self-supervised cross-view training, Limkonchotiwat et al. 2023. The candidates and the queues are those of its code.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.losses import alignment, cross_view, l2_normalize
from jax_sentemb.methods.base import Carry, EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.matryoshka import prefix
from jax_sentemb.methods.views import TwoViews, two_dropout_views, two_texts
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import init_linear
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState

PREDICTORS = 3
HIDDEN = 10  # width of a predictor's hidden layer in widths of the embedding


@dataclass
class SCT(EmbeddingMethod):
    """Predict from each view the similarities of the other view to earlier embeddings.

    The references are the embeddings of the views without gradient, the predictions those of three MLPs. The views differ in
    dropout, and with `repetition` in repeated tokens of the second view. The state's `params` are {"encoder", "predictor"}. The
    queue has the references of the first view, then as many of the second.
    """

    queue_size: int = setting(131072, least=1)  # number of earlier references of each view
    reference_temperature: float = setting(0.01, above=0)  # divides the cosines of the references
    temperature: float = setting(0.03, above=0)  # divides the cosines of the predictions
    predictor: str = setting(
        "average", choices=("average", "chain")
    )  # how three MLPs are combined: averaged, or one after the other
    repetition: float = setting(0.0, least=0, most=1)  # largest share of repeated tokens of the second view; 0: none
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    embeddings: ClassVar[tuple[str, ...]] = ("first", "second")
    queues_embeddings: ClassVar[bool] = True
    validation_selects: ClassVar[bool] = False

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, each with a copy that has repeated tokens if `repetition` is not 0."""
        return corpus.word_repeated(self.repetition, seed) if self.repetition else corpus.plain()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "predictor"} and empty queues."""
        width = encoder.config.hidden_size
        predictor = {}
        for number, mlp_key in enumerate(jax.random.split(key, PREDICTORS)):
            first, second = jax.random.split(mlp_key)
            layers = {"inner": init_linear(first, width, HIDDEN * width), "outer": init_linear(second, HIDDEN * width, width)}
            predictor[f"mlp_{number}"] = layers
        params = {"encoder": loaded["encoder"], "predictor": predictor}
        return InitialState(params, queue=jnp.zeros((2 * self.queue_size, width)))

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TwoViews:
        """Return both views from one pass over 2B rows, each with its own dropout."""
        if self.repetition:
            return two_texts(encoder, params, batch.rows, seeds, self.pooling)
        return two_dropout_views(encoder, params["encoder"], batch.rows, seeds, None, self.pooling)

    def objective(self, params: Params, state: TrainState, encoded: TwoViews) -> Objective:
        """Return the sum of both directions, the metrics, and the references for the queues."""
        assert state.queue is not None
        first, second = encoded.first, encoded.second
        queues = state.queue.reshape(2, self.queue_size, -1)
        # Entry number k entered k // B steps ago. The product of step and batch size could overflow int32.
        valid = jnp.arange(self.queue_size) // len(first) < state.step
        temperatures = self.reference_temperature, self.temperature
        losses = [
            cross_view(self.predict(params["predictor"], view), reference, queue, valid, temperatures)
            for view, reference, queue in ((second, first, queues[0]), (first, second, queues[1]))
        ]
        metrics = {"cross_view": losses[0] + losses[1], "alignment": alignment(first, second)}
        return losses[0] + losses[1], (metrics, lax.stop_gradient((first, second)))

    def predict(self, predictor: Params, embeddings: Float[Array, "batch embedding"]) -> Float[Array, "batch embedding"]:
        """Return the prediction of the three MLPs from embeddings."""
        predictions, values = [], embeddings
        for number in range(PREDICTORS):
            mlp = predictor[f"mlp_{number}"]
            inner = jnp.matmul(values, mlp["inner"]["kernel"], precision="highest") + mlp["inner"]["bias"]
            outer = jnp.matmul(jax.nn.relu(inner), mlp["outer"]["kernel"], precision="highest") + mlp["outer"]["bias"]
            predictions.append(outer)
            values = outer if self.predictor == "chain" else embeddings
        return predictions[-1] if self.predictor == "chain" else jnp.stack(predictions).mean(0)

    def prefix_params(self, params: Params, width: int) -> Params:
        """Return the parameters with MLPs whose outputs are 0 after the first `width` numbers, as those of the references are."""
        cut = functools.partial(prefix, width=width)
        predictor = {name: {**mlp, "outer": jax.tree.map(cut, mlp["outer"])} for name, mlp in params["predictor"].items()}
        return {**params, "predictor": predictor}

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Return the state with the step's references, of length 1, at the front of the queues."""
        assert state.queue is not None
        queues = state.queue.reshape(2, self.queue_size, -1)
        new = [jnp.concatenate([l2_normalize(view), queue])[: self.queue_size] for view, queue in zip(carry, queues, strict=True)]
        return state._replace(queue=jnp.concatenate(new))
