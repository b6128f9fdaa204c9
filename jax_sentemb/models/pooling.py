"""Pool token states to one vector for each row, in training, evaluation and export alike."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Bool, Float, UInt

from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Array, Params, Rows

POOLINGS = ("cls", "mean", "first_last")


def pool(hidden: Sequence[Float[Array, "rows _ width"]], mask: Bool[Array, "rows tokens"], mode: str) -> Float[Array, "rows width"]:
    """Pool token states to one vector for each row, float32 [R, D].

    Args:
        hidden: The states of the embeddings and of each layer.
        mask: Which tokens are real, bool [R, T].
        mode: "cls" is the state of the first token in the last layer, "mean" the mean of the last layer over real tokens.
            "first_last" is the mean over real tokens of the average of layer 1 and the last layer. Methods differ on which layer is
            first; this is SimCSE's choice since 2023.
    """
    if mode == "cls":
        return hidden[-1][:, 0]
    if mode not in POOLINGS:
        raise ValueError(f"pooling {mode!r} is not one of {', '.join(POOLINGS)}")
    states = states_to_pool(hidden, mode)
    weights = mask.astype(jnp.float32)[..., None]
    return (states * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)


def states_to_pool(hidden: Sequence[Float[Array, "rows _ width"]], mode: str) -> Float[Array, "rows tokens width"]:
    """Return the states of tokens that `pool` reduces to one vector for the pooling `mode`."""
    return (hidden[1] + hidden[-1]) / 2 if mode == "first_last" else hidden[-1]


def sentence_embedding(
    encoder: TokenEncoder,
    params: Params,
    rows: Rows,
    pooling: str,
    convolution: Convolution | None = None,
    seeds: UInt[Array, " rows"] | None = None,
) -> Float[Array, "rows embedding"]:
    """Return the embeddings of rows, float32 [R, E].

    Args:
        encoder: The architecture.
        params: The parts "encoder" and, with a convolution, "cnn".
        rows: The tokens.
        pooling: How states become an embedding, see `pool`.
        convolution: The convolution between the encoder and the pooling, or None.
        seeds: The seeds of the dropout, uint32 [R]; None switches it off.
    """
    first = pooling == "cls" and convolution is None
    hidden = encoder.apply({"params": params["encoder"]}, rows, seeds, first_token_only=first).hidden
    if convolution is not None:
        hidden = [convolution.apply(params["cnn"], hidden[-1], rows.mask, encoder.dtype)]
    return pool(hidden, rows.mask, pooling)
