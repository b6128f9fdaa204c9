"""Make a static table from an encoder and a text, verify it and publish it as an export (command `distill`)."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.distillation.regression import Regression, fit_table, linear_start, project
from jax_sentemb.distillation.token_table import (
    in_batches,
    piece_counts,
    piece_vectors,
    sif_weights,
    special_ids,
    token_table,
    with_words,
)
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.files import path_in_errors, print_warning, sole_writer, staging
from jax_sentemb.formats.sentence_transformers import check_replaceable
from jax_sentemb.formats.static_embedding import StaticTable
from jax_sentemb.inference.export import export_static
from jax_sentemb.inference.load import LoadedModel
from jax_sentemb.inference.static import LONGEST, Pieces
from jax_sentemb.provenance import VECTORS, Source, check
from jax_sentemb.public_text import model_name
from jax_sentemb.retrieval.sources import RowSubset, VectorSource
from jax_sentemb.retrieval.vector_store import Vectors

ENCODED_AT_ONCE = 1 << 13  # sentences


class Settings(NamedTuple):
    """The settings from which a table is made."""

    width: int = 256  # numbers of a vector that come from the encoder
    sif: float = 1e-3  # of the weights a / (a + p); 0: none
    words: int = 0  # more numbers, for the words themselves
    regression: Regression | None = None  # None: the table is not trained


Progress = Callable[[str, int, int], object]  # step, rows that were done since the last call, all rows


def distill(
    model: LoadedModel,
    name: str,
    sentences: Sentences,
    output: Path,
    settings: Settings = Settings(),
    vectors: Vectors | None = None,
    progress: Progress = lambda what, more, total: None,
) -> StaticTable:
    """Publish the static table of a model for a text, and return the table.

    Args:
        model: The encoder.
        name: The name of the encoder, for messages and for the model card.
        sentences: The text.
        output: The directory of the export.
        settings: The width, the weights of pieces and the regression.
        vectors: The model's vectors of the text, as `encode` writes them. Without them the regression encodes the text first,
            into a temporary file next to `output`. If this process is killed, the next call removes that file.
        progress: Called with the step, the number of rows done since the last call, and the number of all rows.

    Raises:
        ConfigError: The model reads words or is a static table, the width exceeds the model's, or `output` is not an export.
        DataError: The vectors are those of another text or model, or the text has no piece of the vocabulary.
        BusyError: Another process trains the same table.
    """
    check_replaceable(output)
    tokenizer = model.embedder.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(
            f"--model {name} reads words or is a static table already: distill an encoder with word pieces, such as a BERT"
        )
    width = model.width
    if settings.width > width:
        raise ConfigError(f"--width {settings.width} is more than the model's {width} dimensions; lower it")
    if vectors is not None:
        _check_vectors(vectors, model, name, sentences, width)
    counts, specials = piece_counts(sentences, tokenizer), special_ids(tokenizer)
    if not np.delete(counts, specials).any():
        raise DataError(f"--corpus has no piece of the vocabulary of --model {name}: give a model that knows its script")
    table = token_table(piece_vectors(model, tokenizer), counts, specials, settings.width, settings.sif)
    if settings.regression is not None:
        if vectors is not None:
            rows = RowSubset(vectors, sentences.lines)  # lines with text
            table = _trained(table, tokenizer, sentences, rows, settings, progress)
        else:
            with sole_writer(output), path_in_errors(output), staging(output.with_name(f"{output.name[:80]}.vectors")) as folder:
                targets = _encoded(model, sentences, folder / "vectors.npy", width, progress)
                table = _trained(table, tokenizer, sentences, targets, settings, progress)
        table[specials] = 0
    if settings.words:
        table = with_words(table, sif_weights(counts, settings.sif), specials, sentences, tokenizer, settings.words)
    sentences.check_unchanged()
    static_table = StaticTable(table, tokenizer, True)
    _publish(output, static_table, Source(model_name(name), model.fingerprint()), sentences, settings)
    return static_table


def _check_vectors(vectors: Vectors, model: LoadedModel, name: str, sentences: Sentences, width: int) -> None:
    """Raise DataError for vectors that were not made from these sentences with this model."""
    if vectors.has_chunks:
        raise DataError("--vectors has a vector for each chunk of a text (--chunks each); encode this corpus without --chunks")
    if vectors.shape != (texts := sentences.report["lines"], width):
        raise DataError(
            f"--vectors has {list(vectors.shape)}, the corpus has {texts} texts (also counting empty ones) and the model {width} "
            "dimensions; encode this corpus with this model"
        )
    if not vectors.is_marked:
        print_warning("--vectors has no description: cannot tell whether it was made from this text with this model")
        return
    made_from = {
        "corpus": Source("of --corpus", sentences.fingerprint),
        "model": Source(model_name(name), model.fingerprint()),
        "max_seq_length": model.embedder.max_seq_length,
        "prompt": model.settings.prompt_text("document"),
    }
    check("--vectors", vectors.manifest, VECTORS, made_from)


def _encoded(model: LoadedModel, sentences: Sentences, file: Path, width: int, progress: Progress) -> np.ndarray:
    """Return the vectors of the sentences, float32 [N, D], mapped from the new `file`."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(sentences), width)}
    with file.open("wb") as vector_file:  # a full disk would be a SIGBUS if this wrote to a mapping
        np.lib.format.write_array_header_1_0(vector_file, header)
        for batch in in_batches(sentences, ENCODED_AT_ONCE):
            vector_file.write(np.ascontiguousarray(model.embed_as("document", batch), "<f4").data)
            progress("encode", len(batch), len(sentences))
    return np.load(file, mmap_mode="r")


def _trained(
    table: np.ndarray, tokenizer: Tokenizer, sentences: Sentences, targets: VectorSource, settings: Settings, progress: Progress
) -> np.ndarray:
    regression = settings.regression
    assert regression is not None
    projection, pieces = project(targets, settings.width), Pieces(tokenizer)

    def means(rows: slice) -> np.ndarray:
        return pieces.share_matrix([sentences[row] for row in range(rows.start, rows.stop)], LONGEST, len(table))[0] @ table

    start = linear_start(table, means, targets, projection)
    total = regression.epochs * len(targets)
    return fit_table(
        start, sentences, tokenizer, targets, projection, regression, lambda rows, loss: progress("train", rows, total)
    )


def _publish(output: Path, table: StaticTable, teacher: Source, sentences: Sentences, settings: Settings) -> None:
    regression = settings.regression
    facts = {
        "base_model": teacher.name,
        "width": settings.width,
        "sif": settings.sif,
        "words": settings.words,
        "regression": regression and regression._asdict(),
        "sentences": len(sentences),
    }
    settings_of = {name: facts[name] for name in ("width", "sif", "words", "regression")}
    corpus = Source("corpus", sentences.fingerprint)
    export_static(output.absolute(), table, facts, {"corpus": corpus, "teacher": teacher, **settings_of})
