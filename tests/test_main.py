"""The command line as a user meets it: help, mistakes, exit codes, stopping and continuing."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.cli.program import program
from jax_sentemb.main import main

ROOT = Path(__file__).parents[1]
TINY = f"--config={ROOT}/configs/simcse.py:tiny"
ONE_LAYER = ("--config.encoder.num_hidden_layers=1",)


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "jax_sentemb.main", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def fails(capsys, code, *arguments):
    """The one line on stderr of a command that ends with `code`."""
    assert program(main, ["main", *map(str, arguments)]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    return lines[0]


def test_help_is_quick_and_needs_nothing():
    begin = time.monotonic()
    process = start("--help")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "--config" in out
    assert not err
    assert time.monotonic() - begin < 5  # under 2 s on an idle machine


def test_help_does_not_import_jax():
    code = (
        "import sys; from jax_sentemb.main import main\n"
        "try: main(['x', '--help'])\nexcept SystemExit: pass\n"
        "print('jax' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.endswith("False\n")


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import jax_sentemb, jax_sentemb.training.run, sys\n"
        "heavy = ('torch', 'transformers', 'datasets', 'tensorflow', 'sklearn')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_help_with_a_config_shows_its_settings(capsys):
    assert program(main, ["main", TINY, "--help"]) == 0
    assert "--config.method.temperature=0.05" in capsys.readouterr().out


def test_an_evaluation_folder_without_sets_is_exit_3(capsys, tmp_path):
    assert "eval.data" in fails(capsys, 3, TINY, f"--config.eval.data={tmp_path}", f"--workdir={tmp_path / 'run'}")


def test_weights_of_the_wrong_shape_and_a_foreign_tokenizer_are_exit_4(capsys, tmp_path):
    from safetensors.numpy import load_file, save_file

    assert program(main, ["main", TINY, "--config.train.max_steps=0", f"--workdir={tmp_path / 'first'}"]) == 0
    model = tmp_path / "first" / "export"
    weights = f"--config.encoder.weights={model}"
    tensors = load_file(model / "model.safetensors")
    name = "encoder.layer.0.intermediate.dense.weight"
    (model / "jax_sentemb.json").unlink()  # its hashes would notice first
    save_file({**tensors, name: np.ascontiguousarray(tensors[name].T)}, model / "model.safetensors", {"format": "pt"})
    assert name in fails(capsys, 4, TINY, weights, f"--workdir={tmp_path / 'second'}")
    save_file({**tensors, name: np.full_like(tensors[name], np.nan)}, model / "model.safetensors", {"format": "pt"})
    assert "NaN" in fails(capsys, 4, TINY, weights, f"--workdir={tmp_path / 'second'}")
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    size = len(tokenizer["model"]["vocab"])
    tokenizer["model"]["vocab"] |= {f"extra{n}": size + n for n in range(5)}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert str(size + 5) in fails(capsys, 4, TINY, weights, f"--workdir={tmp_path / 'third'}")


def test_nan_stops_the_run_with_exit_5_before_anything_is_saved(capsys, tmp_path):
    message = fails(
        capsys,
        5,
        TINY,
        "--config.optimizer.learning_rate=1e30",
        "--config.optimizer.max_grad_norm=0",
        "--config.encoder.num_hidden_layers=1",
        f"--workdir={tmp_path}",
    )
    assert re.search(r"step \d+: loss nan", message)
    assert not list((tmp_path / "checkpoints").glob("[0-9]*"))
    assert not (tmp_path / "export").exists()


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboardX")
    flags = ["--config.train.max_steps=1", "--config.train.tensorboard=True", *ONE_LAYER, f"--workdir={tmp_path}"]
    assert program(main, ["main", TINY, *flags]) == 0
    events = list((tmp_path / "tb").glob("events.*"))
    assert len(events) == 1
    assert b"train/loss" in events[0].read_bytes()


def test_another_run_in_the_work_directory_is_exit_6(capsys, tmp_path):
    from filelock import FileLock

    with FileLock(tmp_path / "LOCK"):
        assert str(tmp_path) in fails(capsys, 6, TINY, f"--workdir={tmp_path}")


def test_a_changed_setting_is_refused_when_a_run_continues(capsys, tmp_path):
    assert program(main, ["main", TINY, "--config.train.max_steps=1", *ONE_LAYER, f"--workdir={tmp_path}"]) == 0
    message = fails(capsys, 4, TINY, "--config.train.max_steps=1", "--config.train.seed=7", *ONE_LAYER, f"--workdir={tmp_path}")
    assert "train.seed=42" in message
    assert "7" in message
