"""Open the models of an evaluation from one line of text each: encoder directories, word-vector files, tf-idf.

The text is PATH[@OPTION+OPTION...], or NAME=PATH... to set the name in tables. Options are:

* a pooling of a BERT (cls, mean, first_last);
* readouts of a multi-view model (mean, max, min, last, average, concatenation, f, g, f2, g2, h);
* a number of at least 1, to score only the first numbers of an embedding;
* sif, stop-words or random-projection for word vectors; a number with random-projection is the number of projections;
* postprocessing of the embeddings of a task (whiten, remove-first, unit), applied in the given order.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.word_vectors import is_word_vectors, read_word_vectors
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.postprocess import remove_first_component, whiten
from jax_sentemb.evaluation.widths import trained_widths
from jax_sentemb.evaluation.word_baselines import (
    PROJECTIONS,
    TF_IDF,
    DocumentCounts,
    FixedSIF,
    RandomProjection,
    TfIdf,
    WordAverageBaseline,
    split_words,
)
from jax_sentemb.files import sha256, split_name, user_path
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.inference.load import READOUTS, load, split_options
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.public_text import model_name

Embeddings = Float[np.ndarray, "sentences width"]  # float32
Encode = Callable[[Sequence[str]], Embeddings]
Fit = Callable[[Sequence[str]], Encode]  # from all sentences of a task to the encoder for this task

POSTPROCESSING: dict[str, Callable[[Embeddings], Embeddings]] = {
    "whiten": whiten,
    "remove-first": remove_first_component,
    "unit": unit_length,
}
RANDOM = "random-projection"
WORD_OPTIONS = ("sif", "stop-words", RANDOM)
SIF = 1e-3  # Arora, Liang and Ma 2017


class EvalModel(NamedTuple):
    """A model to score."""

    name: str  # in tables and file names
    fit: Fit
    per_task: bool  # False: `fit` ignores its argument, so tasks can share embeddings
    postprocessing: tuple[str, ...]  # keys of POSTPROCESSING, applied to the embeddings of a task's distinct sentences
    metadata: dict[str, Any]  # description for the results
    views: Views = NO_VIEWS  # the views of which the embeddings consist
    width: int | None = None  # only the first numbers of an embedding are scored; None: all
    trained_widths: tuple[int, ...] = ()  # of an encoder whose prefixes were trained, unless `width` is given

    def finish(self, vectors: Embeddings) -> Float[np.ndarray, "sentences kept"]:
        """Apply the postprocessing to the views of a task's distinct sentences; `views.joined` makes embeddings of them."""
        vectors = vectors[:, : self.width]
        for step in self.postprocessing:
            vectors = self.views.each(POSTPROCESSING[step], vectors).astype(np.float32)
        return vectors


class ModelSpec(NamedTuple):
    """The parts of the text that describes a model."""

    label: str  # in tables
    source: str  # a path, a name on the hub or tf-idf
    options: tuple[str, ...]  # without the width
    width: int | None  # the first numbers of an embedding that are scored; None: all

    @property
    def postprocessing(self) -> tuple[str, ...]:
        """Return the options that change the embeddings of a task, in their order."""
        return tuple(option for option in self.options if option in POSTPROCESSING)

    @property
    def word_options(self) -> list[str]:
        """Return the options that only word vectors have."""
        return [option for option in self.options if option in WORD_OPTIONS]

    @property
    def readout(self) -> list[str]:
        """Return the pooling or the readout of an encoder."""
        return [option for option in self.options if option in (*POOLINGS, *READOUTS)]


def parse_spec(text: str) -> ModelSpec:
    """Split the text that describes a model, see the top of this file; ConfigError for an unknown option."""
    name, spec = split_name(text)
    if name in (".", ".."):
        raise ConfigError(f"--model {text}: {name!r} cannot be the name of a model; choose another")
    try:
        numbers = [option for option in spec.rpartition("@")[2].split("+") if option.isdecimal()]
        source, options = split_options(spec, (*POOLINGS, *READOUTS, *WORD_OPTIONS, *POSTPROCESSING, *numbers))
    except ConfigError as error:
        raise ConfigError(f"--model {error}") from None
    width = _width(text, options)
    options = tuple(option for option in options if not option.isdecimal())
    label = name or "+".join([model_name(os.path.abspath(user_path(source))) or source, *options, *([str(width)] if width else [])])
    return ModelSpec(label, source, options, width)


