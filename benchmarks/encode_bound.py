"""Bound the speed of `encode` on an absent accelerator: rows for benchmarks/README.md.

    python benchmarks/encode_bound.py --model all-MiniLM-L6-v2 [--targets tpu:v5e-1,h100] [--widths 32,128] [--rows 512]

The accelerator's compiler compiles the program that embeds a batch in bfloat16. The bound is the data sheet's time for its products
or its traffic, whichever is longer. It is not a measurement, and reading the text is not included.
"""

import argparse
import time

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from jax_sentemb.inference.load import load
from jax_sentemb.planning.plan import read_plan
from jax_sentemb.planning.roofline import product_flop
from jax_sentemb.planning.targets import describe_devices, parse_target
from jax_sentemb.types import Rows

COLUMNS = ("", "tokens", "rows", "GFLOP of products", "HBM traffic MB", "bound ms", "of the peak, at most", "sentences/s, at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--targets", default="tpu:v5e-1,h100")
    parser.add_argument("--widths", default="32,128", help="tokens of a row")
    parser.add_argument("--rows", type=int, default=512)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    model = load(options.model, dtype="bfloat16")
    print(f"| {' | '.join(COLUMNS)} |\n|---|" + "--:|" * (len(COLUMNS) - 1))
    for target in map(parse_target, options.targets.split(",")):
        sharding = SingleDeviceSharding(describe_devices(target)[0])
        params = jax.tree.map(
            lambda leaf, sharding=sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), model.params
        )
        for width in map(int, options.widths.split(",")):
            shape = options.rows, width
            rows = Rows(*(jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for dtype in (np.int32, np.bool_)))
            traced, started = jax.jit(model.embedder.embed).trace(params, rows), time.perf_counter()
            compiled = traced.lower().compile()
            flop = product_flop(traced.jaxpr.jaxpr)
            plan = read_plan(target, options.rows, 1, compiled, flop, "bfloat16", time.perf_counter() - started)
            cells = [
                target.name, str(width), str(options.rows), f"{flop / 1e9:.0f}", f"{plan.moved / 1e6:,.0f}",
                f"{plan.bound.seconds * 1e3:.2f} ({plan.bound.limit})", f"{plan.bound.compute / plan.bound.seconds:.0%}",
                f"{plan.sentences_per_second:,.0f}",
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
