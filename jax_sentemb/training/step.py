"""The train state and the jitted train step. No method has its own."""

import signal
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jax_sentemb.methods.base import Method
from jax_sentemb.models.word_vectors import FROZEN
from jax_sentemb.parallel import batch_sharding, fsdp_sharding, replicated
from jax_sentemb.training.gradients import encode_parts, loss_and_gradients, split_frozen
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

Parts = Batch | tuple[Batch, ...]  # a batch, or the parts that it is split into (Batches.parts)
Step = Callable[[TrainState, Parts], tuple[TrainState, dict[str, Array]]]


def create_state(
    method: Method,
    encoder: Any,
    optimizer: optax.GradientTransformation,
    loaded: Params,
    seed: int,
    mesh: Mesh,
) -> TrainState:
    """The state at step 0 on every device of `mesh`.

    `loaded`: parameters by part ("encoder", "cnn"...) of a model directory, {} for a start from scratch.
    """

    def create(loaded: Params) -> TrainState:
        run_key, encoder_key, method_key = jax.random.split(jax.random.key(seed), 3)
        if "encoder" not in loaded and FROZEN not in loaded:
            blank = Rows(jnp.zeros((1, 3), jnp.int32), jnp.ones((1, 3), bool))
            loaded = {**loaded, "encoder": encoder.init(encoder_key, blank)["params"]}
        learned = method.init(encoder, loaded, method_key)
        return TrainState(
            learned.params,
            learned.ema_params,
            learned.queue,
            optimizer.init(split_frozen(learned.params)[0]),
            jax.random.key_data(run_key),
            jnp.zeros((), jnp.int32),
            learned.queue_rows,
        )

    shardings = fsdp_sharding(mesh, jax.eval_shape(create, loaded))
    return jax.jit(create, out_shardings=shardings)(loaded)


def make_step(
    method: Method, encoder: Any, optimizer: optax.GradientTransformation, mesh: Mesh, chunk: int = 0, shardings: Any = None
) -> Step:
    """The jitted train step: (state, batch) -> (state, metrics). The state is donated, and lies as `shardings` say (none: whole).

    chunk > 0 caches gradients: sentences are encoded `chunk` at a time without keeping activations, the objective is
    differentiated with respect to what was encoded, and a second pass carries that into the parameters (Gao et al. 2021). Dropout
    belongs to the sentence, so loss and gradients are those of the whole batch. The same holds for a batch that comes in parts of
    different widths; `chunk` divides the size of each.
    """

    def step(state: TrainState, batch: Parts) -> tuple[TrainState, dict[str, Array]]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
        loss, metrics, carry, gradients = loss_and_gradients(method, encoder, state, parts_of(batch), key, chunk)
        trained, frozen = split_frozen(state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, trained)
        params: Params = optax.apply_updates(trained, updates)
        params = {**params, **frozen}
        state = method.post_update(state._replace(params=params, opt_state=opt_state), carry)
        metrics = {"loss": loss, "grad_norm": optax.tree.norm(gradients), **metrics}
        return state._replace(step=state.step + 1), metrics

    whole = replicated(mesh)
    shardings = shardings or whole
    return jax.jit(step, donate_argnums=0, in_shardings=(shardings, batch_sharding(mesh)), out_shardings=(shardings, whole))


def parts_of(batch: Parts) -> tuple[Batch, ...]:
    """The parts of a batch, one if it is whole."""
    return (batch,) if isinstance(batch, Batch) else batch


def make_measure(method: Method, encoder: Any, mesh: Mesh) -> Callable[[TrainState, Parts], dict[str, Array]]:
    """The jitted (state, batch) -> loss and metrics of a batch that is not trained on; what is random in it is always the same."""

    def measure(state: TrainState, batch: Parts) -> dict[str, Array]:
        state = state._replace(step=jnp.zeros_like(state.step))
        encoded = encode_parts(method, encoder, state.params, state, parts_of(batch), jax.random.wrap_key_data(state.rng))
        loss, (metrics, _) = method.objective(state.params, state, encoded)
        return {"loss": loss, **metrics}

    return jax.jit(measure, in_shardings=(None, batch_sharding(mesh)), out_shardings=replicated(mesh))


# A terminal that closes sends SIGHUP to what runs in it, which Windows does not know.
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
