"""Any model that embeds sentences, opened by where it is.

A work directory of a run, an export, a Hugging Face BERT or RoBERTa directory, a sentence-transformers directory of stock modules,
a directory of a model on word vectors, or a name on the hub.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.word_vectors import is_word_vectors
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.files import read_json, sha256, shown, user_path
from jax_sentemb.formats.huggingface import (
    max_positions,
    read_convolution,
    read_max_seq_length,
    read_parts,
    read_tokenizer,
    resolve,
)
from jax_sentemb.formats.model_dir import read_readout, transformer_folder
from jax_sentemb.formats.run_dir import convolution_of, read_checkpoint, read_metadata, read_run_tokenizer
from jax_sentemb.formats.sentence_transformers import has_pair_head, logger
from jax_sentemb.formats.word_model import is_word_model, read_files, with_readout, with_words
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.inference.word_model import embedder_of, views_of
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.heads import pair_score
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.retrieval.quantize import DTYPES
from jax_sentemb.types import Array, Params, Rows

READOUTS = ("mean", "max", "min", "last", "average", "concatenation", "f", "g", "f2", "g2", "h")  # of multi-view models


class Loaded(NamedTuple):
    """A model that embeds: `embedder(params, sentences)`."""

    embedder: Embedder
    params: Params
    metadata: dict[str, Any]  # what results say of it
    views: Views = NO_VIEWS  # that the embeddings consist of
    positions: int | None = None  # tokens that the encoder has places for; None: any number

    def fingerprint(self) -> str:
        """SHA-256 of all that decides the embeddings; no path and no name is in it."""
        import jax

        metadata = {name: value for name, value in self.metadata.items() if name not in ("sha256", "step")}
        digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
        digest.update(self.embedder.tokenizer.fingerprint.encode())
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.params):
            digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode())
            digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def split_options(text: str, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Source and options of SOURCE@OPTION+OPTION; ConfigError for an option that is not in `known`."""
    source, at, options = text.rpartition("@")
    if not at or user_path(text).exists():
        return text, ()
    chosen = tuple(options.split("+"))
    for option in chosen:
        if option not in known:
            raise ConfigError(f"{text}: option {option!r} is unknown; there are {', '.join(dict.fromkeys(known))}")
    return source, chosen


def load(
    source: str,
    options: Sequence[str] = (),
    batch_size: int = 64,
    dtype: str = "float32",
    apart: bool = False,
    more_words: tuple[Path, Callable[[], set[str]]] | None = None,
) -> Loaded:
    """The model at `source`; `options` are a pooling of a BERT, or readouts of a multi-view model.

    `dtype` of the matrix products, float32 or bfloat16. `apart`: embeddings of a multi-view model are its views side by side.
    `more_words`: the file that a model on word vectors was trained with, and the words to add from it to those that it has.
    ConfigError for what is not there or has no embedding, ModelFileError for what is damaged.
    """
    path = user_path(source)
    if dtype not in DTYPES:
        raise ConfigError(f"dtype={dtype!r} is not one of {', '.join(DTYPES)}")
    metadata: dict[str, Any] = {}
    params: Any = None
    if is_run := (path / "model.json").is_file() and not is_word_model(path):
        metadata = read_metadata(path)
        if metadata.get("scores_pairs"):
            raise ConfigError(f"{source}: a cross-encoder scores pairs and has no embedding; scores.json of the run has its scores")
        params, step = read_checkpoint(path, "best")
        kind = {"kind": "work directory", "step": step, "max_seq_length": metadata["max_seq_length"]}
        if metadata["encoder"].get("model_type") == "words":
            tokenizer = read_run_tokenizer(path, metadata)
    else:
        if path.is_file() and is_word_vectors(path):
            raise ConfigError(f"{source} is a file of word vectors, no model: configs/word_average.py makes one of it")
        folder = resolve(source, "")
        weights = sorted(folder.rglob("*.safetensors"))
        kind = {"kind": "encoder directory", "sha256": {file.relative_to(folder).as_posix(): sha256(file) for file in weights}}
        if is_word_model(folder):
            metadata, params, tokenizer = read_files(folder)
    if metadata.get("encoder", {}).get("model_type") == "words":
        if dtype != "float32":
            raise ConfigError(f"{source}: a model on word vectors computes in float32, not in {dtype}")
        try:
            metadata = with_readout(metadata, options, None if is_run else params)
            if more_words:
                metadata, params, tokenizer = with_words(metadata, params, tokenizer, more_words[0], more_words[1]())
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        embedder = embedder_of(metadata, tokenizer, batch_size, apart=apart)
        stated = {name: metadata[name] for name in ("encoder", "method", "settings")}
        return Loaded(embedder, params, {**kind, **stated}, views_of(metadata) if apart else NO_VIEWS)
    if bad := [option for option in options if option not in POOLINGS]:
        raise ConfigError(f"{source}: {bad[0]} is an option of multi-view models")
    if len(options) > 1:
        raise ConfigError(f"{source}: {' and '.join(options)}: give one pooling")
    pooling = options[0] if options else ""
    if is_run:
        embedder = run_embedder(path, metadata, pooling, dtype, batch_size)
        stated = metadata["encoder"]
        convolution = None if pooling else metadata.get("convolution")
        readout = {"encoder": stated, "pooling": pooling or metadata["pooling"], "convolution": convolution}
        positions = stated["max_position_embeddings"] - stated["position_offset"]
    else:
        embedder, params, readout = directory_embedder(folder, batch_size, pooling, dtype)
        positions = max_positions(folder)
    return Loaded(embedder, params, {**kind, **readout}, positions=positions)


