"""Recipes by name or file, as .py or .yaml, and changes of their settings by name.

A recipe is a file of configs/, which is installed with the package: `simcse` is configs/simcse.py, `simcse:tiny` its short run on
generated sentences. A .yaml file, or a .py file whose get_config returns an ml_collections.ConfigDict, names a recipe and the
settings that differ from it.
"""

import ast
import difflib
import functools
import re
import runpy
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax_sentemb.errors import ConfigError, Message, Setting, UserError, yaml_key
from jax_sentemb.files import user_path
from jax_sentemb.settings import UnknownSetting, assign, flatten, possible

if TYPE_CHECKING:
    from jax_sentemb.config import Config

# Words of other libraries and of papers, by the setting that they mean.
MEANT = {
    "lr": "optimizer.learning_rate",
    "rate": "optimizer.learning_rate",
    "step_size": "optimizer.learning_rate",
    "scheduler": "optimizer.lr_scheduler_type",
    "schedule": "optimizer.lr_scheduler_type",
    "lr_scheduler": "optimizer.lr_scheduler_type",
    "warmup": "optimizer.warmup_steps",
    "decay": "optimizer.weight_decay",
    "wd": "optimizer.weight_decay",
    "clip": "optimizer.max_grad_norm",
    "grad_clip": "optimizer.max_grad_norm",
    "max_norm": "optimizer.max_grad_norm",
    "epochs": "train.num_train_epochs",
    "epoch": "train.num_train_epochs",
    "num_epochs": "train.num_train_epochs",
    "steps": "train.max_steps",
    "num_steps": "train.max_steps",
    "iterations": "train.max_steps",
    "bf16": "train.precision",
    "fp16": "train.precision",
    "dtype": "train.precision",
    "gradient_checkpointing": "train.remat",
    "log_steps": "train.logging_steps",
    "random_seed": "train.seed",
    "model": "encoder.weights",
    "model_name": "encoder.weights",
    "model_name_or_path": "encoder.weights",
    "base_model": "encoder.weights",
    "pretrained": "encoder.weights",
    "checkpoint": "encoder.weights",
    "bert": "encoder.weights",
    "layers_to_keep": "encoder.layers",
    "num_layers": "encoder.num_hidden_layers",
    "heads": "encoder.num_attention_heads",
    "num_heads": "encoder.num_attention_heads",
    "hidden": "encoder.hidden_size",
    "batch": "data.batch_size",
    "bs": "data.batch_size",
    "train_batch_size": "data.batch_size",
    "per_device_train_batch_size": "data.batch_size",
    "corpus": "data.files",
    "file": "data.files",
    "train_file": "data.files",
    "text": "data.files",
    "max_length": "data.max_seq_length",
    "max_len": "data.max_seq_length",
    "seq_length": "data.max_seq_length",
    "length": "data.max_seq_length",
    "workers": "data.num_workers",
    "low_shot": "data.subset",
    "matryoshka_dims": "train.matryoshka",
    "trainable_layers": "train.last_layers",
    "unfrozen_layers": "train.last_layers",
    "temp": "method.temperature",
    "tau": "method.temperature",
    "senteval": "eval.data",
    "dev_file": "eval.dev",
    "early_stopping": "eval.patience",
    "evaluation_steps": "eval.eval_steps",
}


class Recipe(NamedTuple):
    """A recipe of configs/."""

    name: str
    summary: str  # first sentence of its docstring
    needs: str  # what a user gives it
    path: Path


def folder() -> Path:
    """The folder of the recipes: installed with the package, or at the top of a checkout."""
    installed = Path(__file__).parent / "configs"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "configs"


def names() -> list[str]:
    """The names of all recipes."""
    return sorted(path.stem for path in folder().glob("*.py"))


def recipes() -> list[Recipe]:
    """All recipes with a line each; no recipe is run for it."""
    return [_described(folder() / f"{name}.py") for name in names()]


def description(name: str) -> str:
    """The docstring of the recipe `FILE:SIZE`, "" of a .yaml file."""
    file, _ = find(name)
    return _docstring(file) if file.suffix == ".py" else ""


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_bytes())) or ""


