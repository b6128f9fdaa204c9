"""Measure during a run how much of a teacher the student keeps, on sentences that are not used for training."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jax_sentemb.config import Config
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.data.tokens import Subsample, draw
from jax_sentemb.distillation.teacher import WORDS, has_vectors, teacher_names, teacher_vectors
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation.agreement import AGREEMENT, MAX_SENTENCES, agreement
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.load import load
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.models.dense import DENSE
from jax_sentemb.parallel import gather, gather_texts
from jax_sentemb.types import Params

TIMED, RUNS = 256, 3  # number of sentences that are timed, and number of timed runs


class HeldOut(NamedTuple):
    """Sentences that are not used for training, and the teacher's vectors of them."""

    sentences: list[str]
    vectors: Float[np.ndarray, "sentences width"]


def held_out_sentences(config: Config, examples: Examples | None, corpus: Lines, parts: int) -> HeldOut | None:
    """Return the sentences of eval.held_out, or else those of data.validation; at most MAX_SENTENCES of them.

    Args:
        config: The settings of the run.
        examples: The sentences of data.validation, with the teacher's vectors as labels; None if there are none.
        corpus: The text of `examples`.
        parts: The number of parts of the corpus, of which each process has one.

    Returns:
        None for a method without a teacher, and if no sentences are held out.
    """
    method = config.method
    if not isinstance(method, Distillation):
        if config.eval.held_out:
            raise ConfigError(
                Setting("eval.held_out", config.eval.held_out), f": {type(method).__name__} has no teacher; leave it out"
            )
        return None
    if config.eval.held_out:
        return _of_files(config.eval.held_out, (config.data.column, config.data.join), method)
    if examples is None:
        return None
    count = min(MAX_SENTENCES // parts, len(examples))
    rows = np.linspace(0, len(examples) - 1, count).astype(int)
    sentences, vectors = [corpus[int(line)] for line in examples.line[rows]], examples.labels(rows, 0)
    assert vectors is not None
    if parts > 1:
        sentences, vectors = gather_texts(sentences), gather(vectors).reshape(-1, vectors.shape[1])
    return HeldOut(sentences, vectors)


def _of_files(files: str, columns: tuple[str, str], method: Distillation) -> HeldOut:
    if names := [name for name in teacher_names(method.teacher) if has_vectors(name)]:
        raise ConfigError(
            Setting("eval.held_out", files),
            ": ",
            Setting("method.teacher", names[0]),
            " has vectors of the training text only; name the model as the teacher",
        )
    try:
        sentences = open_corpus(files, *columns)
    except DataError as error:
        raise error.rename({"data.files": "eval.held_out"}) from None
    subset = Subsample(min(MAX_SENTENCES, len(sentences)), 0)
    lines = draw(len(sentences), subset)
    vectors = teacher_vectors(method.teacher, method.teacher_precision, sentences, subset)
    return HeldOut([sentences[int(line)] for line in lines], vectors.take(lines))


class Agreement:
    """Measure the agreement of parameters with the teacher on held-out sentences."""

    def __init__(self, method: Distillation, held_out: HeldOut, embedder: Embedder) -> None:
        """`embedder` gives the exported vectors."""
        self._method, self._held_out, self._embedder = method, held_out, embedder

    def __call__(self, params: Params) -> dict[str, float]:
        """Return the measures by their names in metrics.jsonl."""
        vectors = self._embedder(params, self._held_out.sentences)
        mapped: Any = None
        if self._method.dense:
            mapped = vectors
        elif DENSE in params:
            mapped = vectors @ np.asarray(jax.device_get(params[DENSE]["layer_0"]["kernel"]))
        return {f"{AGREEMENT}{name}": value for name, value in agreement(vectors, self._held_out.vectors, mapped).items()}

    def summary(self, params: Params) -> dict[str, Any]:
        """Return the facts about the teacher in scores.json and the model card.

        Returns:
            "names" of the teachers, "sentences" (their number), "agreement" by measure, and "sentences_per_second" of the
            "student" and, if it is one model, of the "teacher".
        """
        names = teacher_names(self._method.teacher)
        measures = {name.removeprefix(AGREEMENT): value for name, value in self(params).items()}
        facts = {"names": [Path(name).name for name in names], "sentences": len(self._held_out.sentences), "agreement": measures}
        is_model = len(names) == 1 and not has_vectors(names[0]) and not names[0].startswith(WORDS)
        if not is_model or jax.process_count() > 1:
            return facts
        teacher = load(names[0])
        encoders = {"student": lambda sentences: self._embedder(params, sentences), "teacher": teacher}
        return {**facts, "sentences_per_second": speeds(encoders, self._held_out.sentences[:TIMED])}


def speeds(encoders: dict[str, Callable[[list[str]], Any]], sentences: list[str]) -> dict[str, float]:
    """Return the sentences per second that each function encodes; the runs alternate, and the fastest counts."""
    seconds = dict.fromkeys(encoders, float("inf"))
    for run in range(1 + RUNS):
        for name, encode in encoders.items():
            started = time.monotonic()
            encode(sentences)
            if run:  # the first run compiles
                seconds[name] = min(seconds[name], time.monotonic() - started)
    return {name: round(len(sentences) / value, 1) for name, value in seconds.items()}
