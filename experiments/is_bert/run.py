"""IS-BERT in its settings, from a small BERT: similarity without labels, STS-B with labels, text of one task.

    python experiments/is_bert/prepare.py --data DIR --output nli_captions.txt
    python experiments/is_bert/run.py --corpus nli_captions.txt --weights bert-mini --data DIR --workdir runs/is_bert
    python experiments/is_bert/run.py --workdir runs/is_bert --tables-only

A run that has its scores or a row of the CSV file is not repeated, one that was interrupted continues. --stages: tune, sts, task,
afs, stsb. With --weights experiments/pretraining/mini-2 --steps 3000 --rate 2e-6 --epochs 4 --seeds 1,2,3,4,5 --precision bfloat16
--results mini_2: the longer study. The checkpoint is selected on the pairs of STS-B dev that are in no scored set.
Writes results.csv and results.md beside this file; the rows of runs in the work directory replace others.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse, read_rows, require_model, write_rows

from jax_sentemb.evaluation.catalog import DISJOINT_DEV

HERE = Path(__file__).parent
SETS = {"STS12": "STS12", "STS14": "STS14", "STS15": "STS15", "STSb": "STSBenchmark-test", "SICK-R": "SICKRelatedness-test"}
TASKS = ("MR", "CR", "TREC", "MRPC", "SST2")
SEEDS = ("1", "2", "3")  # of the stage stsb, unless --seeds names others
# Candidates for IS-BERT's learning rate, 300 steps each, scored on STS-B dev (stage tune).
TUNED = ("2e-6", "2e-5", "1e-4", "5e-4")
RARE = ("--config.train.save_steps=0", "--config.train.logging_steps=100")


def seeded(options, named, default=()):
    """Return the runs `named` (name -> flags) once for each seed; without seeds, with that of the recipe."""
    seeds = options.seeds or default
    if not seeds:
        return named
    return {
        f"{name} seed {seed}": (*flags, f"--config.train.seed={seed}") for seed in seeds for name, flags in named.items()
    }  # fmt: skip


def runs(options):
    """Return stage -> name of a run -> flags."""
    rate = f"--config.optimizer.learning_rate={options.rate}"
    text = ("--config.data.column=text", f"--config.data.files={options.corpus}")
    is_bert = ("--config=configs/is_bert.py", *text)
    steps = (f"--config.train.max_steps={options.steps}", f"--config.eval.eval_steps={max(options.steps // 10, 100)}")
    short = ("--config.train.max_steps=300", "--config.eval.eval_steps=100")
    labelled = (
        f"--config.train.num_train_epochs={options.epochs}", f"--config.optimizer.learning_rate={options.labelled_rate}",
        f"--config.eval.eval_steps={120 * options.epochs}",
    )  # fmt: skip
    before = (
        f"--config.pretrain.optimizer.learning_rate={options.rate}", f"--config.pretrain.train.num_train_epochs={options.epochs}"
    )  # fmt: skip
    supervised = {
        "ft": ("--config=configs/is_bert_ft.py", *labelled),
        "ssl+ft": ("--config=configs/is_bert_ssl_ft.py", *labelled, *before),
        "SBERT": ("--config=configs/sbert_stsb.py", *labelled),
        "cross-encoder": ("--config=configs/cross_encoder_stsb.py", *labelled),
    }
    return {
        "tune": {f"rate {r}": (*is_bert, *short, f"--config.optimizer.learning_rate={r}") for r in TUNED},
        "sts": {
            "untrained [CLS]": ("--config=configs/simcse.py", text[1], "--config.train.max_steps=0"),
            "untrained mean": ("--config=configs/mlm.py", text[1], "--config.train.max_steps=0"),
            **seeded(options, {
                "IS-BERT": (*is_bert, *steps, rate),
                "IS-BERT paper form": (*is_bert, *steps, rate, "--config.method.normalization=sentences",
                                       "--config.method.convolution.relu=True"),
                "SimCSE": ("--config=configs/simcse.py", text[1], *steps),
            }),
        },
        "afs": seeded(options, {
            "IS-BERT-AFS": ("--config=configs/is_bert_afs.py", f"--config.data.files={options.arguments}", *short, rate),
        }),
        "stsb": seeded(options, supervised, SEEDS),
        "task": seeded(options, {
            f"IS-BERT-task {task}": (
                "--config=configs/is_bert_task.py", "--config.sweep=", f"--config.data.files=senteval:{task}", *short, rate,
            )
            for task in TASKS
        }),
    }  # fmt: skip


def folder(options, stage, name):
    return options.workdir / stage / name.replace(" ", "_").replace("[", "").replace("]", "")


def train(options, stage, chosen):
    done = {run_of(*key) for key in read(options)}
    for name, flags in chosen.items():
        workdir = folder(options, stage, name)
        label, _, seed = name.partition(" seed ")
        if (workdir / "scores.json").exists() or (stage, label, seed) in done or (options.models and label not in options.models):
            continue
        print(f"== {stage}: {name}", flush=True)
        data = [
            f"--config.encoder.weights={options.weights}", f"--config.eval.data={options.senteval}",
            f"--config.eval.dev={DISJOINT_DEV}",
            "--workdir", str(workdir),
        ]  # fmt: skip
        precision = f"--config.train.precision={options.precision}"
        subprocess.run([sys.executable, "-m", "jax_sentemb.main", *flags, *RARE, precision, *data], check=True)


def evaluate(options, stage):
    """Scores of the models that did not see the tasks, and on arguments of all."""
    models = {"BERT [CLS]": f"{options.weights}@cls", "BERT mean": f"{options.weights}@mean"}
    stages = ("sts", "afs") if stage == "afs" else ("sts",)
    trained = {
        name: folder(options, part, name)
        for part in stages for name in runs(options)[part] if name.partition(" seed ")[0] in ("IS-BERT", "SimCSE", "IS-BERT-AFS")
    }  # fmt: skip
    models |= {name: str(run) for name, run in trained.items() if (run / "scores.json").exists()}
    if stage == "afs":
        models["tf-idf"] = "tf-idf"
        tasks = ["--arguments", options.arguments]
    else:
        tasks = ["--data", options.senteval, "--tasks", ",".join(TASKS)]
    named = [argument for name, model in models.items() for argument in ("--model", f"{name}={model}")]
    output = ["--output", str(options.workdir / f"{stage}-scores")]
    subprocess.run([sys.executable, "-m", "jax_sentemb", "evaluate", *named, *tasks, *output], check=True)


def table_file(options):
    return HERE / f"{options.results}.csv"


def read(options):
    """Return (table, model, score, seed) -> value of the rows that the study has, without the averages of tasks."""
    return {
        (row["table"], row["model"], row["score"], row["seed"]): float(row["value"])
        for row in read_rows(table_file(options)) if (row["table"], row["score"]) != ("task", "average")
    }  # fmt: skip


def run_of(table, label, column, seed):
    """Return (stage, name, seed) of the run that a row is from."""
    return (table, f"{label} {column}" if label == "IS-BERT-task" else label, seed)


def collect(options):
    """Return (table, row, column, value, seed) of every row that the study has, and of the runs in the work directory."""
    rows = {**read(options), **{(*key, seed): value for *key, value, seed in word_vectors() + scored(options)}}
    found = [(*key, value, seed) for (*key, seed), value in rows.items()]
    return found + averages([row for row in found if row[0] == "task"])


def scored(options):
    """Return such rows of the runs in the work directory."""
    found = []
    for stage, chosen in runs(options).items():
        for name in chosen:
            file = folder(options, stage, name) / "scores.json"
            if not file.exists():
                continue
            content = json.loads(file.read_text(encoding="utf-8"))
            spearman = {label: result["spearman"]["all"] for label, result in content["scores"].items()}
            label, _, seed = name.partition(" seed ")
            if stage == "task":
                task = label.split()[-1]
                found.append(("task", "IS-BERT-task", task, content["transfer"][task]["scores"]["accuracy"], seed))
            elif stage == "afs":
                continue  # scored below, with the others
            elif stage == "tune":
                found.append(("tune", label, "STSb dev", spearman[DISJOINT_DEV], ""))
            elif stage == "stsb":
                found += [("stsb", label, column, spearman[task], seed) for column, task in (
                    ("STSb dev", DISJOINT_DEV), ("STSb test", "STSBenchmark-test"))]  # fmt: skip
            else:
                scores = {column: spearman[task] for column, task in SETS.items()}
                scores["average"] = statistics.mean(scores.values())
                found += [("sts", label, column, value, seed) for column, value in scores.items()]
    for file in sorted(options.workdir.glob("*-scores/*/*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        label, _, seed = content["model"].partition(" seed ")
        if content["group"] == "arguments":
            mean = content["scores"]["unsupervised"]
            found += [("afs", label, measure, mean[measure]["mean"], seed) for measure in ("pearson", "spearman")]
        else:
            found.append(("task", label, content["task"], content["scores"]["accuracy"], seed))
    return found


def word_vectors():
    """Return the scores of averaged GloVe vectors of 50 dimensions, from the baselines of all studies."""
    scores = next(row for row in read_rows(HERE.parent / "baselines.csv") if row["baseline"] == "word vectors, mean")
    return [("sts", "GloVe mean", column, float(scores[name]), "") for column, name in (SETS | {"average": "average"}).items()]


def averages(rows):
    """Return a row for each model and seed that has all tasks."""
    scores = {}
    for _, model, _, value, seed in rows:
        scores.setdefault((model, seed), []).append(value)
    return [
        ("task", model, "average", statistics.mean(some), seed) for (model, seed), some in scores.items() if len(some) == len(TASKS)
    ]


def tables(found):
    lines = []
    for name in dict.fromkeys(row[0] for row in found):
        part = [row for row in found if row[0] == name]
        columns = list(dict.fromkeys(row[2] for row in part))
        lines += [f"**{name}**", "", "| | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        for label in dict.fromkeys(row[1] for row in part):
            cells = []
            for column in columns:
                values = [row[3] for row in part if row[1:3] == (label, column)]
                spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.2f}{spread}" if values else "")
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="")
    parser.add_argument("--weights", default="")
    parser.add_argument("--workdir", type=Path, default=Path("runs/is_bert"))
    parser.add_argument("--stages", default="sts,task,afs,stsb")
    parser.add_argument("--seeds", type=lambda text: text.split(","), default=(), help="of every stage but tune")
    parser.add_argument("--rate", default="2e-5", help="learning rate of IS-BERT (default: the best of bert-mini)")
    parser.add_argument("--labelled-rate", default="2e-5", help="learning rate of the stage stsb (default: that of the recipes)")
    parser.add_argument("--steps", type=int, default=400, help="of the stage sts")
    parser.add_argument("--epochs", type=int, default=1, help="of each training of the stage stsb")
    parser.add_argument("--models", nargs="+", help="only these of a stage, as ft or IS-BERT")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--results", default="results", help="name of the CSV and of the tables beside this file")
    parser.add_argument("--tables-only", action="store_true")
    options = parse(parser, senteval="senteval", arguments="afs/UKP_ASPECT.tsv")
    if not options.tables_only:
        if not (options.corpus and options.weights):
            parser.error("--corpus and --weights are needed to train")
        require_model(options.weights)
        for stage in options.stages.split(","):
            train(options, stage, runs(options)[stage])
            if stage in ("task", "afs"):
                evaluate(options, stage)
    found = collect(options)
    rows = [(table, label, column, f"{value:.4f}", seed) for table, label, column, value, seed in found]
    write_rows(table_file(options), rows, ("table", "model", "score", "value", "seed"))
    (HERE / f"{options.results}.md").write_text(tables(found), encoding="utf-8")
    print(tables(found))
    done = {run_of(table, label, column, seed) for table, label, column, _, seed in found}
    chosen = [(stage, name) for stage, named in runs(options).items() for name in named]
    if missing := [name for stage, name in chosen if (stage, *name.partition(" seed ")[::2]) not in done]:
        print("not trained, so in no table: " + ", ".join(missing))


if __name__ == "__main__":
    main()
