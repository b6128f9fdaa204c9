"""Score how well a model retrieves the relevant documents of queries, from a folder in BEIR's layout."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.checks import text
from jax_sentemb.evaluation import bm25
from jax_sentemb.evaluation.beir_files import read_folder
from jax_sentemb.evaluation.measures import Scored, mean_of
from jax_sentemb.evaluation.rankings import Run, average_precision, fuse, gains_of, ndcg, ordered, recall, reciprocal_rank, without
from jax_sentemb.evaluation.user_task import Texts, Vectors, check_distinct
from jax_sentemb.files import fingerprint, sha256
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.search import search
from jax_sentemb.retrieval.sources import WithEmptyRows
from jax_sentemb.types import OnProgress, no_progress

DEPTH = 1000  # documents that are retrieved for a query; MAP is over these


class RetrievalTask:
    """A UserTask on the queries of a folder in BEIR's layout. Attributes as in `UserTask`."""

    name, item_name, main = "retrieval", "queries", "nDCG@10"

    def __init__(self, setting: str, folder: str | Path, split: str = "", has_bm25: bool = True) -> None:
        """Read the folder.

        Args:
            setting: The option that names the folder, for messages.
            folder: The folder.
            split: As for `read_folder`.
            has_bm25: Whether to score BM25 and its fusion with each model, if the package is installed.

        Raises:
            DataError: A file is missing or malformed.
        """
        self._data = data = read_folder(setting, folder, text("split", split))
        self._ideal = [judged.ideal for judged in data.judgements]
        self._relevant = np.array([len(grades) for grades in self._ideal])
        self._depth = min(DEPTH + 1, len(data.ids))  # one of them may be the query itself
        self._has_bm25 = has_bm25 and bm25.package() is not None
        corpus, queries, qrels = data.files
        self.title = f"Retrieval: {len(data.queries):,} queries, {len(data.ids):,} documents, {qrels.name}"
        self.notes = [*data.notes, *([bm25.MISSING] if has_bm25 and not self._has_bm25 else [])]
        self.texts = {
            "queries": Texts(data.queries, Source(queries.name, fingerprint({"queries": data.queries})), "query"),
            "corpus": Texts(data.corpus.texts, Source(corpus.name, data.corpus.sentences.fingerprint), "document"),
        }
        sources = {name: texts.source._asdict() for name, texts in self.texts.items()}
        identity = {"file": sha256(qrels), "documents": data.ids, "queries": data.query_ids}
        judgements = Source(qrels.name, fingerprint(identity))._asdict()
        self.facts: dict[str, Any] = {
            "sources": {**sources, "judgements": judgements},
            "documents": len(data.ids),
            "relevant": int(self._relevant.sum()),
        }

    def score(self, name: str, vectors: Vectors, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the scores of a model by cosine, and of its fusion with BM25."""
        check_distinct(vectors["corpus"], self.texts["corpus"])
        corpus = WithEmptyRows(vectors["corpus"], self._data.corpus.empty_texts)
        hits = search(vectors["queries"], corpus, self._depth, progress=progress)
        run = self._ordered(Run(hits.indices, hits.scores))
        yield name, self.scored(run)
        if self._has_bm25:
            yield f"{name} + {bm25.NAME}", self.scored(self._ordered(fuse([run, self._words], self._depth)))

    def baselines(self, progress: OnProgress = no_progress) -> Iterator[tuple[str, Scored]]:
        """Yield the scores of BM25."""
        if self._has_bm25:
            yield bm25.NAME, self.scored(self._words)

    def constants(self) -> dict[str, dict[str, float]]:
        """Return no values."""
        return {}

    def scored(self, run: Run) -> Scored:
        """Return the scores of a run of the queries."""
        gains = gains_of(run, self._data.judgements)
        measures = {
            "nDCG@10": ndcg(gains, self._ideal, 10),
            "MRR@10": reciprocal_rank(gains, 10),
            "recall@100": recall(gains, self._relevant, 100),
            "MAP": average_precision(gains, self._relevant),
        }
        return Scored(len(gains), {name: mean_of(values) for name, values in measures.items()})

    @functools.cached_property
    def _words(self) -> Run:
        return self._ordered(bm25.rank(self._data.queries, self._data.corpus.texts, self._depth))

    def _ordered(self, run: Run) -> Run:
        """Return the run in the order of trec_eval, without the document that is the query itself."""
        rows, scores = without(ordered(run, self._data.ids.__getitem__), self._data.own)
        return Run(rows[:, :DEPTH], scores[:, :DEPTH])
