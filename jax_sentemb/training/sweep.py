"""Run a config for every combination of some settings and every method of a study, each in its own folder."""

import contextlib
import copy
import itertools
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb import provenance
from jax_sentemb.config import Config, check, flatten, swept
from jax_sentemb.errors import ConfigError, DataError, Setting, UserError, plain
from jax_sentemb.files import fingerprint, print_warning, read_limited, write_json
from jax_sentemb.parallel import is_main_process
from jax_sentemb.provenance import KEY, SWEEP
from jax_sentemb.public_text import public_value, without_folders
from jax_sentemb.recipes import change
from jax_sentemb.reporting.sweep_table import REPEATED, VARIANT, draw, group_label, headline, terminal_table, write_tables
from jax_sentemb.training.sweep_sources import changed_since, remembering, replaced_inputs, row_mark

MAX_RUNS = 1000  # of one command
OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not a comma between the items of a tuple: (1,2),(3,4)


class Expanded(NamedTuple):
    """A run of a sweep."""

    chosen: dict[str, str]  # the values of the sweep, without folders
    config: Config
    label: str
    folder: str


def parse(text: str) -> dict[str, list[str]]:
    """Parse "NAME=VALUE,VALUE NAME=FIRST..LAST" to {"train.seed": ["1", "2"], ...}.

    A value with commas needs brackets, (1,2), or "|" between the values. "NAME,NAME=..." gives several settings the same value:
    data.subset_seed,train.seed=1..5 is five runs.

    Raises:
        ConfigError: The text is malformed.
    """
    values_of: dict[str, list[str]] = {}
    for entry in text.split():
        name, equals, values = entry.partition("=")
        span = re.fullmatch(r"(\d+)\.\.(\d+)", values)
        if not equals or not values:
            raise ConfigError(Setting("sweep", text), ": write SETTING=VALUE,VALUE for instance train.seed=1..10")
        if span:
            numbers = range(int(span[1]), int(span[2]) + 1)
            values_of[name] = [str(number) for number in numbers[: MAX_RUNS + 1]]
        else:
            values_of[name] = [value for value in (values.split("|") if "|" in values else OUTER_COMMA.split(values)) if value]
        if not values_of[name]:
            raise ConfigError(Setting("sweep", text), f": {name} has no value")
    settings = swept(text)
    if repeated := [name for name in settings if settings.count(name) > 1]:
        raise ConfigError(Setting("sweep", text), f": {repeated[0]} is given twice")
    return values_of


def variants(config: Config) -> list[tuple[dict[str, str], Config]]:
    """Return the values and the config of every run.

    The method changes fastest, so that methods can be compared in pairs, with equal seeds, while a study runs.

    Raises:
        ConfigError: A run is invalid; raised before the first run starts.
    """
    settings = parse(config.sweep)
    if settings.get("data.fold") == ["all"]:
        settings["data.fold"] = _all_folds(config, settings)
    if config.variants:
        settings.setdefault(VARIANT, list(config.variants))
    if math.prod(map(len, settings.values())) > MAX_RUNS:
        raise ConfigError(Setting("sweep", config.sweep), f": more than {MAX_RUNS:,} runs; give fewer values")
    runs = []
    for values in itertools.product(*settings.values()):
        chosen = {name: value for names, value in zip(settings, values, strict=True) for name in names.split(",")}
        try:
            runs.append((chosen, _chosen_config(config, chosen)))
        except ConfigError as error:
            error.at(*([f"variant {chosen[VARIANT]}: "] if VARIANT in chosen else []))
            raise
    return runs


def _chosen_config(config: Config, chosen: dict[str, str]) -> Config:
    """Return the config of a run.

    It is that of the study, changed by its variant's method and settings, then by the values `chosen` by the sweep.
    """
    run_config = copy.deepcopy(config)
    run_config.sweep, run_config.variants = "", {}
    overrides: dict[str, Any] = {name: value for name, value in chosen.items() if name != VARIANT}
    if VARIANT in chosen:
        if chosen[VARIANT] not in config.variants:
            raise ConfigError(f"unknown; the variants of this config are {', '.join(config.variants) or 'none'}")
        variant = copy.deepcopy(config.variants[chosen[VARIANT]])
        run_config.method = variant.method
        settings = variant.settings | overrides
        if "data.subset" in settings:
            _change(run_config, {"data.subset": settings["data.subset"]}, False)
        overrides = variant.settings | variant.by_subset.get(run_config.data.subset, {}) | overrides
    _change(run_config, overrides, VARIANT not in chosen)
    check(run_config)
    return run_config


