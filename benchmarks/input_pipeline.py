"""Measure how fast text becomes batches: indexing, tokenising, and the rate of `Batches.at`, for a given corpus.

    python benchmarks/input_pipeline.py corpus.txt --tokenizer path/to/bert [--batch_size 64] [--max_seq_length 32]

Without --tokenizer a vocabulary of 8,000 pieces is made from the corpus first, and its time is printed separately. The user's cache
is neither read nor written. Only the CPU is used; train_step.py has the step that the batches are compared with.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.data.batches import Batches, DividedBatches
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.divided import Part
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize


def timed(action: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of the action, its wall seconds and its CPU seconds over all threads."""
    wall, processor = time.perf_counter(), time.process_time()
    result = action()
    return result, time.perf_counter() - wall, time.process_time() - processor


def peak_memory() -> float:
    """Return the largest resident size of this process so far, MB, with the pages of mapped files that are in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def show(name: str, rate: float, unit: str, wall: float, processor: float) -> None:
    print(f"{name:<28}{rate:>12,.0f} {unit:<14}{wall:>9.2f} s wall{processor:>9.2f} s CPU{peak_memory():>8.0f} MB peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", help="as --config.data.files")
    parser.add_argument("--column", default="text")
    parser.add_argument("--tokenizer", default="", help="directory with tokenizer.json or vocab.txt")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--max_seq_length", type=int, default=32)
    parser.add_argument("--batches", type=int, default=2000, help="how many to time")
    parser.add_argument("--hosts", type=int, default=1, help="of a pod: the rate at which one core reads the share of a host")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        corpus, *spent = timed(lambda: open_corpus(options.files, options.column, cache))
        megabytes = corpus.report["bytes"] / 1e6
        show("open and index", megabytes / spent[0], "MB/s", *spent)
        if options.tokenizer:
            tokenizer = Tokenizer.load(options.tokenizer)
        else:
            tokenizer, *spent = timed(lambda: Tokenizer.train(corpus, 8000))
            show("new vocabulary", len(corpus) / spent[0], "sentences/s", *spent)
        tokens, *spent = timed(lambda: tokenize(corpus, tokenizer, options.max_seq_length, cache))
        show("tokenise and store", len(corpus) / spent[0], "sentences/s", *spent)
        _, *spent = timed(lambda: tokenize(corpus, tokenizer, options.max_seq_length, cache))
        show("open stored tokens", len(corpus) / spent[0], "sentences/s", *spent)
        batches = Batches(tokens, options.batch_size, seed=0)
        _, *spent = timed(lambda: batches.at(0))
        show("order of an epoch", len(tokens) / spent[0], "sentences/s", *spent)
        count = min(options.batches, batches.steps_per_epoch)
        rows, *spent = timed(lambda: [batches.at(step) for step in range(count)])
        show(f"at, batch {options.batch_size}", count / spent[0], "batches/s", *spent)
        if options.hosts > 1:
            # Every host has a part as large as this text, and rows of the same lengths.
            part, *spent = timed(lambda: Part(tokens, 0, lambda values: np.stack([values] * options.hosts)))
            show(f"lengths of {options.hosts} parts", part.total / spent[0], "rows/s", *spent)
            for name, source in {"whole corpus": batches, "own part": DividedBatches(part, options.batch_size, seed=0)}.items():
                count = min(options.batches, source.steps_per_epoch)
                batch_parts, *spent = timed(lambda: [source.parts(step, 0, options.hosts) for step in range(count)])  # noqa: B023
                rows_read = sum(len(batch.tokens) for share in batch_parts for batch in share)
                show(f"1 of {options.hosts} hosts, {name}", rows_read / spent[1], "rows/s a core", *spent)

    widths = sorted({batch.mask.shape[1] for batch in rows})
    padding = 1 - sum(batch.mask.sum() for batch in rows) / sum(batch.mask.size for batch in rows)
    print(f"padding {padding:.1%} of the tokens, widths {widths}")
    print(", ".join(f"{name} {value:,}" for name, value in tokens.report.items()))


if __name__ == "__main__":
    main()
