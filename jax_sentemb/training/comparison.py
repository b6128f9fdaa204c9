"""Build the study of `jax-sentemb compare`: every recipe as published and at one common budget, and the untrained encoder."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Train, Variant, check, flatten
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation.catalog import DISJOINT_DEV, SETS, SEVEN, AbsentSet, load_sts_task
from jax_sentemb.evaluation.sts_data import senteval_root
from jax_sentemb.files import read_json, user_path
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.recipes import change, read_config
from jax_sentemb.settings import assign
from jax_sentemb.training.sweep import MAX_RUNS

START, PUBLISHED, COMMON = "start", "published", "common"
EVALUATIONS = 10  # of a run with the common budget
WARMUP = 0.1  # of its steps
# Settings that an option of the command or the comparison itself decides.
OPTION_OF = {
    "data.files": "--corpus", "data.column": "--column", "encoder.weights": "--weights", "encoder.readout": "--readout",
    "eval.data": "--data", "train.seed": "--seeds", "train.max_steps": "--steps", "data.batch_size": "--batch-size",
    "data.max_seq_length": "--max-seq-length",
}  # fmt: skip
SHARED = ("data.files", "data.column", "data.join", "data.tokenizer", "data.vocab_size", "train.seed")
SELECTION = ("eval.eval_steps", "eval.select", "eval.patience")


class Budget(NamedTuple):
    """What every recipe gets at the common budget."""

    steps: int
    batch_size: int
    max_seq_length: int
    readout: str


class Comparison(NamedTuple):
    """The runs of a comparison: two studies that share a work directory."""

    starts: Config
    study: Config
    recipes: tuple[str, ...]
    seeds: int
    selects: bool  # whether a development set selects the weights


def comparison(
    recipes: Sequence[str], seeds: int, base: Config, budget: Budget, overrides: Sequence[tuple[str, Any]] = ()
) -> Comparison:
    """Return the runs of every recipe and of the untrained encoder.

    Args:
        recipes: Names or files of recipes; the others are compared with the first.
        seeds: Runs of each recipe and budget.
        base: The corpus, the encoder and the scored sets of all runs, as `base_config` returns them.
        budget: The common budget.
        overrides: Settings of all runs, which replace those of the recipes.

    Raises:
        ConfigError: A recipe cannot be compared, or a setting is not one that all runs share.
    """
    configs = {_name(recipe): _read_recipe(recipe) for recipe in recipes}
    if len(configs) < len(recipes):
        raise ConfigError(Setting("--recipes", ",".join(recipes)), ": a recipe is named twice; name each once")
    for name, value in overrides:
        _check_override(name, value)
    change(base, overrides)
    own = {name for name, _ in overrides}
    weights = base.encoder.weights if isinstance(base.encoder, Encoder) else ""
    variants: dict[str, Variant] = {}
    for name, config in configs.items():
        _check_recipe(name, config, weights)
        settings = _published_settings(config)
        methods = {PUBLISHED: config.method, COMMON: _with_readout(name, config.method, budget.readout)}
        budgets = {PUBLISHED: settings, COMMON: settings | _common_settings(budget)}
        for group, method in methods.items():
            chosen = {setting: value for setting, value in budgets[group].items() if setting not in own}
            variants[f"{name}:{group}"] = Variant(method, chosen | ({} if base.eval.dev else {"eval.select": "last"}))
    if len(variants) * seeds > MAX_RUNS:
        raise ConfigError(
            Setting("--seeds", seeds), f": {len(variants) * seeds:,} runs, at most {MAX_RUNS:,} are possible; lower it"
        )
    untrained = {"train.max_steps": 0, "eval.eval_steps": 0, "eval.select": "last"}
    starts = {f"{START}:{readout}": Variant(SimCSE(pooling=readout), untrained) for readout in POOLINGS}
    result = Comparison(
        _study(base, starts, 1 if weights else seeds), _study(base, variants, seeds), tuple(configs), seeds, bool(base.eval.dev)
    )
    for config in (result.starts, result.study):
        check(config)
    return result


def _read_recipe(name: str) -> Config:
    """Return the Config of a recipe; an error names the option that listed it."""
    try:
        return read_config(name)
    except ConfigError as error:
        raise error.rename({"--config": "--recipes"}) from None


def base_config(corpus: str, column: str, weights: str, senteval: Path) -> Config:
    """Return the corpus, the encoder and the scored sets of all runs.

    Raises:
        DataError: `senteval` has none of the seven sets.
    """
    root = senteval_root(senteval)
    if not any(file.is_file() for name in SEVEN for file in SETS[name].files(root)):
        raise DataError(
            Setting("--data", senteval), f" has none of the sets {', '.join(SEVEN)}; jax-sentemb evaluate --check lists files"
        )
    development = ""
    with contextlib.suppress(AbsentSet):
        load_sts_task(DISJOINT_DEV, root)
        development = DISJOINT_DEV
    return Config(
        SimCSE(),
        data=Data(files=corpus, column=column),
        encoder=Encoder(weights=weights, readout="method" if weights else Encoder.readout),
        eval=Evaluation(data=str(senteval), dev=development),
    )


def run_facts(workdir: Path, folder: str) -> dict[str, Any]:
    """Return readout, length, batch size, steps and learning rate of a finished run, from its config.json and run.json."""
    settings, facts = (read_json(workdir / folder / name) for name in ("config.json", "run.json"))
    return {
        "readout": settings["method.pooling"],
        "length": settings["data.max_seq_length"],
        "batch": settings["data.batch_size"],
        "rate": settings["optimizer.learning_rate"],
        "steps": facts["steps"],
    }


def _study(base: Config, variants: Mapping[str, Variant], seeds: int) -> Config:
    """Return the study of some variants; its own method is never run."""
    first = next(iter(variants.values()))
    return dataclasses.replace(base, method=first.method, variants=dict(variants), sweep=f"train.seed=1..{seeds}")


def _name(recipe: str) -> str:
    """Return the name of a recipe in tables: without folder, suffix and size."""
    return user_path(recipe.partition(":")[0]).stem


def _check_override(name: str, value: Any) -> None:
    if name in OPTION_OF:
        raise ConfigError(Setting(name, value), " is not a setting of a comparison; use ", Setting(OPTION_OF[name]))
    if name.partition(".")[0] in ("method", "pretrain", "sweep", "variants") or name in SELECTION or name == "eval.dev":
        raise ConfigError(Setting(name, value), " differs between recipes; write it into a recipe (.yaml) and compare that")


def _check_recipe(name: str, config: Config, weights: str) -> None:
    """Raise ConfigError if a recipe cannot be trained on any corpus from any BERT, once."""
    if name == START:
        problem = "has the name of the untrained encoder; rename the file"
    elif config.variants or config.sweep:
        problem = "is a study of several runs; name recipes of one run"
    elif config.pretrain is not None:
        problem = "trains twice; compare recipes that train once"
    elif not isinstance(config.encoder, Encoder):
        problem = "trains on word vectors; compare recipes that train a BERT"
    elif config.method.is_cross_encoder or not config.method.trains_sentences:
        problem = "does not train sentence embeddings; name another recipe"
    elif config.data.files:
        problem = f"has its own data, {config.data.files}; compare recipes for your text"
    elif not (config.encoder.from_scratch or weights):
        problem = "improves a model that is already good; name one with --weights"
    else:
        shared = flatten(Encoder(from_scratch=config.encoder.from_scratch))
        changed = [key for key, value in shared.items() if flatten(config.encoder)[key] != value]
        changed = [f"encoder.{key}" for key in changed]
        changed += [
            f"data.{key}" for key in ("join", "tokenizer", "vocab_size") if getattr(config.data, key) != getattr(Data(), key)
        ]
        changed += [f"eval.{key}" for key, value in flatten(Evaluation()).items() if getattr(config.eval, key) != value]
        changed = [key for key in changed if key not in SELECTION]
        if not changed:
            return
        problem = f"changes {changed[0]}, which all runs share; remove it from the recipe"
    raise ConfigError(Setting("--recipes", name), f" {problem}")


def _published_settings(config: Config) -> dict[str, Any]:
    """Return the settings of a recipe that are not those of its method, of the corpus and of the encoder."""
    settings = {
        name: value
        for name, value in flatten(config).items()
        if name.startswith(("data.", "optimizer.", "train.")) or name in SELECTION
    }
    return {name: value for name, value in settings.items() if name not in SHARED}


def _common_settings(budget: Budget) -> dict[str, Any]:
    return {
        "data.max_seq_length": budget.max_seq_length,
        "data.batch_size": budget.batch_size,
        "data.subset": 0.0,
        "data.validation": 0,
        "data.length_grouping": Data().length_grouping,
        "optimizer.warmup_steps": 0,
        "optimizer.warmup_ratio": WARMUP,
        "optimizer.plateau_factor": 1.0,
        "train.max_steps": budget.steps,
        "train.num_train_epochs": Train().num_train_epochs,
        "train.save_steps": Train().save_steps,
        "eval.eval_steps": max(1, budget.steps // EVALUATIONS),
        "eval.select": "",
        "eval.patience": 0,
    }


def _with_readout(name: str, method: Method, readout: str) -> Method:
    """Return the method with another pooling.

    Raises:
        ConfigError: The method is defined for another pooling only.
    """
    changed = dataclasses.replace(method)  # pyright: ignore[reportArgumentType]
    try:
        assign(changed, "pooling", readout)
    except ConfigError:
        raise ConfigError(
            Setting("--readout", readout),
            f": {name} can only be read by {method.pooling}; use ",
            Setting("--readout", method.pooling),
        ) from None
    return changed
