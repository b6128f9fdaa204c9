"""Measure time and memory against batch size, length, number of simulated devices and corpus size.

    NPROC=16 PYTHONPATH=. python benchmarks/scaling.py [--what batch,methods,length,devices,corpus,workers,encode] [--plot FILE]

Memory of a step is the memory that the compiler reserves for temporary values on a device (and, for devices, for the state). Time
is the best of `--rounds` steps after one that is not counted. The method is AMI+SimCSE, with an encoder of 2 layers x 64 and 4
heads.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BATCHES, CHUNK = (256, 1024, 4096, 16384, 65536), 256
LENGTHS, BLOCK = (32, 64, 128, 256, 512), 64
DEVICES = (1, 2, 4, 8)
LINES, WORKERS = (100_000, 1_000_000, 10_000_000), 2
ENCODED = 50_000  # rows of a file, the command's default


def step_of(batch, width, devices=1, chunk=0, block=0, fsdp=1, layers=2, hidden=64, ami=True, method=None):
    """Return (compiled step, state, batch on the devices) of AMI+SimCSE, or of another method."""
    import jax
    import numpy as np

    from jax_sentemb.config import Optimizer
    from jax_sentemb.methods.attention_mi import AttentionMI
    from jax_sentemb.methods.simcse import SimCSE
    from jax_sentemb.models.bert import Bert, BertConfig
    from jax_sentemb.parallel import fsdp_sharding, make_mesh, shard_batch
    from jax_sentemb.training.optimizer import make_optimizer
    from jax_sentemb.training.step import create_state, make_step
    from jax_sentemb.types import Batch

    encoder = Bert(BertConfig(2000, hidden, layers, 4, 4 * hidden, 512), dropout=0.1, attention_block=block)
    mesh = make_mesh(batch, jax.devices()[:devices], fsdp)
    method = method or SimCSE(ami=AttentionMI(layers=(1, 2)) if ami else None)
    optimizer = make_optimizer(Optimizer(), 100)
    state = create_state(method, encoder, optimizer, {}, 0, mesh)
    random = np.random.default_rng(0)
    tokens = random.integers(5, 2000, (batch, width)).astype(np.int32)
    rows = shard_batch(Batch(tokens, np.ones_like(tokens, bool)), mesh)
    compiled = make_step(method, encoder, optimizer, mesh, chunk, fsdp_sharding(mesh, state)).lower(state, rows).compile()
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
        full_memory = (
            step_of(batch=batch, width=8, ami=False)[0].memory_analysis().temp_size_in_bytes / 2**20 if batch <= 16384 else None
        )
        rows.append({"sentences": batch, f"s a step, {CHUNK} at once": seconds, "MiB": memory, "MiB, all at once": full_memory})
    return rows


def by_method(rounds):
    """Return the memory of each method, without running it: the time of the largest batch is in the curve over batches."""
    from jax_sentemb.methods.attention_mi import AttentionMI
    from jax_sentemb.methods.contrastive_tension import ContrastiveTension
    from jax_sentemb.methods.is_bert import ISBERT
    from jax_sentemb.methods.mirror_bert import MirrorBERT
    from jax_sentemb.methods.simcse import Momentum, SimCSE

    methods = {
        "SimCSE": SimCSE(),
        "miCSE": SimCSE(ami=AttentionMI(layers=(1, 2)), momentum=Momentum()),
        "Mirror-BERT": MirrorBERT(span=0),
        "Contrastive Tension, in batch": ContrastiveTension(form="in_batch"),
        "IS-BERT": ISBERT(),
    }
    return [
        {"method": name}
        | {
            f"MiB, {batch:,} sentences": step_of(batch, 8, chunk=CHUNK, method=method)[0].memory_analysis().temp_size_in_bytes
            / 2**20
            for batch in (256, 4096, 65536)
        }
        for name, method in methods.items()
    ]


def by_length(rounds):
    rows = []
    for width in LENGTHS:
        row = {"tokens": width}
        for label, block in (("maps", 0), (f"blocks of {BLOCK}", BLOCK)):
            row[f"s, {label}"], row[f"MiB, {label}"], _ = measure(rounds, batch=16, width=width, block=block)
        rows.append(row)
    return rows


def by_devices(rounds):
    """Return the rows for each number of simulated devices, which each need their own process."""
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


@contextlib.contextmanager
def generated(lines, parent):
    """Yield the folder of a corpus, and a function that runs an option of this script on it.

    The option runs in its own process, so that its memory can be measured.
    """
    from jax_sentemb.data.synthetic import sentences
    from jax_sentemb.data.tokenizer import Tokenizer

    with tempfile.TemporaryDirectory(dir=parent) as folder:
        base_sentences = sentences(10_000, 0)

        def line(number):  # the number makes it distinct, so the vocabulary must have digits
            return f"{number} {base_sentences[number % len(base_sentences)]}"

        def child(option, cache, workers=0):
            command = [sys.executable, __file__, option, folder, "--workers", str(workers), "--started", repr(time.time())]
            environment = {**os.environ, "JAX_SENTEMB_CACHE": str(Path(folder) / cache)}
            return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

        with (Path(folder) / "corpus.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{line(number)}\n" for number in range(lines))
        Tokenizer.train([line(number) for number in range(0, lines, max(lines // 20_000, 1))], 1000).save(f"{folder}/tokenizer")
        yield Path(folder), child


def of_workers(rounds, lines, parent):
    """Compare tokenising without and with workers, in turns."""
    with generated(lines, parent) as (_, child):
        times_of = {workers: [] for workers in (0, WORKERS)}
        for number in range(rounds):
            for workers, times in times_of.items():
                times.append(child("--one-corpus", f"{number}-{workers}", workers))
    return [
        {
            "workers": workers, "s, median": statistics.median(time["tokenise"] for time in times),
            "s, min": min(time["tokenise"] for time in times), "s, max": max(time["tokenise"] for time in times),
            "CPU s, median": statistics.median(time["cpu"] for time in times),
            "s, longest pause": max(time["pause"] for time in times),
        }
        for workers, times in times_of.items()
    ]  # fmt: skip


def of_corpus(lines, parent):
    with generated(lines, parent) as (folder, child):
        alone, helped = child("--one-corpus", "alone"), child("--one-corpus", "helped", WORKERS)
        resumed = child("--one-resume", "alone")
        size = (folder / "corpus.txt").stat().st_size / 1e6
        bytes_of = {
            suffix: sum(file.stat().st_size for file in folder.glob(f"alone/text/*.{suffix}/*")) / lines
            for suffix in ("index", "tokens")
        }
    return {
        "lines": lines, "rows": alone["rows"], "MB": size, "MB/s, first index": size / alone["open"],
        "s, second start": alone["again"],
        "sentences/s": lines / alone["tokenise"], f"sentences/s, {WORKERS} workers": lines / helped["tokenise"],
        "CPU s": alone["cpu"], f"CPU s, {WORKERS} workers": helped["cpu"], "of it here": helped["cpu here"],
        "ms, batch of step 0": alone["first"] * 1e3, "ms, of step 10^6": alone["late"] * 1e3, "s, resume at 10^6": resumed["s"],
        "anonymous MiB": alone["anonymous"], "of a worker": helped["worker"], "peak MiB with mapped files": alone["peak"],
        "bytes a line, index": bytes_of["index"], "bytes a line, tokens": bytes_of["tokens"],
        "s, longest pause": max(alone["pause"], helped["pause"]),
    }  # fmt: skip


def of_encode(lines, parent):
    """Run `jax-sentemb encode` with an encoder of 1 layer x 32, killed in the middle and started again."""
    from benchmarks.encode import write_random

    with generated(lines, parent) as (folder, _):
        write_random(folder / "model", "1x32", folder / "tokenizer")
        vectors = folder / "vectors"
        command = [sys.executable, "-m", "jax_sentemb", "encode", "--model", folder / "model", "--input", folder / "corpus.txt"]
        half, start, most, killed = lines // ENCODED // 2, time.perf_counter(), [0.0, 0.0], 0
        for turn in (0, 1):
            process = subprocess.Popen([*command, "--output", vectors], stderr=subprocess.DEVNULL)
            while process.poll() is None:
                most[turn] = max(most[turn], status("RssAnon", process.pid))
                if turn == 0 and len(list(vectors.glob("*.npy"))) >= half:
                    process.kill()
                    killed = len(list(vectors.glob("*.npy"))) * ENCODED
                time.sleep(0.1)
        seconds = time.perf_counter() - start
        complete = json.loads((vectors / "vectors.json").read_text(encoding="utf-8"))["complete"]
    return {
        "lines": lines, "complete": str(complete), "killed after": killed, "s": seconds, "sentences/s": lines / seconds,
        "anonymous MiB before": most[0], "after": most[1],
    }  # fmt: skip


class Memory(threading.Thread):
    """Measure the largest anonymous memory of this process and of any of its children, MiB (Linux; without mapped files).

    `pause` is the longest time in which the system did not run this thread. If it is long, simultaneous measurements are
    unreliable.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.here = self.child = self.pause = 0.0

    def run(self):
        while True:
            before = time.perf_counter()
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
            self.here = max(self.here, status("RssAnon"))
            self.child = max([self.child, *(status("RssAnon", child) for child in children)])
            time.sleep(0.05)
            self.pause = max(self.pause, time.perf_counter() - before)


