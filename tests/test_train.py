"""The command line of `train`: help that explains every setting, and .yaml files."""

from pathlib import Path

import pytest

from jax_sentemb.cli.train import parse
from jax_sentemb.config import Data, flatten
from jax_sentemb.errors import ConfigError
from jax_sentemb.recipes import names
from jax_sentemb.settings import field_comments, setting_lines

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


def test_help_of_a_study_describes_it_and_names_its_variants(capsys):
    with pytest.raises(SystemExit):
        parse(["train", "--config=micse_low_shot", "--help"])
    shown = capsys.readouterr().out
    assert "\nmicse_low_shot:\n\nThe low-shot protocol of miCSE" in shown
    assert "\n      SimCSE, AMI+SimCSE, MoCo+SimCSE, miCSE" in shown
    assert "Variant(" not in shown
    assert "--config.method." not in shown
    assert "--config.data.subset=0.0  (the sweep sets it)\n" in shown
    assert "--config.train.seed=42  (the sweep sets it)\n" in shown
    assert "--config.data.batch_size=50  (some variants set it)\n" in shown
    assert "--config.train.precision='float32'\n" in shown


def test_help_of_a_recipe_in_any_form(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("recipe: simcse\n")
    (tmp_path / "mark.py").write_text((ROOT / "configs/simcse.py").read_text(), encoding="utf-8-sig")
    for name, says in (("mine.yaml", "mine.yaml, with their values"), ("mark.py", "mark.py:\n\nSimCSE, unsupervised")):
        with pytest.raises(SystemExit) as ended:
            parse(["train", f"--config={tmp_path / name}", "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert says in shown
        assert "--config.method.temperature=0.05" in shown


def test_help_has_all_lines_above_a_setting():
    assert field_comments(Data)["files"].startswith("Paths and globs, comma separated; or hf:NAME")
    assert field_comments(Data)["files"].endswith("reads only the files of its own number")
    assert field_comments(Data)["column"].startswith("the field with the text")


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


def test_a_tuple_of_another_kind_is_said_to_be_one():
    config, *_ = parse(["train", "--config=micse", "--config.data.files=a.txt", "--config.method.ami.layers=2,4"])
    assert config.method.ami.layers == (2, 4)
    with pytest.raises(ConfigError, match=r"method\.ami\.layers=1\.5 is not a list of whole numbers"):
        parse(["train", "--config=micse", "--config.data.files=a.txt", "--config.method.ami.layers=1.5"])
