"""Compare cold starts with sentence-transformers: a short training, encoding and a search, from the command to the result.

    PYTHONPATH=. python benchmarks/cold_start.py --text sentences.txt --model MODEL --bert experiments/pretraining/mini-2

Each run is a new process, and ours also has an empty cache of compiled programs. The contenders take turns. The model is encoded
with and searched with, and the BERT is trained: `configs/simcse.py` against the trainer of sentence-transformers (needs
`accelerate`) with MultipleNegativesRankingLoss on pairs of equal sentences, [CLS], 64 sentences of at most 32 tokens. Both save the
model. Printed: medians of wall and processor seconds, and the median over the rounds of (their time / ours).
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TRAIN = """
import sys
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses, models
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

text, bert, steps, folder = sys.argv[1:]
lines = open(text, encoding="utf-8").read().splitlines()
encoder = models.Transformer(bert, max_seq_length=32)
model = SentenceTransformer(modules=[encoder, models.Pooling(encoder.get_embedding_dimension(), "cls")], device="cpu")
options = Arguments(
    folder, max_steps=int(steps), per_device_train_batch_size=64, learning_rate=3e-5, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True,
)
data = Dataset.from_dict({"anchor": lines, "positive": lines})
SentenceTransformerTrainer(model, options, train_dataset=data, loss=losses.MultipleNegativesRankingLoss(model)).train()
model.save(folder)
"""
ENCODE = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer

text, model, output = sys.argv[1:]
np.save(output, SentenceTransformer(model, device="cpu").encode(open(text, encoding="utf-8").read().splitlines()))
"""
SEARCH = """
import sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search

text, model, *queries = sys.argv[1:]
lines = open(text, encoding="utf-8").read().splitlines()
encoder = SentenceTransformer(model, device="cpu")
for query, results in zip(queries, semantic_search(encoder.encode(queries), encoder.encode(lines), top_k=10), strict=True):
    print(query)
    for result in results:
        print(result["score"], lines[result["corpus_id"]])
"""
QUERIES = ("How do banks earn money?", "a war in the north", "music of the seventies")
WITHOUT_EVALUATION = ("--config.eval.diagnostic_sentences=16", "--config.eval.report_sentences=0")


class Task(NamedTuple):
    """A task of the table: our command and the script of sentence-transformers, both with a new folder for their results."""

    ours: Callable[[Path], list[str]]
    theirs: Callable[[Path], list[str]]


def tasks(options: argparse.Namespace, ten: Path) -> dict[str, Task]:
    """Return the tasks by name; `ten` is a text of ten sentences."""
    package = [sys.executable, "-m", "jax_sentemb"]
    queries = [argument for query in QUERIES for argument in ("--query", query)]

    def train(*settings: str) -> Task:
        command = [*package, "train", "--config", "simcse", f"--config.data.files={options.text}", *settings]
        command += [f"--config.encoder.weights={options.bert}", f"--config.train.max_steps={options.steps}", "--workdir"]
        script = [sys.executable, "-c", TRAIN, str(options.text), str(options.bert), str(options.steps)]
        return Task(lambda folder: [*command, str(folder)], lambda folder: [*script, str(folder)])

    def encode(text: Path) -> Task:
        command = [*package, "encode", "--model", str(options.model), "--input", str(text), "--output"]
        script = [sys.executable, "-c", ENCODE, str(text), str(options.model)]
        return Task(lambda folder: [*command, str(folder / "x.npy")], lambda folder: [*script, str(folder / "x.npy")])

    search = [*package, "search", "--model", str(options.model), "--corpus", str(options.text), *queries]
    return {
        f"train, {options.steps} steps": train(),
        f"train, {options.steps} steps, least evaluation": train(*WITHOUT_EVALUATION),
        "encode, 10 sentences": encode(ten),
        "encode, all sentences": encode(options.text),
        f"search, {len(QUERIES)} queries": Task(
            lambda _: search, lambda _: [sys.executable, "-c", SEARCH, str(options.text), str(options.model), *QUERIES]
        ),
    }


def run(command: Callable[[Path], list[str]], cache: Path) -> tuple[float, float]:
    """Return the (wall, processor) seconds of a process and its children, with this cache of compiled programs."""
    environment = {**os.environ, "JAX_SENTEMB_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.run(command(Path(folder)), env=environment, capture_output=True, text=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
        if process.returncode:
            sys.exit(f"{command(Path(folder))} ended with {process.returncode}:\n{process.stderr[-2000:]}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(task: Task, rounds: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the (wall, processor) seconds of each contender in each round; a round that is not counted comes first."""
    times: dict[str, list[tuple[float, float]]] = {"ours, first": [], "ours, later": [], "sentence-transformers": []}
    for number in range(rounds + 1):  # the first round reads the files into memory and compiles Python's modules
        cache = folder / str(number)
        seconds = run(task.ours, cache), run(task.ours, cache), run(task.theirs, cache)
        for name, value in zip(times, seconds, strict=True):
            times[name] += [value] if number else []
    return times


def main() -> None:
    """Measure the tasks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="a sentence a line, for instance 1,000")
    parser.add_argument("--model", type=Path, required=True, help="a directory of sentence-transformers")
    parser.add_argument("--bert", type=Path, required=True, help="a directory of a BERT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", default="train,encode,search", help="beginnings of the names of the tasks")
    options = parser.parse_args()
    columns = "| | | wall s | processor s | theirs / ours, wall | theirs / ours, processor |"
    print(f"{columns}\n|---|---|--:|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ten = Path(folder, "ten.txt")
        ten.write_text("".join(options.text.read_text(encoding="utf-8").splitlines(keepends=True)[:10]), encoding="utf-8")
        for task_name, task in tasks(options, ten).items():
            if not task_name.startswith(tuple(options.tasks.split(","))):
                continue
            times = measure(task, options.rounds, Path(folder, task_name))
            for name, seconds in times.items():
                medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
                pairs = zip(times["sentence-transformers"], seconds, strict=True)
                ratios = zip(*([their / own for their, own in zip(*pair, strict=True)] for pair in pairs), strict=True)
                cells = [task_name, name, *(f"{value:.1f}" for value in medians)]
                cells += [f"{statistics.median(column):.2f}" for column in ratios]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
