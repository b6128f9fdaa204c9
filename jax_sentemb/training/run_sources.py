"""Identify the sources of a run: settings and the content of its inputs. A run does not continue after one of them was replaced."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from jax_sentemb.config import Config, Words, flatten
from jax_sentemb.data.corpus_files import corpus_name
from jax_sentemb.data.digest import file_digest
from jax_sentemb.distillation.teacher import teacher_names
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.files import user_path
from jax_sentemb.formats.tensors import digest_of
from jax_sentemb.provenance import CHECKPOINT, KEY, RUN, Source, fingerprint, mark
from jax_sentemb.training.optimizer import rate_depends_on_length
from jax_sentemb.training.setup import RunSetup
from jax_sentemb.training.starting_encoder import Start

# Settings that may change between an interrupted run and its continuation, since the trained weights do not depend on them.
RESUMABLE_SETTINGS = (
    "eval.",
    "encoder.readout",  # its effect is in method.pooling
    "train.average_with_start",
    "train.logging",
    "train.save",
    "train.keep",
    "train.tensorboard",
    "train.wandb",
    "train.strict",
    "train.on_nan",
    "train.grad_cache",
    "train.fsdp",
    "train.attention_block",
    "train.remat",
    "data.num_workers",
    "variants",  # of a study; a run has the method of one variant
)
# Settings, other than those above, that choose the weights which a finished run exports.
SELECTING_SETTINGS = ("eval.", "train.average_with_start", "train.max_steps", "train.num_train_epochs")
# Settings of the evaluations, on which the weights depend with optimizer.plateau_factor.
PLATEAU_SETTINGS = ("eval.select", "eval.eval_steps", "eval.max_seq_length", "eval.diagnostic_sentences")
# Settings that name content. The content is compared instead of the name, so files may be renamed.
INPUTS = ("data.files", "data.tokenizer", "encoder.weights", "encoder.vectors", "method.teacher")
LENGTH = ("train.max_steps", "train.num_train_epochs")  # more steps continue a run if its rate does not depend on them


def run_sources(config: Config, setup: RunSetup, steps: int, start: Start | None) -> dict[str, Any]:
    """Return everything that the weights of a run depend on, in the order in which a message names the first difference.

    Args:
        config: The settings.
        setup: The inputs as they were read.
        steps: The number of steps.
        start: The sentence encoder that the run starts from.
    """
    flat = flatten(config)
    settings = {
        name: value
        for name, value in flat.items()
        if not name.removeprefix("pretrain.").startswith(RESUMABLE_SETTINGS) and name.removeprefix("pretrain.") not in INPUTS
    }
    for name in LENGTH:
        settings.pop(name, None)
    if config.optimizer.plateau_factor < 1:
        settings |= {name: flat[name] for name in PLATEAU_SETTINGS}
    if rate_depends_on_length(config.optimizer):
        settings["steps"] = steps
    text = getattr(setup.sentences, "fingerprint", "") if setup.parts == 1 else ""
    teacher = getattr(config.method, "teacher", "") if text else ""
    return {
        **settings,
        **({"data.files": Source(corpus_name(config.data.files), text)} if text else {}),
        **({"method.teacher": Source(_names(teacher_names(teacher)), setup.teacher)} if teacher else {}),
        **_start_source(config, setup, start),
        "data.tokenizer": Source(_tokenizer_name(config), setup.tokenizer.fingerprint),
        "examples": Source(corpus_name(config.data.files), hashlib.sha256(setup.examples.fingerprint.encode()).hexdigest()),
    }


def selection_sources(config: Config, setup: RunSetup) -> dict[str, Any]:
    """Return the content on which scores are measured during a run, as JSON; scores on other content cannot be compared."""
    sources: dict[str, Any] = {}
    if setup.dev:
        digest = setup.dev_task.digest if setup.dev_task else _pairs_digest(setup.tasks[setup.dev])
        sources["eval.dev"] = Source(corpus_name(config.eval.dev) or setup.dev, digest)._asdict()
    if setup.held_out:
        held_out = hashlib.sha256(json.dumps(setup.held_out.sentences).encode())
        held_out.update(setup.held_out.vectors.tobytes())
        # One name for all: whichever setting chose the sentences, agreements on others cannot be compared.
        judge = _names(teacher_names(config.eval.teacher))
        name = corpus_name(config.eval.held_out) or (f"sentences for {judge}" if judge else "data.validation")
        sources["eval.held_out"] = Source(name, held_out.hexdigest())._asdict()
    return sources


def run_mark(name: str, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mark of the files of a run that a report or an export reads in addition to its checkpoints."""
    return {KEY: mark(RUN, {"run": Source(name, fingerprint(CHECKPOINT, sources))})}


def vectors_source(words: Words) -> Source | None:
    """Return the file of word vectors that a run reads, None without one."""
    return Source(Path(words.vectors).name, file_digest(user_path(words.vectors))) if words.vectors else None


def _start_source(config: Config, setup: RunSetup, start: Start | None) -> dict[str, Source]:
    """Return the start of a run under the name of its setting; {} for new weights."""
    if isinstance(config.encoder, Words):
        vectors = vectors_source(config.encoder)
        return {"encoder.vectors": vectors} if vectors else {}
    if not config.encoder.weights:
        return {}
    facts: list[Any] = [dataclasses.asdict(setup.encoder_config)]
    if start is not None:
        facts += [
            start.readout.pooling,
            start.readout.normalize,
            start.readout.masks_padding,
            list(start.dense),
        ]
    facts.append(setup.settings._asdict())
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(digest_of(setup.loaded).encode())
    return {"encoder.weights": Source(Path(config.encoder.weights).name, digest.hexdigest())}


def _tokenizer_name(config: Config) -> str:
    if isinstance(config.encoder, Words):
        return "words of data.files and eval.data"
    return corpus_name(config.data.tokenizer or config.encoder.weights or config.data.files)


def _names(paths: list[str]) -> str:
    return ", ".join(Path(path).name for path in paths)


def _pairs_digest(task: StsTask) -> str:
    pairs = {name: [subset.first, subset.second, subset.gold.tolist()] for name, subset in task.subsets.items()}
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
