"""Makes static tables of mini-2 and of mini-2 trained with AMI, with and without dimensions for words, and scores them.

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

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "adapting"))

from distil import SEEDS, SETS, Embed, Scores, add_rows, sentences_of
from domains import abstracts, packages
from study_data import parse, read_rows
from word_encoder import Words

from jax_sentemb import SentenceEncoder
from jax_sentemb.config import Config, check
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.distillation.distill import Settings, distill
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.evaluation.word_baselines import DocumentCounts, TfIdf
from jax_sentemb.inference.load import load
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training.run import run

FIELDS = ("encoder", "seed", "text", "words", "dev", *SETS, "mean", "packages", "abstracts")
WORDS = (0, 1024)
UNTRAINED, AMI, TF_IDF = "mini-2", "mini-2, AMI", "tf-idf"
TEXTS = ("mix", "wiki")
Key = tuple[str, str, str, str]  # encoder, seed, text and words


def config_of(options: argparse.Namespace, seed: int) -> Config:
    """Return the config of AMI on the upper half of the layers."""
    config = read_config("simcse")
    settings = {
        "data.files": str(options.texts / "mix.txt"), "data.subset": 100_000, "data.batch_size": 64,
        "encoder.weights": str(options.mini), "method.pooling": "cls", "method.ami.weight": 3.0, "method.ami.depth": "upper",
        "optimizer.learning_rate": 1e-4, "train.precision": "bfloat16", "train.max_steps": 300, "train.seed": seed,
        "eval.diagnostic_sentences": 64, "eval.report_sentences": 0,
    }  # fmt: skip
    for name, value in settings.items():
        override(config, name, value)
    check(config)
    return config


def encoder_of(options: argparse.Namespace, name: str, seed: int) -> str:
    """Return the encoder, which is trained first if its export is not there. Exits with 75 after a signal."""
    if name == UNTRAINED:
        return f"{options.mini}@mean"
    folder = options.output / f"ami-{seed}"
    if not (folder / "export").is_dir() and (code := run(config_of(options, seed), folder)):
        sys.exit(code)
    return str(folder / "export")


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
            model = encoder_of(options, name, seed)
            if text:
                table = options.output / "table"
                sentences = open_corpus(str(options.texts / f"{text}.txt"))
                distill(load(model), model, sentences, table, Settings(words=int(words)))
                model = str(table)
            add(file, key, scored(model))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