def with_trained_widths(spec: ModelSpec, given: Collection[str] = ()) -> list[ModelSpec]:
    """Return a model, and the same model cut to each width that it was trained for; not those of the labels that are `given`."""
    widths = trained_widths(user_path(spec.source)) if spec.width is None else ()
    cut = [spec._replace(label=f"{spec.label}+{width}", width=width) for width in widths]
    return [spec, *(each for each in cut if each.label not in given)]


def check_distinct_names(names: Sequence[str]) -> None:
    """Raise ConfigError if two models have one name."""
    if len(set(names)) < len(names):
        raise ConfigError(f"two models are called {max(names, key=names.count)}: write NAME=PATH for one of them")


def check_is_encoder(spec: ModelSpec) -> None:
    """Raise ConfigError for words without an encoder, and for options that only the tasks of SentEval have."""
    if spec.source == TF_IDF:
        rows = f"--pairs and --labels have a row of {TF_IDF}, and --retrieval one of BM25"
        raise ConfigError(f"--model {TF_IDF}: only encoders are scored on your own files; leave it out, since {rows}")
    if is_word_vectors(user_path(spec.source)):
        raise ConfigError(f"--model {spec.source}: only encoders are scored on your own files; give a model directory")
    if others := [option for option in spec.options if option in (*WORD_OPTIONS, *POSTPROCESSING)]:
        raise ConfigError(f"--model {spec.source}@{others[0]}: {others[0]} is an option of SentEval's tasks; leave it out")


def load_encoder(spec: ModelSpec) -> SentenceEncoder:
    """Load the encoder that a text describes.

    Raises:
        ConfigError: The model is missing, or is not an encoder.
        ModelFileError: The model is damaged.
    """
    try:
        encoder = SentenceEncoder("@".join(filter(None, (spec.source, "+".join(spec.options)))))
        if spec.width:
            encoder.truncate_dim = spec.width
    except ConfigError as error:
        raise ConfigError(f"--model {error}") from None
    return encoder


def load_eval_model(
    text: str, vocabulary: Callable[[], set[str]], batch_size: int = 64, vectors_of: Path | None = None
) -> EvalModel:
    """Load the model that `text` describes.

    Args:
        text: See the top of this file.
        vocabulary: Returns the words of the evaluation. Only these are read from a word-vector file.
        batch_size: Sentences that are encoded at a time.
        vectors_of: The file with which a model on word vectors was trained. Words of `vocabulary()` that the model lacks are added
            from it.

    Raises:
        ConfigError: A path or an option is unknown.
        ModelFileError: The model is damaged.
    """
    spec = parse_spec(text)
    path = user_path(spec.source)
    if spec.width is not None and RANDOM not in spec.word_options and (spec.source == TF_IDF or is_word_vectors(path)):
        raise ConfigError(f"--model {text}: @{spec.width} cuts the embedding of an encoder; remove it")
    if spec.source == TF_IDF:
        return _tf_idf(text, spec)
    if is_word_vectors(path):
        return _word_vectors(text, spec, vocabulary)
    return _encoder(text, spec, batch_size, (vectors_of, vocabulary) if vectors_of else None)


def _tf_idf(text: str, spec: ModelSpec) -> EvalModel:
    if spec.readout or spec.word_options:
        raise ConfigError(f"--model {text}: tf-idf takes only {', '.join(POSTPROCESSING)}")
    return _eval_model(spec, _fitted(TfIdf()), {"kind": "tf-idf"}, per_task=True)


def _word_vectors(text: str, spec: ModelSpec, vocabulary: Callable[[], set[str]]) -> EvalModel:
    options, path = spec.word_options, user_path(spec.source)
    if spec.readout:
        raise ConfigError(f"--model {text}: {spec.readout[0]} is a pooling of encoders, but word vectors are averaged; remove it")
    if RANDOM in options and len(options) > 1:
        raise ConfigError(f"--model {text}: {RANDOM} takes no other option of word vectors; remove the other one")
    vectors = read_word_vectors(path, vocabulary())
    facts = {"kind": "word vectors", "sha256": sha256(path), "dimensions": int(vectors.vectors.shape[1])}
    if RANDOM in options:
        return _eval_model(spec, _constant(RandomProjection(vectors, spec.width or PROJECTIONS).encode), facts)
    average = WordAverageBaseline(vectors, sif=SIF if "sif" in options else None, stop_words="stop-words" in options)
    return _eval_model(spec, _fitted(average), facts, per_task="sif" in options)