def _all_folds(config: Config, settings: dict[str, list[str]]) -> list[str]:
    from jax_sentemb.training.argument_folds import fold_count

    if other_settings := sorted({"data.files", "data.scheme"} & settings.keys()):
        raise ConfigError(
            "sweep: ",
            Setting("data.fold", "all"),
            f" cannot be combined with a sweep of {other_settings[0]}, which changes the folds: run them separately",
        )
    return [str(fold) for fold in range(fold_count(config.data))]


def run_all(
    config: Config,
    workdir: Path,
    run: Callable[[Config, Path], int],
    check_data: Callable[[Config, Path], None] = lambda *_: None,
    prints_table: bool = True,
) -> int:
    """Run every variant in its own folder; return the exit code of the last error, that of a run that a signal stopped, or 0.

    Tables are written after each run, and plots at the end. If the data or the training of a run fails, the other runs still
    follow. A signal ends the sweep. The same command then skips the runs that sweep.json lists with scores and the same settings,
    and continues the stopped run. sweep.json and the report keep the finished runs of other sweeps in this work directory, so a
    study may be run in parts. The tables have this sweep's runs.

    Args:
        config: The study or the sweep.
        workdir: The folder of the runs' folders.
        run: Does one run and returns its exit code.
        check_data: Called before the first run for the smallest subsets; its errors end the sweep.
        prints_table: Whether the table is also printed.
    """
    expanded = _expanded(config)
    finished_rows = _finished_rows(workdir)
    marks, reasons = _marks(expanded, finished_rows)
    other_rows = _kept_rows(expanded, finished_rows, marks, workdir)
    baselines = {name: variant.baseline for name, variant in config.variants.items() if variant.baseline}
    rows = {
        item.folder: _row(item, baselines, finished_rows[item.folder])
        for item in expanded
        if item.folder in marks and not reasons[item.folder]
    }
    if not rows:
        _check_smallest(expanded, workdir, check_data)

    def save() -> list[dict[str, Any]]:
        """Write sweep.json and the tables; return the finished rows in the order of the sweep."""
        finished = [rows[item.folder] for item in expanded if item.folder in rows]
        write_json(workdir / "sweep.json", other_rows + finished)
        write_tables(workdir, finished, baselines)
        return finished

    code = 0
    for item in expanded:
        reason = reasons.get(item.folder)
        state = ": already done" * (item.folder in marks) + f", but it {reason}" * bool(reason)
        print(plain(f"--- {item.label}{state}"), flush=True)
        if item.folder in rows:
            continue
        row = _row(item, baselines) | {KEY: row_mark(item.config)}
        try:
            if stopped := run(item.config, workdir / item.folder):
                return stopped
            row |= _result(workdir / item.folder)
        except UserError as error:
            if item.folder in finished_rows or (isinstance(error, ConfigError) and not rows):
                # Its earlier result stays in the tables; invalid settings affect every run, unless another one has finished.
                raise error.at(f"{item.label}: ") from None
            print(plain(f"error: {item.label}: {error}"), file=sys.stderr, flush=True)
            row["error"] = without_folders(str(error))
            code = error.exit_code
        except Exception:
            print(plain(f"error: {item.label}: the run failed, and the sweep ends:"), file=sys.stderr, flush=True)
            raise
        rows[item.folder] = row
        if is_main_process():
            workdir.mkdir(parents=True, exist_ok=True)
            save()
    if is_main_process():
        finished = save()
        draw(workdir, finished, baselines)
        if prints_table:
            print(terminal_table(finished))
        print("".join(plain(f"written: {path}\n") for path in sorted(workdir.glob("low_shot*.*"))), end="")
    return code


def _expanded(config: Config) -> list[Expanded]:
    """Return the runs of a sweep.

    Raises:
        ConfigError: Two runs are the same, or would share a folder.
    """
    expanded = []
    for chosen, run in variants(config):
        public = {name: public_value(value) for name, value in chosen.items()}
        expanded.append(Expanded(public, run, _label(public), _folder(_label(public))))
    labels: dict[str, str] = {}
    known: dict[tuple[str | None, str], str] = {}
    for run in expanded:
        settings = run.chosen.get(VARIANT), json.dumps(flatten(run.config), default=str)
        if settings in known:
            problem = f": {known[settings]} and {run.label} are the same run; give each value once"
            raise ConfigError(Setting("sweep", config.sweep), problem)
        known[settings] = run.label
        if run.label != labels.setdefault(run.folder, run.label):
            raise ConfigError(
                f"sweep: {labels[run.folder]} and {run.label} would share the folder {run.folder}: run them in two work directories"
            )
    return expanded


