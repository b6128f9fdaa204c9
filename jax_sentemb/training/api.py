"""Train a SentenceEncoder on a list of sentences in one call: `jax_sentemb.train`.

import jax_sentemb

encoder = jax_sentemb.train(sentences, "path/to/bert", recipe="simcse", learning_rate=3e-5, num_train_epochs=1)
"""

import copy
import filecmp
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sized
from numbers import Integral
from pathlib import Path
from typing import Any

from jax_sentemb import provenance
from jax_sentemb.config import Config, Data, Words, check
from jax_sentemb.data.containers import items_of, problem_with
from jax_sentemb.distillation.teacher import WORDS, has_vectors, teacher_names
from jax_sentemb.errors import PREEMPTED, UNPAIRED_SURROGATE, ConfigError, DataError, Setting, keyword, spelled
from jax_sentemb.files import replacing, user_path
from jax_sentemb.formats.run_dir import find_export, read_checkpoint, read_metadata
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.inference.export import export_run
from jax_sentemb.inference.load import split_options
from jax_sentemb.methods.distillation import START, Distillation
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.recipes import change, read_config, resolve_names
from jax_sentemb.system.host import unchanged_logging
from jax_sentemb.system.streams import print_line
from jax_sentemb.training import run as training_run


def train(
    sentences: str | Path | Iterable[str],
    model: str | Path | None = "",
    recipe: str | Path | Config = "",
    workdir: str | Path | None = None,
    *,
    teacher: str | Path | None = "",
    layers: int | str | Iterable[int] = "",
    **settings: Any,
) -> SentenceEncoder:
    """Return a SentenceEncoder trained on `sentences`, without labels.

    An interrupt (Ctrl-C, a notebook's stop button), SIGTERM or SIGHUP ends the training and keeps the best weights so far. The
    script continues with them, and a second signal has its usual effect. If standard output or error is closed during the training
    (`python script.py | head`), the training continues.

    Args:
        sentences: A list, tuple, NumPy array, pandas Series or column of a `datasets.Dataset`; or a str or Path that names files,
            as data.files does (globs, .txt, .jsonl, .csv, .parquet, hf:NAME...). Repeated sentences count once.
        model: A directory or hub name of a BERT or sentence-transformers model; "" trains a new one of the recipe's size. For a
            recipe on word vectors, the file of the vectors.
        recipe: A name (`jax-sentemb recipes` lists them), a .py or .yaml file, or a Config. "" is `distill_encoder` with a teacher,
            otherwise `simcse`.
        workdir: The directory for checkpoints, metrics.jsonl, report.html and the export. The same call continues an interrupted
            run in it. None uses a temporary directory that exists as long as the encoder.
        teacher: The model whose vectors a small encoder learns, or a directory of vectors (method.teacher). With a recipe that
            has no teacher, or whose teacher is the start: a stronger model that judges the encoder (eval.teacher). Then the start
            is returned if no step is better.
        layers: The layers of `model` to start from, or of the teacher if no model is given: 3 takes three layers spread evenly
            from the first, (1, 3, 5) those with these numbers from 1 (encoder.layers).
        **settings: Any setting by the name of its field (`learning_rate=1e-5`, `max_steps=200`). If two sections have the name,
            give the section too (`eval__batch_size=32`, or `**{"eval.batch_size": 32}`). Without `data__validation`, a recipe
            that holds out sentences holds out at most a tenth of a list, but at least a batch.

    Returns:
        The encoder of the exported weights.

    Raises:
        ConfigError: A setting is invalid; raised before anything is compiled.
        DataError: The sentences cannot be used; raised before anything is compiled.
        ModelFileError: The model is damaged; raised before anything is compiled.
        BusyError: Another run is using `workdir`.
        NumericsError: The training diverges.
    """
    with spelled(keyword):
        model, teacher = _model_name("model", model), _model_name("teacher", teacher)
        recipe = recipe or ("distill_encoder" if teacher else "simcse")
        config = _config(sentences, model, recipe, settings, teacher, _layers_text(layers))
        if workdir is not None:
            return _train(config, sentences, user_path(workdir))
        folder = tempfile.mkdtemp(prefix="jax_sentemb-")
        try:
            encoder = _train(config, sentences, Path(folder) / "sentence-encoder", temporary=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(encoder, shutil.rmtree, folder, ignore_errors=True)
        return encoder


def _model_name(parameter: str, value: str | Path | None) -> str:
    """Return the value of `model` or `teacher` as text; "" for None."""
    if value is not None and not isinstance(value, str | Path):
        raise ConfigError(f"{parameter} is {type(value).__name__}: give a directory, or a name of the hub")
    return "" if value is None else str(value)


def _layers_text(layers: int | str | Iterable[int]) -> str:
    """Return `layers` of `train` as the text of encoder.layers."""
    if isinstance(layers, str):
        return layers
    is_count = not isinstance(layers, Iterable)
    numbers = [layers] if is_count else list(layers)
    if not numbers or not all(isinstance(number, Integral) and not isinstance(number, bool) for number in numbers):
        raise ConfigError(Setting("layers", layers), ": give a count such as 3, or layer numbers from 1 such as (1, 3, 5)")
    return str(int(layers)) if is_count else "".join(f"{int(number)}," for number in numbers)


def _layers_from(teacher: str, layers: str) -> str:
    """Return the teacher as the model whose `layers` a student takes.

    Raises:
        ConfigError: The teacher is not a single model.
    """
    names = teacher_names(teacher)
    if len(names) != 1 or names[0].startswith(WORDS) or has_vectors(names[0]) or split_options(names[0], POOLINGS)[1]:
        raise ConfigError(
            Setting("encoder.layers", layers), f": {teacher} is not one model; name the model that has these layers by ",
            Setting("encoder.weights"),
        )  # fmt: skip
    return names[0]


def _train(config: Config, sentences: str | Path | Iterable[str], workdir: Path, temporary: bool = False) -> SentenceEncoder:
    """Return the encoder of a run in `workdir`."""
    corpus = workdir / training_run.GIVEN
    if not isinstance(sentences, str | Path):
        if problem := problem_with(sentences):
            raise ConfigError(f"{problem}, or the name of a file")
        config.data.files = str(corpus)
    check(config)

    def write_corpus() -> None:
        if not isinstance(sentences, str | Path):
            _write(sentences, corpus)  # after locking: another run may be reading its own sentences from this file

    with unchanged_logging():
        if training_run.run(config, workdir, write_corpus, temporary=temporary) == PREEMPTED:
            _export_best(workdir)
    if not (folder := find_export(workdir)):
        raise ConfigError(f"{workdir}: the model of this run cannot be exported; jax-sentemb evaluate can score it")
    return SentenceEncoder(folder)


def _config(
    sentences: Any, model: str, recipe: str | Path | Config, settings: Mapping[str, Any], teacher: str = "", layers: str = ""
) -> Config:
    """Return the recipe with the model, the files, the teacher, the layers and the settings of a call."""
    if isinstance(sentences, Config):
        raise ConfigError("train(sentences, model, recipe): the first argument is the text; give a Config as recipe=")
    if isinstance(sentences, str) and not sentences.strip():
        raise ConfigError("sentences is empty: give a list of str, or the name of a text file")
    config = copy.deepcopy(recipe) if isinstance(recipe, Config) else read_config(str(recipe))
    is_student = isinstance(config.method, Distillation) and START not in teacher_names(config.method.teacher)
    teacher_name = "method.teacher" if is_student else "eval.teacher"
    model_name = "encoder.vectors" if isinstance(config.encoder, Words) else "encoder.weights"
    given = resolve_names(config, settings)
    arguments = {"model": (model_name, model), "teacher": (teacher_name, teacher), "layers": ("encoder.layers", layers)}
    for argument, (name, value) in {"sentences": ("data.files", "..."), **arguments}.items():
        if value and name in dict(given):
            raise ConfigError(f"{argument} and {name} are one setting: give one of them")
    if not model and teacher and is_student and teacher != START and (chosen := layers or dict(given).get("encoder.layers")):
        arguments["model"] = model_name, _layers_from(teacher, chosen)
    change(config, [*given, *(pair for pair in arguments.values() if pair[1])])
    if config.sweep or config.variants:
        raise ConfigError(
            Setting("--config", recipe), ": trains several models; use jax-sentemb train --config for a study or a sweep"
        )
    if config.method.is_cross_encoder:
        raise ConfigError(
            Setting("--config", recipe), ": a cross-encoder has no sentence embeddings; use jax-sentemb train --config"
        )
    if "data.validation" not in dict(given) and not isinstance(recipe, Config):
        config.data.validation = _held_out(sentences, config.data)
    config.data.files = str(sentences) if isinstance(sentences, str | Path) else training_run.GIVEN
    return config


def _held_out(sentences: Any, data: Data) -> int:
    """Return how many sentences a recipe holds out: at most a tenth of a list of sentences, but at least a batch."""
    if isinstance(sentences, str | Path) or not isinstance(sentences, Sized):
        return data.validation
    return min(data.validation, max(len(sentences) // 10, data.batch_size))


def _write(sentences: Iterable[Any], path: Path) -> None:
    """Write sentences in memory as a text file, one a line; line breaks and other runs of white space become one space.

    The file of a run that has checkpoints is not replaced by other sentences, since the run could not continue on them.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(Setting("--workdir", path.parent), f": {error.strerror}") from None
    count = 0
    with replacing(path) as partial:
        with partial.open("w", encoding="utf-8") as file:
            for number, sentence in enumerate(items_of(sentences)):
                if not isinstance(sentence, str):
                    raise DataError(f"sentence {number} is {type(sentence).__name__}, not str; convert it, or remove it")
                try:
                    line = " ".join(sentence.split())
                    file.write(f"{line}\n")  # a blank line ends a paragraph, for recipes that read consecutive sentences
                except UnicodeEncodeError:
                    raise DataError(f"sentence {number} {UNPAIRED_SURROGATE}") from None
                count += bool(line)
        if not count:
            raise DataError("sentences is empty: give a list of str, or the name of a text file")
        steps = [*path.parent.glob("checkpoints/[0-9]*"), *path.parent.glob("pretrain/checkpoints/[0-9]*")]
        if steps and path.is_file() and not filecmp.cmp(partial, path, shallow=False):
            raise provenance.CHECKPOINT.error(
                Setting("--workdir", path.parent), " has a run on other sentences; ", *provenance.CHECKPOINT.remedy
            )


def _export_best(workdir: Path) -> None:
    """Export the best weights of a run that was interrupted, or the last weights if there are no best ones.

    Raises:
        KeyboardInterrupt: A recipe with a `pretrain` run was interrupted in that run.
    """
    if not (workdir / "model.json").is_file():
        raise KeyboardInterrupt("interrupted in the run before this one; with workdir= the same call continues")
    params, step = read_checkpoint(workdir, "best")
    export_run(workdir / "export", read_metadata(workdir), params, workdir, step)
    print_line(f"interrupted: the encoder has the weights of step {step}; with workdir= the same call continues")
