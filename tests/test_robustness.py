"""What other processes, terminals, disks and model directories of others do to a command: one line, or it works."""

import argparse
import contextlib
import copy
import dataclasses
import errno
import glob
import gzip
import io
import itertools
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src import compilation_cache

from jax_sentemb import SentenceEncoder
from jax_sentemb.cli import encode, evaluate, report, search
from jax_sentemb.cli.collection import print_rows
from jax_sentemb.cli.program import program
from jax_sentemb.config import Config, Data, Evaluation, check
from jax_sentemb.data import corpus_files, text_file, workers
from jax_sentemb.data.batches import Batches
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize
from jax_sentemb.errors import BusyError, ConfigError, DataError, ModelFileError, ResourceError
from jax_sentemb.evaluation.catalog import SETS
from jax_sentemb.evaluation.diagnostics import FEWEST, diagnose
from jax_sentemb.formats.sentence_transformers import SentenceModel, staged, write_export
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.models.bert import Bert
from jax_sentemb.parallel import use_compilation_cache
from jax_sentemb.provenance import KEY, RUN, Source, mark
from jax_sentemb.reporting import html_report, plots
from jax_sentemb.retrieval import vector_store
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import EncodedSentences, Vectors, write_file, write_shards
from jax_sentemb.training import run as training_run
from jax_sentemb.training.logger import Log
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

ROOT = Path(__file__).parents[1]
LINES = [f"the {one} of {other}" for one in ("fox", "dog", "owl", "cat") for other in range(500)]


@pytest.fixture(autouse=True)
def corpus(tmp_path, monkeypatch):
    """A file of several pages of memory."""
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "corpus.txt"
    file.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return file


def test_a_text_file_that_shrinks_while_it_is_read_is_one_line(corpus):
    sentences = open_corpus(str(corpus))
    os.truncate(corpus, 5000)
    assert sentences[0] == LINES[0]
    with pytest.raises(DataError, match=r"corpus\.txt changed while it was read"):
        list(sentences)


def test_a_text_file_that_is_overwritten_while_it_is_read_is_one_line(corpus):
    sentences = open_corpus(str(corpus))
    corpus.write_bytes(b"\xff" * corpus.stat().st_size)
    with pytest.raises(DataError, match=r"corpus\.txt changed while it was read"):
        list(sentences)


def test_a_text_file_that_shrinks_under_workers_is_one_line(corpus, monkeypatch):
    monkeypatch.setattr(text_file, "LARGE", 1)
    monkeypatch.setattr(workers, "PARALLEL", 1)
    monkeypatch.setattr(workers, "SENTENCES", 30)
    sentences = open_corpus(str(corpus))
    tokens = workers.blocks(workers.TokenizeJob(sentences, Tokenizer.train(LINES, 200), 16), range(len(LINES)), 2)
    next(tokens)
    os.truncate(corpus, 5000)
    with pytest.raises(DataError, match=r"corpus\.txt.* changed while it was read"):
        list(tokens)


