"""Find recipes by name or file, as .py or .yaml, and change their settings by name.

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
from typing import TYPE_CHECKING, Any

from jax_sentemb.data.shipped import shipped_folder
from jax_sentemb.errors import ConfigError, Message, Setting, UserError, yaml_key
from jax_sentemb.files import user_path
from jax_sentemb.settings import UnknownSetting, assign, flatten, possible

if TYPE_CHECKING:
    from jax_sentemb.config import Config

FOLDER = shipped_folder("configs")

# Names in other libraries and in papers -> our setting.
SYNONYMS = {
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


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def description(name: str) -> str:
    """Return the docstring of the recipe `FILE:SIZE`, "" for a .yaml file."""
    file, _ = find(name)
    return _docstring(file) if file.suffix == ".py" else ""


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_bytes())) or ""


def find(name: str) -> tuple[Path, list[str]]:
    """Return file and size of FILE:SIZE, where FILE is a path or the name of a recipe.

    Raises:
        ConfigError: There is no such file or recipe.
    """
    file, *size = name.split(":", 1)
    path = user_path(file)
    if path.is_file():
        return path, size
    if re.fullmatch(r"\w+", file) and (FOLDER / f"{file}.py").is_file():
        return FOLDER / f"{file}.py", size
    if path.is_dir():
        raise ConfigError(Setting("--config", path), ": is a directory: name a file in it")
    raise ConfigError(Setting("--config", path), f": no such file{_missing_file_hint(path)}")


def _missing_file_hint(path: Path) -> str:
    """Return the end of a message on a missing file: a file or, unless a .yaml file is meant, a recipe with a similar name."""
    is_yaml = path.suffix in (".yaml", ".yml")
    pattern = f"*{path.suffix or '.py'}"
    near_files = [str(path.parent / file.name) for file in path.parent.glob(pattern)] if path.parent.is_dir() else []
    close = difflib.get_close_matches(str(path), near_files, 1) or difflib.get_close_matches(
        path.stem, [] if is_yaml else names(), 1
    )
    recipe_hint = "" if is_yaml else " and no recipe of that name: jax-sentemb recipes lists them"
    return f"; did you mean {close[0]}?" if close else recipe_hint


def read_config(name: str) -> "Config":
    """Return the Config of a recipe, `FILE:SIZE`.

    Raises:
        ConfigError: The file does not give a config; the message names its line.
    """
    file, size = find(name)
    try:
        return _from_yaml(file, size) if file.suffix in (".yaml", ".yml") else _from_python(file, size)
    except RecursionError:
        raise ConfigError(Setting("--config", file), ": is nested too deeply, or is its own recipe") from None


def _from_python(file: Path, size: list[str]) -> "Config":
    """Return the result of get_config of a .py file: a Config, or the Config that its ConfigDict describes."""
    from ml_collections import ConfigDict

    from jax_sentemb.config import Config  # imported here, so that recipes can be listed without loading JAX

    try:
        get_config = runpy.run_path(str(file)).get("get_config")
        config = get_config(*size) if get_config else None
    except (UserError, RecursionError):
        raise
    except (Exception, SystemExit) as error:  # whatever the file raised
        raise ConfigError(Setting("--config", file), f": {_python_problem(error, file)}") from error
    if get_config is None:
        raise ConfigError(Setting("--config", file), ": defines no get_config()")
    if isinstance(config, ConfigDict):
        return _changed_recipe(file, _dotted(config.to_dict()))
    if not isinstance(config, Config):
        problem = f": get_config returned {type(config).__name__}, not a jax_sentemb Config or an ml_collections.ConfigDict"
        raise ConfigError(Setting("--config", file), problem)
    return config


def _python_problem(error: BaseException, file: Path) -> str:
    """Return the line of the config file and the message of an exception that it raised."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (f"line {lines[-1]}: " if lines else "") + f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def _from_yaml(file: Path, size: list[str]) -> "Config":
    """Return the recipe that a .yaml file names, with the settings of the file: nested by section, or by dotted names."""
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
    recipe_file = file.parent / recipe.partition(":")[0]
    config = read_config(str(file.parent / recipe) if recipe_file.is_file() else recipe)
    try:
        change(config, [(name, value) for name, value in settings if name != "recipe"])
    except ConfigError as error:
        raise ConfigError(Setting("--config", file), ": ", error.text(yaml_key)) from error
    return config


