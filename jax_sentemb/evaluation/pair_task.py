"""Score how well the cosine of a model agrees with scored pairs, or separates pairs with the labels 0 and 1."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from jax_sentemb.checks import text
from jax_sentemb.data.corpus_files import corpus_name, sources_of
from jax_sentemb.data.pairs import LabelledPairs, make_pairs
from jax_sentemb.data.tables import Rows, read_rows
from jax_sentemb.errors import RETRAIN, ConfigError, DataError, Message, NumericsError, Setting
from jax_sentemb.evaluation.classes import average_precision, best_f1
from jax_sentemb.evaluation.measures import Measure, Scored
from jax_sentemb.evaluation.sts import SAME_COSINE, similarity
from jax_sentemb.evaluation.user_task import Texts, Vectors
from jax_sentemb.evaluation.word_baselines import TF_IDF, tf_idf_similarity
from jax_sentemb.files import fingerprint
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.sources import VectorSource, rows_at
from jax_sentemb.types import OnProgress, no_progress

COLUMNS = "sentence1,sentence2,score"
AT_ONCE = 4096  # pairs whose vectors are read at once


class PairTask:
    """A UserTask on the pairs of a table. Attributes as in `UserTask`."""

    name, item_name = "pairs", "pairs"

    def __init__(self, setting: str, file: str, columns: str = COLUMNS) -> None:
        """Read the pairs.

        Args:
            setting: The option that names the file, for messages.
            file: A .tsv, .csv, .jsonl or .parquet file with a header.
            columns: The names of two columns of text and of the column of scores, comma separated. With the default, the scores
                may also be in a column `label`.

        Raises:
            ConfigError: `columns` does not name three columns.
            DataError: The file is missing or malformed, or all scores are equal.
        """
        pairs = read_pairs(setting, file, columns)
        self._gold = pairs.labels
        self.is_binary = bool(np.isin(self._gold, (0, 1)).all())
        row_of = {line: row for row, line in enumerate(dict.fromkeys(pairs.sentences))}
        self._sides = [np.array([row_of[line] for line in side]) for side in (pairs.first, pairs.second)]
        lines = list(row_of)
        self.texts = {"texts": Texts(lines, Source(corpus_name(file), fingerprint({"texts": lines})))}
        self.main = "AP" if self.is_binary else "Spearman"
        self.title = f"Pairs: {len(self._gold):,} pairs, {'label 0 or 1' if self.is_binary else 'scores'}, {corpus_name(file)}"
        self.notes = [f"{pairs.unlabelled:,} rows have no score or no text: they are left out"] * bool(pairs.unlabelled)
        digest = fingerprint({"first": pairs.first, "second": pairs.second, "gold": self._gold.tolist()})
        self.facts: dict[str, Any] = {"sources": {"pairs": Source(corpus_name(file), digest)._asdict()}, "texts": len(lines)}

    def score(self, name: str, vectors: Vectors, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the agreement of the cosines of a model with the scores."""
        yield name, self.scored(pair_cosines(vectors["texts"], *self._sides))

    def scored(self, cosines: Float[np.ndarray, " pairs"]) -> Scored:
        """Return the agreement of similarities with the scores.

        Raises:
            NumericsError: All similarities are equal.
        """
        if np.ptp(cosines) < SAME_COSINE:
            raise NumericsError(
                f"all {len(cosines)} pairs have the similarity {cosines[0]:.6f}: the embeddings collapsed; {RETRAIN}"
            )
        if not self.is_binary:
            measures = {"Spearman": scipy.stats.spearmanr, "Pearson": scipy.stats.pearsonr}
            return Scored(len(cosines), {name: _correlation(function, cosines, self._gold) for name, function in measures.items()})
        positive = self._gold == 1
        measures = {
            "AP": _if_both(lambda items: 100 * average_precision(cosines[items], positive[items]), positive),
            "F1": _if_both(lambda items: 100 * best_f1(cosines[items], positive[items]).f1, positive),
        }
        return Scored(len(cosines), measures, {"threshold": best_f1(cosines, positive).threshold})

    def baselines(self, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the cosines of tf-idf with the document frequencies of the pairs' texts, if they differ."""
        lines = self.texts["texts"].lines
        first, second = ([lines[row] for row in side] for side in self._sides)
        cosines = tf_idf_similarity(first, second, list(lines))
        if np.ptp(cosines) >= SAME_COSINE:
            yield TF_IDF, self.scored(cosines)

    def constants(self) -> dict[str, dict[str, float]]:
        """Return what pairs in random order reach: F1 calls all pairs positive."""
        if not self.is_binary:
            return {}
        share = float(self._gold.mean())
        return {"chance": {"AP": 100 * share, "F1": 100 * 2 * share / (1 + share)}}


def pair_cosines(
    vectors: VectorSource, first: Int[np.ndarray, " pairs"], second: Int[np.ndarray, " pairs"]
) -> Float[np.ndarray, " pairs"]:
    """Return the cosine of the rows `first` and `second` of vectors."""
    parts = [
        similarity(rows_at(vectors, first[start : start + AT_ONCE]), rows_at(vectors, second[start : start + AT_ONCE]))
        for start in range(0, len(first), AT_ONCE)
    ]
    return np.concatenate(parts)


def read_pairs(setting: str, file: str, columns: str = COLUMNS) -> LabelledPairs:
    """Read pairs with at least two different scores. Arguments and errors are those of `PairTask`."""
    names = tuple(name.strip() for name in text("columns", columns).split(","))
    if len(set(names)) != 3 or len(names) != 3 or not all(names):
        raise ConfigError(
            Setting("--pair-columns", columns), f": name two columns of text and one of scores, all different, as in {COLUMNS}"
        )
    remedy: Message = ("name the columns sentence1, sentence2, and score or label",)
    if setting == "--pairs":
        remedy = (*remedy, ", or give ", Setting("--pair-columns", "TEXT,TEXT,SCORE"))
    required, optional = (names, ()) if columns != COLUMNS else (names[:2], ("score", "label"))
    try:
        rows = (row for source in list(sources_of(file)) for row in read_rows(source, required, remedy, optional))
        pairs = make_pairs(_with_score(rows, Setting(setting, file), remedy), (), file)
    except (ConfigError, DataError) as error:
        raise error.rename({"data.files": setting}) from None
    if (distinct := len(np.unique(pairs.labels))) < 2:
        raise DataError(
            Setting(setting, file), f": {len(pairs.labels)} pairs have {distinct} distinct score; give pairs that differ"
        )
    return pairs


def _with_score(rows: Rows, where: Setting, remedy: Message) -> Rows:
    """Yield rows of two texts and a score of the first column that has any, since two columns may have two scales; "" without."""
    all_rows = list(rows)
    columns = zip(*(scores for _, (_, _, *scores) in all_rows), strict=True)
    used = next((number for number, column in enumerate(columns) if any(score is not None for score in column)), None)
    if used is None:
        raise DataError(where, ": no row has a score or a label; ", *remedy)
    for position, (first, second, *scores) in all_rows:
        yield position, (first, second, "" if scores[used] is None else scores[used])


def _correlation(function: Any, cosines: np.ndarray, gold: np.ndarray) -> Measure:
    def measure(items: Int[np.ndarray, " n"]) -> float:
        values, scores = cosines[items], gold[items]
        if np.ptp(values) < SAME_COSINE or np.ptp(scores) == 0:
            return np.nan
        return 100 * float(function(values, scores).statistic)

    return measure


def _if_both(measure: Measure, positive: np.ndarray) -> Measure:
    """Return a measure that is not defined on items of one class."""
    return lambda items: measure(items) if positive[items].any() and not positive[items].all() else np.nan
