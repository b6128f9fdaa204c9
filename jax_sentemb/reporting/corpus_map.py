"""Lay out a map of sentences: their positions under one or two models, their groups, and the words of each group.

A map is a dictionary of texts and numbers, ready for JSON. It is drawn without a model.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length

MAX_SENTENCES = 2000  # sentences of a map; more would hide each other
GROUPS = 8  # at most; each has its own colour and shape
PER_GROUP = 20  # sentences for each cluster, so that few sentences have few clusters
NEIGHBOURS = 10  # nearest neighbours that are compared with the group of a sentence
WORDS = 4  # topic words of a group
DISTINCTIVE = 2  # times as frequent in a group as in all sentences
LONGEST = 120  # characters of a sentence that are shown
FEWEST = 30  # sentences that t-SNE lays out; fewer are laid out by PCA
PERPLEXITY = 30
SIDE = 1000  # positions are whole numbers from 0 to SIDE
OTHER, UNLABELLED = "other labels", "no label"

Vectors = Float[np.ndarray, "sentences width"]
Positions = Float[np.ndarray, "sentences 2"]


def make_map(
    texts: Sequence[str],
    vectors: Mapping[str, Vectors],
    labels: Sequence[object] | None = None,
    seed: int = 0,
    reason_for_pca: str = "",
) -> dict[str, Any]:
    """Return a map of sentences under one model or two.

    Args:
        texts: The sentences.
        vectors: {name of a model: embeddings of the sentences}, in the order of the panels.
        labels: The label of each sentence; None groups the sentences by k-means on all models together.
        seed: The seed of t-SNE and k-means.
        reason_for_pca: The reason not to use t-SNE, for the caption; "" uses t-SNE if openTSNE is installed.

    Returns:
        {"layout", "reason", "grouped_by", "texts", "group_of", "groups": [{"name", "words", "count", "chance", "shares"}],
        "panels": [{"name", "positions"}]}. `shares` has for each panel the share of the nearest neighbours of a sentence that are
        in its group, as a mean over the group. `chance` is that share among random sentences.
    """
    unit = {name: unit_length(np.asarray(rows, np.float32)) for name, rows in vectors.items()}
    names, group_of = _clusters([*unit.values()], seed) if labels is None else label_groups(labels)
    words = topic_words(texts, group_of, len(names))
    names = names if labels is not None else _cluster_names(words)
    method, reason, positions = _positions([*unit.values()], seed, reason_for_pca)
    counts = np.bincount(group_of, minlength=len(names))
    shares = [neighbour_shares(rows, group_of, len(names)) for rows in unit.values()]
    groups = [
        {
            "name": name,
            "words": words[number],
            "count": int(counts[number]),
            "chance": round(float(max(counts[number] - 1, 0) / max(len(texts) - 1, 1)), 4),
            "shares": [round(float(side[number]), 4) for side in shares],
        }
        for number, name in enumerate(names)
    ]
    return {
        "layout": method,
        "reason": reason,
        "grouped_by": "cluster" if labels is None else "label",
        "texts": [text[:LONGEST] for text in texts],
        "group_of": group_of.tolist(),
        "groups": groups,
        "panels": [
            {"name": name, "positions": _whole_numbers(panel)} for name, panel in zip(unit, positions, strict=True)
        ],
    }  # fmt: skip


def label_groups(labels: Sequence[object]) -> tuple[list[str], Int[np.ndarray, " sentences"]]:
    """Return the names of the groups, the most frequent label first, and the number of the group of each label.

    If there are more labels than GROUPS, the rarest share the last group.
    """
    texts = [UNLABELLED if label is None or not str(label).strip() else str(label).strip() for label in labels]
    frequent = [name for name, _ in sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))]
    names = frequent if len(frequent) <= GROUPS else [*frequent[: GROUPS - 1], OTHER]
    number_of = {name: number for number, name in enumerate(names[: GROUPS - 1] if len(frequent) > GROUPS else names)}
    return names, np.array([number_of.get(text, len(names) - 1) for text in texts])


def topic_words(texts: Sequence[str], group_of: Int[np.ndarray, " sentences"], count: int) -> list[list[str]]:
    """Return up to WORDS words of each group that are frequent in it and rarer elsewhere, the best first.

    A word counts once in a sentence. With its share p of the sentences of a group and q of all sentences, its score is
    p log(p / q). Words below p = 2 q, such as "the" in most groups, are only taken if the group has no others.
    """
    word_sets = [set(re.findall(r"[^\W\d_]{2,}", text.lower())) for text in texts]
    total = Counter(word for words in word_sets for word in words)
    topics = []
    for group in range(count):
        members = [words for words, number in zip(word_sets, group_of, strict=True) if number == group]
        inside = Counter(word for words in members for word in words)
        scores = {
            word: share * np.log(share * len(texts) / total[word])
            for word, occurrences in inside.items()
            if occurrences > 1
            for share in [occurrences / len(members)]
        }
        best = sorted((word for word, score in scores.items() if score > 0), key=lambda word: (-scores[word], word))
        distinctive = [word for word in best if inside[word] * len(texts) >= DISTINCTIVE * total[word] * len(members)]
        topics.append((distinctive or best)[:WORDS])
    return topics


def neighbour_shares(unit: Vectors, group_of: Int[np.ndarray, " sentences"], count: int) -> Float[np.ndarray, " groups"]:
    """Return for each group the mean share of a sentence's NEIGHBOURS nearest neighbours that are in the same group."""
    nearest = nearest_rows(unit, NEIGHBOURS)
    if not nearest.shape[1]:
        return np.zeros(count)
    same = (group_of[nearest] == group_of[:, None]).mean(axis=1)
    return np.bincount(group_of, same, count) / np.maximum(np.bincount(group_of, minlength=count), 1)


