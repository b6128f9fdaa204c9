"""Identify the sources of a sweep's row: the settings of its run and the content of the files that they name."""

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.config import Config, flatten
from jax_sentemb.data.corpus_files import corpus_name, sources_of
from jax_sentemb.data.digest import file_digest, folder_digest
from jax_sentemb.data.tables import dataset_rows
from jax_sentemb.distillation.teacher import WORDS, teacher_names
from jax_sentemb.errors import ConfigError, UserError
from jax_sentemb.evaluation.catalog import DEVELOPMENT, SETS, select
from jax_sentemb.evaluation.sts_data import senteval_root
from jax_sentemb.files import fingerprint, user_path
from jax_sentemb.formats.huggingface import resolve
from jax_sentemb.inference.load import READOUTS, split_options
from jax_sentemb.methods.distillation import START
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.provenance import CHECKPOINT, KEY, PACKED_ROWS, RUN, SWEEP, TOKENS, Source, difference, mark
from jax_sentemb.training import argument_folds
from jax_sentemb.training.corpus_source import corpus_task

TASK, CORPUS = "senteval:", "corpus"  # data.files=senteval:TASK; eval.tasks=corpus scores that task
GENERATED = ("grammar", TASK)  # prefixes of values that are not file names
FORMATS = {file_type.name: file_type.format for file_type in (RUN, CHECKPOINT, TOKENS, PACKED_ROWS)}

# From the name of a setting, its value, and the tasks of eval.data that a run scores or trains on.
Digest = Callable[[str, str, str], str | None]


def row_mark(config: Config, digest: Digest | None = None) -> dict[str, Any]:
    """Return the mark of the row of a run, before the run reads its inputs; `digest` replaces `content_digest`."""
    settings = flatten(config)
    inputs = {name: value for name, value in settings.items() if _names_content(name) and isinstance(value, str) and value}
    tasks = ",".join(filter(None, [config.eval.tasks, *_training_tasks(inputs)]))
    digests = {name: (digest or content_digest)(name, value, tasks) for name, value in inputs.items()}
    return mark(
        SWEEP,
        {
            "settings": fingerprint(settings),
            "formats": FORMATS,
            "paths": {name: fingerprint({"path": value}) for name, value in inputs.items()},
            **{name: value and Source(corpus_name(inputs[name]), value) for name, value in digests.items()},
        },
    )


def remembering() -> Digest:
    """Return a `content_digest` that reads each input once, for the rows that are compared when a sweep starts."""
    return functools.cache(content_digest)


def changed_since(row: Mapping[str, Any], current_mark: Mapping[str, Any]) -> str:
    """Return the difference between the sources of a row and the current mark of its run, "" if there is none."""
    problem = difference(row, SWEEP, current_mark["sources"])
    return "was made with other settings" if problem.startswith("was made with settings=") else problem  # which are hashes


def replaced_inputs(row: Mapping[str, Any], current: Iterable[Mapping[str, Any]]) -> str:
    """Return the setting of a row whose file was replaced, according to the marks `current` of other runs; "" if none was."""
    sources = row[KEY]["sources"]
    for current_sources in (current_mark["sources"] for current_mark in current):
        for name, path in sources["paths"].items():
            if current_sources["paths"].get(name) == path and current_sources[name] != sources[name]:
                return name
    return ""


def content_digest(name: str, value: str, tasks: str) -> str | None:
    """Return the SHA-256 of the content that a setting names, None if there is none or it cannot be read."""
    try:
        if name == "eval.data":
            return None if value == "grammar" else _digest_of(_scored_files(value, tasks))
        digests = [digest for source in _parts(name, value) for digest in _digests(name, source)]
    except (UserError, OSError):
        return None  # the run itself reports the error
    return fingerprint({"digests": digests}) if digests else None


def _names_content(name: str) -> bool:
    names = ("data.files", "data.tokenizer", "encoder.weights", "encoder.vectors", "method.teacher", "eval.data", "eval.dev")
    return name.removeprefix("pretrain.") in (*names, "eval.held_out", "eval.teacher")


def _training_tasks(inputs: Mapping[str, str]) -> Iterable[str]:
    """Yield the tasks of eval.data whose text is the corpus."""
    for name, value in inputs.items():
        if name.endswith("data.files") and value.startswith(TASK):
            yield corpus_task(value)


def _parts(name: str, value: str) -> Iterable[str]:
    """Return the files, folders and data sets that a value names."""
    if name.endswith("teacher"):
        return [teacher for teacher in teacher_names(value) if teacher != START and not teacher.startswith(WORDS)]
    value = value.removeprefix(argument_folds.SOURCE)
    if value.startswith(GENERATED):
        return []
    if name.endswith("eval.dev") and value in DEVELOPMENT:  # a set of eval.data
        return []
    if name.endswith(("data.files", "eval.held_out", "eval.dev")) and not user_path(value).is_dir():
        return list(sources_of(value))
    return [value]


def _digests(name: str, source: str) -> Iterable[str]:
    """Yield the SHA-256 of a file, of the files of a folder, or of a model or data set on the hub."""
    if source.startswith(("hf:", "tfds:")):
        yield fingerprint({"data set": dataset_rows(source, (), ())[1]})
        return
    if name.endswith("teacher"):
        source, _ = split_options(source, (*POOLINGS, *READOUTS))
    path = user_path(source)
    if not path.exists() and name.endswith(("weights", "tokenizer", "teacher")):
        path = resolve(source, "")
    if path.is_dir():
        yield folder_digest(path, ["*"], ["LOCK", "report.html"])
    elif path.is_file():
        yield file_digest(path)
    else:
        raise ConfigError(f"{source}: no such file")


def _scored_files(folder: str, tasks: str) -> list[Path]:
    """Return the files of the sets that a run scores or trains on."""
    root = senteval_root(folder, "eval.data")
    others = [name for name in tasks.split(",") if name != CORPUS]
    named = {name for name, _ in select(",".join(others), "eval.tasks")} if any(others) else set()
    rows = [row for row in SETS.values() if row.group == "sts" or row.name in named]
    return sorted({file for row in rows for file in row.files(root, optional=True) if file.is_file()})


def _digest_of(files: Iterable[Path]) -> str:
    return fingerprint({"files": [[file.name, file_digest(file)] for file in files]})
