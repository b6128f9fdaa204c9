"""Encode sentences to vectors with `SentenceEncoder`, whose arguments are those of sentence-transformers.

from jax_sentemb import SentenceEncoder

encoder = SentenceEncoder("runs/micse")
vectors = encoder.encode(["A man is playing a guitar.", "Someone plays an instrument."])
"""

import contextlib
import functools
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_sentemb.checks import choice, flag, text, whole_number
from jax_sentemb.data.chunks import CHUNKS, Chunker
from jax_sentemb.data.containers import check_text, sentence_list
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.files import user_path
from jax_sentemb.formats.encode_settings import check_truncate_dim
from jax_sentemb.formats.run_dir import is_words
from jax_sentemb.inference.changeable_settings import ChangeableSettings
from jax_sentemb.inference.chunk_vectors import ChunkEmbeddings, ChunkEncoder
from jax_sentemb.inference.export import export_loaded
from jax_sentemb.inference.hub import upload
from jax_sentemb.inference.load import READOUTS, LoadedModel, load, split_options
from jax_sentemb.inference.similarity import unit_rows
from jax_sentemb.inference.static import StaticEmbedder
from jax_sentemb.inference.token_embeddings import TokenEmbeddings, token_embedder
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.parallel import batch_sharding, check_fork, make_mesh
from jax_sentemb.retrieval.quantize import DTYPES, check_precision, quantize
from jax_sentemb.system.terminal import Progress
from jax_sentemb.types import Array, OnCount, Params, no_progress

logger = logging.getLogger("jax_sentemb")


