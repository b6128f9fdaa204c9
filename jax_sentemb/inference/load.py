"""Open a sentence encoder, given its name.

A name is a repository of the hub, or a directory: a run's work directory, an export, a Hugging Face directory, a
sentence-transformers directory of stock modules, a static table, or a model on word vectors. NAME@OPTION+OPTION chooses how its
embeddings are made.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb import files
from jax_sentemb.checks import choice
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.data.word_vectors import is_word_vectors
from jax_sentemb.errors import OTHER_MODEL, ConfigError, ModelFileError
from jax_sentemb.files import quote, read_json, sha256, user_path
from jax_sentemb.formats.encode_settings import DEFAULTS, EncodeSettings, read_encode_settings
from jax_sentemb.formats.huggingface import read_max_seq_length, read_parts, read_tokenizer, resolve
from jax_sentemb.formats.model_dir import read_modules, read_readout, transformer_folder
from jax_sentemb.formats.modules import read_convolution, read_dense
from jax_sentemb.formats.run_dir import encode_settings_of, is_words, read_checkpoint, read_metadata, read_run_tokenizer, run_digest
from jax_sentemb.formats.sentence_transformers import has_pair_head
from jax_sentemb.formats.static_embedding import is_static, read_static
from jax_sentemb.formats.tensors import WEIGHT_NAMES, digest_of, weight_files
from jax_sentemb.formats.word_model import (
    embedding_parts,
    is_word_model,
    method_of,
    read_files,
    with_readout,
    with_words,
    word_weight_files,
)  # fmt: skip
from jax_sentemb.inference.build import build_embedder, views_of
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.static import LONGEST, Pieces, StaticEmbedder
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.retrieval.quantize import DTYPES
from jax_sentemb.types import Params

STATIC = "static"  # model_type of a static table
UNUSED_TO_EMBED = ("initializer_range", "mask_token_id", "sep_token_id")  # settings of an encoder that only training or pairs need
READOUTS = ("mean", "max", "min", "last", "average", "concatenation", "f", "g", "f2", "g2", "h")  # of multi-view models


class LoadedModel(NamedTuple):
    """A model that embeds sentences: `model(sentences)`, with its default prompt before each of them.

    `embedder(params, texts)` embeds texts as they are, also with other parameters of the same shapes.
    """

    embedder: Embedder
    params: Params
    metadata: dict[str, Any]  # description of the model in results
    views: Views = NO_VIEWS  # the layout of the embeddings
    positions: int | None = None  # the number of positions of the encoder; None: unlimited
    settings: EncodeSettings = DEFAULTS  # of the directory
    dtype: str = "float32"  # precision of the matrix products of `embedder`

    def __call__(self, sentences: Sequence[str]) -> Float[np.ndarray, "sentences width"]:
        """Return embeddings float32 [N, E] in the order of the sentences."""
        return self.embed_as("", sentences)

    def embed_as(self, role: str, sentences: Sequence[str]) -> Float[np.ndarray, "sentences width"]:
        """Return embeddings float32 [N, E] of texts of the role "query" or "document", which may have prompts."""
        return self.embedder(self.params, self.settings.add_prompt(sentences, role))[:, : self.settings.truncate_dim]

    @property
    def width(self) -> int:
        """Return the width of an embedding, without running the model."""
        return self.settings.width_of(self.embedder.width(self.params))

    def fingerprint(self) -> str:
        """Return the `model_fingerprint` of this model."""
        tokenizer = self.embedder.tokenizer
        assert isinstance(tokenizer, Tokenizer | WordTokenizer | Pieces)  # a cross-encoder is not a LoadedModel
        return model_fingerprint(self.metadata, self.params, tokenizer)


def model_fingerprint(metadata: dict[str, Any], params: Params, tokenizer: Tokenizer | WordTokenizer | Pieces) -> str:
    """Return the SHA-256 of what computes the embedding of a text: weights, tokenizer, pooling and the layers after it.

    A run, its export and a copy of it have the same fingerprint. A call can change prompts, the length to which a text is cut, the
    width of embeddings and the precision, so these are separate sources in files of vectors.
    """
    facts: dict[str, Any] = {
        "encoder": {name: value for name, value in metadata["encoder"].items() if name not in UNUSED_TO_EMBED},
        "normalize": bool(metadata.get("normalize")),
        "dense": list(metadata.get("dense") or ()),
        **{name: metadata.get(name) for name in ("pooling", "convolution")},
    }
    if is_words(metadata):
        facts |= {name: metadata[name] for name in ("method", "settings")}
        used = embedding_parts(metadata, params)
    else:
        parts = {"encoder": True, "cnn": facts["convolution"], "dense": facts["dense"], "table": True}
        used = {name: params[name] for name, is_used in parts.items() if is_used and name in params}
    return files.fingerprint({**facts, "tokenizer": tokenizer.fingerprint, "weights": digest_of(used)})


class _Stored(NamedTuple):
    """The files of a model."""

    description: dict[str, Any]  # what `build_embedder` needs
    params: Params
    tokenizer: Tokenizer | WordTokenizer
    origin: dict[str, Any]  # the type of directory, and a run with its step or the SHA-256 of the weight files
    where: str  # the file of the description, for messages
    settings: EncodeSettings = DEFAULTS

    @property
    def is_run(self) -> bool:
        return "step" in self.origin


def split_options(text: str, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Split SOURCE@OPTION+OPTION into source and options; raise ConfigError for an option that is not in `known`."""
    source, at, options = text.rpartition("@")
    if not at or user_path(text).exists():
        return text, ()
    chosen = tuple(options.split("+"))
    for option in chosen:
        if option not in known:
            raise ConfigError(f"{text}: option {option!r} is unknown; the options are {', '.join(dict.fromkeys(known))}")
    return source, chosen


