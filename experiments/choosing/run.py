"""Which number that needs no labels picks the checkpoint, the setting and the seed that people's judgements would pick?

    python experiments/choosing/run.py --data DIR --weights bert-mini \\
        --workdir runs/choosing
    python experiments/choosing/run.py --workdir runs/choosing --tables-only

A run that is there is not repeated. Writes results.csv (every checkpoint of every run) and results.md here.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from jax_sentemb.config import check
from jax_sentemb.data import synthetic
from jax_sentemb.data.batches import make_batches
from jax_sentemb.evaluation.diagnostics import alignment, diagnose
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.parallel import make_mesh, use_compilation_cache
from jax_sentemb.recipes import read_config
from jax_sentemb.training.loop import batches_on_device
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.setup import corpus_sample, prepare
from jax_sentemb.training.starting_encoder import MAX_SEQ_LENGTH
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.training.validation import Validation

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse, require_model, rounded, write_rows

HERE = Path(__file__).parent
STEPS, EVERY = 64, 8
SEEDS = (0, 1, 2, 3, 4)
SAMPLE = 256  # sentences that are looked at without labels
IN_BATCH = {"method.form": "in_batch", "method.dropout": True, "optimizer.name": "adamw", "optimizer.lr_steps": "",
            "optimizer.adam_epsilon": 1e-8, "optimizer.max_grad_norm": 1.0}  # fmt: skip
# Name -> config, learning rate, what else is set.
RUNS = {
    "SimCSE": ("simcse", 1e-4, {}),
    "SimCSE, high rate": ("simcse", 5e-4, {}),
    "SimCSE, low rate": ("simcse", 2e-5, {}),
    "SimCSE, temperature 0.2": ("simcse", 1e-4, {"method.temperature": 0.2}),
    "CT in batch": ("ct", 1e-4, IN_BATCH),
    "MoCo+SimCSE": ("simcse_moco", 1e-4, {}),
    "AMI+SimCSE": ("simcse_ami", 1e-4, {"method.ami.weight": 10.0}),
    "Mirror-BERT": ("mirror_bert", 1e-4, {}),
}
SHARED = {
    "data.batch_size": 32, "data.max_seq_length": 24, "data.validation": 256, "train.max_steps": STEPS, "eval.max_seq_length": 32,
    "optimizer.warmup_steps": 0, "optimizer.lr_scheduler_type": "linear",
}  # fmt: skip
# Of these sets every fourth pair, every third, ...
SETS = {"STSBenchmark-dev": 4, "STSBenchmark-test": 3, "STS12": 16, "STS14": 16, "STS15": 16, "SICKRelatedness-test": 24}
TEST = ("STSBenchmark-test", "STS12", "STS14", "STS15", "SICKRelatedness-test")
DEV = "STS-B dev (labels)"
# What is tried, each so that higher should be better.
CANDIDATES = {
    DEV: lambda row: row["STSBenchmark-dev"],
    "retrieval (halves)": lambda row: row["halves retrieval"],
    "retrieval (words dealt out)": lambda row: row["dealt retrieval"],
    "retrieval (copy without a quarter of its words)": lambda row: row["deleted retrieval"],
    "generated pairs": lambda row: row["generated pairs"],
    "held-out loss": lambda row: -row["held-out loss"],
    "held-out accuracy": lambda row: row["held-out accuracy"],
    "alignment (halves)": lambda row: -row["halves alignment"],
    "uniformity": lambda row: -row["uniformity"],
    "alignment + uniformity": lambda row: -row["halves alignment"] - row["uniformity"],
    "mean cosine": lambda row: -row["mean_cosine"],
    "effective rank": lambda row: row["effective_rank"],
}


def settings(options, name):
    """The config of a run."""
    recipe, rate, chosen = RUNS[name]
    config = read_config(str(HERE.parents[1] / "configs" / f"{recipe}.py"))
    data = {"data.files": options.corpus, "encoder.weights": options.weights, "eval.data": options.senteval}
    for setting, value in {**SHARED, "optimizer.learning_rate": rate, **chosen, **data}.items():
        *path, last = setting.split(".")
        target = config
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    check(config)
    return config


def thinned(task, step):
    """Every `step`-th pair of a set."""
    subsets = {name: ScoredPairs(part.first[::step], part.second[::step], part.gold[::step]) for name, part in task.subsets.items()}
    return task._replace(subsets=subsets)


def copies(sentences):
    """Name -> two versions of each sentence: one word of four left out; the words dealt out at random; cut in the middle."""
    found = {"deleted": [], "dealt": [], "halves": []}
    for number, sentence in enumerate(sentences):
        draw, words = random.Random(number), sentence.split()
        places = range(len(words))
        dealt = set(draw.sample(places, len(words) // 2))
        kept = {place for place in places if draw.random() > 0.25}

        def only(chosen, words=words):
            return " ".join(word for place, word in enumerate(words) if place in chosen)

        found["deleted"].append((sentence, only(kept)))
        found["dealt"].append((only(dealt), only(set(places) - dealt)))
        found["halves"].append((only(places[: len(words) // 2]), only(places[len(words) // 2 :])))
    return found


def retrieval(first, second):
    """As that of evaluation/diagnostics.py, but a row that others are as near as counts as the nearest of them."""
    first, second = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12) for vectors in (first, second))
    cosine = first @ second.T
    own = np.diagonal(cosine)
    ranks = np.concatenate([(cosine > own[:, None]).sum(1), (cosine > own[None, :]).sum(0)]) + 1
    return 100 * float((1 / ranks).mean())


def look(embed, sentences, versions, tasks):
    """Everything that is known of the weights behind `embed`, with and without labels."""
    found = {name: float(value) for name, value in diagnose(embed(sentences)).items()}
    for name, pairs in versions.items():
        first, second = (embed([pair[side] for pair in pairs]) for side in (0, 1))
        found |= {f"{name} alignment": alignment(first, second), f"{name} retrieval": retrieval(first, second)}
    scores = correlate_tasks(task_cosines(embed, tasks), tasks)
    return found | {name: result["spearman"]["all"] for name, result in scores.items()}


def train(options):
    """One JSON file for each run that is not there: a row for each checkpoint."""
    use_compilation_cache()
    embedders, made = {}, {}
    for seed in SEEDS:
        for name in RUNS:
            file = options.workdir / f"{name.replace(' ', '_').replace(',', '')}-{seed}.json"
            if file.exists():
                continue
            begin, used = time.monotonic(), time.process_time()
            config = settings(options, name)
            method = config.method
            mesh = make_mesh(config.data.batch_size)
            if name not in made:
                material = prepare(config, options.workdir / "material")
                encoder = make_encoder(material.encoder_config, np.float32, config.encoder.dropout)
                optimizer = make_optimizer(config.optimizer, STEPS)
                step = make_step(method, encoder, optimizer, mesh)
                made[name] = material, encoder, optimizer, step, Validation(method, encoder, material.validation, mesh)
            material, encoder, optimizer, step, held_out = made[name]
            if method.pooling not in embedders:

                def embed(params, rows, method=method, encoder=make_encoder(material.encoder_config)):
                    return method.embed(encoder, {"encoder": params}, rows)

                embedders[method.pooling] = Embedder(embed, material.tokenizer, MAX_SEQ_LENGTH, 64)
            tasks = {task: thinned(material.tasks[task], every) for task, every in SETS.items()}
            tasks["generated pairs"] = StsTask("generated pairs", {"all": ScoredPairs(*synthetic.graded_pairs(200, 1))})
            sentences = corpus_sample(material, SAMPLE, 0)
            versions = copies(sentences)
            state = create_state(method, encoder, optimizer, material.loaded, seed, mesh)
            batches, rows = make_batches(material.examples, config.data.batch_size, seed), []
            for number, batch in enumerate(batches_on_device(batches.at, 0, STEPS, mesh), 1):
                state, metrics = step(state, batch)
                if number % EVERY == 0:
                    encoder_params = state.params["encoder"]
                    embedder = embedders[method.pooling]
                    row = look(lambda texts: embedder(encoder_params, texts), sentences, versions, tasks)  # noqa: B023
                    held = {f"held-out {key}": value for key, value in held_out(state).items()}
                    rows.append({"run": name, "seed": seed, "step": number, "train loss": float(metrics["loss"]), **row, **held})
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(rows), encoding="utf-8")
            cost = f"{time.monotonic() - begin:.0f} s, {time.process_time() - used:.0f} s of a core"
            print(
                f"{name}, seed {seed}: STS-B {rows[0]['STSBenchmark-test']:.2f} to {rows[-1]['STSBenchmark-test']:.2f}, {cost}",
                flush=True,
            )
            del state


def collect(workdir):
    """Every checkpoint of every run that is there, with "test": the mean over the test sets."""
    rows = [row for file in sorted(workdir.glob("*.json")) for row in json.loads(file.read_text(encoding="utf-8"))]
    return [{**row, "test": statistics.mean(row[name] for name in TEST)} for row in rows]


def grouped(rows, *names):
    """The rows of each combination of values, in the order of steps."""
    groups = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def agreement(rows, candidate):
    """Rank correlation x 100 with the test score; 0 for what is the same everywhere and so orders nothing."""
    values = [candidate(row) for row in rows]
    return 0.0 if len(set(values)) < 2 else 100 * float(spearmanr(values, [row["test"] for row in rows]).statistic)


def spread(values):
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def correlations(rows):
    """A line for each candidate: within a run, over the last checkpoints of all runs, over all checkpoints."""
    runs = grouped(rows, "run", "seed")
    lines = ["| by | within a run | between runs, last checkpoint | all checkpoints |", "|---|--:|--:|--:|"]
    for name, candidate in CANDIDATES.items():
        within = spread([agreement(run, candidate) for run in runs])
        lines.append(
            f"| {name} | {within} | {agreement([run[-1] for run in runs], candidate):.1f} | {agreement(rows, candidate):.1f} |"
        )
    return "\n".join(lines)


def selections(rows):
    """A line for each way to select: the test score reached, and how often the better seed."""
    ways = {
        "the best there is (test labels)": lambda group: max(group, key=lambda row: row["test"]),
        **{name: lambda group, by=by: max(group, key=by) for name, by in CANDIDATES.items()},
        "the last": lambda group: group[-1],
        "the first": lambda group: group[0],
    }
    oracle, *_ = ways.values()
    lines = [
        "| by | checkpoint of a run | lost at most | setting too, of SimCSE | method too | better seed |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    runs, seeds, settings = grouped(rows, "run", "seed"), grouped(rows, "seed"), grouped(rows, "run")
    for name, way in ways.items():
        reached = [way(run)["test"] for run in runs]
        lost = max(oracle(run)["test"] - score for run, score in zip(runs, reached, strict=True))
        cells = [spread(reached), f"{lost:.1f}"]
        if name in ("the last", "the first"):
            cells += [""] * 3
        else:
            of_simcse = [[row for row in seed if row["run"].startswith("SimCSE")] for seed in seeds]
            cells += [spread([way(group)["test"] for group in groups]) for groups in (of_simcse, seeds)]
            right = sum(way(setting)["seed"] == oracle(setting)["seed"] for setting in settings)
            cells.append(f"{right} of {len(settings)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stopped(rows, patience):
    """A line for each way to select: the test score where a run ends after `patience` checkpoints that are not better."""
    lines = [f"| by, patience {patience} | checkpoint of a run | steps of {STEPS} |", "|---|--:|--:|"]
    for name, candidate in CANDIDATES.items():
        reached, steps = [], []
        for run in grouped(rows, "run", "seed"):
            best = 0
            for place, row in enumerate(run):
                if candidate(row) > candidate(run[best]):
                    best = place
                if place - best >= patience:
                    break
            reached.append(run[best]["test"])
            steps.append(row["step"])
        lines.append(f"| {name} | {spread(reached)} | {statistics.mean(steps):.0f} |")
    return "\n".join(lines)


def courses(rows):
    """A line for each run: the test score at each checkpoint, mean over seeds."""
    steps = sorted({row["step"] for row in rows})
    lines = [f"| run | seeds | {' | '.join(f'step {step}' for step in steps)} |", "|---|--:|" + "--:|" * len(steps)]
    for name in RUNS:
        found = [run for run in grouped(rows, "run", "seed") if run[0]["run"] == name]
        means = [statistics.mean(row["test"] for row in at) for at in zip(*found, strict=True)]
        if found:
            lines.append(f"| {name} | {len(found)} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="")
    parser.add_argument("--workdir", type=Path, default=Path("runs/choosing"))
    parser.add_argument("--tables-only", action="store_true")
    options = parse(parser, corpus="corpora/wiki1m_for_simcse_head.txt.xz", senteval="senteval")
    if not options.tables_only:
        if not options.weights:
            parser.error("--weights is needed to train")
        require_model(options.weights)
        train(options)
    if not (rows := collect(options.workdir)):
        parser.error(f"--workdir {options.workdir} has no finished run")
    write_rows(HERE / "results.csv", rounded(rows))
    text = "\n\n".join((courses(rows), correlations(rows), selections(rows), stopped(rows, 2))) + "\n"
    (HERE / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