class SentenceEncoder(ChangeableSettings):
    """A model that embeds sentences, on all local devices.

    Threads may share an encoder. A call reads the settings once, when it begins; a thread that sets them changes later calls only.

    These settings come from the model's directory and can be changed:

    * `prompts`: texts by name.
    * `default_prompt`: the text that is put before sentences for which no prompt is given.
    * `similarity_fn_name`: cosine, dot, euclidean or manhattan.
    * `truncate_dim`: the number of dimensions that `encode` keeps; None keeps all.
    * `max_seq_length`: the number of tokens that a sentence is cut to.

    `save` writes the settings. A pickle or a copy of a loaded encoder has its path and settings and loads it again, so an encoder
    can be passed to spawned worker processes. If the directory now has another model, ConfigError is raised. After os.fork JAX
    does not work, and the methods raise ConfigError.
    """

    SETTINGS = (*ChangeableSettings.SETTINGS, "max_seq_length")
    _source: tuple[str, str] | None = None  # path and dtype

    def __init__(self, model: LoadedModel | str | Path, *, dtype: str = "float32", max_seq_length: int = 0) -> None:
        """Load the model at a path or of a name on the hub, or use a LoadedModel.

        A path is that of a run's work directory, an export, a Hugging Face directory, a sentence-transformers directory of stock
        modules, or a model on word vectors. PATH@cls, @mean or @first_last replaces the pooling of the directory. PATH@f+max and
        the like choose views and poolings of a multi-view model.

        Args:
            model: The path, the name or the LoadedModel.
            dtype: Precision of the matrix products, float32 or bfloat16. A LoadedModel keeps the one that it was loaded with.
            max_seq_length: The length in tokens that sentences are cut to; 0 is the model's.

        Raises:
            ConfigError: The model is missing, or `dtype` is not that of a LoadedModel.
            ModelFileError: The model is damaged or of an unsupported type.
        """
        check_fork()
        choice("dtype", dtype, DTYPES)
        max_seq_length = whole_number("max_seq_length", max_seq_length, 0)
        if not isinstance(model, LoadedModel):
            if not isinstance(model, str | os.PathLike):
                raise ConfigError(f"model is {type(model).__name__}: give a path or a name on the hub")
            path = str(model)
            source, options = split_options(path, (*POOLINGS, *READOUTS))
            model = load(source, options, dtype=dtype)
            local_path = user_path(source)
            self._source = path.replace(source, str(local_path.absolute()), 1) if local_path.exists() else path, dtype
        if dtype not in ("float32", model.dtype):
            raise ConfigError(f"dtype={dtype}: the model was loaded with {model.dtype}; give the dtype to `load`")
        devices = jax.local_devices()
        mesh = make_mesh(len(devices), devices)
        sharding = batch_sharding(mesh) if len(devices) > 1 else None
        self._model = model
        self._embedder = model.embedder.sharded(sharding)
        self._params = self._embedder.put(_with_matrices_in(model.dtype, model.params))
        self._max_seq_length = self._embedder.max_seq_length
        self._latest_call = threading.local()
        super().__init__(model.settings, self._embedder.width(self._params))
        if max_seq_length:
            self.max_seq_length = max_seq_length

    @classmethod
    def load(cls, path: str | Path, *, dtype: str = "float32", max_seq_length: int = 0) -> "SentenceEncoder":
        """Return the model at `path`, as `SentenceEncoder(path)` does."""
        return cls(path, dtype=dtype, max_seq_length=max_seq_length)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source is None:
            raise TypeError(
                "only a SentenceEncoder that was opened by a path or a name can be pickled or copied, since the copy loads it again"
            )
        settings = {name: getattr(self, name) for name in self.SETTINGS}
        return _load_again, (type(self), *self._source, self.fingerprint, {**settings, "prompts": dict(self.prompts)})

    def __repr__(self) -> str:
        metadata = self._model.metadata
        encoder = metadata["encoder"]
        if is_words(metadata):
            architecture = f"{metadata['method']} on word vectors"
        elif isinstance(self._embedder, StaticEmbedder):
            architecture = "static table"
        else:
            architecture = f"{encoder['model_type']}, {encoder['num_hidden_layers']} layers, {metadata['pooling']} pooling"
        name = repr(self._source[0]) if self._source else "in memory"
        width, length = self.get_sentence_embedding_dimension(), self.max_seq_length
        return f"SentenceEncoder({name}: {architecture}, {width} dimensions, max_seq_length={length}, {self.dtype})"

    @property
    def dtype(self) -> str:
        """Return the precision of the matrix products, float32 or bfloat16."""
        return self._model.dtype

    @property
    def max_seq_length(self) -> int:
        """Return the number of tokens that a sentence is cut to, [CLS] and [SEP] included."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        self._max_seq_length = whole_number("max_seq_length", length, 3, self._model.positions)

    @property
    def truncated(self) -> int:
        """Return how many distinct sentences the latest `encode` of this thread cut to `max_seq_length` tokens.

        0 before the first call of a thread. Read it in the thread that called `encode`.
        """
        return getattr(self._latest_call, "truncated", 0)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of what computes the embedding of a text (weights, tokenizer, pooling and later layers).

        All weights are read. Prompts, `max_seq_length` and `truncate_dim` are not part of it.
        """
        return self._model.fingerprint()

    @property
    def tokenizer(self) -> Tokenizer | WordTokenizer:
        """Return the tokenizer; `tokenizer.encode(sentences, max_seq_length)` turns sentences into ids."""
        return self._model.embedder.tokenizer  # pyright: ignore[reportReturnType]

    def get_sentence_embedding_dimension(self) -> int:
        """Return the width of an embedding, at most `truncate_dim`."""
        return self.encode_settings.width_of(self.full_width)

    @property
    def full_width(self) -> int:
        """Return the width of an embedding without `truncate_dim`."""
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
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        convert_to_tensor: bool = False,
        output_value: str = "sentence_embedding",
        chunks: str | None = None,
        progress: OnCount | None = None,
    ) -> Any:
        """Return the embeddings of sentences in their order. The arguments have the names of sentence-transformers.

        A sentence longer than `max_seq_length` tokens is cut; a warning says how many were cut. With `chunks`, nothing is cut.

        Args:
            sentences: The sentences, or a single `str`.
            batch_size: Sentences encoded at once; on a CPU at most 16.
            show_progress_bar: Show progress after a few seconds. None shows it if the logger `jax_sentemb` has level INFO.
            normalize_embeddings: Scale embeddings to length 1.
            convert_to_numpy: False returns a jax.Array.
            truncate_dim: Keep only the first numbers, before embeddings are scaled; None is the encoder's `truncate_dim`.
            precision: float32, float16, int8, uint8 (scaled to the ranges of these vectors), binary or ubinary (8 signs a byte).
            prompt: A text that is put before every sentence.
            prompt_name: The name of a text of `prompts`. If `prompt` is None too, `default_prompt` is used.
            convert_to_tensor: True returns a torch.Tensor.
            output_value: "sentence_embedding", or "token_embeddings" for the embeddings of tokens, [CLS] and [SEP] included.
            chunks: What is done with a text that is longer than `max_seq_length`. None cuts it. Otherwise it is split at the ends
                of sentences, with overlap, and the prompt is put before each chunk. "mean" averages the embeddings of its chunks,
                weighted by their numbers of tokens. "max" takes the maximum for each number of the embeddings. Both scale the
                result to length 1 if the model does so. "each" returns the embeddings of all chunks with their places.
            progress: Called with the number of distinct sentences that were just encoded, in place of a bar.

        Returns:
            Embeddings [N, E]; [0, E] without sentences, [E] for a `str`. Token embeddings are an array [tokens, width] for each
            sentence. With chunks="each" the result has the fields `embeddings` [C, E], `rows`, `starts` and `ends` [C]: chunk i is
            `sentences[rows[i]][starts[i]:ends[i]]`.

        Raises:
            TypeError: A sentence is not a `str`; the first is named.
            ValueError: A sentence is not valid Unicode.
            ConfigError: An argument is invalid.
            NumericsError: An embedding is not finite.
        """
        check_fork()
        self._latest_call.truncated = 0
        max_seq_length = self.max_seq_length
        check_precision(precision)
        batch_size = whole_number("batch_size", batch_size, 1)
        choice("output_value", output_value, ("sentence_embedding", "token_embeddings"))
        if chunks is not None:
            choice("chunks", chunks, CHUNKS)
        if output_value == "token_embeddings":
            _check_for_tokens(chunks, truncate_dim, normalize_embeddings, precision)
        flag("normalize_embeddings", normalize_embeddings)
        flag("convert_to_numpy", convert_to_numpy)
        flag("convert_to_tensor", convert_to_tensor)
        flag("show_progress_bar", False if show_progress_bar is None else show_progress_bar)
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else sentence_list(sentences)
        check_text(texts)
        check_truncate_dim(truncate_dim, self.full_width)
        truncate_dim = truncate_dim or self.truncate_dim
        convert = _tensor() if convert_to_tensor else (np.asarray if convert_to_numpy else jnp.asarray)
        before = self._prompt(prompt, prompt_name)
        prompted = [before + text for text in texts] if before else texts
        if output_value == "token_embeddings":
            token_vectors, cut = self._embed_tokens(self._params, prompted, max_seq_length, batch_size)
            self._note_cut(cut, prompted, max_seq_length)
            return convert(token_vectors[0]) if single else [convert(each) for each in token_vectors]
        show = logger.isEnabledFor(logging.INFO) if show_progress_bar is None else show_progress_bar
        with contextlib.ExitStack() as stack:
            if show and progress is None:
                progress = stack.enter_context(Progress("encode", len(set(texts)), "sentences")).update
            if chunks is None:
                vectors, spans = self._vectors(prompted, batch_size, progress or no_progress, max_seq_length), ()
            else:
                chunker = Chunker(self._embedder.tokenizer, max_seq_length, before)
                vectors, spans = self._chunk_vectors(texts, chunks, chunker, batch_size, progress or no_progress)
        if truncate_dim is not None:
            vectors = vectors[:, :truncate_dim]
        if normalize_embeddings:
            vectors = unit_rows(vectors)
        vectors = quantize(vectors, precision)
        if chunks == "each":
            return ChunkEmbeddings(convert(vectors), *spans)
        return convert(vectors[0] if single else vectors)

    @contextlib.contextmanager
    def counting_cuts(self) -> Iterator[None]:
        """Let calls of `encode` in this thread count the sentences that they cut in `truncated`, without a warning each."""
        self._latest_call.is_counted = True
        try:
            yield
        finally:
            self._latest_call.is_counted = False

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Encode with the model's prompt "query" unless a prompt is given; without a prompt if the model has none."""
        return self.encode(sentences, **self._with_prompt(options, "query"))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Encode with the model's prompt "document" unless a prompt is given; without a prompt if the model has none."""
        return self.encode(sentences, **self._with_prompt(options, "document"))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of `batch` and "embedding" [N, E] of its column "text", as `map_batches` of Ray Data needs."""
        return {**batch, "embedding": self.encode(batch["text"], show_progress_bar=False)}

    def evaluate(self, data: Any = None, tasks: str = "sts", **files: Any) -> dict[str, Any]:
        """Return the scores of this model, as `jax_sentemb.score(encoder, data, tasks, **files)` does.

        Args:
            data: A SentEval folder, a table of pairs, a list of (first, second, gold), or an evaluator of sentence-transformers,
                which is called with this encoder.
            tasks: The tasks of a SentEval folder that are scored.
            files: In place of `data`, one of `pairs`, `retrieval` and `labels`: a file or folder of your own, and its options.
        """
        import jax_sentemb  # imported here: scoring is a layer above this one

        return jax_sentemb.score(self, data, tasks, **files)

    def save(self, directory: str | Path) -> Path:
        """Write the model for sentence-transformers, transformers and this package, and return the directory.

        The files are verified by encoding sentences with them.

        Raises:
            ConfigError: The directory holds anything but an export.
        """
        path = user_path(directory).absolute()
        model = self._model._replace(settings=self.encode_settings)
        export_loaded(path, model, self.max_seq_length, self._source and self._source[0])
        return path

    def push_to_hub(self, name: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload the model to the Hugging Face hub, and return the address of the commit.

        Args:
            name: The repository, `USER/NAME`.
            private: Create a private repository.
            token: None is that of `hf auth login`.

        Raises:
            ConfigError: The hub refuses.
        """
        text("name", name)
        flag("private", private)
        with tempfile.TemporaryDirectory(prefix="jax_sentemb-") as folder:
            return upload(name, self.save(Path(folder) / name.rpartition("/")[2]), private, token)

    @functools.cached_property
    def _embed_tokens(self) -> TokenEmbeddings:
        return token_embedder(self._model, self.dtype)

    def _vectors(self, texts: list[str], batch_size: int, progress: OnCount, max_seq_length: int) -> np.ndarray:
        vectors, cut = self._embedder.encode(self._params, texts, batch_size, progress, max_seq_length)
        if not np.isfinite(vectors).all():
            bad = int((~np.isfinite(vectors).all(axis=1)).sum())
            raise NumericsError(f"{bad} of {len(vectors)} sentence embeddings are not finite (NaN or Inf)")
        self._note_cut(cut, texts, max_seq_length)
        return vectors

    def _chunk_vectors(
        self, texts: list[str], chunks: str, chunker: Chunker, batch_size: int, progress: OnCount
    ) -> tuple[np.ndarray, Iterable[np.ndarray]]:
        """Return embeddings of texts, or those of their chunks with row, start and end of each chunk."""

        def embed(parts: list[str], progress: OnCount) -> np.ndarray:
            return self._vectors([chunker.prompt + part for part in parts], batch_size, progress, chunker.max_seq_length)

        encode = ChunkEncoder(chunker, embed, bool(self._model.metadata.get("normalize")))
        return encode.each(texts, progress) if chunks == "each" else (encode.pooled(texts, chunks, progress), ())

    def _note_cut(self, cut: int, texts: list[str], max_seq_length: int) -> None:
        """Add to the number of sentences that this call cut, and warn of them."""
        self._latest_call.truncated += cut
        if cut and not getattr(self._latest_call, "is_counted", False):
            are, were = ("is", "was") if cut == 1 else ("are", "were")
            logger.warning(
                "%d of %d distinct sentences %s longer than max_seq_length=%d tokens and %s cut",
                cut, len(set(texts)), are, max_seq_length, were,
            )  # fmt: skip