def read_embedder(path: str | Path, batch_size: int = 64) -> Callable[[Sequence[str]], np.ndarray]:
    """Sentences -> float32 [N, E] by what a directory says."""
    embedder, params, _ = directory_embedder(path, batch_size)
    return functools.partial(embedder, params)


def directory_embedder(
    path: str | Path, batch_size: int = 64, pooling: str = "", dtype: str = "float32"
) -> tuple[Embedder, Params, dict[str, Any]]:
    """Embedder, parameters and readout by the encoder, tokenizer, convolution, pooling (mean if unsaid) and limit of a directory.

    `pooling` (cls, mean or first_last) of the encoder's states takes the place of what the directory says; `dtype` is that of
    products.
    """
    config, params = read_parts(path)
    stated = read_json(transformer_folder(path) / "config.json").get("architectures")
    one_score = has_pair_head(params) and len(params["classifier"]["bias"]) == 1  # others may be classifiers of single sentences
    if one_score and isinstance(stated, list) and any("ForSequenceClassification" in shown(name) for name in stated):
        raise ModelFileError(f"{path} is a cross-encoder: it scores pairs of sentences and has no embedding of one")
    readout = read_readout(path)
    found = None if pooling else read_convolution(path)
    pooling = pooling or readout.pooling or "mean"
    bert, convolution = Bert(config, jnp.dtype(dtype)), found and found[0]

    def embed(params: Params, rows: Rows) -> Array:
        vectors = sentence_embedding(bert, params, rows, pooling, convolution)
        if readout.normalize:
            vectors = vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors

    tokenizer = read_tokenizer(path, config)
    _warn_of_prompt(path)
    used = {part: params[part] for part in ("encoder", *(("cnn",) if convolution else ()))}
    metadata = {
        "encoder": dataclasses.asdict(config),
        "pooling": pooling,
        "normalize": readout.normalize,
        "convolution": convolution and dataclasses.asdict(convolution),
    }
    return Embedder(embed, tokenizer, read_max_seq_length(path), batch_size), used, metadata


def _warn_of_prompt(path: str | Path) -> None:
    file = user_path(path) / "config_sentence_transformers.json"
    if file.is_file() and (name := read_json(file).get("default_prompt_name")) is not None:
        logger.warning("%s: the default prompt %s is ignored: put it before your sentences yourself", file, shown(name))


def read_scorer(path: str | Path, batch_size: int = 64) -> Callable[[Sequence[tuple[str, str]]], np.ndarray]:
    """Pairs of sentences -> float32 [N, 1], the scores of a cross-encoder's directory."""
    config, params = read_parts(path)
    if not has_pair_head(params):
        raise ModelFileError(f"{path} is no cross-encoder: it has no pooler and classifier")
    tokenizer = read_tokenizer(path, config)
    bert = Bert(dataclasses.replace(config, sep_token_id=tokenizer.sep_id))

    def score(params: Params, rows: Rows) -> Array:
        return pair_score(bert, params, rows)

    used = {part: params[part] for part in ("encoder", "pooler", "classifier")}
    return functools.partial(Embedder(score, JoinedPairs(tokenizer), read_max_seq_length(path), batch_size), used)


def run_embedder(workdir: Path, metadata: dict[str, Any], pooling: str = "", dtype: str = "float32", batch_size: int = 64) -> Any:
    """The Embedder of a run, (parameters, sentences) -> float32 [N, E]; of a cross-encoder, (parameters, pairs) -> scores [N, 1].

    `pooling` of the encoder's states takes the place of what the run's method does with them; `dtype` is that of products.
    """
    import jax.numpy as jnp

    from jax_sentemb.data.pairs import JoinedPairs
    from jax_sentemb.inference.embedder import Embedder
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.models.heads import pair_score
    from jax_sentemb.models.pooling import sentence_embedding

    if metadata["encoder"].get("model_type") == "words":
        from jax_sentemb.inference.word_model import embedder_of

        return embedder_of(metadata, read_run_tokenizer(workdir, metadata), batch_size)
    encoder = Bert(BertConfig(**metadata["encoder"]), jnp.dtype(dtype))
    convolution = None if pooling else convolution_of(metadata)
    is_cross_encoder = metadata.get("scores_pairs", False)

    def embed(params: Any, rows: Any) -> Any:
        if is_cross_encoder:
            return pair_score(encoder, params, rows)
        return sentence_embedding(encoder, params, rows, pooling or metadata["pooling"], convolution)

    tokenizer = read_run_tokenizer(workdir, metadata)
    return Embedder(embed, JoinedPairs(tokenizer) if is_cross_encoder else tokenizer, metadata["max_seq_length"], batch_size)
