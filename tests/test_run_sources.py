"""What a run depends on: each input that was replaced has another fingerprint, under the name of its setting."""

import dataclasses
import shutil

import pytest

from jax_sentemb.errors import ModelFileError
from jax_sentemb.recipes import read_config
from jax_sentemb.training import run as running


def config(weights, **train):
    found = read_config("simcse:tiny")
    found.encoder.weights = str(weights)
    found.eval.report_sentences = 0
    found.optimizer.lr_scheduler_type = "constant"
    found.train = dataclasses.replace(found.train, **train)
    return found


def test_a_run_is_not_continued_after_its_start_was_replaced_and_goes_on_with_the_old_one(tmp_path, capsys):
    for name, seed in (("a", 1), ("b", 2)):
        assert running.run(config("", max_steps=0, seed=seed), tmp_path / name) == 0
    start, workdir = tmp_path / "start", tmp_path / "run"
    shutil.copytree(tmp_path / "a" / "export", start)
    assert running.run(config(start, max_steps=2), workdir) == 0
    shutil.rmtree(start)
    shutil.copytree(tmp_path / "b" / "export", start)
    with pytest.raises(ModelFileError, match=r"from encoder\.weights start \(SHA-256 \w+\), not from encoder\.weights start"):
        running.run(config(start, max_steps=3, average_with_start=0.5), workdir)
    shutil.rmtree(start)
    shutil.copytree(tmp_path / "a" / "export", start)
    capsys.readouterr()
    assert running.run(config(start, max_steps=3, average_with_start=0.5), workdir) == 0
