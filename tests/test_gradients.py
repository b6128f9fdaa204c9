"""A batch in parts of different widths: the loss and the gradients of the whole batch, for every way to encode and every mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
from jax_sentemb.training.step import create_state, loss_and_gradients, make_measure, make_step, split_frozen
from jax_sentemb.types import Batch

BATCH, SHORT, WIDTH = 16, 6, 12
BERT = Bert(BertConfig(40, 16, 1, 2, 32, max_position_embeddings=12, initializer_range=0.3), jnp.float32, 0.1)
AMI = AttentionMI(weight=1.0, samples=20, layers=(1,), pairing="heads")
MICSE = SimCSE(temperature=1.0, ami=AMI, momentum=Momentum(queue_size=24))
METHODS = {
    "miCSE": MICSE,
    "IS-BERT": ISBERT(Convolution(filters=8)),  # token axes come out of `encode`
    "contrastive tension": ContrastiveTension(group=4, dropout=True),  # the order of the batch makes the pairs
    "Mirror-BERT": MirrorBERT(temperature=1.0),  # two texts a sentence
    "ConsSent": ConsSent(task="D", k=1, hidden=8, classifier_width=8),  # labels
}


def whole_batch(method, number=0):
    """Half of the sentences fit in SHORT tokens; they stand anywhere."""
    random = np.random.default_rng(number)
    lengths = random.permutation(np.repeat([0, 1], BATCH // 2) * (WIDTH - SHORT) + random.integers(3, SHORT + 1, BATCH))
    mask = np.arange(WIDTH) < lengths[:, None]
    tokens = np.where(mask, random.integers(5, 40, mask.shape), 0).astype(np.int32)
    if isinstance(method, MirrorBERT):
        tokens, mask = np.stack([tokens, np.where(tokens > 30, 4, tokens)], axis=1), np.stack([mask, mask], axis=1)
    return Batch(tokens, mask, random.integers(0, 2, BATCH).astype(np.float32), np.arange(BATCH, dtype=np.int32) + 100 * number)


def parts_of(batch):
    lengths = batch.mask.reshape(BATCH, -1, WIDTH).sum(-1).max(-1)
    halves = np.split(np.argsort(lengths, kind="stable").astype(np.int32), 2)
    return tuple(
        Batch(batch.tokens[half, ..., :width], batch.mask[half, ..., :width], batch.label[half], batch.row[half], half)
        for half, width in zip(halves, (SHORT, WIDTH), strict=True)
    )


def start(method, mesh):
    words = isinstance(method, ConsSent)
    table = {FROZEN: {"vectors": np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), "counts": np.ones(40)}}
    encoder = WordVectors(WordsConfig(40, 6)) if words else BERT
    return encoder, create_state(method, encoder, optax.sgd(0.1), table if words else {}, 0, mesh)


@pytest.mark.parametrize("name", METHODS)
def test_parts_have_the_loss_and_the_gradients_of_the_whole_batch(name):
    method = METHODS[name]
    encoder, state = start(method, make_mesh(BATCH, jax.devices()[:1]))
    batch = whole_batch(method)
    if state.queue is not None:
        queue = jax.random.normal(jax.random.key(1), state.queue.shape)
        state = state._replace(queue=queue, queue_rows=jnp.arange(24, dtype=jnp.int32), step=jnp.int32(7))

    def compute(state, parts, chunk):
        return loss_and_gradients(method, encoder, state, parts, jax.random.key(3), chunk)

    compute = jax.jit(compute, static_argnums=2)
    expected = compute(state, (batch,), 0)
    norm = optax.tree.norm(expected[3])
    assert norm > 0
    assert jax.tree.structure(expected[3]) == jax.tree.structure(split_frozen(state.params)[0])
    tokens = 2 * BATCH * WIDTH  # that a gradient is summed over; the error of a sum is below that many roundings
    for chunk in (0, 4) if name == "miCSE" else (4,):  # a part is encoded whole or in chunks: that no method can tell
        found = compute(state, parts_of(batch), chunk)
        for metric, value in expected[1].items():
            assert float(found[1][metric]) == pytest.approx(float(value), rel=tokens * 2.0**-24, abs=1e-6), metric
        assert float(found[0]) == pytest.approx(float(expected[0]), rel=tokens * 2.0**-24)
        assert optax.tree.norm(jax.tree.map(jnp.subtract, found[3], expected[3])) < tokens * 2.0**-24 * norm
        for one, other in zip(jax.tree.leaves(found[2]), jax.tree.leaves(expected[2]), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)  # what goes on to the queue is in the order of the batch


def test_steps_over_parts_on_several_devices_are_those_over_whole_batches_on_one(eight_devices):
    found = []
    for count, chunk, split in ((1, 0, False), (2, 0, True), (8, 8, True)):
        mesh = make_mesh(BATCH, eight_devices[:count], fsdp=2 if count == 8 else 1)
        encoder, state = start(MICSE, mesh)
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
    mesh = make_mesh(BATCH, eight_devices[:2])
    encoder, state = start(MICSE, mesh)
    measure = make_measure(MICSE, encoder, mesh)
    batch = whole_batch(MICSE)
    whole, parts = (measure(state, shard_batch(given, mesh)) for given in (batch, parts_of(batch)))
    for name, value in whole.items():
        assert float(parts[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-6), name
