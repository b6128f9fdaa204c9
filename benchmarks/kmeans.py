"""Compare `jax_sentemb.kmeans` with faiss's spherical k-means on the same vectors: time, and mean cosine of rows and centres.

    PYTHONPATH=. python benchmarks/kmeans.py --vectors VECTORS [--groups 64 256 1024] [--rounds 3]

`--vectors` is a directory that `jax-sentemb encode` wrote in float32. faiss (random first centres) trains on all rows for 25 and 50
iterations, and with its default: 25 on a sample of 256 rows a group. Its labels and cosines are a search of all rows among the
centres; ours returns them. The implementations take turns; ratios are medians over the seeds of time / time of 50 iterations.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy as np


def our_quality(rows, k, seed):
    from jax_sentemb import kmeans

    return kmeans(rows, k, seed=seed).scores.mean(dtype=np.float64)


def faiss_quality(rows, k, seed, iterations, sample):
    import faiss

    model = faiss.Kmeans(
        rows.shape[1], k, niter=iterations, spherical=True, seed=seed + 1, max_points_per_centroid=sample or len(rows)
    )
    model.train(rows)
    return model.index.search(rows, 1)[0].mean(dtype=np.float64)  # products


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--groups", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from jax_sentemb import Vectors

    vectors = Vectors(options.vectors, verify=False)
    rows = np.asarray(vectors[0 : len(vectors)], np.float32)
    rows = np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    print(f"{len(rows):,} rows of {rows.shape[1]} dimensions, load {os.getloadavg()[0]:.1f}")
    print(f"{'groups':>6}  {'':<20}{'seconds':>9}{'ratio':>9}{'mean cosine':>13}")
    for k in options.groups:
        our_quality(rows, k, 0)  # compiles
        contenders = {
            "faiss, 50 iterations": lambda seed, k=k: faiss_quality(rows, k, seed, 50, 0),
            "faiss, 25 iterations": lambda seed, k=k: faiss_quality(rows, k, seed, 25, 0),
            "faiss, default": lambda seed, k=k: faiss_quality(rows, k, seed, 25, 256),
            "ours": lambda seed, k=k: our_quality(rows, k, seed),
        }
        seconds = {name: [] for name in contenders}
        quality = {name: [] for name in contenders}
        for seed in range(options.rounds):
            for name, run in contenders.items():
                started = time.perf_counter()
                quality[name].append(run(seed))
                seconds[name].append(time.perf_counter() - started)
        first = seconds["faiss, 50 iterations"]
        for name, times in seconds.items():
            ratio = statistics.median(time / base_time for time, base_time in zip(times, first, strict=True))
            print(f"{k:>6}  {name:<20}{statistics.median(times):>9.2f}{ratio:>9.2f}{np.mean(quality[name]):>13.4f}")


if __name__ == "__main__":
    main()