def load(
    name: str | Path,
    options: Sequence[str] | None = None,
    batch_size: int = 64,
    dtype: str = "float32",
    separate_views: bool = False,
    more_words: tuple[Path, Callable[[], set[str]]] | None = None,
) -> LoadedModel:
    """Open the model called `name`.

    Args:
        name: A path or a name of the hub, with or without options after an @.
        options: A pooling of a BERT, or views and poolings of a multi-view model; they replace those of `name`.
        batch_size: Sentences of a batch.
        dtype: Precision of the matrix products, float32 or bfloat16.
        separate_views: Return the views of a multi-view model side by side.
        more_words: The file of vectors that a model on word vectors was trained with, and a function that returns the words to add
            from it.

    Raises:
        ConfigError: The model is missing or does not embed sentences.
        ModelFileError: The model is damaged.
    """
    choice("dtype", dtype, DTYPES)
    source = str(name)
    if options is None:
        source, options = split_options(source, (*POOLINGS, *READOUTS))
    stored = _read(source)
    if stored.description["encoder"].get("model_type") == STATIC:
        return _static_model(source, stored, options, dtype)
    if not is_words(stored.description):
        return _bert_model(source, stored, options, batch_size, dtype)
    if dtype != "float32":
        raise ConfigError(f"{source}: a model on word vectors computes in float32, not in {dtype}; leave the type out")
    description, params, tokenizer = stored.description, stored.params, stored.tokenizer
    try:
        description = with_readout(description, options, None if stored.is_run else params)
        if more_words and isinstance(tokenizer, WordTokenizer):
            description, params, tokenizer = with_words(description, params, tokenizer, more_words[0], more_words[1]())
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    embedder = build_embedder(description, tokenizer, batch_size, separate_views=separate_views, where=stored.where)
    metadata = {key: description[key] for key in ("encoder", "method", "settings", "vectors") if key in description}
    views = views_of(description) if separate_views else NO_VIEWS
    return LoadedModel(embedder, params, {**stored.origin, **metadata}, views, settings=stored.settings)


def _bert_model(source: str, stored: _Stored, options: Sequence[str], batch_size: int, dtype: str) -> LoadedModel:
    if unknown := [option for option in options if option not in POOLINGS]:
        raise ConfigError(f"{source}: {unknown[0]} is an option of multi-view models; leave it out")
    if len(options) > 1:
        raise ConfigError(f"{source}: {' and '.join(options)}: give one pooling")
    description, params = stored.description, stored.params
    if options:  # another pooling of the encoder's states
        description = {**description, "pooling": options[0], "convolution": None, "dense": ()}
    if not stored.is_run:
        others = {"cnn": description["convolution"], "dense": description.get("dense")}
        params = {part: params[part] for part in ("encoder", *(part for part, used in others.items() if used))}
    embedder = build_embedder(description, stored.tokenizer, batch_size, dtype, where=stored.where)
    keys = [key for key in ("encoder", "pooling", "normalize", "convolution") if key in description]
    keys += ["dense"] if description.get("dense") else []
    positions = description["encoder"]["max_position_embeddings"] - description["encoder"]["position_offset"]
    metadata = {**stored.origin, **{key: description[key] for key in keys}}
    return LoadedModel(embedder, params, metadata, positions=positions, settings=stored.settings, dtype=dtype)


def _static_model(source: str, stored: _Stored, options: Sequence[str], dtype: str) -> LoadedModel:
    if options or dtype != "float32":
        raise ConfigError(f"{source}: a static table has one way to embed, in float32; leave out {[*options, dtype][0]}")
    assert isinstance(stored.tokenizer, Tokenizer)
    normalize = stored.description["normalize"]
    metadata = {**stored.origin, "encoder": stored.description["encoder"], "normalize": normalize}
    embedder = StaticEmbedder(stored.tokenizer, normalize, stored.description["max_seq_length"])
    return LoadedModel(embedder, stored.params, metadata, settings=stored.settings)


