"""Distils all-MiniLM-L6-v2 into mini-2 and into layers of itself: baselines, the choice of settings, final runs, curves, widths.

    python experiments/stronger/texts.py --data DIR --output texts
    python experiments/stronger/distil.py STAGE --texts texts --data DIR --teacher MINILM --mini mini-2 \\
        --output runs/distil

Stages: `baselines` (not trained), `choose` (one seed of each setting; no labels are read), `final` (five seeds of the chosen
settings), `curve` (scores along a run on Wikipedia and on mixed text), `matryoshka` (scores of short embeddings: prefixes that were
trained, beside PCA of ordinary students). One run at a time; its rows in STAGE.csv are written at its end. SIGTERM ends after
the step, and the same command continues. `--settings` and `--seeds` limit a stage to some of its runs.
"""

import argparse
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import add_rows, parse, read_rows

from jax_sentemb.config import Config, check
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokens import Subsample
from jax_sentemb.distillation.teacher import teacher_vectors
from jax_sentemb.evaluation.agreement import agreement
from jax_sentemb.evaluation.catalog import load_sts
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.files import read_json, write_json
from jax_sentemb.formats.run_dir import read_checkpoint, read_metadata
from jax_sentemb.inference.export import export_run
from jax_sentemb.inference.load import load
from jax_sentemb.inference.postprocess import principal_axes
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training.run import run

SETS = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
MEASURES = ("neighbours", "pairs", "cosine")
FIELDS = ("setting", "seed", "step", *MEASURES, "minutes", *SETS, "mean", "mean without W")
WIDTH_FIELDS = ("setting", "seed", "embedding", "width", "step", *SETS, "mean", "of the full width, %")
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
    f"layers 1,2,3; {text}": LAYERS
    | {"data.files": f"{text}.txt", "data.subset": 50_000, "optimizer.lr_scheduler_type": "constant", "optimizer.warmup_steps": 38}
    for text in ("wiki", "mix")
}
CURVE_STEPS = (250, 500, 750, 1000, 1250, 1500)
# Widths of an embedding of mini-2, which has 256. The teacher's width cannot be cut, so the student's vectors are exported.
WIDTHS = (64, 128)
TRAINED_WIDTHS = {"train.matryoshka": ",".join(map(str, WIDTHS))}
PREFIXES = FINAL["mini-2"] | TRAINED_WIDTHS | {"method.output": "student"}
# The student that ships goes on without W, by the order of a batch alone: a few minutes instead of an hour.
CONTINUED: dict[str, Any] = RANK | {
    "encoder.weights": "STUDENT", "encoder.readout": "method", "method.cosine": 0.0, "method.output": "student",
    "optimizer.learning_rate": 2e-4, "train.max_steps": 600, "eval.eval_steps": 300, "data.subset": 50_000,
    "data.max_seq_length": 64,
}  # fmt: skip
MATRYOSHKA: dict[str, dict[str, Any]] = {
    "mini-2; prefixes": PREFIXES,
    "mini-2; prefixes; rank": PREFIXES | RANK,
    "mini-2; PCA": FINAL["mini-2"],
    "mini-2; rank; PCA": FINAL["mini-2"] | RANK,
    "mini-distilled; prefixes": CONTINUED | TRAINED_WIDTHS,
    "mini-distilled; PCA": CONTINUED,
}
PCA_SENTENCES = 50_000  # of the training text

Row = dict[str, Any]
Embed = Callable[[Any], np.ndarray]
Cut = Callable[[Any, int | None], np.ndarray]  # sentences and a width (None: all numbers) -> embeddings
Run = tuple[str, int, Callable[[], Row | list[Row]]]  # setting, seed, and the function that makes rows of the table


def config_of(options: argparse.Namespace, settings: dict[str, Any], seed: int) -> Config:
    """Return the recipe with the settings of a run; MINI, STUDENT, TEACHER and names of texts stand for paths."""
    paths = {
        "STUDENT": Path(__file__).parent / "mini-distilled",
        "MINI": options.mini,
        "TEACHER": options.teacher,
        **{f"{name}.txt": options.texts / f"{name}.txt" for name in ("wiki", "mix")},
    }
    common = {
        "data.files": "mix.txt", "data.max_seq_length": 256,
        "method.teacher": "TEACHER", "method.teacher_precision": options.precision, "train.precision": options.precision,
        "eval.held_out": str(options.texts / "held_out.txt"), "eval.select": "agreement", "eval.report_sentences": 0,
        "encoder.dropout": 0.0, "train.seed": seed, "train.save_steps": 250, "data.num_workers": 0,
    }  # fmt: skip
    config = read_config("distill_encoder")
    for name, value in (common | settings).items():
        override(config, name, str(paths[value]) if value in paths else value)
    check(config)
    return config


