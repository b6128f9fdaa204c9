"""Matrix product, dropout and layer norm of all architectures.

Their plain forms are slow on CPUs (benchmarks/README.md has the measurements). Tests compare the functions with the plain forms.
"""

import functools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.types import Array


def hash32(bits: UInt[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """Return the hash of each uint32 by two multiply-xorshift rounds; every output bit depends on every input bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x21F0AAAD)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0xD35A2D97)
    return bits ^ (bits >> 15)


GOLDEN = 0x9E3779B1  # an odd number near 2^32 / golden ratio: its multiples lie far apart


def random_bits(
    seeds: UInt[Array, " rows"],
    stream: int | Int[Array, ""],
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    start: Int[Array, ""] | int = 0,
) -> UInt[Array, "rows ..."]:
    """Return random uint32 of shape [rows, *shape] that depend on (seed of the row, stream, position) only.

    They come from a counter hash instead of `jax.random`. It fuses into the elementwise kernel that uses it, and a row gets
    the same bits whatever batch, chunk, device or padding it is in.

    Args:
        seeds: A seed of each row, uint32 [R].
        stream: Numbers of different streams are independent.
        shape: The shape of the numbers of a row.
        strides: The increase of the number of a position along each axis; None is row-major. If `shape` grows with padding, give
            strides that do not.
        start: The number of the first position.
    """
    if strides is None:
        strides = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
    counter = jnp.asarray(start, jnp.uint32) * jnp.uint32(GOLDEN)
    for axis, stride in enumerate(strides):
        counter = counter + lax.broadcasted_iota(jnp.uint32, tuple(shape), axis) * counter_step(stride)
    return _bits(seeds, stream, counter[None])


def _bits(seeds: UInt[Array, " rows"], stream: int | Int[Array, ""], counter: UInt[Array, "..."]) -> UInt[Array, "rows ..."]:
    return hash32(row_key(seeds, stream).reshape((-1,) + (1,) * (counter.ndim - 1)) ^ counter)


def row_key(seeds: UInt[Array, " rows"], stream: int | Int[Array, ""]) -> UInt[Array, " rows"]:
    """Return the key of the random bits of each row in a stream: the bits are hash32(key ^ counter)."""
    return hash32(seeds + jnp.asarray(stream, jnp.uint32) * jnp.uint32(0x85EBCA6B))


def counter_step(stride: int) -> UInt[Array, ""]:
    """Return by how much the counter grows with a position of this stride."""
    return jnp.uint32(stride * GOLDEN % 2**32)


def keep_mask(
    rate: float,
    seeds: UInt[Array, " rows"],
    stream: int | Int[Array, ""],
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    start: Int[Array, ""] | int = 0,
) -> Bool[Array, "rows ..."]:
    """Return a dropout mask, bool [R, *shape]: False with probability `rate`, independent for every row and position."""
    return random_bits(seeds, stream, shape, strides, start) >= drop_limit(rate)


def kept_at(
    rate: float, seeds: UInt[Array, " rows"], stream: int | Int[Array, ""], numbers: Int[Array, " rows *positions"]
) -> Bool[Array, " rows *positions"]:
    """Return the entries of `keep_mask` at the positions with these numbers (sums of index times stride), int [R, ...]."""
    return _bits(seeds, stream, numbers.astype(jnp.uint32) * jnp.uint32(GOLDEN)) >= drop_limit(rate)


def drop_limit(rate: float) -> UInt[Array, ""]:
    """Return the number that random bits reach with probability 1 - rate; entries with smaller bits are dropped."""
    return jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


def dropout(
    values: Float[Array, " rows *shape"], rate: float, seeds: UInt[Array, " rows"] | None, stream: int | Int[Array, ""]
) -> Float[Array, " rows *shape"]:
    """Return `values` [R, ...] with entries dropped at `rate` and the rest divided by 1 - rate; unchanged without seeds."""
    if seeds is None or rate == 0.0:
        return values
    is_kept = keep_mask(rate, seeds, stream, values.shape[1:])
    return jnp.where(is_kept, values / (1.0 - rate), 0).astype(values.dtype)


def row_major(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the same values, which XLA's GPU compiler lays out in the order of their axes.

    Otherwise the compiler gives the states of BERT a layout with the sentences last, and transposes them around each product.
    """
    return lax.platform_dependent(values, cuda=_ordered, default=lambda array: array)


@jax.custom_vjp
def _ordered(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return _ordered_on_each_device(values)


_ordered.defvjp(lambda values: (_ordered_on_each_device(values), None), lambda _, gradient: (_ordered_on_each_device(gradient),))


@custom_partitioning
def _ordered_on_each_device(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    # Without a rule the partitioner gathers the whole array on every device before it constrains the layout.
    return with_layout_constraint(values, Layout(major_to_minor=tuple(range(values.ndim))))


_ordered_on_each_device.def_partition(
    partition=lambda mesh, operands, _: (mesh, _ordered_on_each_device.fun, operands[0].sharding, (operands[0].sharding,)),
    infer_sharding_from_operands=lambda _, operands, result: operands[0].sharding,
    sharding_rule="... -> ...",
)


def product(
    left: Float[Array, "_ _"],
    right: Float[Array, "_ _"],
    dimensions: tuple[tuple[int, ...], tuple[int, ...]],
    result: DTypeLike = jnp.float32,
) -> Float[Array, "_ _"]:
    """Return the product of two matrices of equal precision, accumulated in float32 and returned as `result`."""
    precision = lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    return lax.dot_general(left, right, (dimensions, ((), ())), precision=precision, preferred_element_type=result)


def transposed_product(rows: Float[Array, "rows inputs"], gradient: Float[Array, "rows outputs"]) -> Float[Array, "inputs outputs"]:
    """Return rows^T gradient, float32 [I, O], from [N, I] and [N, O].

    XLA's CPU compiler folds a bare transpose into the product that uses it and then takes a slow path (3 times slower in
    bfloat16). So the narrower factor is first transposed into another array there; a row of padding prevents the folding.
    """
    return lax.platform_dependent(rows, gradient, cpu=_transposed_product_cpu, default=_transposed_product)


def _transposed_product(rows: Array, gradient: Array) -> Array:
    return product(rows, gradient, ((0,), (0,)))


def _transposed_product_cpu(rows: Array, gradient: Array) -> Array:
    if rows.shape[1] <= gradient.shape[1]:
        # The padding is cut off after the product: if it is cut before, JAX 0.11 removes pad, cut and transpose, and fails.
        return product(jnp.pad(rows.T, ((0, 1), (0, 0))), gradient, ((1,), (0,)))[:-1]
    transposed = product(jnp.pad(gradient.T, ((0, 1), (0, 0))), rows, ((1,), (0,)))
    return jnp.pad(transposed, ((0, 1), (0, 0))).T[:, :-2]


def matmul(
    inputs: Float[Array, "*rows inputs"], kernel: Float[Array, "inputs outputs"], dtype: DTypeLike, result: DTypeLike = jnp.float32
) -> Float[Array, "*rows outputs"]:
    """Return the product of inputs [..., I] and kernel [I, O] in `dtype`, accumulated in float32 and returned as `result`."""
    outputs: Array = _matmul(inputs, kernel, dtype, result)
    return outputs


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _matmul(inputs: Array, kernel: Array, dtype: DTypeLike, result: DTypeLike) -> Array:
    return _matmul_forward(inputs, kernel, dtype, result)[0]


def _matmul_forward(inputs: Array, kernel: Array, dtype: DTypeLike, result: DTypeLike) -> tuple[Array, tuple]:
    rows = inputs.astype(dtype).reshape(-1, inputs.shape[-1])
    outputs = product(rows, kernel.astype(dtype), ((1,), (0,)), result)
    # An empty array carries the input's precision to the backward pass.
    return outputs.reshape(*inputs.shape[:-1], -1), (rows, kernel, jnp.zeros((0,), inputs.dtype))


def _matmul_backward(dtype: DTypeLike, result: DTypeLike, saved: tuple, gradient: Array) -> tuple[Array, Array]:
    rows, kernel, like = saved
    flat = gradient.astype(dtype).reshape(-1, gradient.shape[-1])
    to_inputs = product(flat, kernel.astype(dtype), ((1,), (1,)), like.dtype)
    to_kernel = transposed_product(rows, flat)
    return to_inputs.reshape(*gradient.shape[:-1], -1), to_kernel.astype(kernel.dtype)


_matmul.defvjp(_matmul_forward, _matmul_backward)


class DenseParameters(nn.Module):
    """Create the parameters of a dense layer: kernel [inputs, features] from N(0, initializer_range), bias [features] zero."""

    inputs: int
    features: int
    initializer_range: float = 0.02

    @nn.compact
    def __call__(self) -> tuple[Float[Array, "inputs features"], Float[Array, " features"]]:
        """Return the kernel and the bias."""
        kernel = self.param("kernel", nn.initializers.normal(self.initializer_range), (self.inputs, self.features))
        return kernel, self.param("bias", nn.initializers.zeros, (self.features,))


def layer_norm(
    inputs: Float[Array, "*rows width"], scale: Float[Array, " width"], bias: Float[Array, " width"], epsilon: float
) -> Float[Array, "*rows width"]:
    """Normalise the last axis in float32, then apply `scale` and `bias`."""
    centred = inputs - inputs.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + epsilon) * scale + bias


class LayerNorm(nn.Module):
    """Apply `layer_norm` with its parameters: a scale and, with `use_bias`, a bias."""

    epsilon: float
    use_bias: bool = True

    @nn.compact
    def __call__(self, inputs: Float[Array, "*rows width"]) -> Float[Array, "*rows width"]:
        """Return the normalised inputs, in their precision."""
        scale = self.param("scale", nn.initializers.ones, (inputs.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (inputs.shape[-1],)) if self.use_bias else jnp.zeros(inputs.shape[-1])
        return layer_norm(inputs.astype(jnp.float32), scale, bias, self.epsilon).astype(inputs.dtype)