def _encoder(text: str, spec: ModelSpec, batch_size: int, more_words: tuple[Path, Callable[[], set[str]]] | None) -> EvalModel:
    if spec.word_options:
        raise ConfigError(f"--model {text}: {spec.word_options[0]} is an option of word-vector files; remove it")
    try:
        model = load(spec.source, spec.readout, batch_size, separate_views=True, more_words=more_words)
    except ConfigError as error:
        raise ConfigError(f"--model {error}") from None
    if spec.width is None:
        return _eval_model(spec, _constant(model), model.metadata, views=model.views, widths=trained_widths(user_path(spec.source)))
    if spec.width > (widest := model.embedder.width(model.params)) or model.views.widths:
        raise ConfigError(
            f"--model {text}: only an encoder with one vector of {spec.width} or more numbers can be cut; it has {widest}; "
            f"remove @{spec.width}"
        )
    model = model._replace(settings=model.settings._replace(truncate_dim=None))  # instead of the width that the directory cuts to
    return _eval_model(spec, _constant(model), model.metadata, views=model.views)


def _eval_model(
    spec: ModelSpec,
    fit: Fit,
    facts: Mapping[str, Any],
    *,
    per_task: bool = False,
    views: Views = NO_VIEWS,
    widths: tuple[int, ...] = (),
) -> EvalModel:
    metadata = {"source": user_path(spec.source).name, "options": list(spec.options), **facts}
    metadata |= {"width": spec.width} if spec.width else {}
    return EvalModel(spec.label, fit, per_task, spec.postprocessing, metadata, views, spec.width, widths)


def tf_idf_baselines(corpus: Sequence[str], corpus_name: str = "the corpus", width: int = PROJECTIONS) -> list[EvalModel]:
    """Return tf-idf with the document frequencies of the scored sentences, and with those of other text; `width` as in TfIdf."""
    suffix = "" if width == PROJECTIONS else f", {width:,} projections"
    return [
        EvalModel(f"tf-idf of the scored sentences{suffix}", _fitted(TfIdf(width)), True, (), {}),
        EvalModel(f"tf-idf of {corpus_name}{suffix}", _fitted(TfIdf(width, DocumentCounts.of(corpus))), True, (), {}),
    ]


def word_vector_baselines(
    path: Path, scored: Sequence[str], corpus: Sequence[str], corpus_name: str = "the corpus"
) -> list[EvalModel]:
    """Return the averages of word vectors that a table of methods needs.

    Args:
        path: A file of word vectors.
        scored: The sentences of all tasks, on which SIF as published is fitted, task by task.
        corpus: Other text, on which SIF is fitted once more.
        corpus_name: The name of this text in tables.
    """
    texts = (*scored, *map(split_words, (*scored, *corpus)))
    words = {word for text in texts for word in text.split()}
    vectors = read_word_vectors(path, words | {word.lower() for word in words})
    mean, content = (WordAverageBaseline(vectors, stop_words=stop_words) for stop_words in (False, True))
    fixed = FixedSIF.fitted(vectors, SIF, corpus)
    return [
        EvalModel("word vectors, mean", _constant(mean.encode), False, (), {}),
        EvalModel("word vectors without stop words", _constant(content.encode), False, (), {}),
        EvalModel("SIF as published", _fitted(WordAverageBaseline(vectors, SIF)), True, ("remove-first",), {}),
        EvalModel(f"SIF fitted on {corpus_name}", _constant(fixed.encode), False, (), {}),
    ]


def with_widths(model: EvalModel, given: Collection[str] = ()) -> list[EvalModel]:
    """Return a model, and the same model cut to each width that it was trained for; not those of the names that are `given`."""
    cut = [
        model._replace(name=f"{model.name}+{width}", width=width, metadata={**model.metadata, "width": width})
        for width in model.trained_widths
    ]
    return [model, *(each for each in cut if each.name not in given)]


def _width(text: str, options: Sequence[str]) -> int | None:
    """Return the option that is a number: the number of values of an embedding that are scored. None if there is none."""
    numbers = [int(option) for option in options if option.isdecimal()]
    if len(numbers) > 1 or 0 in numbers:
        raise ConfigError(f"--model {text}: give one number, of at least 1, after @")
    return numbers[0] if numbers else None


def _constant(encode: Encode) -> Callable[[Sequence[str]], Encode]:
    return lambda sentences: encode


def _fitted(model: TfIdf | WordAverageBaseline) -> Callable[[Sequence[str]], Encode]:
    return lambda sentences: model.fit(sentences).encode
