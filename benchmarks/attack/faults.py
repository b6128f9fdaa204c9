"""Attack work in progress: streams that close, kills, signals, other writers, full disks, damaged intermediate files."""

import gzip
import json
import os
import resource
import signal
import subprocess
from pathlib import Path

from commands import (
    await_file,
    case,
    corpus,
    done,
    encode,
    ended,
    fresh,
    model,
    refused,
    run,
    start,
    train,
    trained,
)  # fmt: skip

for stream in ("stdout", "stderr"):

    @case(1, f"a run whose {stream} closes")
    def closed(stream=stream):
        workdir = fresh("run")
        process = start(*train(workdir))
        getattr(process, stream).readline() if stream == "stderr" else None
        getattr(process, stream).close()
        setattr(process, stream, None)
        code, _, err = ended(process)
        assert code == 0, f"exit code {code}: {err[-200:]}"
        assert (workdir / "export" / "model.safetensors").is_file(), "exit code 0 and no export"


@case(1, "search whose reader has seen enough")
def enough():
    process = start("search", "--model", str(model()), "--corpus", str(corpus()), "--query", "a man", "--top-k", "500")
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    code, _, err = ended(process)
    assert code in (0, -signal.SIGPIPE), f"exit code {code}"
    assert "Traceback" not in err, "a traceback"


@case(1, "a script that calls train() and whose stdout closes")
def closed_script():
    workdir = fresh("run")
    script = f"""
import jax_sentemb
lines = open({str(corpus())!r}).read().splitlines()
print("begin", flush=True)
encoder = jax_sentemb.train(lines, recipe="simcse:tiny", workdir={str(workdir)!r}, max_steps=2, eval__data="", report_sentences=0)
"""
    process = start(script, python=("-c",))
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    code, _, err = ended(process)
    assert code == 0, f"exit code {code}: {err[-200:]}"
    assert (workdir / "export").is_dir(), "no export"


@case(2, "a text that is other while it is tokenised, and the old one afterwards")
def poisoned():
    text = corpus()
    program = f"""
import sys
from pathlib import Path
from jax_sentemb.errors import DataError
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize
file, cache = Path({str(text)!r}), Path({str(fresh("cache"))!r})
before = file.read_bytes()
tokenizer = Tokenizer.train(before.decode().splitlines(), 300)
sentences = open_corpus(str(file), cache=cache)
file.write_bytes(before.replace(b"man", b"owl"))
try:
    tokenize(sentences, tokenizer, 16, cache)
except DataError as error:
    print(error)
file.write_bytes(before)
tokens = tokenize(open_corpus(str(file), cache=cache), tokenizer, 16, cache)
expected = tokenizer.encode(before.decode().splitlines(), 16)[0]
assert all((tokens.ids(row) == expected[row]).all() for row in range(len(tokens))), "wrong tokens under the right hash"
"""
    code, _, err = run(program, python=("-c",))
    assert code == 0, err.strip().splitlines()[-1]


@case(3, "half of a converted .txt.gz")
def half():
    text = corpus()
    packed = text.with_suffix(".txt.gz")
    packed.write_bytes(gzip.compress(text.read_bytes()))
    folder, cache = model(), {"JAX_SENTEMB_CACHE": str(fresh("cache"))}
    done(*encode(folder, packed, text.parent / "whole.npy"), env=cache)
    for file in Path(cache["JAX_SENTEMB_CACHE"]).rglob("*.txt"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)
    code, _, err = run(*encode(folder, packed, text.parent / "again.npy"), env=cache)
    whole, again = (text.parent / f"{name}.npy" for name in ("whole", "again"))
    assert code or again.read_bytes() == whole.read_bytes(), f"exit code 0 and {err.strip()[-60:]}"


def shards() -> tuple[Path, Path, Path]:
    """Return a model, a text and its vectors in shards."""
    folder, text = model(), corpus()
    done(*encode(folder, text, text.parent / "vectors", "--rows-per-shard", "200"))
    return folder, text, text.parent / "vectors"


def flip(file: Path) -> bytes:
    content = bytearray(file.read_bytes())
    whole = bytes(content)
    content[-20] ^= 1
    file.write_bytes(content)
    return whole


