"""Measure during a run how well the encoder agrees with a teacher: the one it learns from, or a stronger model that judges it."""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jax_sentemb.config import Config
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.data.tokenizer import Lines, read_lines
from jax_sentemb.data.tokens import Subsample, draw
from jax_sentemb.distillation.teacher import WORDS, has_vectors, open_teacher, published_name, teacher_names, teacher_vectors
from jax_sentemb.errors import ConfigError, DataError, Setting, UserError
from jax_sentemb.evaluation.agreement import AGREEMENT, MAX_SENTENCES, SELECTING, agreement
from jax_sentemb.evaluation.sts import EmbedAs
from jax_sentemb.files import print_warning
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.methods.distillation import START, Distillation
from jax_sentemb.models.dense import DENSE
from jax_sentemb.parallel import gather, gather_texts
from jax_sentemb.system.terminal import Progress
from jax_sentemb.training.starting_encoder import judging_teacher, same_model, start_as_teacher, whole_start
from jax_sentemb.types import Params

TIMED, RUNS = 256, 3  # number of sentences that are timed, and number of timed runs


class HeldOut(NamedTuple):
    """Sentences on which the agreement with a teacher is measured, and the teacher's vectors of them."""

    sentences: list[str]
    vectors: Float[np.ndarray, "sentences width"]


