"""Measure training steps, encoding and search on this machine's accelerator, next to the programs' bounds: rows for README.md.

    benchmarks/accelerator.sh [--methods simcse micse is_bert mlm] [--sentences 64 512] [--attention pallas plain] [--seconds 580]

First MiniLM's shape embeds 512 rows in bfloat16 on one device, and 100 queries are compared with a million rows of 384 dimensions,
which come from the memory of the host. Then BERT-base trains in bfloat16 on sentences of 64 tokens, first with the fused attention
of the tables of benchmarks/plans.py, then without. `--sentences` is the number for one device. On a CPU the shapes are tiny and the
attention is plain, which tests the script. A row is left out and named if it would end after `--seconds`, assuming that it takes as
long as the longest row before it. Times are medians of calls that are waited for. The bound is that of the compiled program and of
the data sheet.
"""

import argparse
import functools
import itertools
import statistics
import time
from pathlib import Path

import jax
import numpy as np

from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.planning.plan import OUT_OF_MEMORY, read_plan
from jax_sentemb.planning.roofline import product_flop
from jax_sentemb.planning.step import PlannedRun
from jax_sentemb.planning.targets import CHIPS, Target
from jax_sentemb.recipes import read_config
from jax_sentemb.retrieval.search import search
from jax_sentemb.types import Rows

CONFIGS = Path(__file__).parents[1] / "configs"
CHIP_NAMES = {  # text in JAX's name of a device -> chip; the first match counts
    "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p", "TPU v6": "v6e", "NVIDIA H100": "h100", "NVIDIA H200": "h200",
}  # fmt: skip
METHODS = ("simcse", "micse", "is_bert", "mlm")
TOKENS, STEPS = 64, 10
ROWS, WIDTH, QUERIES = 1_000_000, 384, 100  # of the search
COLUMNS = (
    "method, sentences a device, attention", "ms", "min", "sentences/s", "TFLOP/s a device", "of the peak", "bound",
    "of the bound", "temporaries GB", "compile s",
)  # fmt: skip


def chip_here():
    """Return (name, data sheet or None) of the devices of this machine."""
    device_kind = jax.devices()[0].device_kind
    name = next((chip for text, chip in CHIP_NAMES.items() if text in device_kind), "")
    return device_kind, CHIPS.get(name)


def run_of(method, attention, tiny):
    """Return the recipe of a method at BERT-base's size, in bfloat16."""
    config = read_config(f"{CONFIGS / method}.py:tiny")
    config.train.precision = "bfloat16"
    config.train.fused_attention = "" if attention == "plain" else attention
    if not tiny:
        config.data.max_seq_length = config.eval.max_seq_length = TOKENS
        config.data.vocab_size = 30522
        config.encoder.hidden_size, config.encoder.num_attention_heads, config.encoder.intermediate_size = 768, 12, 3072
        config.encoder.num_hidden_layers = 12
    return PlannedRun(config)


def arrays(shapes):
    """Return arrays for the shapes of a step: small random weights, tokens of a small vocabulary."""
    random = np.random.default_rng(0)

    def array(leaf):
        if leaf.dtype == bool:
            values = np.ones(leaf.shape, bool)
        elif np.issubdtype(leaf.dtype, np.floating):
            values = (random.standard_normal(leaf.shape, np.float32) * 0.02).astype(leaf.dtype)
        else:
            values = random.integers(0, 900, leaf.shape).astype(leaf.dtype) if leaf.ndim > 1 else np.zeros(leaf.shape, leaf.dtype)
        return jax.device_put(values, leaf.sharding)

    return jax.tree.map(array, shapes)


def times(call):
    """Return the seconds of STEPS calls, after two that are not counted."""
    seconds = []
    for _ in range(STEPS + 2):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def cells_of(traced, sentences, devices, chip, caller):
    """Return the cells of a row: `caller` makes the timed call from the compiled program."""
    start = time.perf_counter()
    compiled = traced.lower().compile()
    compiling = time.perf_counter() - start
    target = Target("here", jax.default_backend(), chip or CHIPS["v5e"], devices, "")
    plan = read_plan(target, sentences, 1, compiled, product_flop(traced.jaxpr.jaxpr), "bfloat16", compiling)
    all_seconds = times(caller(compiled))
    seconds = statistics.median(all_seconds)
    bound = f"{plan.bound.limit} {plan.bound.seconds * 1e3:.1f} ms" if chip else "no data sheet"
    share = f"{plan.bound.seconds / seconds:.0%}" if chip else ""
    peak = f"{plan.flop / seconds / chip.bfloat16:.0%}" if chip else ""
    return [
        f"{seconds * 1e3:.1f}", f"{min(all_seconds) * 1e3:.1f}", f"{sentences / seconds:,.0f}", f"{plan.flop / seconds / 1e12:.2f}",
        peak, bound, share, f"{plan.temporaries / 1e9:.2f}", f"{compiling:.0f}",
    ]  # fmt: skip


