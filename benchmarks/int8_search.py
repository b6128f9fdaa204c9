"""Compare search in vectors stored as int8 with the same search in float32: time for a batch of queries and recall, one run.

    PYTHONPATH=. python benchmarks/int8_search.py --vectors FLOAT32_VECTORS [--queries 100] [--top-k 10] [--rounds 5]

`--vectors` is a directory that `jax-sentemb encode` wrote in float32; its int8 copy is written next to it (DIRECTORY-int8).
Queries are rows of the corpus, evenly spaced, with noise. The searches take turns. Printed: medians of wall time and of the
processor time of all threads (which a busy machine disturbs less), medians over the rounds of the ratio to float32, and recall
against exact search in the same int8 rows and in the float32 rows.
"""

import argparse
import functools
import os
import statistics
import time
from pathlib import Path

NOISE = 0.5  # length of the noise on a query of length 1


def stored_as_int8(source):
    """Return a directory of vectors and its int8 copy, which is written if it is missing."""
    from jax_sentemb.retrieval.vector_manifest import marked
    from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_shards

    vectors = Vectors(source, verify=False)
    folder = source.with_name(f"{source.name}-int8")
    facts = marked({**vectors.sources, "precision": "int8", "format": "npy", "rows_per_shard": 1 << 16})
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


def searches(options):
    """Return name -> a function that searches."""
    from jax_sentemb.retrieval.search import search

    vectors, small = stored_as_int8(options.vectors)
    queries = queries_of(vectors, options.queries)
    sources = {"float32": (vectors, 0), "int8 restored": (small, 0), "int8": (small, options.rescore)}
    search = functools.partial(search, queries, top_k=options.top_k)
    return {name: functools.partial(search, source, rescore=rescore) for name, (source, rescore) in sources.items()}


def recall(indices, expected):
    return (
        sum(len({*row} & {*expected_row}) for row, expected_row in zip(indices.tolist(), expected.tolist(), strict=True))
        / expected.size
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--rescore", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    run = searches(options)
    indices = {name: step().indices for name, step in run.items()}  # compiles
    times = {name: [] for name in run}
    for _ in range(options.rounds):
        for name, step in run.items():
            started = time.perf_counter(), time.process_time()
            step()
            times[name].append((time.perf_counter() - started[0], time.process_time() - started[1]))
    print(f"{options.queries} queries, top {options.top_k}, rescore {options.rescore}, load {os.getloadavg()[0]:.1f}")
    columns = f"{'wall ms':>9}{'/ float32':>11}{'processor ms':>14}{'/ float32':>11}"
    print(f"{'':<15}{columns}{'recall, int8 rows':>19}{'recall, float32':>17}")
    for name, seconds in times.items():
        line = f"{name:<15}"
        for side, width in ((0, 9), (1, 14)):
            own_times, base_times = ([pair[side] for pair in pairs] for pairs in (seconds, times["float32"]))
            ratio = statistics.median(own_time / base_time for own_time, base_time in zip(own_times, base_times, strict=True))
            line += f"{statistics.median(own_times) * 1e3:>{width},.0f}{ratio:>11.2f}"
        print(f"{line}{recall(indices[name], indices['int8 restored']):>19.4f}{recall(indices[name], indices['float32']):>17.4f}")


if __name__ == "__main__":
    main()
