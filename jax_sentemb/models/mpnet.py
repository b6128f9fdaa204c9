"""MPNet (Song et al. 2020): a BERT whose attention also depends on the distance of two tokens, by a bias that all layers share."""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.models.bert import Bert
from jax_sentemb.models.families.mpnet import BUCKETS
from jax_sentemb.types import Array

FARTHEST = 128  # distance with its own bucket; transformers fixes it
EXACT = BUCKETS // 4  # distances with their own buckets, in each direction


class MPNet(Bert):
    """A Bert with a bias for each head and bucket of distances."""

    def attention_bias(self, width: int) -> Float[Array, "heads tokens tokens"]:
        """Return the bias that is added to the attention scores of every layer."""
        shape = (BUCKETS, self.config.num_attention_heads)
        table = self.param("relative_bias", nn.initializers.normal(self.config.initializer_range), shape)
        index = jnp.arange(width)
        bucket = jnp.asarray(distance_buckets(width))[index - index[:, None] + width - 1]
        chosen = (bucket[..., None] == jnp.arange(BUCKETS)).astype(jnp.float32)
        return jnp.einsum("qkb,bh->hqk", chosen, table, precision="highest")  # a gather's gradient has no fixed order on a GPU


def distance_buckets(width: int) -> Int[np.ndarray, " distances"]:
    """Return the bucket of each distance key - query from 1 - width to width - 1, int32: exact up to EXACT, then logarithmic."""
    distance = np.arange(1 - width, width)
    far = np.abs(distance)
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / EXACT) / math.log(FARTHEST / EXACT)
    logarithmic = np.minimum(EXACT + (ratio * EXACT).astype(np.int64), BUCKETS // 2 - 1)
    return (np.where(far < EXACT, far, logarithmic) + np.where(distance > 0, BUCKETS // 2, 0)).astype(np.int32)