def nearest_rows(unit: Vectors, count: int) -> Int[np.ndarray, "sentences count"]:
    """Return the numbers of the nearest other rows of each unit vector, the nearest first."""
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    return np.argsort(-cosine, axis=1, kind="stable")[:, : min(count, len(unit) - 1)]


def principal_components(unit: Vectors) -> Positions:
    """Return the first two principal components of rows; the largest weight of each direction is positive."""
    from scipy.linalg import eigh  # imported here, because `jax-sentemb map --help` does not need it

    centred = np.asarray(unit, np.float64) - unit.mean(axis=0, dtype=np.float64)
    if centred.shape[1] < 2:
        centred = np.pad(centred, ((0, 0), (0, 1)))
    width = centred.shape[1]
    _, directions = eigh(centred.T @ centred, subset_by_index=(width - 2, width - 1))
    directions = directions[:, ::-1]
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(2)])
    return centred @ (directions * signs)


def _cluster_names(words: Sequence[Sequence[str]]) -> list[str]:
    """Return the topic words of each cluster as its name; a number tells clusters without or with the same words apart."""
    names = [", ".join(each) or "cluster" for each in words]
    return [name if names.count(name) == 1 else f"{name} ({names[: number + 1].count(name)})" for number, name in enumerate(names)]


def _clusters(sides: Sequence[Vectors], seed: int) -> tuple[list[str], Int[np.ndarray, " sentences"]]:
    """Cluster the sentences on the vectors of all models together, the largest cluster first; names are left empty."""
    from jax_sentemb.retrieval.kmeans import kmeans  # imports JAX, which a map of labels does not need

    together = np.concatenate(sides, axis=1)
    rows = kmeans(together, min(GROUPS, max(1, len(together) // PER_GROUP)), seed).rows()
    group_of = np.zeros(len(together), np.int64)
    for number, members in enumerate(rows):
        group_of[members] = number
    return [""] * len(rows), group_of


def _positions(sides: Sequence[Vectors], seed: int, reason: str) -> tuple[str, str, list[Positions]]:
    """Return the name of the layout, the reason for PCA, and the positions of each side."""
    if not reason and len(sides[0]) < FEWEST:
        reason = f"a map of fewer than {FEWEST} sentences needs no t-SNE"
    if not reason:
        try:
            return "t-SNE", "", _t_sne(sides, seed)
        except ImportError:
            reason = "for t-SNE: pip install openTSNE"
        except _NotLaidOut as error:
            reason = str(error)
    first, *others = (principal_components(side) for side in sides)
    return "PCA", reason, [first, *(_turned(other, first) for other in others)]


class _NotLaidOut(Exception):
    """t-SNE cannot lay out these vectors."""


def _t_sne(sides: Sequence[Vectors], seed: int) -> list[Positions]:
    """Lay out each side by t-SNE: the first side starts from its PCA, the next from the layout before it."""
    from openTSNE import TSNE

    start, layouts = principal_components(sides[0]), []
    for side in sides:
        deviation = start[:, 0].std()
        if not deviation > 1e-12:
            raise _NotLaidOut("all vectors are nearly equal")
        model = TSNE(
            perplexity=min(PERPLEXITY, (len(side) - 1) // 3),
            initialization=start / deviation * 1e-4,
            neighbors="exact",
            negative_gradient_method="bh",  # faster than "fft" for a few thousand points, and deterministic
            n_jobs=1,
            random_state=seed,
        )
        start = np.array(model.fit(side), np.float64)
        if not np.isfinite(start).all():
            raise _NotLaidOut("t-SNE did not converge on these vectors")
        layouts.append(start)
    return layouts


def _turned(positions: Positions, like: Positions) -> Positions:
    """Turn and mirror a PCA layout, so that it resembles another layout; distances within it stay the same."""
    from scipy.linalg import orthogonal_procrustes

    rotation, _ = orthogonal_procrustes(positions, like)
    return positions @ rotation


def _whole_numbers(positions: Positions) -> list[list[int]]:
    """Return the positions as whole numbers that fill a square of SIDE, with the same scale in both directions."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = SIDE / max(float((high - low).max()), 1e-12)
    return np.round((positions - (low + high) / 2) * scale + SIDE / 2).astype(int).tolist()
