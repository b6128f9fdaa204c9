"""Any model that embeds sentences, opened by where it is.

A work directory of a run, an export, a Hugging Face BERT or RoBERTa directory, a sentence-transformers directory of stock modules,
a directory of a model on word vectors, or a name on the hub.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.convert import read_checkpoint, read_facts, read_run_tokenizer, run_embedder
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.evaluation.words import NO_VIEWS, Views
from jax_sentemb.export import directory_embedder
from jax_sentemb.model_folder import sha256
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.paths import user_path
from jax_sentemb.quantize import DTYPES
from jax_sentemb.text.vectors import is_word_vectors
from jax_sentemb.types import Params
from jax_sentemb.weights import max_positions, resolve
from jax_sentemb.word_model import embedder_of, is_word_model, read_files, views_of, with_readout, with_words

READOUTS = ("mean", "max", "min", "last", "average", "concatenation", "f", "g", "f2", "g2", "h")  # of multi-view models


class Loaded(NamedTuple):
    """A model that embeds: `embedder(params, sentences)`."""

    embedder: Embedder
    params: Params
    facts: dict[str, Any]  # what results say of it
    views: Views = NO_VIEWS  # that the embeddings consist of
    positions: int | None = None  # tokens that the encoder has places for; None: any number

    def fingerprint(self) -> str:
        """SHA-256 of all that decides the embeddings; no path and no name is in it."""
        import jax

        facts = {name: value for name, value in self.facts.items() if name not in ("sha256", "step")}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
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
    facts: dict[str, Any] = {}
    params: Any = None
    if is_run := (path / "model.json").is_file() and not is_word_model(path):
        facts = read_facts(path)
        if facts.get("scores_pairs"):
            raise ConfigError(f"{source}: a cross-encoder scores pairs and has no embedding; scores.json of the run has its scores")
        params, step = read_checkpoint(path, "best")
        kind = {"kind": "work directory", "step": step, "max_seq_length": facts["max_seq_length"]}
        if facts["encoder"].get("model_type") == "words":
            tokenizer = read_run_tokenizer(path, facts)
    else:
        if path.is_file() and is_word_vectors(path):
            raise ConfigError(f"{source} is a file of word vectors, no model: configs/word_average.py makes one of it")
        folder = resolve(source, "")
        weights = sorted(folder.rglob("*.safetensors"))
        kind = {"kind": "encoder directory", "sha256": {file.relative_to(folder).as_posix(): sha256(file) for file in weights}}
        if is_word_model(folder):
            facts, params, tokenizer = read_files(folder)
    if facts.get("encoder", {}).get("model_type") == "words":
        if dtype != "float32":
            raise ConfigError(f"{source}: a model on word vectors computes in float32, not in {dtype}")
        try:
            facts = with_readout(facts, options, None if is_run else params)
            if more_words:
                facts, params, tokenizer = with_words(facts, params, tokenizer, more_words[0], more_words[1]())
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        embedder = embedder_of(facts, tokenizer, batch_size, apart=apart)
        stated = {name: facts[name] for name in ("encoder", "method", "settings")}
        return Loaded(embedder, params, {**kind, **stated}, views_of(facts) if apart else NO_VIEWS)
    if bad := [option for option in options if option not in POOLINGS]:
        raise ConfigError(f"{source}: {bad[0]} is an option of multi-view models")
    if len(options) > 1:
        raise ConfigError(f"{source}: {' and '.join(options)}: give one pooling")
    pooling = options[0] if options else ""
    if is_run:
        embedder = run_embedder(path, facts, pooling, dtype, batch_size)
        stated = facts["encoder"]
        convolution = None if pooling else facts.get("convolution")
        readout = {"encoder": stated, "pooling": pooling or facts["pooling"], "convolution": convolution}
        positions = stated["max_position_embeddings"] - stated["position_offset"]
    else:
        embedder, params, readout = directory_embedder(folder, batch_size, pooling, dtype)
        positions = max_positions(folder)
    return Loaded(embedder, params, {**kind, **readout}, positions=positions)
