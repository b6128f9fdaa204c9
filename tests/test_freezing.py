"""`train.last_layers`: the other layers stay bit for bit, and cost neither a backward pass nor memory of the optimiser."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.config import Config, Data, Encoder, Train, Words, check
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.formats.run_dir import averaged
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.crops import Crops
from jax_sentemb.methods.distillation import TEACHER, Distillation
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.sct import SCT
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.modern_bert import ModernBert, ModernBertConfig
from jax_sentemb.models.mpnet import MPNet
from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
from jax_sentemb.training.setup import check_last_layers
from jax_sentemb.training.step import create_state, loss_and_gradients, make_step, split_frozen
from jax_sentemb.types import Batch
from tests.tiny_models import bert_config

CONFIG = bert_config(
    vocab_size=60, hidden_size=32, num_hidden_layers=4, intermediate_size=64, max_position_embeddings=16, initializer_range=0.02
)
MODERN = ModernBertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64, max_position_embeddings=16,
    pad_token_id=0,
)  # fmt: skip
BERT = Bert(CONFIG, jnp.float32, 0.1, last_layers=1)
SHALLOW = Bert(bert_config(vocab_size=60, num_hidden_layers=2, max_position_embeddings=16), jnp.float32, 0.1, last_layers=1)
MESH = make_mesh(8, jax.devices()[:1])
METHODS = {
    "queue": SimCSE(momentum=Momentum(queue_size=16), mlm_weight=0.1, rank_consistency=1.0, anchor=0.1),
    "two encoders": ContrastiveTension(form="in_batch"),
    "masked": MaskedLM(),
    "two queues": SCT(queue_size=16),
    "two texts": Crops(anchor=0.1),
    "decoder": TSDAE(),
    "teacher": Distillation(congen=1.0, rank=1.0, queue_size=16, anchor=0.1),
}


def batch(number=0):
    random = np.random.default_rng(number)
    mask = np.arange(12) < random.integers(4, 13, (8, 1))
    return Batch(np.where(mask, random.integers(5, 60, mask.shape), 0).astype(np.int32), mask, row=np.arange(8, dtype=np.int32))


def batch_for(method, number):
    """A batch with what the method reads: second texts and labels of pairs, or vectors of a teacher."""
    found = batch(number)
    if isinstance(method, Crops | TSDAE):
        tokens, mask = (np.stack([values, values], axis=1) for values in (found.tokens, found.mask))
        return found._replace(tokens=tokens, mask=mask, label=3 * np.arange(8, dtype=np.float32))
    return found._replace(label=normal(number, 8, 5)) if isinstance(method, Distillation) else found


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def optimizer():
    return optax.adamw(1e-2, weight_decay=0.1)


def same(first, second):
    return all(np.array_equal(one, other) for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


# Layers that differ are never scanned: see test_families.py.
@pytest.mark.parametrize(("make", "scan"), [(Bert, False), (Bert, True), (MPNet, False), (MPNet, True), (ModernBert, False)])
def test_the_gradient_of_the_last_layers_is_that_of_full_training(make, scan):
    config = MODERN if make is ModernBert else CONFIG
    full, method = make(config, scan=scan), SimCSE(pooling="first_last")
    state = create_state(method, full, optimizer(), {}, 0, MESH)
    gradients = {}
    for count in (0, 2, 4):
        encoder = full.clone(last_layers=count)
        gradients[count] = jax.jit(
            lambda state, encoder=encoder: loss_and_gradients(method, encoder, state, (batch(),), jax.random.key(1))
        )(state)[3]
    layers = {f"layer_{number}" for number in range(4)}
    after = {"final_norm"} & gradients[0]["encoder"].keys()
    assert gradients[2]["encoder"].keys() == {"layer_2", "layer_3"} | after
    assert gradients[4]["encoder"].keys() == layers | after
    assert gradients[2]["head"].keys() == gradients[0]["head"].keys()
    for count in (2, 4):
        for name, part in gradients[count]["encoder"].items():
            for one, other in zip(jax.tree.leaves(part), jax.tree.leaves(gradients[0]["encoder"][name]), strict=True):
                # Layer 1 has a gradient from the first-last pooling too.
                np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-5, err_msg=f"{count} {name}")


def test_the_encoder_itself_stops_the_gradient():
    state = create_state(SimCSE(), BERT, optimizer(), {}, 0, MESH)

    def loss(params):
        return BERT.apply({"params": params}, batch().rows).hidden[-1].sum()

    gradients = jax.grad(loss)(state.params["encoder"])
    moved = {name for name, part in gradients.items() if any(np.any(leaf) for leaf in jax.tree.leaves(part))}
    assert moved == {"layer_3"}


@pytest.mark.parametrize("name", METHODS)
def test_frozen_weights_keep_every_bit_and_have_no_state(name):
    method = METHODS[name]
    loaded = {TEACHER: {"vectors": normal(9, 16, 5), "rows": np.arange(16, dtype=np.int32)}}
    state = create_state(method, SHALLOW, optimizer(), loaded if isinstance(method, Distillation) else {}, 0, MESH)
    before = jax.device_get((state.params, state.ema_params))
    step = make_step(method, SHALLOW, optimizer(), MESH)
    for number in range(3):
        state, metrics = step(state, shard_batch(batch_for(method, number), MESH))
        assert np.isfinite([*metrics.values()]).all()
    for part in method.encoder_parts:
        for layer in ("embeddings", "layer_0"):
            assert same(before[0][part][layer], state.params[part][layer]), f"{part} {layer}"
        assert not same(before[0][part]["layer_1"], state.params[part]["layer_1"])
    if state.ema_params is not None:
        assert same(before[1]["layer_0"], state.ema_params["layer_0"])
        assert not same(before[1]["layer_1"], state.ema_params["layer_1"])
    moments = optax.tree.get(state.opt_state, "mu")
    assert all(moments[part].keys() == {"layer_1"} for part in method.encoder_parts)
    kept = split_frozen(method, SHALLOW, before[0])[0]
    assert sum(leaf.size for leaf in jax.tree.leaves(moments)) == sum(leaf.size for leaf in jax.tree.leaves(kept))
    mixed = averaged(state.params, {"encoder": before[0]["encoder"]}, 0.3)  # train.average_with_start
    assert same(mixed["encoder"]["layer_0"], before[0]["encoder"]["layer_0"])
    for one, start, trained in zip(
        *map(jax.tree.leaves, (mixed["encoder"], before[0]["encoder"], state.params["encoder"])), strict=True
    ):
        np.testing.assert_allclose(one, 0.3 * start + 0.7 * trained, atol=1e-6)
    assert all(mixed[part] is state.params[part] for part in mixed if part != "encoder")


def cost(encoder):
    method = SimCSE(head=False)
    state = create_state(method, encoder, optax.sgd(0.1), {}, 0, MESH)
    return (
        make_step(method, encoder, optax.sgd(0.1), MESH).lower(state, shard_batch(batch(), MESH)).compile().cost_analysis()["flops"]
    )


def test_there_is_no_backward_pass_of_frozen_layers():
    full = cost(Bert(CONFIG, jnp.float32, 0.0))
    last = cost(Bert(CONFIG, jnp.float32, 0.0, last_layers=1))
    # A forward pass of 4 layers, and a backward pass, twice as long, of 4 or of 1: 12 or 6. The last layer reads one token only.
    assert last < 0.6 * full


@pytest.mark.parametrize(("devices", "chunk"), [(8, 0), (1, 2)])
def test_devices_and_cached_gradients_change_nothing(eight_devices, devices, chunk):
    method = METHODS["queue"]
    losses = {}
    for count, size in ((1, 0), (devices, chunk)):
        mesh = make_mesh(8, eight_devices[:count], fsdp=2 if count == 8 else 1)
        state = create_state(method, BERT, optimizer(), {}, 0, mesh)
        step = make_step(method, BERT, optimizer(), mesh, size, fsdp_sharding(mesh, state))
        frozen = jax.device_get(state.params["encoder"]["layer_2"])
        losses[count, size] = []
        for number in range(3):
            state, metrics = step(state, shard_batch(batch(number), mesh))
            losses[count, size].append(float(metrics["loss"]))
        assert same(frozen, state.params["encoder"]["layer_2"])
    np.testing.assert_allclose(losses[devices, chunk], losses[1, 0], rtol=1e-5)


def test_a_checkpoint_continues_to_the_same_bits(tmp_path):
    method = METHODS["queue"]
    step, fresh = make_step(method, BERT, optimizer(), MESH), lambda: create_state(method, BERT, optimizer(), {}, 0, MESH)
    state, _ = step(fresh(), shard_batch(batch(0), MESH))
    checkpoints = Checkpoints(tmp_path, {"seed": 0})
    checkpoints.save(1, state, {})
    checkpoints.wait()
    straight, _ = step(state, shard_batch(batch(1), MESH))
    restored, _ = Checkpoints(tmp_path, {"seed": 0}).restore(fresh())
    assert same(straight, step(restored, shard_batch(batch(1), MESH))[0])


def test_an_average_with_the_start_keeps_frozen_bits():
    random = np.random.default_rng(0)
    start = {"encoder": {"layer_0": random.normal(size=1000).astype(np.float32), "layer_1": np.zeros(3, np.float32)}}
    trained = {"encoder": {**start["encoder"], "layer_1": np.ones(3, np.float32)}}
    found = averaged(trained, start, 0.3)
    assert same(found["encoder"]["layer_0"], start["encoder"]["layer_0"])
    np.testing.assert_allclose(found["encoder"]["layer_1"], 0.7, rtol=1e-6)


def config(count, method=None, encoder=None):
    return Config(method or SimCSE(), Data("text.txt"), encoder or Encoder("bert"), train=Train(last_layers=count))


@pytest.mark.parametrize(
    ("method", "count", "says"),
    [
        (SimCSE(), 5, r"^train\.last_layers=5: the encoder has 4 layers; give at most 4$"),
        (SimCSE(ami=AttentionMI(layers=(1, 2))), 2, r"last_layers=2: all layers of attention .* are frozen \(1, 2\); train more"),
    ],
)
def test_what_cannot_be_trained_is_an_error(method, count, says):
    with pytest.raises(ConfigError, match=says):
        check_last_layers(config(count, method), CONFIG)
    check_last_layers(config(3, method), CONFIG)
    check_last_layers(dataclasses.replace(config(0, method)), CONFIG)


def test_a_new_encoder_and_word_vectors_have_no_last_layers():
    with pytest.raises(ConfigError, match=r"last_layers needs weights to start from"):
        check(config(1, encoder=Encoder()))
    with pytest.raises(ConfigError, match=r"last_layers=1: word vectors have no layers; remove it"):
        check(config(1, encoder=Words("glove.txt")))
