"""Dense layers after the pooling, as in sentence-transformers."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jax_sentemb.models.bert import ACTIVATIONS as OF_TRANSFORMERS
from jax_sentemb.types import Array, Params

DENSE = "dense"  # the part of the parameters with these layers
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda values: values,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": OF_TRANSFORMERS["gelu"],
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
}


def apply_dense(params: Params, activations: Sequence[str], vectors: Float[Array, "rows _"]) -> Float[Array, "rows _"]:
    """Return the vectors after the layers "layer_0", "layer_1"... of `params`, each with its activation."""
    for number, name in enumerate(activations):
        layer = params[f"layer_{number}"]
        vectors = jnp.matmul(vectors, layer["kernel"], precision="highest")
        vectors = ACTIVATIONS[name](vectors + layer["bias"] if "bias" in layer else vectors)
    return vectors
