"""Compares the state of a process before and after the public calls of the package: python tests/host_state.py FOLDER.

FOLDER has `model`, a directory of a BERT, `corpus.csv` with a column text, and `pairs.tsv`. What changes is printed, and the exit
code is 1. The packages that this one needs are imported before, except for those whose effects it undoes.
"""

import csv
import faulthandler
import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import flax.linen  # noqa: F401
import jax
import numpy as np
import optax  # noqa: F401
import rich.console  # noqa: F401
import scipy.sparse
import scipy.stats  # noqa: F401
import tokenizers  # noqa: F401
from huggingface_hub import ModelCard  # noqa: F401  # this sets up a logger of its own


def state():
    """What belongs to a program and not to its libraries, by name."""
    umask = os.umask(0)
    os.umask(umask)
    loggers = {"root": logging.root, **logging.root.manager.loggerDict}
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "warnings": (list(map(str, warnings.filters)), warnings.showwarning),
        "logging": {
            name: (logger.level, list(map(str, logger.handlers)), logger.filters, logger.propagate, logger.disabled)
            for name, logger in loggers.items()
            if isinstance(logger, logging.Logger) and (logger.level, logger.handlers, logger.filters) != (0, [], [])
        },
        "logging as a whole": (logging.root.manager.disable, logging.lastResort, logging.getLoggerClass(), logging.raiseExceptions),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.gettrace(), sys.getprofile()),
        "streams": {name: (stream, stream.encoding, stream.errors) for name, stream in streams.items()},
        "descriptors": {number: os.readlink(f"/proc/self/fd/{number}") for number in range(3)},
        "csv": (csv.field_size_limit(), csv.list_dialects()),
        "random": (random.getstate(), str(np.random.get_state(legacy=False))),  # noqa: NPY002
        "numpy": (np.geterr(), np.geterrcall(), np.get_printoptions()),
        "locale": locale.setlocale(locale.LC_ALL),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "interpreter": (sys.getrecursionlimit(), sys.getswitchinterval(), faulthandler.is_enabled(), sys.path[:], sys.argv[:]),
        "jax": {name: str(value) for name, value in jax.config.values.items()},
        "compilation cache": jax._src.compilation_cache.compress_executable,
        "threads": sorted(thread.name for thread in threading.enumerate()),
    }


def changed(before, after):
    """A line for each entry that differs."""
    for name, old in before.items():
        if isinstance(old, dict):
            for key in sorted({*old, *after[name]}, key=str):
                if old.get(key) != after[name].get(key):
                    yield f"{name} {key}: {str(old.get(key))[:200]} -> {str(after[name].get(key))[:200]}"
        elif old != after[name]:
            yield f"{name}: {str(old)[:200]} -> {str(after[name])[:200]}"


def calls(folder):
    """The public calls by name, each of which is made once, in this order."""
    lines = [row["text"] for row in csv.DictReader((folder / "corpus.csv").open(encoding="utf-8"))]
    kept = {}

    def encoder():
        import jax_sentemb

        kept["encoder"] = jax_sentemb.SentenceEncoder(folder / "model")

    def encode():
        kept["vectors"] = kept["encoder"].encode(lines)
        kept["encoder"].encode(lines, show_progress_bar=True)
        kept["encoder"].encode(lines[:3], output_value="token_embeddings")

    def find():
        import jax_sentemb

        vectors = kept["vectors"]
        jax_sentemb.search(vectors[:2], vectors)
        jax_sentemb.mine_pairs(vectors)
        jax_sentemb.kmeans(vectors, 3)
        jax_sentemb.community_detection(vectors, 0.5, 2)
        jax_sentemb.deduplicate(vectors, texts=lines)

    def train():
        import jax_sentemb

        options = {"recipe": "simcse:tiny", "max_steps": 2, "save_steps": 1, "eval__data": "", "report_sentences": 5}
        jax_sentemb.train(str(folder / "corpus.csv"), workdir=folder / "run", **options)
        jax_sentemb.train(lines, model=folder / "model", **options)

    def fail():
        import jax_sentemb

        for sentences, options in ([], {}), (lines, {"learning_rate": 1e30, "max_steps": 3, "eval__data": ""}):
            try:
                jax_sentemb.train(sentences, recipe="simcse:tiny", report_sentences=0, **options)
            except jax_sentemb.errors.UserError:
                continue
            raise AssertionError("it did not fail")

    return {
        "SentenceEncoder": encoder,
        "encode": encode,
        "search, mine_pairs, kmeans, community_detection, deduplicate": find,
        "evaluate": lambda: kept["encoder"].evaluate(str(folder / "pairs.tsv")),
        "train": train,
        "SentenceEncoder of a run": lambda: __import__("jax_sentemb").SentenceEncoder(folder / "run").encode("a man"),
        "save": lambda: kept["encoder"].save(folder / "saved"),
        "train that fails": fail,
    }


def main(folder):
    """The exit code."""
    failed = False
    for name, call in calls(folder).items():
        before = state()
        call()
        gc.collect()
        for line in changed(before, state()):
            print(f"STATE CHANGED by {name}: {line}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
