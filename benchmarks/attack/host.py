"""Attack the program that uses the library: its process, its exceptions, and its memory after many calls."""

import itertools
import subprocess
import sys

from commands import ROOT, WORK, case, corpus, fresh, model, run


def program(text: str, *arguments: str, **options) -> str:
    """Run a Python program, which fails with an exception, and return its standard error."""
    code, _, err = run(text, *arguments, python=("-c",), **options)
    assert code == 0, f"exit code {code}: {(err.strip().splitlines() or [''])[-1]}"
    return err


TRAIN = """
import sys
import jax_sentemb
lines = open(sys.argv[2]).read().splitlines()
def train(**options):
    return jax_sentemb.train(lines, recipe="simcse:tiny", max_steps=2, eval__data="", report_sentences=0, **options)
"""


@case(16, "the state of a process before and after each public call")
def state():
    folder, text = model().parent, corpus(60)
    (folder / "export").rename(folder / "model")
    lines = text.read_text(encoding="utf-8").splitlines()
    (folder / "corpus.csv").write_text("".join(f"{line}\n" for line in ("text", *lines)), encoding="utf-8")
    pairs = [f"{one}\t{other}\t{number % 5}" for number, (one, other) in enumerate(itertools.pairwise(lines))]
    (folder / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *pairs, ""]), encoding="utf-8")
    code, _, err = run(str(folder), python=(str(ROOT / "tests" / "host_state.py"),))
    changes = [line for line in err.splitlines() if " changed " in line]
    assert not changes, changes[0]
    assert code == 0, f"exit code {code}: {err[-200:]}"


HOSTS = {
    "logging that is configured after a training": """
import io, logging
train()
stream = io.StringIO()
logging.basicConfig(level=logging.INFO, stream=stream)
logging.info("configured")
assert "configured" in stream.getvalue(), "basicConfig had no effect"
""",
    "an event loop with handlers of signals": """
import asyncio, os, signal
async def serve():
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    train()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(told.wait(), 60)
asyncio.run(serve())
""",
    "a csv limit and long fields": """
import csv, pathlib
file = pathlib.Path(sys.argv[2]).parent / "long.csv"
file.write_text("text\\n" + "".join(f"{line} {'word ' * 40_000}\\n" for line in lines[:5]))
csv.field_size_limit(1000)
from jax_sentemb.data.corpus_files import open_corpus
assert len(list(open_corpus(str(file)))) == 5
assert csv.field_size_limit() == 1000, "the limit was changed"
""",
    "warnings as errors, in threads": """
import warnings
from concurrent.futures import ThreadPoolExecutor
encoder = jax_sentemb.SentenceEncoder(sys.argv[1])
before = list(warnings.filters)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda line: encoder.encode(line, show_progress_bar=True), lines[:100]))
assert warnings.filters == before, "the filters were changed"
""",
}
for title, text in HOSTS.items():

    @case(16, title)
    def host(text=text):
        program(TRAIN + text, str(model()), str(corpus(100)))


for value in ("", " "):

    @case(16, f"JAX_SENTEMB_CACHE={value!r}")
    def cache(value=value):
        home, folder, text = fresh("home"), model(), corpus(50)
        before = set(WORK.iterdir())
        environment = {"JAX_SENTEMB_CACHE": value, "HOME": str(home), "JAX_COMPILATION_CACHE_DIR": ""}
        code, _, err = run("encode", "--model", str(folder), "--input", str(text), "--output", f"{home}/x.npy", env=environment)
        assert code == 0, err[-200:]
        program(TRAIN + "jax_sentemb.SentenceEncoder(sys.argv[1]).encode(lines)", str(folder), str(text), env=environment)
        assert set(WORK.iterdir()) == before, f"{set(WORK.iterdir()) - before} in the current folder"
        assert (home / ".cache" / "jax_sentemb").is_dir(), "no cache in the home folder"


@case(16, "a progress bar for a standard error that is closed")
def closed_bar():
    text = (
        TRAIN
        + "\nsys.stdin.readline()\nprint(jax_sentemb.SentenceEncoder(sys.argv[1]).encode(lines, show_progress_bar=True).shape)"
    )
    arguments = [sys.executable, "-c", text, str(model()), str(corpus(50))]
    process = subprocess.Popen(arguments, stdin=-1, stdout=-1, stderr=-1, cwd=WORK, text=True)
    process.stderr.close()
    process.stderr = None
    out, _ = process.communicate("\n")
    assert process.returncode == 0, f"exit code {process.returncode}"
    assert out.startswith("(50,"), out


