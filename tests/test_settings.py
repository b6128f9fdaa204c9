"""One door to the settings: the shell, Python, YAML and a sweep give a setting the same value, or the same error."""

import copy
import dataclasses
import pickle
import re
from dataclasses import dataclass, field, is_dataclass

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jax_sentemb.cli.train import config_settings, parser
from jax_sentemb.config import Config, Train, unused_notes
from jax_sentemb.errors import ConfigError, DataError, Setting, UserError, dotted, flag, keyword, spelled, yaml_key
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.recipes import change, names, read_config, resolve_names
from jax_sentemb.settings import assign, check_settings, flatten, possible, setting, unmet, unused
from jax_sentemb.training import sweep

RECIPES = {name: read_config(name) for name in names()}
NAMES = sorted({(recipe, name) for recipe, config in RECIPES.items() for name in possible(config)})
TEXTS = (
    "true", "False", "yes", "off", "1", "0", "2", "-1", "0x40", "0b11", "0x", "1e-3", "1e3", "8.0", "8.5", "nan", "inf", "-inf",
    "1_000",
    "99999999999999999999", "none", "null", "~", "None", "1,2", "(1,2)", "[1, 2]", "1,,2", "1,", "()", "('a','b')", "(", "a,b",
    "float32", "mean", "cls", "many", "", " 3 ", "é", "0" * 5000, "x" * 100,
)  # fmt: skip


def outcome(config, assign_all):
    """The settings after `assign_all`, or the parts of its error's message, as a text: nan is not equal to nan."""
    config = copy.deepcopy(config)
    try:
        assign_all(config)
    except ConfigError as error:
        while isinstance(error.__cause__, ConfigError):  # YAML puts the name of the file before it
            error = error.__cause__
        return repr([part for part in error.message if part != "sweep: "])
    return repr(flatten(config))


def by_flag(config, name, text):
    change(config, config_settings([f"--config.{name}={text}"], config, parser()))


def by_keyword(config, name, value):
    change(config, resolve_names(config, {name.replace(".", "__"): value}))


def by_yaml(folder, recipe):
    def door(config, name, text):
        part, _, last = name.rpartition(".")
        content = yaml.safe_dump({part: {last: text}} if part else {last: text})
        if re.fullmatch(r"[\w.+-]+", text) and text != "-":  # as a user writes it, without quotes; "-" begins a list in YAML
            content = f"{name}: {text}\n"
        (folder / "mine.yaml").write_text(f"recipe: {recipe}\n{content}", "utf-8")
        vars(config).update(vars(read_config(str(folder / "mine.yaml"))))

    return door


def by_sweep(config, name, text):
    (((written, values),),) = (sweep.parse(f"{name}={text}|").items(),)
    sweep._change(config, {written: values[0]}, True)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(NAMES), st.sampled_from(TEXTS) | st.text(max_size=8))
@example(("micse", "method.ami.layers"), "9,10")
@example(("simcse", "method.ami.layers"), "(9, 10)")
@example(("mlm", "data.pack"), "1")
@example(("simcse", "data.batch_size"), "0x40")
@example(("simcse", "method.ami"), "True")
def test_a_text_means_the_same_through_each_door(tmp_path, setting_name, text):
    recipe, name = setting_name
    config = RECIPES[recipe]
    expected = outcome(config, lambda config: change(config, [(name, text)]))
    assert outcome(config, lambda config: by_flag(config, name, text)) == expected
    assert outcome(config, lambda config: by_keyword(config, name, text)) == expected
    assert outcome(config, lambda config: by_yaml(tmp_path, recipe)(config, name, text)) == expected
    if text and not set(text) & set("|=") and not any(letter.isspace() for letter in text):
        assert outcome(config, lambda config: by_sweep(config, name, text)) == expected


