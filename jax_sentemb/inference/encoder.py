"""`SentenceEncoder`: encodes sentences to vectors, with the arguments of sentence-transformers.

from jax_sentemb import SentenceEncoder

encoder = SentenceEncoder.load("runs/micse")
vectors = encoder.encode(["A man is playing a guitar.", "Someone plays an instrument."])
"""

import functools
import logging
import os
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from jax_sentemb.data.tokenizer import check_text
from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.files import user_path
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.load import READOUTS, LoadedModel, load, split_options
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.parallel import batch_sharding, end_well_in_forks, make_mesh, replicated, use_compilation_cache
from jax_sentemb.retrieval.quantize import check_precision, quantize
from jax_sentemb.types import Array

logger = logging.getLogger("jax_sentemb")
_started_in = 0  # id of the process that made the first encoder, and with it JAX's threads


class SentenceEncoder:
    """A model that embeds sentences, on all local devices.

    `truncated`: how many distinct sentences of the latest call were longer than `max_seq_length` tokens and were cut.

    A pickle or `copy.deepcopy` of a loaded encoder has its path and settings and loads it again, so an encoder can be passed to
    spawned worker processes. After os.fork JAX does not work, and the methods raise ConfigError.
    """

    _source: tuple[str, str] | None = None  # path and dtype

    def __init__(self, model: LoadedModel) -> None:
        _check_fork()
        devices = jax.local_devices()
        mesh = make_mesh(len(devices), devices)
        found = model.embedder
        sharding = batch_sharding(mesh) if len(devices) > 1 else None
        self._model = model
        self._params = jax.device_put(model.params, replicated(mesh) if sharding else None)
        self._embedder = Embedder(found.embed, found.tokenizer, found.max_seq_length, sharding=sharding)

    @classmethod
    def load(cls, path: str | Path, *, dtype: str = "float32", max_seq_length: int = 0) -> "SentenceEncoder":
        """Load the model at `path`.

        `path` is a work directory of a run, an export, a Hugging Face BERT or RoBERTa directory, a sentence-transformers directory
        of stock modules, a model on word vectors, or a name on the hub. PATH@cls, @mean or @first_last replaces the pooling of the
        directory; PATH@f+max and the like choose the views and poolings of a multi-view model.

        `dtype` is that of the matrix products, float32 or bfloat16. `max_seq_length` in tokens replaces the model's own.
        ConfigError if the model is missing, ModelFileError if it is damaged or of an unsupported kind.
        """
        _check_fork()
        use_compilation_cache()
        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns of its own defaults
        source, options = split_options(str(path), (*POOLINGS, *READOUTS))
        encoder = cls(load(source, options, dtype=dtype))
        here = user_path(source)
        encoder._source = str(path).replace(source, str(here.absolute()), 1) if here.exists() else str(path), dtype
        if max_seq_length:
            encoder.max_seq_length = max_seq_length
        return encoder

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source is None:
            raise TypeError(
                "only a SentenceEncoder from SentenceEncoder.load can be pickled or copied, since the copy loads it again"
            )
        return _load_again, (type(self), *self._source, self.max_seq_length)

    @property
    def max_seq_length(self) -> int:
        """The number of tokens that a sentence is cut to, [CLS] and [SEP] included."""
        return self._embedder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        longest = self._model.positions
        if length < 3 or (longest and length > longest):
            raise ConfigError(
                f"max_seq_length={length} is not between 3 and {longest or 'any number'}, the number of the model's positions"
            )
        self._embedder.max_seq_length = length

    @property
    def truncated(self) -> int:
        return self._embedder.truncated

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that embeddings depend on; reads all weights."""
        return self._model.fingerprint()

    def get_sentence_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._embedder.width(self._params)

    def encode(
        self,
        sentences: str | Iterable[str],
        batch_size: int = 64,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_numpy: bool = True,
        truncate_dim: int | None = None,
        precision: str = "float32",
    ) -> Shaped[Array, "*sentences embedding"]:
        """Embeddings [N, E] in the order of the sentences, [0, E] for none, [E] for one `str`. Names as in sentence-transformers.

        batch_size: sentences encoded at once; on a CPU at most 16. truncate_dim: keep only the first `truncate_dim` numbers, before
        `normalize_embeddings` scales to length 1. precision: float32, int8, uint8 (scaled to the ranges of these embeddings),
        binary or ubinary (signs, eight in a byte). show_progress_bar: None shows it if the logger `jax_sentemb` has level INFO.
        convert_to_numpy=False returns a jax.Array.

        A sentence longer than `max_seq_length` tokens is cut; a warning says how many were cut. TypeError names the first sentence
        that is not `str`; NumericsError for embeddings that are not finite.
        """
        _check_fork()
        check_precision(precision)
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else _list_of(sentences)
        check_text(texts)
        width = self.get_sentence_embedding_dimension()
        if truncate_dim is not None and not 1 <= truncate_dim <= width:
            raise ConfigError(f"truncate_dim={truncate_dim} is not between 1 and {width}, the model's dimensions")
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} is not a number of sentences")
        vectors = self._vectors(
            texts, batch_size, logger.isEnabledFor(logging.INFO) if show_progress_bar is None else show_progress_bar
        )
        if truncate_dim is not None:
            vectors = vectors[:, :truncate_dim]
        if normalize_embeddings:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        vectors = quantize(vectors, precision)
        vectors = vectors[0] if single else vectors
        return vectors if convert_to_numpy else jnp.asarray(vectors)

    def similarity(
        self, first: Shaped[Array, "*first embedding"], second: Shaped[Array, "*second embedding"]
    ) -> Float[np.ndarray, "first second"]:
        """Cosines float32 [N, M] of embeddings [N, E] and [M, E]; N or M is 1 for a single embedding [E]."""
        sides = [np.atleast_2d(np.asarray(side, np.float32)) for side in (first, second)]
        unit = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides]
        return unit[0] @ unit[1].T

    def _vectors(self, texts: list[str], batch_size: int, show: bool) -> np.ndarray:
        from tqdm import tqdm

        with tqdm(total=len(set(texts)) if show else 0, desc="encode", unit=" sentences", disable=not show) as bar:
            vectors = self._embedder(self._params, texts, batch_size, bar.update)
        if not np.isfinite(vectors).all():
            bad = int((~np.isfinite(vectors).all(axis=1)).sum())
            raise NumericsError(f"{bad} of {len(vectors)} sentence embeddings are not finite (NaN or Inf)")
        if self.truncated:
            logger.warning(
                "%d of %d distinct sentences are longer than max_seq_length=%d tokens and were cut",
                self.truncated, len(set(texts)), self.max_seq_length,
            )  # fmt: skip
        return vectors


def _load_again(kind: type[SentenceEncoder], path: str, dtype: str, max_seq_length: int) -> SentenceEncoder:
    return kind.load(path, dtype=dtype, max_seq_length=max_seq_length)


def _check_fork() -> None:
    """Raises ConfigError in a process that was forked from one with an encoder: JAX's threads are missing, and it would hang."""
    global _started_in
    if not _started_in:
        _started_in = os.getpid()
        end_well_in_forks()
    if _started_in != os.getpid():
        raise ConfigError(
            "this process was forked from one that has loaded a model, and JAX does not work after a fork: "
            'start it with multiprocessing.get_context("spawn"), or load the model only after the fork'
        )


def _list_of(sentences: Any) -> list[Any]:
    """The sentences of a list, tuple, generator or NumPy array as a list; TypeError for bytes, sets and mappings."""
    if isinstance(sentences, np.ndarray):
        return np.atleast_1d(sentences).tolist()
    if isinstance(sentences, bytes | bytearray | Mapping | Set) or not isinstance(sentences, Iterable):
        raise TypeError(f"sentences is {type(sentences).__name__}, neither str nor a list of str")
    return list(sentences)
