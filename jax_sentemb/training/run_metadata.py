"""Collect the metadata of a run for its export and its report."""

import dataclasses
import platform
import sys
from pathlib import Path
from typing import Any

import jax

from jax_sentemb import __version__, files
from jax_sentemb.config import Config, Data, Evaluation, Words, flatten
from jax_sentemb.data.examples import counts_of_text
from jax_sentemb.distillation.teacher import published_name, teacher_names
from jax_sentemb.errors import Setting, note_text
from jax_sentemb.formats.encode_settings import DEFAULTS, EncodeSettings
from jax_sentemb.parallel import is_main_process
from jax_sentemb.public_text import model_name, without_folders
from jax_sentemb.settings import unmet
from jax_sentemb.training.run_sources import vectors_source
from jax_sentemb.training.setup import RunSetup, sample_size
from jax_sentemb.training.starting_encoder import Start, dense_layers, is_kept
from jax_sentemb.types import Params

SHOWN = ("method.", "optimizer.")  # sections of settings on the model card


def model_metadata(config: Config, setup: RunSetup, name: str, start: Start | None) -> dict[str, Any]:
    """Return the metadata of the run `name` in an export. It is published with the model, so it has file names and no paths."""
    method, convolution = config.method, config.method.convolution
    published = {"method.teacher": ", ".join(map(published_name, teacher_names(getattr(method, "teacher", ""))))}
    widths = [width for width in config.train.matryoshka if width < setup.encoder_config.hidden_size]
    settings = {name: value for name, value in flatten(config).items() if name.startswith(SHOWN)}
    unused = {f"method.{field.name}" for field in dataclasses.fields(method) if unmet(method, field.name)}
    recipe = {name: published.get(name, value) for name, value in settings.items() if name not in unused}
    return {
        "name": name,
        "method": type(method).__name__,
        "base_model": None if config.pretrain else model_name(getattr(config.encoder, "weights", "")) or None,
        "pooling": method.pooling,
        **(_word_metadata(config, config.encoder) if isinstance(config.encoder, Words) else {}),
        "convolution": dataclasses.asdict(convolution) if convolution else None,
        **_start_metadata(config, start, setup.settings),
        "scores_pairs": method.is_cross_encoder,
        **({"average_with_start": share} if (share := config.train.average_with_start) else {}),
        "max_seq_length": config.eval.max_seq_length,
        "missing_tasks": setup.missing_tasks,
        "tokenizer": setup.plain_tokenizer.fingerprint,
        "training": {
            "corpus": ", ".join(Path(name).name for name in config.data.files.split(",")),
            "examples": getattr(setup.examples, "total", len(setup.examples)),
            "batch_size": config.data.batch_size,
            "max_seq_length": config.data.max_seq_length,
            "seed": config.train.seed,
            **({"layers": layers} if (layers := getattr(config.encoder, "layers", "")) else {}),
            **({"matryoshka": widths} if widths else {}),
            **recipe,
        },
    }


def _word_metadata(config: Config, words: Words) -> dict[str, Any]:
    """Return the additional metadata of a model on word vectors.

    `vectors` identifies the file from which words can be added.
    """
    vectors = vectors_source(words)
    return {"settings": dataclasses.asdict(config.method), **({"vectors": vectors._asdict()} if vectors else {})}


def _start_metadata(config: Config, start: Start | None, kept: EncodeSettings) -> dict[str, Any]:
    """Return what an export keeps of the run's start: prompts, and unit length and dense layers if they still apply.

    Layers that the method trains replace those of the start, and their vectors have length 1, as a teacher's targets do.
    """
    layers = dense_layers(config, start)
    settings: dict[str, Any] = {"dense": list(layers)} if layers else {}
    if config.method.dense:
        settings["normalize"] = True
    if kept != DEFAULTS:
        settings["encode_settings"] = kept._asdict()
    return {"normalize": start.readout.normalize} | settings if start and is_kept(config, start) else settings


def description(setup: RunSetup, steps: int, devices: int, data: Data) -> str:
    """Return the first lines of a run: corpus, lengths of sentences, held-out sentences, steps, missing evaluation sets."""
    report = setup.examples.report
    tokens = {name.removesuffix("_tokens"): value for name, value in report.items() if name.endswith("_tokens")}
    counts = {name: value for name, value in report.items() if isinstance(value, int) and not name.endswith(("_tokens", "_length"))}
    lengths = [f"{name} {value}" for name, value in tokens.items()]
    lengths += [f"cut at {report['max_seq_length']}"] if "max_seq_length" in report else []
    lengths += [f"{report['unknown_token_rate']:.2%} unknown"] if "unknown_token_rate" in report else []
    new = note_text("new, with random weights; ", Setting("encoder.weights"), " starts from a model")
    held_out = ""
    if data.validation and setup.parts == 1:
        held_out = f"{data.validation:,} sentences, so {len(setup.examples):,} are trained on"
        if unread := data.validation % data.batch_size:
            held_out += f"; the loss is measured in batches of {data.batch_size}, without the last {unread}"
    rows = {
        "encoder": "" if setup.loaded else new,
        "corpus": ", ".join(counts_of_text({name: value for name, value in counts.items() if value})),
        "tokens": ", ".join(lengths),
        "held out": held_out,
        "training": f"{steps:,} steps on {devices} {jax.devices()[0].platform} device{'s' * (devices > 1)}",
        "missing": ", ".join(setup.missing_tasks),
    }
    return "\n".join(f"{name:<10}{text}" for name, text in rows.items() if text)


def about(setup: RunSetup, steps: int, params: Params, selected: str, evaluation: Evaluation) -> dict[str, Any]:
    """Return the content of run.json: versions, devices, corpus, and numbers of parameters and of sentences for diagnostics."""
    return {
        **_versions(),
        "devices": {
            "platform": jax.devices()[0].platform,
            "kind": jax.devices()[0].device_kind,
            "count": jax.device_count(),
            "processes": jax.process_count(),
        },
        "corpus": setup.examples.report,
        "diagnostic_sentences": sample_size(setup.examples, setup.parts, evaluation.diagnostic_sentences),
        "steps": steps,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "selected_by": selected,
    }


def _versions() -> dict[str, Any]:
    import flax
    import optax

    packages = {
        "jax_sentemb": __version__,
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
    }
    command, *arguments = sys.argv or [""]
    parts = Path(command).parts[-2:]
    argv = ["/".join(parts if parts[:1] == ("jax_sentemb",) else parts[-1:]), *map(without_folders, arguments)]
    return {"versions": packages, "python": platform.python_version(), "argv": argv}


def stored_settings(config: Config) -> dict[str, Any]:
    """Return the settings as config.json has them, without folders."""
    return {name: without_folders(value) if isinstance(value, str) else value for name, value in flatten(config).items()}


def write_json(path: Path, content: Any) -> None:
    """Replace a file by `content` as JSON, in the main process."""
    if is_main_process():
        path.parent.mkdir(exist_ok=True)
        files.write_json(path, content)
