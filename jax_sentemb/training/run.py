"""Run one training from settings to scores and export, in a locked work directory."""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from jax_sentemb.config import Config, Encoder, flatten
from jax_sentemb.data.corpus_files import text_options, text_settings
from jax_sentemb.errors import PREEMPTED, BusyError, ConfigError, NumericsError, Setting, flag, in_python, keyword
from jax_sentemb.files import open_in_place, path_in_errors, user_path, write_all
from jax_sentemb.formats import manifest
from jax_sentemb.formats.checkpoint import check_path
from jax_sentemb.formats.run_dir import find_export
from jax_sentemb.parallel import is_main_process
from jax_sentemb.public_text import shell_command
from jax_sentemb.reporting.html_report import not_vital, write_report
from jax_sentemb.reporting.report_data import read_json_file
from jax_sentemb.system.streams import print_line
from jax_sentemb.training.run_metadata import stored_settings
from jax_sentemb.training.run_sources import SELECTING_SETTINGS
from jax_sentemb.training.setup import prepare
from jax_sentemb.training.signals import Preempted
from jax_sentemb.training.starting_encoder import read_start, with_start
from jax_sentemb.training.sweep import run_all
from jax_sentemb.training.trainer import Trainer

GIVEN = "sentences.txt"  # file in the work directory with sentences that were given in memory
REPLACED = ("config.json", "model.json", "scores.json", "report.html", "tokenizer", "checkpoints", "best", "start")


def run(
    config: Config, workdir: Path, begin: Callable[[], None] = lambda: None, *, temporary: bool = False, brief: bool = False
) -> int:
    """Train, score and export into `workdir`; return exit code 0, or 75 if a signal stopped the run after saving.

    Args:
        config: The settings.
        workdir: The work directory.
        begin: Called when `workdir` is locked and nothing is read yet; not for a sweep.
        temporary: Do not print the paths of the results at the end.
        brief: Print the scores of each run in one line, and no table of a study; the caller prints a table.
    """
    if config.sweep or config.variants:
        with _locked(workdir):  # two sweeps would replace each other's rows
            code = run_all(config, workdir, functools.partial(_run_one, brief=brief), _check_data, prints_table=not brief)
        if code != PREEMPTED:
            _report(workdir)
    else:
        code = _run_one(config, workdir, begin, brief)
    if code == 0 and is_main_process() and not temporary:
        print_line(results_text(config, workdir))
    return code


def results_text(config: Config, workdir: Path) -> str:
    """Return the last lines of a run: report, table or export, and a command to continue with."""
    lines = [("report", f"{workdir / 'report.html'}")]
    if config.sweep or config.variants:
        lines.append(("table", f"{workdir / 'sweep.md'}"))
    elif export := find_export(workdir):
        is_call = in_python() and (not config.method.trains_sentences or user_path(config.data.files) == workdir / GIVEN)
        next_step = _next_call(config, export) if is_call else _next_command(config, workdir, export)
        lines += [("export", str(export)), ("next", next_step)]
    return "\n".join(f"{name:<8}{text}" for name, text in lines)


def _next_command(config: Config, workdir: Path, export: Path) -> str:
    """Return a command line that continues with the export."""
    written = workdir / "corpus.txt"  # of generated sentences
    is_file = user_path(config.data.files).is_file()
    files = config.data.files if is_file else str(written) if written.is_file() else "corpus.txt"
    of_file = ("sentence1,sentence2", "") if config.method.reads_pairs else (config.data.column, config.data.join)
    columns = of_file if is_file else ("text", "")
    if config.method.is_cross_encoder:
        command = ["jax-sentemb", "evaluate", "--model", str(workdir), "--data", "path/to/SentEval/data", "--tasks", "sts"]
    elif not config.method.trains_sentences:  # not an encoder of sentences yet
        settings = {"data.files": files, **text_settings(*columns), "encoder.weights": export}
        command = ["jax-sentemb", "train", "--config", "simcse", *(flag(Setting(*setting)) for setting in settings.items())]
    else:
        command = ["jax-sentemb", "search", "--model", str(workdir), "--corpus", files, *text_options(*columns)]
        command += ["--query", "a sentence to look for"]
    return shell_command(command)


def _next_call(config: Config, export: Path) -> str:
    """Return a call in Python that continues with the export."""
    if config.method.trains_sentences:
        return 'jax_sentemb.search(encoder.encode(["a sentence to look for"]), encoder.encode(sentences))'
    return f'jax_sentemb.train(sentences, {keyword(Setting("encoder.weights", export))}, recipe="simcse")'


def _check_data(config: Config, workdir: Path) -> None:
    """Raise the errors of a run whose data, weights and method do not fit each other; the tokens stay in the cache."""
    start = read_start(config)
    prepare(with_start(config, start)[0], workdir, start)


