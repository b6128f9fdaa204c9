"""The domains of the study: sentences to train on, and a score that no label of training touches."""

import csv
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb import SentenceEncoder, score
from jax_sentemb.data.sentence_ends import split_sentences
from jax_sentemb.evaluation.arguments import UKP_GRADES

GENRES = {  # subsets of STS 2012, 2014 and 2015
    "forum posts": ("deft-forum", "answers-forums", "answers-students", "belief"),
    "headlines": ("headlines",),
    "captions": ("images",),
}
DOMAINS = ("arguments", "SICK", "forum posts", "headlines", "captions", "questions", "novels", "packages", "abstracts")
NOVELS_SENTENCES, PARAGRAPHS, SENTENCES = 20_000, 500, 8  # trained on; tested; sentences of a tested paragraph


def of_pairs(encoder: SentenceEncoder, rows: list[Any]) -> float:
    """Spearman x 100 of labelled pairs."""
    return score(encoder, rows)["spearman"]


def of_halves(encoder: SentenceEncoder, rows: list[Any]) -> float:
    """Percentage of first halves of paragraphs whose second half is the nearest."""
    first, second = (encoder.encode([row[side] for row in rows], normalize_embeddings=True) for side in (0, 1))
    return 100 * float((np.argmax(first @ second.T, axis=1) == np.arange(len(rows))).mean())


def of_classes(encoder: SentenceEncoder, rows: list[Any]) -> float:
    """Percentage of texts, as (class, text), whose nearest other text has the same class."""
    vectors = encoder.encode([text for _, text in rows], normalize_embeddings=True)
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    classes = np.array([name for name, _ in rows])
    return 100 * float((classes[np.argmax(similarities, axis=1)] == classes).mean())


def of_queries(encoder: SentenceEncoder, folders: list[Any]) -> float:
    """nDCG@10 x 100 of the queries of a folder in BEIR's layout; titles and texts are joined."""
    return score(encoder, retrieval=folders[0], resamples=0)["nDCG@10"]


class Domain(NamedTuple):
    """Sentences to train on ("" ends a document), and what is scored."""

    sentences: list[str]
    test: list[Any]
    held_out: list[Any] = []  # to choose rates
    scored: Callable[[SentenceEncoder, list[Any]], float] = of_pairs
    ordered: bool = False


def domains(data: Path) -> dict[str, Domain]:
    """The domains of the study."""

    def text(rows: list[tuple[str, str, float]]) -> list[str]:
        return list(dict.fromkeys(sentence for row in rows for sentence in row[:2]))

    years = [row for year in (12, 14, 15) for row in table(data / f"sts_raw/STS{year}.tsv")]
    genres = {name: pairs([row for row in years if row["subset"] in subsets]) for name, subsets in GENRES.items()}
    arguments = [
        (row["sentence1"], row["sentence2"], UKP_GRADES[row["label"]]) for row in table(data / "afs/UKP_ASPECT.tsv")
    ]  # fmt: skip
    sick = {part: pairs(table(data / f"sts_raw/SICK-{part}.tsv")) for part in ("train", "dev", "test")}
    return {
        "arguments": Domain(text(arguments), arguments),
        "SICK": Domain(text([*sick["train"], *sick["dev"], *sick["test"]]), sick["test"], sick["dev"]),
        **{name: Domain(text(rows), rows) for name, rows in genres.items()},
        "novels": novels(data / "corpora/ordered_novels.txt.xz"),
        "questions": questions([data / f"senteval/downstream/TREC/{name}.label" for name in ("train_5500", "TREC_10")]),
        "packages": packages(data / "domains/debian_packages.tsv"),
        "abstracts": abstracts(data / "domains/cranfield"),
    }


def novels(path: Path) -> Domain:
    """The first sentences of the novels to train on; halves of later paragraphs of SENTENCES sentences, which are scored."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    paragraphs: list[list[str]] = []
    last = len(lines) - 1
    step = (len(lines) - 2 * NOVELS_SENTENCES) // (2 * PARAGRAPHS)
    while len(paragraphs) < 2 * PARAGRAPHS:
        block = lines[last - SENTENCES : last]
        if all(block):
            paragraphs.append(block)
        last -= step if all(block) else 1
    halves = [(" ".join(block[: SENTENCES // 2]), " ".join(block[SENTENCES // 2 :])) for block in paragraphs]
    return Domain(lines[:NOVELS_SENTENCES], halves[::2], halves[1::2], of_halves, ordered=True)


def questions(paths: list[Path]) -> Domain:
    """The distinct questions of TREC, with their fine classes."""
    rows = {
        text: name for path in paths for name, _, text in (line.partition(" ") for line in path.read_text("latin-1").splitlines())
    }
    return Domain(list(rows), [(name, text) for text, name in rows.items()], scored=of_classes)


def packages(path: Path) -> Domain:
    """Descriptions of Debian packages, with their sections."""
    rows = table(path)
    return Domain(
        list(dict.fromkeys(row["text"] for row in rows)), [(row["section"], row["text"]) for row in rows], scored=of_classes
    )


def abstracts(folder: Path) -> Domain:
    """The sentences of Cranfield's abstracts, each after its title, and the folder with its queries."""
    with (folder / "corpus.jsonl").open(encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    blocks = [[each["title"], *split_sentences(" ".join(each["text"].split())), ""] for each in documents]
    sentences = [sentence for block in blocks for sentence in block]
    return Domain(sentences, [folder], scored=of_queries, ordered=True)


def table(file: Path) -> list[dict[str, str]]:
    """The rows of a tab-separated file with a header."""
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))


def pairs(rows: list[dict[str, str]]) -> list[tuple[str, str, float]]:
    """The rows as (first, second, score)."""
    return [(row["sentence1"], row["sentence2"], float(row["score"])) for row in rows]
