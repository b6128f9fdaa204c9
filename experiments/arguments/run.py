"""Trains SimCSE on the sentences of UKP ASPECT without labels, and compares nearest neighbours before and after.

python experiments/arguments/run.py --arguments UKP_ASPECT.tsv --weights bert-mini --workdir runs/arguments

Writes results.md and neighbours.svg beside this file. Topics are used for measurement and for the ticks of the picture only.
"""

import argparse
import csv
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import jax_sentemb
from jax_sentemb.reporting.svg import element

HERE = Path(__file__).parent
SETTINGS = {"max_steps": 60, "max_seq_length": 48, "eval_steps": 10, "select": "retrieval"}
EVERY_TOPIC = 10  # queries of the picture: the first sentence of every tenth topic in alphabetical order
NEAREST = 3
WIDTH, COLUMN, LETTERS = 980, 470, 70


def read_topics(file: str) -> dict[str, set[str]]:
    """{sentence: its topics} in the order of the file."""
    topics: dict[str, set[str]] = {}
    with open(file, newline="", encoding="utf-8") as opened:
        for row in csv.DictReader(opened, delimiter="\t"):
            for name in ("sentence1", "sentence2"):
                topics.setdefault(" ".join(row[name].split()), set()).add(row["topic"])
    return topics


def nearest(encoder: jax_sentemb.SentenceEncoder, sentences: Sequence[str]) -> np.ndarray:
    """Rows of the five nearest other sentences of each sentence, by cosine."""
    vectors = np.asarray(encoder.encode(list(sentences), normalize_embeddings=True), np.float32)
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    return np.argsort(-cosine, axis=1, kind="stable")[:, :5]


def same_topic(rows: np.ndarray, topics: Mapping[str, set[str]]) -> np.ndarray:
    """Whether each of the nearest sentences shares a topic with the query, bool [sentences, 5]."""
    sets = list(topics.values())
    return np.array([[bool(sets[query] & sets[int(other)]) for other in near] for query, near in enumerate(rows)])


def picture(topics: Mapping[str, set[str]], before: np.ndarray, after: np.ndarray) -> str:
    """Neighbours before and after as SVG: a filled dot marks a neighbour of the query's topic."""
    sentences = list(topics)
    first = {min(found): row for row, found in reversed(list(enumerate(topics.values())))}
    queries = [first[topic] for topic in sorted(first)[::EVERY_TOPIC]]
    parts, y = [], 26
    for place, text in ((20, "before training"), (20 + COLUMN, "after training on these sentences, without labels")):
        parts.append(element("text", text, x=place, y=y, _class="head"))
    for query in queries:
        y += 34
        for line in textwrap.wrap(f"{sentences[query]} ({min(topics[sentences[query]])})", 2 * LETTERS - 20):
            parts.append(element("text", line, x=20, y=y, _class="query"))
            y += 18
        for rank in range(NEAREST):
            height = 0
            for place, rows in ((20, before), (20 + COLUMN, after)):
                other = int(rows[query, rank])
                same = bool(topics[sentences[query]] & topics[sentences[other]])
                lines = textwrap.wrap(sentences[other], LETTERS - 4)[:3]
                parts.append(element("circle", cx=place + 5, cy=y + 5, r=4.5, _class="same" if same else "other"))
                parts += [
                    element("text", line, x=place + 18, y=y + 10 + 17 * number, _class="near") for number, line in enumerate(lines)
                ]
                height = max(height, 17 * len(lines))
            y += height + 7
    style = (
        "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:12.5px;fill:#1b1f24}"
        ".head{font-weight:600;font-size:15px}.query{font-weight:600}.near{fill:#39424c}"
        ".same{fill:#00805c}.other{fill:#fff;stroke:#9aa4ae;stroke-width:1.5}"
    )
    back = element("rect", width=WIDTH, height=y + 8, rx=8, fill="#fff", stroke="#d9dde2")
    title = "Nearest neighbours of arguments before and after training"
    return element(
        "svg",
        element("title", title),
        element("style", style),
        back,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {y + 8}",
        role="img",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arguments", required=True, help="UKP_ASPECT.tsv with sentence1, sentence2, label and topic")
    parser.add_argument("--weights", required=True, help="a BERT directory")
    parser.add_argument("--workdir", default="runs/arguments")
    options = parser.parse_args()
    topics = read_topics(options.arguments)
    sentences = list(topics)
    encoders = {
        "[CLS] before": jax_sentemb.SentenceEncoder.load(f"{options.weights}@cls"),
        "mean before": jax_sentemb.SentenceEncoder.load(f"{options.weights}@mean"),
        "[CLS] after": jax_sentemb.train(sentences, options.weights, recipe="simcse", workdir=options.workdir, **SETTINGS),
    }
    rows = {name: nearest(encoder, sentences) for name, encoder in encoders.items()}
    lines = ["| embedding | nearest has the topic, % | five nearest have the topic, % |", "|---|--:|--:|"]
    for name, near in rows.items():
        same = same_topic(near, topics)
        lines.append(f"| {name} | {100 * same[:, 0].mean():.1f} | {100 * same.mean():.1f} |")
    table = "\n".join(lines) + "\n"
    (HERE / "results.md").write_text(table, encoding="utf-8")
    (HERE / "neighbours.svg").write_text(picture(topics, rows["[CLS] before"], rows["[CLS] after"]) + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
