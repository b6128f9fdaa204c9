"""The annotated shapes are checked at run time in the tests."""

import jax.numpy as jnp
import jaxtyping
import pytest

from jax_sentemb.losses import alignment, softmax_cross_entropy
from jax_sentemb.models.pooling import pool


def test_a_wrong_shape_or_dtype_is_an_error():
    with pytest.raises(jaxtyping.TypeCheckError, match="second"):
        alignment(jnp.ones((3, 4)), jnp.ones((3, 5)))
    with pytest.raises(jaxtyping.TypeCheckError, match="labels"):
        softmax_cross_entropy(jnp.ones((3, 4)), jnp.ones(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="mask"):
        pool([jnp.ones((3, 4, 5))], jnp.ones((2, 4), bool), "mean")
