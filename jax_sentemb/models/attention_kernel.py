"""Compute the attention of a layer in one kernel (Pallas) for TPUs and NVIDIA GPUs; maps of queries and keys stay on the chip.

The kernel holds the whole map of a head, which suits sentences; long texts need `attend_in_blocks`.

NVIDIA GPUs use Pallas's Triton backend, which JAX 0.11 deprecates. Mosaic GPU cannot lower this kernel (tried with JAX 0.10.2):
"Unimplemented primitive in Pallas Mosaic GPU lowering: dot_general". Its products read 64 rows from swizzled shared memory, which
would be another kernel.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import AbstractDevice, AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.models.attention import NEVER, NORMALIZER_BLOCK, Attention, AttentionDropout, attend_in_blocks, counter_strides
from jax_sentemb.models.layers import counter_step, drop_limit, hash32, row_key
from jax_sentemb.types import Array

LANES = 128  # of a TPU: the heads that share them are in one block
BLOCK_TOKENS = 1024  # of a block on a TPU: more do not fit into memory together with the maps
LONGEST = {"tpu": 512, "gpu": 128}  # tokens of a row whose maps fit the memory of a core
SHORTEST = 16  # of a product on a GPU, whose sizes are powers of two

Part = Float[Array, "tokens size"]
Compute = Callable[..., Part | tuple[Part, ...]]


class KernelPlan(NamedTuple):
    """Compile-time parameters of a kernel."""

    head_size: int
    rate: float  # of dropout
    strides: tuple[int, int, int]  # of its counter: head, query, key
    gpu: bool
    interpret: bool


class Head(NamedTuple):
    """Inputs of the attention of one head of one sentence, in addition to its states."""

    real: Bool[Array, "1 tokens"]
    key_of_row: UInt[Array, "1 1"]  # of the random numbers
    number: Int[Array, ""]


def attend_in_kernel(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    mesh: Mesh,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """Compute `attend` with its dropout in one kernel for each direction; each device of `mesh` computes its rows.

    The context has the precision of `value`. The log-sum-exp that a capture reads is computed separately, in blocks; the compiler
    removes that computation if it is not read. On CPUs the kernel is interpreted, which is for tests.

    Raises:
        ConfigError: Rows are longer than LONGEST, or the size of a head is not a power of two on a GPU.
    """
    rows, heads, width, size = query.shape
    platform = kernel_platform(mesh)
    check_sizes(platform, width, size)
    dropped = dropout.seeds is not None and dropout.rate > 0.0
    plan = KernelPlan(
        size, dropout.rate if dropped else 0.0, counter_strides(dropout.positions), platform == "gpu", platform == "cpu"
    )
    seeds = dropout.seeds if dropout.seeds is not None else jnp.zeros(rows, jnp.uint32)
    by_rows = PartitionSpec(mesh.axis_names)

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=by_rows, out_specs=by_rows, check_vma=False)
    def local(*arrays: Array) -> Array:
        return _attention(plan, *arrays)

    flat = (values.swapaxes(1, 2).reshape(rows, width, heads * size) for values in (query, key, value))
    context = local(*flat, mask, row_key(seeds, dropout.stream)).reshape(rows, width, heads, size).swapaxes(1, 2)
    _, attention = attend_in_blocks(query, key, value, mask, AttentionDropout(), NORMALIZER_BLOCK)
    return context, attention


def kernel_platform(mesh: Mesh) -> str:
    """Return tpu, gpu or cpu."""
    platform = mesh.devices.flat[0].platform
    return "gpu" if platform == "cuda" else platform


def lower_smallest(device: AbstractDevice) -> None:
    """Lower the kernel for one short row; an exception shows that this JAX has no backend for `device`."""
    gpu = device.platform in ("gpu", "cuda")
    plan = KernelPlan(SHORTEST, 0.0, (1, 1, 1), gpu, False)
    states = [jax.ShapeDtypeStruct((1, SHORTEST, SHORTEST), jnp.float32)] * 3
    real, keys = jax.ShapeDtypeStruct((1, SHORTEST), jnp.bool_), jax.ShapeDtypeStruct((1,), jnp.uint32)
    with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        traced = jax.jit(functools.partial(_attention, plan)).trace(*states, real, keys)
        traced.lower(lowering_platforms=("cuda" if gpu else device.platform,))


def check_sizes(platform: str, width: int, head_size: int) -> None:
    """Raise ConfigError for rows or heads that the kernel cannot take."""
    if width > LONGEST.get(platform, width):
        raise ConfigError(
            Setting("train.fused_attention", "pallas"),
            f" takes rows of up to {LONGEST[platform]} tokens on a {platform.upper()}, not {width}: lower ",
            Setting("data.max_seq_length"),
            ", or set ",
            Setting("train.attention_block"),
        )
    if platform == "gpu" and (head_size < SHORTEST or head_size & (head_size - 1)):
        raise ConfigError(
            Setting("train.fused_attention", "pallas"),
            f" takes heads of 16, 32, 64... numbers on a GPU, not {head_size}: leave it out",
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: KernelPlan, query: Array, key: Array, value: Array, real: Array, keys: Array) -> Array:
    return _call(plan, _context, 1, [query, key, value], real, keys)[0]


def _attention_forward(plan: KernelPlan, *arrays: Array) -> tuple[Array, tuple[Array, ...]]:
    return _attention(plan, *arrays), arrays


def _attention_backward(plan: KernelPlan, arrays: tuple[Array, ...], gradient: Array) -> tuple[Array | None, ...]:
    query, key, value, real, keys = arrays
    return (*_call(plan, _gradients, 3, [query, key, value, gradient], real, keys), None, None)


_attention.defvjp(_attention_forward, _attention_backward)


def _call(
    plan: KernelPlan,
    compute: Compute,
    outputs: int,
    states: list[Array],
    real: Bool[Array, "rows tokens"],
    keys: UInt[Array, " rows"],
) -> list[Float[Array, "rows tokens width"]]:
    """Run `compute` for every sentence and head of `states`, each float [R, T, heads * size]."""
    rows, width, features = states[0].shape
    padded, block_rows, lanes = width, 1, plan.head_size
    options: dict[str, Any] = {}
    if plan.gpu:
        import jax.experimental.pallas.triton as triton  # deprecated: a future JAX may lack it, see `kernel_problem`

        padded = max(SHORTEST, pl.next_power_of_2(width))
        states = [jnp.pad(array, ((0, 0), (0, padded - width), (0, 0))) for array in states]
        real = jnp.pad(real, ((0, 0), (0, padded - width)))
        options["compiler_params"] = triton.CompilerParams(num_warps=4 if padded <= 64 else 8, num_stages=1)
    else:
        block_rows = math.gcd(rows, 1 << max(0, (BLOCK_TOKENS // width).bit_length() - 1))
        lanes = LANES if LANES % plan.head_size == 0 and features % LANES == 0 else features
    block = pl.BlockSpec((block_rows, padded, lanes), lambda row, part: (row, 0, part))
    of_row = [pl.BlockSpec((block_rows, 1, size), lambda row, part: (row, 0, 0)) for size in (padded, 1)]
    results = pl.pallas_call(
        functools.partial(_kernel, plan, compute, lanes // plan.head_size, len(states)),
        grid=(rows // block_rows, features // lanes),
        in_specs=[*[block] * len(states), *of_row],
        out_specs=[block] * outputs,
        out_shape=[jax.ShapeDtypeStruct((rows, padded, features), states[0].dtype)] * outputs,
        interpret=plan.interpret,
        **options,
    )(*states, real.astype(jnp.int32)[:, None, :], keys[:, None, None])
    return [array[:, :width] for array in results]


def _kernel(plan: KernelPlan, compute: Compute, heads: int, inputs: int, *refs: Any) -> None:
    """Run `compute` for the sentences and the `heads` of a block; refs: inputs, mask, keys of the rows, outputs."""
    states, real, keys, outputs = refs[:inputs], refs[inputs], refs[inputs + 1], refs[inputs + 2 :]
    first = pl.program_id(1) * heads

    def sentence(row: Int[Array, ""] | int, carry: Int[Array, ""] | int) -> Int[Array, ""] | int:
        for number in range(heads):
            lanes = slice(number * plan.head_size, (number + 1) * plan.head_size)
            parts = [array[row, :, lanes] for array in states]
            results = compute(plan, Head(real[row] != 0, keys[row], first + number), *parts)
            for output, values in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
                output[row, :, lanes] = values.astype(output.dtype)
        return carry

    count = states[0].shape[0]
    if count == 1:
        sentence(0, 0)
    else:
        lax.fori_loop(0, count, sentence, 0)


def _context(plan: KernelPlan, head: Head, query: Part, key: Part, value: Part) -> Part:
    probabilities, factors = _maps(plan, head, query, key)
    return _product((probabilities * factors).astype(value.dtype), value, 1, 0)


def _gradients(plan: KernelPlan, head: Head, query: Part, key: Part, value: Part, gradient: Part) -> tuple[Part, Part, Part]:
    """Return the gradients of query, key and value from that of the context; the map is computed again."""
    probabilities, factors = _maps(plan, head, query, key)
    to_value = _product((probabilities * factors).astype(value.dtype), gradient, 0, 0)
    to_probabilities = _product(gradient, value, 1, 1) * factors
    to_scores = probabilities * (to_probabilities - (to_probabilities * probabilities).sum(-1, keepdims=True))
    to_scores = (jnp.where(head.real, to_scores, 0.0) / plan.head_size**0.5).astype(query.dtype)
    return _product(to_scores, key, 1, 0), _product(to_scores, query, 0, 0), to_value


def _maps(
    plan: KernelPlan, head: Head, query: Part, key: Part
) -> tuple[Float[Array, "tokens tokens"], Float[Array, "tokens tokens"] | float]:
    """Return the attention of one head in float32, and the factors of dropout, whose masks equal those of `attend` bit for bit."""
    scores = jnp.where(head.real, _product(query, key, 1, 1) / plan.head_size**0.5, NEVER)
    exponentials = jnp.exp(scores - scores.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    if not plan.rate:
        return probabilities, 1.0
    positions = head.number, *(lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
    counters = (
        position.astype(jnp.uint32) * counter_step(stride) for position, stride in zip(positions, plan.strides, strict=True)
    )
    is_kept = hash32(head.key_of_row ^ functools.reduce(jnp.add, counters)) >= drop_limit(plan.rate)
    return probabilities, jnp.where(is_kept, 1 / (1 - plan.rate), 0.0)


def _product(left: Array, right: Array, left_axis: int, right_axis: int) -> Float[Array, "_ _"]:
    return lax.dot_general(left, right, (((left_axis,), (right_axis,)), ((), ())), preferred_element_type=jnp.float32)
