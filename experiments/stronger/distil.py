"""Distils all-MiniLM-L6-v2 into mini-2 and into layers of itself: baselines, the choice of settings, the final runs, the curves.

    python experiments/stronger/texts.py --data DIR --output texts
    python experiments/stronger/distil.py STAGE --texts texts --data DIR --teacher MINILM --mini mini-2 \\
        --glove glove.6B.300d.npz --output runs/distil

Stages: `baselines` (not trained), `choose` (one seed of each setting; no labels are read), `final` (five seeds of the chosen
settings), `curve` (scores along a run on Wikipedia and on mixed text). One run at a time; a row of STAGE.csv for each. SIGTERM ends
after the step, and the same command continues.
"""

import argparse
import csv
import functools
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse

from jax_sentemb.config import Config, check
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokens import Subsample
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.distillation.teacher import teacher_vectors
from jax_sentemb.evaluation.agreement import agreement
from jax_sentemb.evaluation.catalog import load_sts
from jax_sentemb.evaluation.model_spec import load_eval_model
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.evaluation.word_baselines import WordAverageBaseline
from jax_sentemb.files import read_json, replacing, write_json
from jax_sentemb.inference.load import load
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training.run import run

SETS = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
MEASURES = ("neighbours", "pairs", "cosine")
FIELDS = ("setting", "seed", "step", *MEASURES, "minutes", *SETS, "mean", "mean without W")
SEEDS = (1, 2, 3, 4, 5)

MINI = {"encoder.weights": "MINI", "optimizer.learning_rate": 5e-4}
LAYERS = {"encoder.weights": "TEACHER", "encoder.layers": "1,2,3", "optimizer.learning_rate": 2e-4}
RANK = {"method.rank": 1.0}
CONGEN = {"method.congen": 1.0, "method.cosine": 0.0}
DROPOUT = {"encoder.dropout": 0.1}
SHORT = {"train.max_steps": 500, "eval.eval_steps": 250, "method.output": "student"}
# Settings of the stage `choose`, each compared by its agreement with the teacher on text of other kinds.
CHOICES: dict[str, dict[str, Any]] = {
    "layers 1,2,3": LAYERS,
    "layers 1,3,5": LAYERS | {"encoder.layers": "1,3,5"},
    "mini-2": MINI,
    "layers 1,2,3; dropout": LAYERS | DROPOUT,
    "mini-2; ConGen and cosine": MINI | CONGEN | {"method.cosine": 1.0},
    "layers 1,2,3; rank": LAYERS | RANK,
    "mini-2; 1e-3": MINI | {"optimizer.learning_rate": 1e-3},
    "mini-2; rank": MINI | RANK,
    "layers 1,2,3; Wikipedia": LAYERS | {"data.files": "wiki.txt"},
    "layers 2,4,6": LAYERS | {"encoder.layers": "2,4,6"},
    "layers 1,2,3; ConGen and cosine": LAYERS | CONGEN | {"method.cosine": 1.0},
    "mini-2; dropout": MINI | DROPOUT,
    "layers 1,2,6": LAYERS | {"encoder.layers": "1,2,6"},
    "layers 1,2,3; 5e-4": LAYERS | {"optimizer.learning_rate": 5e-4},
    "layers 1,2,3; ConGen": LAYERS | CONGEN,
    "mini-2; ConGen": MINI | CONGEN,
    "layers 1,2,3; rank alone": LAYERS | RANK | {"method.cosine": 0.0},
    "mini-2; Wikipedia": MINI | {"data.files": "wiki.txt"},
}
FINAL: dict[str, dict[str, Any]] = {
    "mini-2": MINI | {"train.max_steps": 6000, "eval.eval_steps": 500},
    "three layers of MiniLM": LAYERS | {"encoder.layers": "1,3,5", "train.max_steps": 1500, "eval.eval_steps": 250},
}
CURVE = {
    f"layers 1,2,3; {text}": LAYERS | {"data.files": f"{text}.txt", "optimizer.lr_scheduler_type": "constant"}
    for text in ("wiki", "mix")
}
CURVE_STEPS = 500


