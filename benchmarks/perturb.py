"""Measure the sentences/s of each perturbation of ConsSent on one thread, on generated rows with lengths like Wikipedia's.

PYTHONPATH=. python benchmarks/perturb.py [--batch 4096] [--rounds 20]
"""

import argparse
import statistics
import time

import numpy as np

from jax_sentemb.data.perturb import Draws, delete, insert, permute, replace, split_at, split_randomly

WIDTH, VOCABULARY, K = 64, 100_000, 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(6.0, 4.2, options.batch).astype(int), 3, WIDTH)
    frequency = 1.0 / np.arange(2, VOCABULARY + 2)
    share = np.cumsum(frequency) / frequency.sum()
    tokens = np.minimum(np.searchsorted(share, random.random((options.batch, WIDTH))), VOCABULARY - 1)
    tokens = np.where(np.arange(WIDTH) < lengths[:, None], tokens, 0)
    tasks = {
        "D delete": lambda draws: delete(tokens, lengths, K, draws),
        "P permute": lambda draws: permute(tokens, lengths, K, draws),
        "I insert": lambda draws: insert(tokens, lengths, K, draws, share),
        "R replace": lambda draws: replace(tokens, lengths, K, draws, share),
        "N part at random": lambda draws: split_randomly(tokens, lengths, draws),
        "C cut": lambda draws: split_at(tokens, lengths, draws),
    }
    for name, change in tasks.items():
        rates = []
        for epoch in range(options.rounds):
            start = time.process_time()
            change(Draws(0, epoch, np.arange(options.batch)))
            rates.append(options.batch / (time.process_time() - start))
        print(f"{name:<18}{statistics.median(rates):>12,.0f} sentences/s of processor time")


if __name__ == "__main__":
    main()
