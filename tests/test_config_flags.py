"""The command line of `train`: help that explains every setting, and .yaml files."""

from pathlib import Path

import pytest

from jax_sentemb.cli.config_flags import parse
from jax_sentemb.config import flatten
from jax_sentemb.recipes import names
from jax_sentemb.settings import setting_lines

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", names())
def test_help_explains_every_setting_of_every_recipe_without_data(name, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["train", "--config", name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "\n  --workdir DIR" in shown
    assert "\n  --config.data.batch_size=" in shown
    assert "sentences over all devices; at least 2" in shown


def test_help_shows_the_values_of_the_command_line_and_the_defaults(capsys):
    with pytest.raises(SystemExit):
        parse(["train", "--config=simcse", "--config.data.batch_size=128", "--help"])
    shown = capsys.readouterr().out
    assert "--config.data.batch_size=128\n      sentences over all devices; at least 2; default: 64" in shown


@pytest.mark.parametrize("name", names())
def test_every_setting_has_a_text(name):
    from jax_sentemb.recipes import read_config

    assert [line.name for line in setting_lines(read_config(name)) if not line.text] == []


def test_a_yaml_file_is_a_config_whose_run_has_its_name(tmp_path):
    (tmp_path / "mine.yaml").write_text("recipe: simcse\ndata:\n  files: corpus.txt\n")
    config, workdir, how = parse(["train", f"--config={tmp_path / 'mine.yaml'}", "--config.train.seed=7"])
    assert (config.data.files, config.train.seed, str(workdir)) == ("corpus.txt", 7, "runs/mine")
    assert how == {"automatic": False, "coordinator": "", "processes": 0, "process": -1}
    assert flatten(config)["data.files"] == "corpus.txt"
