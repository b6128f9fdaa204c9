"""Define the train state, the loss and gradients of a batch, and the jitted train step of all methods."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Key, PyTree

from jax_sentemb.losses import Scalar, merge_microbatches, split_microbatches
from jax_sentemb.methods.anchor import ANCHOR, anchored
from jax_sentemb.methods.base import Carry, Encoded, Method, Objective, Seeds
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.freezing import split_layers
from jax_sentemb.models.word_vectors import FROZEN
from jax_sentemb.parallel import batch_sharding, compiler_options, fsdp_sharding, is_split, replicated
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

Parts = Batch | tuple[Batch, ...]  # a batch, or the parts that it is split into (Batches.parts)
Metrics = dict[str, Scalar]
Step = Callable[[TrainState, Parts], tuple[TrainState, Metrics]]
Encode = Callable[[Params, Batch, Seeds], Encoded]


def create_state(
    method: Method,
    encoder: TokenEncoder,
    optimizer: optax.GradientTransformation,
    loaded: Params,
    seed: int,
    mesh: Mesh,
) -> TrainState:
    """Return the state at step 0, on the devices of `mesh`.

    `loaded` has parameters by part ("encoder", "cnn"...) from a model directory; {} for a new model.
    """
    run_key, encoder_key, method_key = jax.random.split(jax.random.key(seed), 3)
    inputs = _with_encoder(encoder, loaded, encoder_key), run_key, method_key
    create = make_creator(method, encoder, optimizer)
    shardings = fsdp_sharding(mesh, jax.eval_shape(create, *inputs))
    return jax.jit(create, out_shardings=shardings)(*inputs)


def state_shapes(
    method: Method, encoder: TokenEncoder, optimizer: optax.GradientTransformation, loaded: Params, mesh: Mesh
) -> TrainState:
    """Return the state of `create_state` as shapes with their shardings. Nothing is computed, and `loaded` may also be shapes."""
    create = make_creator(method, encoder, optimizer)
    shapes = jax.eval_shape(lambda loaded, key: create(_with_encoder(encoder, loaded, key), key, key), loaded, jax.random.key(0))
    shardings = fsdp_sharding(mesh, shapes)
    return jax.tree.map(lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings)


def _with_encoder(encoder: TokenEncoder, loaded: Params, key: Key[jax.Array, ""]) -> Params:
    """Return the parameters with those of an encoder, loaded or drawn."""
    if "encoder" in loaded or FROZEN in loaded:
        return loaded
    assert isinstance(encoder, nn.Module), "word vectors are always loaded"
    plain = encoder.clone(fused_attention="", mesh=None)  # the same parameters; a kernel on several devices does not accept one row
    return {**loaded, "encoder": _new_parameters(plain, key)}


@functools.partial(jax.jit, static_argnums=0)
def _new_parameters(encoder: nn.Module, key: Key[jax.Array, ""]) -> Params:
    """Return the parameters of a new encoder.

    This is a separate program that methods and seeds share, because compiling it is slow.
    """
    blank = Rows(jnp.zeros((1, 3), jnp.int32), jnp.ones((1, 3), bool))
    return dict(encoder.init(key, blank)["params"])


def make_creator(
    method: Method, encoder: TokenEncoder, optimizer: optax.GradientTransformation
) -> Callable[[Params, Key[Array, ""], Key[Array, ""]], TrainState]:
    """Return the function from (parameters with those of the encoder, the run's key, the method's key) to the state at step 0."""
    method = anchored(method)

    def create(loaded: Params, run_key: Key[Array, ""], method_key: Key[Array, ""]) -> TrainState:
        learned = method.init(encoder, loaded, method_key)
        if DENSE in loaded and method.dense is None:
            learned = learned._replace(params={**learned.params, DENSE: loaded[DENSE]})
        return TrainState(
            learned.params,
            learned.ema_params,
            learned.queue,
            optimizer.init(split_frozen(method, encoder, learned.params)[0]),
            jax.random.key_data(run_key),
            jnp.zeros((), jnp.int32),
            learned.queue_rows,
        )

    return create


def make_step(
    method: Method,
    encoder: TokenEncoder,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    chunk: int = 0,
    shardings: PyTree | None = None,
) -> Step:
    """Return the jitted train step: (state, batch) -> (state, metrics). The state is donated.

    `chunk` > 0 caches gradients (Gao et al. 2021): sentences are encoded `chunk` at a time without keeping activations. The
    objective is differentiated with respect to the encodings, and a second pass computes the gradients of the parameters from that.
    Dropout depends on the sentence, so loss and gradients equal those of the whole batch. The same holds for a batch in parts of
    different widths; `chunk` divides the size of each part.

    Args:
        method: The method.
        encoder: The encoder.
        optimizer: The optimiser.
        mesh: The devices.
        chunk: Sentences that are encoded at once; 0: all.
        shardings: The shardings of the arrays of the state. None: each device has the whole state.
    """
    method = anchored(method)

    def step(state: TrainState, batch: Parts) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
        used = gather(state._replace(opt_state=()))
        loss, metrics, carry, gradients = loss_and_gradients(method, encoder, used, parts_of(batch), key, chunk)
        gradients = scatter(gradients)
        trained, frozen = split_frozen(method, encoder, state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, trained)
        params: Any = optax.apply_updates(trained, updates)
        state = method.post_update(state._replace(params=join_frozen(params, frozen), opt_state=opt_state), carry)
        metrics = {"loss": loss, "grad_norm": optax.tree.norm(gradients), **metrics}
        return state._replace(step=state.step + 1), metrics

    whole = replicated(mesh)
    gather, scatter = _fsdp(mesh, shardings, lambda params: split_frozen(method, encoder, params)[0])
    shardings = shardings or whole
    options = compiler_options(mesh.devices.flat[0].platform)
    in_shardings, out_shardings = (shardings, batch_sharding(mesh)), (shardings, whole)
    return jax.jit(step, donate_argnums=0, in_shardings=in_shardings, out_shardings=out_shardings, compiler_options=options)


def _fsdp(
    mesh: Mesh, shardings: PyTree | None, trained: Callable[[Params], Params]
) -> tuple[Callable[[PyTree], PyTree], Callable[[Params], Params]]:
    """Return how a step gathers the split arrays of a state, once, and scatters gradients to the devices that update them.

    Without these two functions the compiler splits products along the split parameters, and sends activations between devices
    instead.
    """
    if shardings is None or not is_split(mesh):
        return lambda state: state, lambda gradients: gradients

    def gather(arrays: PyTree) -> PyTree:
        return jax.lax.with_sharding_constraint(arrays, replicated(mesh))

    def scatter(gradients: Params) -> Params:
        own_shardings = trained(shardings.params)
        return jax.lax.with_sharding_constraint(gather(gradients), own_shardings)  # a sum over devices; each device keeps its part

    return gather, scatter


def parts_of(batch: Parts) -> tuple[Batch, ...]:
    """Return the parts of a batch; a whole batch is one part."""
    return (batch,) if isinstance(batch, Batch) else batch


def make_measure(method: Method, encoder: TokenEncoder, mesh: Mesh) -> Callable[[TrainState, Parts], Metrics]:
    """Return the jitted validation step with a fixed RNG key: (state, batch) -> loss and metrics."""
    method = anchored(method)

    def measure(state: TrainState, batch: Parts) -> Metrics:
        state = state._replace(step=jnp.zeros_like(state.step))
        # The rows of a queue are numbers among the sentences of training.
        parts = tuple(part._replace(row=None) for part in parts_of(batch))
        encoded = encode_parts(method, encoder, state.params, state, parts, jax.random.wrap_key_data(state.rng))
        loss, (metrics, _) = method.objective(state.params, state, encoded)
        return {"loss": loss, **metrics}

    options = compiler_options(mesh.devices.flat[0].platform)
    return jax.jit(measure, in_shardings=(None, batch_sharding(mesh)), out_shardings=replicated(mesh), compiler_options=options)


def split_frozen(method: Method, encoder: TokenEncoder, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the trained and the frozen parameters, or arrays that belong to each; `join_frozen` joins them again.

    Frozen are word vectors that are not trained, the start of an anchor, the dense layers of the start (unless the method trains
    its own), and the lower layers of each encoder if `encoder.last_layers` is set.
    """
    names = {FROZEN, ANCHOR} | ({DENSE} if method.dense is None else set())
    frozen = {name: part for name, part in params.items() if name in names}
    trained = {name: part for name, part in params.items() if name not in frozen}
    if encoder.last_layers:
        for name in trained.keys() & set(method.encoder_parts):
            trained[name], frozen[name] = split_layers(encoder, trained[name])
    return trained, frozen