@functools.cache
def _text_loader() -> Any:
    """Return PyYAML's safe loader that leaves values as text, so that `assign` reads them as on a command line."""
    import yaml

    class TextLoader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if key.value != "<<"]
            if repeated := [name for name in names if names.count(name) > 1]:
                raise yaml.constructor.ConstructorError(None, None, f"{repeated[0]} is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

    merge = {"<": yaml.SafeLoader.yaml_implicit_resolvers["<"]}
    TextLoader.yaml_implicit_resolvers = merge
    return TextLoader


def _dotted(content: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return [("data.batch_size", "128")] of {"data": {"batch_size": "128"}}."""
    settings: list[tuple[str, Any]] = []
    for name, value in content.items():
        settings += _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return settings


def resolve_names(config: "Config", settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings by dotted names: "learning_rate" and "optimizer__learning_rate" become "optimizer.learning_rate".

    A field's name alone means a setting of the training, so `batch_size` is data.batch_size and not eval.batch_size.

    Raises:
        ConfigError: Two sections have a setting of this name.
    """
    settable, all_settings, resolved = flatten(config), possible(config), []
    for name, value in settings.items():
        dotted = name.replace("__", ".")
        if dotted not in all_settings and "." not in dotted:
            matches = [
                setting for setting in settable if setting.rpartition(".")[2] == dotted and not setting.startswith("pretrain.")
            ]
            matches = [setting for setting in matches if not setting.startswith("eval.")] or matches
            matches = matches or [
                setting for setting in all_settings if setting.rpartition(".")[2] == dotted and not setting.startswith("pretrain.")
            ]
            if len(matches) > 1:
                choices = [part for setting in matches for part in (" or ", Setting(setting))]
                raise ConfigError(f"{name} is a setting of several parts; write ", *choices[1:])
            dotted = matches[0] if matches else dotted
        resolved.append((dotted, value))
    return resolved


def change(config: "Config", settings: Iterable[tuple[str, Any]], create: bool = True) -> None:
    """Assign settings by their dotted names, optional parts before their settings. Every way to give a setting calls this function.

    Raises:
        ConfigError: A setting is unknown or given twice, a value does not fit, or an optional part is both removed and set.
    """
    values: dict[str, Any] = {}
    for name, value in settings:
        if name in values:
            raise ConfigError(Setting(name), " is given twice: leave one of them out")
        values[name] = value
    for name in sorted(values, key=lambda name: name.count(".")):
        override(config, name, values[name], create)
        inside = [setting for setting in values if setting.startswith(f"{name}.")]
        if inside and flatten(config).get(name, ...) is None:
            raise ConfigError(
                Setting(name, values[name]), " removes the section of ", Setting(inside[0]), ": give only one of the two"
            )


def override(config: "Config", name: str, value: Any, create: bool = True) -> None:
    """Assign one setting; the error for an unknown setting suggests a similar name."""
    try:
        assign(config, name, value, create)
    except UnknownSetting as error:
        settable = flatten(config)
        error.change(missing_part(name, settable) or (*error.message, *suggestion(name, possible(config))))
        raise


def missing_part(name: str, known: Mapping[str, Any]) -> Message:
    """Return the message if `name` is in an optional part of the config that is None, such as pretrain.train.seed; otherwise ()."""
    absent_parts = [setting for setting in known if known[setting] is None and name.startswith(f"{setting}.")]
    return (
        (Setting(name), " cannot be set: ", Setting(absent_parts[0]), " is None; write it into a .py recipe")
        if absent_parts
        else ()
    )


def suggestion(name: str, known: Mapping[str, Any]) -> Message:
    """Return the end of a message on an unknown setting: a setting with a similar meaning or spelling, or where all are listed."""
    section, _, last = name.lower().rpartition(".")
    misspelt = difflib.get_close_matches(name, [setting for setting in known if setting.rpartition(".")[0] == section], 1, 0.9)
    same_field = [setting for setting in known if setting.rpartition(".")[2] == last]
    synonyms = [setting for setting in (SYNONYMS.get(last, ""),) if setting in known]
    similar_settings = difflib.get_close_matches(name, known, 1, 0.75)
    fields = {setting.rpartition(".")[2]: setting for setting in reversed(list(known))}
    similar_fields = [fields[setting] for setting in difflib.get_close_matches(last, fields, 1, 0.7)]
    candidates = [*misspelt, *same_field, *synonyms, *similar_settings, *similar_fields, *difflib.get_close_matches(name, known, 1)]
    return (
        ("; did you mean ", Setting(candidates[0]), "?")
        if candidates
        else ("; jax-sentemb train --config RECIPE --help lists all settings",)
    )
