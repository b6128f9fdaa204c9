"""Embedder: order, padding, fixed shapes, compilations, truncation, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jax_sentemb.inference import embedder as embedder_module
from jax_sentemb.inference.embedder import Embedder

pytestmark = pytest.mark.usefixtures("every_shape")


class Words:
    """A tokenizer of word lengths: enough of the interface, and it remembers what it was asked."""

    pad_id = 7  # not 0: padding must be masked, whatever its id

    def __init__(self):
        self.asked = []

    def encode(self, sentences, max_seq_length):
        self.asked += sentences
        ids = [np.array([1, *(10 + len(word) for word in sentence.split()), 2], np.int32) for sentence in sentences]
        return [row[:max_seq_length] for row in ids], sum(len(row) > max_seq_length for row in ids)


class Encoder:
    """Mean of table rows over real tokens; remembers the shapes it was traced with."""

    def __init__(self):
        self.shapes = []

    def __call__(self, params, rows):
        self.shapes.append(rows.tokens.shape)
        weights = rows.mask.astype(jnp.float32)[..., None]
        return (params["table"][rows.tokens] * weights).sum(1) / weights.sum(1)


SENTENCES = ["a bb", "", *(" ".join(["word"] * n) for n in range(1, 40, 2)), "a bb", "ccc a"]


@pytest.fixture
def params():
    return {"table": np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)}


def alone(params, sentence, limit=32):
    (row,), _ = Words().encode([sentence], limit)
    return params["table"][row].mean(0)


def test_vectors_are_those_of_each_sentence_alone_in_the_callers_order(params):
    embedder = Embedder(Encoder(), Words(), 32, batch_size=4)
    vectors = embedder(params, SENTENCES)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [alone(params, sentence) for sentence in SENTENCES], atol=1e-6)


def test_each_distinct_sentence_is_encoded_once(params):
    embedder = Embedder(Encoder(), Words(), 32, batch_size=4)
    embedder(params, SENTENCES)
    assert sorted(embedder.tokenizer.asked) == sorted(set(SENTENCES))


def test_one_compilation_a_bucket_and_none_for_fresh_parameters(params):
    encoder = Encoder()
    sentences = [f"{number} {'word ' * words}" for words in (3, 11, 18) for number in range(12)]
    embedder = Embedder(encoder, Words(), 20, batch_size=4, buckets=(8, 16, 32))
    embedder(params, sentences)
    assert sorted(set(encoder.shapes)) == [(4, 8), (4, 16), (4, 20)]  # never wider than max_seq_length
    traced = len(encoder.shapes)
    changed = embedder({"table": 2 * params["table"]}, sentences[::-1])
    assert len(encoder.shapes) == traced
    np.testing.assert_allclose(changed[::-1], [2 * alone(params, s, 20) for s in sentences], atol=1e-6)


def test_rare_widths_of_a_call_are_padded_to_a_wider_one(params):
    encoder = Encoder()
    embedder = Embedder(encoder, Words(), 32, batch_size=4, buckets=(8, 12, 16, 32))
    sentences = [f"{number} {'word ' * words}" for words, count in ((3, 40), (8, 4), (12, 40), (20, 4)) for number in range(count)]
    vectors = embedder(params, sentences)
    assert sorted(set(encoder.shapes)) == [(4, 8), (4, 16), (4, 32)]  # the four sentences of 12 tokens get 16; the widest ones stay
    np.testing.assert_allclose(vectors, [alone(params, sentence) for sentence in sentences], atol=1e-6)


def test_the_last_batch_of_a_larger_call_is_filled_up(params):
    encoder = Encoder()
    embedder = Embedder(encoder, Words(), 8, batch_size=4, buckets=(8,))
    sentences = [f"{number}x y" for number in range(33)]
    np.testing.assert_allclose(embedder(params, sentences), [alone(params, sentence) for sentence in sentences], atol=1e-6)
    assert set(encoder.shapes) == {(4, 8)}
    embedder(params, sentences[:25])
    assert set(encoder.shapes) == {(4, 8), (1, 8)}


def test_fine_buckets_are_for_full_batches_of_large_calls(params, monkeypatch):
    monkeypatch.setattr(embedder_module, "MANY", 64)
    encoder = Encoder()
    embedder = Embedder(encoder, Words(), 32, batch_size=4, buckets=(16, 32))
    embedder(params, [f"{'x' * number} y" for number in range(40)])
    assert sorted(set(encoder.shapes)) == [(4, 16)]
    many = [f"{'x' * number} y" for number in range(1, 67)]
    np.testing.assert_allclose(embedder(params, many), [alone(params, sentence) for sentence in many], atol=1e-6)
    assert sorted(set(encoder.shapes)) == [(4, 4), (4, 16)]


def test_a_processor_has_few_rows_at_a_time(params):
    encoder = Encoder()
    embedder = Embedder(encoder, Words(), 32, buckets=(32,))
    sentences = [f"{'x' * number} y" for number in range(40)]
    np.testing.assert_allclose(embedder(params, sentences), [alone(params, sentence) for sentence in sentences], atol=1e-6)
    assert set(encoder.shapes) == {(16, 32), (8, 32)}


def test_windows_are_joined_in_order(params, monkeypatch):
    monkeypatch.setattr(embedder_module, "FIRST_WINDOW", 3)
    monkeypatch.setattr(embedder_module, "WINDOW", 5)
    for count in (0, 1, 3, 4, 8, 9, len(SENTENCES)):
        embedder = Embedder(Encoder(), Words(), 20, batch_size=4)
        vectors, truncated = embedder.encode(params, SENTENCES[:count])
        np.testing.assert_allclose(vectors, np.array([alone(params, s, 20) for s in SENTENCES[:count]]).reshape(-1, 6), atol=1e-6)
        assert truncated == sum(len(s.split()) > 18 for s in set(SENTENCES[:count]))


def test_no_sentence_and_the_empty_sentence(params):
    embedder = Embedder(Encoder(), Words(), 32)
    assert embedder(params, []).shape == (0, 6)
    np.testing.assert_allclose(embedder(params, [""])[0], params["table"][[1, 2]].mean(0), atol=1e-6)


def test_truncated_sentences_of_a_call_are_counted(params):
    embedder = Embedder(Encoder(), Words(), 6)
    assert embedder.encode(params, ["a", "a b c d", "a b c d e", "a b c d e", "a b c d e f"]).truncated == 2
    assert embedder.encode(params, ["a"]).truncated == 0
    assert embedder.encode(params, ["a", "a b c d"], max_seq_length=5).truncated == 1


@pytest.mark.parametrize("devices", [2, 8])
def test_rows_spread_over_devices_give_the_same_vectors(eight_devices, params, devices):
    mesh = Mesh(np.array(eight_devices[:devices]), ("data",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    embedder = Embedder(Encoder(), Words(), 32, batch_size=5, sharding=sharding)
    assert embedder.batch_size == {2: 6, 8: 8}[devices]
    (batch, _) = embedder._rows([np.array([1, 2], np.int32)] * embedder.batch_size, [embedder.batch_size], [32])
    assert {len(shard.data) for shard in batch.addressable_shards} == {embedder.batch_size // devices}
    np.testing.assert_allclose(embedder(params, SENTENCES), [alone(params, sentence) for sentence in SENTENCES], atol=1e-6)


def test_no_hidden_transfer_between_host_and_device(params):
    embedder = Embedder(Encoder(), Words(), 32, batch_size=4)
    with jax.transfer_guard("disallow"):
        assert embedder(jax.device_put(params), SENTENCES).shape == (len(SENTENCES), 6)


@pytest.fixture
def compiled():
    """Return the names of the functions that are compiled during the test, in their order."""
    events: list[str] = []

    def note(name, duration, **about):
        if name.endswith("backend_compile_duration"):
            events.append(about.get("fun_name", ""))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield events
    jax.monitoring.unregister_event_duration_listener(note)


def test_a_run_and_a_loaded_model_share_the_programs_of_one_device(params, compiled):
    encoder = Encoder()
    loaded = Embedder(encoder, Words(), 32, 5, (8, 32), parts=tuple(params))
    one_device = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec())
    of_run = loaded.sharded(None, 5, (8, 32))
    trained = jax.device_put({**params, "head": np.ones(3, np.float32)}, one_device)
    expected = of_run(trained, SENTENCES)
    assert compiled
    compiled.clear()
    np.testing.assert_array_equal(loaded(params, SENTENCES), expected)
    assert not compiled
