"""The commands in the READMEs of the studies are accepted as they are written, and say which data is missing."""

import argparse
import importlib
import itertools
import re
import runpy
import shlex
import statistics
import sys
from pathlib import Path

import pytest

from jax_sentemb.__main__ import COMMANDS
from jax_sentemb.cli.train import parse as parse_train
from jax_sentemb.training.sweep import variants
from tests.pages import ROOT

READMES = sorted((ROOT / "experiments").glob("*/README.md"))
NOT_RUN = {
    "table.py": "reads sys.argv", "partners.py": "reads sys.argv", "cross_probe.py": "reads sys.argv",
    "senteval_speed.py": "loads PyTorch", "vectors.py": "needs gensim",
}  # fmt: skip
PLACEHOLDER = "STAGE"  # of a README, for one of several stages


class Parsed(Exception):
    """Raised instead of running what follows the command line."""


def commands():
    """(study, arguments) of each command of a README; "..." stands for the arguments of the command before it with that program."""
    for readme in READMES:
        text = readme.read_text(encoding="utf-8")
        before = {}
        for block in re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                words = words[1:] if words[:1] == ["PYTHONPATH=."] else words
                if words[:1] not in (["python"], ["jax-sentemb"]):
                    continue
                size = 3 if words[1] == "-m" else 2
                program, arguments = tuple(words[:size]), words[size:]
                config = [word.partition(":")[0] for option, word in itertools.pairwise(arguments) if option == "--config"]
                if "..." in arguments:
                    given = {word.partition("=")[0] for word in arguments} | {"--config.sweep"}
                    earlier = before.get((*program, *config), before.get(program, []))
                    kept = [word for word in earlier if "=" not in word or word.partition("=")[0] not in given]
                    arguments = merged(kept, [word for word in arguments if word != "..."])
                before[program] = before[*program, *config] = arguments
                yield pytest.param([*program, *arguments], id=f"{readme.parent.name}-{' '.join(words)[:60]}")


def merged(earlier, arguments):
    """The options of both; of an option that both have, the later one."""
    given = {word for word in arguments if word.startswith("--")}
    kept, skip = [], False
    for word in earlier:
        skip = word in given if word.startswith("--") else skip
        if not skip:
            kept.append(word)
    return [*kept, *arguments]


ALL = list(commands())


@pytest.mark.parametrize("words", ALL)
def test_a_command_is_accepted_as_it_is_written(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    if words[:2] == ["jax-sentemb", "train"]:
        parse_train(["main", *words[2:]])
    elif words[0] == "jax-sentemb":
        module = importlib.import_module(COMMANDS[words[1]][0])
        module.parser().parse_args(words[2:])
    elif words[1] == "-m":
        assert words[2] == "jax_sentemb.main"
        config, *_ = parse_train(["main", *words[3:]])
        if config.sweep or config.variants:
            variants(config)
    else:
        run_script(words[1], words[2:], tmp_path, capsys, monkeypatch)


def run_script(name, arguments, folder, capsys, monkeypatch):
    script = ROOT / name
    assert script.is_file()
    if script.name in NOT_RUN:
        return
    parse_args = argparse.ArgumentParser.parse_args

    def stop(parser, *given):
        raise Parsed(parse_args(parser, *given))

    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    for module in ("run", "data", "study_data"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    reads_data = re.search(r"from study_data import .*\b(parse|require)\b", script.read_text(encoding="utf-8"))
    if not reads_data:
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    chosen = ["choose" if word == PLACEHOLDER else str(folder) if word == "DIR" else word for word in arguments]
    monkeypatch.setattr(sys, "argv", [str(script), *chosen])
    with pytest.raises(SystemExit if reads_data else Parsed) as caught:
        runpy.run_path(str(script), run_name="__main__")
    if reads_data:
        said = capsys.readouterr().err
        assert caught.value.code == 3, said
        assert f"missing: {folder}/" in said
        assert "get it from: " in said


def test_readmes_have_commands_of_every_study():
    studies = {str(parameter.id).partition("-")[0] for parameter in ALL}
    assert studies == {readme.parent.name for readme in READMES}


LAUNCHERS = {
    "conssent/run.py": ("--vectors", "glove.npz", "--seeds", "1", "42"),
    "conssent/slope.py": ("--vectors", "glove.npz"),
    "multiview/run.py": ("--vectors", "glove.npz", "--seeds", "1"),
    "is_bert/run.py": ("--weights", "bert", "--corpus", "nli.txt", "--arguments", "aspect.tsv"),
    "attention_mi/run.py": ("--weights", "bert"),
}


@pytest.mark.parametrize("script", LAUNCHERS)
def test_a_study_starts_commands_that_are_accepted(script, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = ROOT / "experiments" / script
    monkeypatch.setattr(sys, "path", [str(path.parent), str(ROOT / "experiments"), *sys.path])
    for module in ("run", "data", "study_data"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for check in ("require", "require_model"):
        monkeypatch.setattr(importlib.import_module("study_data"), check, lambda value: None)
    runs = []

    def start(command, **options):
        assert command[1] == "-m"
        if command[2] == "jax_sentemb.main":
            runs.append(parse_train(["main", *command[3:]]))
        else:
            importlib.import_module(COMMANDS[command[3]][0]).parser().parse_args(command[4:])

    def open_file(file, mode="r", **options):
        if "w" in mode:
            raise Parsed(file)  # all commands were started; the results are not written
        return open(file, mode, **options)

    monkeypatch.setattr("subprocess.run", start)
    monkeypatch.setattr(Path, "open", open_file)
    monkeypatch.setattr(sys, "argv", [str(path), *LAUNCHERS[script], "--data", str(tmp_path), "--workdir", str(tmp_path / "runs")])
    with pytest.raises((Parsed, statistics.StatisticsError)):  # the second: a mean over scores that no command wrote
        runpy.run_path(str(path), run_name="__main__")
    assert runs