@pytest.mark.parametrize("recipe", names())
def test_the_value_of_every_setting_can_be_given_again(recipe):
    values = {name: value for name, value in possible(RECIPES[recipe]).items() if not isinstance(value, dict)}
    parts = {name for name in values if any(other.startswith(f"{name}.") for other in values)} | {"pretrain"}
    for name, value in values.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for door, given_value in ((by_flag, text), (by_keyword, value)) if name not in parts else ():
            config = copy.deepcopy(RECIPES[recipe])
            door(config, name, given_value)
            assert possible(config)[name] == value, (name, door)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("data.batch_size", "0x40", 64),
        ("data.batch_size", "1e3", 1000),
        ("data.batch_size", 64.0, 64),
        ("data.pack", 1, True),
        ("data.pack", "off", False),
        ("data.subset", "1", 1.0),
        ("optimizer.learning_rate", "1e-5", 1e-5),
        ("method.ami.layers", [3, 4], (3, 4)),
        ("method.ami.layers", "3,4", (3, 4)),
        ("method.ami.layers", "[3, 4]", (3, 4)),
        ("method.ami.layers", "3,", (3,)),
        ("method.ami.layers", 3, (3,)),
        ("method.ami.layers", "", ()),
        ("method.ami", True, AttentionMI()),
        ("method.ami", AttentionMI(weight=1.0), AttentionMI(weight=1.0)),
        ("method.ami", "none", None),
        ("data.files", 5, "5"),
    ],
)
def test_values(name, value, expected):
    config = copy.deepcopy(RECIPES["simcse"])
    assign(config, name, value)
    target = config
    for part in name.split("."):
        target = getattr(target, part)
    assert target == expected
    assert type(target) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("data.batch_size", True, "data.batch_size=True is not a whole number"),
        ("data.batch_size", "8.5", "data.batch_size=8.5 is not a whole number"),
        ("data.pack", 2, "data.pack=2 is not True or False"),
        ("data.pack", None, "data.pack=None is not True or False"),
        ("data.files", None, "data.files=None is not text"),
        ("data.files", ["a"], "data.files=a is not text"),
        ("method.ami.layers", "1,,2", "method.ami.layers=1,,2 is not a list of whole numbers"),
        ("method.ami", "layers", "method.ami=layers is not True or None: set one of its settings, for instance method.ami.weight"),
        ("data", "3", "data is a section, not a setting: set one of its settings, or write a .py recipe"),
        ("encoder.dropout", 1, "encoder.dropout=1.0 must be at least 0 and below 1"),
        ("train.precision", "float16", "train.precision=float16 is not one of float32, bfloat16"),
        ("optimizer.learning_rate", "nan", "optimizer.learning_rate=nan is not a finite number"),
        ("train.seed", 1 << 31, "train.seed=2147483648 must be below 2147483648"),
        ("method.anchor", -1, "method.anchor=-1.0 must be at least 0"),
        ("data.batch", 3, "data.batch is unknown"),
        ("method.ami.layers.first", 3, "method.ami.layers.first is unknown"),
    ],
)
def test_errors(name, value, says):
    with pytest.raises(ConfigError) as error:
        assign(copy.deepcopy(RECIPES["simcse"]), name, value)
    assert str(error.value) == says


def test_a_part_cannot_be_left_out_and_set():
    with pytest.raises(ConfigError, match=r"method\.ami=None removes the section of method\.ami\.weight: give only one of the two"):
        change(copy.deepcopy(RECIPES["simcse"]), [("method.ami.weight", "1"), ("method.ami", None)])
    config = copy.deepcopy(RECIPES["simcse"])
    change(config, [("method.ami.weight", "1"), ("method.ami", True)])
    assert config.method.ami == AttentionMI(weight=1.0)


def test_limits():
    @dataclass
    class Limited:
        share: float = setting(0.5, above=0, most=1)
        sizes: tuple[int, ...] = setting((1, 2), least=1)
        word: str = setting("a", choices=("a", "b"))
        inner: "Config | None" = field(default=None)

    check_settings(Limited())
    for values, says in (
        ({"share": 0.0}, "x.share=0.0 must be above 0 and at most 1"),
        ({"share": 1.5}, "x.share=1.5 must be above 0 and at most 1"),
        ({"sizes": (1, 0)}, "x.sizes=1,0 must be at least 1"),
        ({"word": "c"}, "x.word=c is not one of a, b"),
        ({"sizes": [1]}, "x.sizes=[1] is list, not a tuple of whole numbers"),
    ):
        with pytest.raises(ConfigError) as error:
            check_settings(Limited(**values), "x.")
        assert str(error.value) == says


@pytest.mark.parametrize(
    ("changes", "unused_name", "cause"),
    [
        ({"method.rank_temperature": 0.1}, "method.rank_temperature=0.1", "method.rank_consistency=0.0"),
        ({"method.rank_temperature": 0.1, "method.rank_consistency": 1.0}, "", ""),
        ({"train.max_steps": 5, "train.num_train_epochs": 2.0}, "train.num_train_epochs=2.0", "train.max_steps=5"),
        ({"optimizer.name": "sgd", "optimizer.adam_epsilon": 0.1}, "optimizer.adam_epsilon=0.1", "optimizer.name=sgd"),
        ({"optimizer.name": "rmsprop", "optimizer.adam_epsilon": 0.1}, "", ""),
        ({"encoder.weights": "bert", "encoder.hidden_size": 64}, "encoder.hidden_size=64", "encoder.weights=bert"),
        ({"encoder.weights": "bert", "data.vocab_size": 64}, "data.vocab_size=64", "encoder.weights=bert"),
        ({"data.vocab_size": 64, "encoder.hidden_size": 64}, "", ""),
        ({"data.files": "a.txt", "data.fold": 3}, "data.fold=3", "data.files=a.txt"),
        ({"data.files": "arguments:a.csv", "data.fold": 3}, "", ""),
        ({"data.subset_seed": 3}, "data.subset_seed=3", "data.subset=0.0"),
        ({"data.subset_seed": 3, "data.subset": 0.5}, "", ""),
        ({"data.subset_seed": 3, "data.files": "grammar:50"}, "", ""),
    ],
)
def test_a_changed_setting_without_effect_is_noted(changes, unused_name, cause):
    config = copy.deepcopy(RECIPES["simcse"])
    for name, value in changes.items():
        assign(config, name, value)
    notes = [f"{unused_name} is not used, since {cause}"] if unused_name else []
    assert [note.replace("--config.", "") for note in unused_notes(config)] == notes


