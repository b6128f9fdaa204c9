"""The train step: what is updated and measured; batches in parts, on every mesh; and whole steps against PyTorch."""

import copy
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb import config as settings
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import InitialState, Method
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.crops import Crops
from jax_sentemb.methods.distillation import TEACHER, Distillation
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.sct import SCT
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.step import create_state, loss_and_gradients, make_measure, make_step, split_frozen
from jax_sentemb.types import Batch
from tests.tiny_models import bert_config

BATCH = Batch(np.ones((4, 3), np.int32), np.ones((4, 3), bool))
MESH = make_mesh(4, jax.devices()[:1])


class Encoded(NamedTuple):
    value: jax.Array


class OneNumber(Method):
    """loss = 3 w + the step; the seeds and the step that it saw are metrics; `post_update` keeps what it was handed."""

    pooling = "mean"

    def check(self, encoder, batch_size):
        pass

    def init(self, encoder, loaded, key):
        return InitialState({"w": jnp.array([2.0])}, {"w": jnp.zeros(1)})

    def encode(self, encoder, params, state, batch, seeds):
        return Encoded(params["w"] * jnp.ones(4) + 0.0 * seeds)

    def objective(self, params, state, encoded):
        return 3 * encoded.value.mean() + state.step, ({"step": state.step.astype(float)}, encoded.value[0])

    def post_update(self, state, carry):
        return state._replace(ema_params={"w": state.params["w"] + 100 * carry})


@pytest.fixture(scope="module")
def trained():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.5, momentum=0.5))
    encoder = make_encoder(WordsConfig(3, 2))
    state, metrics = create_state(OneNumber(), encoder, optimizer, {FROZEN: {}}, 0, MESH), []
    step = make_step(OneNumber(), encoder, optimizer, MESH)
    for _ in range(3):
        state, found = step(state, BATCH)
        metrics.append({name: float(value) for name, value in found.items()})
    return encoder, state, metrics


def test_metrics_are_of_the_step_before_its_update_and_the_norm_is_that_before_clipping(trained):
    weights = [2.0, 1.5, 0.75]  # updates of 0.5, 0.75, 0.875: momentum goes on from step to step
    for number, (found, weight) in enumerate(zip(trained[2], weights, strict=True)):
        assert found == {"loss": pytest.approx(3 * weight + number), "grad_norm": pytest.approx(3.0), "step": number}


def test_the_method_sees_the_new_parameters_and_its_carry(trained):
    state = trained[1]
    assert int(state.step) == 3
    assert state.params["w"].tolist() == pytest.approx([-0.125])
    assert state.ema_params["w"].tolist() == pytest.approx([-0.125 + 100 * 0.75])


def test_a_measure_is_the_same_at_every_step(trained):
    encoder, state, _ = trained
    measure = make_measure(OneNumber(), encoder, MESH)
    for step in (0, 7):
        found = measure(state._replace(step=jnp.int32(step)), BATCH)
        assert {name: float(value) for name, value in found.items()} == {"loss": pytest.approx(-0.375), "step": 0}


# A batch in parts of different widths has the loss and the gradients of the whole batch

ROWS, SHORT, WIDTH = 16, 6, 12
BERT = Bert(bert_config(), jnp.float32, 0.1)
AMI = AttentionMI(weight=1.0, samples=20, layers=(1,), pairing="heads")
MICSE = SimCSE(temperature=1.0, rank_consistency=1.0, rank_temperature=0.1, ami=AMI, momentum=Momentum(queue_size=24))
IN_PARTS = {
    "miCSE": MICSE,
    "IS-BERT": ISBERT(Convolution(filters=8)),  # token axes come out of `encode`
    "contrastive tension": ContrastiveTension(group=4, dropout=True),  # the order of the batch makes the pairs
    "Mirror-BERT": MirrorBERT(temperature=1.0),  # two texts a sentence
    "Crops": Crops(temperature=1.0),  # two texts, and labels that say which sentences are negatives
    "TSDAE": TSDAE(),  # two texts, of which a decoder writes one
    "SCT": SCT(queue_size=12, reference_temperature=0.2, temperature=0.3),  # two queues
    "distillation": Distillation(congen=1.0, rank=1.0, queue_size=24),  # labels are vectors; a queue of them
    "ConsSent": ConsSent(task="D", k=1, hidden=8, classifier_width=8),  # labels
}


