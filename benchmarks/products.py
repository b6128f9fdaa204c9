"""Measure the products of a dense layer of BERT-base alone: GFLOP/s of one core, PyTorch's and ours.

    PYTHONPATH=. python benchmarks/products.py [--rows 4096] [--precision bfloat16]

For each shape: the forward product, the gradient of the inputs and the gradient of the weights, each the best of five by processor
time. The last number of ours is the forward product that returns the precision of its factors.
"""

import argparse
import functools
import os
import time
from collections.abc import Callable

import numpy as np

SHAPES = ((768, 768), (768, 2304), (768, 3072), (3072, 768))


def rate(run: Callable[[], object], flop: int) -> str:
    """Return the best GFLOP/s of five calls, by processor time."""
    run()
    seconds = []
    for _ in range(5):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return f"{flop / min(seconds) / 1e9:.0f}"


def torch_rates(arrays: list[np.ndarray], precision: str, flop: int) -> list[str]:
    """Return the rates of PyTorch for inputs, kernel and gradient."""
    import torch

    torch.set_num_threads(1)
    inputs, kernel, gradient = (torch.tensor(array).to(getattr(torch, precision)) for array in arrays)
    weight = kernel.T.contiguous()  # as torch.nn.Linear stores it
    runs = (lambda: torch.nn.functional.linear(inputs, weight), lambda: gradient @ weight, lambda: gradient.T @ inputs)
    return [*(rate(run, flop) for run in runs), ""]


def our_rates(arrays: list[np.ndarray], precision: str, flop: int) -> list[str]:
    """Return the rates of models/layers.py for inputs, kernel and gradient."""
    import jax
    import jax.numpy as jnp

    from jax_sentemb.models.layers import product, transposed_product

    inputs, kernel, gradient = (jnp.asarray(array, precision) for array in arrays)
    forward = functools.partial(product, dimensions=((1,), (0,)))
    calls = (
        (forward, inputs, kernel),
        (functools.partial(product, dimensions=((1,), (1,))), gradient, kernel),
        (transposed_product, inputs, gradient),
        (functools.partial(forward, result=precision), inputs, kernel),
    )
    programs = [(jax.jit(function), *factors) for function, *factors in calls]
    return [rate(lambda call=call: call[0](*call[1:]).block_until_ready(), flop) for call in programs]


def main() -> None:
    """Print a table of the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before the libraries start their threads
    random = np.random.default_rng(0)
    print("| rows x inputs x outputs | | forward | inputs | weights | forward, same precision |\n|---|---|--:|--:|--:|--:|")
    for inputs, outputs in SHAPES:
        sizes = ((options.rows, inputs), (inputs, outputs), (options.rows, outputs))
        arrays = [random.normal(size=size).astype(np.float32) for size in sizes]
        for name, rates in (("PyTorch", torch_rates), ("ours", our_rates)):
            cells = rates(arrays, options.precision, 2 * options.rows * inputs * outputs)
            print(f"| {options.rows:,} x {inputs:,} x {outputs:,} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