def _check_folder(workdir: Path) -> None:
    """Raise ConfigError if files that a run would replace are in a folder that is not the work directory of a run."""
    if not any((workdir / name).exists() for name in ("LOCK", "run.json")):
        if others := [name for name in REPLACED if (workdir / name).exists()]:
            problem = f" contains {others[0]} and no run: give a new directory"
            raise ConfigError(Setting("--workdir", workdir), problem)


def _run_one(config: Config, workdir: Path, begin: Callable[[], None] = lambda: None, brief: bool = False) -> int:
    """Do the same as `run`, for one run of a sweep or without a sweep."""
    with _locked(workdir):
        begin()
        if config.pretrain is not None:
            _check_pretraining(config, workdir)
            if code := _run_one(_pretraining(config), workdir / "pretrain", brief=brief):
                return code
            if not (export := find_export(workdir / "pretrain")):
                raise ConfigError(Setting("pretrain"), ": the model of this run cannot be exported, so no run can start from it")
            encoder = Encoder(weights=str(export), readout="method", dropout=getattr(config.encoder, "dropout", Encoder.dropout))
            config = dataclasses.replace(config, encoder=encoder)
        try:
            code = _run(config, workdir, brief)
        except NumericsError:  # other errors are raised before training starts
            _report(workdir)
            raise
        _report(workdir)
        return code


def _locked(workdir: Path) -> contextlib.AbstractContextManager[None]:
    """Make the work directory; return the lock of it, which only the main process takes."""
    check_path(workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = " is a file: give a directory" if workdir.is_file() else f" cannot be created ({error.strerror}): give another"
        raise ConfigError(Setting("--workdir", workdir), problem) from error
    return _lock(workdir) if is_main_process() else contextlib.nullcontext()


@contextlib.contextmanager
def _lock(workdir: Path) -> Iterator[None]:
    """Lock `workdir`/LOCK, which names its holder. The operating system releases the lock when the holder ends, for any reason."""
    _check_folder(workdir)
    path = workdir / "LOCK"
    os.close(open_in_place(path, os.O_WRONLY | os.O_CREAT))  # refuses a link with a clear message
    holder, lock = _holder(path), FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        deadline = time.monotonic() + 1  # a run that has just started may not have written its name yet
        while not (holder := _holder(path)) and time.monotonic() < deadline:
            time.sleep(0.02)
        raise BusyError(
            Setting("--workdir", workdir),
            f" is in use by {holder or 'another run'}: wait for it, or give another ",
            Setting("--workdir"),
        ) from None
    try:
        if holder:
            print_line(f"note: the last run of {path.parent} was interrupted ({holder}); continuing", "stderr")
        own_facts = {"host": platform.node(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        with path_in_errors(path):
            _write_holder(path, json.dumps(own_facts) + "\n")
        yield
    finally:
        with contextlib.suppress(OSError, ConfigError):
            _write_holder(path, "")
        lock.release()


def _write_holder(path: Path, text: str) -> None:
    descriptor = open_in_place(path, os.O_WRONLY | os.O_TRUNC)
    try:
        write_all(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    """Return the holder that LOCK names, "" if it names none."""
    try:
        with os.fdopen(open_in_place(path, os.O_RDONLY), encoding="utf-8") as file:
            holder = json.loads(file.read(1 << 16))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return ""


def _check_pretraining(config: Config, workdir: Path) -> None:
    """Raise ConfigError if pretraining would now export other weights than those from which this run began.

    Other settings of the pretraining are among its own sources.
    """
    begun = read_json_file(workdir / "config.json") if manifest.steps(workdir / "checkpoints", lambda text: None) else {}
    values = flatten(config)
    for name, recorded in stored_settings(config).items():
        selects = name == "eval.data" or (name.startswith("pretrain.") and name[len("pretrain.") :].startswith(SELECTING_SETTINGS))
        if selects and begun.get(name, recorded) != recorded:
            problem = f": the start of this run was chosen with {begun[name]}; give this value, or another "
            raise ConfigError(Setting(name, values[name]), problem, Setting("--workdir"))


def _pretraining(config: Config) -> Config:
    """Return the config of the pretraining run, with the weights, tokenizer, seed and evaluation folder of the whole run."""
    assert config.pretrain is not None
    first = config.pretrain
    return dataclasses.replace(
        first,
        data=dataclasses.replace(first.data, tokenizer=first.data.tokenizer or config.data.tokenizer),
        encoder=config.encoder,
        train=dataclasses.replace(first.train, seed=config.train.seed),
        eval=dataclasses.replace(first.eval, data=config.eval.data),
    )


def _report(workdir: Path) -> None:
    if is_main_process():
        with not_vital(workdir):
            write_report(workdir)


def _run(config: Config, workdir: Path, brief: bool) -> int:
    with Trainer(config, workdir, brief) as trainer, trainer.stop:
        try:
            trainer.train()
            trainer.finish()
        except Preempted:
            trainer.print_stopped()
            return PREEMPTED
    return 0
