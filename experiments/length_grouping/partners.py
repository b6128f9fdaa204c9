"""With how many other sentences a sentence shares a batch, and how much lengths differ in it, in both orders: a table of README.md.

    python experiments/length_grouping/partners.py wiki_sentences.txt.xz experiments/pretraining/mini-2

The sentences and batches are those of 1,000 steps of study.py:low_shot, seed 0; lengths are in word pieces.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from jax_sentemb.recipes import read_config
from jax_sentemb.training.setup import prepare

SENTENCES = (50, 500, 1000, 5000)


def main(corpus: str, weights: str) -> None:
    config = read_config(f"{Path(__file__).parent / 'study.py'}:low_shot")
    config.data.files, config.encoder.weights = corpus, weights
    print("| sentences | order | others met | deviation of lengths in a batch |\n|--:|---|--:|--:|")
    for config.data.subset in SENTENCES:
        for name, config.data.length_grouping in (("random", 1), ("sorted", 32)):
            with tempfile.TemporaryDirectory() as folder:
                setup = prepare(config, Path(folder))
            batches = [setup.batches.at(step).row for step in range(config.train.max_steps)]
            met = np.eye(len(setup.examples), dtype=bool)
            for rows in batches:
                met[np.ix_(rows, rows)] = True
            spread = np.mean([setup.examples.lengths[rows].std() for rows in batches])
            print(f"| {len(met):,} | {name} | {met.sum(1).mean() - 1:.0f} | {spread:.1f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