class Scores:
    """Scores embeddings on the five sets, or on others."""

    def __init__(self, folder: Path, names: tuple[str, ...] = SETS) -> None:
        tasks, _ = load_sts(folder)
        self.tasks = {name: tasks[name] for name in names}

    def __call__(self, embed: Callable[[Any], np.ndarray]) -> dict[str, float]:
        """Return Spearman x 100 over all pairs of each set, and the mean of the sets."""
        found = correlate_tasks(task_cosines(embed, self.tasks), self.tasks)
        values = {name: found[name]["spearman"]["all"] for name in self.tasks}
        return {**values, "mean": float(np.mean(list(values.values())))}


def without_map(export: Path) -> Callable[[Any], np.ndarray]:
    """Return the embedding of an exported student without W, the layer after its pooling."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(export, folder, dirs_exist_ok=True)
        (Path(folder) / "jax_sentemb.json").unlink()
        modules = [module for module in read_json(Path(folder) / "modules.json", list) if not module["type"].endswith("Dense")]
        write_json(Path(folder) / "modules.json", modules)
        return load(folder)


def folder_of(options: argparse.Namespace, setting: str, seed: int, stage: str = "") -> Path:
    """Return the work directory of a run of a stage, by default that of the command line."""
    return options.output / (stage or options.stage) / f"{''.join(c if c.isalnum() else '_' for c in setting)}-{seed}"


def train(
    options: argparse.Namespace, setting: str, settings: dict[str, Any], seed: int, folder: Path | None = None
) -> dict[str, Any]:
    """Train a student in `folder`, by default that of the stage, or continue it; return the row without scores.

    Exits with 75 after a signal.
    """
    folder = folder or folder_of(options, setting, seed)
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


def choose(options: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs of the stage `choose`."""
    for setting, settings in CHOICES.items():
        yield setting, 1, functools.partial(train, options, setting, SHORT | settings, 1)