POOLS = {
    "exceptions of a process pool": """
import concurrent.futures, importlib, multiprocessing, pickle, pkgutil
import jax_sentemb
from jax_sentemb.errors import NotFinite, UserError
def classes():
    for module in pkgutil.walk_packages(jax_sentemb.__path__, "jax_sentemb."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("jax_sentemb"):
                    yield value
found = set(classes())
assert len(found) > 7
for each in found:
    error = each(3, "NaN") if each is NotFinite else each("corpus.txt: no text")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (each, str(error), vars(error)), each
""",
    "an encoder with changed settings": """
import copy, pickle, sys
import numpy as np
import jax_sentemb
encoder = jax_sentemb.SentenceEncoder(sys.argv[1], max_seq_length=9)
encoder.prompts, encoder.default_prompt = {"query": "a cook "}, "a man "
lines = open(sys.argv[2]).read().splitlines()
for other in (pickle.loads(pickle.dumps(encoder)), copy.copy(encoder), copy.deepcopy(encoder)):
    assert other.max_seq_length == 9
    np.testing.assert_array_equal(other.encode(lines), encoder.encode(lines))
    np.testing.assert_array_equal(other.encode_query(lines), encoder.encode_query(lines))
for each in (encoder.tokenizer, jax_sentemb.search(encoder.encode(lines[:2]), encoder.encode(lines))):
    pickle.loads(pickle.dumps(each))
""",
}
for title, text in POOLS.items():

    @case(17, title)
    def pickled(text=text):
        program(text, str(model()), str(corpus(50)))


WORKER = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from jax_sentemb.errors import NotFinite
def fail(step):
    raise NotFinite(step, "the loss is NaN")
if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for step in (1, 2):  # a pool that is broken gives another error
            try:
                pool.submit(fail, step).result()
            except NotFinite as error:
                assert error.step == step
"""


@case(17, "an error with two arguments in a worker of a pool")
def worker():
    file = fresh("pool") / "pool.py"
    file.write_text(WORKER, encoding="utf-8")
    code, _, err = run(python=(str(file),))
    assert code == 0, err.strip().splitlines()[-1]


USAGE = """
import ctypes, gc, os, threading
def usage():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resident, len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))
def check(before, after, megabytes):
    assert after[0] - before[0] < megabytes, f"{after[0] - before[0]:.0f} MB more"
    assert after[1] <= before[1], f"{after[1]} open files, before {before[1]}"
    assert after[2] == before[2] == 1, f"{after[2]} threads of Python"
    # Pools of native threads start theirs when there is work for one more; a leak would be one for each call.
    assert after[3] <= before[3] + 3, f"{after[3]} threads, before {before[3]}"
"""
MANY = {
    "2,000 calls of encode": """
encoder = jax_sentemb.SentenceEncoder(sys.argv[1])
def encode(number):
    encoder.encode(lines[number % 500 : number % 500 + 1 + number % 40], show_progress_bar=number % 10 == 0)
    if not number % 100:
        encoder.encode(lines, output_value="token_embeddings")
        try:
            encoder.encode([*lines, 3])
        except TypeError:
            pass
for number in range(200):
    encode(number)
before = usage()
for number in range(2000):
    encode(number)
check(before, usage(), 5)
""",
    "100 encoders, loaded and dropped": """
def load():
    jax_sentemb.SentenceEncoder(sys.argv[1]).encode(lines[:20])
for _ in range(10):
    load()
before = usage()
for _ in range(100):
    load()
check(before, usage(), 20)
""",
    "1,000 searches and clusters": """
vectors = jax_sentemb.SentenceEncoder(sys.argv[1]).encode(lines)
def find():
    jax_sentemb.search(vectors[:2], vectors)
    jax_sentemb.search(vectors[:20], vectors)
    jax_sentemb.mine_pairs(vectors)
    jax_sentemb.kmeans(vectors, 4)
    jax_sentemb.community_detection(vectors, 0.9, 2)
for _ in range(20):
    find()
before = usage()
for _ in range(200):
    find()
check(before, usage(), 10)
""",
    "30 trainings": """
jax_sentemb.use_compilation_cache()  # or the limit of processor time ends it
for _ in range(3):
    train().encode(lines[:3])
before = usage()
for _ in range(30):
    train().encode(lines[:3])
check(before, usage(), 30)
""",
    "20 trainings that fail": """
jax_sentemb.use_compilation_cache()  # or the limit of processor time ends it
import contextlib
from jax_sentemb.errors import NumericsError
def fail():
    with contextlib.suppress(NumericsError):
        train(learning_rate=1e30)
        raise AssertionError("it did not fail")
for _ in range(3):
    fail()
before = usage()
for _ in range(20):
    fail()
check(before, usage(), 30)
import glob, tempfile
assert not glob.glob(f"{tempfile.gettempdir()}/jax_sentemb-*"), "temporary folders are left"
""",
}
for title, text in MANY.items():

    @case(18, title)
    def many(text=text):
        program(TRAIN + USAGE + text, str(model()), str(corpus()), env={"TMPDIR": str(fresh("temporary"))})
