"""Makes static tables of mini-2 and of mini-2 trained with AMI, with and without dimensions for words, and scores them.

The encoder trained with AMI then learns the vectors of its own table with words and of itself (`--students`).

    python experiments/stronger/texts.py --data DIR --output texts
    python experiments/stronger/tables.py --texts texts --data DIR --mini experiments/pretraining/mini-2 --output runs/tables

AMI trains five seeds on 100,000 sentences of the mixed text, unless their exports are there. A row of tables.csv is a table, or the
encoder itself, and the same command continues.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "adapting"))

from distil import SEEDS, SETS, Embed, Scores
from domains import abstracts, packages
from study_data import add_rows, parse, read_rows
from word_encoder import Words

from jax_sentemb import SentenceEncoder
from jax_sentemb.config import check
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.distillation.distill import Settings, distill
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.evaluation.word_baselines import DocumentCounts, TfIdf
from jax_sentemb.inference.load import load
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training.run import run

FIELDS = ("encoder", "seed", "text", "words", "dev", *SETS, "mean", "packages", "abstracts")
WORDS = (0, 1024)
STUDENT_STEPS = 2400
UNTRAINED, AMI, STUDENT, TF_IDF = "mini-2", "mini-2, AMI", "mini-2, AMI, student of its table", "tf-idf"
TEXTS = ("mix", "wiki")
Key = tuple[str, str, str, str]  # encoder, seed, text and words


def trained(options: argparse.Namespace, recipe: str, settings: dict[str, Any], name: str, seed: int) -> Path:
    """Return the export of a run on the mixed text, which is trained first if it is not there. Exits with 75 after a signal."""
    folder = options.output / f"{name}-{seed}"
    if (folder / "export").is_dir():
        return folder / "export"
    config = read_config(recipe)
    common = {
        "data.files": str(options.texts / "mix.txt"), "train.precision": options.precision, "train.seed": seed,
        "eval.report_sentences": 0,
    }  # fmt: skip
    for setting, value in (common | settings).items():
        override(config, setting, value)
    check(config)
    if code := run(config, folder):
        sys.exit(code)
    return folder / "export"


def with_ami(options: argparse.Namespace, seed: int) -> Path:
    """Return mini-2 trained with AMI on the upper half of the layers."""
    settings = {
        "data.subset": 100_000, "data.batch_size": 64, "encoder.weights": str(options.mini), "method.pooling": "cls",
        "method.ami.weight": 3.0, "method.ami.depth": "upper", "optimizer.learning_rate": 1e-4, "train.max_steps": 300,
        "eval.diagnostic_sentences": 64,
    }  # fmt: skip
    return trained(options, "simcse", settings, "ami", seed)


def student(options: argparse.Namespace, seed: int) -> Path:
    """Return the encoder trained with AMI after it learned the vectors of its own table with words, and of itself."""
    start, table = with_ami(options, seed), options.output / f"table-{seed}"
    if not table.is_dir():
        make_table(options, str(start), "mix", WORDS[-1], table)
    settings = {
        "method.teacher": f"{table},{start}", "encoder.weights": str(start), "encoder.readout": "method",
        "encoder.dropout": 0.0, "eval.eval_steps": 0, "eval.select": "last", "optimizer.learning_rate": 5e-4,
        "train.max_steps": STUDENT_STEPS,
    }  # fmt: skip
    return trained(options, "distill_encoder", settings, "student", seed)


def make_table(options: argparse.Namespace, model: str, text: str, words: int, folder: Path) -> None:
    """Make the static table of a model, weighted by the frequencies in a text."""
    distill(load(model), model, open_corpus(str(options.texts / f"{text}.txt")), folder, Settings(words=words))


def sentences_of(task: StsTask) -> list[str]:
    """Return the distinct sentences of a set."""
    return list(dict.fromkeys(text for pairs in task.subsets.values() for side in (pairs.first, pairs.second) for text in side))


class Tests:
    """Scores a model on the five sets, on development pairs that are in none of them, and on the two domains of `adapting`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._sets, self._dev = Scores(options.senteval), Scores(options.senteval, (DISJOINT_DEV,))
        self._domains = {"packages": packages(Path(options.packages)), "abstracts": abstracts(Path(options.cranfield))}

    def __call__(self, model: str) -> dict[str, str]:
        """Return all scores as text."""
        encoder = SentenceEncoder.load(model)
        domains = {name: f"{domain.scored(encoder, domain.test):.2f}" for name, domain in self._domains.items()}
        return self.similarity(encoder.encode) | domains

    def tf_idf(self, sentences: Sequence[str]) -> dict[str, str]:
        """Return the scores of tf-idf with the frequencies of these sentences."""
        scored = [text for tests in (self._sets, self._dev) for task in tests.tasks.values() for text in sentences_of(task)]
        words = TfIdf(counts=DocumentCounts.of(sentences))
        domains = {}
        for name, domain in self._domains.items():
            encoder = Words(words.fit(domain.sentences).encode)
            domains[name] = f"{domain.scored(encoder, domain.test):.2f}"
        return self.similarity(words.fit(scored).encode) | domains

    def similarity(self, embed: Embed) -> dict[str, str]:
        """Return the scores of the sets and of the development pairs as text."""
        values = self._sets(embed) | {"dev": self._dev(embed)["mean"]}
        return {name: f"{value:.2f}" for name, value in values.items()}


def has(file: Path, key: Key) -> bool:
    """Return whether the table has a row."""
    return any(tuple(row[field] for field in FIELDS[:4]) == key for row in read_rows(file))


def add(file: Path, key: Key, scores: dict[str, str]) -> None:
    """Add a row to the table and print it."""
    row = dict(zip(FIELDS, key, strict=False)) | scores
    add_rows(file, [row], FIELDS)
    print(row, flush=True)


def main() -> None:
    """Make what the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("texts", "mini", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, *SEEDS], help="of AMI; 0: mini-2 without training")
    parser.add_argument("--students", nargs="+", type=int, default=[], help="seeds of AMI whose table gets a student")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    options = parse(parser, senteval="senteval", packages="domains/debian_packages.tsv", cranfield="domains/cranfield")
    options.output.mkdir(parents=True, exist_ok=True)
    file, scored = options.output / "tables.csv", Tests(options)
    for text in TEXTS if 0 in options.seeds else ():
        key = (TF_IDF, "", text, "")
        if not has(file, key):
            sentences = list(open_corpus(str(options.texts / f"{text}.txt")))
            add(file, key, scored.tf_idf(sentences))
    for seed in options.seeds:
        name = AMI if seed else UNTRAINED
        for text, words in (("", ""), *((text, words) for text in TEXTS for words in WORDS)):
            key = (name, str(seed), text, str(words))
            if has(file, key):
                continue
            model = str(with_ami(options, seed)) if seed else f"{options.mini}@mean"
            if text:
                table = options.output / "table"
                make_table(options, model, text, int(words), table)
                model = str(table)
            add(file, key, scored(model))
    for seed in options.students:
        if not has(file, key := (STUDENT, str(seed), "mix", str(WORDS[-1]))):
            add(file, key, scored(str(student(options, seed))))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
