"""Compare exact search with NumPy and faiss's flat index: milliseconds for a batch of queries, the same answers, one run.

    PYTHONPATH=. python benchmarks/search.py [--rows 1000000] [--width 384] [--queries 100] [--top-k 10] [--rounds 5]

Vectors are random unit vectors. NumPy computes one product a block, then `argpartition`. faiss (if it is installed) uses
IndexFlatIP, built before the clock starts. Ours reads the rows from NumPy's memory for each batch of queries, as it would from a
mapped file. Contenders take turns. Printed: medians, and the medians over the rounds of (their time / ours): above 1 we are faster.
"""

import argparse
import functools
import importlib.util
import statistics

from benchmarks.interleaved import interleave

BLOCK = 1 << 15


def unit_vectors(rows, width, seed):
    import numpy as np

    random = np.random.default_rng(seed)
    vectors = random.standard_normal((rows, width), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def with_numpy(queries, corpus, top_k):
    import numpy as np

    scores = np.full((len(queries), top_k), -np.inf, np.float32)
    rows = np.zeros((len(queries), top_k), np.int64)
    for start in range(0, len(corpus), BLOCK):
        block = queries @ corpus[start : start + BLOCK].T
        chosen = np.argpartition(block, -top_k, axis=1)[:, -top_k:]
        scores = np.concatenate([scores, np.take_along_axis(block, chosen, axis=1)], axis=1)
        rows = np.concatenate([rows, chosen + start], axis=1)
        order = np.argsort(-scores, axis=1)[:, :top_k]
        scores, rows = np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return scores, rows


def make(options, name):
    corpus, queries = unit_vectors(options.rows, options.width, 0), unit_vectors(options.queries, options.width, 1)
    expected = with_numpy(queries[:3], corpus, options.top_k)[0]
    if name == "NumPy":
        step = functools.partial(with_numpy, queries, corpus, options.top_k)
    elif name == "faiss":
        import faiss

        index = faiss.IndexFlatIP(options.width)
        index.add(corpus)
        step = functools.partial(index.search, queries, options.top_k)
    else:
        from jax_sentemb.retrieval.search import search

        def step():
            hits = search(queries, corpus, options.top_k)
            return hits.scores, hits.indices

    import numpy as np

    np.testing.assert_allclose(step()[0][:3], expected, atol=1e-5)
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    names = ["NumPy", *(["faiss"] if importlib.util.find_spec("faiss") else []), "jax_sentemb"]
    times = interleave(functools.partial(make, options), names, options.rounds, 1)
    print(f"{options.rows:,} rows x {options.width}, {options.queries} queries, top {options.top_k}, {options.rounds} rounds")
    print(f"{'':<14}{'ms':>9}{'time / ours':>13}{'min':>7}{'max':>7}")
    for name, seconds in times.items():
        ratios = [their_time / our_time for their_time, our_time in zip(seconds, times["jax_sentemb"], strict=True)]
        columns = f"{statistics.median(ratios):>13.2f}{min(ratios):>7.2f}{max(ratios):>7.2f}"
        print(f"{name:<14}{statistics.median(seconds) * 1e3:>9,.0f}{columns}")


if __name__ == "__main__":
    main()
