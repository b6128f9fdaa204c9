"""Compare sorted and random batches: tokens that a step computes, and its time.

    PYTHONPATH=. python benchmarks/batch_order.py [--shape small|minilm|base] [--rounds 4]

Three contenders take turns, each in its own process: batches that are sorted by length in groups of 32, random batches that are
padded to their longest sentence, and random batches in two parts (as in a run with data.length_grouping=1). Each processes the
same number of batches of the second epoch, because the first batches of a run have fewer widths. Lengths follow a gamma
distribution, cut at --max-length. A step is SimCSE's.
"""

import argparse
import functools
import statistics

from benchmarks.interleaved import interleave
from benchmarks.train_step import SHAPES, VOCABULARY

ORDERS = {"sorted in groups of 32": 32, "random, padded to the longest": 1, "random, in two parts": 1}


def batches_of(options, name):
    """Return some batches of the second epoch, each as a tuple of parts."""
    import numpy as np

    from jax_sentemb.data.batches import Batches
    from jax_sentemb.data.tokens import Tokens

    random, count = np.random.default_rng(0), 64 * options.sentences
    lengths = np.clip(random.gamma(6.0, options.mean / 6, count).astype(int), 5, options.max_length)
    ids = random.integers(1000, VOCABULARY, lengths.sum()).astype(np.int32)
    rows = {"line": np.arange(count), "lengths": lengths, "starts": np.cumsum(lengths) - lengths}
    batches = Batches(Tokens({"ids": ids, **rows}, {}, "", 0, options.max_length), options.sentences, 0, ORDERS[name])
    steps = range(64, 128 if options.rounds == 0 else 64 + options.batches)
    return [batches.parts(step) if "parts" in name else (batches.at(step),) for step in steps]


def stepper(options, name):
    import jax

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.simcse import SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.parallel import make_mesh, shard_batch
    from jax_sentemb.training.optimizer import make_optimizer
    from jax_sentemb.training.step import create_state, make_step

    layers, hidden, heads, inner, *_ = SHAPES[options.shape]
    encoder, method = Bert(BertConfig(VOCABULARY, hidden, layers, heads, inner), dropout=0.1), SimCSE()
    mesh, optimizer = make_mesh(options.sentences, jax.devices()[:1]), make_optimizer(Optimizer(), 10_000)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    compiled = make_step(method, encoder, optimizer, mesh)
    batches = [shard_batch(parts, mesh) for parts in batches_of(options, name)]

    def all_batches():
        nonlocal state
        for parts in batches:
            state, metrics = compiled(state, parts)
        return float(metrics["loss"])

    return all_batches


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=32)
    parser.add_argument("--mean", type=float, default=28.0, help="mean length before the cut (28: sentences of Wikipedia)")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4, help="0: count tokens only, of 64 batches")
    options = parser.parse_args()
    times = interleave(functools.partial(stepper, options), list(ORDERS), options.rounds, 1) if options.rounds else {}
    print("| batches | tokens a batch, padding included | real | shapes | ms/step | min |\n|---|" + "--:|" * 5)
    for name in ORDERS:
        batches = batches_of(options, name)
        computed, real = (
            sum(size(part) for parts in batches for part in parts) / len(batches) for size in (computed_tokens, real_tokens)
        )
        shapes = len({tuple(part.tokens.shape for part in parts) for parts in batches})
        milliseconds = [seconds * 1e3 / len(batches) for seconds in times.get(name, [])]
        timed = [f"{statistics.median(milliseconds):,.0f}", f"{min(milliseconds):,.0f}"] if milliseconds else ["", ""]
        print("| " + " | ".join([name, f"{computed:,.0f}", f"{real:,.0f}", str(shapes), *timed]) + " |")


def computed_tokens(part):
    return part.tokens.size


def real_tokens(part):
    return int(part.mask.sum())


if __name__ == "__main__":
    main()