@pytest.mark.parametrize(
    ("recipe", "name", "value", "cause"),
    [
        ("ct", "encoder.dropout", 0.5, "method.dropout=False"),
        ("quick_thoughts", "data.vocab_size", 64, "this recipe trains on word vectors"),
        ("quick_thoughts", "train.remat", True, "this recipe trains on word vectors"),
        ("quick_thoughts", "train.activations", "bfloat16", "this recipe trains on word vectors"),
        ("quick_thoughts", "data.length_grouping", 1, "a batch has consecutive sentences"),
        ("multi_view", "data.length_grouping", 1, "a batch has consecutive sentences"),
        ("cons_sent_ranking", "method.classifier_width", 64, "method.task=N"),
        ("cross_encoder_stsb", "eval.diagnostic_sentences", 64, "a cross-encoder has no embeddings"),
        ("cross_encoder_stsb", "method.classes", ("a", "b"), "method.task=scores"),
    ],
)
def test_a_changed_setting_that_the_recipe_does_not_use_is_noted(recipe, name, value, cause):
    config = copy.deepcopy(RECIPES[recipe])
    assign(config, name, value)
    text = ",".join(value) if isinstance(value, tuple) else value
    assert [note.replace("--config.", "") for note in unused_notes(config)] == [f"{name}={text} is not used, since {cause}"]


@pytest.mark.parametrize(("epochs", "epoch", "steps"), [(0.28, 25, 7), (2.2, 50, 110), (0.07, 100, 7), (0.281, 25, 8), (1.0, 3, 3)])
def test_a_part_of_an_epoch_is_rounded_up(epochs, epoch, steps):
    assert Train(num_train_epochs=epochs).number_of_steps(epoch) == steps
    assert Train(num_train_epochs=epochs, max_steps=2).number_of_steps(epoch) == 2


def test_the_first_condition_that_is_not_met_is_the_cause():
    assert unmet(MultiView(form="both", invertible=False), "beta") == "invertible"
    assert unmet(MultiView(form="discriminative", invertible=False), "beta") == "form"
    assert unmet(MultiView(form="both"), "beta") == ""


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_recipe_has_settings_without_effect(name):
    config = RECIPES[name]
    runs = [config, *([config.pretrain] if config.pretrain else [])]
    assert [note for run in runs for note in unused_notes(run)] == []
    assert [note for variant in config.variants.values() for note in unused(variant.method)] == []


def test_a_condition_names_settings_and_values_that_exist():
    sections = {type(part) for config in RECIPES.values() for part in (*vars(config).values(), *_methods(config))}
    fields = {(section, item.name): item for section in filter(is_dataclass, sections) for item in dataclasses.fields(section)}
    conditions = [
        (section, condition.removeprefix("not ").partition("="))
        for (section, _), item in fields.items()
        for condition in filter(None, item.metadata.get("used_if", "").split(" and "))
    ]
    assert len(conditions) > 20
    for section, (other, _, values) in conditions:
        limits = fields[section, other].metadata.get("limits")
        for value in values.split("|") if values and limits else ():
            assert limits.allow(value if limits.choices else int(value))


def _methods(config):
    return [variant.method for variant in config.variants.values()]


def test_each_door_spells_a_setting_in_its_own_way():
    error = DataError(Setting("data.files", "a b.txt"), ": no such file; see ", Setting("--workdir", "runs"), Setting("eval.dev"))
    assert error.text(dotted) == str(error) == "data.files=a b.txt: no such file; see --workdir runseval.dev"
    assert error.text(flag) == "--config.data.files=a b.txt: no such file; see --workdir runs--config.eval.dev"
    assert error.text(keyword) == 'sentences="a b.txt": no such file; see workdir="runs"eval__dev'
    assert error.text(yaml_key) == "data.files: a b.txt: no such file; see --workdir runseval.dev"
    assert (error.setting, error.value) == ("data.files", "a b.txt")
    assert str(error.rename({"data.files": "--input"})) == "--input a b.txt: no such file; see --workdir runseval.dev"
    with pytest.raises(DataError, match=r"^--config\.a: b$"), spelled(flag):
        raise DataError("b").at(Setting("a"), ": ")
    again = pickle.loads(pickle.dumps(error.within("pretrain")))
    assert (str(again), again.message) == (str(error), error.message)
    assert UserError("x").setting is None
