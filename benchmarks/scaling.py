"""Time and memory against batch size, length, number of simulated devices and corpus size.

    NPROC=16 PYTHONPATH=. python benchmarks/scaling.py [--what batch,length,devices,corpus] [--plot scaling.png]

Memory of a step is what the compiler reserves for temporary values on a device (and, for devices, for the state); time is the best
of `--rounds` steps after one that is not counted. AMI+SimCSE, an encoder of 2 layers x 64 with 4 heads.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BATCHES, CHUNK = (256, 1024, 4096, 16384, 65536), 256
LENGTHS, BLOCK = (32, 64, 128, 256, 512), 64
DEVICES = (1, 2, 4, 8)
LINES = (10_000, 100_000, 1_000_000)


def step_of(batch, width, devices=1, chunk=0, block=0, fsdp=1, layers=2, hidden=64, ami=True):
    """(compiled step, state, batch on the devices) of AMI+SimCSE."""
    import jax
    import numpy as np

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.attention_mi import AttentionMI
    from jax_sentemb.methods.simcse import SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.sharding import make_mesh, over_parameters, put_batch
    from jax_sentemb.train import create_state, make_optimizer, make_step
    from jax_sentemb.types import Batch

    encoder = Bert(BertConfig(2000, hidden, layers, 4, 4 * hidden, 512), dropout=0.1, attention_block=block)
    mesh = make_mesh(batch, jax.devices()[:devices], fsdp)
    method, optimizer = SimCSE(ami=AttentionMI(layers=(1, 2)) if ami else None), make_optimizer(Optimizer(), 100)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    random = np.random.default_rng(0)
    tokens = random.integers(5, 2000, (batch, width)).astype(np.int32)
    rows = put_batch(Batch(tokens, np.ones_like(tokens, bool)), mesh)
    compiled = make_step(method, encoder, optimizer, mesh, chunk, over_parameters(mesh, state)).lower(state, rows).compile()
    return compiled, state, rows


def measure(rounds, **settings):
    compiled, state, rows = step_of(**settings)
    memory, seconds = compiled.memory_analysis(), []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        state, metrics = compiled(state, rows)
        float(metrics["loss"])
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:]), memory.temp_size_in_bytes / 2**20, memory.argument_size_in_bytes / 2**20


def by_batch(rounds):
    rows = []
    for batch in BATCHES:
        seconds, memory, _ = measure(1 if batch > 4096 else rounds, batch=batch, width=8, chunk=CHUNK, ami=False)
        whole = step_of(batch=batch, width=8, ami=False)[0].memory_analysis().temp_size_in_bytes / 2**20 if batch <= 16384 else None
        rows.append({"sentences": batch, f"s a step, {CHUNK} at once": seconds, "MiB": memory, "MiB, all at once": whole})
    return rows


def by_length(rounds):
    rows = []
    for width in LENGTHS:
        row = {"tokens": width}
        for label, block in (("maps", 0), (f"blocks of {BLOCK}", BLOCK)):
            row[f"s, {label}"], row[f"MiB, {label}"], _ = measure(rounds, batch=16, width=width, block=block)
        rows.append(row)
    return rows


def by_devices(rounds):
    """Each number of simulated devices needs a process of its own."""
    rows = []
    for devices in DEVICES:
        command = [sys.executable, __file__, "--one-devices", str(devices), "--rounds", str(rounds)]
        environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        rows.append(json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout))
    return rows


def one_devices(devices, rounds):
    seconds, memory, state = measure(rounds, batch=128, width=32, devices=devices)
    _, _, split = measure(rounds, batch=128, width=32, devices=devices, fsdp=devices)
    return {"devices": devices, "s a step": seconds, "MiB a device": memory, "state": state, "state, fsdp": split}


def by_corpus(rounds):
    """A process for each size, because memory is that of the process."""
    rows = []
    for lines in LINES:
        command = [sys.executable, __file__, "--one-corpus", str(lines)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return rows


def one_corpus(lines):
    from jax_sentemb.text.batches import Batches
    from jax_sentemb.text.files import open_corpus
    from jax_sentemb.text.grammar import sentences
    from jax_sentemb.text.tokenizer import Tokenizer
    from jax_sentemb.text.tokens import tokenize

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        some = sentences(10_000, 0)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{number} {some[number % len(some)]}\n" for number in range(lines))
        os.environ["JAX_SENTEMB_CACHE"] = folder
        times = [time.perf_counter()]
        corpus = open_corpus(str(path))
        times.append(time.perf_counter())
        tokenizer = Tokenizer.train(some, 1000)
        times.append(time.perf_counter())
        tokens = tokenize(corpus, tokenizer, 32, Path(folder))
        times.append(time.perf_counter())
        Batches(tokens, 64, 0).at(min(10**6, lines // 64 * 50))
        times.append(time.perf_counter())
        # Not getrusage: a child's maximum starts at that of the process that started it.
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 2**10
        size = path.stat().st_size / 2**20
    return {
        "lines": lines, "MiB": size, "s, open": times[1] - times[0], "s, tokenise": times[3] - times[2],
        "s, a batch of a late epoch": times[4] - times[3], "MiB, peak": peak,
    }  # fmt: skip


def table(rows):
    names = list(rows[0])
    cells = [["" if row[name] is None else f"{row[name]:,.4g}" if isinstance(row[name], float) else f"{row[name]:,}" for name in names] for row in rows]  # fmt: skip  # noqa: E501
    return "\n".join(
        ["| " + " | ".join(names) + " |", "|" + "--:|" * len(names), *("| " + " | ".join(row) + " |" for row in cells)]
    )


def plot(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(4 * len(found), 3.2), layout="constrained", squeeze=False)
    for panel, (what, rows) in zip(panels[0], found.items(), strict=True):
        first, *others = rows[0]
        for name in others:
            points = [(row[first], row[name]) for row in rows if row[name] is not None]
            panel.plot(*zip(*points, strict=True), marker="o", label=name)
        panel.set(title=what, xlabel=first, xscale="log", yscale="log")
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", default="batch,length,devices,corpus")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--one-devices", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--one-corpus", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_devices:
        print(json.dumps(one_devices(options.one_devices, options.rounds)))
        return
    if options.one_corpus:
        print(json.dumps(one_corpus(options.one_corpus)))
        return
    curves = {"batch": by_batch, "length": by_length, "devices": by_devices, "corpus": by_corpus}
    found = {}
    for what in options.what.split(","):
        found[what] = curves[what](options.rounds)
        print(f"**{what}**\n\n{table(found[what])}\n", flush=True)
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
