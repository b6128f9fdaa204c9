"""Attacks on the commands from outside, in 14 classes: python benchmarks/attack.py [CLASS ...] prints a table of held and failed.

Every command is a process of its own with a time limit. Refused means the exit code of its kind and one line, no traceback.
About four minutes on two cores. Exit code 1 where one failed.
"""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = Path(tempfile.mkdtemp(prefix="attack-"))
LIMIT = 200  # seconds for a command
TINY = ["train", f"--config={ROOT}/configs/simcse.py:tiny", "--config.eval.report_sentences=0", "--config.train.logging_steps=1"]
TITLES = {
    1: "output that closes", 2: "text edited while it is tokenised", 3: "damaged caches", 4: "damaged shards of vectors",
    5: "metrics.jsonl and kill -9", 6: "names that are not UTF-8", 7: "SIGHUP", 8: "text that shrinks while it is read",
    9: "process 0 of two is killed", 10: "two writers, full disk", 11: "fork, pickle", 12: "devices, terminals, odd text",
    13: "hostile model directories", 14: "evaluation data, few diagnostic sentences",
}  # fmt: skip
CASES: list[tuple[int, str, Callable[[], None]]] = []


def case(number: int, name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A function that raises AssertionError, or whatever, where the attack succeeds."""

    def register(attack: Callable[[], None]) -> Callable[[], None]:
        CASES.append((number, name, attack))
        return attack

    return register


def start(*arguments, python=("-m", "jax_sentemb"), env=None, **options) -> subprocess.Popen:
    known = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_SENTEMB_CACHE": str(WORK / "cache"),
        **(env or {}),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, *python, *arguments], env=known, cwd=WORK, errors="surrogateescape", **pipes)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out or "", err or ""


def run(*arguments, **options) -> tuple[int, str, str]:
    return ended(start(*arguments, **options))


def refused(code: int, *arguments, named: str = "", **options) -> None:
    """The command ends with `code` and one line that holds `named`."""
    found, _, err = run(*arguments, **options)
    assert found == code, f"exit code {found}, not {code}: {err[-200:]}"
    assert "Traceback" not in err, "a traceback"
    last = (err.strip().splitlines() or [""])[-1]
    assert last.startswith("error: "), f"says {last[:100]!r}"
    assert named in last, f"{named!r} is not in {last[:200]!r}"


def done(*arguments, **options) -> str:
    """stdout of a command that has to work."""
    code, out, err = run(*arguments, **options)
    assert code == 0, f"exit code {code}: {err[-200:]}"
    return out


def await_file(process: subprocess.Popen, file: Path, there: Callable[[Path], bool] = Path.exists) -> None:
    deadline = time.monotonic() + LIMIT
    while not there(file) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, f"ended before {file.name}: {process.communicate()[1][-200:]}"


def fresh(name: str) -> Path:
    """A new folder."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=WORK))


def corpus(lines: int = 600) -> Path:
    file = fresh("corpus") / "corpus.txt"
    file.write_text("".join(f"a man number {n} plays the guitar\n" for n in range(lines)), encoding="utf-8")
    return file


def train(workdir: Path, *more: str, steps: int = 30) -> list[str]:
    return [*TINY, f"--workdir={workdir}", f"--config.train.max_steps={steps}", "--config.train.save_steps=10", *more]


def model() -> Path:
    """A copy of the export of a small run."""
    if not (WORK / "trained" / "export").is_dir():
        done(*train(WORK / "trained", steps=2))
    return Path(shutil.copytree(WORK / "trained" / "export", fresh("model") / "export"))


def damage_model(file: str, change: Callable[[object], object]) -> Path:
    """An export with one file of its changed, without the list of hashes that would tell."""
    folder = model()
    (folder / "jax_sentemb.json").unlink()
    place = folder / file
    content = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    place.write_text(json.dumps(change(content)), encoding="utf-8")
    return folder


def encode(folder: Path, text: Path, output: Path, *more: str) -> list[str]:
    return ["encode", "--model", str(folder), "--input", str(text), "--output", str(output), *more]


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
    """A model, a text and its vectors in shards."""
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


@case(5, "kill -9 while a run begins")
def kept_metrics():
    workdir = fresh("run")
    done(*train(workdir, steps=2))
    log = workdir / "metrics.jsonl"
    lines = log.read_text() + '{"step": 1, "train/loss": 1.0, "time": 1.0}\n' * 300_000
    log.write_text(lines)
    for _ in range(2):
        process, size = start(*train(workdir, steps=2)), log.stat().st_size
        await_file(process, log, lambda file, size=size: file.stat().st_size < size or len(list(workdir.glob("metrics*"))) > 1)
        process.kill()
        process.communicate()
        assert log.stat().st_size >= size, f"{log.stat().st_size:,} of {size:,} bytes are left"


@case(6, "a corpus whose name is no UTF-8")
def odd_corpus():
    file = os.fsencode(fresh("odd")) + b"/caf\xe9.txt"
    shutil.copy(corpus(), os.fsdecode(file))
    workdir = fresh("run")
    code, _, err = run(*train(workdir, f"--config.data.files={os.fsdecode(file)}", steps=2))
    assert "Traceback" not in err, f"a traceback, exit code {code}"
    assert code in (2, 3) or (code == 0 and (workdir / "export").is_dir()), f"exit code {code}"


@case(6, "a work directory whose name is no UTF-8")
def odd_workdir():
    workdir = Path(os.fsdecode(os.fsencode(fresh("odd")) + b"/r\xffn"))
    code, _, err = run(*train(workdir, steps=2))
    assert "Traceback" not in err, f"a traceback, exit code {code}"
    assert code in (2, 3) or (code == 0 and (workdir / "export").is_dir()), f"exit code {code}"


@case(7, "SIGHUP in training")
def hangup():
    workdir = fresh("run")
    process = start(*train(workdir, steps=5000), stdout=subprocess.DEVNULL)
    await_file(process, workdir / "metrics.jsonl", lambda file: file.is_file() and '"train/loss"' in file.read_text())
    process.send_signal(signal.SIGHUP)
    code, _, err = ended(process)
    assert code == 75, f"exit code {code}"
    assert "and saved" in err, err[-100:]


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
    code = ended(both[1])[0]
    assert code in (7, -signal.SIGABRT), f"exit code {code}"  # docs/pods.md
    one = start(*train(workdir, "--config.eval.data=", steps=5000), stdout=subprocess.DEVNULL)
    assert any("continuing at step" in line for line in one.stderr or ()), "it does not continue"
    one.kill()
    one.communicate()


@case(10, "two encoders to one .npy")
def two_encoders():
    folder, text = model(), corpus(5000)
    both = [start(*encode(folder, text, text.parent / "x.npy")) for _ in range(2)]
    ends = [ended(process) for process in both]
    codes = sorted(code for code, _, _ in ends)
    assert codes in ([0, 6], [0, 2]), (
        f"exit codes {codes}: {ends[0][2][-100:]} {ends[1][2][-100:]}"
    )  # 2: it came later and one is there


@case(10, "two exports to one place")
def two_exports():
    model()
    output = fresh("export") / "export"
    both = [start("export", "--workdir", str(WORK / "trained"), "--output", str(output)) for _ in range(2)]
    ends = [ended(process) for process in both]
    codes = sorted(code for code, _, _ in ends)
    assert codes in ([0, 6], [0, 0]), f"exit codes {codes}: {ends[0][2][-100:]} {ends[1][2][-100:]}"
    assert [file.name for file in output.parent.iterdir()] == ["export"], "something is left beside it"


for name in ("x.npy", "vectors"):

    @case(10, f"encode to {name} on a full disk")
    def full(name=name):
        text = corpus(4000)
        limited = {"preexec_fn": _small_files}
        refused(7, *encode(model(), text, text.parent / name), named=name, **limited)


def _small_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


@case(11, "an encoder after os.fork")
def forked():
    program = f"""
import os
from jax_sentemb import SentenceEncoder
encoder = SentenceEncoder.load({str(model())!r})
encoder.encode("a man")
child = os.fork()
if not child:
    encoder.encode("a man")
    os._exit(0)
os.waitpid(child, 0)
"""
    code, _, err = run(program, python=("-c",))
    assert "forked" in err, f"exit code {code}: {err[-100:]}"


@case(11, "pickle and deepcopy of an encoder")
def pickled():
    program = f"""
import copy, pickle
from jax_sentemb import SentenceEncoder
encoder = SentenceEncoder.load({str(model())!r})
for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
    assert (other.encode("a man") == encoder.encode("a man")).all()
"""
    code, _, err = run(program, python=("-c",))
    assert code == 0, err.strip().splitlines()[-1]


@case(12, "JAX_PLATFORMS of a device that is not there")
def no_device():
    refused(2, *train(fresh("run"), steps=1), named="JAX_PLATFORMS=nonsense", env={"JAX_PLATFORMS": "nonsense"})


for command in ("search", "mine", "cluster"):

    @case(12, f"control sequences and {command}")
    def controls(command=command):
        text = fresh("text") / "corpus.txt"
        text.write_text("".join(f"\x1b[2Ja man {n} \x9b5m\n" for n in range(30)), encoding="utf-8")
        more = {"search": ["--query", "a\x07 man"], "mine": [], "cluster": ["--k", "2"]}[command]
        out = done(command, "--model", str(model()), "--corpus", str(text), *more)
        assert not set(out) & {"\x1b", "\x9b", "\x07"}, "they reach the terminal"


@case(12, "** through links that lead back")
def loops():
    text = corpus(100)
    for number in range(3):
        (text.parent / f"loop{number}").symlink_to(text.parent)
    facts = json.loads(done("check", "--json", f"{text.parent}/**/*.txt"))
    assert facts["lines"] == 100, f"{facts['lines']} lines of 100"


@case(12, "a gz bomb")
def bomb():
    file = fresh("bomb") / "bomb.txt.gz"
    file.write_bytes(gzip.compress(b"a b\n" * (1 << 24), 9) * 20)
    refused(3, "check", str(file), named="bomb.txt.gz unpacks to more than")


for encoding in ("utf-16-le", "utf-16-be", "carriage returns"):

    @case(12, f"text in {encoding}")
    def odd_text(encoding=encoding):
        text = corpus()
        lines = text.read_text()
        text.write_bytes(lines.replace("\n", "\r").encode() if encoding == "carriage returns" else lines.encode(encoding))
        refused(3, *encode(model(), text, text.parent / "x.npy"), named=str(text))


def chained(state: dict) -> dict:
    rule = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {**state, "normalizer": {"type": "Sequence", "normalizers": [rule] * 40}}


HOSTILE: dict[str, tuple[str, Callable]] = {
    "replacements without end": ("tokenizer.json", chained),
    "10^6 added tokens": ("tokenizer.json", lambda state: {**state, "added_tokens": state["added_tokens"][:1] * 10**6}),
    "10^5 modules": ("modules.json", lambda modules: modules[:1] * 10**5),
    "max_seq_length -3": ("sentence_bert_config.json", lambda _: {"max_seq_length": -3}),
    "max_seq_length NaN": ("sentence_bert_config.json", lambda _: {"max_seq_length": float("nan")}),
}
for title, (file, change) in HOSTILE.items():

    @case(13, title)
    def hostile(file=file, change=change):
        text = corpus()
        refused(4, *encode(damage_model(file, change), text, text.parent / "x.npy"), named=file)


for file in ("model.safetensors", "tokenizer.json"):

    @case(13, f"{file} is a link out of the directory")
    def link(file=file):
        folder, text = model(), corpus()
        (folder / "jax_sentemb.json").unlink()
        (folder / file).rename(text.parent / file)
        (folder / file).symlink_to(text.parent / file)
        refused(4, *encode(folder, text, text.parent / "x.npy"), named=file)


@case(13, "a default prompt, a piece on two lines, max_seq_length 10^12")
def doubtful():
    folder, text = damage_model("config_sentence_transformers.json", lambda _: {"default_prompt_name": "query"}), corpus()
    (folder / "tokenizer.json").unlink()
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 1e12}')
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join([*pieces[:-2], pieces[10], ""]), encoding="utf-8")
    code, _, err = run(*encode(folder, text, text.parent / "x.npy"))
    assert code == 0, err[-200:]
    assert "on 2 lines" in err, "no word of the piece"
    assert "default prompt" in err, "no word of the prompt"


