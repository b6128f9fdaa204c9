"""Promises that every config keeps, tried on its ":tiny" form. A new config is tested by being there."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.config import Encoder, Words, check, flatten
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig
from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
from jax_sentemb.recipes import read_config
from jax_sentemb.training import optimizer
from jax_sentemb.training.run import run
from jax_sentemb.training.setup import prepare
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Rows

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.py"))
STEPS = 6


def load(path, size="tiny"):
    """A config; of its tiny form a BERT has one layer, unless the method compares layers."""
    config = read_config(f"{path}:{size}")
    for one in filter(None, (config, config.pretrain)):
        if size == "tiny" and isinstance(one.encoder, Encoder) and one.method.ami is None:
            one.encoder.num_hidden_layers = 1
    if size == "tiny" and isinstance(config.method, Distillation):
        config.method.congen = config.method.rank = 1.0  # every loss, and the queue
    if size == "tiny" and path.stem == "micse":
        config.method.rank_consistency = 1.0  # with the information, the queue and the average
    return config


def kind(path):
    """What a config runs, with whether a weight is 0; those of one kind keep or break the promises together."""
    config = load(path)
    settings = flatten(config.method, f"{type(config.method).__name__}.") | flatten(config.optimizer)
    settings = {name: value != 0 if isinstance(value, float) else value for name, value in settings.items()}
    return tuple((name, value) for name, value in settings.items() if isinstance(value, str | bool) or value is None)


def first_of(paths, key):
    """The first config of each key."""
    return list({key(path): path for path in reversed(paths)}.values())[::-1]


def readout(path):
    """What an embedding is made by."""
    config = load(path)
    return type(config.method), type(config.encoder), getattr(config.method, "pooling", ""), config.method.embedding_params


KINDS = first_of(CONFIGS, kind)
# Compiling is the time that this file takes; what depends on a part of a config is tried once for each such part, with miCSE
# for SimCSE, which has more parts of a state than others.
READOUTS = first_of(sorted(KINDS, key=lambda path: path.stem != "micse"), readout)
METHODS = first_of(sorted(KINDS, key=lambda path: path.stem != "micse"), lambda path: type(load(path).method))
ENCODERS = first_of(KINDS, lambda path: str(load(path).encoder))
# The lists below have one method for each part of a state, a batch and an export. These methods have no other parts.
COVERED = (
    "ConsSent", "ContrastiveTension", "Crops", "CrossEncoder", "Distillation", "ISBERT", "InferSent", "LanguageModel", "MaskedLM",
    "MirrorBERT", "MultiView", "Neighbours", "QuickThoughts", "SBERT", "SCT", "SimCSE", "TSDAE", "WordAverage",
)  # fmt: skip
# A method that is not in COVERED keeps every promise below.
NEW = tuple(path.stem for path in METHODS if type(load(path).method).__name__ not in COVERED)
# Every way in and out; two encoders are exported in test_checkpoint_selection.py, models on word vectors in test_word_model.py.
COMMANDS = ("cross_encoder_stsb", "micse", "mlm", "sbert_nli", *NEW)
# A queue and an average; two encoders; optimisers of parts; plain; vectors of a teacher and a queue of them; two queues; a decoder.
STATES = ("micse", "ct", "cons_sent_multitask", "mlm", "distill_encoder", "sct", "tsdae", *NEW)
QUICK = {*METHODS, *READOUTS, *(path for path in CONFIGS if path.stem in (*STATES, *COMMANDS))}
# Every part of BERTs and of models on word vectors; labels; two queues in one; two texts and a decoder; two texts with labels.
SEVERAL = ("micse", "cons_sent_multitask", "distill_encoder", "sct", "tsdae", "crops", *NEW)
TRIED_IN_PARTS = ("SimCSE", "ISBERT", "ContrastiveTension", "MirrorBERT", "ConsSent")  # in test_step.py


class Tiny:
    """A config at its tiny size with one state at step 0 for each number of devices, and one compiled step for each and chunk."""

    def __init__(self, path, folder):
        self.name = path.stem
        self.config = load(path)
        self.material = prepare(self.config, folder)
        self.encoder = make_encoder(self.material.encoder_config, jnp.float32, getattr(self.config.encoder, "dropout", 0.0))
        keep = optax.trace(0.0)  # passes gradients on, and keeps them where a test can look at them
        self.optimizer = optax.chain(
            keep, optimizer.make_optimizer(self.config.optimizer, STEPS, 1, self.config.method.step_shares)
        )
        self.states, self.steps = {}, {}

    def state(self, devices=1):
        if devices not in self.states:
            create = (self.config.method, self.encoder, self.optimizer, self.material.loaded, 0, self.mesh(devices))
            self.states[devices] = create_state(*create)
        return jax.tree.map(jnp.copy, self.states[devices])  # a step gives the memory of its state away

    def mesh(self, devices):
        return make_mesh(self.config.data.batch_size, jax.devices()[:devices], fsdp=2 if devices == 8 else 1)

    def step(self, devices=1, chunk=0):
        key = (devices, chunk)
        if key not in self.steps:
            mesh = self.mesh(devices)
            shardings = fsdp_sharding(mesh, self.state(devices)) if mesh.shape["fsdp"] > 1 else None
            self.steps[key] = make_step(self.config.method, self.encoder, self.optimizer, mesh, chunk, shardings)
        return self.steps[key]

    def batch(self, number):
        # One width for all steps: one compilation.
        batch = self.material.batches.at(number)
        missing = self.config.data.max_seq_length - batch.tokens.shape[-1]
        pads = [(0, 0)] * (batch.tokens.ndim - 1) + [(0, missing)]
        return batch._replace(tokens=np.pad(batch.tokens, pads), mask=np.pad(batch.mask, pads))

    def run(self, state, first, last, devices=1, chunk=0):
        losses = []
        for number in range(first, last):
            state, metrics = self.step(devices, chunk)(state, shard_batch(self.batch(number), self.mesh(devices)))
            losses.append(float(metrics["loss"]))
        return state, losses


def stem(path):
    return path.stem


def only(paths):
    """Tries a promise on these configs."""
    return pytest.mark.parametrize("tiny", paths, indirect=True, ids=stem)


def nightly(paths):
    """The kinds that are not QUICK differ from one that is by settings alone, which the tests of their methods try."""
    return [pytest.param(path, marks=[] if path in QUICK else pytest.mark.nightly) for path in paths]


def named(names):
    return [path for path in CONFIGS if path.stem in names]


@pytest.mark.parametrize("path", CONFIGS, ids=stem)
@pytest.mark.parametrize("size", ["", "tiny"])
def test_every_config_has_settings_that_fit_together(path, size):
    config = load(path, size)
    for one in filter(None, (config, config.pretrain)):
        one.data.files = one.data.files or "corpus.txt"
        if not getattr(one.encoder, "from_scratch", True):
            one.encoder.weights = "all-MiniLM-L6-v2"
    check(config)
    words = isinstance(config.encoder, Words)
    config.method.check(make_encoder(WordsConfig(3, 300) if words else BertConfig()), config.data.batch_size)
    with pytest.raises(ConfigError, match="unknown"):
        load(path, "huge")


@pytest.fixture(scope="module", params=nightly(KINDS), ids=stem)
def tiny(request, tmp_path_factory):
    yield Tiny(request.param, tmp_path_factory.mktemp(request.param.stem))
    jax.clear_caches()  # the compiled programs of thirty configs are gigabytes


def test_every_parameter_moves_and_stays_finite(tiny):
    before = jax.device_get(tiny.state().params)
    shares = tiny.config.method.step_shares  # of steps, in which parts of the parameters are trained
    state, losses = tiny.run(tiny.state(), 0, max([3, *(share.denominator for share in shares.values())]))
    after = jax.device_get(state.params)
    assert np.isfinite(losses).all()
    before, after = ({part: value for part, value in params.items() if part != FROZEN} for params in (before, after))
    still = [
        jax.tree_util.keystr(path)
        for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if np.array_equal(old, new) or not np.isfinite(new).all()
    ]
    assert not still


@only(nightly(KINDS))
def test_the_step_is_for_gpus_and_tpus_too(tiny):
    traced = tiny.step().trace(tiny.state(), shard_batch(tiny.batch(0), tiny.mesh(1)))
    lowered = traced.lower(lowering_platforms=("cuda", "tpu")).as_text()
    # Nothing calls back to the host, or a library that a platform lacks; annotations of layouts are not calls.
    assert set(re.findall(r"custom_call @(\w+)", lowered)) <= {"LayoutConstraint"}
    assert "custom_call" not in lowered.replace("custom_call @LayoutConstraint", "")


@only(named(STATES))
def test_stop_restore_continue_equals_a_straight_run_bit_for_bit(tiny, tmp_path):
    straight, losses = tiny.run(tiny.state(), 0, STEPS)
    half, first = tiny.run(tiny.state(), 0, 2)
    checkpoints = Checkpoints(tmp_path, {"seed": 0})
    checkpoints.save(2, half, {"seed": 0})
    half, _ = tiny.run(half, 2, 3)  # the step after a save overwrites the saved buffers' memory
    checkpoints.wait()
    restored, _ = Checkpoints(tmp_path, {"seed": 0}).restore(tiny.state())
    resumed, second = tiny.run(restored, 2, STEPS)
    assert first + second == losses
    for one, other in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(one, other)


@only(named(SEVERAL))
def test_the_same_on_several_devices(eight_devices, tiny):
    devices = 2 if isinstance(tiny.config.encoder, Words) else 8
    one, losses = tiny.run(tiny.state(), 0, 3)
    several, sharded = tiny.run(tiny.state(devices), 0, 3, devices)
    split = [leaf for leaf in jax.tree.leaves((several.params, several.opt_state)) if not leaf.is_fully_replicated]
    assert bool(split) == (devices == 8)  # 4 x 2: parameters and the optimiser's state are in two halves
    np.testing.assert_allclose(sharded, losses, rtol=1e-5)
    assert sharded[0] == pytest.approx(losses[0], rel=1e-6)
    for left, right in zip(jax.tree.leaves(one.params), jax.tree.leaves(several.params), strict=True):
        np.testing.assert_allclose(left, right, atol=3e-4)  # Adam turns rounding of tiny gradients into whole steps


@only([path for path in METHODS if type(load(path).method).__name__ not in TRIED_IN_PARTS])
def test_cached_gradients_are_those_of_the_whole_batch(tiny):
    whole, metrics = tiny.step()(tiny.state(), shard_batch(tiny.batch(0), tiny.mesh(1)))
    cached, other = tiny.step(chunk=2)(tiny.state(), shard_batch(tiny.batch(0), tiny.mesh(1)))
    for name, value in metrics.items():
        assert float(other[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-7), name
    kept = [jax.tree.leaves(optax.tree.get(state.opt_state, "trace")) for state in (whole, cached)]
    apart = sum(np.sum(np.square(np.subtract(one, other, dtype=np.float64))) for one, other in zip(*kept, strict=True)) ** 0.5
    # Rounding is left, 1e-8 to 3e-6: small temperatures and cancellation enlarge it (SimCSE 1.1e-6, at temperature 1 0.7e-6).
    assert apart <= 5e-6 * sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in kept[0]) ** 0.5


@only(READOUTS)
def test_padding_does_not_change_an_embedding(tiny):
    method, params = tiny.config.method, tiny.state().params
    rows = Rows(*(values[:, :10] for values in tiny.material.batches.at(0).rows))
    positions = min(tiny.material.encoder_config.max_position_embeddings, 40)
    wide = Rows(*(np.pad(values, ((0, 0), (0, positions - 10))) for values in rows))
    embed = jax.jit(lambda rows: method.embed(tiny.encoder, params, rows))
    np.testing.assert_allclose(embed(wide), embed(rows), atol=1e-5)


def has_dropout(path):
    return not isinstance(load(path).encoder, Words) and load(path).encoder.dropout > 0


@only([path for path in ENCODERS if has_dropout(path)])
def test_dropout_differs_between_rows_of_the_same_sentence(tiny):
    rows = tiny.batch(0).rows
    same = Rows(*(np.repeat(values[:1], 4, 0) for values in rows))
    params = tiny.state().params["encoder"]
    encode = jax.jit(lambda rows, seeds: tiny.encoder.apply({"params": params}, rows, seeds).hidden[-1][:, 0])
    states = encode(same, jnp.arange(4, dtype=jnp.uint32))
    assert len(np.unique(np.array(states).round(5), axis=0)) == 4


@only([path for path in METHODS if getattr(load(path).method, "dropout", True) and has_dropout(path)])
def test_dropout_differs_between_steps(tiny):
    batch = tiny.batch(0)
    losses = []
    for number in (0, 1):
        state = tiny.state()
        state = state._replace(step=state.step + number)
        _, metrics = tiny.step()(state, shard_batch(batch, tiny.mesh(1)))
        losses.append(float(metrics.get("alignment", metrics["loss"])))  # of the two views: neither queue nor schedule enters
    assert losses[0] != losses[1]


@only(named(COMMANDS))
def test_the_command_trains_scores_exports_and_is_done_when_run_again(tiny, tmp_path, capsys):
    assert run(tiny.config, tmp_path) == 0
    first = (tmp_path / "export" / "model.safetensors").read_bytes()
    log = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {event["step"] for event in log} >= {0, 1, tiny.config.train.max_steps}
    assert all(np.isfinite(event["train/loss"]) for event in log if "train/loss" in event)
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert -100 <= scores["grammar-test"]["spearman"]["all"] <= 100
    assert "max abs difference" in capsys.readouterr().out
    page = ElementTree.parse(tmp_path / "report.html")
    titles = [title.text for title in page.iter("title")]
    assert any(title.startswith("loss over steps") for title in titles)
    assert any(title.startswith("grammar-test, kept") for title in titles)
    assert run(tiny.config, tmp_path) == 0
    assert (tmp_path / "export" / "model.safetensors").read_bytes() == first
