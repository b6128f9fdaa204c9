"""Export models. An export is read back and compared with the model in memory before it is published."""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_sentemb import __version__
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.files import sha256, user_path, write_json
from jax_sentemb.formats.encode_settings import EncodeSettings, read_encode_settings
from jax_sentemb.formats.model_card import Card, render_static_card, render_word_card
from jax_sentemb.formats.model_dir import MANIFEST, read_manifest
from jax_sentemb.formats.run_dir import convolution_of, encode_settings_of, is_words, read_metadata, read_run_tokenizer, run_digest
from jax_sentemb.formats.sentence_transformers import SentenceModel, has_pair_head, staged, write_export
from jax_sentemb.formats.static_embedding import StaticTable, write_static
from jax_sentemb.formats.word_model import write_word_model
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.load import LoadedModel, load, load_cross_encoder, model_fingerprint
from jax_sentemb.inference.static import LONGEST, StaticEmbedder
from jax_sentemb.inference.verify import PROBES, TOLERANCE, Encode, verify_export
from jax_sentemb.models.architectures import transformer_config
from jax_sentemb.provenance import EXPORT, KEY, Source, mark
from jax_sentemb.public_text import model_name
from jax_sentemb.system.streams import print_line
from jax_sentemb.types import Params

KNOWN = 64  # words or pieces of a vocabulary whose embeddings are compared
WORD_FACTS = ("method", "settings", "encoder", "max_seq_length", "vectors")  # of model.json of a model on word vectors
# Facts of a model card that were measured on the exported weights, and their values if nothing was.
MEASURED: dict[str, Any] = {"scores": {}, "dev": {}, "verdict": "", "changes": {}, "teacher": {}, "widths": {}}
STATIC_FACTS = ("base_model", "width", "sif", "words", "regression", "sentences")  # of how a table was made


def export(
    directory: str | Path,
    model: SentenceModel,
    embed: Encode,
    card: Card | None = None,
    sentences: Sequence[str] = PROBES,
    sources: Mapping[str, Any] | None = None,
) -> float:
    """Write, verify and publish a model; return the largest difference of an entry from the float32 model in memory.

    See `publish`.

    Args:
        directory: The directory to write.
        model: The model.
        embed: The model in memory: from texts, with the default prompt if `model` has one, to embeddings [N, E]. If `model` is a
            cross-encoder, from pairs of sentences to scores [N, C].
        card: The facts of the model card.
        sentences: The sentences to verify with.
        sources: What the model was made from, for the manifest.

    Raises:
        ModelFileError: The weights do not fit, or the export differs by more than TOLERANCE.
        ConfigError: The directory holds anything but an earlier export.
    """
    card = card or Card()
    is_cross_encoder = has_pair_head(model.params)
    facts = {
        "method": card.method,
        "base_model": card.base_model,
        "pooling": model.pooling,
        "normalize": model.normalize,
        "max_seq_length": model.max_seq_length,
        "training": dict(card.training),
        **{name: getattr(card, name) for name in MEASURED},
        "missing_tasks": list(card.missing_tasks),
        KEY: mark(EXPORT, {**(sources or {}), **({} if is_cross_encoder else {"model": Source(card.name, _fingerprint(model))})}),
    }
    return publish(
        user_path(directory).absolute(),
        lambda stage: write_export(stage, model, card),
        embed if is_cross_encoder else functools.partial(_with_settings, embed, model.settings),
        list(zip(sentences, reversed(sentences), strict=True)) if is_cross_encoder else sentences,
        load_cross_encoder if is_cross_encoder else load,
        facts,
    )


def _fingerprint(model: SentenceModel) -> str:
    """Return the fingerprint that the export of a model has when it is loaded."""
    metadata = {"encoder": dataclasses.asdict(model.config), "pooling": model.pooling, "normalize": model.normalize}
    metadata |= {"convolution": model.convolution and dataclasses.asdict(model.convolution), "dense": model.dense}
    return model_fingerprint(metadata, model.params, model.tokenizer)


def _with_settings(embed: Encode, settings: EncodeSettings, sentences: Sequence[str]) -> np.ndarray:
    return embed(settings.add_prompt(sentences))[:, : settings.truncate_dim]


