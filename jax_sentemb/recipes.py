"""Recipes by name or file, as .py or .yaml, and changes of their settings by name.

A recipe is a file of configs/, which is installed with the package: `simcse` is configs/simcse.py, `simcse:tiny` its short run on
generated sentences. A .yaml file names a recipe and the settings that differ from it.
"""

import ast
import dataclasses
import difflib
import re
import runpy
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax_sentemb.errors import ConfigError, UserError
from jax_sentemb.files import user_path
from jax_sentemb.settings import NAMES, flatten

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
        raise ConfigError(f"--config {path}: is a directory: name a file in it")
    raise ConfigError(f"--config {path}: no such file{_similar(path)}")


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
    if file.suffix in (".yaml", ".yml"):
        if size:
            raise ConfigError(f"--config {name}: the size belongs to the recipe in the file, for instance recipe: simcse:{size[0]}")
        try:
            return _from_yaml(file)
        except RecursionError:
            raise ConfigError(f"--config {file}: is nested too deeply, or is its own recipe") from None
    from jax_sentemb.config import Config  # here, so that the names of recipes are known without loading JAX

    try:
        get_config = runpy.run_path(str(file)).get("get_config")
        config = get_config(*size) if get_config else None
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever the file raised
        raise ConfigError(f"--config {name}: {_where(error, file)}") from error
    if get_config is None:
        raise ConfigError(f"--config {file}: defines no get_config()")
    if not isinstance(config, Config):
        raise ConfigError(f"--config {name}: get_config returned {type(config).__name__}, not a jax_sentemb Config")
    return config


def _where(error: BaseException, file: Path) -> str:
    """Line of the config file, and message, of what it raised."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (f"line {lines[-1]}: " if lines else "") + f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"


def _from_yaml(file: Path) -> "Config":
    """The recipe that a .yaml file names, with the settings of the file: nested by section, or by dotted names."""
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings = _dotted(content) if isinstance(content, dict) else {}
    except (yaml.YAMLError, ValueError) as error:  # ValueError: also a date that there is not
        raise ConfigError(f"--config {file}: not YAML: {' '.join(str(error).split())[:150]}") from None
    if not isinstance(recipe := settings.pop("recipe", None), str):
        raise ConfigError(f"--config {file}: has no recipe: write for instance recipe: simcse")
    beside = file.parent / recipe.partition(":")[0]
    config = read_config(str(file.parent / recipe) if beside.is_file() else recipe)
    for name, value in settings.items():
        try:
            override(config, name, value)
        except ConfigError as error:
            raise ConfigError(f"--config {file}: {error}") from None
    return config


def _dotted(content: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """{"data.batch_size": 128} of {"data": {"batch_size": 128}}."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def resolve_names(config: "Config", settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `settings` by dotted names: "learning_rate" and "optimizer__learning_rate" are "optimizer.learning_rate".

    A field's name alone means the training's own setting, so that `batch_size` is data.batch_size and not eval.batch_size.
    ConfigError, with a suggestion, for a name that no setting has, or that two sections have.
    """
    known, found = flatten(config), {}
    for name, value in settings.items():
        dotted = name.replace("__", ".")
        if dotted not in known and "." not in dotted:
            ends = [one for one in known if one.rpartition(".")[2] == dotted and not one.startswith("pretrain.")]
            ends = [one for one in ends if not one.startswith("eval.")] or ends
            if len(ends) > 1:
                spelled = " or ".join(one.replace(".", "__") for one in ends)
                raise ConfigError(f"{name}: the settings {' and '.join(ends)} have this name; write {spelled}")
            dotted = ends[0] if ends else dotted
        if dotted not in known:
            raise ConfigError(missing_part(dotted, known) or f"setting {name} is unknown{suggestion(dotted, known)}")
        if dotted in found:
            raise ConfigError(f"{dotted} is given twice: leave one of them out")
        found[dotted] = value
    return found


def missing_part(name: str, known: Mapping[str, Any]) -> str:
    """A message where `name` is in an optional part of the config that is None, such as method.ami.weight; "" where it is not."""
    empty = [one for one in known if known[one] is None and f"{name}.".startswith(f"{one}.")]
    if not empty:
        return ""
    part = empty[0].rpartition(".")[2]
    having = [one for one in names() if re.search(rf"^        .*\b{part}=[A-Z]", (folder() / f"{one}.py").read_text("utf-8"), re.M)]
    other = f"take one that has it ({', '.join(having)}), or " if having else ""
    return f"{name}: {empty[0]} is None in this recipe: {other}write it into a .py recipe"


def suggestion(name: str, known: Mapping[str, Any], flag: str = "") -> str:
    """The end of a message on an unknown setting: the one that it means or is spelled like, or where all are listed."""
    last = name.rpartition(".")[2].lower()
    same = [one for one in known if one.rpartition(".")[2] == last]
    meant = [one for one in (MEANT.get(last, ""),) if one in known]
    near = difflib.get_close_matches(name, known, 1, 0.75)
    fields = {one.rpartition(".")[2]: one for one in reversed(list(known))}
    close = [fields[one] for one in difflib.get_close_matches(last, fields, 1, 0.7)]
    found = [*same, *meant, *near, *close, *difflib.get_close_matches(name, known, 1)]
    return f"; did you mean {flag}{found[0]}?" if found else "; --help beside --config lists all settings"


def override(config: "Config", name: str, value: Any) -> None:
    """Sets a setting by its dotted name, converted to the type of its value; ConfigError for an unknown name or a wrong value."""
    *path, last = name.split(".")
    target: Any = config
    for part in path:
        target = getattr(target, part, None)
    if not dataclasses.is_dataclass(target) or not hasattr(target, last):
        raise ConfigError(f"setting {name} is unknown{suggestion(name, flatten(config))}")
    kind = type(getattr(target, last))
    if kind not in NAMES:
        raise ConfigError(f"setting {name} is not a number, text, or True or False")
    try:
        setattr(target, last, _converted(value, kind))
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ConfigError(f"{name}={value} is not {NAMES[kind]}") from None


def _converted(value: Any, kind: Any) -> Any:
    """`value` as a `kind`: itself, a number of another kind without loss, or a text that writes it."""
    if kind is bool:
        return value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()]
    if kind is str and isinstance(value, Path):
        return str(value)
    if isinstance(value, bool) or (kind is str and not isinstance(value, str)):
        raise TypeError
    if kind is int and isinstance(value, float) and int(value) != value:
        raise ValueError
    return kind(value)