def whole_batch(method, number=0):
    """Half of the sentences fit in SHORT tokens; they stand anywhere."""
    random = np.random.default_rng(number)
    lengths = random.permutation(np.repeat([0, 1], ROWS // 2) * (WIDTH - SHORT) + random.integers(3, SHORT + 1, ROWS))
    mask = np.arange(WIDTH) < lengths[:, None]
    tokens = np.where(mask, random.integers(5, 40, mask.shape), 0).astype(np.int32)
    if isinstance(method, MirrorBERT | Crops | TSDAE):
        tokens, mask = np.stack([tokens, np.where(tokens > 30, 4, tokens)], axis=1), np.stack([mask, mask], axis=1)
    labels = {Crops: random.permutation(ROWS), Distillation: random.normal(size=(ROWS, 5))}
    label = labels.get(type(method), random.integers(0, 2, ROWS)).astype(np.float32)
    return Batch(tokens, mask, label, np.arange(ROWS, dtype=np.int32) + 100 * number)


def parts_of(batch):
    lengths = batch.mask.reshape(ROWS, -1, WIDTH).sum(-1).max(-1)
    halves = np.split(np.argsort(lengths, kind="stable").astype(np.int32), 2)
    return tuple(
        Batch(batch.tokens[half, ..., :width], batch.mask[half, ..., :width], batch.label[half], batch.row[half], half)
        for half, width in zip(halves, (SHORT, WIDTH), strict=True)
    )


def started(method, mesh):
    words = isinstance(method, ConsSent)
    table = {FROZEN: {"vectors": np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), "counts": np.ones(40)}}
    queue = {"vectors": np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32), "rows": np.arange(24, dtype=np.int32)}
    encoder, loaded = WordVectors(WordsConfig(40, 6)) if words else BERT, {}
    if words or isinstance(method, Distillation):
        loaded = table if words else {TEACHER: queue}
    return encoder, create_state(method, encoder, optax.sgd(0.1), loaded, 0, mesh)


def test_a_seed_draws_the_encoder_the_layers_of_the_method_and_the_run_apart_from_others():
    one, same, other = (create_state(SimCSE(), BERT, optax.sgd(0.1), {}, seed, MESH) for seed in (0, 0, 1))
    for part in (lambda state: state.params["encoder"], lambda state: state.params["head"], lambda state: state.rng):
        first, again, others = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(part(s))]) for s in (one, same, other))
        np.testing.assert_array_equal(first, again)
        assert (first != others).any()


def with_full_queue(state):
    if state.queue is None:
        return state
    rows = None if state.queue_rows is None else jnp.arange(24, dtype=jnp.int32)
    return state._replace(queue=jax.random.normal(jax.random.key(1), state.queue.shape), queue_rows=rows, step=jnp.int32(7))


def compute(method, encoder, state, parts, chunk):
    return jax.jit(lambda state, parts: loss_and_gradients(method, encoder, state, parts, jax.random.key(3), chunk))(state, parts)


@functools.cache
def computed_whole(name):
    """The method, its encoder, a state with a full queue, a batch, and the loss and the gradients of the whole batch."""
    method = IN_PARTS[name]
    encoder, state = started(method, make_mesh(ROWS, jax.devices()[:1]))
    state, batch = with_full_queue(state), whole_batch(method)
    return method, encoder, state, batch, compute(method, encoder, state, (batch,), 0)