def export_word_model(
    directory: Path, metadata: dict[str, Any], params: Params, tokenizer: WordTokenizer, embed: Encode, step: int
) -> float:
    """Export a model on word vectors, as `export` does; `metadata` is model.json of the run."""
    facts = {name: metadata[name] for name in WORD_FACTS if name in metadata}
    sources = _of_run(metadata, step)

    def write(stage: Path) -> None:
        write_word_model(stage, facts, params, tokenizer)
        (stage / "README.md").write_text(render_word_card(metadata, step, (stage / "modules.json").is_file()), encoding="utf-8")

    return publish(directory, write, embed, PROBES, load, {KEY: mark(EXPORT, sources)}, tokenizer.words[2 : 2 + KNOWN])


def _of_run(metadata: dict[str, Any], step: int) -> dict[str, Any]:
    """Return the sources of an export of a run; `metadata` is its model.json."""
    return {"run": metadata[KEY]["sources"]["run"], "step": step}


def export_static(directory: Path, table: StaticTable, facts: dict[str, Any], sources: Mapping[str, Any]) -> float:
    """Export a static table, as `export` does; `facts` has STATIC_FACTS, and goes into the manifest and the card."""
    embedder = StaticEmbedder(table.tokenizer, table.normalize, table.max_seq_length or LONGEST)
    rows, full = table.vectors.shape
    width = table.settings.width_of(full)

    def write(stage: Path) -> None:
        write_static(stage, table)
        card = render_static_card(directory.name, facts, rows, width, table.normalize and width == full)
        (stage / "README.md").write_text(card, encoding="utf-8")

    embed = functools.partial(_with_settings, functools.partial(embedder, {"table": table.vectors}), table.settings)
    pieces = [piece for piece in table.tokenizer.numbers if piece.isalnum()][:KNOWN]
    entries = {"method": "distill", **facts, KEY: mark(EXPORT, sources)}
    return publish(directory, write, embed, PROBES, load, entries, pieces)


def publish(
    directory: Path,
    write: Callable[[Path], None],
    embed: Encode,
    inputs: Sequence,
    read: Callable[[str | Path], Encode],
    entries: dict[str, Any],
    known: Sequence[str] = (),
) -> float:
    """Write an export, verify it, add its manifest, and rename it to `directory`; return the largest difference of an entry.

    `directory` never holds an incomplete export. An earlier export is replaced after the new one is complete and verified;
    otherwise it stays. All exports are published by this function, so it refuses models with useless outputs
    (`verify.check_outputs`).

    Args:
        directory: The directory to write.
        write: Writes the files into a folder next to `directory`.
        embed: The model in memory.
        inputs: The sentences, or pairs of sentences, to verify with.
        read: Reads the model back from the folder.
        entries: Entries of the manifest, with its mark. The SHA-256 of every file is added.
        known: Texts that a small vocabulary has.
    """
    with staged(directory) as stage:
        write(stage)
        difference = verify_export(stage, embed, inputs, read, known)
        manifest = {
            "jax_sentemb": __version__,
            **entries,
            "verification": {"sentences": len(inputs), "max_abs_difference": difference, "tolerance": TOLERANCE},
            "sha256": _hashes(stage),
        }
        write_json(stage / MANIFEST, manifest)
    short_path = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    print_line(f"export {short_path}: max abs difference {difference:.1e} over {len(inputs)} sentences")
    return difference


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an export but its manifest, by path."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / MANIFEST]
    return {file.relative_to(folder).as_posix(): sha256(file) for file in files}


def export_run(output: Path, metadata: dict[str, Any], params: Params, workdir: Path, step: int) -> None:
    """Write and verify the export of a run's parameters; `metadata` is model.json of `workdir`."""
    tokenizer: Any = read_run_tokenizer(workdir, metadata)
    embed = functools.partial(build_embedder(metadata, tokenizer), params)
    if is_words(metadata):
        export_word_model(output, metadata, params, tokenizer, embed, step)
        return
    scored = metadata if metadata.get("scores_of_step") == step else {}
    card = Card(
        name=metadata["name"],
        method=metadata["method"],
        base_model=metadata["base_model"],
        training={**metadata["training"], "steps": step},
        missing_tasks=metadata["missing_tasks"],
        **{name: scored[name] for name in MEASURED if name in scored},
    )
    model = SentenceModel(
        transformer_config(metadata["encoder"]),
        params,
        tokenizer,
        pooling=metadata["pooling"],
        max_seq_length=metadata["max_seq_length"],
        normalize=bool(metadata.get("normalize")),
        convolution=convolution_of(metadata),
        settings=encode_settings_of(metadata),
        dense=tuple(metadata.get("dense", ())),
    )
    export(output, model, embed, card, sources=_of_run(metadata, step))