for file in ("run.json", "metrics.jsonl", "samples/end.json"):

    @case(13, f"report on a damaged {file}")
    def damaged_report(file=file):
        model()
        workdir = Path(shutil.copytree(WORK / "trained", fresh("run") / "run"))
        (workdir / file).parent.mkdir(exist_ok=True)
        (workdir / file).write_text("[1, 2]\n[3]\n" if file.endswith("l") else "[1, 2]")
        refused(3 if file.endswith("l") else 4, f"--workdir={workdir}", named=file, python=("-m", "jax_sentemb", "report"))


@case(14, "every evaluation set is damaged")
def damaged_sets():
    root = fresh("senteval")
    for part in ("train", "dev", "test"):
        file = root / "downstream" / "STS" / "STSBenchmark" / f"sts-{part}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"\xff\xfe\n")
    refused(3, "evaluate", f"--model={model()}", f"--data={root}", "--tasks=sts")


@case(14, "two diagnostic sentences")
def few():
    refused(2, *train(fresh("run"), "--config.eval.diagnostic_sentences=2", steps=1), named="diagnostic_sentences")


def main(argv: list[str]) -> int:
    chosen = set(map(int, argv[1:])) or set(TITLES)
    results: dict[int, list[tuple[str, str]]] = {}
    for number, name, attack in CASES:
        if number not in chosen:
            continue
        begin, problem = time.monotonic(), ""
        try:
            attack()
        except Exception as error:
            problem = " ".join(f"{type(error).__name__}: {error}".removeprefix("AssertionError: ").split())[:200]
        results.setdefault(number, []).append((name, problem))
        print(f"{number:>2}  {name}: {problem or 'held'} ({time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)
    print("| class | attacks | held | failed |\n|---|---|---|---|")
    for number, found in sorted(results.items()):
        failed = [name for name, problem in found if problem]
        print(f"| {number}. {TITLES[number]} | {len(found)} | {len(found) - len(failed)} | {'; '.join(failed) or '-'} |")
    shutil.rmtree(WORK, ignore_errors=True)
    return int(any(problem for found in results.values() for _, problem in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