@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_have_the_loss_and_the_gradients_of_the_whole_batch(name):
    method, encoder, state, batch, expected = computed_whole(name)
    norm = optax.tree.norm(expected[3])
    assert norm > 0
    assert jax.tree.structure(expected[3]) == jax.tree.structure(split_frozen(method, encoder, state.params)[0])
    tokens = 2 * ROWS * WIDTH  # that a gradient is summed over; the error of a sum is below that many roundings
    for chunk in (0, 4) if name == "miCSE" else (4,):  # a part is encoded whole or in chunks: that no method can tell
        found = compute(method, encoder, state, parts_of(batch), chunk)
        for metric, value in expected[1].items():
            assert float(found[1][metric]) == pytest.approx(float(value), rel=tokens * 2.0**-24, abs=1e-6), metric
        assert float(found[0]) == pytest.approx(float(expected[0]), rel=tokens * 2.0**-24)
        assert optax.tree.norm(jax.tree.map(jnp.subtract, found[3], expected[3])) < tokens * 2.0**-24 * norm
        for one, other in zip(jax.tree.leaves(found[2]), jax.tree.leaves(expected[2]), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)  # what goes on to the queue is in the order of the batch


@pytest.mark.parametrize("name", ["miCSE", "Crops", "SCT", "distillation"])  # TSDAE has a test of its own
def test_bfloat16_has_nearly_the_loss_and_the_gradients_of_float32(name):
    method, encoder, state, batch, expected = computed_whole(name)
    found = compute(method, encoder.clone(dtype=jnp.bfloat16, activations=jnp.bfloat16), state, (batch,), 0)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {leaf.dtype for leaf in jax.tree.leaves(expected)}
    for metric in expected[1].keys() - {"accuracy"}:
        assert float(found[1][metric]) == pytest.approx(float(expected[1][metric]), rel=0.02), metric
    assert optax.tree.norm(jax.tree.map(jnp.subtract, found[3], expected[3])) < 0.05 * optax.tree.norm(expected[3])


def test_steps_over_parts_on_several_devices_are_those_over_whole_batches_on_one(eight_devices):
    found = []
    for count, chunk, split in ((1, 0, False), (2, 0, True), (8, 8, True)):
        mesh = make_mesh(ROWS, eight_devices[:count], fsdp=2 if count == 8 else 1)
        encoder, state = started(MICSE, mesh)
        shardings = fsdp_sharding(mesh, state)
        step, losses = make_step(MICSE, encoder, optax.sgd(0.1), mesh, chunk, shardings), []
        for number in range(3):
            batch = whole_batch(MICSE, number)
            state, metrics = step(state, shard_batch(parts_of(batch) if split else batch, mesh))
            losses.append(float(metrics["loss"]))
        found.append((losses, jax.device_get(state)))
    (losses, one), *on_several = found
    for others, several in on_several:
        np.testing.assert_allclose(others, losses, rtol=1e-5)
        np.testing.assert_allclose(several.queue, one.queue, atol=1e-4)
        np.testing.assert_array_equal(several.queue_rows, one.queue_rows)
    assert one.queue_rows.tolist() == [*range(200, 216), *range(100, 108)]