@case(4, "a flipped bit and search")
def flipped_search():
    folder, _, vectors = shards()
    flip(vectors / "000001.npy")
    refused(3, "search", "--model", str(folder), "--corpus", str(vectors), "--query", "a man", named="000001.npy")


@case(4, "a flipped bit of one .npy file")
def flipped_file():
    folder, text = model(), corpus()
    output = text.parent / "x.npy"
    done(*encode(folder, text, output))
    flip(output)
    refused(3, "search", "--model", str(folder), "--corpus", str(output), "--query", "a man", named="x.npy.json")


@case(4, "a flipped bit and the same encode again")
def flipped_encode():
    folder, text, vectors = shards()
    whole = flip(vectors / "000001.npy")
    done(*encode(folder, text, vectors, "--rows-per-shard", "200"))
    assert (vectors / "000001.npy").read_bytes() == whole, "the shard is still damaged"


@case(4, "complete: false with all shards there")
def incomplete():
    folder, text, vectors = shards()
    manifest = json.loads((vectors / "vectors.json").read_text())
    (vectors / "vectors.json").write_text(json.dumps({**manifest, "complete": False}))
    done(*encode(folder, text, vectors, "--rows-per-shard", "200"))
    done("search", "--model", str(folder), "--corpus", str(vectors), "--query", "a man")


@case(4, "a damaged vectors.json")
def damaged_manifest():
    folder, text, vectors = shards()
    (vectors / "vectors.json").write_text('{"shards": [3')
    refused(3, *encode(folder, text, vectors, "--rows-per-shard", "200"), named="vectors.json")


@case(4, "a flipped bit in a part, then the last part, then that part again")
def damaged_part():
    folder, text = model(), corpus()
    vectors = text.parent / "vectors"
    command = encode(folder, text, vectors, "--rows-per-shard", "100")
    done(*command, "--part", "1/2")
    flip(vectors / "000001.npy")
    refused(3, *command, "--part", "2/2", named="000001.npy")
    done(*command, "--part", "1/2")
    done("search", "--model", str(folder), "--corpus", str(vectors), "--query", "a man")


@case(4, "half of the list of a part")
def damaged_list():
    folder, text = model(), corpus()
    vectors = text.parent / "vectors"
    command = encode(folder, text, vectors, "--rows-per-shard", "100", "--part", "1/2")
    done(*command)
    listed = vectors / "part-1-of-2.json"
    os.truncate(listed, listed.stat().st_size // 2)
    refused(3, *command, named="delete it and encode this part again")
    listed.unlink()
    done(*command)


@case(5, "kill -9 while a run begins")
def kept_metrics():
    workdir = fresh("run")
    done(*train(workdir, steps=2))
    log = workdir / "metrics.jsonl"
    kept = log.read_bytes()
    for _ in range(2):
        log.write_bytes(kept + b'{"step": 3, "train/loss": 1.0, "time": 1.0}\n' * 300_000)  # to be removed
        process, size = start(*train(workdir, steps=2)), log.stat().st_size
        await_file(process, log, lambda file, size=size: file.stat().st_size < size or len(list(workdir.glob("metrics*"))) > 1)
        process.kill()
        process.communicate()
        assert log.read_bytes().startswith(kept), f"{log.stat().st_size:,} bytes are left"


@case(7, "SIGHUP in training")
def hangup():
    workdir = fresh("run")
    default = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}  # even if this script runs under nohup
    process = start(*train(workdir, steps=5000), stdout=subprocess.DEVNULL, **default)
    await_file(process, workdir / "metrics.jsonl", lambda file: file.is_file() and '"train/loss"' in file.read_text())
    process.send_signal(signal.SIGHUP)
    code, _, err = ended(process)
    assert code == 75, f"exit code {code}"
    assert "and saved" in err, err[-100:]


@case(7, "SIGTERM and SIGINT at the same moment")
def two_signals():
    workdir = fresh("run")
    default = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = start(*train(workdir, steps=5000), stdout=subprocess.DEVNULL, **default)
    await_file(process, workdir / "metrics.jsonl", lambda file: file.is_file() and '"train/loss"' in file.read_text())
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    code, _, err = ended(process)
    assert code in (-signal.SIGINT, -signal.SIGTERM), f"exit code {code}: {err[-200:]}"


