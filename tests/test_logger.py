"""What a run says: lines of progress, a bar with lines above it, events, and Weights & Biases through a stand-in."""

import errno
import io
import itertools
import json
import os
import re
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.config import Train
from jax_sentemb.errors import ConfigError, ResourceError, Setting, flag, keyword, spelled
from jax_sentemb.training import logger as module
from jax_sentemb.training.logger import Log, check_writers
from jax_sentemb.training.loop import Metrics


@pytest.fixture
def long(tmp_path):
    """A log of 1,000 steps, a warning among them that belongs to the start."""
    lines = [json.dumps({"step": step, "train/loss": 1.0}) + "\n" for step in range(1000)]
    lines.insert(700, json.dumps({"step": 0, "warning": "a disk"}) + "\n")
    (tmp_path / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "metrics.jsonl"


def test_what_is_behind_a_checkpoint_is_dropped_and_nothing_else(long):
    lines = long.read_bytes().splitlines(keepends=True)
    Log(long.parent).rewind(599)
    assert long.read_bytes() == b"".join([*lines[:600], lines[700]])
    Log(long.parent).rewind(-1)
    assert long.read_bytes() == b""


def test_a_log_is_whole_when_a_run_is_killed_while_it_is_cut(long, monkeypatch):
    def kill(*arguments):
        raise KeyboardInterrupt

    content = long.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            Log(long.parent).rewind(599)
    assert long.read_bytes() == content


def test_a_log_from_which_nothing_is_dropped_is_not_written(long):
    before = long.stat()
    Log(long.parent).rewind(999)
    assert (long.stat().st_ino, long.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", [b'{"step": 3', b"\xff\xfe\n", b'{"step": "x"}\n', b"[1]\n", b"\0" * 4096, b'{"step": 1e999}\n'])
def test_a_line_that_a_crash_has_damaged_is_dropped(long, damage):
    content = long.read_bytes()
    long.write_bytes(content + damage)
    Log(long.parent).rewind(999)
    assert long.read_bytes() == content
    long.write_bytes(content[:-1])  # all but the end of the last line
    Log(long.parent).rewind(999)
    assert long.read_bytes() == content


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """time.monotonic under the test's hand."""
    now = types.SimpleNamespace(value=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.value)
    return now


def test_without_a_terminal_lines_become_rarer_and_say_rate_and_time_left(tmp_path, clock, capsys):
    log = Log(tmp_path)
    for step in range(0, 10_001, 10):  # ten steps a second, of a run that goes on at step 5,000
        clock.value = 1000.0 + step / 10
        log.progress(5000 + step, 15_000, 0.5, 640.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "step 15000/15000: loss 0.5000, 640 sentences/s, 16:40 done, 00:00 left"
    steps = [int(re.match(r"step (\d+)/", line)[1]) for line in lines]
    pauses = [(after - before) / 10 for before, after in itertools.pairwise(steps[:-1])]
    assert min(pauses) >= 30
    assert pauses[-1] > 40  # a twentieth of the time so far
    half = next(line for line, step in zip(lines, steps, strict=True) if step >= 10_000)
    done, left = re.findall(r"(\d\d):(\d\d) (?:done|left)", half)
    assert sum(60 * int(minutes) + int(rest) for minutes, rest in (done, left)) == pytest.approx(1000, abs=2)


def test_slow_steps_have_a_time_left_after_the_second_one(tmp_path, clock, capsys):
    metrics = Metrics(Log(tmp_path), batch_size=60, total_steps=100, logging_steps=10)
    clock.value += 40  # compilation
    for step in range(1, 11):
        clock.value += 12
        metrics.add(step, {"loss": np.array(0.5), "grad_norm": np.array(1.0)})
        metrics.flush()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "step 2/100: loss 0.5000, 5 sentences/s, 00:12 done, 19:36 left"
    assert lines[1].startswith("step 5/100: ")
    events = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events] == [10]


def test_on_a_terminal_there_is_one_bar_and_lines_stand_above_it(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log = Log(tmp_path)
    log.progress(1, 4, 0.5, 640.0)
    bar = log.bar
    log.info("step 2: STS12 50.00")
    log.progress(4, 4, 0.25, 640.0)
    assert log.bar is bar
    log.close()
    text = terminal.getvalue()
    assert "loss 0.2500, 640 sentences/s" in text
    assert "4/4" in text
    assert "\rstep 2: STS12 50.00\n" in re.sub(r"\r +\r", "\r", text)  # on a line of its own, where the bar was cleared


def test_only_the_first_process_speaks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.jax, "process_index", lambda: 1)
    log = Log(tmp_path, Train(wandb="project"))
    log.event(1, {"train/loss": 1.0})
    log.warn(1, "hm")
    log.progress(1, 1, 0.5, 640.0)
    log.close()
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_a_warning_is_said_and_kept(tmp_path, capsys):
    Log(tmp_path).warn(3, "the embeddings collapse")
    assert capsys.readouterr().err == "warning: the embeddings collapse\n"
    event = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (event["step"], event["warning"]) == (3, "the embeddings collapse")


@pytest.mark.parametrize(("spell", "shown"), [(flag, "--config.eval.eval_steps=10"), (keyword, "eval__eval_steps=10")])
def test_a_logged_warning_has_settings_of_neither_the_shell_nor_python(tmp_path, capsys, spell, shown):
    with spelled(spell):
        Log(tmp_path).warn(3, "set ", Setting("eval.eval_steps", 10))
    assert capsys.readouterr().err == f"warning: set {shown}\n"
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["warning"] == "set eval.eval_steps=10"


class FakeRun:
    def __init__(self, name):
        self.id, self.logged, self.summary, self.ended = name or "new", [], {}, None

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, values):
        self.logged.append(values)

    def finish(self, exit_code):
        self.ended = exit_code


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the package with the part of its interface that is used."""
    package = types.ModuleType("wandb")
    package.Error, package.runs = type("Error", (Exception,), {}), []

    def init(**options):
        if options["project"] == "forbidden":
            raise package.Error("no account\nlong story")
        package.runs.append((options, FakeRun(options["id"])))
        return package.runs[-1][1]

    package.init = init
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package


def test_weights_and_biases_gets_the_numbers_under_one_id(tmp_path, wandb):
    for _ in range(2):  # the second time the run continues
        log = Log(tmp_path, Train(wandb="project"), {"train.seed": 3})
        log.event(5, {"train/loss": 0.5, "event": "text is not for it"})
        log.warn(5, "nor is this")
        log.summary({"STS12": 50.0})
        log.close()
    (first, run), (second, _) = wandb.runs
    assert (first["project"], first["config"], first["id"]) == ("project", {"train.seed": 3}, None)
    assert (second["id"], second["resume"]) == ("new", "allow")
    assert run.logged == [{"step": 5, "train/loss": 0.5}]
    assert (run.summary, run.ended) == ({"STS12": 50.0}, 0)


def test_a_run_that_an_error_ends_is_marked_as_failed(tmp_path, wandb):
    log = Log(tmp_path, Train(wandb="project"))
    try:
        raise RuntimeError
    except RuntimeError:
        log.close()
    assert wandb.runs[0][1].ended == 1


def test_a_full_disk_at_the_end_leaves_no_run_of_weights_and_biases_open(tmp_path, wandb, monkeypatch):
    log = Log(tmp_path, Train(wandb="project"))
    monkeypatch.setattr(module, "write_all", raising_full)
    log.event(1, {"train/loss": 0.5})
    with pytest.raises(ResourceError, match="lacks its last lines"):
        log.close()
    assert wandb.runs[0][1].ended == 1


def raising_full(descriptor, content):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_weights_and_biases_refuses_is_one_line(tmp_path, wandb):
    with pytest.raises(ConfigError, match=r"^train.wandb=forbidden: no account \(WANDB_MODE=offline needs no account\)$"):
        Log(tmp_path, Train(wandb="forbidden"))


def test_tensorboard_hides_the_steps_that_a_continued_run_repeats(tmp_path):
    pytest.importorskip("tensorboardX")
    log = Log(tmp_path, Train(tensorboard=True))
    for step in (-1, 3):  # the second time after a step that was not finite
        log.rewind(step)
        assert log.writer.purge_step == step + 1
        log.event(step + 1, {"train/loss": 2.0})
    log.close()


@pytest.mark.parametrize(("package", "option"), [("wandb", {"wandb": "project"}), ("tensorboardX", {"tensorboard": True})])
def test_a_package_that_is_missing_is_said_before_anything_runs(monkeypatch, package, option):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"needs .*: pip install \w+"):
        check_writers(Train(**option))
    check_writers(Train())


def test_a_log_is_written_through_no_link_and_into_no_pipe(tmp_path):
    (tmp_path / "victim").write_text('{"step": 9}\n')
    for plant in (lambda file: file.symlink_to(tmp_path / "victim"), os.mkfifo, lambda file: file.mkdir()):
        workdir = tmp_path / "run"
        workdir.mkdir()
        plant(workdir / "metrics.jsonl")
        log = Log(workdir)
        for use in (lambda log=log: log.event(1, {"a": 1.0}), lambda log=log: log.rewind(-1)):
            with pytest.raises(ConfigError, match=r"metrics\.jsonl is a link, a folder or a pipe, expected a file; delete it"):
                use()
        shutil.rmtree(workdir)
    assert (tmp_path / "victim").read_text() == '{"step": 9}\n'


def test_what_is_logged_names_no_folder(tmp_path):
    log = Log(tmp_path)
    log.warn(1, f"{tmp_path}/best/3 is damaged")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["warning"] == "3 is damaged"
