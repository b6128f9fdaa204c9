"""Masked-language-model training of a small BERT on everything there is, scored while it trains.

    python experiments/pretraining/run.py --data DIR --weights bert-mini --workdir runs/pretraining
    python experiments/pretraining/run.py ... --trial 150                 rates, masking rates and dropout, so many steps each
    python experiments/pretraining/run.py ... --decay-from 8000 --steps 1000   ends the run from that step: rate linear to 0
    python experiments/pretraining/run.py ... --decay-from 8000 --publish experiments/pretraining/mini-2   its weights in float16

`--corpora` and `--senteval` are folders; `--captions` adds the rows of captions_multi30k that no STS or SICK file shares a sentence
with. A run that was stopped continues with the same command. The rate is constant after the warm-up, so that a run may end at any
step. Writes curve.csv and curve.png (or trial.csv) into the work directory.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from captions import write_captions
from halves import save_halves
from study_data import parse, read_rows, require_model, write_rows

ROOT = Path(__file__).parents[2]
CORPORA = ("wiki_sentences", "ordered_wiki", "ordered_novels", "news_1b_heldout", "wiki1m_for_simcse_head")
SETS = {
    "STS12": "STS12", "STS14": "STS14", "STS15": "STS15", "STSb": "STSBenchmark-test", "SICK-R": "SICKRelatedness-test",
}  # fmt: skip
POOLINGS = ("mean", "first_last")
WIDTH, ROWS, RATE = 64, 64, 1e-3
TRIAL = {  # the name of a setting -> what it changes
    "rate 3e-4": {"optimizer.learning_rate": 3e-4},
    "rate 1e-3": {},
    "rate 2e-3": {"optimizer.learning_rate": 2e-3},
    "masking 0.3": {"method.mlm_probability": 0.3},
    "dropout 0.1": {"encoder.dropout": 0.1},
}
POLL = 20  # seconds between two looks for a new checkpoint


def corpus_files(options):
    """The files to train on; the captions are written to the work directory first."""
    files = [options.corpora / f"{name}.txt.xz" for name in CORPORA]
    if options.captions:
        captions = options.workdir / "captions.txt"
        if not captions.exists():
            write_captions(options.corpora, options.senteval, captions)
        files.append(captions)
    return ",".join(map(str, files))


def command(options, workdir, settings):
    """The command of one run; `settings` take the place of the usual ones."""
    every = options.score_every
    values = {
        "data.files": corpus_files(options), "data.pack": True, "data.max_seq_length": WIDTH, "data.batch_size": ROWS,
        "data.validation": 1024, "encoder.weights": options.weights, "encoder.dropout": 0.0, "optimizer.learning_rate": RATE,
        "optimizer.lr_scheduler_type": "constant", "optimizer.warmup_steps": 300, "eval.data": options.senteval,
        "eval.eval_steps": every, "eval.select": "last", "eval.report_sentences": 0, "train.max_steps": options.steps,
        "train.save_steps": every, "train.keep_checkpoints": 3, "train.precision": "bfloat16", "train.seed": 0, **settings,
    }  # fmt: skip
    flags = [f"--config.{name}={value}" for name, value in values.items()]
    return [sys.executable, "-m", "jax_sentemb.main", "--config", "configs/mlm.py", "--workdir", str(workdir), *flags]


def follow(options, workdir, settings):
    """Run the training, and score each new checkpoint while it goes on; Ctrl-C and SIGTERM stop both, and both continue."""
    training = subprocess.Popen(command(options, workdir, settings), cwd=ROOT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scorer = Scorer(options, workdir)
    try:
        while training.poll() is None:
            time.sleep(POLL)
            scorer.score_new()
    except KeyboardInterrupt:
        training.send_signal(signal.SIGTERM)
    code = training.wait()
    if code == 0:
        scorer.score_new()
    return code


class Scorer:
    """Scores the checkpoints of a run; each is a row of curve.csv."""

    def __init__(self, options, workdir):
        from jax_sentemb.evaluation.catalog import load_sts

        tasks = load_sts(options.senteval)[0]
        self.tasks = {short: tasks[name]._replace(name=short) for short, name in SETS.items()}
        self.options, self.workdir, self.file, self.embedders = options, workdir, workdir / "curve.csv", {}
        self.rows = read_rows(self.file)

    def score_new(self):
        """Add the starting point, and the newest checkpoint where it is not there yet."""
        from jax_sentemb.errors import UserError
        from jax_sentemb.formats import manifest

        if not (self.workdir / "model.json").exists():
            return
        done = {int(row["step"]) for row in self.rows}
        newest = max(manifest.steps(self.workdir / "checkpoints", lambda text: None), default=0)
        for step in sorted({0, newest} - done):
            try:
                self.add(step)
            except UserError as error:  # it was replaced by a newer one while it was read
                print(f"step {step} is not scored: {error}", file=sys.stderr)

    def add(self, step):
        from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
        from jax_sentemb.formats.huggingface import read_parts, resolve
        from jax_sentemb.formats.run_dir import read_checkpoint, read_metadata, read_run_tokenizer
        from jax_sentemb.inference.build import build_embedder

        facts = read_metadata(self.workdir)
        params = read_checkpoint(self.workdir, str(step))[0] if step else read_parts(resolve(self.options.weights))[1]
        row = {"step": step, "million_tokens": round(step * ROWS * self.tokens_of_a_row() / 1e6, 3), "loss": "", "accuracy": ""}
        for pooling in POOLINGS:
            description = {**facts, "pooling": pooling, "convolution": None}
            embedder = self.embedders.setdefault(pooling, build_embedder(description, read_run_tokenizer(self.workdir, facts)))
            cosines = task_cosines(lambda sentences, embedder=embedder: embedder(params, sentences), self.tasks)
            scores = {name: found["spearman"]["all"] for name, found in correlate_tasks(cosines, self.tasks).items()}
            row |= {f"{pooling} {name}": round(score, 2) for name, score in scores.items()}
            row[f"{pooling} five sets"] = round(statistics.mean(scores.values()), 2)
        self.rows = sorted([*self.rows, row], key=lambda row: int(row["step"]))
        for known in self.rows:  # a checkpoint may be scored before its loss is written
            known |= self.losses(int(known["step"]))
        write_rows(self.file, self.rows)
        plot(self.rows, self.workdir / "curve.png")
        print(f"step {step}: " + ", ".join(f"{pooling} {row[f'{pooling} five sets']}" for pooling in POOLINGS), flush=True)

    def tokens_of_a_row(self):
        return json.loads((self.workdir / "run.json").read_text())["corpus"]["mean_tokens"]

    def losses(self, step):
        """Loss and accuracy on held-out rows at a step, "" where none was measured there."""
        events = [json.loads(line) for line in (self.workdir / "metrics.jsonl").read_text().splitlines()]
        found = [event for event in events if event.get("step") == step and "validation/loss" in event]
        return {name: round(found[-1][f"validation/{name}"], 4) if found else "" for name in ("loss", "accuracy")}


def plot(rows, path):
    """Held-out loss, and the mean over five sets, over tokens."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    known = [row for row in rows if row["loss"] != ""]
    left.plot([float(row["million_tokens"]) for row in known], [float(row["loss"]) for row in known], marker=".")
    left.set(xlabel="million tokens", ylabel="held-out masked-LM loss (nats)")
    for pooling in POOLINGS:
        scores = [float(row[f"{pooling} five sets"]) for row in rows]
        right.plot([float(row["million_tokens"]) for row in rows], scores, marker=".", label=pooling)
    right.set(xlabel="million tokens", ylabel="Spearman x 100, mean of five sets")
    right.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def trial(options):
    """A short run for each of TRIAL; trial.csv has the last row of each curve."""
    options.steps = options.score_every = options.trial
    rows = []
    for name, settings in TRIAL.items():
        workdir = options.workdir / name.replace(" ", "-")
        short = {"data.subset": 100_000, "optimizer.warmup_steps": options.trial // 5, **settings}
        if code := follow(options, workdir, short):
            return code
        rows.append({"setting": name, **read_rows(workdir / "curve.csv")[-1]})
        write_rows(options.workdir / "trial.csv", rows)
    return 0


def decay(options):
    """Continue a checkpoint of the run with a rate that falls to 0: weights go on, the optimiser's averages start anew."""
    start = options.workdir / f"start-{options.decay_from}"
    if not start.exists():
        flags = ["--workdir", str(options.workdir), "--step", str(options.decay_from), "--output", str(start)]
        if code := subprocess.run([sys.executable, "-m", "jax_sentemb", "export", *flags], cwd=ROOT, check=False).returncode:
            return code
    options.weights = str(start)
    settings = {"optimizer.lr_scheduler_type": "linear", "optimizer.warmup_steps": 20, "train.seed": 1}
    return follow(options, options.workdir / f"decay-{options.decay_from}", settings)


def publish(options):
    """Write the weights of the run that --decay-from ended as a BERT directory in float16; its model card stays."""
    source, target = options.workdir / f"decay-{options.decay_from}" / "export", options.publish
    target.mkdir(parents=True, exist_ok=True)
    save_halves(source / "model.safetensors", target / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copyfile(source / name, target / name)
    print(f"{target}: {sum(file.stat().st_size for file in target.iterdir()) / 1e6:.1f} MB")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=lambda text: Path(text).absolute(), required=True)
    parser.add_argument("--weights", required=True, help="directory of the BERT to go on from")
    parser.add_argument("--captions", action="store_true", help="train on captions too, without those that are scored")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--score-every", type=int, default=500, help="steps between two checkpoints that are scored")
    parser.add_argument("--trial", type=int, default=0, help="compare settings, so many steps each")
    parser.add_argument("--decay-from", type=int, default=0, help="step of the run from which on its rate falls to 0")
    parser.add_argument("--publish", type=Path, help="folder for the weights of the run that --decay-from ended")
    options = parse(parser, corpora="corpora", senteval="senteval")
    options.corpora, options.senteval = Path(options.corpora).absolute(), Path(options.senteval).absolute()
    if not options.publish:
        require_model(options.weights)
    options.weights = str(Path(options.weights).absolute())
    options.workdir.mkdir(parents=True, exist_ok=True)
    if options.publish:
        return publish(options)
    if options.trial:
        return trial(options)
    return decay(options) if options.decay_from else follow(options, options.workdir, {})


if __name__ == "__main__":
    sys.exit(main())
