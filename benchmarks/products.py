"""Measure the products of a BERT layer alone: GFLOP/s of one core, PyTorch's and ours; and what they are of a layer's time.

    PYTHONPATH=. python benchmarks/products.py [--rows 4096] [--width 768] [--precision bfloat16]

For each shape: the forward product, the gradient of the inputs and the gradient of the weights, each the best of five by processor
time. The last number of ours is the forward product that returns the precision of its factors. Below: the milliseconds of a whole
layer when it encodes (the difference of six and two layers, sentences of 32 tokens) beside those of its four products alone.
"""

import argparse
import functools
import os
import time
from collections.abc import Callable

import numpy as np

from jax_sentemb.system.allocator import keep_freed_memory

TOKENS = 32  # of a sentence


def best(run: Callable[[], object]) -> float:
    """Return the fewest processor seconds of five calls."""
    run()
    seconds = []
    for _ in range(5):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def rate(run: Callable[[], object], flop: int) -> str:
    """Return the best GFLOP/s of five calls, by processor time."""
    return f"{flop / best(run) / 1e9:.0f}"


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


def sizes(layers: int, width: int) -> dict[str, int]:
    """Return the sizes of a BERT, as both libraries name them."""
    heads = {"num_attention_heads": width // 64, "intermediate_size": 4 * width}
    return {"vocab_size": 1000, "hidden_size": width, "num_hidden_layers": layers, **heads}


def one_layer(seconds: Callable[[int], float]) -> float:
    """Return the seconds of one layer from those of an encoder by its number of layers."""
    return (seconds(6) - seconds(2)) / 4


def torch_layer(rows: int, width: int, precision: str) -> float:
    """Return the seconds of a layer of transformers' BertModel (SDPA)."""
    import torch
    from transformers import BertConfig, BertModel

    ids = torch.randint(1, 1000, (rows // TOKENS, TOKENS))

    @torch.inference_mode()
    def seconds(layers: int) -> float:
        config = BertConfig(**sizes(layers, width))
        config._attn_implementation = "sdpa"
        model = BertModel(config, add_pooling_layer=False).to(getattr(torch, precision)).eval()
        return best(lambda: model(ids, attention_mask=torch.ones_like(ids)))

    return one_layer(seconds)


def our_layer(rows: int, width: int, precision: str) -> float:
    """Return the seconds of a layer of models/bert.py."""
    import jax
    import jax.numpy as jnp

    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.parallel import compiler_options
    from jax_sentemb.types import Rows

    ids = np.random.default_rng(0).integers(1, 1000, (rows // TOKENS, TOKENS)).astype(np.int32)
    batch = Rows(jnp.asarray(ids), jnp.ones(ids.shape, bool))

    def seconds(layers: int) -> float:
        config = BertConfig(**sizes(layers, width))
        model = Bert(config, dtype=jnp.dtype(precision))
        params = jax.jit(model.init)(jax.random.key(0), batch)
        encode = jax.jit(lambda params: model.apply(params, batch).hidden[-1], compiler_options=compiler_options("cpu"))
        return best(lambda: encode(params).block_until_ready())

    return one_layer(seconds)


def main() -> None:
    """Print a table of the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096, help="tokens of a batch")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args()
    keep_freed_memory()  # as a run does: outputs above 32 MB would be mapped anew in each call
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before the libraries start their threads
    random, width = np.random.default_rng(0), options.width
    alone = {"PyTorch": 0.0, "ours": 0.0}  # seconds of the products of a layer
    print("| rows x inputs x outputs | | forward | inputs | weights | forward, same precision |\n|---|---|--:|--:|--:|--:|")
    for inputs, outputs in ((width, width), (width, 3 * width), (width, 4 * width), (4 * width, width)):
        sizes = ((options.rows, inputs), (inputs, outputs), (options.rows, outputs))
        arrays = [random.normal(size=size).astype(np.float32) for size in sizes]
        flop = 2 * options.rows * inputs * outputs
        for name, rates in (("PyTorch", torch_rates), ("ours", our_rates)):
            cells = rates(arrays, options.precision, flop)
            alone[name] += flop / float(cells[0]) / 1e9
            print(f"| {options.rows:,} x {inputs:,} x {outputs:,} | {name} | {' | '.join(cells)} |", flush=True)
    print("\n| a layer, ms | whole | its products alone |\n|---|--:|--:|")
    for name, layer in (("PyTorch", torch_layer), ("ours", our_layer)):
        seconds = layer(options.rows, width, options.precision)
        print(f"| {name} | {1000 * seconds:.1f} | {1000 * alone[name]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