def status(name, process="self"):
    """Return a size of /proc/PROCESS/status in MiB; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0) / 2**10


def one_corpus(folder, workers):
    from jax_sentemb.data.batches import Batches
    from jax_sentemb.data.corpus_files import open_corpus
    from jax_sentemb.data.tokenizer import Tokenizer
    from jax_sentemb.data.tokens import tokenize

    tokenizer, memory = Tokenizer.load(Path(folder) / "tokenizer"), Memory()
    memory.start()
    results = {}

    def timed(name, action):
        start = time.perf_counter()
        result = action()
        results[name] = time.perf_counter() - start
        return result

    corpus = timed("open", lambda: open_corpus(f"{folder}/corpus.txt"))
    spent = os.times()
    timed("tokenise", lambda: tokenize(corpus, tokenizer, 32, workers=workers))
    now = os.times()
    results["cpu here"] = now.user + now.system - spent.user - spent.system
    results["cpu"] = results["cpu here"] + now.children_user + now.children_system
    tokens = timed("again", lambda: tokenize(open_corpus(f"{folder}/corpus.txt"), tokenizer, 32))
    results["rows"] = len(tokens)
    timed("first", lambda: Batches(tokens, 64, 0).at(0))
    timed("late", lambda: Batches(tokens, 64, 0).at(10**6))
    # Not getrusage: a child's maximum starts at that of the process that started it.
    return {**results, "anonymous": memory.here, "worker": memory.child, "pause": memory.pause, "peak": status("VmHWM")}


def one_resume(folder, started):
    """Return the seconds from the start of this process to the batch of step 10^6, as in a run that continues."""
    import jax_sentemb.training.run  # noqa: F401
    from jax_sentemb.config import Config, Data, Evaluation
    from jax_sentemb.methods.simcse import SimCSE
    from jax_sentemb.training.setup import prepare

    data = Data(files=f"{folder}/corpus.txt", tokenizer=f"{folder}/tokenizer")
    material = prepare(Config(SimCSE(), data, eval=Evaluation(diagnostic_sentences=64)), Path(folder) / "run")
    material.batches.at(10**6)
    return {"s": time.time() - started}


def cell(value):
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def table(rows):
    names = list(rows[0])
    cells = [[cell(row[name]) for name in names] for row in rows]
    return "\n".join(
        ["| " + " | ".join(names) + " |", "|" + "--:|" * len(names), *("| " + " | ".join(row) + " |" for row in cells)]
    )


def plot(tables, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(tables), figsize=(4 * len(tables), 3.2), layout="constrained", squeeze=False)
    for panel, (title, rows) in zip(panels[0], tables.items(), strict=True):
        first, *columns = rows[0]
        if isinstance(rows[0][first], str):
            continue  # a table only
        for name in columns:
            points = [(row[first], row[name]) for row in rows if row[name] is not None]
            panel.plot(*zip(*points, strict=True), marker="o", label=name)
        panel.set(title=title, xlabel=first, xscale="log", yscale="log")
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", default="batch,methods,length,devices,corpus")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--one-devices", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lines", help="sizes of the corpus, comma separated")
    parser.add_argument("--folder", help="where the corpora are generated, default: the system's folder for temporary files")
    for name in ("--one-corpus", "--one-resume"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_devices:
        print(json.dumps(one_devices(options.one_devices, options.rounds)))
        return
    if options.one_corpus:
        print(json.dumps(one_corpus(options.one_corpus, options.workers)))
        return
    if options.one_resume:
        print(json.dumps(one_resume(options.one_resume, options.started)))
        return
    sizes = tuple(map(int, options.lines.split(","))) if options.lines else LINES
    curves = {
        "batch": by_batch, "methods": by_method, "length": by_length, "devices": by_devices,
        "corpus": lambda rounds: [of_corpus(lines, options.folder) for lines in sizes],
        "workers": lambda rounds: of_workers(rounds, sizes[0], options.folder),
        "encode": lambda rounds: [of_encode(lines, options.folder) for lines in sizes],
    }  # fmt: skip
    tables = {}
    for curve in options.what.split(","):
        tables[curve] = curves[curve](options.rounds)
        print(f"**{curve}**\n\n{table(tables[curve])}\n", flush=True)
    if options.plot:
        plot(tables, options.plot)


if __name__ == "__main__":
    main()
