"""The attention kernel, interpreted, against plain attention; test_plan (nightly) compiles it for TPUs and GPUs."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, Mesh

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.models.attention import MAX_POSITIONS, AttentionDropout, Capture, attend, counter_strides
from jax_sentemb.models.attention_kernel import KernelPlan, _attention, check_sizes
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.layers import row_key
from jax_sentemb.models.self_attention import kernel_problem
from jax_sentemb.recipes import read_config
from jax_sentemb.training import setup
from jax_sentemb.training.step import create_state
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

H100, V5E = AbstractDevice("NVIDIA H100", None, "gpu"), AbstractDevice("TPU v5 lite", 1, "tpu")
TRITON_IS_DEPRECATED = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")  # JAX 0.11
STRIDES = counter_strides(MAX_POSITIONS)
LENGTHS = np.array([12, 7, 3, 1, 12, 5, 9, 2])
SMALL = bert_config(vocab_size=50, hidden_size=32, num_hidden_layers=3, max_position_embeddings=16, initializer_range=0.02)


def mesh():
    return Mesh(np.array(jax.devices()).reshape(-1, 1), ("data", "fsdp"))


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(("heads", "size", "gpu"), [(2, 16, True), (2, 16, False), (4, 64, False)], ids=["gpu", "whole", "lanes"])
def test_context_and_gradients_are_those_of_plain_attention(rate, heads, size, gpu):
    rng = np.random.default_rng(0)
    states = [jnp.array(rng.normal(size=(8, 12, heads * size)), jnp.float32) for _ in range(4)]
    mask, seeds = jnp.arange(12) < LENGTHS[:, None], jnp.arange(8, dtype=jnp.uint32)

    def split(flat):
        return flat.reshape(8, 12, heads, size).swapaxes(1, 2)

    @jax.jit
    def both(query, key, value, gradient):
        def plain(*arrays):
            context, _ = attend(*map(split, arrays), mask, AttentionDropout(seeds, rate, 7))
            return context.swapaxes(1, 2).reshape(query.shape)

        def kernel(*arrays):
            return _attention(KernelPlan(size, rate, STRIDES, gpu, True), *arrays, mask, row_key(seeds, 7))

        found = [jax.vjp(function, query, key, value) for function in (plain, kernel)]
        return [(context, *back(gradient)) for context, back in found]

    for expected, found in zip(*both(*states), strict=True):
        # Sums of at most 64 products of numbers of size 1 in float32.
        np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(np.float32).eps)


def test_a_bert_with_stacked_layers_on_eight_devices_has_the_same_loss_and_gradients(eight_devices):
    rng = np.random.default_rng(1)
    rows = Rows(jnp.array(rng.integers(0, 50, (8, 12)), jnp.int32), jnp.arange(12) < jnp.array(LENGTHS)[:, None])
    place = jnp.zeros((8, 2, 3), jnp.int32)

    def read(number, attention):
        return jnp.where(attention.kept_at(place, place), attention.log_probability_at(place, place), 0.5)

    def compute(**options):
        """Loss, of states and sampled attention, and its gradients."""
        encoder = Bert(SMALL, dropout=0.2, **options)

        def loss(params):
            seeds = jnp.arange(8, dtype=jnp.uint32)
            output = encoder.apply(params, rows, seeds, first_token_only=True, capture=Capture((3,), read))
            return (output.hidden[-1] ** 2).mean() + output.observed[3].mean() + (output.hidden[2] ** 2).mean()

        return jax.jit(jax.value_and_grad(loss))(params)

    params = jax.jit(Bert(SMALL).init)(jax.random.key(0), rows)
    expected, found = compute(), compute(fused_attention="pallas", mesh=mesh(), scan=True)
    # Three terms of size 1 to 2, of states behind three layers of sums of 32 products: sqrt(3 * 32) * eps each. The order of the
    # sums depends on the number of threads, too.
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=3 * (3 * 32) ** 0.5 * np.finfo(np.float32).eps)
    for left, right in zip(jax.tree.leaves(expected[1]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-6)


def test_a_new_encoder_is_drawn_for_eight_devices(eight_devices):
    plain, kernel = (
        create_state(SimCSE(), Bert(SMALL, **options), optax.sgd(0.1), {}, 0, mesh()).params
        for options in ({}, {"fused_attention": "pallas", "mesh": mesh()})
    )
    jax.tree.map(np.testing.assert_array_equal, kernel, plain)


@TRITON_IS_DEPRECATED
def test_its_program_is_lowered_for_tpus_and_gpus():
    arrays = [jax.ShapeDtypeStruct((8, 64, 256), jnp.bfloat16)] * 3
    rest = jax.ShapeDtypeStruct((8, 64), jnp.bool_), jax.ShapeDtypeStruct((8,), jnp.uint32)
    for platform, device, name in (
        ("tpu", V5E, "tpu_custom_call"),
        ("cuda", H100, "triton"),
    ):
        plan = KernelPlan(64, 0.1, STRIDES, platform == "cuda", False)

        def loss(*inputs, plan=plan):
            return (_attention(plan, *inputs).astype(jnp.float32) ** 2).sum()  # so that the context itself is needed

        with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):  # JAX 0.11 asks which GPU it is
            text = jax.jit(jax.grad(loss, (0, 1, 2))).trace(*arrays, *rest).lower(lowering_platforms=(platform,)).as_text()
        assert text.count(name) >= 2, platform


@pytest.mark.parametrize(("platform", "width", "size"), [("tpu", 513, 64), ("gpu", 129, 64), ("gpu", 64, 48), ("gpu", 64, 8)])
def test_sizes_that_do_not_fit_are_refused(platform, width, size):
    with pytest.raises(ConfigError, match=r"train.fused_attention=pallas takes"):
        check_sizes(platform, width, size)


@pytest.mark.parametrize(("platform", "width", "size"), [("tpu", 512, 48), ("gpu", 128, 64), ("gpu", 5, 16)])
def test_sizes_that_fit_are_taken(platform, width, size):
    check_sizes(platform, width, size)


@TRITON_IS_DEPRECATED
@pytest.mark.parametrize("device", [H100, V5E], ids=["gpu", "tpu"])
def test_this_jax_has_the_kernel(device):
    assert kernel_problem(device) == ""


def module_is_missing(name):
    def break_jax(monkeypatch):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delattr(name, raising=False)  # an earlier import
        monkeypatch.delitem(sys.modules, "jax_sentemb.models.attention_kernel")

    return break_jax


def backend_is_missing(monkeypatch):
    def pallas_call(*_, **__):
        raise ValueError("Cannot lower pallas_call on platform: gpu.\nInstall another JAX.")

    monkeypatch.setattr("jax.experimental.pallas.pallas_call", pallas_call)


@pytest.mark.parametrize(
    ("break_jax", "device", "reason"),
    [
        (module_is_missing("jax.experimental.pallas.triton"), H100, "jax.experimental.pallas.triton"),
        (module_is_missing("jax.experimental.pallas"), V5E, "pallas"),
        (backend_is_missing, H100, "(Cannot lower pallas_call on platform: gpu.)"),
    ],
    ids=["triton", "pallas", "backend"],
)
def test_a_run_on_a_jax_without_the_kernel_computes_plain_attention_and_warns_once(break_jax, device, reason, monkeypatch, capsys):
    config, encoders = read_config("simcse"), {}
    break_jax(monkeypatch)
    setup._pallas_or_plain.cache_clear()
    target = SimpleNamespace(
        devices=np.array([SimpleNamespace(platform=device.platform)], object),
        abstract_mesh=AbstractMesh((), (), abstract_device=device),
    )
    for kernel in ("pallas", "pallas", ""):
        config.train.fused_attention = kernel
        encoders[kernel] = setup.run_encoder(config, SMALL, target)
    setup._pallas_or_plain.cache_clear()
    assert encoders["pallas"] == encoders[""]
    assert (
        encoders["pallas"].attention_memory().dropout(None, 0.1, 0, 16).rate == 0.1
    )  # plain attention drops weights, "xla" does not
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: train.fused_attention=pallas: JAX {jax.__version__} cannot lower the kernel for")
    assert reason in warning
    assert "computing plain attention" in warning
