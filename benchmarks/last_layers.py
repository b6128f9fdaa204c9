"""Compare training of the last layers with training of all layers: time and memory of a step.

    PYTHONPATH=. python benchmarks/last_layers.py [--shape small|minilm|base] [--layers 0,2,1] [--rounds 4]

There is one contender for each number of last layers (0: all), each in its own process, and they take turns. A step is SimCSE's.
Memory is that of the compiled step: the state (parameters and the optimiser's moments) and the temporaries.
"""

import argparse
import functools
import statistics

from benchmarks.interleaved import interleave
from benchmarks.train_step import SHAPES, VOCABULARY


def compiled_step(options, count):
    """Return the compiled step that trains the last `count` layers, its state and its batch."""
    import jax
    import numpy as np

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.simcse import SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.parallel import make_mesh, shard_batch
    from jax_sentemb.training.optimizer import make_optimizer
    from jax_sentemb.training.step import create_state, make_step
    from jax_sentemb.types import Batch

    layers, hidden, heads, inner, *_ = SHAPES[options.shape]
    encoder = Bert(BertConfig(VOCABULARY, hidden, layers, heads, inner), dropout=0.1, last_layers=count)
    method, optimizer = SimCSE(pooling="mean"), make_optimizer(Optimizer(), 10_000)
    mesh = make_mesh(options.sentences, jax.devices()[:1])
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    shape = options.sentences, options.length
    batch = Batch(np.random.default_rng(0).integers(1000, VOCABULARY, shape).astype(np.int32), np.ones(shape, bool))
    batch = shard_batch(batch, mesh)
    return make_step(method, encoder, optimizer, mesh).lower(state, batch).compile(), state, batch


def stepper(options, name):
    """Return a function that does one step."""
    step, state, batch = compiled_step(options, int(name))

    def run():
        nonlocal state
        state, metrics = step(state, batch)
        return float(metrics["loss"])

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--layers", default="0,2,1", help="numbers of last layers that are trained; 0: all")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    names = options.layers.split(",")
    times = interleave(functools.partial(stepper, options), names, options.rounds, 1)
    print("| trained layers | ms/step | min | time / all | state, MB | temporaries, MB |\n|---|" + "--:|" * 5)
    for name in names:
        ratios = [own_time / full_time for own_time, full_time in zip(times[name], times[names[0]], strict=True)]
        memory = compiled_step(options, int(name))[0].memory_analysis()
        cells = [
            f"last {name}" if name != "0" else "all",
            f"{statistics.median(times[name]) * 1e3:,.0f}",
            f"{min(times[name]) * 1e3:,.0f}",
            f"{statistics.median(ratios):.2f}",
            f"{memory.argument_size_in_bytes / 1e6:,.0f}",
            f"{memory.temp_size_in_bytes / 1e6:,.0f}",
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