def of_step(method, sentences, attention, chip, tiny):
    """Return the cells of a training step."""
    devices = jax.devices()
    traced, shapes = run_of(method, attention, tiny).trace(devices, sentences * len(devices), 1)

    def caller(compiled):
        state, batch = arrays(shapes)

        def step():
            nonlocal state
            state, metrics = compiled(state, batch)
            return metrics

        return step

    return cells_of(traced, sentences * len(devices), len(devices), chip, caller)


def of_encoding(tokens, chip, tiny):
    """Return the cells of embedding a batch on one device."""
    layers, width, inner, rows = (1, 32, 64, 8) if tiny else (6, 384, 1536, 512)
    encoder = Bert(BertConfig(30522, width, layers, width // 32, inner), jax.numpy.bfloat16)
    batch = Rows(np.ones((rows, tokens), np.int32), np.ones((rows, tokens), bool))
    params = {"encoder": jax.jit(encoder.init)(jax.random.key(0), Rows(batch.tokens[:1], batch.mask[:1]))["params"]}
    batch = jax.device_put(batch)
    traced = jax.jit(lambda params, rows: sentence_embedding(encoder, params, rows, "mean")).trace(params, batch)
    return cells_of(traced, rows, 1, chip, lambda compiled: lambda: compiled(params, batch))


def of_search(tiny):
    """Return the cells of an exact search. It has no bound, because it is more than one program."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((ROWS // 100 if tiny else ROWS, WIDTH), np.float32)
    queries = random.standard_normal((QUERIES, WIDTH), np.float32)
    call_seconds = times(lambda: search(queries, rows, 10).scores)
    seconds = statistics.median(call_seconds)
    return [f"{seconds * 1e3:.1f}", f"{min(call_seconds) * 1e3:.1f}", f"{QUERIES / seconds:,.0f}", *[""] * 6]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--sentences", nargs="+", type=int, help="of one device (default: 64 512; 8 on a CPU)")
    parser.add_argument(
        "--attention", nargs="+", choices=("pallas", "cudnn", "plain"), help="default: pallas plain; plain on a CPU"
    )
    parser.add_argument("--seconds", type=float, default=580.0, help="for all rows")
    options = parser.parse_args()
    started, tiny = time.monotonic(), jax.default_backend() == "cpu"
    device_kind, chip = chip_here()
    shape = "tiny shapes" if tiny else f"BERT-base, {TOKENS} tokens"
    print(f"{len(jax.devices())} x {device_kind}, JAX {jax.__version__}; {shape}, bfloat16\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---|" + "--:|" * (len(COLUMNS) - 1))
    attentions = options.attention or (["plain"] if tiny else ["pallas", "plain"])
    sizes = options.sentences or ([8] if tiny else [64, 512])
    rows = {
        "encode, 32 tokens": functools.partial(of_encoding, 32, chip, tiny),
        "encode, 128 tokens": functools.partial(of_encoding, 128, chip, tiny),
        "search (queries/s)": functools.partial(of_search, tiny),
    } | {
        f"{method}, {sentences}, {attention}": functools.partial(of_step, method, sentences, attention, chip, tiny)
        for attention, method, sentences in itertools.product(attentions, options.methods, sizes)
    }
    longest = 0.0
    for name, cells_here in rows.items():
        start = time.monotonic()
        if start + longest - started > options.seconds:
            print(f"| {name} | left out: no time |", flush=True)
            continue
        try:
            cells = cells_here()
        except jax.errors.JaxRuntimeError as error:  # if a compiler or device rejects a kernel, the other rows are still measured
            memory = any(sign in str(error) for sign in OUT_OF_MEMORY)
            cells = ["out of memory" if memory else f"failed: {' '.join(str(error).split())[:160]}"]
        longest = max(longest, time.monotonic() - start)
        print(f"| {' | '.join([name, *cells])} |", flush=True)


if __name__ == "__main__":
    main()
