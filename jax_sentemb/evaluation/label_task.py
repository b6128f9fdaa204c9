"""Score how well the vectors of a model separate the classes of labelled texts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.checks import text, whole_number
from jax_sentemb.data.corpus_files import corpus_name, open_text
from jax_sentemb.data.delimited import without_point
from jax_sentemb.data.records import Records
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation import logistic
from jax_sentemb.evaluation.classes import adjusted_rand_index, contingency, v_measure
from jax_sentemb.evaluation.measures import Measure, Scored, mean_of
from jax_sentemb.evaluation.user_task import Texts, Vectors, check_distinct
from jax_sentemb.evaluation.word_baselines import TF_IDF, nearest_by_words
from jax_sentemb.files import fingerprint
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.kmeans import kmeans
from jax_sentemb.retrieval.search import search
from jax_sentemb.retrieval.sources import VectorSource
from jax_sentemb.types import OnProgress, no_progress

SAMPLE = 50_000  # texts that are scored at most
MAX_CLASSES = 1000  # with which clusters and a classifier are compared; more need gigabytes, and are often ids
NEAREST = (1, 5)
FOLDS = 5
INVERSE_L2 = 1.0
SEED = 0
CHANCE, LARGEST_CLASS = "chance", "largest class"  # rows of the table


class LabelTask:
    """A UserTask on texts with a class each. Attributes as in `UserTask`."""

    name, item_name, main = "labels", "texts", "accuracy@1"

    def __init__(self, setting: str, file: str, label_column: str = "label", column: str = "text", sample: int = SAMPLE) -> None:
        """Read the texts that have a label.

        Args:
            setting: The option that names the file, for messages.
            file: A .tsv, .csv, .jsonl or .parquet file with a header.
            label_column: The column of the labels, text or numbers.
            column: The column of the texts.
            sample: Texts that are scored at most, drawn by a fixed seed; 0: all.

        Raises:
            DataError: The file is missing or malformed, or has fewer than two classes.
        """
        text("column", column)
        sample = whole_number("sample", sample, 0)
        if not text("label_column", label_column).strip():
            raise ConfigError(Setting("--label-column", label_column), " is empty: give the name of a column")
        try:
            records = open_text(setting, file, column, id_column=label_column)
        except (ConfigError, DataError) as error:
            raise error.rename({"--id": "--label-column"}) from None
        if records.columns:
            raise ConfigError(Setting("--column", column), ": a label belongs to one text; name one column")
        texts, labels, without = _labelled(records)
        if sample and len(texts) > sample:
            chosen = np.sort(np.random.default_rng(SEED).choice(len(texts), sample, replace=False)).tolist()
            texts, labels = [texts[row] for row in chosen], [labels[row] for row in chosen]
            without.append(f"{sample:,} texts are a random sample: all of them with --sample 0")
        names = sorted(set(labels))
        if len(names) < 2:
            remedy = "; give texts of at least two classes"
            raise DataError(Setting(setting, file), f": {len(texts)} texts have {len(names)} class in {label_column!r}{remedy}")
        number_of = {name: number for number, name in enumerate(names)}
        self._classes = np.array([number_of[label] for label in labels])
        self._counts = np.bincount(self._classes)
        self.title = f"Labels: {len(texts):,} texts, {len(names):,} classes, {corpus_name(file)}"
        self._has_few_classes = len(names) <= MAX_CLASSES
        self.notes = without + _notes(texts, self._counts)
        self.texts = {"texts": Texts(texts, Source(corpus_name(file), fingerprint({"texts": texts})))}
        digest = fingerprint({"texts": texts, "labels": labels})
        self.facts: dict[str, Any] = {
            "sources": {"labelled texts": Source(corpus_name(file), digest)._asdict()},
            "classes": dict(zip(names, self._counts.tolist(), strict=True)),
        }

    def score(self, name: str, vectors: Vectors, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the scores of a model."""
        classes, rows = self._classes, vectors["texts"]
        check_distinct(rows, self.texts["texts"])
        measures = self._accuracies(nearest_others(rows, max(NEAREST), progress))
        if not self._has_few_classes:
            yield name, Scored(len(classes), measures)
            return
        measures["logistic"] = mean_of(predicted_by_folds(rows, classes) == classes)
        clusters = kmeans(rows, len(self._counts), SEED, progress=progress).labels
        agreement = self._agreement(clusters)
        yield name, Scored(len(classes), {**measures, **agreement}, biased=frozenset(agreement))

    def baselines(self, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the nearest texts by tf-idf; its vectors are too wide for a classifier and clusters."""
        nearest = nearest_by_words(list(self.texts["texts"].lines), max(NEAREST), progress)
        yield TF_IDF, Scored(len(self._classes), self._accuracies(nearest))

    def constants(self) -> dict[str, dict[str, float]]:
        """Return the chance level, and what a system that always names the largest class reaches."""
        counts, total = self._counts, len(self._classes)
        share = counts / total
        chance = {f"accuracy@{count}": 100 * float(share @ _chance_of_one(counts, total, count)) for count in NEAREST}
        largest = 100 * float(share.max())
        nearest = {f"accuracy@{count}": largest for count in NEAREST}
        if not self._has_few_classes:
            return {CHANCE: chance, LARGEST_CLASS: nearest}
        clusters = np.random.default_rng(SEED).integers(len(counts), size=total)
        agreement = {name: measure(np.arange(total)) for name, measure in self._agreement(clusters).items()}
        one_cluster = dict.fromkeys(agreement, 0.0)
        return {
            CHANCE: {**chance, "logistic": 100 * float(share @ share), **agreement},
            LARGEST_CLASS: {**nearest, "logistic": largest, **one_cluster},
        }

    def _accuracies(self, nearest: Int[np.ndarray, "texts nearest"]) -> dict[str, Measure]:
        same = self._classes[nearest] == self._classes[:, None]
        return {f"accuracy@{count}": mean_of(same[:, :count].any(axis=1)) for count in NEAREST}

    def _agreement(self, clusters: Int[np.ndarray, " texts"]) -> dict[str, Measure]:
        classes, shape = self._classes, (len(self._counts), len(self._counts))
        measures = {"V-measure": v_measure, "ARI": adjusted_rand_index}
        return {
            name: lambda items, measure=measure: 100 * measure(contingency(classes[items], clusters[items], shape))
            for name, measure in measures.items()
        }


def nearest_others(vectors: VectorSource, count: int, progress: OnProgress = no_progress) -> Int[np.ndarray, "texts count"]:
    """Return the rows of the `count` nearest other texts of each text by cosine, fewer if there are fewer texts."""
    nearest = search(vectors, vectors, count + 1, progress=progress).indices
    is_other = nearest != np.arange(len(nearest))[:, None]
    is_other[is_other.all(axis=1), -1] = False  # many equal texts: the text itself is not among those found
    return nearest[is_other].reshape(len(nearest), -1)


def predicted_by_folds(vectors: VectorSource, classes: Int[np.ndarray, " texts"]) -> Int[np.ndarray, " texts"]:
    """Return the class of each text by a logistic regression that was fitted to the other folds.

    The penalty is that of scikit-learn with C = 1, on the vectors as they are. A class with a single text is never predicted.
    """
    counts = np.bincount(classes)
    usable = np.flatnonzero(counts > 1)
    if len(usable) < 2:
        return np.full(len(classes), usable[0] if len(usable) else -1)
    folds = fold_of(classes)
    features = np.asarray(vectors[: len(classes)], np.float32)
    trained = np.isin(classes, usable)
    rows = np.array([(folds != fold) & trained for fold in range(FOLDS)])
    numbers = np.where(trained, np.searchsorted(usable, classes), 0)
    fits = logistic.fit(features, numbers, rows, np.full(FOLDS, INVERSE_L2))
    predicted = np.empty(len(classes), np.int64)
    for fold, (weight, bias) in enumerate(zip(*fits, strict=True)):
        tested = folds == fold
        predicted[tested] = usable[logistic.probabilities(weight, bias, features[tested]).argmax(axis=1)]
    return predicted


def fold_of(classes: Int[np.ndarray, " texts"]) -> Int[np.ndarray, " texts"]:
    """Return the fold of each text, drawn by a fixed seed; the texts of a class are spread evenly over the folds."""
    order = np.random.default_rng(SEED).permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    folds = np.empty(len(classes), np.int64)
    folds[order] = np.arange(len(classes)) % FOLDS
    return folds


def _chance_of_one(counts: np.ndarray, total: int, drawn: int) -> np.ndarray:
    """Return for each class how probably one of `drawn` random other texts is of the class of a text."""
    drawn = min(drawn, total - 1)
    none = np.ones(len(counts))
    for number in range(drawn):
        none *= np.maximum(total - counts - number, 0) / (total - 1 - number)
    return 1 - none


def _labelled(records: Records) -> tuple[list[str], list[str], list[str]]:
    """Return the texts that have a label, their labels, and notes on the other records."""
    texts, labels, without = [], [], 0
    for row in range(records.count):
        line, label = records.texts[row], without_point(records.id_of(row))
        label = "" if label is None else str(label).strip()
        if line and label:
            texts.append(line)
            labels.append(label)
        without += not (line and label)
    return texts, labels, [f"{without:,} records have no text or no label: they are left out"] * bool(without)


def _notes(texts: list[str], counts: np.ndarray) -> list[str]:
    notes = []
    if repeated := len(texts) - len(set(texts)):
        notes.append(f"{repeated:,} texts repeat an earlier one, so the nearest other text may be a copy")
    if single := int((counts == 1).sum()):
        notes.append(f"{single:,} classes have a single text, which no other text can match")
    if len(counts) > MAX_CLASSES:
        notes.append(f"{len(counts):,} classes, more than {MAX_CLASSES:,}: only the nearest texts are scored")
    return notes
