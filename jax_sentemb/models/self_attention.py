"""Compute the attention of a layer by whole maps, by blocks of queries, or by a fused kernel."""

from collections.abc import Sequence
from typing import NamedTuple

from jax.sharding import AbstractDevice, Mesh
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.errors import ConfigError, Setting, first_line
from jax_sentemb.models.attention import Attention, AttentionDropout, attend, attend_fused, attend_in_blocks, queried_bias
from jax_sentemb.types import Array

WITHOUT_DROPOUT = ("cudnn", "xla")  # kernels that do not drop attention weights


class AttentionMemory(NamedTuple):
    """How attention is computed: `block` queries at once (0: all), or by a `fused` kernel.

    "cudnn" and "xla" are kernels of `jax.nn.dot_product_attention`; "pallas" is the kernel of this package.
    Its rows are on the devices of `mesh`.
    """

    block: int = 0
    fused: str = ""
    mesh: Mesh | None = None

    def dropout(
        self, seeds: UInt[Array, " rows"] | None, rate: float, stream: int | Int[Array, ""], positions: int
    ) -> AttentionDropout:
        """Return the dropout of attention weights at `rate`; off for a kernel that does not drop them."""
        return AttentionDropout(seeds, 0.0 if self.fused in WITHOUT_DROPOUT else rate, stream, positions)


def kernel_problem(device: AbstractDevice) -> str:
    """Return why this JAX cannot lower the kernel "pallas" for a TPU or GPU; "" if it can."""
    try:
        from jax_sentemb.models.attention_kernel import lower_smallest

        lower_smallest(device)
    except (ImportError, AttributeError, NotImplementedError, RuntimeError, ValueError) as error:
        return first_line(error)
    return ""


def self_attention(
    query: Float[Array, "rows heads queries size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    memory: AttentionMemory,
    bias: Float[Array, "_ _ queries tokens"] | None = None,
) -> tuple[Float[Array, "rows heads queries size"], Attention]:
    """Compute `attend` for all queries as `memory` says. Kernels WITHOUT_DROPOUT do not drop weights."""
    if memory.fused == "pallas":
        from jax_sentemb.models.attention_kernel import attend_in_kernel  # Pallas takes a third of a second to import

        assert memory.mesh is not None, "fused_attention=pallas needs the mesh of the run"
        if bias is not None:
            raise ConfigError(
                Setting("train.fused_attention", "pallas"), " has no relative or local positions: leave it out for this encoder"
            )
        return attend_in_kernel(query, key, value, mask, dropout, memory.mesh)
    if memory.fused:
        return attend_fused(query, key, value, mask, memory.fused, bias)
    if memory.block:
        return attend_in_blocks(query, key, value, mask, dropout, memory.block, bias)
    return attend(query, key, value, mask, dropout, bias=bias)


def layer_attention(
    query_key_value: Sequence[Float[Array, "rows heads _ size"]],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    memory: AttentionMemory,
    bias: Float[Array, "_ tokens tokens"] | None,
    first_only: bool,
    indices: Int[Array, "rows indices"] | None,
) -> tuple[Float[Array, "rows _ width"], Attention]:
    """Return the context of the queries that a layer computes, and the attention of all queries that are given.

    Args:
        query_key_value: Queries, keys and values. The queries are those of all tokens, or only those that are computed.
        mask: Which tokens are real.
        dropout: The dropout of the attention weights.
        memory: How attention is computed.
        bias: Numbers [H or 1, T, T] that are added to the scores.
        first_only: Compute the first query only.
        indices: Compute the queries of these tokens only; None computes all, or the first.

    Returns:
        The context, with the heads side by side, and the attention.
    """
    query, key, value = query_key_value
    whole_bias, computed_bias = queried_bias(bias, False, None), queried_bias(bias, first_only, indices)
    if not first_only and indices is None:
        context, attention = self_attention(query, key, value, mask, dropout, memory, whole_bias)
    else:
        count = 1 if indices is None else query.shape[2]
        context, attention = attend(query[:, :, :count], key, value, mask, dropout, bias=computed_bias)
        if query.shape[2] > count:  # a capture reads it; the compiler removes the context of these queries
            _, attention = self_attention(query, key, value, mask, AttentionDropout(), memory, whole_bias)
    return context.swapaxes(1, 2).reshape(len(context), context.shape[2], -1), attention