@case(7, "SIGHUP with nohup")
def nohup():
    workdir = fresh("run")
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    process = start(*train(workdir), stdout=subprocess.DEVNULL, **ignore)
    await_file(process, workdir / "metrics.jsonl", lambda file: file.is_file() and '"train/loss"' in file.read_text())
    process.send_signal(signal.SIGHUP)
    assert (code := ended(process)[0]) == 0, f"exit code {code}"


@case(8, "a text that shrinks while it is encoded")
def shrinks():
    folder, text = model(), corpus(20_000)
    process = start(*encode(folder, text, text.parent / "vectors", "--rows-per-shard", "100"))
    await_file(process, text.parent / "vectors" / "000000.npy")
    os.truncate(text, 5000)
    code, _, err = ended(process)
    assert code == 3, f"exit code {code}"
    assert "changed while it was read" in err.splitlines()[-1], err[-200:]


@case(9, "process 0 is killed: the other ends, and the run goes on")
def first_of_two():
    workdir, port = fresh("run"), 20_000 + os.getpid() % 20_000
    together = [f"--coordinator=127.0.0.1:{port}", "--processes=2", "--config.eval.data="]
    both = [start(*train(workdir, *together, f"--process={number}", steps=5000)) for number in (0, 1)]
    await_file(both[0], workdir / "checkpoints", lambda folder: bool(list(folder.glob("*/manifest.json"))))
    both[0].kill()
    both[0].communicate()
    code, _, err = ended(both[1])
    assert code == 7, f"exit code {code}"
    assert err.strip().splitlines()[-1].startswith("error: another process of this run was lost"), err[-200:]
    process = start(*train(workdir, "--config.eval.data=", steps=5000), stdout=subprocess.DEVNULL)
    lines = []
    for line in process.stderr or ():
        lines.append(line)
        if "continuing at step" in line:
            break
    process.kill()
    process.communicate()
    assert "continuing at step" in lines[-1], f"it does not continue: {lines[-1]}"


@case(10, "two encoders to one .npy")
def two_encoders():
    folder, text = model(), corpus(5000)
    both = [start(*encode(folder, text, text.parent / "x.npy")) for _ in range(2)]
    ends = [ended(process) for process in both]
    codes = sorted(code for code, _, _ in ends)
    assert codes in ([0, 6], [0, 2]), (
        f"exit codes {codes}: {ends[0][2][-100:]} {ends[1][2][-100:]}"
    )  # 2: the second started when the file existed


@case(10, "two exports to one place")
def two_exports():
    workdir = trained()
    output = fresh("export") / "export"
    both = [start("export", "--workdir", str(workdir), "--output", str(output)) for _ in range(2)]
    ends = [ended(process) for process in both]
    codes = sorted(code for code, _, _ in ends)
    assert codes in ([0, 6], [0, 0]), f"exit codes {codes}: {ends[0][2][-100:]} {ends[1][2][-100:]}"
    assert [file.name for file in output.parent.iterdir()] == ["export"], "a temporary file is left"


@case(10, "train() in a work directory where a run is at work")
def second_train():
    workdir = fresh("run")
    process = start(*train(workdir, steps=5000), stdout=subprocess.DEVNULL)
    await_file(process, workdir / "metrics.jsonl")
    process.send_signal(signal.SIGSTOP)  # so that it is still running when the second starts
    script = f"import jax_sentemb; jax_sentemb.train(['a', 'b'] * 9, recipe='simcse:tiny', workdir={str(workdir)!r})"
    code, _, err = run(script, python=("-c",))
    process.kill()
    process.communicate()
    assert "BusyError" in err, f"exit code {code}: {err[-200:]}"
    assert not (workdir / "sentences.txt").exists(), "its sentences were written"


for name in ("x.npy", "vectors"):

    @case(10, f"encode to {name} on a full disk")
    def full(name=name):
        text = corpus(4000)
        limited = {"preexec_fn": _small_files}
        refused(7, *encode(model(), text, text.parent / name), named=name, **limited)


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
