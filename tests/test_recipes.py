"""Recipes by name, file and .yaml; what is said of names that nobody has."""

import subprocess
import sys
from pathlib import Path

import pytest

from jax_sentemb import recipes
from jax_sentemb.cli.recipes import recipe_rows
from jax_sentemb.config import flatten
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.recipes import SYNONYMS, find, read_config, suggestion

ROOT = Path(__file__).parents[1]


def test_a_name_is_the_file_of_configs_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find("simcse:tiny") == (ROOT / "configs/simcse.py", ["tiny"])
    assert flatten(read_config("micse")) == flatten(read_config(str(ROOT / "configs/micse.py")))
    Path("simcse").write_text("")  # a file of the user comes first
    assert find("simcse")[0] == Path("simcse")


def test_every_recipe_has_a_line_and_what_it_needs():
    listed = {name: needs for name, _, needs in recipe_rows()}
    assert listed.keys() == {path.stem for path in ROOT.glob("configs/*.py")}
    assert all(summary for _, summary, _ in recipe_rows())
    expected = {
        "quickstart": "nothing",
        "simcse": "sentences, a BERT",
        "is_bert": "sentences (of a table: sentence1, sentence2), a BERT",
        "adapt": "sentences, a sentence encoder",
        "adapt_words": "sentences, a sentence encoder",
        "is_bert_task": "sentences of SentEval, a BERT",
        "is_bert_ssl_ft": "sentences of SentEval, scored pairs of SentEval, a BERT",
        "neighbours": "running text, a BERT",
        "crops": "running text, a BERT",
        "mlm": "sentences, a BERT or a size for a new one",
        "distill_encoder": "sentences, a BERT, a teacher",
        "multi_view": "running text, word vectors",
        "language_model": "sentences",
        "sbert_nli": "labelled pairs, a BERT",
        "arguments_sbert": "scored pairs, a BERT",
        "cross_encoder_nli_stsb": "labelled pairs, scored pairs of SentEval, a BERT",
        "micse_low_shot": "sentences, a BERT",
    }
    assert {name: listed[name] for name in expected} == expected


def test_a_yaml_file_changes_its_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "recipe: simcse\ndata: {files: corpus.txt, batch_size: 128}\noptimizer:\n  learning_rate: 1e-5\nmethod.pooling: mean\n"
    )
    config = read_config(str(file))
    changed = {"data.files": "corpus.txt", "data.batch_size": 128, "optimizer.learning_rate": 1e-5, "method.pooling": "mean"}
    assert flatten(config) == flatten(read_config("simcse")) | changed
    assert isinstance(config.optimizer.learning_rate, float)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data: {files: x}", "has no recipe"),
        ("recipe: absent", "no such file"),
        ("recipe: simcse\ndata: {batch: 3}", r"data\.batch is unknown; did you mean data\.batch_size\?"),
        ("recipe: simcse\ntrain: {seed: many}", r"mine\.yaml: train\.seed: many is not a whole number$"),
        ("recipe: [", "not YAML"),
        ("- simcse", "has no recipe"),
        ("recipe: mine.yaml", "or is its own recipe"),
        ("[" * 5000, "nested too deeply"),
        ("recipe: simcse\ndata: &a {b: *a}", "nested too deeply"),
        ("recipe: simcse\ndata: 2001-99-99", "data is a section, not a setting"),
        ("recipe: simcse\ntrain: {seed: 1, seed: 2}", "seed is given twice"),
        ("recipe: simcse\ntrain: {seed: 1}\ntrain.seed: 2", r"train\.seed is given twice"),
    ],
)
def test_a_yaml_file_that_cannot_be(tmp_path, text, says):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_config(str(tmp_path / "mine.yaml"))


CONFIG_DICT = """
from ml_collections import ConfigDict

def get_config(size=""):
    config = ConfigDict({"recipe": f"simcse:{size}", "method": {"temperature": 0.1}})
    config.data = ConfigDict({"batch_size": 12, "files": "corpus.txt"})
    return config
"""


def test_a_python_file_may_return_a_config_dict(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(CONFIG_DICT)
    changed = {"method.temperature": 0.1, "data.batch_size": 12, "data.files": "corpus.txt"}
    assert flatten(read_config(str(file))) == flatten(read_config("simcse")) | changed
    assert flatten(read_config(f"{file}:tiny")) == flatten(read_config("simcse:tiny")) | changed


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("batch_size", "batch", r"mine\.py: data\.batch is unknown; did you mean data\.batch_size\?"),
        ("12", "'many'", r"mine\.py: data\.batch_size: many is not a whole number$"),
        ('f"simcse:{size}"', "3", r'mine\.py: has no recipe: write for instance config\.recipe = "simcse"$'),
        ('f"simcse:{size}"', "'mine.py'", "is its own recipe"),
        ("return config", "return {}", r"get_config returned dict, not a jax_sentemb Config or an ml_collections\.ConfigDict"),
    ],
)
def test_a_config_dict_that_cannot_be(tmp_path, old, new, says):
    (tmp_path / "mine.py").write_text(CONFIG_DICT.replace(old, new))
    with pytest.raises(ConfigError, match=says):
        read_config(str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("train.lr", "optimizer.learning_rate"),
        ("model", "encoder.weights"),
        ("epochs", "train.num_train_epochs"),
        ("train.batch_size", "data.batch_size"),
        ("data.max_length", "data.max_seq_length"),
        ("optimiser.learning_rate", "optimizer.learning_rate"),
        ("method.temprature", "method.temperature"),
        ("seed", "train.seed"),
        ("encoder.weight", "encoder.weights"),
    ],
)
def test_an_unknown_setting_suggests_by_meaning(name, meant):
    assert suggestion(name, flatten(read_config("simcse"))) == ("; did you mean ", Setting(meant), "?")


def test_every_meant_setting_exists():
    known = flatten(read_config("micse")) | flatten(read_config("multi_view"))
    assert set(SYNONYMS.values()) <= known.keys()


def test_an_installed_package_has_the_recipes(tmp_path):
    """What setup.py builds is the content of a wheel."""
    command = [sys.executable, "setup.py", "--quiet", "build", "--build-base", tmp_path / "base", "--build-lib", tmp_path / "lib"]
    subprocess.run([*command, "egg_info", "--egg-base", tmp_path], cwd=ROOT, capture_output=True, check=True)
    code = "from jax_sentemb import recipes; print(recipes.find('simcse')[0], len(recipes.names()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tmp_path / "lib/jax_sentemb/configs/simcse.py"), str(len(recipes.names()))]