def test_of_two_writers_of_a_file_the_second_says_so_and_leaves_the_first_alone(tmp_path):
    metadata = marked({"precision": "float32", "rows_per_shard": 5})

    def encode(texts):
        with pytest.raises(BusyError, match=r"x\.npy is being written by another process"):
            write_file(tmp_path / "x.npy", metadata, LINES[:9], encode, lambda count: None)
        return EncodedSentences(np.ones((len(texts), 2), np.float32), 0)

    write_file(tmp_path / "x.npy", metadata, LINES[:9], encode, lambda count: None)
    assert np.load(tmp_path / "x.npy").shape == (9, 2)
    with staged(tmp_path / "export") as stage:
        (stage / "jax_sentemb.json").write_text("first")
        with pytest.raises(BusyError, match="export is being written by another process"), staged(tmp_path / "export"):
            pass
    assert (tmp_path / "export" / "jax_sentemb.json").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "export", "x.npy", "x.npy.json"]
    (tmp_path / ".export.0123456789abcdef.partial").mkdir()  # of a writer that was killed
    with staged(tmp_path / "export") as stage:
        (stage / "jax_sentemb.json").write_text("second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "export", "x.npy", "x.npy.json"]


@pytest.mark.parametrize("name", ["x.npy", "x.parquet", "shards"])
def test_encoding_to_a_full_disk_names_the_file_and_ends_with_7(tmp_path, name):
    program = """
import resource, sys
from pathlib import Path
import numpy as np
from jax_sentemb.cli.program import program
from jax_sentemb.retrieval import vector_store
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import EncodedSentences, write_file, write_shards

def main(argv):
    output, texts = Path(argv[1]), ["a"] * 2000
    facts = marked({"precision": "float32", "rows_per_shard": 1000, "format": "npy"})
    encode = lambda texts: EncodedSentences(np.random.default_rng(0).random((len(texts), 64), np.float32), 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    if output.suffix:
        write_file(output, facts, texts, encode, lambda count: None)
        return 0
    write_shards(output, facts, texts, encode, lambda count: None)
    return 0

sys.exit(program(main, sys.argv))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / name], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == ResourceError.exit_code, done.stderr
    named = tmp_path / ("shards/000000.npy" if name == "shards" else name)
    assert done.stderr.startswith(f"error: {named}: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.partial"))
    assert not list(tmp_path.glob("x*"))


@pytest.mark.parametrize("failing", ["write_manifest", "replace"])
def test_vectors_without_their_hash_are_never_published_and_the_same_command_continues(tmp_path, monkeypatch, failing):
    """The disk is full when the hash is written, or the process ends before the vectors get their name."""
    metadata, full = marked({"precision": "float32", "rows_per_shard": 5}), OSError(errno.ENOSPC, "full")

    def encode(texts):
        return EncodedSentences(np.ones((len(texts), 2), np.float32), 0)

    def fails(*arguments):
        if failing == "write_manifest" or arguments[1].suffix == ".npy":
            raise full
        return replace(*arguments)

    owner, replace = (vector_store, None) if failing == "write_manifest" else (Path, Path.replace)
    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, fails)
        with pytest.raises(OSError, match="full"):
            write_file(tmp_path / "x.npy", metadata, LINES[:9], encode, lambda count: None)
    assert not (tmp_path / "x.npy").exists()
    write_file(tmp_path / "x.npy", metadata, LINES[:9], encode, lambda count: None)
    assert Vectors(tmp_path / "x.npy").shape == (9, 2)
    (tmp_path / "y.npy.json").write_text("{}")  # of somebody else
    with pytest.raises(ConfigError, match=r"y\.npy\.json exists"):
        write_file(tmp_path / "y.npy", metadata, LINES[:9], encode, lambda count: None)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["a man is\nplaying a guitar\n", "\u0447\u0435\u043b\u043e\u0432\u0435\u043a \u0438\u0433\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.tsv.gz", "a.jsonl"])
def test_text_in_two_or_four_bytes_a_character_is_refused(tmp_path, encoding, text, name):
    content = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError):
        open_corpus(str(tmp_path / name))
    assert len(open_corpus(str(tmp_path / "corpus.txt"))) == len(LINES)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.jsonl"])
def test_lines_that_end_in_carriage_returns_alone_are_refused(tmp_path, name):
    content = b"text\ra man\ra dog\r"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError):
        open_corpus(str(tmp_path / name))
    (tmp_path / "b.txt").write_bytes(b"a man\ra dog\r\na cat\n")
    assert list(open_corpus(str(tmp_path / "b.txt"))) == ["a man\ra dog", "a cat"]


def test_globs_enter_a_folder_once_whatever_links_lead_back_to_it(tmp_path):
    for name in ("x", "x/y", "x/.hidden", "elsewhere"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "a[1].txt").write_text(f"{name}\n")
    for number in range(3):  # glob.glob follows them to 3 ** 40 names
        (tmp_path / "tree" / "x" / f"loop{number}").symlink_to(tmp_path / "tree")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b.txt").write_text("linked\n")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "far")
    found = list(open_corpus(f"{tmp_path}/tree/**/*.txt"))
    assert sorted(found) == ["elsewhere", "linked", "x", "x/y"]
    assert sorted(open_corpus(f"{tmp_path}/t*/**/x/**/*.txt")) == sorted(found)


def test_relative_globs_with_two_stars_are_those_of_the_standard_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("c.txt", "p/q/d.txt", "p/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    for pattern in ("**/*.txt", "p/**/*.txt", "**/q/*.txt", "./**/d.txt", "**/*", "p**/*.txt", "p/**"):
        found, expected = corpus_files._matches(pattern), glob.glob(pattern, recursive=True)
        found, expected = (set(filter(os.path.isfile, names)) for names in (found, expected))
        assert found == expected, pattern


ROWS = [["\x1b[31mred\x1b[0m\x07 \x9b2Jwiped", "a\tb\rc\x1b]0;title\x07d", "caf\u00e9 \U0001f469\u200d\U0001f467"]]


def test_control_sequences_of_texts_do_not_reach_the_terminal(capsys, tmp_path):
    rows = [{"score": 0.5, "text": text} for text in ROWS[0]]
    print_rows(iter(rows), False)
    shown = capsys.readouterr().out
    assert shown == "0.500000\tred  wiped\n0.500000\ta b cd\n0.500000\tcaf\u00e9 \U0001f469\u200d\U0001f467\n"
    print_rows(iter(rows), True)
    shown = capsys.readouterr().out
    assert not set(shown) & {"\x1b", "\x9b", "\x07"}
    assert [json.loads(line)["text"] for line in shown.splitlines()] == ROWS[0]  # JSON keeps what it is
    print_rows(iter([{"score": 0.5, "row": 3, "_id": value} for value in (0.1234567, 1e-9, 2.0**53, True, "x", None)]), False)
    ids = [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()]
    assert ids == ["0.1234567", "1e-09", "9007199254740992.0", "true", "x", ""]  # as in JSON, not rounded as scores are
    log = Log(tmp_path)
    log.warn(3, "\x1b[2Jfirst\nsecond\x9b5m")
    assert capsys.readouterr().err == "warning: first\nsecond\n"


def ended_as(tmp_path, *arguments, **environment):
    """Exit code and stderr of a command in a process of its own."""
    command = [sys.executable, "-m", "jax_sentemb", *map(str, arguments)]
    known = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=known, check=False, timeout=200)
    return done.returncode, done.stderr


@pytest.mark.parametrize("platform", ["cuda", "nonsense"])
def test_a_platform_that_is_not_there_is_one_line(tmp_path, platform):
    if platform == "cuda" and any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is a GPU")
    arguments = f"--config={ROOT}/configs/simcse.py:tiny", f"--workdir={tmp_path}/run"
    code, said = ended_as(tmp_path, "train", *arguments, JAX_PLATFORMS=platform, PYTHONPATH=str(ROOT))
    assert code == 2, said
    assert said.splitlines()[-1].startswith(f"error: JAX_PLATFORMS={platform}: no such device can be used here; unset the variable")
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small BERT as a directory for sentence-transformers."""
    folder = tmp_path_factory.mktemp("model") / "model"
    config = bert_config(vocab_size=200, intermediate_size=16, max_position_embeddings=32, initializer_range=0.02)
    tokenizer = Tokenizer.train(LINES, 200)
    config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    params = jax.jit(Bert(config).init)(jax.random.key(0), Rows(np.zeros((1, 4), np.int32), np.ones((1, 4), bool)))["params"]
    write_export(folder, SentenceModel(config, {"encoder": jax.device_get(params)}, tokenizer, pooling="mean", max_seq_length=16))
    return folder


@pytest.fixture
def model(built, tmp_path):
    shutil.copytree(built, tmp_path / "model")
    return tmp_path / "model"


def edited(file, change):
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(change(content)), encoding="utf-8")