def config_of(options: argparse.Namespace, settings: dict[str, Any], seed: int) -> Config:
    """Return the recipe with the settings of a run; MINI, TEACHER and names of texts stand for paths."""
    paths = {
        "MINI": options.mini,
        "TEACHER": options.teacher,
        **{f"{name}.txt": options.texts / f"{name}.txt" for name in ("wiki", "mix")},
    }
    common = {
        "data.files": "mix.txt", "data.max_seq_length": 256,
        "method.teacher": "TEACHER", "method.teacher_precision": "bfloat16", "train.precision": "bfloat16",
        "eval.held_out": str(options.texts / "held_out.txt"), "eval.select": "agreement", "eval.report_sentences": 0,
        "eval.max_seq_length": 128, "encoder.dropout": 0.0, "train.seed": seed, "train.save_steps": 250, "data.num_workers": 0,
    }  # fmt: skip
    config = read_config("distill_encoder")
    for name, value in (common | settings).items():
        override(config, name, str(paths[value]) if value in paths else value)
    check(config)
    return config


class Scores:
    """Scores embeddings on the five sets."""

    def __init__(self, folder: Path) -> None:
        tasks, _ = load_sts(folder)
        self.tasks = {name: tasks[name] for name in SETS}

    def __call__(self, embed: Callable[[Any], np.ndarray]) -> dict[str, float]:
        """Return Spearman x 100 over all pairs of each set, and the mean of the sets."""
        found = correlate_tasks(task_cosines(embed, self.tasks), self.tasks)
        values = {name: found[name]["spearman"]["all"] for name in SETS}
        return {**values, "mean": float(np.mean(list(values.values())))}


def without_map(export: Path) -> Callable[[Any], np.ndarray]:
    """Return the embedding of an exported student without W, the layer after its pooling."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(export, folder, dirs_exist_ok=True)
        (Path(folder) / "jax_sentemb.json").unlink()
        modules = [module for module in read_json(Path(folder) / "modules.json", list) if not module["type"].endswith("Dense")]
        write_json(Path(folder) / "modules.json", modules)
        return load(folder)


def folder_of(options: argparse.Namespace, setting: str, seed: int) -> Path:
    """Return the work directory of a run."""
    return options.output / options.stage / f"{''.join(c if c.isalnum() else '_' for c in setting)}-{seed}"


def train(options: argparse.Namespace, setting: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train a student, or continue it; return the row without scores. Exits with 75 after a signal."""
    folder = folder_of(options, setting, seed)
    begin = time.monotonic()
    if code := run(config_of(options, settings, seed), folder):
        sys.exit(code)
    results = read_json(folder / "scores.json")
    values = {name: f"{value:.2f}" for name, value in results["teacher"]["agreement"].items()}
    return {
        "setting": setting,
        "seed": seed,
        "step": results["step"],
        **values,
        "minutes": f"{(time.monotonic() - begin) / 60:.1f}",
    }


def scored(folder: Path, scores: Scores) -> dict[str, str]:
    """Return the scores of the exported vectors of a run, and the mean without W."""
    values = scores(load(folder / "export")) | {"mean without W": scores(without_map(folder / "export"))["mean"]}
    return {name: f"{value:.2f}" for name, value in values.items()}