def test_parts_of_held_out_sentences_measure_what_the_whole_batch_does(eight_devices):
    mesh = make_mesh(ROWS, eight_devices[:2])
    encoder, state = started(MICSE, mesh)
    measure = make_measure(MICSE, encoder, mesh)
    batch = whole_batch(MICSE)
    whole, parts = (measure(state, shard_batch(given, mesh)) for given in (batch, parts_of(batch)))
    for name, value in whole.items():
        assert float(parts[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-6), name


# Whole steps against an independent computation: transformers' BertModel, the loss from its formula, torch's AdamW. Dropout is 0
# here, so that both sides see the same network; attention mutual information has its own test against NumPy.

CONFIG = bert_config(num_hidden_layers=2)
OPTIONS = settings.Optimizer(learning_rate=1e-2, warmup_steps=2, weight_decay=0.05, max_grad_norm=0.5)
STEPS, TOTAL, SIZE, TEMPERATURE = 4, 10, 6, 0.5
METHODS = {
    "simcse": SimCSE(temperature=TEMPERATURE),
    "mean pooling, no head": SimCSE(temperature=TEMPERATURE, pooling="mean", head=False),
    "momentum queue": SimCSE(temperature=TEMPERATURE, momentum=Momentum(queue_size=10, decay=0.9, dropout=0.0)),
}


def batches():
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        mask = np.arange(8) < random.integers(3, 9, (SIZE, 1))
        yield Batch(random.integers(5, 40, (SIZE, 8)).astype(np.int32), mask)


torch: Any = None


@pytest.fixture(scope="module")
def reference_torch():
    """PyTorch, imported when the first test needs it."""
    global torch
    torch = pytest.importorskip("torch")


class TorchRun:
    """The same run in torch: transformers' float32 model, everything else written out."""

    def __init__(self, method, params):
        transformers = pytest.importorskip("transformers")
        self.method = method
        self.bert = transformers.BertModel(
            transformers.BertConfig(
                vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
            ),
            add_pooling_layer=False,
        )  # fmt: skip
        tensors = {name: torch.tensor(np.array(value)) for name, value in to_torch(CONFIG, params["encoder"]).items()}
        self.bert.load_state_dict(tensors)
        self.head = (
            [torch.tensor(np.array(params["head"][name]), requires_grad=True) for name in ("kernel", "bias")] if method.head else []
        )
        self.average = copy.deepcopy(self.bert)
        self.queue = torch.zeros(0, 16)
        everything = [*self.bert.parameters(), *self.head]
        self.parameters = everything
        groups = [
            {"params": [p for p in everything if p.ndim > 1], "weight_decay": 0.05},
            {"params": [p for p in everything if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)

    def embed(self, bert, rows):
        mask = torch.tensor(rows.mask)
        states = bert(torch.tensor(rows.tokens).long(), attention_mask=mask.long()).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        pooled = means if self.method.pooling == "mean" else states[:, 0]
        return torch.tanh(pooled @ self.head[0] + self.head[1]) if self.head else pooled

    def step(self, number, rows):
        embedding = torch.nn.functional.normalize(self.embed(self.bert, rows), dim=-1)
        logits = embedding @ embedding.T / TEMPERATURE
        queue = torch.nn.functional.normalize(self.queue, dim=-1)
        logits = torch.cat([logits, embedding @ queue.T / TEMPERATURE], dim=1)
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(SIZE))
        with torch.no_grad():
            entering = self.embed(self.average, rows)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 0.5)
        rate = 1e-2 * (number / 2 if number < 2 else 1 - (number - 2) / (TOTAL - 2))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.bert.parameters(), strict=True):
                old.mul_(0.9).add_(0.1 * new)
        if self.method.momentum is not None:
            self.queue = torch.cat([entering, self.queue])[:10]
        return loss.item()


@pytest.mark.parametrize("name", METHODS)
def test_steps_equal_torch(reference_torch, name):
    method = METHODS[name]
    encoder = Bert(CONFIG, jnp.float32, 0.0)
    mesh = make_mesh(SIZE, jax.devices()[:1])
    optimizer = make_optimizer(OPTIONS, TOTAL)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    reference = TorchRun(method, jax.device_get(state.params))
    step = make_step(method, encoder, optimizer, mesh)
    for number, rows in enumerate(batches()):
        state, metrics = step(state, shard_batch(rows, mesh))
        assert float(metrics["loss"]) == pytest.approx(reference.step(number, rows), rel=2e-5)
    same_weights(state.params["encoder"], reference.bert)
    if method.momentum is not None:
        same_weights(state.ema_params, reference.average)
        np.testing.assert_allclose(state.queue, reference.queue.numpy(), atol=2e-4)


def same_weights(params, module):
    """All but the key biases: softmax does not see them, so their gradient is 0 and Adam makes steps of its rounding."""
    theirs = module.state_dict()
    for key, ours in to_torch(CONFIG, jax.device_get(params)).items():
        if not key.endswith("key.bias"):
            np.testing.assert_allclose(ours, theirs[key].numpy(), atol=2e-5, err_msg=key)
