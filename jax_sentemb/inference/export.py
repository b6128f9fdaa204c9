"""Exports of a trained model, verified by re-encoding before they are published."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb import __version__
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.files import sha256, user_path, write_json
from jax_sentemb.formats.model_card import Card
from jax_sentemb.formats.model_dir import MANIFEST
from jax_sentemb.formats.run_dir import convolution_of, read_run_tokenizer
from jax_sentemb.formats.sentence_transformers import has_pair_head, staged, write_export
from jax_sentemb.formats.word_model import FORMAT, write_word_model
from jax_sentemb.inference.load import read_scorer, run_embedder
from jax_sentemb.inference.verify import PROBES, TOLERANCE, verify_export
from jax_sentemb.inference.word_model import read_word_model
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.types import Params


def export(
    directory: str | Path,
    config: BertConfig,
    params: Params,
    tokenizer: Tokenizer,
    embed: Callable[[Sequence], np.ndarray],
    *,
    pooling: str,
    max_seq_length: int,
    normalize: bool = False,
    convolution: Convolution | None = None,
    card: Card | None = None,
    sentences: Sequence[str] = PROBES,
) -> float:
    """Write, verify and publish an export; the largest difference from `embed`, the float32 model in memory.

    `params` by part: "encoder"; with a `convolution` "cnn"; a "token_head" is written into the same file, for transformers'
    BertForMaskedLM; "pooler" and "classifier" make it a cross-encoder, whose `embed` maps pairs of sentences to scores.

    Written beside `directory` and renamed when it is complete and verified, so `directory` is never half an export; an
    earlier export there is replaced, anything else is left alone (ConfigError). ModelFileError where the weights do not
    fit or re-encoding differs by more than TOLERANCE: then an earlier export stays as it was.
    """
    directory = user_path(directory).absolute()
    card = card or Card()
    with staged(directory) as stage:
        settings = {"pooling": pooling, "normalize": normalize, "max_seq_length": max_seq_length}
        write_export(stage, config, params, tokenizer, card=card, convolution=convolution, **settings)
        if has_pair_head(params):
            difference = verify_export(stage, embed, list(zip(sentences, reversed(sentences), strict=True)), read_scorer)
        else:
            difference = verify_export(stage, embed, sentences)
        metadata = {
            "jax_sentemb": __version__,
            "method": card.method,
            "base_model": card.base_model,
            **settings,
            "training": dict(card.training),
            "scores": dict(card.scores),
            "absent": list(card.missing_tasks),
            "verification": {"sentences": len(sentences), "max_abs_difference": difference, "tolerance": TOLERANCE},
            "sha256": {file.relative_to(stage).as_posix(): sha256(file) for file in sorted(stage.rglob("*")) if file.is_file()},
        }
        write_json(stage / MANIFEST, metadata)
    print(f"export {directory}: max abs difference {difference:.1e} over {len(sentences)} sentences", flush=True)
    return difference


def export_word_model(
    directory: Path,
    metadata: dict[str, Any],
    params: Params,
    tokenizer: WordTokenizer,
    embed: Callable[[Sequence[str]], np.ndarray],
    step: int,
) -> None:
    """Write, verify and publish a directory as `export.export` does; `facts` are those of the run."""
    stated = {"format": FORMAT, **{name: metadata[name] for name in ("method", "settings", "encoder", "max_seq_length")}}
    with staged(directory) as stage:
        write_word_model(stage, stated, params, tokenizer)
        (stage / "README.md").write_text(_card(stage, metadata, step), encoding="utf-8")
        difference = verify_export(stage, embed, PROBES, read_word_model)
        hashes = {file.relative_to(stage).as_posix(): sha256(file) for file in sorted(stage.rglob("*")) if file.is_file()}
        manifest = {"jax_sentemb": __version__, "verification": {"max_abs_difference": difference}, "sha256": hashes}
        write_json(stage / MANIFEST, manifest)
    print(f"export {directory}: max abs difference {difference:.1e} over {len(PROBES)} sentences", flush=True)


def _card(stage: Path, metadata: dict[str, Any], step: int) -> str:
    lines = [f"# {metadata['name']}", "", f"{metadata['method']} on word vectors, by jax_sentemb {__version__}; step {step}.", ""]
    lines += ["    jax-sentemb evaluate --model THIS_FOLDER --data path/to/SentEval/data --tasks sts", ""]
    if (stage / "modules.json").is_file():
        lines += ["    from sentence_transformers import SentenceTransformer", '    model = SentenceTransformer("THIS_FOLDER")', ""]
    lines += ["model.safetensors has PyTorch's names and shapes.", ""]
    return "\n".join([*lines, *(f"* {name}: {value}" for name, value in metadata["training"].items())]) + "\n"


def export_run(output: Path, metadata: dict[str, Any], params: Any, workdir: Path, step: int) -> None:
    """Write and verify the export of a run's parameters."""
    from jax_sentemb.formats.model_card import Card
    from jax_sentemb.models.bert import BertConfig

    embedder = run_embedder(workdir, metadata)
    if metadata["encoder"].get("model_type") == "words":
        embed = functools.partial(embedder, params)
        export_word_model(output, metadata, params, embedder.tokenizer, embed, step)
        return
    scores = metadata.get("scores", {}) if metadata.get("scores_of_step") == step else {}
    card = Card(
        name=metadata["name"],
        method=metadata["method"],
        base_model=metadata["base_model"],
        training={**metadata["training"], "steps": step},
        scores=scores,
        missing_tasks=metadata["absent"],
    )
    export(
        output,
        BertConfig(**metadata["encoder"]),
        params,
        read_run_tokenizer(workdir, metadata),
        functools.partial(embedder, params),
        pooling=metadata["pooling"],
        max_seq_length=metadata["max_seq_length"],
        convolution=convolution_of(metadata),
        card=card,
    )
