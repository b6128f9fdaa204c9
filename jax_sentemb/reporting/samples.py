"""Collect samples of an encoder for the report: nearest neighbours, cosines of any two sentences, similarities over gold scores.

They are numbers and texts, small enough for JSON. The report is drawn from them without a model.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import plain
from jax_sentemb.evaluation.sts import TaskSimilarities
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.files import fingerprint
from jax_sentemb.reporting.corpus_map import NEIGHBOURS, Vectors, make_map, nearest_rows
from jax_sentemb.reporting.plots import gold_ranges

QUERIES, NEAREST = 8, 3  # sentences that are shown, and neighbours of each
LONGEST = 300  # characters of a sentence that are stored
BINS = 50  # of the histogram, over cosines from -1 to 1
DOTS = 300  # pairs of a set that are stored; ranges include all pairs
MAX_VECTORS = 2000  # vectors that are stored, for the map and the neighbours before and after training
VECTOR_BYTES = 1 << 23  # of all stored vectors; start.json must stay below the limit of files.JSON_LIMIT
LONG_RUN = 50_000  # training rows from which a map is laid out by t-SNE
SHORT_RUN_MARKS = 512  # sentences of the map of a shorter run
ROWS_PER_MARK = 50  # training rows for each sentence of such a map


class MapSize(NamedTuple):
    """How many sentences a map shows, and the reason to lay it out by PCA, if there is one."""

    sentences: int
    reason_for_pca: str = ""


def collect_samples(
    vectors: Mapping[str, Float[np.ndarray, " width"]],
    similarities: TaskSimilarities,
    tasks: Mapping[str, StsTask],
    before: Mapping[str, Any] | None = None,
    map_size: MapSize | None = None,
) -> dict[str, Any]:
    """Return {"neighbours", "cosines", "pairs"} of an encoder, from the functions `neighbours`, `cosines` and `against_gold`.

    Without `before`, the result also has "vectors", which the samples of a later encoder are compared with. With `before`,
    "neighbours" has the sentences whose neighbours changed most, and "neighbours_before" their neighbours before training.

    Args:
        vectors: Sentence -> its embedding. If it is empty, the result has only "pairs".
        similarities: The similarities of the sets that are shown.
        tasks: The sets, with their gold scores.
        before: The "vectors" of an earlier encoder; None if there is none.
        map_size: The size of the map, with which the result also has "map"; None draws none.
    """
    samples: dict[str, Any] = {}
    if len(vectors) > NEAREST:
        unit, sentences = unit_length(np.stack([*vectors.values()]).astype(np.float32)), [*vectors]
        samples = {**_neighbour_samples(unit, sentences, before, map_size), "cosines": cosines(unit)}
    gold = {name: np.concatenate([pairs.gold for pairs in task.subsets.values()]) for name, task in tasks.items()}
    return {
        **samples,
        "pairs": {name: against_gold(np.concatenate([*subsets.values()]), gold[name]) for name, subsets in similarities.items()},
    }


def _neighbour_samples(
    unit: Vectors, sentences: list[str], before: Mapping[str, Any] | None, map_size: MapSize | None
) -> dict[str, Any]:
    """Return the neighbours of evenly spread sentences and their stored vectors, or what changed against `before`."""
    start = stored_vectors(before or {}, sentences)
    if start is None:
        queries = np.unique(np.linspace(0, len(sentences) - 1, QUERIES).astype(int))
        stored = {"vectors": store_vectors(unit, sentences)} if before is None else {}
        return {"neighbours": neighbours(unit, sentences, queries), **stored}
    rows = stored_rows(unit)
    end, texts = unit[rows], [sentences[row] for row in rows.tolist()]
    queries, kept, changed = changed_most(start, end)
    return {
        "neighbours": {**neighbours(end, texts, queries), "kept": kept, "changed": changed},
        "neighbours_before": neighbours(start, texts, queries),
        **({"map": _map(texts, start, end, map_size)} if map_size else {}),
    }


def _map(texts: list[str], start: Vectors, end: Vectors, size: MapSize) -> dict[str, Any]:
    """Return the map of evenly spread sentences before and after training."""
    rows = np.unique(np.linspace(0, len(texts) - 1, min(size.sentences, len(texts))).astype(int))
    sides = {"start": start[rows], "kept weights": end[rows]}
    return make_map([texts[row] for row in rows.tolist()], sides, reason_for_pca=size.reason_for_pca)


def map_size(trained_rows: int) -> MapSize:
    """Return the size of a run's map, so that drawing it takes a small share of the run's time.

    t-SNE takes about 5 ms for each sentence, as much as training on several rows.
    """
    if trained_rows < LONG_RUN:
        return MapSize(SHORT_RUN_MARKS, "the run is short")
    return MapSize(min(MAX_VECTORS, trained_rows // ROWS_PER_MARK))


def store_vectors(unit: Vectors, sentences: Sequence[str]) -> dict[str, Any]:
    """Return unit vectors, or evenly spread ones of many, as float32 in base64, with the fingerprint of all sentences.

    Half precision would reorder the neighbours of vectors that are close together, such as those of a new encoder.
    """
    stored = np.asarray(unit[stored_rows(unit)], "<f4")
    return {
        "sentences": fingerprint({"sentences": list(sentences)}),
        "shape": list(stored.shape),
        "float32": base64.b64encode(stored.tobytes()).decode(),
    }


def stored_vectors(stored: Mapping[str, Any], sentences: Sequence[str]) -> Vectors | None:
    """Return what `store_vectors` has stored, as float32; None if it belongs to other sentences."""
    if stored.get("sentences") != fingerprint({"sentences": list(sentences)}):
        return None
    return np.frombuffer(base64.b64decode(stored["float32"]), "<f4").reshape(stored["shape"])


def stored_rows(unit: Vectors) -> Int[np.ndarray, " rows"]:
    """Return the numbers of the rows that are stored: all, or evenly spread ones of many or wide vectors."""
    most = max(NEAREST + 1, min(len(unit), MAX_VECTORS, VECTOR_BYTES // (4 * unit.shape[1])))
    return np.unique(np.linspace(0, len(unit) - 1, most).astype(int))


def changed_most(before: Vectors, after: Vectors) -> tuple[Int[np.ndarray, " queries"], float, float]:
    """Return the sentences whose nearest neighbours changed most, and two shares.

    The shares are the mean share of neighbours that sentences kept, and that of sentences whose nearest neighbour is another one.
    Sentences with another nearest neighbour come first, because a reader sees few neighbours. The change of a sentence is the mean
    rank, after training, of its NEIGHBOURS nearest neighbours before training, plus the mean rank before training of those after
    training. A sentence is skipped if it is a neighbour of one that is already chosen, so that the sentences differ.
    """
    ranks, nearest = zip(*map(_ranks, (before, after)), strict=True)
    rows = np.arange(len(before))[:, None]
    change = ranks[1][rows, nearest[0]].mean(axis=1) + ranks[0][rows, nearest[1]].mean(axis=1)
    kept = float((ranks[1][rows, nearest[0]] < nearest[0].shape[1]).mean())
    changed = float((nearest[0][:, 0] != nearest[1][:, 0]).mean())
    chosen: list[int] = []
    order = np.lexsort((-change, nearest[0][:, 0] == nearest[1][:, 0])).tolist()
    for row in order:
        if len(chosen) < QUERIES and not any(row in side[other] for other in chosen for side in nearest):
            chosen.append(row)
    chosen += [row for row in order if row not in chosen][: min(QUERIES, len(order)) - len(chosen)]
    return np.array(chosen), round(kept, 4), round(changed, 4)


def _ranks(unit: Vectors) -> tuple[Int[np.ndarray, "rows rows"], Int[np.ndarray, "rows neighbours"]]:
    """Return the rank of every row among the neighbours of each row, from 0, and the nearest rows."""
    order = nearest_rows(unit, len(unit) - 1)
    ranks = np.zeros((len(unit), len(unit)), np.int32)
    np.put_along_axis(ranks, order, np.arange(order.shape[1], dtype=np.int32)[None], axis=1)
    return ranks, order[:, :NEIGHBOURS]


def neighbours(vectors: Vectors, sentences: Sequence[str], queries: Int[np.ndarray, " queries"]) -> dict[str, Any]:
    """Return the nearest neighbours of some sentences.

    Args:
        vectors: Unit vectors.
        sentences: Their texts.
        queries: The numbers of the sentences.

    Returns:
        {"among": number of sentences, "queries": [{"sentence", "nearest": [[cosine, sentence], ...]}]}, the nearest neighbour
        first.
    """
    cosine = vectors[queries] @ vectors.T
    cosine[np.arange(len(queries)), queries] = -np.inf
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :NEAREST]
    return {
        "among": len(sentences),
        "queries": [
            {
                "sentence": sentences[query][:LONGEST],
                "nearest": [[round(float(row[neighbour]), 4), sentences[neighbour][:LONGEST]] for neighbour in nearest],
            }
            for query, row, nearest in zip(queries.tolist(), cosine, order.tolist(), strict=True)
        ],
    }


def changed_examples(samples: Mapping[str, Any], count: int = 3) -> str:
    """Return lines with some sentences whose nearest neighbour changed, and that neighbour before and after training."""
    lines = []
    for before, after in zip(samples["neighbours_before"]["queries"], samples["neighbours"]["queries"], strict=True):
        nearest = [side["nearest"][0][1] for side in (before, after)]
        if nearest[0] != nearest[1]:
            names = zip(("", "before: ", "after:  "), (before["sentence"], *nearest), strict=True)
            lines.append("\n".join(f"  {'  ' * bool(name)}{name}{shortened(text)}" for name, text in names))
    return "\n".join(lines[:count])


def shortened(text: str, most: int = 100) -> str:
    """Return the text without control characters, cut at a number of characters."""
    text = plain(text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cosines(vectors: Float[np.ndarray, "sentences width"]) -> dict[str, Any]:
    """Return {"mean", "counts" [BINS]}: the histogram from -1 to 1 of the cosine of all pairs of unit vectors [N, E]."""
    counts, total = np.zeros(BINS, int), 0.0
    for row in range(len(vectors) - 1):  # one row at a time, so that little memory is needed
        values = vectors[row + 1 :] @ vectors[row]
        counts += np.histogram(np.clip(values, -1, 1), BINS, (-1, 1))[0]
        total += float(values.sum(dtype=np.float64))
    return {"mean": total / int(counts.sum()), "counts": counts.tolist()}


def against_gold(values: Float[np.ndarray, " pairs"], gold: Float[np.ndarray, " pairs"]) -> dict[str, Any]:
    """Return similarities and gold scores of a set's pairs, ready to draw.

    Returns:
        {"n", "dots" [[gold, similarity], ...], "ranges" [[centre, pairs, [5, 25, 50, 75, 95th percentile]], ...]}. Dots are up to
        DOTS pairs, drawn at random. Ranges of gold scores contain all pairs.
    """
    dot_rows = np.sort(np.random.default_rng(0).choice(len(gold), min(DOTS, len(gold)), replace=False))
    _, centres, range_of = gold_ranges(gold)
    return {
        "n": len(gold),
        "dots": [[float(f"{value:.5g}") for value in (gold[row], values[row])] for row in dot_rows],
        "ranges": [
            [
                float(centres[number]),
                int((range_of == number).sum()),
                np.percentile(values[range_of == number], [5, 25, 50, 75, 95]).tolist(),
            ]
            for number in np.unique(range_of)
        ],
    }