def replacements(*rules):
    steps = [{"type": "Replace", "pattern": pattern, "content": content} for pattern, content in rules]
    return lambda state: {**state, "normalizer": {"type": "Sequence", "normalizers": steps}}


BERT_CONFIG = "sentence_bert_config.json"
TWICE = ({"String": "a"}, "aa")


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("tokenizer.json", replacements(*[TWICE] * 40), "turn one character into"),
        ("tokenizer.json", replacements(*[({"Regex": ""}, "aaa")] * 8), "turn one character into"),
        ("tokenizer.json", replacements(*[({"String": "a"}, "a")] * 5000), "5,002 rules"),
        (
            "tokenizer.json",
            lambda state: {**state, "added_tokens": state["added_tokens"][:1] * 10**5},
            "100,000 added tokens",
        ),
        ("modules.json", lambda modules: modules * 50_000, "names 100,000 modules"),
        *((BERT_CONFIG, lambda _, n=n: {"max_seq_length": n}, "max_seq_length=") for n in (-3, 0, float("nan"), "8")),
        (BERT_CONFIG, lambda _: {"max_seq_length": float("inf")}, "max_seq_length=inf"),
    ],
)
def test_a_hostile_model_directory_is_refused_before_it_costs_anything(model, file, change, named):
    edited(model / file, change)
    begin = time.process_time()
    with pytest.raises(ModelFileError, match=named) as caught:
        SentenceEncoder.load(model)
    assert time.process_time() - begin < 5
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


