"""Draws and counts the neighbours of arguments (UKP ASPECT) by two encoders: how many share the topic of the sentence."""

import csv
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from word_encoder import word_encoders

import jax_sentemb
from jax_sentemb.reporting.svg import element

QUERIES = {  # of the picture, with their topics; written before the first result was seen
    "Fracking pollutes our drinking water.": "Fracking",
    "Electric cars are cheaper to run.": "Electric cars",
    "Robots help surgeons to operate.": "Robotic surgery",
}
NEAREST = 3
WIDTH, COLUMN, LETTERS = 720, 350, 47  # readable where a page shows it 700 pixels wide
LIGHT = "text{fill:#1b1f24}.near{fill:#39424c}.same{fill:#00805c}.other{fill:#fff;stroke:#9aa4ae;stroke-width:1.5}"
LIGHT += ".back{fill:#fff;stroke:#d9dde2}"
DARK = (
    "text{fill:#e6edf3}.near{fill:#c3ccd5}.same{fill:#3fb98f}.other{fill:#161b22;stroke:#7d8590}.back{fill:#161b22;stroke:#30363d}"
)


def read_topics(file: str) -> dict[str, set[str]]:
    """{sentence: its topics} in the order of the file."""
    topics: dict[str, set[str]] = {}
    with open(file, newline="", encoding="utf-8") as opened:
        for row in csv.DictReader(opened, delimiter="\t"):
            for name in ("sentence1", "sentence2"):
                topics.setdefault(" ".join(row[name].split()), set()).add(row["topic"])
    return topics


class Encoder(Protocol):
    """What `shares_on_topic` needs of an encoder."""

    def encode(self, sentences: list[str], *, normalize_embeddings: bool = False) -> Any: ...


def shares_on_topic(encoder: Encoder, topics: Mapping[str, set[str]]) -> tuple[float, float]:
    """Percent of the nearest, and of the five nearest, other sentences that share a topic with the sentence."""
    vectors = np.asarray(encoder.encode(list(topics), normalize_embeddings=True), np.float32)
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    rows, sets = np.argsort(-cosine, axis=1, kind="stable")[:, :5], list(topics.values())
    same = np.array([[bool(sets[query] & sets[other]) for other in near] for query, near in enumerate(rows.tolist())])
    return 100 * float(same[:, 0].mean()), 100 * float(same.mean())


def shares_table(encoders: Mapping[str, Encoder], topics: Mapping[str, set[str]], corpus_file: str) -> str:
    """The shares of tf-idf and of the encoders as a table; `corpus_file` is CORPUS of baselines.py."""
    lines = ["| embedding | nearest has the topic, % | five nearest have the topic, % |", "|---|--:|--:|"]
    for name, encoder in {**word_encoders(list(topics), corpus_file), **encoders}.items():
        lines.append(f"| {name} | {' | '.join(f'{share:.1f}' for share in shares_on_topic(encoder, topics))} |")
    return "\n".join(lines)


def search_queries(encoder: jax_sentemb.SentenceEncoder, sentences: Sequence[str]) -> list[list[str]]:
    """The sentences that are nearest to each of QUERIES, best first."""
    rows = jax_sentemb.search(encoder.encode(list(QUERIES)), encoder.encode(list(sentences)), top_k=NEAREST).indices
    return [[sentences[row] for row in near] for near in rows.tolist()]


def picture(
    topics: Mapping[str, set[str]], before: Sequence[Sequence[str]], after: Sequence[Sequence[str]], heads: tuple[str, str]
) -> str:
    """What a search finds before and after as SVG: a filled dot marks a sentence on the topic of the query."""
    places, parts, y = (16, 16 + COLUMN), [], 28
    for place, text in zip(places, heads, strict=True):
        parts.append(element("text", text, x=place, y=y, _class="head"))
    for (query, topic), *sides in zip(QUERIES.items(), before, after, strict=True):
        y += 32
        parts.append(element("text", f"“{query}”", x=16, y=y, _class="query"))
        y += 13
        for pair in zip(*sides, strict=True):
            height = 0
            for place, sentence in zip(places, pair, strict=True):
                lines = textwrap.wrap(sentence, LETTERS, max_lines=2, placeholder=" …")
                mark = "same" if topic in topics[sentence] else "other"
                parts.append(element("circle", cx=place + 5, cy=y + 6, r=4.5, _class=mark))
                parts += [
                    element("text", line, x=place + 18, y=y + 10 + 17 * number, _class="near") for number, line in enumerate(lines)
                ]
                height = max(height, 17 * len(lines))
            y += height + 7
    style = (
        "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px}"
        ".head{font-weight:600;font-size:15px}.query{font-weight:600}"
        f"{LIGHT}@media(prefers-color-scheme:dark){{{DARK}}}"
    )
    return element(
        "svg",
        element("title", f"Search in arguments: {heads[0]}, and {heads[1]}"),
        element("style", style),
        element("rect", width=WIDTH, height=y + 8, rx=8, _class="back"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {y + 8}",
        role="img",
    )
