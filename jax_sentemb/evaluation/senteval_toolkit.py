"""Run the SentEval toolkit (Facebook's, or its SimCSE fork) on an exported model, with functions `prepare` and `batcher`.

    import senteval                                    # a checkout of the toolkit on the path
    from jax_sentemb import senteval_batcher

    prepare, batcher = senteval_batcher("runs/micse/export")
    parameters = {"task_path": "SentEval/data", "usepytorch": True, "kfold": 10, "classifier": {
        "nhid": 0, "optim": "adam", "batch_size": 64, "tenacity": 5, "epoch_size": 4}}
    print(senteval.engine.SE(parameters, batcher, prepare).eval(["MR", "CR", "STS12"]))

The export runs with its PyTorch weights in sentence-transformers (extra `torch`). This module does not import JAX.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_sentemb.checks import whole_number
from jax_sentemb.errors import ConfigError, ModelFileError, first_line
from jax_sentemb.files import user_path

Tokens = Sequence[str | bytes]  # a sentence in the form of the toolkit; its SimCSE fork uses bytes for some tasks


def senteval_batcher(
    model: Any, batch_size: int = 64
) -> tuple[Callable[..., None], Callable[..., Float[np.ndarray, "sentences width"]]]:
    """Return (prepare, batcher) for `senteval.engine.SE`.

    `prepare` encodes each distinct sentence of a task once and drops the vectors of the previous task. `batcher` looks vectors up,
    and encodes sentences that `prepare` has not seen. Threads may share both functions.

    Args:
        model: A directory that sentence-transformers loads, a SentenceTransformer, or any function from a list of sentences to
            vectors [N, E].
        batch_size: Sentences that a model encodes at a time. A function gets all that are new at once.

    Raises:
        ConfigError: sentence-transformers is not installed.
        ModelFileError: sentence-transformers cannot read the directory, for instance a multi-view model.
    """
    encode = _encoder(model, whole_number("batch_size", batch_size, 1))
    stored: dict[str, np.ndarray] = {}

    def prepare(params: Any, samples: Sequence[Tokens]) -> None:
        nonlocal stored
        stored = with_vectors({}, map(_join, samples))  # a new dictionary: another thread may still read the old one

    def batcher(params: Any, batch: Sequence[Tokens]) -> np.ndarray:
        sentences = [_join(tokens) for tokens in batch]
        vectors = with_vectors(stored, sentences)
        return np.stack([vectors[sentence] for sentence in sentences]) if sentences else np.zeros((0, 0), np.float32)

    def with_vectors(vectors: dict, sentences: Iterable[str]) -> dict:
        """Add the vectors of new sentences to `vectors`, {sentence: vector}, and return it."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in vectors]
        if new:
            rows = np.asarray(encode(new), np.float32)
            if rows.ndim != 2 or len(rows) != len(new):
                raise ConfigError(f"model returned shape {list(rows.shape)} for {len(new)} sentences: it must return one each")
            vectors.update(zip(new, rows, strict=True))
        return vectors

    return prepare, batcher


def _join(tokens: Tokens) -> str:
    return " ".join(token.decode("utf-8") if isinstance(token, bytes) else token for token in tokens)


def _encoder(model: Any, batch_size: int) -> Callable[[list[str]], np.ndarray]:
    if isinstance(model, str | Path):
        if not user_path(model).is_dir():
            raise ConfigError(f"{model} is not a directory: give an export, for instance runs/micse/export")
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ConfigError("sentence-transformers is not installed: pip install sentence-transformers") from None
        try:
            model = SentenceTransformer(str(user_path(model)))
        except Exception as error:  # of transformers, tokenizers and safetensors
            raise ModelFileError(
                f"{model}: sentence-transformers cannot read it ({first_line(error)}); give "
                f"jax_sentemb.SentenceEncoder({str(model)!r})"
            ) from None
    if hasattr(model, "encode"):
        return lambda sentences: model.encode(sentences, batch_size=batch_size, show_progress_bar=False)
    if not callable(model):
        raise ConfigError(f"model is {type(model).__name__}: give a directory, an encoder or a function")
    encode: Any = model
    return encode
