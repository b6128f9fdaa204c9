"""Measure how steps, evaluations and saves change the resident memory of a run, in blocks of one kind (Linux with glibc).

    python benchmarks/memory.py [--config simcse:tiny] [--blocks steps=300,evaluations=60,saves=100,best=40,steps=300] [--keep]

Each block is a row: the growth of resident memory (MB), the part that malloc has given out, the part that malloc returns on
request, and the number of Python's blocks. Each kind of work is first done a few times as a warm-up. With `--keep`, saves do not
return the memory that malloc holds free, as without `allocator.return_freed_memory`. `best` are saves of the parameters alone.
"""

import argparse
import contextlib
import ctypes
import gc
import sys
import tempfile
import time
from pathlib import Path

from jax_sentemb.config import check
from jax_sentemb.formats import checkpoint
from jax_sentemb.parallel import fsdp_sharding, use_compilation_cache
from jax_sentemb.recipes import override, read_config
from jax_sentemb.system.allocator import keep_freed_memory
from jax_sentemb.training.loop import Hooks, Metrics, batches_on_device, fit
from jax_sentemb.training.step import make_step
from jax_sentemb.training.trainer import Trainer

LIBC = ctypes.CDLL(None)
SETTINGS = {
    "data.files": "grammar:400", "data.validation": 16, "eval.data": "", "eval.report_sentences": 0, "eval.eval_steps": 0,
    "train.logging_steps": 1, "train.max_steps": 10**8, "train.save_steps": 0,
}  # fmt: skip


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [(f"other{number}", ctypes.c_size_t) for number in range(7)]
    _fields_ += [("given_out", ctypes.c_size_t), ("free", ctypes.c_size_t), ("at_the_end", ctypes.c_size_t)]


LIBC.mallinfo2.restype = Mallinfo


def measured() -> dict[str, float]:
    """Return the resident MB, the MB that malloc has given out, and the number of Python's blocks."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return {"resident": resident / 1000, "malloc": LIBC.mallinfo2().given_out / 1e6, "blocks": sys.getallocatedblocks()}


class Blocks:
    """Do each kind of work a number of times on the run of `trainer`."""

    def __init__(self, trainer: Trainer) -> None:
        self._run, config = trainer, trainer.config
        shardings = fsdp_sharding(trainer.mesh, trainer.state)
        self._step = make_step(config.method, trainer.encoder, trainer.optimizer, trainer.mesh, 0, shardings)
        self._metrics = Metrics(trainer.log, config.data.batch_size, trainer.steps, 1)
        self._hooks = Hooks(lambda step, state: state, lambda step, state: None, lambda: False, 0, 0, trainer.steps)

    def steps(self, count: int) -> None:
        """Do training steps."""
        run = self._run
        with contextlib.closing(batches_on_device(run._batch, run.step, run.step + count, run.mesh)) as batches:
            run.state = fit(run.state, self._step, batches, self._metrics, self._hooks, run.stop)

    def evaluations(self, count: int) -> None:
        """Compute diagnostics and validation."""
        for _ in range(count):
            self._run.measures.scorer.measure(self._run.step, self._run.state.params)
            assert self._run.validation
            self._run.validation(self._run.state)

    def saves(self, count: int) -> None:
        """Do a step and save the state, `count` times."""
        for _ in range(count):
            self.steps(1)
            self._run._save(self._run.step, self._run.state)
        self._run.checkpoints.wait()

    def best(self, count: int) -> None:
        """Do a step and save the parameters, `count` times."""
        for _ in range(count):
            self.steps(1)
            self._run.checkpoints.save_best(self._run.step, self._run.state.params, {"step": self._run.step})
        self._run.checkpoints.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="simcse:tiny")
    parser.add_argument("--blocks", default="steps=300,evaluations=60,saves=100,best=40,steps=300,saves=100")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    keep_freed_memory()  # as a run does
    if options.keep:
        checkpoint.return_freed_memory = lambda: None
    use_compilation_cache()
    config = read_config(options.config)
    for name, value in SETTINGS.items():
        override(config, name, value)
    check(config)
    with tempfile.TemporaryDirectory() as folder, Trainer(config, Path(folder)) as trainer, trainer.stop:
        blocks = Blocks(trainer)
        for work, count in (("steps", 20), ("evaluations", 3), ("saves", 20), ("best", 5)):
            getattr(blocks, work)(count)
        rows = []
        for work, count in (text.split("=") for text in options.blocks.split(",")):
            before, started = measured(), time.monotonic()
            getattr(blocks, work)(int(count))
            seconds, after = time.monotonic() - started, measured()
            growth = {name: after[name] - before[name] for name in after}
            used = time.process_time()
            LIBC.malloc_trim(0)
            used, returned = time.process_time() - used, after["resident"] - measured()["resident"]
            rows.append(
                f"| {count} {work} | {seconds:.0f} | {growth['resident']:.1f} | {growth['malloc']:.2f} | {returned:.1f} | "
                f"{used * 1e3:.0f} | {growth['blocks']:,.0f} |"
            )
    print("| block | seconds | resident MB | given out by malloc MB | returned by malloc_trim MB | its ms | Python's blocks |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
