"""Reads the labelled sets of the study and scores vectors on them, with the tasks of the package."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.evaluation.arguments import UKP_GRADES
from jax_sentemb.evaluation.catalog import load_sts
from jax_sentemb.evaluation.diagnostics import halves
from jax_sentemb.evaluation.measures import values_of
from jax_sentemb.evaluation.user_scores import open_task
from jax_sentemb.evaluation.user_task import UserTask

PAIRS, TEXTS, HALVES = 500, 1000, 256  # of a set at most: scored pairs; texts; texts that are cut in halves
SIMILARITY, NEAREST, CLASSES = "similarity", "nearest texts", "classification"
STS = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
Vectors = Mapping[str, np.ndarray]


class LabelledSet(NamedTuple):
    """A labelled set: the texts that need vectors, and the task that scores them."""

    name: str
    group: str
    measure: str  # the score
    task: UserTask
    texts: dict[str, list[str]]  # the keys of the task; "first" and "second" are halves of texts

    @property
    def unlabelled(self) -> str:
        """Return the key of the texts that the estimates see."""
        return "corpus" if "corpus" in self.texts else "texts"

    def score(self, vectors: Vectors) -> float:
        """Return the score x 100 of the vectors of a model."""
        _, scored = next(iter(self.task.score("model", {key: vectors[key] for key in self.task.texts})))
        return values_of(scored)[self.measure]


def load(data: Path, folder: Path) -> list[LabelledSet]:
    """Return the sets; a sample of each, drawn by a fixed seed, is written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = []
    for name, group, rows in _rows(data):
        file = folder / f"{name}.jsonl"
        drawn = np.random.default_rng(0).permutation(len(rows))[: PAIRS if "sentence1" in rows[0] else TEXTS]
        file.write_text("".join(json.dumps(rows[row]) + "\n" for row in sorted(drawn)), encoding="utf-8")
        sets.append(_opened(name, group, "pairs" if "sentence1" in rows[0] else "labels", file))
    return [*sets, _opened("Cranfield", NEAREST, "retrieval", data / "domains" / "cranfield", has_bm25=False)]


def _opened(name: str, group: str, form: str, path: Path, **options: Any) -> LabelledSet:
    task = open_task(f"--{form}", form, str(path), **options)
    texts = {key: [lines.lines[row] for row in range(len(lines.lines))] for key, lines in task.texts.items()}
    unlabelled = texts.get("corpus") or texts["texts"]
    parts = [halves(text) for text in unlabelled[:: max(1, len(unlabelled) // HALVES)] if len(text) > 1]
    texts |= {key: [part[side] for part in parts[:HALVES]] for side, key in enumerate(("first", "second"))}
    return LabelledSet(name, group, "logistic" if group == CLASSES else task.main, task, texts)


def _rows(data: Path) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    downstream = data / "senteval" / "downstream"
    similarity, _ = load_sts(data / "senteval")
    for name in STS:
        parts = similarity[name].subsets.values()
        triples = [triple for part in parts for triple in zip(part.first, part.second, part.gold.tolist(), strict=True)]
        yield name, SIMILARITY, _pairs(triples)
    arguments = _table(data / "afs" / "UKP_ASPECT.tsv")
    yield "arguments", SIMILARITY, _pairs((row["sentence1"], row["sentence2"], UKP_GRADES[row["label"]]) for row in arguments)
    lines = _lines(downstream / "MRPC" / "msr_paraphrase_test.txt")[1:]
    yield "MRPC", SIMILARITY, _pairs((first, second, float(label)) for label, _, _, first, second in (x.split("\t") for x in lines))
    sections = _table(data / "domains" / "debian_packages.tsv")
    yield "Debian", NEAREST, [{"text": row["text"], "label": row["section"]} for row in sections]
    for name, stem in (("MR", "rt-polarity"), ("CR", "custrev")):
        files = {label: _lines(downstream / name / f"{stem}.{label}", "latin-1") for label in ("neg", "pos")}
        yield name, CLASSES, [{"text": text, "label": label} for label, texts in files.items() for text in texts if text]
    cells = [line.rpartition("\t") for line in _lines(downstream / "SST" / "binary" / "sentiment-test")]
    yield "SST", CLASSES, [{"text": text, "label": label} for text, _, label in cells]
    questions = [line.partition(" ") for line in _lines(downstream / "TREC" / "train_5500.label", "latin-1")]
    yield "TREC", CLASSES, [{"text": text, "label": label.partition(":")[0]} for label, _, text in questions]


def _pairs(triples: Any) -> list[dict[str, Any]]:
    return [{"sentence1": first, "sentence2": second, "score": score} for first, second, score in triples]


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    return [line.strip() for line in path.read_text(encoding).split("\n") if line.strip()]
