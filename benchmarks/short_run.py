"""Measure the processor and wall seconds of a short training run, from the command to the saved model.

    PYTHONPATH=. python benchmarks/short_run.py --corpus corpus.txt --weights path/to/bert [--steps 20] [--rounds 3]

Ours is `configs/simcse.py`. The peer is the trainer of sentence-transformers (needs `accelerate`) with MultipleNegativesRankingLoss
on pairs of equal sentences, [CLS], 64 sentences of at most 32 tokens, which saves its model. Each run has its own process, and they
take turns. Our first run compiles with an empty cache of compiled programs, the later runs read it. Medians are of the later runs.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = """
import sys
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses, models
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

corpus, weights, steps, folder = sys.argv[1:]
with open(corpus, encoding="utf-8") as file:
    lines = [line.strip() for line, _ in zip(file, range(20_000))]
encoder = models.Transformer(weights, max_seq_length=32)
model = SentenceTransformer(modules=[encoder, models.Pooling(encoder.get_embedding_dimension(), "cls")], device="cpu")
options = Arguments(
    folder, max_steps=int(steps), per_device_train_batch_size=64, learning_rate=3e-5, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True,
)
data = Dataset.from_dict({"anchor": lines, "positive": lines})
SentenceTransformerTrainer(model, options, train_dataset=data, loss=losses.MultipleNegativesRankingLoss(model)).train()
model.save(folder)
"""


def spent(command, environment):
    """Return the (processor, wall) seconds of a process and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    if ended.returncode:
        sys.exit(f"{command[:4]} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True, help="a sentence a line")
    parser.add_argument("--weights", required=True, help="directory of a BERT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times = {"ours": [], "sentence-transformers": []}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "JAX_SENTEMB_CACHE": f"{folder}/cache", "PYTHONDONTWRITEBYTECODE": ""}
        for number in range(options.rounds + 1):
            ours = [
                sys.executable, "-m", "jax_sentemb.main", "--config", "simcse", "--workdir", f"{folder}/run-{number}",
                f"--config.data.files={options.corpus}", f"--config.encoder.weights={options.weights}",
                "--config.data.subset=20000", "--config.data.max_seq_length=32", "--config.data.batch_size=64",
                f"--config.train.max_steps={options.steps}", "--config.eval.data=",
            ]  # fmt: skip
            peer = [sys.executable, "-c", PEER, options.corpus, options.weights, str(options.steps), str(Path(folder, "peer"))]
            times["ours"].append(spent(ours, environment))
            times["sentence-transformers"].append(spent(peer, environment))
    print(
        f"| {options.steps} steps | processor s, first run | later runs | wall s, first run | later runs |\n|---|--:|--:|--:|--:|"
    )
    for name, ((processor, wall), *later) in times.items():
        processors, walls = zip(*later, strict=True)
        print(f"| {name} | {processor:.1f} | {statistics.median(processors):.1f} | {wall:.1f} | {statistics.median(walls):.1f} |")


if __name__ == "__main__":
    main()