def final(options: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs of the stage `final`."""

    def one(setting: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
        row = train(options, setting, settings, seed)
        return row | scored(folder_of(options, setting, seed), Scores(options.senteval))

    for seed in SEEDS:
        for setting, settings in FINAL.items():
            yield setting, seed, functools.partial(one, setting, settings, seed)


def curve(options: argparse.Namespace) -> Iterator[Run]:
    """Yield runs that keep the checkpoint of each step of the curve, which are then scored."""
    kept = {
        "train.max_steps": CURVE_STEPS[-1],
        "train.save_steps": CURVE_STEPS[0],
        "train.keep_checkpoints": CURVE_STEPS[-1] // CURVE_STEPS[0],
    }

    def points(setting: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
        train(options, setting, settings | kept | {"eval.eval_steps": 0, "eval.select": "last"}, 1)
        folder, scores, rows = folder_of(options, setting, 1), Scores(options.senteval), []
        for step in CURVE_STEPS:
            params, _ = read_checkpoint(folder, str(step))
            with tempfile.TemporaryDirectory() as exported:
                export_run(Path(exported) / "export", read_metadata(folder), params, folder, step)
                rows.append({"setting": setting, "seed": 1, "step": step, **scored(Path(exported), scores)})
        return rows

    for setting, settings in CURVE.items():
        yield setting, 1, functools.partial(points, setting, settings)


def matryoshka(options: argparse.Namespace) -> Iterator[Run]:
    """Yield students whose prefixes are trained, and ordinary students with PCA; one of these is the student of `final`."""

    def cuts_of(export: Path, settings: dict[str, Any]) -> dict[str, Cut]:
        embed = remembering(load(export))
        cuts: dict[str, Cut] = {"prefix": lambda texts, width: embed(texts)[:, :width]}
        if "train.matryoshka" in settings:
            return cuts
        sentences = training_text(options)
        if settings.get("method.output") == "student":
            return cuts | pca("s", embed, sentences)
        return cuts | pca("W s", embed, sentences) | pca("s", remembering(without_map(export)), sentences)

    def student(setting: str, settings: dict[str, Any], seed: int) -> list[dict[str, Any]]:
        is_final = settings == FINAL["mini-2"]
        folder = folder_of(options, "mini-2", seed, "final") if is_final else folder_of(options, setting, seed)
        row = train(options, setting, settings, seed, folder)
        return width_rows(options, row, cuts_of(folder / "export", settings))

    for seed in SEEDS:
        for setting, settings in MATRYOSHKA.items():
            yield setting, seed, functools.partial(student, setting, settings, seed)


def remembering(embed: Embed) -> Embed:
    """Return a function with the results of `embed` that embeds each text once."""
    vectors: dict[str, np.ndarray] = {}

    def embed_new(texts: Any) -> np.ndarray:
        if new := [text for text in dict.fromkeys(texts) if text not in vectors]:
            vectors.update(zip(new, embed(new), strict=True))
        return np.stack([vectors[text] for text in texts])

    return embed_new


def training_text(options: argparse.Namespace) -> list[str]:
    """Return up to PCA_SENTENCES evenly spread sentences of the mixed text."""
    sentences = open_corpus(str(options.texts / "mix.txt"))
    rows = np.unique(np.linspace(0, len(sentences) - 1, min(PCA_SENTENCES, len(sentences))).astype(int))
    return [sentences[row] for row in rows.tolist()]


def pca(name: str, embed: Embed, sentences: list[str]) -> dict[str, Cut]:
    """Return projections on the principal axes of the embeddings of some sentences, with their mean subtracted and without."""
    mean, _, axes = principal_axes(embed(sentences))
    return {
        f"PCA of {name}": lambda texts, width: (embed(texts) - mean) @ axes[:, :width],
        f"PCA of {name}, mean not subtracted": lambda texts, width: embed(texts) @ axes[:, :width],
    }


def width_rows(options: argparse.Namespace, row: dict[str, Any], cuts: dict[str, Cut]) -> list[dict[str, Any]]:
    """Return the scores of each way to cut an embedding at each width, and of the whole embedding."""
    scores, rows = Scores(options.senteval), []
    for name, cut in cuts.items():
        full = cut(["a sentence"], None).shape[1]
        by_width = {width: scores(functools.partial(cut, width=width)) for width in (*WIDTHS, full)}
        for width, values in by_width.items():
            values |= {"of the full width, %": 100 * values["mean"] / by_width[full]["mean"]}
            texts = {field: f"{value:.2f}" for field, value in values.items()}
            rows.append({**row, "embedding": name, "width": width, **texts})
    return rows


def baselines(options: argparse.Namespace) -> Iterator[Run]:
    """Yield what is not trained here: mini-2 by each pooling, layers, the teacher, its static table."""
    models = {f"mini-2, {pooling}": f"{options.mini}@{pooling}" for pooling in ("cls", "mean", "first_last")}
    models |= {"the teacher": str(options.teacher)} | (
        {"static table of the teacher": str(options.static)} if options.static else {}
    )

    def model(name: str, source: str) -> dict[str, Any]:
        encode = load(source)
        return as_row(name, Scores(options.senteval)(encode)) | agreeing(options, encode)

    for name, source in models.items():
        yield name, 0, functools.partial(model, name, source)
    for layers in ("1,2,3", "1,3,5", "2,4,6"):
        name = f"layers {layers}, not trained"
        yield name, 0, functools.partial(untrained, options, name, LAYERS | {"encoder.layers": layers})


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


def as_row(name: str, values: dict[str, float]) -> dict[str, Any]:
    """Return the row of something that is not trained."""
    return {"setting": name, "seed": 0} | {key: f"{value:.2f}" for key, value in values.items()}


def chosen(options: argparse.Namespace, runs: list[Run], parser: argparse.ArgumentParser) -> list[Run]:
    """Return the runs of a stage that --settings and --seeds choose; end with an error if the stage lacks one of them."""
    settings, seeds, _ = (set(column) for column in zip(*runs, strict=True))
    for option, own in (("settings", settings), ("seeds", seeds)):
        given = getattr(options, option)
        if unknown := [value for value in given or () if value not in own]:
            choices = " | ".join(map(str, sorted(own)))
            parser.error(f"--{option} {unknown[0]}: not in the stage {options.stage}; choose from {choices}")
    settings, seeds = options.settings or settings, options.seeds or seeds
    return [each for each in runs if each[0] in settings and each[1] in seeds]


def main() -> None:
    """Run what a stage lacks."""
    stages = {function.__name__: function for function in (baselines, choose, final, curve, matryoshka)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=stages)
    for name in ("texts", "teacher", "mini", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--static", type=Path, help="a static table of the teacher (jax-sentemb distill)")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="bfloat16", help="float32 is faster on a CPU without AVX-512"
    )
    parser.add_argument("--settings", nargs="+", metavar="NAME", help="only these settings of the stage")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="only these seeds")
    options = parse(parser, senteval="senteval")
    runs = chosen(options, list(stages[options.stage](options)), parser)
    options.output.mkdir(parents=True, exist_ok=True)
    file, fields = options.output / f"{options.stage}.csv", WIDTH_FIELDS if options.stage == "matryoshka" else FIELDS
    for setting, seed, rows_of_run in runs:
        if not any((row["setting"], row["seed"]) == (setting, str(seed)) for row in read_rows(file)):
            result = rows_of_run()
            rows = result if isinstance(result, list) else [result]
            add_rows(file, rows, fields)
            for row in rows:
                print({name: row[name] for name in fields if row.get(name)}, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