def with_own_rules(model):
    """Let the tokenizer of a model follow all rules of its tokenizer.json, which transformers does for this class only."""
    edited(model / "tokenizer_config.json", lambda settings: {**settings, "tokenizer_class": "PreTrainedTokenizerFast"})


def test_replacements_that_make_a_text_little_longer_are_taken(model):
    with_own_rules(model)
    rules = [({"String": "a"}, "aa"), ({"Regex": " {2,}"}, " "), ({"String": "``"}, "\u201c")]
    edited(model / "tokenizer.json", replacements(*rules))
    assert SentenceEncoder.load(model).encode("a fox").shape == (16,)


def test_a_limit_beyond_the_positions_is_that_of_the_positions(model):
    edited(model / "sentence_bert_config.json", lambda _: {"max_seq_length": 1e12})
    assert SentenceEncoder.load(model).max_seq_length == 32


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "modules.json"])
def test_a_file_of_a_model_that_is_a_link_out_of_it_is_refused_and_one_of_the_hub_is_not(model, tmp_path, name):
    (tmp_path / "outside").mkdir()
    (model / name).rename(tmp_path / "outside" / name)
    (model / name).symlink_to(tmp_path / "outside" / name)
    with pytest.raises(ModelFileError, match=f"{name}.* leads out of"):
        SentenceEncoder.load(model)
    revision = tmp_path / "hub" / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "hub" / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    for file in (file for file in model.rglob("*") if file.is_file()):
        place = revision / file.relative_to(model)
        place.parent.mkdir(parents=True, exist_ok=True)
        blob = blobs / "-".join(file.relative_to(model).parts)
        shutil.copyfile(file, blob)
        place.symlink_to(os.path.relpath(blob, place.parent))
    assert SentenceEncoder.load(revision).encode("a fox").shape == (16,)


