"""Trains SimCSE on the sentences of UKP ASPECT without labels, and compares nearest neighbours before and after.

python experiments/arguments/run.py --arguments UKP_ASPECT.tsv --weights bert-mini --workdir runs/arguments

Writes results.md and neighbours.svg beside this file. Topics are used for measurement and for the ticks of the picture only.
"""

import argparse
import csv
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import jax_sentemb
from jax_sentemb.reporting.svg import element

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse

HERE = Path(__file__).parent
SETTINGS = {"max_steps": 60, "max_seq_length": 48, "eval_steps": 10, "select": "retrieval"}
QUERIES = {  # of the picture, with their topics; written before the result was seen
    "Fracking pollutes our drinking water.": "Fracking",
    "Electric cars are cheaper to run.": "Electric cars",
    "Robots help surgeons to operate.": "Robotic surgery",
}
NEAREST = 3
WIDTH, COLUMN, LETTERS = 980, 480, 66


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


def found(encoder: jax_sentemb.SentenceEncoder, sentences: Sequence[str]) -> list[list[str]]:
    """The sentences that are nearest to each of QUERIES, best first."""
    rows = jax_sentemb.search(encoder.encode(list(QUERIES)), encoder.encode(list(sentences)), top_k=NEAREST).indices
    return [[sentences[row] for row in near] for near in rows.tolist()]


def picture(topics: Mapping[str, set[str]], before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> str:
    """What a search finds before and after as SVG: a filled dot marks a sentence on the topic of the query."""
    parts, y = [], 28
    for place, text in ((20, "before training"), (20 + COLUMN, "after training on these sentences, without labels")):
        parts.append(element("text", text, x=place, y=y, _class="head"))
    for (query, topic), *sides in zip(QUERIES.items(), before, after, strict=True):
        y += 34
        parts.append(element("text", query, x=20, y=y, _class="query"))
        y += 14
        for pair in zip(*sides, strict=True):
            height = 0
            for place, sentence in zip((20, 20 + COLUMN), pair, strict=True):
                lines = textwrap.wrap(sentence, LETTERS, max_lines=2, placeholder=" …")
                parts.append(
                    element("circle", cx=place + 5, cy=y + 6, r=4.5, _class="same" if topic in topics[sentence] else "other")
                )
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
    title = "Search in arguments before and after training"
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
    parser.add_argument("--weights", required=True, help="a BERT directory")
    parser.add_argument("--workdir", default="runs/arguments")
    options = parse(parser, arguments="afs/UKP_ASPECT.tsv")
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
    drawn = picture(topics, *(found(encoders[name], sentences) for name in ("[CLS] before", "[CLS] after")))
    table = "\n".join(lines) + "\n"
    (HERE / "results.md").write_text(f"# Neighbours of arguments\n\n{table}", encoding="utf-8")
    (HERE / "neighbours.svg").write_text(drawn + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
