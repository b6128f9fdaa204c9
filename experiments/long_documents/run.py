"""Measure what cutting long texts loses and what chunks give back: Cranfield, and passages of novels.

    python experiments/long_documents/run.py --data DIR --model all-MiniLM-L6-v2

A task and limit that results.csv has is not measured again.
"""

import argparse
import csv
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jax_sentemb import SentenceEncoder
from jax_sentemb.cosines import unit_length
from jax_sentemb.data.chunks import Chunker
from jax_sentemb.inference.chunk_vectors import pool

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import add_rows, parse, read_rows

LIMITS = (256, 64)  # tokens
VARIANTS = ("cut", "mean", "max", "best chunk")
EVERY = 4  # Cranfield: each fourth query, and the documents that were judged for these queries
COUNT, SENTENCES, REMOVED = 100, 40, 3  # novels: passages, their sentences, and the sentences of a query
DEPTH, SAMPLES = 10, 10_000


class Task(NamedTuple):
    """Queries, documents, and the grade of each document for each query; `groups` are subsets of the queries by name."""

    queries: list[str]
    documents: list[str]
    grades: list[dict[int, float]]
    groups: dict[str, np.ndarray]


def cranfield(data: Path) -> Task:
    """Return the retrieval task of a part of Cranfield; a document is its title and its text."""
    rows = [[json.loads(line) for line in (data / f"{name}.jsonl").open(encoding="utf-8")] for name in ("corpus", "queries")]
    numbers = [{row["_id"]: number for number, row in enumerate(side)} for side in rows]
    grades: list[dict[int, float]] = [{} for _ in rows[1]]
    with (data / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            grades[numbers[1][row["query-id"]]][numbers[0][row["corpus-id"]]] = float(row["score"])
    chosen = [number for number, grade in enumerate(grades) if any(grade.values())][::EVERY]
    judged = sorted({document for number in chosen for document in grades[number]})
    positions = {document: position for position, document in enumerate(judged)}
    texts = [" ".join(text for text in (rows[0][number]["title"], rows[0][number]["text"]) if text.strip()) for number in judged]
    grades = [{positions[document]: grade for document, grade in grades[number].items()} for number in chosen]
    return Task([rows[1][number]["text"] for number in chosen], texts, grades, {})


def passages(novels: Path) -> list[list[str]]:
    """Return passages of SENTENCES consecutive sentences, evenly spaced."""
    blocks: list[list[str]] = [[]]
    with lzma.open(novels, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                blocks[-1].append(line.strip())
            elif blocks[-1]:
                blocks.append([])
    starts = [(block, start) for block in blocks for start in range(0, len(block) - SENTENCES + 1, SENTENCES)]
    return [starts[row][0][starts[row][1] :][:SENTENCES] for row in np.linspace(0, len(starts) - 1, COUNT).astype(int)]


def removed(novels: Path) -> Task:
    """Return the task to find a passage by three sentences that were removed from it, at a random place."""
    draw = np.random.default_rng(0)
    texts = passages(novels)
    starts = draw.integers(0, SENTENCES - REMOVED + 1, len(texts))
    queries = [" ".join(text[start : start + REMOVED]) for text, start in zip(texts, starts, strict=True)]
    documents = [" ".join(text[:start] + text[start + REMOVED :]) for text, start in zip(texts, starts, strict=True)]
    third = starts * 3 // (SENTENCES - REMOVED + 1)
    names = ("removed from the first third", "from the second", "from the last")
    return Task(queries, documents, [{row: 1.0} for row in range(len(texts))], {name: third == k for k, name in enumerate(names)})


def embed(encoder: SentenceEncoder, texts: Sequence[str], limit: int) -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """Return vectors of the texts by each variant, the number of chunks of each text, and how many texts are too long.

    The mean and the maximum are computed from the vectors of the chunks, so that these are encoded only once.
    """
    chunker = Chunker(encoder.tokenizer, limit)
    parts = list(chunker.split(texts))
    chunks = [text[chunk.start : chunk.end] for text, part in zip(texts, parts, strict=True) for chunk in part]
    encoder.max_seq_length = limit
    vectors = encoder.encode([*texts, *chunks], show_progress_bar=True)
    cut, each = vectors[: len(texts)], vectors[len(texts) :]
    pooled = {mode: unit_length(pool(each, parts, mode)) for mode in ("mean", "max")}
    return {"cut": cut, **pooled, "best chunk": each}, np.array([len(part) for part in parts]), sum(chunker.are_long(texts))


def scores(queries: np.ndarray, documents: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return cosines [queries, documents]; that of a document is the largest of its chunks."""
    cosines = queries @ documents.T
    if documents.shape[0] == len(counts):
        return cosines
    return np.maximum.reduceat(cosines, np.cumsum(counts) - counts, axis=1)


def ndcg(cosines: np.ndarray, grades: Sequence[dict[int, float]]) -> np.ndarray:
    """Return nDCG@DEPTH of each query, with linear gains. For one right document, a reciprocal rank would order models alike."""
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :DEPTH]
    values = []
    for rows, grade in zip(order, grades, strict=True):
        gains = np.array([grade.get(int(row), 0.0) for row in rows])
        ideal = np.sort(list(grade.values()))[::-1][:DEPTH]
        values.append((gains * discounts[: len(gains)]).sum() / (ideal * discounts[: len(ideal)]).sum())
    return np.array(values)


def interval(differences: np.ndarray) -> np.ndarray:
    """Return the 95 % interval of the mean by bootstrap over queries."""
    draws = np.random.default_rng(0).integers(0, len(differences), (SAMPLES, len(differences)))
    return np.percentile(differences[draws].mean(axis=1), [2.5, 97.5])


def measure(encoder: SentenceEncoder, name: str, task: Task, limit: int) -> Iterator[dict[str, str]]:
    """Yield a row for each variant and group of queries."""
    documents, counts, too_long = embed(encoder, task.documents, limit)
    queries, _, _ = embed(encoder, task.queries, limit)
    values = {}
    for variant in VARIANTS:  # a query has one vector: with chunks of documents, the mean of its chunks
        asking = queries["mean" if variant == "best chunk" else variant]
        values[variant] = ndcg(scores(asking, documents[variant], counts), task.grades)
    for group, members in {"all": np.ones(len(task.queries), bool), **task.groups}.items():
        for variant, value in values.items():
            low, high = interval((value - values["cut"])[members])
            yield {
                "task": name, "limit": str(limit), "queries": group, "number": str(int(members.sum())), "variant": variant,
                "ndcg": f"{100 * value[members].mean():.1f}", "difference": f"{100 * (value - values['cut'])[members].mean():+.1f}",
                "low": f"{100 * low:+.1f}", "high": f"{100 * high:+.1f}", "documents": str(len(counts)),
                "too_long": str(too_long), "vectors": str(len(documents[variant])),
            }  # fmt: skip


def main() -> None:
    """Measure what results.csv does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.csv"))
    options = parse(parser, cranfield="domains/cranfield", novels="corpora/ordered_novels.txt.xz")
    encoder = SentenceEncoder(options.model)
    tasks = {
        "Cranfield": lambda: cranfield(Path(options.cranfield)),
        "novels, removed sentences": lambda: removed(Path(options.novels)),
    }
    done = {(row["task"], int(row["limit"])) for row in read_rows(options.results)}
    for name, load in tasks.items():
        for limit in LIMITS:
            if (name, limit) not in done:
                rows = list(measure(encoder, name, load(), limit))
                add_rows(options.results, rows)
                print(*(row for row in rows if row["queries"] == "all"), sep="\n", flush=True)


if __name__ == "__main__":
    main()