def _described(path: Path) -> Recipe:
    text = _docstring(path)
    files = re.search(r"--config\.data\.files=([\w.:/]+)", text)
    needs = {
        "consecutive sentences": bool(files) and files[1].startswith("ordered"),
        "sentences": bool(files) and files[1].startswith("corpus"),
        "labelled pairs": bool(files) and files[1].startswith(("pairs", "nli", "arguments")),
        "SentEval data": not files or files[1].startswith("senteval"),
        "a BERT": "--config.encoder.weights=" in text,
        "word vectors": "--config.encoder.vectors=" in text,
    }
    if path.stem == "quickstart":
        needs = {}
    return Recipe(path.stem, text.partition("\n")[0].removesuffix("."), ", ".join(filter(needs.get, needs)) or "nothing", path)


def find(name: str) -> tuple[Path, list[str]]:
    """File and size of FILE:SIZE, where FILE is a path or the name of a recipe; ConfigError where there is none."""
    file, *size = name.split(":", 1)
    path = user_path(file)
    if path.is_file():
        return path, size
    if re.fullmatch(r"\w+", file) and (folder() / f"{file}.py").is_file():
        return folder() / f"{file}.py", size
    if path.is_dir():
        raise ConfigError(Setting("--config", path), ": is a directory: name a file in it")
    raise ConfigError(Setting("--config", path), f": no such file{_similar(path)}")


def _similar(path: Path) -> str:
    """The end of a message on a file that is missing: a file or, where no .yaml file is meant, a recipe of a similar name."""
    is_yaml = path.suffix in (".yaml", ".yml")
    pattern = f"*{path.suffix or '.py'}"
    near = [str(path.parent / other.name) for other in path.parent.glob(pattern)] if path.parent.is_dir() else []
    close = difflib.get_close_matches(str(path), near, 1) or difflib.get_close_matches(path.stem, [] if is_yaml else names(), 1)
    otherwise = "" if is_yaml else " and no recipe of that name: jax-sentemb recipes lists them"
    return f"; did you mean {close[0]}?" if close else otherwise


def read_config(name: str) -> "Config":
    """The Config of a recipe, `FILE:SIZE`; ConfigError, with the line of the file, for whatever the file does instead."""
    file, size = find(name)
    try:
        return _from_yaml(file, size) if file.suffix in (".yaml", ".yml") else _from_python(file, size)
    except RecursionError:
        raise ConfigError(Setting("--config", file), ": is nested too deeply, or is its own recipe") from None


def _from_python(file: Path, size: list[str]) -> "Config":
    """Return what get_config of a .py file returns: a Config, or a ConfigDict as the Config that it describes."""
    from ml_collections import ConfigDict

    from jax_sentemb.config import Config  # here, so that the names of recipes are known without loading JAX

    try:
        get_config = runpy.run_path(str(file)).get("get_config")
        config = get_config(*size) if get_config else None
    except (UserError, RecursionError):
        raise
    except (Exception, SystemExit) as error:  # whatever the file raised
        raise ConfigError(Setting("--config", file), f": {_where(error, file)}") from error
    if get_config is None:
        raise ConfigError(Setting("--config", file), ": defines no get_config()")
    if isinstance(config, ConfigDict):
        return _changed_recipe(file, _dotted(config.to_dict()))
    if not isinstance(config, Config):
        problem = f": get_config returned {type(config).__name__}, not a jax_sentemb Config or an ml_collections.ConfigDict"
        raise ConfigError(Setting("--config", file), problem)
    return config


