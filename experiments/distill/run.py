"""Static tables of all-MiniLM-L6-v2: scores, speed, size and memory of ours, of Model2Vec's and of MiniLM itself, in one run.

    python experiments/distill/run.py --model MINILM --data DIR --corpus corpus.txt --vectors vectors --output runs/distill

`--vectors` is what `jax-sentemb encode --model MINILM --input corpus.txt --output vectors` wrote. A row of results.csv is kept.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from study_data import add_rows, parse, read_rows, write_rows

SETS = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
SPEEDS = ("sentences_per_second", "sentences_per_cpu_second")  # wall time; processor time of all threads
FIELDS = ("model", *SETS, "mean", *SPEEDS, "times_minilm", "times_minilm_cpu", "megabytes", "peak_megabytes")
EPOCHS = 1
TRAINING = ("--epochs", EPOCHS, "--batch-size", 512)
TIMED = {"MiniLM": 512}  # sentences that are timed; the others: all of --corpus, up to 20,000


def main() -> None:
    options = _options()
    if options.one:
        _measure(options)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    tables = _tables(options)
    done = _rows(options.results)
    for name, path in {"MiniLM": options.model, **tables}.items():
        if name not in done:
            command = [sys.executable, __file__, *sys.argv[1:], "--one", f"{name}={path}"]
            subprocess.run(command, check=True)  # a process each: its peak of memory is its own
    _finish(options.results)


def _tables(options: argparse.Namespace) -> dict[str, Path]:
    """The static tables, made if they are not there."""
    common = ["distill", "--model", options.model, "--corpus", options.corpus]
    made = {
        "ours, untrained": (options.output / "untrained", [*common]),
        f"ours, {EPOCHS} epoch": (options.output / "trained", [*common, *TRAINING, "--vectors", options.vectors]),
    }
    for path, arguments in made.values():
        if not path.is_dir():
            begin = time.monotonic()
            command = [sys.executable, "-m", "jax_sentemb", *map(str, arguments), "--output", str(path)]
            subprocess.run(command, check=True)
            print(f"{path}: {time.monotonic() - begin:.0f} s", flush=True)
    tables = {name: path for name, (path, _) in made.items()}
    if not (options.output / "model2vec").is_dir():
        from model2vec.distill import distill

        distill(str(options.model), pca_dims=256, device="cpu").save_pretrained(str(options.output / "model2vec"))
    trained = options.output / "model2vec_trained"
    if not trained.is_dir():
        begin = time.monotonic()
        _train_model2vec(options, trained)
        print(f"{trained}: {time.monotonic() - begin:.0f} s", flush=True)
    return {"Model2Vec": options.output / "model2vec", "Model2Vec, trained": trained, **tables}


def _train_model2vec(options: argparse.Namespace, output: Path) -> None:
    """Train Model2Vec on the corpus as tokenlearn's two commands do, with their defaults; the first one's features are kept."""
    from model2vec.distill import distill
    from sentence_transformers import SentenceTransformer
    from tokenlearn.featurize import featurize
    from tokenlearn.train import train_model
    from tokenlearn.utils import collect_means_and_texts, create_vocab

    texts = sorted(options.corpus.read_text(encoding="utf-8").splitlines(), key=len)  # so that batches have little padding
    features = options.output / "features"
    featurize(({"text": text} for text in texts), SentenceTransformer(str(options.model)), str(features), len(texts), 32, "text")
    texts, means = collect_means_and_texts(sorted(features.glob("*.json")))
    order = np.random.default_rng(0).permutation(len(texts))  # it validates on the last tenth
    texts, means = [texts[row] for row in order], means[order]
    table = distill(str(options.model), vocabulary=create_vocab(texts), pca_dims=256, quantize_to="float32", device="cpu")
    train_model(table, texts, means).save_pretrained(str(output))


def _measure(options: argparse.Namespace) -> None:
    """Append the row of one model to results.csv."""
    from jax_sentemb import SentenceEncoder
    from jax_sentemb.evaluation.catalog import load_sts
    from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines

    name, _, path = options.one.partition("=")
    if name.startswith("Model2Vec"):
        from model2vec import StaticModel

        model = StaticModel.from_pretrained(path)
    else:
        model = SentenceEncoder.load(path)
    encode = model.encode
    tasks, _ = load_sts(options.senteval)
    chosen = {task: tasks[task] for task in SETS}
    results = correlate_tasks(task_cosines(encode, chosen), chosen)
    scores = {task: result["spearman"]["all"] for task, result in results.items()}
    lines = options.corpus.read_text(encoding="utf-8").splitlines()
    texts = lines[: TIMED.get(name, 20_000)]
    encode(texts)
    seconds = []
    for _ in range(3):
        begin = time.monotonic(), time.process_time()
        encode(texts)
        seconds.append((time.monotonic() - begin[0], time.process_time() - begin[1]))
    wall, processor = (sorted(side)[1] for side in zip(*seconds, strict=True))
    row = {
        "model": name,
        **{task: f"{score:.2f}" for task, score in scores.items()},
        "mean": f"{sum(scores.values()) / len(scores):.2f}",
        **{name: f"{len(texts) / taken:.0f}" for name, taken in zip(SPEEDS, (wall, processor), strict=True)},
        "megabytes": f"{sum(file.stat().st_size for file in Path(path).rglob('*.safetensors')) / 1e6:.1f}",
        "peak_megabytes": f"{_peak():.0f}",
    }
    add_rows(options.results, [row], FIELDS)
    print(row, flush=True)


def _peak() -> float:
    """The largest resident memory of this process in MB. `ru_maxrss` would count what its parent had before."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 / 1e6 for line in status.splitlines() if line.startswith("VmHWM:"))


def _rows(file: Path) -> dict[str, dict[str, str]]:
    return {row["model"]: row for row in read_rows(file)}


def _finish(file: Path) -> None:
    """Write the speeds relative to MiniLM's, by wall time and by processor time (which a busy machine disturbs less)."""
    rows = _rows(file)
    base = rows["MiniLM"]
    for row in rows.values():
        ratios = (f"{float(row[name]) / float(base[name]):.0f}" if row[name] else "" for name in SPEEDS)
        row |= dict(zip(("times_minilm", "times_minilm_cpu"), ratios, strict=True))
    write_rows(file, rows.values(), FIELDS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--corpus", "--vectors", "--output"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results.csv"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parse(parser, senteval="senteval")


if __name__ == "__main__":
    main()