def _with_matrices_in(dtype: str, params: Params) -> Params:
    """Return the parameters with the matrices of the encoder's layers in `dtype`, to which each batch would convert them again."""
    if dtype == "float32":
        return params

    def convert(path: tuple[Any, ...], leaf: Array) -> Array:
        return jnp.asarray(leaf, dtype) if path[0].key.startswith("layer_") and leaf.ndim == 2 else leaf

    return {**params, "encoder": jax.tree_util.tree_map_with_path(convert, params["encoder"])}


def _load_again(
    encoder_type: type[SentenceEncoder], path: str, dtype: str, fingerprint: str, settings: dict[str, Any]
) -> SentenceEncoder:
    encoder = encoder_type.load(path, dtype=dtype)
    if encoder.fingerprint != fingerprint:
        raise ConfigError(f"{path}: the model was replaced after the encoder was loaded; load it again, then copy it or pickle it")
    for name, value in settings.items():
        if getattr(encoder, name) != value:  # a file may have a value that cannot be set, such as a width above that of the model
            setattr(encoder, name, value)
    return encoder


def _check_for_tokens(chunks: str | None, truncate_dim: int | None, normalize_embeddings: bool, precision: str) -> None:
    """Raise ConfigError if `encode` is asked to join, cut, scale or round token embeddings."""
    is_given = {
        "chunks": chunks is not None,
        "truncate_dim": truncate_dim is not None,
        "normalize_embeddings": normalize_embeddings,
        "precision": precision != "float32",
    }
    for name in filter(is_given.get, is_given):
        raise ConfigError(f"{name} is for sentence embeddings; leave out output_value='token_embeddings'")


def _tensor() -> Callable[[np.ndarray], Any]:
    try:
        import torch
    except ImportError:
        raise ConfigError("convert_to_tensor=True needs PyTorch: pip install torch") from None
    return lambda array: torch.from_numpy(np.array(array))