def test_doubtful_descriptions_of_a_model_are_warned_about(model, caplog):
    (model / "tokenizer.json").unlink()
    pieces = (model / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    (model / "vocab.txt").write_text("\n".join([*pieces[:-1], pieces[10]]) + "\n", encoding="utf-8")
    caplog.set_level("WARNING", "jax_sentemb")  # whatever a library has done to the root logger in another test
    SentenceEncoder.load(model)
    assert "on 2 lines: the last one counts" in caplog.text


def test_an_encoder_is_pickled_and_copied_by_its_path(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    encoder = SentenceEncoder.load("model@cls", max_seq_length=9)
    monkeypatch.chdir("/")
    for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        assert other.max_seq_length == 9
        np.testing.assert_array_equal(other.encode(LINES[:5]), encoder.encode(LINES[:5]))
    with pytest.raises(TypeError, match=r"opened by a path or a name"):
        pickle.dumps(SentenceEncoder(encoder._model))


FORKS = """
import multiprocessing, os, signal, sys, warnings
warnings.simplefilter("ignore")
from jax_sentemb import SentenceEncoder

def attempts():
    signal.alarm(30)
    for attempt in (lambda: encoder.encode("a fox"), lambda: SentenceEncoder.load(sys.argv[1])):
        try:
            attempt()
        except Exception as error:
            print(error, flush=True)

def fails():
    attempts()
    sys.exit(5)

encoder = SentenceEncoder.load(sys.argv[1])
encoder.encode("a fox")
processes = [multiprocessing.get_context("fork").Process(target=target) for target in (attempts, fails)]
for process in processes:
    process.start()
    process.join()
codes = [process.exitcode for process in processes]
for end in ("fall", "exit", "raise"):
    if not (child := os.fork()):
        attempts()
        file = open(sys.argv[2], "a")  # written when the interpreter ends
        file.write(f"{end}\\n")
        break
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if not child and end == "exit":
    sys.exit(3)
if not child and end == "raise":
    raise ValueError
if child:
    print(codes)
"""


def test_forked_processes_say_so_and_end_by_themselves_with_their_exit_code(model, tmp_path):
    """Until the exit of a forked interpreter left JAX's objects alone, it hung or was aborted."""
    program = [sys.executable, "-c", FORKS, model, tmp_path / "ends"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    *said, codes = done.stdout.splitlines()
    assert len(said) == 10
    assert all("forked" in line and "spawn" in line for line in said)
    assert codes == "[0, 5, 0, 3, 1]"
    assert (tmp_path / "ends").read_text().split() == ["fall", "exit", "raise"]


def of_run(content):
    """The content of a file of a run with its mark."""
    return json.dumps({**json.loads(content), KEY: mark(RUN, {"run": Source("run", "a" * 64)})})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *itertools.product(("run.json", "config.json", "model.json", "scores.json", "samples/end.json"), ("[1]", "{")),
        ("run.json", '{"corpus": [1], "devices": 3}'),
        ("run.json", '{"steps": "many"}'),
        ("scores.json", '{"scores": {"a": 1}}'),
        ("samples/start.json", '{"pairs": {"a": 3}, "neighbours": []}'),
        ("metrics.jsonl", '{"step": 1, "time": "now"}\n{"step": 2, "time": 3}\n'),
        ("metrics.jsonl", '[]\n{"step": 2}\n'),
        ("sweep.json", '{"a": 1}'),
        ("sweep.json", "[1, 2]"),
    ],
)
def test_a_report_of_damaged_files_is_one_line(tmp_path, capsys, name, content):
    for file, text in (("run.json", of_run('{"steps": 3}')), ("metrics.jsonl", '{"step": 1, "time": 3}\n')):
        (tmp_path / file).write_text(text)
    assert program(report.main, ["report", f"--workdir={tmp_path}"]) == 0
    capsys.readouterr()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(of_run(content) if name.endswith(".json") and content[0] + content[-1] == "{}" else content)
    assert program(report.main, ["report", f"--workdir={tmp_path}"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "name",
    ["run.json", "config.json", "model.json", "scores.json", "samples/end.json", "metrics.jsonl", "sweep.json", "report.html"],
)
@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_a_report_refuses_a_folder_or_a_pipe_in_place_of_a_file(tmp_path, capsys, name, what):
    for file, text in (("run.json", of_run('{"steps": 3}')), ("metrics.jsonl", '{"step": 1, "time": 3}\n')):
        (tmp_path / file).write_text(text)
    place = tmp_path / name
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.mkdir() if what == "folder" else os.mkfifo(place)
    assert program(report.main, ["report", f"--workdir={tmp_path}"]) == 4
    assert capsys.readouterr().err == f"error: {place} is a folder or a pipe, expected a file; remove it, or give another name\n"
    assert program(report.main, ["report", f"--workdir={tmp_path / 'run.json'}"]) == 4  # a file in place of the work directory


def test_a_few_sentences_raise_no_alarm_of_a_collapse(tmp_path):
    draw = np.random.default_rng(0)
    for rows in (2, 3, 15, 16, 100):
        assert not diagnose(draw.normal(size=(rows, 32)))["collapsed"]
    line = np.outer(draw.normal(size=100), draw.normal(size=32))
    assert diagnose(line)["collapsed"]
    assert diagnose(np.ones((3, 8)))["collapsed"]
    with pytest.raises(ConfigError, match="diagnostic_sentences=15 must be at least 16"):
        check(Config(SimCSE(), Data("a.txt"), eval=Evaluation(diagnostic_sentences=15)))
    assert FEWEST == 16


def test_damaged_evaluation_data_end_with_the_code_of_data(model, tmp_path, capsys):
    root = tmp_path / "SentEval"
    arguments = ["evaluate", f"--model={model}", f"--data={root}", "--tasks=sts"]
    for file in SETS["STSBenchmark"].files(root):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"\xff\n")
    assert program(evaluate.main, arguments) == 3
    assert "error" in capsys.readouterr().err
    assert program(evaluate.main, [*arguments[:1], "--model=absent", *arguments[2:]]) == 3  # nothing is encoded


def test_a_file_of_the_cache_that_is_cut_is_one_line_and_one_that_is_deleted_stays_readable(corpus, tmp_path):
    sentences = open_corpus(str(corpus))
    tokens = tokenize(sentences, Tokenizer.train(LINES, 200), 16, tmp_path / "cache")
    batches = Batches(tokens, 8, seed=0)
    expected = batches.at(1).tokens
    (file,) = (tmp_path / "cache").glob("*.tokens/ids.bin")
    os.truncate(file, 100)
    with pytest.raises(DataError, match=r"ids\.bin was truncated while it was read"):
        batches.at(1)
    shutil.rmtree(file.parent)
    batches = Batches(tokenize(sentences, Tokenizer.train(LINES, 200), 16, tmp_path / "cache"), 8, seed=0)
    shutil.rmtree(file.parent)
    np.testing.assert_array_equal(batches.at(1).tokens, expected)


def test_a_shard_that_is_cut_while_it_is_searched_is_one_line(tmp_path):
    metadata = marked({"precision": "float32", "rows_per_shard": 1000, "format": "npy"})

    def encode(texts):
        return EncodedSentences(np.ones((len(texts), 64), np.float32), 0)

    write_shards(tmp_path / "vectors", metadata, LINES, encode, lambda count: None)
    vectors = Vectors(tmp_path / "vectors")
    os.truncate(tmp_path / "vectors" / "000001.npy", 5000)
    assert vectors[:1000].shape == (1000, 64)
    with pytest.raises(DataError, match=r"000001\.npy was truncated while it was read"):
        vectors[500:2000]


CUTTING = """
import os, sys
import numpy as np
from jax_sentemb.cli.program import program

def main(argv):
    rows = np.memmap(argv[1], np.uint8, "r")
    rows[:100].sum()
    os.truncate(argv[1], 5000)  # as another process would while a block is read
    return int(rows.sum())

sys.exit(program(main, sys.argv))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere SIGBUS ends the process")
def test_a_file_that_is_cut_while_a_block_is_read_is_one_line(tmp_path):
    file = tmp_path / "a file.bin"
    file.write_bytes(bytes(1 << 20))
    done = subprocess.run([sys.executable, "-c", CUTTING, file], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == DataError.exit_code, done.stderr
    assert done.stderr == f"error: {file} was truncated while it was read: run the command again\n"


def test_a_single_file_of_vectors_is_compared_with_the_manifest_beside_it(tmp_path):
    metadata = marked({"precision": "float32", "rows_per_shard": 5})

    def encode(texts):
        return EncodedSentences(np.arange(2.0 * len(texts), dtype=np.float32).reshape(-1, 2), 0)

    file = tmp_path / "x.npy"
    write_file(file, metadata, LINES[:9], encode, lambda count: None)
    expected = np.load(file)
    np.testing.assert_array_equal(Vectors(file)[:], expected)
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.npy: its size or SHA-256 differs from x\.npy\.json; delete both"):
        Vectors(file)
    assert Vectors(file, verify=False).shape == (9, 2)
    place = tmp_path / "x.npy.json"
    place.write_text(place.read_text().replace('"rows": 9', '"rows": 8'))
    with pytest.raises(DataError, match=r"x\.npy\.json is damaged"):
        Vectors(file, verify=False)
    file.unlink()
    with pytest.raises(ConfigError, match=r"x\.npy\.json exists"):
        write_file(file, metadata, LINES[:9], encode, lambda count: None)
    np.save(tmp_path / "other.npy", expected)  # one of another program has no manifest
    np.testing.assert_array_equal(Vectors(tmp_path / "other.npy")[:], expected)


def test_a_flipped_bit_in_a_compiled_program_is_found():
    """JAX compresses with zstandard where that is installed, without a checksum: three of four flipped bits were not found."""
    use_compilation_cache()
    zstd_errors = [sys.modules["zstandard"].ZstdError] if "zstandard" in sys.modules else []
    draw = random.Random(0)
    program = draw.randbytes(1000) * 3
    packed = compilation_cache.compress_executable(program)
    assert compilation_cache.decompress_executable(packed) == program
    read = {program}
    for _ in range(300):
        damaged = bytearray(packed)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        with contextlib.suppress(zlib.error, *zstd_errors):
            read.add(compilation_cache.decompress_executable(bytes(damaged)))
    assert read == {program}


def test_standard_input_without_a_sentence_is_one_line(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n\n")))
    arguments = ["encode", f"--model={model}", "--input=-", f"--output={tmp_path / 'x.npy'}"]
    assert program(encode.main, arguments) == DataError.exit_code
    assert capsys.readouterr().err == "error: --input -: no sentence in 2 lines, all are blank; give text\n"


def test_a_query_that_is_not_utf_8_is_one_line(model, corpus, capsys):
    arguments = ["search", f"--model={model}", f"--corpus={corpus}", "--query", "caf\udce9"]
    assert program(search.main, arguments) == 2
    remedy = "write the text into a UTF-8 file and give --queries FILE"
    assert capsys.readouterr().err == f"error: --query caf\\udce9: not UTF-8; {remedy}\n"


def splitting(pattern):
    rule = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return lambda state: {**state, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [rule, state["pre_tokenizer"]]}}


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("(a+)+[0\x01]", "retry-limit-in-match"),  # exponential: the library ends one match after 10**7 steps
        ("[^x]*[^x]*[^x]*(?<=z)", "its regular expressions backtrack"),  # many matches that each stay below that
    ],
)
def test_regular_expressions_that_backtrack_without_end_are_refused(model, pattern, named):
    with_own_rules(model)
    edited(model / "tokenizer.json", splitting(pattern))
    begin = time.process_time()
    with pytest.raises(ModelFileError, match=named):
        Tokenizer.load(model)
    assert time.process_time() - begin < 30


@pytest.mark.parametrize(
    "pattern",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
)
def test_the_regular_expressions_of_known_tokenizers_are_taken(model, pattern):
    with_own_rules(model)
    edited(model / "tokenizer.json", splitting(pattern))
    assert Tokenizer.load(model).vocab_size


def test_reports_tables_and_pictures_are_replaced_whole(tmp_path):
    (tmp_path / "run.json").write_text(of_run('{"steps": 3}'))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 3}\n')
    options = argparse.Namespace(output=tmp_path)
    writers = {
        "report.html": lambda: html_report.write_report(tmp_path),
        "model/STS12.json": lambda: evaluate._write(options, "model", {"task": "STS12"}),
        "a.png": lambda: plots.similarity_against_gold(tmp_path / "a.png", np.arange(4.0), np.arange(4.0), "title"),
    }
    for name, write in writers.items():
        write()
        file = tmp_path / name
        shown = [path.open("rb") for path in (file, file.with_suffix(".csv")) if path.exists()]  # a reader, or a run that is killed
        write()
        for reader in shown:
            with reader:
                assert reader.read()
                assert os.fstat(reader.fileno()).st_nlink == 0, name
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("plant", [lambda file, victim: file.symlink_to(victim), lambda file, victim: os.mkfifo(file)])
def test_a_lock_is_written_through_no_link_and_into_no_pipe(tmp_path, plant):
    (tmp_path / "victim").write_text("precious")
    plant(tmp_path / "LOCK", tmp_path / "victim")
    with (
        pytest.raises(ConfigError, match="LOCK is a link, a folder or a pipe, expected a file; delete it"),
        training_run._lock(tmp_path),
    ):
        raise AssertionError("locked")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_lock_names_its_holder_and_is_empty_after_it(tmp_path):
    (tmp_path / "LOCK").write_text("x" * 1000)
    with training_run._lock(tmp_path):
        assert json.loads((tmp_path / "LOCK").read_text())["pid"] == os.getpid()
    assert (tmp_path / "LOCK").read_text() == ""
