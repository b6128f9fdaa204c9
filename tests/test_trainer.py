"""What ends a run early and what it goes on to: a signal in an evaluation, NaN, another run in its work directory."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.cli.program import program
from jax_sentemb.config import Optimizer, check
from jax_sentemb.data.batches import Batches, after_skips
from jax_sentemb.errors import PREEMPTED, ConfigError, ModelFileError, NotFinite, NumericsError
from jax_sentemb.formats.checkpoint import read_params
from jax_sentemb.formats.manifest import newest
from jax_sentemb.main import main
from jax_sentemb.recipes import read_config
from jax_sentemb.training import run as running
from jax_sentemb.training import trainer
from jax_sentemb.training.evaluator import Scorer
from jax_sentemb.training.loop import check_finite
from jax_sentemb.training.optimizer import make_schedule, rate_depends_on_length
from jax_sentemb.training.results import Results
from jax_sentemb.training.signals import STOPPING, Preempted, StopSignal

CONFIG = Path(__file__).parents[1] / "configs" / "simcse.py"
STEPS = 6


def tiny(select="", patience=0, **options):
    """Saved after steps 3 and 6, scored after 2, 4 and 6."""
    config = read_config(f"{CONFIG}:tiny")
    config.eval.eval_steps, config.eval.report_sentences, config.encoder.num_hidden_layers = 2, 0, 1
    config.eval.select, config.eval.patience = select, patience
    for name, value in options.items():
        setattr(config.train, name, value)
    check(config)
    return config


def events(workdir):
    """The log without times and starts, in the order of the steps."""
    found = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    kept = [
        {name: value for name, value in event.items() if name != "time" and not name.startswith("speed")}
        for event in found
        if event.get("event") != "start"
    ]
    return [event for event in kept if len(event) > 1]


def result(workdir):
    step, _ = newest(workdir / "checkpoints")
    best, _ = newest(workdir / "best")
    arrays = [read_params(workdir / "checkpoints" / str(step)), read_params(workdir / "best" / str(best))]
    return step, best, [leaf.tobytes() for leaf in jax.tree.leaves(arrays)], events(workdir)


@pytest.fixture(scope="module", autouse=True)
def a_closed_terminal_is_not_ignored():
    """`nohup make test` and the like ignore SIGHUP, and every process that is started has that from them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_run_that_cannot_start_closes_what_it_opened(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(trainer.Log, "close", lambda log: closed.append("log"))
    monkeypatch.setattr(trainer.Checkpoints, "close", lambda checkpoints: closed.append("checkpoints"))
    monkeypatch.setattr(trainer.Trainer, "_continue", lambda session: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.Trainer(tiny(), tmp_path)
    assert closed == ["checkpoints", "log"]


def test_held_out_sentences_select_weights_of_simcse_only_if_they_are_asked_for(tmp_path):
    config = tiny()
    config.data.validation, config.eval.data, config.eval.select = 16, "", "validation"
    with trainer.Trainer(config, tmp_path / "a") as session:
        assert session.progress.selected_by == "validation"
    config.eval.select = ""
    with trainer.Trainer(config, tmp_path / "b") as session:
        assert session.progress.selected_by == ""
    config.optimizer.plateau_factor = 0.2
    with pytest.raises(
        ConfigError, match=r"optimizer\.plateau_factor=0\.2 needs a score: give eval\.dev=pairs\.tsv or eval\.select"
    ):
        trainer.Trainer(config, tmp_path / "c")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight")
    assert running.run(tiny(), workdir) == 0
    return result(workdir)


def stops_in(monkeypatch, owner, name, when=lambda *arguments: True):
    """A signal arrives at the end of a function, once; what the function was called with."""
    calls, real = [], getattr(owner, name)

    def stopping(*arguments):
        if when(*arguments):
            calls.append(arguments)
            if len(calls) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    monkeypatch.setattr(owner, name, stopping)
    return calls


@pytest.mark.parametrize("at", [2, STEPS])
def test_an_evaluation_that_a_signal_ends_is_done_by_the_next_start(straight, monkeypatch, tmp_path, at):
    calls = stops_in(monkeypatch, Scorer, "measure", lambda scorer, step, params: step == at)
    assert running.run(tiny(), tmp_path) == PREEMPTED
    assert newest(tmp_path / "checkpoints")[0] == at
    assert not any("diagnostics/spread" in event and event["step"] == at for event in events(tmp_path))
    assert running.run(tiny(), tmp_path) == 0
    assert len(calls) == 2
    assert result(tmp_path) == straight


def test_a_signal_while_the_end_is_scored_leaves_that_for_the_next_start(straight, monkeypatch, tmp_path):
    stops_in(monkeypatch, Results, "score")
    assert running.run(tiny(), tmp_path) == PREEMPTED
    assert not (tmp_path / "export").exists()
    assert running.run(tiny(), tmp_path) == 0
    assert (tmp_path / "export" / "model.safetensors").is_file()
    assert result(tmp_path) == straight


def test_the_first_signal_is_noted_and_the_second_left_to_the_system():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopSignal() as stop:
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before  # nothing to save yet
        stop.watch()
        assert not stop.at(1)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.at(1)
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        with pytest.raises(Preempted), stop.interruptible():
            pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def _raise_import_error(signals):
    with contextlib.suppress(Preempted):
        for number in signals:
            os.kill(os.getpid(), number)
    raise ImportError


@pytest.mark.parametrize(("signals", "raised"), [([signal.SIGTERM], Preempted), ([], ImportError)])
def test_an_exception_by_which_c_code_replaces_a_signal_stops_the_run_as_the_signal_does(signals, raised):
    with StopSignal() as stop:
        stop.watch()
        with pytest.raises(raised), stop.interruptible():
            _raise_import_error(signals)


def test_a_terminal_that_closes_is_a_signal_and_its_repetition_is_none():
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    with StopSignal() as stop:
        stop.watch()
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.at(1)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # the shell sends another one
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert {number: signal.getsignal(number) for number in STOPPING} == handlers


@pytest.mark.parametrize(
    ("numbers", "ends_by"),
    [
        ((signal.SIGTERM, signal.SIGINT), True),
        ((signal.SIGTERM, signal.SIGHUP), False),  # Linux runs the handler of the larger number first
        ((signal.SIGTERM,), False),
        ((signal.SIGHUP,), False),
    ],
)
def test_a_second_signal_before_python_handled_the_first_counts(monkeypatch, capsys, numbers, ends_by):
    raised, thread = [], threading.main_thread().ident
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    with StopSignal() as stop:
        stop.watch()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        for number in numbers:
            signal.pthread_kill(thread, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        assert stop.at(1)
        assert bool(raised) == ends_by
    assert "race condition" not in capsys.readouterr().err


TWICE = """
import hashlib, os, signal, sys, threading, time
from jax_sentemb.training.signals import StopSignal

def send():
    for _ in range(2):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        time.sleep(0.05)

with StopSignal() as stop:
    stop.watch()
    threading.Timer(0.2, send).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 8_000_000)  # holds Python's handlers up, as a long step does
    print(stop.at(1))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", -signal.SIGTERM), ("SIGHUP", 0)])
def test_the_same_signal_twice_in_a_long_step_counts_twice(name, code):
    """Of SIGHUP one counts, because the kernel and the shell both send one."""
    done = subprocess.run([sys.executable, "-c", TWICE, name], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout == ("" if code else "True\n")


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_that_was_ignored_stays_so(number):
    before = signal.signal(number, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignal() as stop:
            stop.watch()
            os.kill(os.getpid(), number)
            assert not stop.at(1)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_of_several_processes_a_closed_terminal_becomes_the_signal_that_jax_knows(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    noted = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    try:
        with StopSignal() as stop:
            stop.watch()
            os.kill(os.getpid(), signal.SIGHUP)
        assert noted == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def with_schedule(name, **options):
    config = tiny(**options)
    config.optimizer.lr_scheduler_type = name
    return config


def test_a_run_with_a_rate_that_does_not_depend_on_its_length_goes_on_to_more_steps(tmp_path):
    for steps in (6, 9):
        assert running.run(with_schedule("constant", max_steps=steps), tmp_path / "longer") == 0
    assert running.run(with_schedule("constant", max_steps=9), tmp_path / "at once") == 0
    assert result(tmp_path / "longer")[:3] == result(tmp_path / "at once")[:3]
    with pytest.raises(ModelFileError, match="already at step 9, but this run has 8 steps"):
        running.run(with_schedule("constant", max_steps=8), tmp_path / "longer")
    with pytest.raises(ModelFileError, match=r"lr_scheduler_type='constant', not with optimizer\.lr_scheduler_type='linear'"):
        running.run(tiny(max_steps=9), tmp_path / "longer")


def test_a_handler_that_is_not_from_python_stays(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)  # what Python says of a handler in C
    before = [signal.signal(number, signal.default_int_handler) for number in STOPPING]
    try:
        with StopSignal() as stop:
            stop.watch()
            assert not stop._previous
    finally:
        for number, handler in zip(STOPPING, before, strict=True):
            assert signal.signal(number, handler) == signal.default_int_handler


@pytest.mark.parametrize(
    ("options", "depends"),
    [
        ({}, True),
        ({"lr_scheduler_type": "cosine"}, True),
        ({"lr_scheduler_type": "constant"}, False),
        ({"lr_scheduler_type": "exponential"}, False),
        ({"lr_scheduler_type": "steps", "lr_steps": "5:1e-4"}, False),
        ({"lr_scheduler_type": "constant", "warmup_steps": 10}, False),
        ({"lr_scheduler_type": "constant", "warmup_ratio": 0.1}, True),
        ({"lr_scheduler_type": "constant", "warmup_ratio": 0.1, "warmup_steps": 10}, False),
    ],
)
def test_a_run_depends_on_its_length_where_the_rates_of_two_lengths_differ(options, depends):
    options = Optimizer(**options)
    rates = [[float(make_schedule(options, total, 4)(step)) for step in range(40)] for total in (50, 90)]
    assert rate_depends_on_length(options) == depends == (rates[0] != rates[1])


PATIENT = {"select": "retrieval", "patience": 2, "max_steps": 11}


@pytest.fixture(scope="module")
def constant():
    """Nothing is learnt: no evaluation is above the first one, at step 2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "make_optimizer", lambda *arguments: optax.set_to_zero())
        yield


@pytest.fixture(scope="module")
def patient(constant, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("patient")
    assert running.run(tiny(**PATIENT), workdir) == 0
    return result(workdir)


def test_evaluations_that_are_not_better_end_training(patient):
    assert patient[:2] == (6, 2)  # 4 and 6 are not above 2, and 8 is not reached
    assert {event["step"] for event in patient[3] if "diagnostics/retrieval" in event} == {0, 2, 4, 6}


@pytest.mark.parametrize("at", [4, 6])
def test_a_stopped_run_ends_at_the_same_evaluation(patient, monkeypatch, tmp_path, at):
    calls = stops_in(monkeypatch, Scorer, "measure", lambda scorer, step, params: step == at)
    assert running.run(tiny(**PATIENT), tmp_path) == PREEMPTED
    assert len(calls) == 1
    assert running.run(tiny(**PATIENT), tmp_path) == 0
    assert result(tmp_path) == patient
    assert (tmp_path / "export").is_dir()
    assert running.run(tiny(**PATIENT), tmp_path) == 0  # done is done
    assert result(tmp_path)[:3] == patient[:3]


def test_a_run_that_has_ended_goes_on_with_more_patience(patient, constant, tmp_path):
    for patience, last in ((1, 4), (3, 8)):
        assert running.run(tiny(**{**PATIENT, "patience": patience}), tmp_path) == 0
        assert newest(tmp_path / "checkpoints")[0] == last


def test_scores_of_another_kind_are_not_compared(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stops_in(patch, Scorer, "measure", lambda scorer, step, params: step == 4)
        assert running.run(tiny(select="retrieval"), tmp_path) == PREEMPTED
    assert newest(tmp_path / "best")[0] == 2
    assert running.run(tiny(select="dev"), tmp_path) == 0
    name = "eval/grammar-dev/spearman_cosine"
    dev = {event["step"]: event[name] for event in events(tmp_path) if name in event}
    assert newest(tmp_path / "best")[0] == max((4, 6), key=dev.__getitem__)


class Poison:
    """Batches with these numbers have a loss and an update that are NaN; `trained`: the numbers of all batches in their order."""

    def __init__(self, monkeypatch, *numbers, stop_at=None):
        self.numbers, self.trained, self.names = numbers, [], {}
        real_at, real_make_step = Batches.at, trainer.make_step

        def at(batches, number, *process):
            batch = real_at(batches, number, *process)
            self.names[batch.tokens.tobytes()] = number
            self.lines = batches.lines
            return batch

        def make_step(*arguments):
            step = real_make_step(*arguments)

            def poisoned(state, parts):
                number = self.names[jax.device_get(parts[0].tokens).tobytes()]
                self.trained.append(number)
                if number == stop_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                state, metrics = step(state, parts)
                if number in self.numbers:
                    with jax.transfer_guard("allow"):
                        metrics = {**metrics, "loss": jnp.array(np.nan)}
                        state = state._replace(params=jax.tree.map(lambda leaf: leaf * np.nan, state.params))
                return state, metrics

            return poisoned

        monkeypatch.setattr(Batches, "at", at)
        monkeypatch.setattr(trainer, "make_step", make_step)


def test_nan_leaves_a_report_and_the_last_checkpoint(monkeypatch, tmp_path):
    poison = Poison(monkeypatch, 4)
    with pytest.raises(NotFinite, match=r"step 5: loss nan.*not_finite\.json"):
        running.run(tiny(), tmp_path)
    report = json.loads((tmp_path / "not_finite.json").read_text())
    assert report["step"] == 5
    assert report["rows"] == poison.lines(4).tolist()
    assert [step for step, _ in report["losses"]] == [1, 2, 3, 4, 5]
    assert np.isfinite([loss for _, loss in report["losses"][:4]]).all()
    assert np.isnan(report["losses"][4][1])
    step, _ = newest(tmp_path / "checkpoints")
    assert step == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(read_params(tmp_path / "checkpoints" / "3")))
    assert any("step 5" in event.get("warning", "") for event in events(tmp_path))


def test_a_collapse_is_a_warning_and_the_end_of_a_strict_run(straight, tmp_path):
    assert any("step 4: the embeddings collapse" in event.get("warning", "") for event in straight[3])
    with pytest.raises(NumericsError, match="step 2: the embeddings collapse") as caught:
        running.run(tiny(strict=True), tmp_path)
    assert caught.value.exit_code == 5
    assert events(tmp_path)[-1]["warning"] == caught.value.text()
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(("window", "after"), [(1, [3, 5, 6]), (9, [5, 6, 7])])
def test_a_rewind_skips_the_batches_that_led_to_nan_and_can_be_resumed(monkeypatch, tmp_path, window, after):
    with monkeypatch.context() as patch:
        poison = Poison(patch, 4)
        assert running.run(tiny(on_nan=f"rewind:{window}"), tmp_path / "through") == 0
    assert poison.trained[:5] == [0, 1, 2, 3, 4]
    assert poison.trained[-3:] == after
    expected = result(tmp_path / "through")
    assert all(np.isfinite(event["train/loss"]) for event in expected[3] if "train/loss" in event)
    assert sum("are skipped" in event.get("warning", "") for event in expected[3]) == 1
    if window == 1:
        with monkeypatch.context() as patch:
            Poison(patch, 4, stop_at=5)
            code = running.run(tiny(on_nan="rewind:1"), tmp_path / "stopped")
        assert code == PREEMPTED
        with monkeypatch.context() as patch:
            poison = Poison(patch, 4)
            assert running.run(tiny(on_nan="rewind:1"), tmp_path / "stopped") == 0
        assert 4 not in poison.trained
        assert result(tmp_path / "stopped") == expected


def test_nan_without_end_is_rewound_three_times(monkeypatch, tmp_path):
    poison = Poison(monkeypatch, *range(3, 100))
    with pytest.raises(NotFinite, match="skipped 3 times already"):
        running.run(tiny(on_nan="rewind:2"), tmp_path)
    assert sum(number == 3 for number in poison.trained) == 1
    assert newest(tmp_path / "checkpoints")[0] == 3


def test_weights_that_overflow_are_not_saved():
    tree = {"kernel": jnp.ones((2, 3)), "count": jnp.int32(3)}
    check_finite(1, tree)
    with pytest.raises(NotFinite, match="step 7"):
        check_finite(7, {**tree, "bias": jnp.array([1.0, jnp.inf])})


def test_batches_that_are_taken_out_leave_the_order_of_the_others():
    assert [after_skips(step, [2, 3, 5]) for step in range(5)] == [0, 1, 4, 6, 7]
    assert [after_skips(step, []) for step in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["rewind", "rewind:0", "rewind:x", "skip:3", "rewind:-1"])
def test_another_word_for_nan_is_refused(text):
    with pytest.raises(ConfigError, match="rewind:K"):
        tiny(on_nan=text)


def test_the_lock_says_who_holds_it(tmp_path, capsys):
    arguments = ["main", f"--config={CONFIG}:tiny", "--config.train.max_steps=0", f"--workdir={tmp_path}"]
    with running._lock(tmp_path):
        for _ in range(2):
            assert program(main, arguments) == 6
            assert f"in use by process {os.getpid()} on {platform.node()} since " in capsys.readouterr().err
    with running._lock(tmp_path):
        assert not capsys.readouterr().err  # it was given back
    (tmp_path / "LOCK").write_text(json.dumps({"host": "another", "pid": 1, "since": "yesterday"}))
    with running._lock(tmp_path):
        assert "was interrupted (process 1 on another since yesterday); continuing" in capsys.readouterr().err
