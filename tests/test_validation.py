"""Held-out sentences: what is measured on them selects the weights and lowers the rate."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import config as settings
from jax_sentemb.config import check
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.recipes import read_config
from jax_sentemb.training.optimizer import drop_rate, make_optimizer
from jax_sentemb.training.run import run
from jax_sentemb.training.trainer import Trainer
from jax_sentemb.types import TrainState

CONFIG = Path(__file__).parents[1] / "configs" / "cons_sent.py"


def tiny():
    return read_config(f"{CONFIG}:tiny")


def test_a_drop_multiplies_every_later_update():
    params, gradients = {"a": jnp.ones(3)}, {"a": jnp.arange(3.0)}
    options = settings.Optimizer(name="sgd", learning_rate=0.5, lr_scheduler_type="constant", max_grad_norm=0, plateau_factor=0.2)
    optimizer = make_optimizer(options, 10)
    state = TrainState(params, None, None, optimizer.init(params), None, jnp.zeros((), jnp.int32))
    for factor in (1.0, 0.2, 0.04):
        updates, opt_state = optimizer.update(gradients, state.opt_state, params)
        np.testing.assert_allclose(updates["a"], -0.5 * factor * np.arange(3), rtol=1e-6)
        state, total = drop_rate(state._replace(opt_state=opt_state), 0.2)
        assert total == pytest.approx(0.2 * factor)


def falling():
    """Return a run whose rate is so small that no evaluation after the first can be better."""
    config = tiny()
    config.optimizer.learning_rate, config.optimizer.name = 1e-12, "adamw"
    config.optimizer.plateau_factor = 0.2
    config.eval.eval_steps, config.train.max_steps = 2, 6
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held_out")
    assert run(falling(), folder) == 0
    return folder


def test_a_run_whose_rate_depends_on_its_scores_continues_only_with_the_same_evaluations(finished):
    config = falling()
    config.eval.eval_steps = 3
    with pytest.raises(ModelFileError, match=r"eval\.eval_steps"):
        run(config, finished)


def test_the_weights_with_the_best_accuracy_are_kept_and_the_rate_drops(finished):
    events = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    measured = {event["step"]: event["validation/accuracy"] for event in events if "validation/accuracy" in event}
    assert list(measured) == [0, 2, 4, 6]
    assert len(set(measured.values())) == 1  # always the same sentences with the same changes
    assert json.loads((finished / "scores.json").read_text())["step"] == 2  # the first of equals
    drops = {event["step"]: event["learning_rate_factor"] for event in events if "learning_rate_factor" in event}
    assert drops == {4: pytest.approx(0.2), 6: pytest.approx(0.04)}


def test_a_rate_that_falls_without_improvement_needs_a_score_but_not_held_out_sentences(tmp_path):
    config = falling()
    config.data.validation, config.eval.dev = 0, str(tmp_path / "pairs.tsv")
    check(config)
    config.eval.dev = config.eval.data = ""
    advice = r"give eval\.dev=pairs\.tsv, data\.validation=1000 or eval\.select"
    with pytest.raises(ConfigError, match=rf"plateau_factor=0\.2 needs a score: {advice}"):
        Trainer(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data.validation": 3}, "data.validation=3 must be 0 or at least data.batch_size=8"),
        ({"optimizer.plateau_factor": 0.0}, "optimizer.plateau_factor=0.0 must be above 0"),
        ({"eval.eval_steps": -2}, "eval.eval_steps=-2 must be at least -1"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(change, says):
    config = tiny()
    for name, value in change.items():
        part, field = name.split(".")
        setattr(getattr(config, part), field, value)
    with pytest.raises(ConfigError, match=says) as caught:
        check(config)
    assert "\n" not in str(caught.value)