def choose(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Yield the runs of the stage `choose`."""
    for setting, settings in CHOICES.items():
        yield setting, 1, functools.partial(train, options, setting, SHORT | settings, 1)


def final(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Yield the runs of the stage `final`."""

    def one(setting: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
        row = train(options, setting, settings, seed)
        return row | scored(folder_of(options, setting, seed), Scores(options.senteval))

    for seed in SEEDS:
        for setting, settings in FINAL.items():
            yield setting, seed, functools.partial(one, setting, settings, seed)


def curve(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Yield runs to each step of a curve; the run of a later step continues that of an earlier one."""

    def one(setting: str, settings: dict[str, Any], step: int) -> dict[str, Any]:
        row = train(options, setting, settings | {"train.max_steps": step, "eval.eval_steps": 0, "eval.select": "last"}, 1)
        return row | scored(folder_of(options, setting, 1), Scores(options.senteval)) | {"seed": step}

    for setting, settings in CURVE.items():
        for step in range(CURVE_STEPS, 5 * CURVE_STEPS, CURVE_STEPS):
            yield setting, step, functools.partial(one, setting, settings, step)


def baselines(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Yield what is not trained here: mini-2 by each pooling, layers, GloVe with SIF weights, the teacher, its static table."""
    models = {f"mini-2, {pooling}": f"{options.mini}@{pooling}" for pooling in ("cls", "mean", "first_last")}
    models |= {"the teacher": str(options.teacher)} | (
        {"static table of the teacher": str(options.static)} if options.static else {}
    )

    def model(name: str, source: str) -> dict[str, Any]:
        encode = load(source)
        return as_row(name, Scores(options.senteval)(encode)) | agreeing(options, encode)

    for name, source in models.items():
        yield name, 0, functools.partial(model, name, source)
    for name, settings in {
        "layers 1,2,3, not trained": LAYERS,
        "layers 2,4,6, not trained": LAYERS | {"encoder.layers": "2,4,6"},
    }.items():
        yield name, 0, functools.partial(untrained, options, name, settings)
    if options.glove:
        yield "GloVe, SIF and first component of the scored text", 0, functools.partial(sif_of_scored_text, options)
        yield "GloVe, SIF and first component of Wikipedia", 0, functools.partial(sif_of_wikipedia, options)


def untrained(options: argparse.Namespace, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the row of layers before any training."""
    row = train(options, name, settings | {"train.max_steps": 0}, 0)
    return row | scored(folder_of(options, name, 0), Scores(options.senteval))


def agreeing(options: argparse.Namespace, embed: Callable[[Any], np.ndarray]) -> dict[str, str]:
    """Return the agreement of a model with the teacher on held-out text."""
    sentences = open_corpus(str(options.texts / "held_out.txt"))
    vectors = teacher_vectors(str(options.teacher), "bfloat16", sentences, Subsample(min(2048, len(sentences)), 0))
    found = agreement(embed(list(sentences)), vectors.take(np.arange(len(sentences))), None)
    return {name: f"{value:.2f}" for name, value in found.items()}


def sif_of_scored_text(options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of GloVe with weights and first component of each scored set, as published (`sif+remove-first`)."""
    scores, values = Scores(options.senteval), {}
    for name, task in scores.tasks.items():
        texts = sentences_of(task)
        model = load_eval_model(
            f"{options.glove}@sif+remove-first", lambda texts=texts: {word for text in texts for word in text.split()}
        )
        vectors = dict(zip(texts, model.finish(model.fit(texts)(texts)), strict=True))
        embed = lambda some, vectors=vectors: np.stack([vectors[text] for text in some])  # noqa: E731
        values[name] = correlate_tasks(task_cosines(embed, {name: task}), {name: task})[name]["spearman"]["all"]
    return as_row("GloVe, SIF and first component of the scored text", values | {"mean": float(np.mean(list(values.values())))})


def sif_of_wikipedia(options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of GloVe with weights and first component of Wikipedia only (Arora, Liang and Ma 2017)."""
    scores = Scores(options.senteval)
    wiki = [" ".join(re.findall(r"\w+|[^\w\s]", text)) for text in open_corpus(str(options.texts / "wiki.txt"))]
    words = {word for task in scores.tasks.values() for text in sentences_of(task) for word in text.split()}
    words |= {word for text in wiki for word in text.split()}
    vectors = read_word_vectors(options.glove, words | {word.lower() for word in words})
    average = WordAverageBaseline(vectors, sif=1e-3).fit([text.lower() for text in wiki])
    component = np.linalg.svd(average.encode(wiki[:50_000]), full_matrices=False)[2][0]

    def embed(texts: Any) -> np.ndarray:
        found = average.encode([text.lower() for text in texts])
        return found - np.outer(found @ component, component)

    return as_row("GloVe, SIF and first component of Wikipedia", scores(embed))


def sentences_of(task: StsTask) -> list[str]:
    """Return the distinct sentences of a set."""
    return list(dict.fromkeys(text for pairs in task.subsets.values() for side in (pairs.first, pairs.second) for text in side))


def as_row(name: str, values: dict[str, float]) -> dict[str, Any]:
    """Return the row of something that is not trained."""
    return {"setting": name, "seed": 0} | {key: f"{value:.2f}" for key, value in values.items()}


def add_row(file: Path, row: dict[str, Any]) -> None:
    """Add a row to a table, which is replaced as a whole."""
    rows = [*rows_of(file), {name: str(row.get(name, "")) for name in FIELDS}]
    with replacing(file) as partial, partial.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def rows_of(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none if there is no file."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def main() -> None:
    """Run what a stage lacks."""
    stages = {function.__name__: function for function in (baselines, choose, final, curve)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=stages)
    for name in ("texts", "teacher", "mini", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--glove", type=Path, help="GloVe vectors; without them their baselines are left out")
    parser.add_argument("--static", type=Path, help="a static table of the teacher (jax-sentemb distill)")
    options = parse(parser, senteval="senteval")
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{options.stage}.csv"
    for setting, seed, row_of in stages[options.stage](options):
        if not any((row["setting"], row["seed"]) == (setting, str(seed)) for row in rows_of(file)):
            row = row_of()
            add_row(file, row)
            print({name: value for name, value in row.items() if value}, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
