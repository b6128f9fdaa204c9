"""Trains mini-2 without another model and without labels: by each self-contained method, or one after another.

    python experiments/stronger/self_contained.py --data DIR --mini experiments/pretraining/mini-2 --output runs/self

Every chain of recipes is run with every seed, and scored at its last step. `--chains` and `--seeds` run a part. A row of
self_contained.csv is a run, and the same command continues.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from distil import SETS
from study_data import add_rows, parse, read_rows

from jax_sentemb.config import Config, check
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.files import read_json
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training.run import run

FIELDS = ("chain", "seed", "dev", *SETS, "mean")
VARIED = ("method.sentences",)  # settings in the name of a folder
PREVIOUS = "PREVIOUS"  # stands for the encoder that a step starts from
Step = tuple[str, dict[str, Any]]  # a recipe and its settings

AMI: Step = (
    "simcse_ami",
    {"method.ami.weight": 3.0, "method.ami.depth": "upper", "optimizer.learning_rate": 1e-4, "optimizer.warmup_steps": 0,
     "data.batch_size": 64, "train.max_steps": 300},
)  # fmt: skip
CROPS: Step = (
    "crops",
    {"data.files": "ordered", "optimizer.learning_rate": 3e-4, "optimizer.warmup_ratio": 0.05, "data.batch_size": 512,
     "train.max_steps": 1000},
)  # fmt: skip
# 19,200 sentences at the rate of AMI, as SimCSE in experiments/simcse_family.
SHORT = {"optimizer.learning_rate": 1e-4, "data.subset": 100_000}
SIMCSE: Step = ("simcse", SHORT | {"method.pooling": "cls", "data.batch_size": 64, "train.max_steps": 300})
RANK: Step = ("simcse_rank", SIMCSE[1])
# The settings of the paper for a BERT of this size, with a queue that these steps can fill.
SCT: Step = ("sct", {"method.queue_size": 16_384, "data.subset": 100_000, "train.max_steps": 300})
TSDAE: Step = ("tsdae", SHORT | {"train.max_steps": 2400})
WORDS: Step = (
    "distill_encoder",
    {"method.teacher": "words:1024", "encoder.readout": "method", "method.teacher_precision": "bfloat16", "data.validation": 0,
     "data.subset": 100_000, "encoder.dropout": 0.1, "optimizer.learning_rate": 5e-4, "train.max_steps": 1200},
)  # fmt: skip
CHAINS: dict[str, list[Step]] = {
    "AMI": [AMI],
    "words": [WORDS],
    "AMI, then words and itself": [AMI, (WORDS[0], WORDS[1] | {"method.teacher": f"words:1024,{PREVIOUS}"})],
    "SimCSE": [SIMCSE],
    "SimCSE, rank consistency": [RANK],
    "SCT": [SCT],
    "TSDAE": [TSDAE],
    "crops": [CROPS],
    "crops of one sentence": [(CROPS[0], CROPS[1] | {"method.sentences": 1})],
    "crops, then AMI": [CROPS, AMI],
}


def config_of(options: argparse.Namespace, step: Step, weights: Path, seed: int) -> Config:
    """Return the config of one step of a chain, which starts from `weights`."""
    recipe, settings = step
    config = read_config(recipe)
    common = {
        "data.files": "sentences", "encoder.weights": str(weights), "train.precision": options.precision, "train.seed": seed,
        "train.save_steps": 0, "eval.data": options.senteval, "eval.dev": DISJOINT_DEV, "eval.eval_steps": 0, "eval.select": "last",
        "eval.report_sentences": 0,
    }  # fmt: skip
    files = {"sentences": options.sentences, "ordered": options.ordered}
    for name, value in (common | settings).items():
        if name == "data.files":
            value = ",".join(files[text] for text in value.split(","))
        override(config, name, value.replace(PREVIOUS, str(weights)) if name == "method.teacher" else value)
    check(config)
    return config


def train(options: argparse.Namespace, chain: str, seed: int) -> dict[str, Any]:
    """Train a chain, or continue it; return its row. Chains with the same first steps share them. Exits with 75 after a signal."""
    weights, folder = options.mini, options.output
    for recipe, settings in CHAINS[chain]:
        name = "-".join([recipe, *(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items() if key in VARIED)])
        folder = folder / name
        run_folder = folder / f"seed-{seed}"
        if not (run_folder / "scores.json").is_file() and (
            code := run(config_of(options, (recipe, settings), weights, seed), run_folder)
        ):
            sys.exit(code)
        weights = run_folder / "export"
    scores = {name: result["spearman"]["all"] for name, result in read_json(run_folder / "scores.json", dict)["scores"].items()}
    five = [scores[name] for name in SETS]
    values = {"dev": scores[DISJOINT_DEV], **dict(zip(SETS, five, strict=True)), "mean": statistics.mean(five)}
    return {"chain": chain, "seed": seed} | {name: f"{value:.2f}" for name, value in values.items()}


def main() -> None:
    """Run what the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--chains", nargs="+", choices=CHAINS, default=list(CHAINS))
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="bfloat16", help="float32 is faster on a CPU without AVX-512"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parse(parser, sentences="corpora/wiki_sentences.txt.xz", ordered="corpora/ordered_wiki.txt.xz", senteval="senteval")
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "self_contained.csv"
    for chain in options.chains:
        for seed in options.seeds:
            if any((row["chain"], row["seed"]) == (chain, str(seed)) for row in read_rows(file)):
                continue
            row = train(options, chain, seed)
            add_rows(file, [row], FIELDS)
            print(row, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
