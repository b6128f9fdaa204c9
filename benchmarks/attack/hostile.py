"""Attack with input: names, texts, model directories, files of runs and evaluation data that are damaged or hostile."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from commands import (
    case,
    corpus,
    damage_model,
    distill,
    done,
    encode,
    fresh,
    model,
    refused,
    run,
    static_table,
    train,
    trained,
)  # fmt: skip


@case(6, "a corpus whose name is not UTF-8")
def odd_corpus():
    file = os.fsencode(fresh("odd")) + b"/caf\xe9.txt"
    shutil.copy(corpus(), os.fsdecode(file))
    workdir = fresh("run")
    code, _, err = run(*train(workdir, f"--config.data.files={os.fsdecode(file)}", steps=2))
    assert "Traceback" not in err, f"a traceback, exit code {code}"
    assert code in (2, 3) or (code == 0 and (workdir / "export").is_dir()), f"exit code {code}"


@case(6, "a work directory whose name is not UTF-8")
def odd_workdir():
    workdir = Path(os.fsdecode(os.fsencode(fresh("odd")) + b"/r\xffn"))
    code, _, err = run(*train(workdir, steps=2))
    assert "Traceback" not in err, f"a traceback, exit code {code}"
    assert code in (2, 3) or (code == 0 and (workdir / "export").is_dir()), f"exit code {code}"


for end, expected in (("sys.exit(3)", 3), ("pass", 0)):

    @case(11, f"an encoder after os.fork, then {end}")
    def forked(end=end, expected=expected):
        program = f"""
import os, signal, sys
from jax_sentemb import SentenceEncoder
encoder = SentenceEncoder.load({str(model())!r})
encoder.encode("a man")
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(600)
try:
    encoder.encode("a man")
except Exception as error:
    print(error, file=sys.stderr)
{end}
"""
        code, _, err = run(program, python=("-c",))
        assert "forked" in err, f"exit code {code}: {err[-100:]}"
        assert code == expected, f"exit code {code}, not {expected}"


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
    refused(3, *distill(model(), file, file.parent / "static"), named="bomb.txt.gz unpacks to more than")


for encoding in ("utf-16-le", "utf-16-be", "carriage returns"):

    @case(12, f"text in {encoding}")
    def odd_text(encoding=encoding):
        text = corpus()
        lines = text.read_text()
        text.write_bytes(lines.replace("\n", "\r").encode() if encoding == "carriage returns" else lines.encode(encoding))
        refused(3, *encode(model(), text, text.parent / "x.npy"), named=str(text))
        refused(3, *distill(model(), text, text.parent / "static"), named=str(text))


@case(12, "a text without a known piece, distilled")
def unknown():
    text = fresh("text") / "corpus.txt"
    text.write_text("\u4e00\u4e01\n" * 50, encoding="utf-8")
    refused(3, *distill(model(), text, text.parent / "static", "--epochs", "1"), named="no piece of the vocabulary")


@case(12, "part 1 of 10^18")
def parts():
    text = corpus(10)
    done(*encode(model(), text, text.parent / "vectors", "--part", f"1/{10**18}"))


def chained(state: dict) -> dict:
    rule = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {**state, "normalizer": {"type": "Sequence", "normalizers": [rule] * 40}}


def backtracking(state: dict) -> dict:
    rule = {"type": "Split", "pattern": {"Regex": "[^x]*[^x]*[^x]*(?<=z)"}, "behavior": "Isolated", "invert": False}
    return {**state, "pre_tokenizer": rule}


HOSTILE: dict[str, tuple[str, Callable]] = {
    "replacements without end": ("tokenizer.json", chained),
    "a regular expression that backtracks": ("tokenizer.json", backtracking),
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


@case(13, "word vectors: a packed line of 100 MB, a count that is not a number")
def word_vectors():
    words = ["--config=word_average", f"--config.data.files={corpus()}", "--config.eval.data=", "--config.train.max_steps=1"]
    for name, content in (("v.vec.gz", gzip.compress(b"a" * 10**8)), ("v.txt", "2 \u00b2\na 1\n".encode())):
        file = fresh("words") / name
        file.write_bytes(content)
        workdir = f"--workdir={file.parent / 'run'}"
        refused(4, "train", *words, f"--config.encoder.vectors={file}", workdir, named=f"{name}:1")


STATIC: dict[str, Callable[[list], list]] = {
    "a module outside": lambda modules: [{**modules[0], "path": "../model"}, *modules[1:]],
    "a module with code": lambda modules: [{**modules[0], "type": "os.StaticEmbedding"}, *modules[1:]],
}
for title, change in STATIC.items():

    @case(13, f"a static table with {title}")
    def hostile_table(change=change):
        folder, text = static_table(), corpus(10)
        (folder / "jax_sentemb.json").unlink()
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(change(modules)))
        refused(4, *encode(folder, text, text.parent / "x.npy"), named="modules.json")


for file in ("model.safetensors", "tokenizer.json"):

    @case(13, f"{file} is a link out of the directory")
    def link(file=file):
        folder, text = model(), corpus()
        (folder / "jax_sentemb.json").unlink()
        (folder / file).rename(text.parent / file)
        (folder / file).symlink_to(text.parent / file)
        refused(4, *encode(folder, text, text.parent / "x.npy"), named=file)


@case(13, "a default prompt that is not among the prompts")
def prompts():
    folder, text = damage_model("config_sentence_transformers.json", lambda _: {"default_prompt_name": "query"}), corpus()
    refused(4, *encode(folder, text, text.parent / "x.npy"), named="config_sentence_transformers.json")


@case(13, "a piece on two lines, max_seq_length 10^12")
def doubtful():
    folder, text = damage_model("sentence_bert_config.json", lambda _: {"max_seq_length": 1e12}), corpus()
    (folder / "tokenizer.json").unlink()
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join([*pieces[:-2], pieces[10], ""]), encoding="utf-8")
    code, _, err = run(*encode(folder, text, text.parent / "x.npy"))
    assert code == 0, err[-200:]
    assert "on 2 lines" in err, "no warning about the piece"


for file in ("run.json", "metrics.jsonl", "samples/end.json"):

    @case(13, f"report on a damaged {file}")
    def damaged_report(file=file):
        workdir = Path(shutil.copytree(trained(), fresh("run") / "run"))
        (workdir / file).parent.mkdir(exist_ok=True)
        (workdir / file).write_text("[1, 2]\n[3]\n" if file.endswith("l") else "[1, 2]")
        refused(4, f"--workdir={workdir}", named=file, python=("-m", "jax_sentemb", "report"))


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