def _read_static(folder: Path) -> _Stored:
    table = read_static(folder)
    rows, width = table.vectors.shape
    encoder = {"model_type": STATIC, "vocab_size": rows, "hidden_size": width}
    description = {"encoder": encoder, "normalize": table.normalize, "max_seq_length": table.max_seq_length or LONGEST}
    origin = _origin(folder, _weights_of_modules(folder), "static table")
    return _Stored(description, {"table": table.vectors}, table.tokenizer, origin, str(folder), table.settings)


def _read(source: str) -> _Stored:
    """Read a run, a model on word vectors, a static table, or a BERT directory; the last two may be on the hub."""
    path = user_path(source)
    if (path / "model.json").is_file() and not is_word_model(path):
        return _read_run(path, source)
    if path.is_file() and is_word_vectors(path):
        raise ConfigError(
            f"{source} is a file and not a model: give a directory or a hub name; configs/word_average.py makes one of word vectors"
        )
    folder = resolve(source, "")
    if is_word_model(folder):
        return _read_words(folder)
    return _read_static(folder) if is_static(folder) else _read_bert(folder)


def _origin(folder: Path, weights: Iterable[Path], model_type: str = "encoder directory") -> dict[str, Any]:
    """Return the type of a directory and the SHA-256 of its weight files, whose headers were checked before."""
    return {"kind": model_type, "sha256": {file.relative_to(folder).as_posix(): sha256(file) for file in sorted(weights)}}


def _weights_of_modules(folder: Path) -> Iterator[Path]:
    """Yield the weight files of the modules of a directory."""
    for _, module in read_modules(folder):
        if any((module / name).is_file() for name in WEIGHT_NAMES):
            yield from weight_files(module)


def _read_words(folder: Path) -> _Stored:
    file = str(folder / "model.json")
    description, params, tokenizer = read_files(folder)
    origin = _origin(folder, word_weight_files(folder, method_of(description, file)))
    return _Stored(description, params, tokenizer, origin, file, read_encode_settings(folder))


def _read_run(path: Path, source: str) -> _Stored:
    metadata = read_metadata(path)
    if metadata.get("scores_pairs"):
        raise ConfigError(f"{source}: a cross-encoder scores pairs and has no embedding; scores.json of the run has its scores")
    params, step = read_checkpoint(path, "best")
    origin = {"kind": "work directory", "run": run_digest(metadata), "step": step, "max_seq_length": metadata["max_seq_length"]}
    description = {"convolution": None, **metadata}
    tokenizer = read_run_tokenizer(path, metadata)
    return _Stored(description, params, tokenizer, origin, str(path / "model.json"), encode_settings_of(metadata))


def _read_bert(folder: Path) -> _Stored:
    """Read a BERT or sentence-transformers directory; the pooling is mean if the directory does not name one."""
    config, params = read_parts(folder)
    architectures = read_json(transformer_folder(folder) / "config.json").get("architectures")
    one_score = (
        has_pair_head(params) and len(params["classifier"]["bias"]) == 1
    )  # a head with more outputs may classify single sentences
    if one_score and isinstance(architectures, list) and any("ForSequenceClassification" in quote(name) for name in architectures):
        raise ModelFileError(
            f"{folder} is a cross-encoder: it scores pairs of sentences and does not embed sentences; {OTHER_MODEL}"
        )
    readout, convolution, dense = read_readout(folder), read_convolution(folder), read_dense(folder)
    description = {
        "encoder": dataclasses.asdict(config),
        "pooling": readout.pooling or "mean",
        "normalize": readout.normalize,
        "convolution": convolution and dataclasses.asdict(convolution[0]),
        "max_seq_length": read_max_seq_length(folder),
        "dense": list(dense[0]) if dense else [],
    }
    tokenizer, origin = read_tokenizer(folder, config), _origin(folder, _weights_of_modules(folder))
    return _Stored(description, params, tokenizer, origin, str(folder), read_encode_settings(folder))


def load_cross_encoder(
    path: str | Path, batch_size: int = 64
) -> Callable[[Sequence[tuple[str, str]]], Float[np.ndarray, "pairs outputs"]]:
    """Return a function from pairs of sentences to float32 [N, C], the scores (C = 1) or class logits of a cross-encoder."""
    config, params = read_parts(path)
    if not has_pair_head(params):
        raise ModelFileError(f"{path} is not a cross-encoder: it has no pooler and classifier; {OTHER_MODEL}")
    tokenizer = read_tokenizer(path, config)
    encoder = dataclasses.asdict(dataclasses.replace(config, sep_token_id=tokenizer.sep_id))
    description = {"encoder": encoder, "scores_pairs": True, "max_seq_length": read_max_seq_length(path)}
    used = {part: params[part] for part in ("encoder", "pooler", "classifier")}
    return functools.partial(build_embedder(description, tokenizer, batch_size), used)