def held_out_sentences(
    config: Config, examples: Examples | None, corpus: Lines, parts: int, sample: Callable[[int], list[str]]
) -> HeldOut | None:
    """Return the sentences of eval.held_out, or else those of data.validation; at most MAX_SENTENCES of them.

    eval.teacher judges sentences of the corpus instead, since no training reads its vectors.

    Args:
        config: The settings of the run.
        examples: The sentences of data.validation, with the teacher's vectors as labels; None if there are none.
        corpus: The text of `examples`.
        parts: The number of parts of the corpus, of which each process has one.
        sample: Returns a number of sentences of the corpus.

    Returns:
        None without a teacher, and if a method with a teacher has no held-out sentences.
    """
    method, files, judge = config.method, config.eval.held_out, config.eval.teacher.strip()
    student = judging_teacher(config)
    if student is None:
        if not judge:
            if files:
                has_start = isinstance(method, Distillation)
                problem = "the start is among the teachers" if has_start else f"{type(method).__name__} has no teacher"
                raise ConfigError(
                    Setting("eval.held_out", files),
                    f": {problem}; name one with ",
                    Setting("eval.teacher", "MODEL"),
                    ", or leave it out",
                )
            return None
        if files:
            return _of_files(files, (config.data.column, config.data.join), Setting("eval.teacher", judge), "float32")
        return _judged(judge, sample(MAX_SENTENCES))
    if files:
        teacher = Setting("method.teacher", student.teacher)
        return _of_files(files, (config.data.column, config.data.join), teacher, student.teacher_precision)
    if examples is None:
        return None
    count = min(MAX_SENTENCES // parts, len(examples))
    rows = np.linspace(0, len(examples) - 1, count).astype(int)
    sentences, vectors = [corpus[int(line)] for line in examples.line[rows]], examples.labels(rows, 0)
    assert vectors is not None
    if parts > 1:
        sentences, vectors = gather_texts(sentences), gather(vectors).reshape(-1, vectors.shape[1])
    return HeldOut(sentences, vectors)


def check_judge(config: Config) -> None:
    """Raise ConfigError if eval.teacher is not a model, or is the start, or if the method has its own judge or no embeddings."""
    names, given = teacher_names(config.eval.teacher), Setting("eval.teacher", config.eval.teacher.strip())
    if names and judging_teacher(config):
        raise ConfigError(given, ": the method already has a teacher that judges it; leave this one out")
    if names and config.method.is_cross_encoder:
        raise ConfigError(given, ": a cross-encoder has no embeddings to compare; leave it out")
    start = whole_start(config)
    if not names and config.eval.select == "agreement" and (teacher := start_as_teacher(config)):
        raise ConfigError(
            Setting("method.teacher", teacher), " is the start itself, with which nothing agrees more than the start: give ",
            Setting("eval.teacher", "MODEL"), " to name a stronger model, ", Setting("encoder.layers", 3),
            " to train a student of some of its layers, or another ", Setting("encoder.weights"),
        )  # fmt: skip
    for name in names:
        if name.startswith(WORDS) or name == START:
            raise ConfigError(Setting("eval.teacher", name), " is not a model; name one that is stronger than the start")
        if has_vectors(name):
            raise ConfigError(Setting("eval.teacher", name), " is a file of vectors; name the model that made them")
        if start and same_model(name, start):
            raise ConfigError(Setting("eval.teacher", name), " is the start, which would always win; name a stronger model")
        open_teacher("eval.teacher", name, "float32")


def _judged(judge: str, sentences: list[str]) -> HeldOut:
    """Return the vectors of a stronger model, or of several side by side, for sentences of the corpus."""
    vectors = []
    for name in teacher_names(judge):
        encoder = open_teacher("eval.teacher", name, "float32")
        with Progress("teacher", len(sentences), "sentences") as progress:
            encoded = encoder.encode(
                sentences, normalize_embeddings=True, prompt=encoder.prompt_for("document"), progress=progress.update
            )
        vectors.append(np.asarray(encoded, np.float32))
    return HeldOut(sentences, np.concatenate(vectors, axis=1))


def _of_files(files: str, columns: tuple[str, str], teacher: Setting, precision: str) -> HeldOut:
    """Return sentences of eval.held_out with the vectors of the teacher that a setting names."""
    if names := [name for name in teacher_names(teacher.value) if has_vectors(name)]:
        raise ConfigError(
            Setting("eval.held_out", files),
            ": ",
            teacher._replace(value=names[0]),
            " has vectors of the training text only; name the model as the teacher",
        )
    try:
        sentences = open_corpus(files, *columns)
    except DataError as error:
        raise error.rename({"data.files": "eval.held_out"}) from None
    if len(sentences) < 2:
        raise DataError(Setting("eval.held_out", files), " has one sentence, which cannot be compared with others; give more text")
    subset = Subsample(min(MAX_SENTENCES, len(sentences)), 0)
    lines = draw(len(sentences), subset)
    try:
        vectors = teacher_vectors(teacher.value, precision, sentences, subset)
    except ConfigError as error:
        raise error.rename({"method.teacher": teacher.name}) from None
    return HeldOut(read_lines(sentences, lines.tolist()), vectors.take(lines))


class Agreement:
    """Measure the agreement of parameters with the teacher on held-out sentences, or on sentences of the corpus."""

    def __init__(
        self, config: Config, held_out: HeldOut, embed: Callable[[Params, list[str]], np.ndarray], width: int | None = None
    ) -> None:
        """`embed` gives the vectors of documents, of which the export keeps the first `width` numbers; None: all."""
        self._method, self._held_out, self._embed, self._width = config.method, held_out, embed, width
        self._length = config.eval.max_seq_length
        student = judging_teacher(config)
        self._is_distilled = student is not None
        self._names = teacher_names(student.teacher if student else config.eval.teacher)

    def __call__(self, params: Params) -> dict[str, float]:
        """Return the measures by their names in metrics.jsonl."""
        whole = self._embed(params, self._held_out.sentences)
        mapped: Any = None
        if self._is_distilled and self._method.dense:
            mapped = whole
        elif self._is_distilled and self._method.dense is not None and DENSE in params:
            mapped = whole @ np.asarray(jax.device_get(params[DENSE]["layer_0"]["kernel"]))
        return self._named(whole[:, : self._width], mapped)

    def of_model(self, embed: EmbedAs) -> dict[str, float]:
        """Return the measures of another model."""
        return self._named(embed("document", self._held_out.sentences))

    def _named(self, vectors: np.ndarray, mapped: np.ndarray | None = None) -> dict[str, float]:
        return {f"{AGREEMENT}{name}": value for name, value in agreement(vectors, self._held_out.vectors, mapped).items()}

    def summary(self, params: Params, start: Mapping[str, float]) -> dict[str, Any]:
        """Return the facts about the teacher in scores.json and the model card.

        Args:
            params: The weights to export.
            start: Measures of the start, by their names in metrics.jsonl.

        Returns:
            "names" of the teachers, "is_distilled", "sentences" (their number), "agreement" by measure, "start" (shared neighbours
            before training), and for a student of one model "sentences_per_second" of the "student" and of the "teacher".
        """
        facts = {
            "names": list(map(published_name, self._names)),
            "is_distilled": self._is_distilled,
            "sentences": len(self._held_out.sentences),
            "agreement": {name.removeprefix(AGREEMENT): value for name, value in self(params).items()},
            **({"start": start[SELECTING]} if SELECTING in start else {}),
        }
        is_model = len(self._names) == 1 and not has_vectors(self._names[0]) and not self._names[0].startswith(WORDS)
        if not self._is_distilled or not is_model or jax.process_count() > 1:
            return facts
        try:
            teacher = SentenceEncoder(self._names[0])
        except UserError as error:  # it was removed since its vectors were computed; the export does not need it
            print_warning(f"the speed of the teacher is not measured: {error}")
            return facts
        teacher.max_seq_length = min(teacher.max_seq_length, self._length)  # it reads no more of a text than the student
        encoders = {
            "student": lambda sentences: self._embed(params, sentences),
            "teacher": functools.partial(teacher.encode, show_progress_bar=False),
        }
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
