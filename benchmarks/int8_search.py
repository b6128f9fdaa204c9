"""Search in vectors stored as int8 against the same search in float32: time for a batch of queries and recall, one run.

    PYTHONPATH=. python benchmarks/int8_search.py --vectors FLOAT32_VECTORS [--queries 100] [--top-k 10] [--rounds 5]

`--vectors` is a directory that `jax-sentemb encode` wrote in float32; its int8 copy is written beside it (DIRECTORY-int8). Queries
are rows of the corpus, evenly spaced, with noise. Contenders take turns. Printed: medians, the medians over the rounds of (time /
time of float32), and recall: of exact search in the same int8 rows, and of exact search in the float32 rows.
"""

import argparse
import functools
import statistics
from pathlib import Path

from benchmarks.interleaved import interleave

NOISE = 0.5  # length of the noise on a query of length 1


def stored_as_int8(source):
    """The int8 copy of a directory of vectors, written where it is not there."""
    from jax_sentemb.retrieval.vector_manifest import SAME
    from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards

    vectors = Vectors(source, verify=False)
    folder = source.with_name(f"{source.name}-int8")
    facts = {name: vectors.manifest.get(name) for name in SAME} | {"precision": "int8", "format": "npy", "rows_per_shard": 1 << 16}
    rows = [str(row) for row in range(len(vectors))]
    write_shards(
        folder, facts, rows, lambda part: EncodedSentences(vectors[int(part[0]) : int(part[-1]) + 1], 0), lambda count: None
    )
    return vectors, Vectors(folder, verify=False)


def queries_of(vectors, count):
    import numpy as np

    rows = vectors.take(np.linspace(0, len(vectors) - 1, count).astype(np.int64))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    noise = np.random.default_rng(0).normal(size=rows.shape) * NOISE / rows.shape[1] ** 0.5
    return (rows + noise).astype(np.float32)


def make(options, name):
    from jax_sentemb.retrieval.search import search

    vectors, small = stored_as_int8(options.vectors)
    queries = queries_of(vectors, options.queries)
    source, rescore = {"float32": (vectors, 0), "int8 restored": (small, 0), "int8": (small, options.rescore)}[name]

    def step():
        return search(queries, source, options.top_k, rescore=rescore).indices

    step()
    return step


def recall(found, expected):
    return sum(len({*one} & {*other}) for one, other in zip(found.tolist(), expected.tolist(), strict=True)) / expected.size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--rescore", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    vectors, _ = stored_as_int8(options.vectors)
    found = {name: make(options, name)() for name in ("float32", "int8 restored", "int8")}
    times = interleave(functools.partial(make, options), list(found), options.rounds, 1)
    print(f"{len(vectors):,} rows x {vectors.shape[1]}, {options.queries} queries, top {options.top_k}, rescore {options.rescore}")
    print(f"{'':<16}{'ms':>8}{'/ float32':>11}{'min':>7}{'max':>7}{'recall (int8 rows)':>20}{'recall (float32)':>18}")
    for name, taken in times.items():
        ratios = [own / other for own, other in zip(taken, times["float32"], strict=True)]
        shown = f"{statistics.median(taken) * 1e3:>8,.0f}{statistics.median(ratios):>11.2f}{min(ratios):>7.2f}{max(ratios):>7.2f}"
        recalls = f"{recall(found[name], found['int8 restored']):>20.4f}{recall(found[name], found['float32']):>18.4f}"
        print(f"{name:<16}{shown}{recalls}")


if __name__ == "__main__":
    main()
