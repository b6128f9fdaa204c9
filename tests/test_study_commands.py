"""The commands in the READMEs of the studies are accepted as they are written, and say which data is missing."""

import argparse
import importlib
import itertools
import re
import runpy
import shlex
import sys

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
    reads_data = "from study_data import" in script.read_text(encoding="utf-8")
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