def _where(error: BaseException, file: Path) -> str:
    """Line of the config file, and message, of what it raised."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (f"line {lines[-1]}: " if lines else "") + f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def _from_yaml(file: Path, size: list[str]) -> "Config":
    """The recipe that a .yaml file names, with the settings of the file: nested by section, or by dotted names."""
    import yaml

    if size:
        problem = f": the size belongs to the recipe in the file, for instance recipe: simcse:{size[0]}"
        raise ConfigError(Setting("--config", f"{file}:{size[0]}"), problem)
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _text_loader())
        settings = _dotted(content) if isinstance(content, dict) else []
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(Setting("--config", file), f": not YAML: {' '.join(str(error).split())[:150]}") from None
    return _changed_recipe(file, settings)


def _changed_recipe(file: Path, settings: list[tuple[str, Any]]) -> "Config":
    """Return the config of the recipe that a file names under `recipe`, with the other settings of the file."""
    recipe = dict(settings).get("recipe")
    if not isinstance(recipe, str):
        example = "recipe: simcse" if file.suffix != ".py" else 'config.recipe = "simcse"'
        raise ConfigError(Setting("--config", file), f": has no recipe: write for instance {example}")
    beside = file.parent / recipe.partition(":")[0]
    config = read_config(str(file.parent / recipe) if beside.is_file() else recipe)
    try:
        change(config, [(name, value) for name, value in settings if name != "recipe"])
    except ConfigError as error:
        raise ConfigError(Setting("--config", file), ": ", error.text(yaml_key)) from error
    return config


@functools.cache
def _text_loader() -> Any:
    """PyYAML's safe loader, which leaves values as the text that stands in the file: `assign` reads it as in a command line."""
    import yaml

    class TextLoader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if key.value != "<<"]
            if twice := [name for name in names if names.count(name) > 1]:
                raise yaml.constructor.ConstructorError(None, None, f"{twice[0]} is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

    merge = {"<": yaml.SafeLoader.yaml_implicit_resolvers["<"]}
    TextLoader.yaml_implicit_resolvers = merge
    return TextLoader


def _dotted(content: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """[("data.batch_size", "128")] of {"data": {"batch_size": "128"}}."""
    found: list[tuple[str, Any]] = []
    for name, value in content.items():
        found += _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return found


def resolve_names(config: "Config", settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The settings by dotted names: "learning_rate" and "optimizer__learning_rate" are "optimizer.learning_rate".

    A field's name alone means the training's own setting, so that `batch_size` is data.batch_size and not eval.batch_size.
    ConfigError for a name that two sections have.
    """
    known, every, found = flatten(config), possible(config), []
    for name, value in settings.items():
        dotted = name.replace("__", ".")
        if dotted not in every and "." not in dotted:
            ends = [each for each in known if each.rpartition(".")[2] == dotted and not each.startswith("pretrain.")]
            ends = [each for each in ends if not each.startswith("eval.")] or ends
            ends = ends or [each for each in every if each.rpartition(".")[2] == dotted and not each.startswith("pretrain.")]
            if len(ends) > 1:
                choices = [part for each in ends for part in (" or ", Setting(each))]
                raise ConfigError(f"{name} is a setting of several parts; write ", *choices[1:])
            dotted = ends[0] if ends else dotted
        found.append((dotted, value))
    return found


def change(config: "Config", settings: Iterable[tuple[str, Any]], create: bool = True) -> None:
    """Assign settings by their dotted names, optional parts before what is in them. Every door to the settings ends here.

    Raises:
        ConfigError: A setting is unknown or given twice, a value does not fit, or an optional part is left out and set.
    """
    given: dict[str, Any] = {}
    for name, value in settings:
        if name in given:
            raise ConfigError(Setting(name), " is given twice: leave one of them out")
        given[name] = value
    for name in sorted(given, key=lambda name: name.count(".")):
        override(config, name, given[name], create)
        inside = [other for other in given if other.startswith(f"{name}.")]
        if inside and flatten(config).get(name, ...) is None:
            raise ConfigError(Setting(name, given[name]), " leaves out the part of ", Setting(inside[0]), ": give one of them")


def override(config: "Config", name: str, value: Any, create: bool = True) -> None:
    """Assign one setting; the error for an unknown one proposes the setting that was meant."""
    try:
        assign(config, name, value, create)
    except UnknownSetting as error:
        known = flatten(config)
        error.change(missing_part(name, known) or (*error.message, *suggestion(name, possible(config))))
        raise


def missing_part(name: str, known: Mapping[str, Any]) -> Message:
    """The message where `name` is in an optional part of the config that is None, such as pretrain.train.seed; () elsewhere."""
    empty = [each for each in known if known[each] is None and name.startswith(f"{each}.")]
    return (Setting(name), " cannot be set: ", Setting(empty[0]), " is None; write it into a .py recipe") if empty else ()


def suggestion(name: str, known: Mapping[str, Any]) -> Message:
    """The end of a message on an unknown setting: the one that it means or is spelled like, or where all are listed."""
    last = name.rpartition(".")[2].lower()
    same = [each for each in known if each.rpartition(".")[2] == last]
    meant = [each for each in (MEANT.get(last, ""),) if each in known]
    near = difflib.get_close_matches(name, known, 1, 0.75)
    fields = {each.rpartition(".")[2]: each for each in reversed(list(known))}
    close = [fields[each] for each in difflib.get_close_matches(last, fields, 1, 0.7)]
    found = [*same, *meant, *near, *close, *difflib.get_close_matches(name, known, 1)]
    return (
        ("; did you mean ", Setting(found[0]), "?") if found else ("; jax-sentemb train --config RECIPE --help lists all settings",)
    )