def join_frozen(trained: Params, frozen: Params) -> Params:
    """Return the parameters that `split_frozen` split."""
    return trained | {name: {**trained.get(name, {}), **part} for name, part in frozen.items()}


def encode_parts(
    method: Method, encoder: TokenEncoder, params: Params, state: TrainState, parts: tuple[Batch, ...], key: Key[Array, ""]
) -> Encoded:
    """Encode a batch with `method`, in the batch's order; the seeds of the sentences are drawn from `key`."""
    seeds = _seeds(parts, key)
    encoded = [method.encode(encoder, params, state, part, part_seeds) for part, part_seeds in zip(parts, seeds, strict=True)]
    return _join_parts(parts, encoded)


def loss_and_gradients(
    method: Method, encoder: TokenEncoder, state: TrainState, parts: tuple[Batch, ...], key: Key[Array, ""], chunk: int = 0
) -> tuple[Scalar, Metrics, Carry, Params]:
    """Return loss, metrics, carry, and the gradients of the trained parameters; `chunk` as in `make_step`."""
    trained, frozen = split_frozen(method, encoder, state.params)
    if chunk and chunk < sum(len(part.tokens) for part in parts):

        def encode(trained: Params, part: Batch, seeds: Seeds) -> Encoded:
            return method.encode(encoder, join_frozen(trained, frozen), state, part, seeds)

        split = trained, frozen
        return _cached_gradients(method, encode, state, split, parts, _seeds(parts, key), chunk)

    def loss_of(trained: Params) -> Objective:
        params = join_frozen(trained, frozen)
        return method.objective(params, state, encode_parts(method, encoder, params, state, parts, key))

    (loss, (metrics, carry)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
    return loss, metrics, carry, gradients


def _cached_gradients(
    method: Method,
    encode: Encode,
    state: TrainState,
    split: tuple[Params, Params],
    parts: tuple[Batch, ...],
    seeds: list[Seeds],
    chunk: int,
) -> tuple[Scalar, Metrics, Carry, Params]:
    """Return the same as `loss_and_gradients`, with cached gradients."""
    trained, frozen = split
    chunks = [split_microbatches(part, chunk) for part in zip(parts, seeds, strict=True)]
    encoded = [merge_microbatches(jax.lax.map(lambda inputs: encode(trained, *inputs), part)) for part in chunks]

    def loss_of(trained: Params, encoded: list[PyTree]) -> Objective:
        return method.objective(join_frozen(trained, frozen), state, _join_parts(parts, encoded))

    (loss, (metrics, carry)), (gradients, to_encoded) = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(trained, encoded)

    def add(total: Params, inputs: PyTree) -> tuple[Params, None]:
        (batch, chunk_seeds), cotangent = inputs
        _, pull_back = jax.vjp(lambda trained: encode(trained, batch, chunk_seeds), trained)
        return jax.tree.map(jnp.add, total, pull_back(cotangent)[0]), None

    for part, cotangents in zip(chunks, to_encoded, strict=True):
        gradients, _ = jax.lax.scan(add, gradients, (part, split_microbatches(cotangents, chunk)))
    return loss, metrics, carry, gradients


def _seeds(parts: tuple[Batch, ...], key: Key[Array, ""]) -> list[Seeds]:
    """Return for each part the seeds of its sentences, uint32: those that they have in the whole batch."""
    seeds = jax.random.bits(key, (sum(len(part.tokens) for part in parts),), jnp.uint32)
    return [seeds if part.position is None else seeds[part.position] for part in parts]


def _join_parts(parts: tuple[Batch, ...], encoded: list[PyTree]) -> Encoded:
    """Join the encodings of the parts, in the order of the whole batch; narrower arrays are padded with zeros."""
    if len(parts) == 1:
        return encoded[0]
    order = jnp.argsort(jnp.concatenate([part.position for part in parts if part.position is not None]))

    def join(*leaves: Array) -> Array:
        full_shape = [max(sizes) for sizes in zip(*(leaf.shape[1:] for leaf in leaves), strict=True)]
        padded = [
            jnp.pad(leaf, [(0, 0), *((0, size - length) for size, length in zip(full_shape, leaf.shape[1:], strict=True))])
            for leaf in leaves
        ]
        return jnp.concatenate(padded)[order]

    return jax.tree.map(join, *encoded)