def export_loaded(
    directory: Path, model: LoadedModel, max_seq_length: int, source: str | None, changes: Mapping[str, Any] | None = None
) -> None:
    """Write and verify a model that was loaded, with the facts of `source`, its directory, on the card.

    Args:
        directory: The directory to write.
        model: The model.
        max_seq_length: The length to which the export cuts texts.
        source: The name that the model was loaded by; None if it has none.
        changes: What has changed the model since then, as sources of the export. Scores of `source` are left out.

    Raises:
        ConfigError: The directory holds anything but an earlier export.
    """
    root = user_path(source or "")
    model = model._replace(params=jax.device_get(model.params))
    if is_words(model.metadata):
        _export_loaded_words(directory, model, max_seq_length, root / "README.md")
        return
    made_from = {"source": Source(model_name(root) or "in memory", model.fingerprint())} if not changes else dict(changes)
    facts = _recorded_facts(root, model, max_seq_length, bool(changes)) if source else {}
    if isinstance(model.embedder, StaticEmbedder):
        table = model.embedder.table_of(model.params, max_seq_length, model.settings)
        export_static(directory, table, {name: facts.get(name) for name in STATIC_FACTS}, made_from)
        return
    metadata = {**model.metadata, "max_seq_length": max_seq_length}
    card = Card(
        name=directory.name,
        method=facts.get("method"),
        base_model=facts.get("base_model"),
        training=facts.get("training", {}),
        missing_tasks=facts.get("missing_tasks", ()),
        **{name: facts[name] for name in MEASURED if name in facts},
    )
    tokenizer: Any = model.embedder.tokenizer
    sentence_model = SentenceModel(
        transformer_config(metadata["encoder"]), model.params, tokenizer, metadata["pooling"], max_seq_length,
        bool(metadata.get("normalize")), convolution_of(metadata), model.settings, tuple(metadata.get("dense", ())),
    )  # fmt: skip
    embed = functools.partial(build_embedder(metadata, tokenizer), model.params)
    export(directory, sentence_model, embed, card, sources=made_from)


def _recorded_facts(root: Path, model: LoadedModel, max_seq_length: int, is_changed: bool) -> dict[str, Any]:
    """Return the metadata of the model in the run or export at `root`, with scores only if they belong to `model`.

    Return {} if `root` has another model now.
    """
    if (root / "model.json").is_file():
        metadata = read_metadata(root)
        if run_digest(metadata) != model.metadata.get("run"):
            return {}
        facts: dict[str, Any] = {**metadata, "training": {**metadata["training"], "steps": model.metadata.get("step")}}
        settings = encode_settings_of(metadata)
        is_scored = metadata.get("scores_of_step") == model.metadata.get("step")
    else:
        facts, settings = read_manifest(root), read_encode_settings(root)
        fingerprint = facts.get(KEY, {}).get("sources", {}).get("model", {}).get("sha256")
        if fingerprint and not is_changed and fingerprint != model.fingerprint():
            return {}
        is_scored = bool(fingerprint)
    if is_changed:  # the first numbers of another layer are those of no training
        facts["training"] = {name: value for name, value in facts.get("training", {}).items() if name != "matryoshka"}
    if is_changed or not is_scored or (settings, facts.get("max_seq_length")) != (model.settings, max_seq_length):
        return {**facts, **MEASURED, "missing_tasks": ()}
    return facts


def _export_loaded_words(directory: Path, model: LoadedModel, max_seq_length: int, readme: Path) -> None:
    """Write and verify a loaded model on word vectors, with the card `readme` if it exists."""
    metadata = {name: model.metadata[name] for name in WORD_FACTS if name in model.metadata} | {"max_seq_length": max_seq_length}
    tokenizer: Any = model.embedder.tokenizer

    def write(stage: Path) -> None:
        write_word_model(stage, metadata, model.params, tokenizer, model.settings)
        if readme.is_file():
            shutil.copy(readme, stage / "README.md")

    embed = functools.partial(build_embedder(metadata, tokenizer), model.params)
    facts = {KEY: mark(EXPORT, {"source": Source(readme.parent.name, model.fingerprint())})}
    embed = functools.partial(_with_settings, embed, model.settings)
    publish(directory, write, embed, PROBES, load, facts, tokenizer.words[2 : 2 + KNOWN])
