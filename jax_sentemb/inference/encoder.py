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

from jax_sentemb.data.tokenizer import check_text
from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.files import user_path
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.load import READOUTS, LoadedModel, load, split_options
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.parallel import batch_sharding, make_mesh, replicated, use_compilation_cache
from jax_sentemb.retrieval.quantize import check_precision, quantize
from jax_sentemb.types import Array

logger = logging.getLogger("jax_sentemb")
_started_in = 0  # the process in which the first encoder was made, and with it JAX's threads


class SentenceEncoder:
    """A model that embeds sentences, on all local devices.

    `truncated`: how many distinct sentences of the latest call were longer than `max_seq_length` tokens and were cut.

    A pickle, or a copy by `copy.deepcopy`, of one that was loaded has its path and settings and loads it again: so worker processes
    that are spawned can be given one. JAX does not survive os.fork: there a ConfigError says so.
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
        """The model at `path`.

        A work directory of a run, an export, a Hugging Face BERT or RoBERTa directory, a sentence-transformers directory of stock
        modules, a model on word vectors, or a name on the hub. PATH@cls, @mean or @first_last chooses another pooling than the
        directory's, PATH@f+max and the like what is read of a multi-view model.

        `dtype` of the matrix products: float32 or bfloat16. `max_seq_length` in tokens takes the place of the model's own.
        ConfigError where the model is missing, ModelFileError where it is damaged or of an unsupported kind.
        """
        _check_fork()
        use_compilation_cache()
        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax remarks on its own defaults
        source, options = split_options(str(path), (*POOLINGS, *READOUTS))
        encoder = cls(load(source, options, dtype=dtype))
        here = user_path(source)
        encoder._source = str(path).replace(source, str(here.absolute()), 1) if here.exists() else str(path), dtype
        if max_seq_length:
            encoder.max_seq_length = max_seq_length
        return encoder

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source is None:
            raise TypeError("only a SentenceEncoder that SentenceEncoder.load made can be pickled or copied: it is loaded again")
        return _load_again, (type(self), *self._source, self.max_seq_length)

    @property
    def max_seq_length(self) -> int:
        """Tokens that a sentence is cut to, [CLS] and [SEP] included."""
        return self._embedder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        longest = self._model.positions
        if length < 3 or (longest and length > longest):
            raise ConfigError(
                f"max_seq_length={length} is not between 3 and {longest or 'any number'}, what the model has places for"
            )
        self._embedder.max_seq_length = length

    @property
    def truncated(self) -> int:
        return self._embedder.truncated

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides the embeddings; every weight is read for it."""
        return self._model.fingerprint()

    def get_sentence_embedding_dimension(self) -> int:
        """Numbers in an embedding."""
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
    ) -> Any:
        """Embeddings [N, E] in the order of the sentences, [0, E] for none; [E] for one `str`. Names as in sentence-transformers.

        batch_size: sentences encoded at once; a processor takes at most 16 at a time.

        truncate_dim: only the first so many numbers, before the length is made 1 with `normalize_embeddings`. precision: float32,
        int8, uint8 (spread over the ranges of these embeddings), binary or ubinary (signs, eight a byte). show_progress_bar:
        None shows it where the logger `jax_sentemb` is at INFO. convert_to_numpy=False: a jax.Array.

        A sentence longer than `max_seq_length` tokens is cut; a warning says how many were. TypeError names the first sentence
        that is not `str`, NumericsError is for embeddings that are not finite.
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

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The columns of `batch` and "embedding" [N, E], of its column "text": a class for `map_batches` of Ray Data."""
        return {**batch, "embedding": self.encode(list(batch["text"]), show_progress_bar=False)}

    def similarity(self, first: Array, second: Array) -> np.ndarray:
        """Cosines float32 [N, M] of embeddings [N, E] and [M, E], or of single ones."""
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
    """ConfigError in a process that was forked from one with an encoder: JAX's threads are missing there, and it would hang."""
    global _started_in
    _started_in = _started_in or os.getpid()
    if _started_in != os.getpid():
        raise ConfigError(
            "this process was forked from one that has loaded a model, and JAX does not survive that: "
            'start it with multiprocessing.get_context("spawn"), or load the model after the fork only'
        )


def _list_of(sentences: Any) -> list[Any]:
    """The sentences of a list, tuple, generator or NumPy array; TypeError for what has no sentences or no order."""
    if isinstance(sentences, np.ndarray):
        return np.atleast_1d(sentences).tolist()
    if isinstance(sentences, bytes | bytearray | Mapping | Set) or not isinstance(sentences, Iterable):
        raise TypeError(f"sentences is {type(sentences).__name__}, neither str nor a list of str")
    return list(sentences)