def _row(run: Expanded, baselines: dict[str, str], result: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the row of a run in sweep.json, with the `result` of an earlier command; the baseline is that of this command."""
    row: dict[str, Any] = {"settings": run.chosen, "folder": run.folder, "group": _group(run.config)}
    row |= {"baseline": baselines[run.chosen[VARIANT]]} if run.chosen.get(VARIANT) in baselines else {}
    return row | {name: value for name, value in (result or {}).items() if name != "baseline"}


def _group(config: Config) -> str:
    """Return the SHA-256 of all settings but the seeds."""
    return fingerprint({name: value for name, value in flatten(config).items() if name not in REPEATED})


def _check_smallest(expanded: list[Expanded], workdir: Path, check: Callable[[Config, Path], None]) -> None:
    """Call `check` for the smallest subset of every variant, corpus and batch size, so that a study fails before it starts.

    If all runs have all sentences, a run of every variant is checked, each of which may need other data.
    """
    smallest: dict[tuple[Any, ...], Expanded] = {}
    for run in [run for run in expanded if run.config.data.subset] or [run for run in expanded if VARIANT in run.chosen]:
        data = run.config.data
        key = run.chosen.get(VARIANT), data.files, data.batch_size, data.subset >= 1  # counts and shares are not compared
        if key not in smallest or data.subset < smallest[key].config.data.subset:
            smallest[key] = run
    for run in smallest.values():
        try:
            check(run.config, workdir / run.folder)
        except DataError as error:
            error.at(f"{run.label}: ")
            raise


def _label(chosen: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in chosen.items())


def _folder(label: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", label)[:200]


def _finished_rows(workdir: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of sweep.json whose folder has scores, by folder; {} if the file is missing or unreadable."""
    try:
        rows = json.loads(read_limited(workdir / "sweep.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(rows, list):
        return {}
    for row in rows:
        provenance.check(workdir / "sweep.json", row, SWEEP)
    done = [row for row in rows if "scores" in row]
    return {row["folder"]: row for row in done if (workdir / row["folder"] / "scores.json").is_file()}


def _marks(expanded: list[Expanded], finished: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the current marks of finished runs, and for each its difference from the mark of the row, "" if they are equal."""
    digest = remembering()
    marks = {run.folder: row_mark(run.config, digest) for run in expanded if run.folder in finished}
    return marks, {folder: changed_since(finished[folder], made) for folder, made in marks.items()}


def _kept_rows(
    expanded: list[Expanded], finished: dict[str, dict[str, Any]], marks: dict[str, Any], workdir: Path
) -> list[dict[str, Any]]:
    """Return the rows of other sweeps, without those whose inputs have been replaced.

    Runs that only a setting outside the sweeps tells from this sweep's runs are left out too, since tables would average them.
    """
    folders = {run.folder for run in expanded}
    other_rows = [row for folder, row in finished.items() if folder not in folders]
    digest = remembering()
    current = [*marks.values(), *(row_mark(run.config, digest) for run in expanded if other_rows and run.folder not in marks)]
    groups = {group_label(run.chosen): _group(run.config) for run in expanded}
    kept_rows = []
    for row in other_rows:
        label = group_label(row["settings"])
        if name := replaced_inputs(row, current):
            print_warning(f"{workdir / 'sweep.json'}: run {row['folder']} was made before {name} was replaced: it is left out")
        elif groups.get(label, row["group"]) != row["group"]:
            other = "was made with other settings than the runs of this sweep"
            print_warning(
                f"{workdir / 'sweep.json'}: run {row['folder']} {other}: it is left out; give each its own work directory"
            )
        else:
            kept_rows.append(row)
    return kept_rows


def _result(folder: Path) -> dict[str, Any]:
    """Return the entries of a finished run in the tables: its scores, the step of its weights, the number of its sentences."""
    content = json.loads(read_limited(folder / "scores.json"))
    result: dict[str, Any] = {"scores": headline(content)}
    if "step" in content:
        result["step"] = content["step"]
    with contextlib.suppress(OSError):
        corpus = json.loads(read_limited(folder / "run.json")).get("corpus", {})
        count = corpus.get("sentences", corpus.get("pairs"))  # of a method on labelled pairs
        result |= {} if count is None else {"sentences": count}
    return result


def _change(config: Config, settings: dict[str, Any], create: bool) -> None:
    """Change settings; a study does not `create` an optional part, such as AMI, in the variants that have none."""
    try:
        change(config, settings.items(), create)
    except ConfigError as error:
        error.at("sweep: ")
        raise
