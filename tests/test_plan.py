"""Plans of runs: what is searched, what is printed, and (nightly) real compilers for TPUs and GPUs."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jax_sentemb.cli import plan as command
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError, ResourceError
from jax_sentemb.planning import targets
from jax_sentemb.planning.hlo import Program
from jax_sentemb.planning.plan import Plan, check_units, largest_batch, smallest_split
from jax_sentemb.planning.step import PlannedRun, generated_batches
from jax_sentemb.planning.targets import parse_target
from jax_sentemb.recipes import read_config
from jax_sentemb.training.setup import prepare

CONFIGS = Path(__file__).parents[1] / "configs"
TARGET = parse_target("tpu:v5e-8")
LIMIT = TARGET.chip.memory


def affine(fixed, each, seen, temporaries=0.0):
    """The plan of a program whose memory grows by `each` a sentence, with so many bytes of other temporaries."""

    def plan_of(batch_size):
        seen.append(batch_size)
        growing = temporaries + each * batch_size
        return Plan(TARGET, batch_size, 1, fixed + growing <= LIMIT, arguments=fixed, temporaries=growing)

    return plan_of


@pytest.mark.parametrize("first", [8, 1024, 1 << 20])
@pytest.mark.parametrize("largest", [8, 1000, 40_000])
def test_the_largest_batch(first, largest):
    seen = []
    found = largest_batch(affine(LIMIT / 2, LIMIT / 2 / largest, seen), first, 8)
    assert largest * 15 // 16 - 16 <= found.batch_size <= largest
    assert found.batch_size % 8 == 0
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("largest", [76, 1000, 40_000])
def test_the_largest_batch_of_memory_that_grows_faster_than_the_batch(largest):
    def plan_of(size):
        total = LIMIT * (0.1 + 0.6 * size / largest + 0.3 * (size / largest) ** 2)
        return Plan(TARGET, size, 1, total <= LIMIT, temporaries=total)

    assert largest * 15 // 16 - 8 <= largest_batch(plan_of, 8192, 4).batch_size <= largest


def test_few_compilations_find_it():
    seen = []
    found = largest_batch(affine(LIMIT / 4, LIMIT / 9999, seen), 1024, 8)
    assert len(seen) == 2
    assert 7000 < found.batch_size <= 7499
    seen = []
    found = largest_batch(affine(LIMIT / 8, LIMIT / 9999, seen, temporaries=LIMIT / 8), 1024, 8)
    assert len(seen) == 3
    assert 7000 < found.batch_size <= 7499


def test_nothing_fits():
    with pytest.raises(ResourceError, match="not even 8 sentences fit"):
        largest_batch(affine(2 * LIMIT, 1, []), 64, 8)
    with pytest.raises(ResourceError, match=r"no train\.fsdp up to 8 fits"):
        smallest_split(lambda fsdp: Plan(TARGET, 8, fsdp, False, arguments=LIMIT * 2), 8)


def test_the_smallest_split():
    assert smallest_split(lambda fsdp: Plan(TARGET, 8, fsdp, fsdp >= 3), 8).fsdp == 4


def test_chunks_are_multiples_of_chips():
    config = read_config(f"{CONFIGS}/simcse.py:tiny")
    assert check_units(config, 8) == 8
    config.train.grad_cache_chunk = 12
    with pytest.raises(ConfigError, match=r"grad_cache_chunk=12 is not a multiple of the 8 chips"):
        check_units(config, 8)


@pytest.mark.parametrize("recipe", ["simcse", "sbert_nli", "multi_view", "cons_sent", "distill_encoder"])
def test_a_generated_batch_has_the_fields_of_the_runs(recipe, tmp_path):
    config = read_config(f"{CONFIGS}/{recipe}.py:tiny")
    with generated_batches(config, 8) as batches:
        found = batches.at(0)
    wanted = prepare(config, tmp_path).batches.at(0)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.dtype, one.ndim, one.shape[1:-1]) == (other.dtype, other.ndim, other.shape[1:-1])


def test_a_plan_for_the_devices_here(monkeypatch, capsys, eight_devices):
    """The whole command, with the CPU's compiler in place of a TPU's."""
    monkeypatch.setattr(targets, "describe_devices", lambda target: eight_devices[: target.chips])
    line = ["plan", "--config", f"{CONFIGS}/simcse.py:tiny", "--target", "tpu:v5e-8", "--config.data.batch_size=16", "--json"]
    assert program(command.main, line) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["chips"], found["batch_size"], found["fits"]) == (8, 16, True)
    # 32 rows of 24 tokens through 2 layers of width 32 and 64, forward and backward; the last layer for [CLS] only.
    full, tokens = 2 * (4 * 32 * 32 + 2 * 32 * 64), 32 * 24
    assert 3 * full * tokens / 8 < found["flop"] < 2 * 3 * full * tokens / 8
    assert found["arguments"] > 3 * 4 * (1000 * 32 + 2 * full // 2)  # parameters and two moments, float32
    kinds = {one["operation"]: one for one in found["collectives"]}
    parameters = found["arguments"] / 3
    assert kinds["all-reduce"]["bytes"] == pytest.approx(parameters, rel=0.2)  # the gradients
    assert found["bound_sentences_per_second"] == pytest.approx(16 / max(found["bound_seconds"].values()))
    assert found["input_rows_per_second_of_a_core_here"] > 100


def test_the_text_says_what_is_no_measurement(monkeypatch, capsys):
    monkeypatch.setattr(targets, "describe_devices", lambda target: jax.devices()[:1])
    line = ["plan", "--config", f"{CONFIGS}/simcse.py:tiny", "--target", "h100", "--find", "fsdp"]
    assert program(command.main, line) == 0
    out = capsys.readouterr().out
    assert re.search(r"bound +(memory|compute|network): at least .*not measured", out)
    assert "fits: 0." in out.splitlines()[0]
    assert "(measured on generated sentences): the input is the limit" in out  # of so small an encoder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "tpu:v5e-8"], "no --config"),
        (["--config", "configs/simcse.py"], "--target"),
        (["--config", "configs/simcse.py", "--target", "tpu"], "is unknown"),
        (["--config", "micse_low_shot", "--target", "tpu:v5e-8"], "--config has several runs: plan the recipe and settings of one"),
        (["--config", "simcse", "--target", "tpu:v5e-8", "--config.sweep=train.seed=1,2"], "--config has several runs"),
    ],
)
def test_mistakes_are_one_line(options, message, capsys):
    assert program(command.main, ["plan", *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_every_recipe_is_traced_for_a_pod(path, eight_devices):
    config = read_config(f"{path}:tiny")
    traced, _ = PlannedRun(config).trace(eight_devices, 64, 2)
    assert traced.jaxpr is not None


def test_fsdp_sends_parameters_between_devices_and_not_activations(eight_devices):
    """Each parameter is gathered for the forward and the backward pass, and its gradient summed: about three times its bytes."""
    config = read_config(f"{CONFIGS}/micse.py:tiny")
    traced, (state, _) = PlannedRun(config).trace(eight_devices, 512, 8)
    text = traced.lower().compile().as_text()
    sent = Program(text).collectives(8)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.params))
    assert sum(one.bytes for one in sent) < 5 * size
    assert "all-to-all" not in {collective.operation for collective in sent}
    assert "[64,512]" in text  # the similarities of the 64 rows of a device with all 512
    assert "[512,512]" not in text


def compiler(platform):
    packages = targets.COMPILERS[platform]
    return pytest.mark.skipif(not any(map(importlib.util.find_spec, packages)), reason=f"needs {' or '.join(packages)}")


def planned(target, expected=0, batch_size=2048, **settings):
    """What the command prints as JSON for a small SimCSE run; in a process of its own, with all of the compiler's passes."""
    settings = {"train.precision": "bfloat16", "data.batch_size": batch_size, **settings}
    shape = {"encoder.hidden_size": 128, "encoder.num_attention_heads": 2, "encoder.intermediate_size": 512}
    layers = {"encoder.num_hidden_layers": 4}  # more than two: they are stacked, and one program runs for each of them
    flags = [f"--config.{name}={value}" for name, value in (settings | shape | layers).items()]
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")}
    command = [sys.executable, "-m", "jax_sentemb", "plan", "--config", f"{CONFIGS}/simcse.py:tiny", "--target", target, "--json"]
    done = subprocess.run([*command, *flags], env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == expected, done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly
@compiler("tpu")
@pytest.mark.parametrize("target", ["tpu:v5e-16", "tpu:v5e-256", "tpu:2xv5e-16"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"train.fsdp": 8}, {"train.grad_cache_chunk": 512}, {"train.fused_attention": "pallas"}],
    ids=["data", "fsdp", "grad_cache", "kernel"],
)
def test_a_pod_compiles(target, settings):
    found = planned(target, **settings)
    kinds = {one["operation"] for one in found["collectives"]}
    few = target == "tpu:v5e-256" and "train.fsdp" not in settings  # eight sentences a chip are exchanged by a sum, too
    assert ({"all-reduce"} if few else {"all-reduce", "all-gather"}) <= kinds
    groups = {one["group"] for one in found["collectives"]}
    inside = found["chips"] // (2 if target.startswith("tpu:2x") else 1)  # the compiler divides a sum over slices by slice
    assert inside in groups or settings.get("train.fsdp", 1) in groups
    assert min(found["bound_seconds"].values()) > 0


@pytest.mark.nightly
@compiler("tpu")
def test_a_batch_too_large_is_refused_by_the_compiler():
    found = planned("tpu:v5e-1", expected=7, batch_size=1 << 20)
    assert not found["fits"]
    assert "needs" in found["reason"]


@pytest.mark.nightly
@compiler("cuda")
@pytest.mark.parametrize("kernel", ["cudnn", "pallas"])
@pytest.mark.parametrize("target", ["h100", "h200:8"])
def test_a_gpu_program_compiles(target, kernel):
    found = planned(target, **{"train.fused_attention": kernel})
    assert found["moved"] > 0
    gathered = sum(one["bytes"] for one in found["collectives"] if one["operation"] == "all-gather")
    assert gathered <= 2 * 2048 * 128 * 4 * (found["chips"] > 1)  # the embeddings of two views, no states of tokens
