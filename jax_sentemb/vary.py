"""One command for many runs: a config for every value of some settings, and the table of their scores."""

import copy
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.config import NAMES, Config, check
from jax_sentemb.errors import ConfigError, UserError
from jax_sentemb.paths import write_json

ARGUMENTS = "arguments"  # argument_folds.NAME; that module loads slowly
MOST = 1000  # runs of one command
REPEATED = ("train.seed", "data.fold")  # runs that differ in these alone are one row of the table, with mean and spread


def parse(text: str) -> dict[str, list[str]]:
    """{"train.seed": ["1", "2"], ...} of NAME=VALUE,VALUE NAME=FIRST..LAST; "|" separates values that hold commas."""
    found: dict[str, list[str]] = {}
    for entry in text.split():
        name, equals, values = entry.partition("=")
        span = re.fullmatch(r"(\d+)\.\.(\d+)", values)
        if not equals or not values:
            raise ConfigError(f"vary={text!r}: write SETTING=VALUE,VALUE for instance train.seed=1..10")
        if span:
            several = range(int(span[1]), int(span[2]) + 1)
            found[name] = [str(number) for number in several[: MOST + 1]]
        else:
            found[name] = [value for value in values.split("|" if "|" in values else ",") if value]
        if not found[name]:
            raise ConfigError(f"vary={text!r}: {name} has no value")
    if math.prod(map(len, found.values())) > MOST:
        raise ConfigError(f"vary={text!r}: more than {MOST:,} runs")
    return found


def variants(config: Config) -> list[tuple[dict[str, str], Config]]:
    """The chosen values and the config of every run; ConfigError before the first of them starts."""
    settings = parse(config.vary)
    if settings.get("data.fold") == ["all"]:
        settings["data.fold"] = _all_folds(config, settings)
    found = []
    for values in itertools.product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        one = copy.deepcopy(config)
        one.vary = ""
        for name, value in chosen.items():
            _set(one, name, value)
        check(one)
        found.append((chosen, one))
    return found


def _all_folds(config: Config, settings: dict[str, list[str]]) -> list[str]:
    from jax_sentemb.evaluation.argument_folds import parts

    if others := sorted({"data.files", "data.scheme"} & settings.keys()):
        raise ConfigError(f"vary: data.fold=all needs one {others[0]}, whose folds are counted: vary it in another command")
    return [str(fold) for fold in range(parts(config.data))]


def run_all(config: Config, workdir: Path, run: Callable[[Config, Path], int]) -> int:
    """Run every variant in a folder of its own, print and write the table (vary.md, vary.json); the last error's exit code, or 0.

    A run whose data or training fail does not keep the others from being done; one that a signal stops ends the loop.
    """
    rows: list[dict[str, Any]] = []
    code = 0
    for chosen, one in variants(config):
        label = ",".join(f"{name}={value}" for name, value in chosen.items())
        print(f"--- {label}", flush=True)
        folder = workdir / re.sub(r"[^\w.,=+-]+", "_", label)[:200]
        try:
            if stopped := run(one, folder):
                return stopped
            rows.append(
                {
                    "settings": chosen,
                    "folder": folder.name,
                    "scores": headline(json.loads((folder / "scores.json").read_text("utf-8"))),
                }
            )
        except ConfigError:
            raise  # a mistake in the settings meets every run
        except UserError as error:
            print(f"error: {label}: {error}", flush=True)
            rows.append({"settings": chosen, "folder": folder.name, "error": str(error)})
            code = error.exit_code
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / "vary.json", rows)
    text = table(rows)
    (workdir / "vary.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return code


def headline(scores: dict[str, Any]) -> dict[str, float]:
    """The numbers of scores.json that a table shows: Spearman x 100 over all pairs and other tasks, or some without labels.

    Of argument pairs both correlations, as means over topics.
    """
    found = {name: result["spearman"]["all"] for name, result in scores["scores"].items() if name != ARGUMENTS}
    if ARGUMENTS in scores["scores"]:
        found |= {f"{ARGUMENTS} {kind}": scores["scores"][ARGUMENTS][kind]["mean"] for kind in ("pearson", "spearman")}
    for result in scores.get("transfer", {}).values():
        found |= result["headline"]
    return found or {name: scores["diagnostics"][name] for name in ("retrieval", "uniformity") if name in scores["diagnostics"]}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for all runs that differ in their seed or fold only; mean and, of several, sample standard deviation."""
    columns, groups = summary(rows)
    lines = [f"| settings | runs | {' | '.join(columns)} |", "|---|--:|" + "--:|" * len(columns)]
    lines += [f"| {label.replace('|', ' ')} | {runs} | {' | '.join(cells)} |" for label, runs, cells in groups]
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The columns of that table, and of each of its rows the settings, the number of runs and the cells."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        others = {name: value for name, value in row["settings"].items() if name not in REPEATED}
        groups.setdefault(" ".join(f"{name}={value}" for name, value in others.items()) or "all", []).append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row.get("scores", {})))
    found = []
    for label, group in groups.items():
        done = [row["scores"] for row in group if "scores" in row]
        cells = []
        for column in columns:
            values = [scores[column] for scores in done if column in scores]
            spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.2f}{spread}" if values else "")
        failed = f" ({len(group) - len(done)} failed)" if len(done) < len(group) else ""
        found.append((label, f"{len(done)}{failed}", cells))
    return columns, found


def _set(config: Config, name: str, value: str) -> None:
    """config.NAME = value, as the type of what stands there."""
    *path, last = name.split(".")
    target: Any = config
    for part in path:
        target = getattr(target, part, None)
    if not dataclasses.is_dataclass(target) or not hasattr(target, last):
        raise ConfigError(f"vary: setting {name} is unknown; --help beside --config lists all settings")
    kind = type(getattr(target, last))
    try:
        if kind is bool:
            converted: Any = {"true": True, "false": False}[value.lower()]
        elif kind in (int, float, str):
            converted = kind(value)
        else:
            raise ConfigError(f"vary: setting {name} is no number, text or switch")
    except (ValueError, KeyError):
        raise ConfigError(f"vary: {name}={value} is not {NAMES[kind]}") from None
    setattr(target, last, converted)
