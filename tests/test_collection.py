"""The command `jax-sentemb`: its list, encoding into shards that survive kill -9, search, pairs, clusters, and every mistake."""

import gzip
import importlib
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_sentemb import SentenceEncoder, __version__, community_detection, mine_pairs, search
from jax_sentemb.__main__ import COMMANDS, main
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation import bm25
from jax_sentemb.retrieval import vector_manifest as vectors_module
from jax_sentemb.retrieval.kmeans import kmeans
from jax_sentemb.retrieval.noise import noise_level
from jax_sentemb.retrieval.quantize import quantize, ranges_of
from jax_sentemb.retrieval.vector_store import Vectors, read_manifest
from jax_sentemb.system import terminal

ROOT = Path(__file__).parents[1]
COUNT = 420
EMPTY = [5, 250, 251]  # lines of the corpus without text


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    flags = [f"--config={ROOT}/configs/simcse.py:tiny", "--config.train.max_steps=0", f"--workdir={folder}"]
    assert run("train", *flags) == 0
    return folder / "export"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "corpus.txt"
    words = ["a", "man", "dog", "runs", "plays", "eats", "the", "grass", "guitar", "tall", "small", "two", "women", "dance"]
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(words, random.integers(1, 12))) for _ in range(COUNT - 10)] + ["a man plays the guitar"] * 10
    file.write_text("".join(f"{'' if row in EMPTY else line}\n" for row, line in enumerate(lines)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def vectors(model, corpus, tmp_path_factory):
    """The corpus as shards, encoded in one go."""
    folder = tmp_path_factory.mktemp("vectors") / "whole"
    assert encode(model, corpus, folder) == 0
    return folder


def run(*arguments):
    return program(main, ["jax-sentemb", *map(str, arguments)])


def encode(model, corpus, output, *options):
    return run("encode", "--model", model, "--input", corpus, "--output", output, "--rows-per-shard", 100, *options)


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "jax_sentemb", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (["search", "--query", "a man"], "search"),
        (["search", "--query", "a man", "--index", "{folder}/index"], "index"),
        (["mine"], "compare"),
        (["cluster"], "compare"),
        (["cluster", "--k", "2"], "cluster"),
        (["dedup", "--output", "{folder}/unique.txt"], "compare"),
    ],
)
def test_commands_on_vectors_show_their_progress(model, vectors, corpus, tmp_path, monkeypatch, command, label):
    """A long search or comparison is not silent, although nothing is encoded."""
    monkeypatch.setattr(terminal.Progress, "show", lambda progress, done, note="": shown.append((progress.label, done)))
    shown = []
    options = [option.format(folder=tmp_path) for option in command[1:]]
    options += ["--model", model] if command[0] == "search" else []
    assert run(command[0], "--corpus", vectors, "--corpus-text", corpus, *options) == 0
    counts = [done for name, done in shown if name == label]
    assert counts[0] == 0
    assert counts[-1] > 0


def test_alone_it_prints_the_list_quickly_and_imports_nothing():
    code = (
        "import sys; from jax_sentemb.__main__ import main; main(['x']); print([n for n in ('jax', 'numpy') if n in sys.modules])"
    )
    begin = time.monotonic()
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert time.monotonic() - begin < 5  # under 0.1 s on an idle machine
    assert all(f"\n    {name} " in out for name in COMMANDS)
    assert out.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_exit_codes(name, capsys):
    assert run(name, "--help") == 0
    shown = capsys.readouterr().out
    assert "Exit codes: 0 done" in shown
    assert "python -m jax_sentemb." in shown or re.search(rf"\n +jax-sentemb {name}\b", shown)


def test_help_and_mistakes_do_not_wait_for_jax():
    code = f"""
import sys
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError
codes = [program(main, ["jax-sentemb", name, option]) for name in {list(COMMANDS)} for option in ("--help", "--absent")]
print(codes, [name for name in ("jax", "flax", "scipy") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == f"{[0, 2] * len(COMMANDS)} []"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_module_of_its_own(name):
    module = importlib.import_module(COMMANDS[name][0])
    assert "    start(main)\n" in Path(str(module.__file__)).read_text(encoding="utf-8")


def test_version_and_the_console_script(capsys):
    assert run("--version") == 0
    assert __version__ in capsys.readouterr().out
    script = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["jax-sentemb"]
    module, _, function = script.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_a_device_out_of_memory_is_one_line_and_exit_7(capsys):
    def fail(argv):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99999 bytes.")

    assert program(fail, ["x"]) == 7
    assert capsys.readouterr().err.startswith("error: out of memory: lower the batch size")


def test_an_unknown_command_suggests_the_nearest(capsys):
    assert run("enocde") == 2
    assert "did you mean encode?" in capsys.readouterr().err
    assert run("xyz") == 2
    assert "there are recipes, check, train" in capsys.readouterr().err
    assert run("--config.train.max_steps=1", "train") == 2
    assert "needs a command before it, such as jax-sentemb train --config.train.max_steps=1" in capsys.readouterr().err


def test_shards_hold_the_vectors_of_every_line_in_order(vectors, model, corpus):
    manifest = read_manifest(vectors)
    assert [shard["rows"] for shard in manifest["shards"]] == [100, 100, 100, 100, 20]
    assert (manifest["lines"], manifest["blank"], manifest["rows"]) == (COUNT, len(EMPTY), COUNT)
    expected = SentenceEncoder.load(model).encode(corpus.read_text(encoding="utf-8").splitlines())
    expected[EMPTY] = 0
    found = Vectors(vectors)
    assert found.empty_rows.tolist() == EMPTY
    assert found.shape == expected.shape
    np.testing.assert_allclose(found[:], expected, atol=1e-6)
    np.testing.assert_array_equal(found[95:305], found[:][95:305])
    assert found[7:7].shape == (0, expected.shape[1])


def test_parts_say_what_is_missing_and_become_the_same_directory(vectors, model, corpus, tmp_path, capsys):
    assert encode(model, corpus, tmp_path, "--part", "6/7") == 0
    said = capsys.readouterr().err
    assert (
        "warning: --part 6/7: the text has only 5 shards, so some parts are empty; --rows-per-shard 60 gives each part a shard"
        in said
    )
    assert "100 vectors of part 6/7; missing: 1/7, 2/7, 3/7, 4/7, 5/7 and 1 others" in said
    for number in (7, 1, 2, 3, 4, 5):
        assert encode(model, corpus, tmp_path, "--part", f"{number}/7") == 0
    assert f"{COUNT} vectors" in capsys.readouterr().err
    for file in vectors.glob("*.npy"):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_killed_twice_it_continues_to_the_same_bytes(model, corpus, tmp_path):
    vectors, output = tmp_path / "whole", tmp_path / "vectors"
    process = start("encode", "--model", model, "--input", corpus, "--output", vectors, "--rows-per-shard", 100)
    process.communicate(timeout=120)
    assert process.returncode == 0
    arguments = ("encode", "--model", model, "--input", corpus, "--output", output, "--rows-per-shard", 100)
    for wanted in (1, 2):
        process = start(*arguments)
        deadline = time.monotonic() + 120
        while len(list(output.glob("*.npy"))) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = {output / shard["file"]: (output / shard["file"]).stat().st_mtime_ns for shard in read_manifest(output)["shards"]}
    process = start(*arguments)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert f"{COUNT} vectors; " in error
    assert "3 of 420 records have no text (rows 5, 250, 251): their vectors are zero" in error
    assert {file: file.stat().st_mtime_ns for file in done} == done  # what was there is not made again
    for file in vectors.glob("*.npy"):
        assert (output / file.name).read_bytes() == file.read_bytes()
    assert (output / "vectors.json").read_bytes() == (vectors / "vectors.json").read_bytes()
    assert not list(output.glob("*.partial"))


def test_a_lost_shard_is_made_again_and_a_complete_directory_is_left_alone(vectors, model, corpus):
    first, second = vectors / "000000.npy", vectors / "000001.npy"
    before, time_of_first = second.read_bytes(), first.stat().st_mtime_ns
    second.write_bytes(before[:-1])
    assert encode(model, corpus, vectors) == 0
    assert second.read_bytes() == before
    assert first.stat().st_mtime_ns == time_of_first


@pytest.fixture
def copy(vectors, tmp_path):
    """The vectors, to spoil."""
    return Path(shutil.copytree(vectors, tmp_path / "copy"))


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "LOCK"}


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_flipped_bit_in_a_shard_is_found_and_that_shard_made_again(model, corpus, tmp_path, capsys, precision):
    folder = tmp_path / "vectors"
    options = ("--precision", precision)
    assert encode(model, corpus, folder, *options) == 0
    whole = contents(folder)
    assert run("mine", "--corpus", folder, "--top-k", 1) == 0
    for number in (0, 2):
        shard = folder / f"{number:06d}.npy"
        content = bytearray(shard.read_bytes())
        content[-9] ^= 1
        time.sleep(0.02)  # a tick of the file system's clock
        shard.write_bytes(content)
        capsys.readouterr()
        assert run("mine", "--corpus", folder, "--top-k", 1) == 3
        error = capsys.readouterr().err
        assert f"{shard}: its size or SHA-256 differs from vectors.json; run the same encode command again" in error
        assert error.count("\n") == 1
        assert run("mine", "--corpus", folder, "--top-k", 1, "--no-verify") == 0
        others = {file: file.stat().st_mtime_ns for file in folder.glob("*.npy") if file != shard}
        assert encode(model, corpus, folder, *options) == 0
        assert "it is encoded again" in capsys.readouterr().err
        assert contents(folder) == whole
        assert {file: file.stat().st_mtime_ns for file in others} == others
    assert run("mine", "--corpus", folder, "--top-k", 1) == 0


def test_shards_are_verified_once_a_process(copy, monkeypatch):
    read = []
    real = vectors_module.sha256
    monkeypatch.setattr(vectors_module, "sha256", lambda file: (read.append(file.name), real(file))[1])
    Vectors(copy)
    Vectors(copy)
    assert read == [f"{number:06d}.npy{ending}" for number in range(5) for ending in ("", ".records.jsonl")]
    Vectors(Path(shutil.copytree(copy, copy.with_name("other"))), verify=False)
    assert len(read) == 10


def change_manifest(folder, **changes):
    manifest = {**read_manifest(folder), **changes}
    manifest["sha256"] = vectors_module.digest(manifest)
    (folder / "vectors.json").write_text(json.dumps(manifest), encoding="utf-8")


def test_a_directory_that_only_says_that_it_is_not_complete_heals(copy, vectors, model, corpus):
    text = (copy / "vectors.json").read_text(encoding="utf-8")
    (copy / "vectors.json").write_text(text.replace('"complete": true', '"complete": false'), encoding="utf-8")
    assert run("mine", "--corpus", copy) == 3
    before = {file: file.stat().st_mtime_ns for file in copy.glob("*.npy")}
    assert encode(model, corpus, copy) == 0
    assert contents(copy) == contents(vectors)
    assert {file: file.stat().st_mtime_ns for file in before} == before  # nothing is encoded
    assert run("mine", "--corpus", copy, "--top-k", 1) == 0


def test_a_list_of_shards_that_is_wrong_is_made_again(copy, vectors, model, corpus):
    shards = read_manifest(vectors)["shards"]
    for listed in (
        shards[:3],
        [*shards, shards[0]],
        [shards[1], *shards[1:]],
        [*shards[:2], {**shards[2], "rows": 7}, *shards[3:]],
    ):
        change_manifest(copy, shards=listed)
        if len(listed) <= len(shards):
            assert run("mine", "--corpus", copy) == 3
        assert encode(model, corpus, copy) == 0
        assert contents(copy) == contents(vectors)


SIGNED = "with its own SHA-256: "  # damage that the hash does not show, as a program that writes such a file would leave it
SOURCE = f"{SIGNED}a source "
BROKEN = (
    "", "[]", "{", "null", "{}", '{"shards": 5}', "\x00", '"rows": 421', '"normalize": 1', '"rows_per_shard": 0', '"sha256": 3',
    *(SIGNED + text for text in (
        '"shards": {}', '"shards": ""', '"shards": [1]', '"shards": [{}]', '"rows": "x"',
        '"width": []', '"ranges": 3', '"provenance": {}', '"provenance": 3',
    )),
    *(SOURCE + text for text in (
        '"truncate_dim": "x"', '"max_seq_length": 0.5', '"prompt": 3', '"precision": {}', '"precision": "float64"',
    )),
)  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_a_damaged_description_of_vectors_is_one_line(copy, model, corpus, capsys, text):
    file = copy / "vectors.json"
    if '"' in text and not text.startswith("{"):
        manifest = json.loads(file.read_text(encoding="utf-8"))
        changed = manifest["provenance"]["sources"] if text.startswith(SOURCE) else manifest
        changed |= json.loads("{" + text.removeprefix(SOURCE).removeprefix(SIGNED) + "}")
        if text.startswith(SIGNED):
            manifest["sha256"] = vectors_module.digest(manifest)
        text = json.dumps(manifest)
    file.write_text(text, encoding="utf-8")
    before = contents(copy)
    for arguments in (
        ("encode", "--model", model, "--input", corpus, "--output", copy, "--rows-per-shard", 100),
        ("search", "--corpus", copy, "--model", model, "--query", "a man"),
        ("mine", "--corpus", copy, "--corpus-text", corpus),
    ):
        assert run(*arguments) == 3
        error = capsys.readouterr().err
        assert "vectors.json is damaged" in error
        assert error.count("\n") == 1
    assert contents(copy) == before


def test_a_flipped_bit_in_the_description_of_vectors_is_found(copy, model, capsys):
    file = copy / "vectors.json"
    content = file.read_bytes()
    free = ("complete", "truncated", "sha256")  # of which the sums are known from elsewhere
    for place in range(0, len(content), 97):
        line = content[content.rfind(b"\n", 0, place) + 1 : content.find(b"\n", place)].decode()
        if line.startswith("  ") and any(line.startswith(f'  "{name}"') for name in free):
            continue
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            same = json.loads(file.read_bytes()) == json.loads(content)
        except ValueError:
            same = False
        assert run("mine", "--corpus", copy, "--top-k", 1) == (0 if same else 3), line
    for name, value in (("truncated", "x"), ("truncated", None), ("truncated", -1), ("complete", "no")):
        file.write_text(json.dumps({**json.loads(content), name: value}))
        assert run("mine", "--corpus", copy, "--top-k", 1) == 3, (name, value)
    capsys.readouterr()


def test_text_that_changes_while_it_is_encoded_is_refused(model, corpus, tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_bytes(corpus.read_bytes())
    real = SentenceEncoder.encode

    def meanwhile(self, sentences, *arguments, **options):
        time.sleep(0.02)
        text.write_bytes(corpus.read_bytes())  # the same bytes: who knows what was there meanwhile
        return real(self, sentences, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "encode", meanwhile)
        for output in ("shards", "x.npy"):
            assert encode(model, text, tmp_path / output) == 3
            assert "text.txt changed while it was read: run the command again" in capsys.readouterr().err
    assert not (tmp_path / "x.npy").exists()
    assert read_manifest(tmp_path / "shards")["shards"] == []


def test_another_model_text_or_setting_is_refused_with_both_values(vectors, model, corpus, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text("a man\n", encoding="utf-8")
    for arguments, named in (
        ((f"{model}@mean", corpus, vectors), f"was made from model {model.parent.name} (SHA-256"),
        ((model, other, vectors), "not from corpus other.txt (SHA-256"),
        ((model, corpus, vectors, "--precision", "int8"), "with precision='float32', not with precision='int8'"),
        ((model, corpus, vectors, "--dtype", "bfloat16"), "with dtype='float32', not with dtype='bfloat16'"),
        ((model, corpus, vectors, "--normalize"), "with normalize=False, not with normalize=True"),
        ((model, corpus, vectors, "--truncate-dim", 4), "without truncate_dim, not with truncate_dim=4"),
        ((model, corpus, vectors, "--max-seq-length", 5), "not with max_seq_length=5"),
        ((model, corpus, vectors, "--format", "parquet"), "with format='npy', not with format='parquet'"),
        (("--rows-per-shard",), "with rows_per_shard=100, not with rows_per_shard=7"),
    ):
        if arguments[0] == "--rows-per-shard":
            code = run("encode", "--model", model, "--input", corpus, "--output", vectors, "--rows-per-shard", 7)
        else:
            code = encode(*arguments)
        assert code == 2
        error = capsys.readouterr().err
        assert named in error
        assert error.count("\n") == 1


def test_two_at_a_time_is_exit_6(vectors, model, corpus, capsys):
    from filelock import FileLock

    with FileLock(vectors / "LOCK"):
        assert encode(model, corpus, vectors) == 6
    assert "another process" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_quantised_shards_share_ranges_of_all(vectors, model, corpus, tmp_path, precision):
    assert encode(model, corpus, tmp_path / "small", "--precision", precision) == 0
    whole = Vectors(vectors)[:]
    ranges = ranges_of(np.delete(whole, EMPTY, axis=0))
    for number in range(5):
        part = whole[100 * number : 100 * number + 100]
        expected = quantize(part, precision, ranges if precision.endswith("int8") else None)
        np.testing.assert_array_equal(np.load(tmp_path / "small" / f"{number:06d}.npy"), expected)
    restored = Vectors(tmp_path / "small")
    assert not restored[:][EMPTY].any()
    assert not restored.take(np.array(EMPTY)).any()
    assert restored.shape == whole.shape
    if precision.endswith("int8"):
        np.testing.assert_allclose(restored[:], whole, atol=(ranges[1] - ranges[0]).max() / 250)


def test_one_file_from_standard_input(vectors, model, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    assert encode(model, "-", tmp_path / "x.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), Vectors(vectors)[:])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy", "x.npy.json", "x.npy.records.jsonl"]


def test_parquet(vectors, model, corpus, tmp_path, monkeypatch, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert encode(model, corpus, tmp_path / "x.parquet") == 0
    assert encode(model, corpus, tmp_path / "shards", "--format", "parquet") == 0
    for table in (parquet.read_table(tmp_path / "x.parquet"), parquet.read_table(sorted((tmp_path / "shards").glob("*.parquet")))):
        assert table["text"].to_pylist() == corpus.read_text(encoding="utf-8").splitlines()
        np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), np.float32), Vectors(vectors)[:])
    assert run("mine", "--corpus", tmp_path / "shards") == 3
    assert "only .npy files" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert encode(model, corpus, tmp_path / "y.parquet") == 2
    assert "pip install pyarrow" in capsys.readouterr().err


def test_truncation_is_reported_once(model, corpus, tmp_path, capsys, caplog):
    assert encode(model, corpus, tmp_path / "short", "--max-seq-length", 3) == 0
    error = capsys.readouterr().err
    assert error.count("sentences longer than 3 tokens were cut") == 1
    assert not caplog.records  # not shard by shard
    assert read_manifest(tmp_path / "short")["truncated"] > 200


def lines_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_search_gives_the_same_from_text_and_from_vectors(vectors, model, corpus, tmp_path, capsys):
    queries = tmp_path / "queries.txt"
    queries.write_text("a man plays the guitar\ntwo women dance\n", encoding="utf-8")
    common = ("--model", model, "--top-k", 3, "--json")
    assert run("search", "--corpus", corpus, "--queries", queries, *common) == 0
    from_text = lines_of(capsys)
    assert run("search", "--corpus", vectors, "--corpus-text", corpus, "--queries", queries, *common) == 0
    found = lines_of(capsys)
    assert [(row["query"], row["row"], row["text"]) for row in found] == [
        (row["query"], row["row"], row["text"]) for row in from_text
    ]
    assert found[0]["text"] == found[0]["query_text"] == "a man plays the guitar"
    assert found[0]["score"] == pytest.approx(1, abs=1e-5)
    assert run("search", "--corpus", vectors, "--query", "two women dance", "--model", model, "--top-k", 1) == 0
    printed = capsys.readouterr()
    assert "random pairs" not in printed.err  # they say nothing about a query
    cells = printed.out.strip().split("\t")
    assert len(cells) == 4  # without the text, which nobody gave
    assert int(cells[1]) == found[3]["row"]


def test_a_terminal_gets_the_names_of_the_columns_and_a_pipe_does_not(vectors, model, capsys, monkeypatch):
    command = ("search", "--corpus", vectors, "--query", "two women dance", "--model", model, "--top-k", 2)
    assert run(*command) == 0
    piped = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(*command) == 0
    assert capsys.readouterr().out == "query\trow\tscore\tquery_text\n" + piped


def test_the_text_of_a_query_in_place_of_a_file_of_queries_names_the_option_for_it(vectors, model, capsys):
    assert run("search", "--corpus", vectors, "--model", model, "--queries", "two women dance") == 3
    assert capsys.readouterr().err == "error: --queries two women dance: no such file; give a text with --query\n"


def test_an_approximate_index_is_built_once(vectors, model, tmp_path, capsys):
    pytest.importorskip("faiss")
    arguments = ("search", "--corpus", vectors, "--query", "a man plays the guitar", "--model", model, "--top-k", 1, "--json")
    index = tmp_path / "index"
    assert run(*arguments, "--index", index) == 0
    written = index.stat().st_mtime_ns
    assert run(*arguments, "--index", index) == 0
    assert index.stat().st_mtime_ns == written
    assert all(row["score"] == pytest.approx(1, abs=1e-5) for row in lines_of(capsys))


def test_mine_and_cluster_find_the_repeated_sentence(vectors, corpus, capsys):
    with_text = ("--corpus", vectors, "--corpus-text", corpus, "--json")
    assert run("mine", *with_text, "--top-k", 45, "--threshold", 0.9999) == 0
    assert {"first_text", "second_text", "score"} < set(lines_of(capsys)[0])
    assert run("cluster", *with_text, "--threshold", 0.9999, "--min-size", 10) == 0
    groups = lines_of(capsys)
    assert [row["text"] for row in groups if row["cluster"] == 0].count("a man plays the guitar") >= 10
    assert run("cluster", *with_text, "--k", 7) == 0
    groups = lines_of(capsys)
    assert sorted(row["row"] for row in groups) == [row for row in range(COUNT) if row not in EMPTY]
    assert [(row["cluster"], row["row"]) for row in groups] == [
        (number, row) for number, rows in enumerate(kmeans(Vectors(vectors), 7).rows()) for row in rows
    ]
    assert run("cluster", *with_text, "--k", 7, "--seed", 1) == 0
    assert lines_of(capsys) != groups


@pytest.fixture
def table(tmp_path, model, corpus, vectors):
    """Names that the table of mistakes stands for."""
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "latin.txt").write_bytes(b"ok\ncaf\xe9\n")
    (tmp_path / "one.npy").write_bytes(b"no array")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.doc").write_bytes(b"")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "vectors.json").write_text('{"precision": 3}', encoding="utf-8")
    return {"MODEL": model, "CORPUS": corpus, "VECTORS": vectors, "TMP": tmp_path}


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ("encode --model MODEL --input TMP/absent.txt --output TMP/x", 3, "--input TMP/absent.txt: no such file"),
        ("encode --model MODEL --input TMP/empty.txt --output TMP/x", 3, "--input TMP/empty.txt contains no sentence"),
        ("encode --model MODEL --input TMP/latin.txt --output TMP/x", 3, "line 2, byte 6: not UTF-8"),
        ("encode --model MODEL --input TMP --output TMP/x", 3, "is a directory"),
        ("encode --model TMP/absent --input CORPUS --output TMP/x", 2, "--model TMP/absent: no such directory"),
        (
            "encode --model nobody/nothing --input CORPUS --output TMP/x",
            2,
            "--model nobody/nothing: no such directory, and it cannot be",
        ),
        ("encode --model TMP --input CORPUS --output TMP/x", 4, "config.json"),
        ("encode --model MODEL --input CORPUS --output TMP/empty.txt", 2, "is a file: give a directory"),
        ("encode --model MODEL --corpus CORPUS --output TMP/x.csv", 2, "x.csv: vectors are not written as .csv; give a directory"),
        ("cluster --model MODEL --corpus CORPUS --threshold 80", 2, "argument --threshold: '80' is not a cosine, from -1 to 1"),
        ("cluster --corpus VECTORS --k 1000", 2, "--k 1000: the corpus has 417 sentences; give at most this number"),
        ("encode --model MODEL --input CORPUS --output TMP/one.npy", 2, "exists: give another name"),
        ("encode --model MODEL --input CORPUS --output TMP/full", 2, "contains precious.doc and no vectors.json"),
        ("encode --model MODEL --input CORPUS --output TMP/damaged", 3, "vectors.json is damaged"),
        ("encode --model MODEL --input CORPUS --output TMP/y.npy --precision int8", 2, "needs a directory"),
        ("encode --model MODEL --input CORPUS --output TMP/x --precision int4", 2, "invalid choice"),
        ("encode --model MODEL --input CORPUS --output TMP/x --batch-size 0", 2, "'0' is not a whole number from 1"),
        ("encode --model MODEL --input CORPUS --output TMP/x --max-seq-length 100000", 2, "max_seq_length=100000"),
        ("encode --model MODEL --input CORPUS --output TMP/x --truncate-dim 100000", 2, "--truncate-dim 100000: the model has"),
        ("encode --model MODEL --input CORPUS", 2, "--output"),
        ("encode --model MODEL --inptu CORPUS --output TMP/x", 2, "option --inptu is unknown; did you mean --input?"),
        ("encode --modle MODEL --input CORPUS", 2, "option --modle is unknown; did you mean --model?"),
        ("encode --input CORPUS", 2, "the following arguments are required: --output, --model"),
        ("plan --config micse", 2, "the following arguments are required: --target"),
        ("encode --model MODEL --input CORPUS --input TMP/latin.txt --output TMP/x", 2, "--input is given twice"),
        ("mine --corpus VECTORS --top-k 3 --top-k=3", 2, "--top-k is given twice"),
        ("search --corpus VECTORS --query x", 2, "--model is missing"),
        ("search --corpus VECTORS --model MODEL", 2, "--queries FILE or --query TEXT"),
        ("search --corpus VECTORS --model MODEL@mean --query x", 3, "was made from model "),
        ("search --corpus VECTORS --model MODEL --queries TMP/absent.txt", 3, "--queries TMP/absent.txt: no such file"),
        ("mine --corpus CORPUS", 2, "--model is missing"),
        ("mine --model MODEL --corpus CORPUS --threshold 80", 2, "argument --threshold: '80' is not a cosine, from -1 to 1"),
        ("mine --model MODEL --corpus CORPUS --column title", 2, "--column title: text files have lines but no columns"),
        ("mine --model MODEL --corpus - --join x", 2, "--join x: there is one column; name those to join with --column"),
        ("search --model MODEL --corpus CORPUS --queries CORPUS --query-column a", 2, "--query-column a: text files have lines"),
        ("cluster --corpus VECTORS --k 5 --threshold 0.9", 2, "leave out --threshold"),
        ("cluster --corpus VECTORS --threshold 0.9 --seed 0", 2, "--seed is not used: only --k draws first centres"),
        ("mine --corpus VECTORS --id _id", 2, "--id is not used: --corpus VECTORS has vectors; give their text by --corpus-text"),
        ("mine --corpus VECTORS --dtype float32", 2, "--dtype is not used: --corpus VECTORS has vectors, so nothing is encoded"),
        ("mine --corpus VECTORS --max-seq-length 9", 2, "--max-seq-length is not used: --corpus VECTORS has vectors"),
        ("mine --corpus VECTORS --corpus-text CORPUS --batch-size 9", 2, "--batch-size is not used: --corpus VECTORS has vectors"),
        ("search --corpus VECTORS --model MODEL --query x --query-id y", 2, "--query-id is not used: --query gives the texts"),
        ("search --corpus - --model MODEL --queries -", 2, "only one option can read standard input (-)"),
        ("encode --model MODEL --input CORPUS --output TMP/x.npy --format npy", 2, "is one file, whose name says its format"),
        ("check CORPUS --weights MODEL --vocab-size 90", 2, "--vocab-size is not used: no new vocabulary is made"),
        ("mine --corpus CORPUS --corpus-text CORPUS --model MODEL", 2, "remove --corpus-text"),
        ("mine --corpus VECTORS --corpus-text TMP/latin.txt", 3, "not UTF-8"),
        ("mine --corpus VECTORS --top-k 0", 2, "'0' is not a whole number from 1"),
        ("mine --corpus VECTORS --threshold nan", 2, "'nan' is not a finite number"),
        ("cluster --corpus VECTORS --threshold inf", 2, "'inf' is not a finite number"),
        ("cluster --corpus VECTORS --k 2 --seed -1", 2, "'-1' is not a whole number from 0"),
        ("encode --model MODEL --input CORPUS --output TMP/x --batch-size 99999999999", 2, "from 1 to 2147483647"),
        ("evaluate --model MODEL --data TMP --batch-size 0", 2, "'0' is not a whole number from 1"),
        ("evaluate --model MODEL --data TMP --resamples -1", 2, "'-1' is not a whole number from 0"),
        ("mine --corpus TMP/full", 3, "has no vectors.json"),
        ("mine --corpus TMP/one.npy", 3, "cannot be read as .npy"),
        ("mine --corpus TMP/two.npy", 3, "cannot be read as .npy"),
        ("cluster --corpus VECTORS --corpus-text MODEL/vocab.txt", 3, "not from corpus vocab.txt (SHA-256"),
        ("cluster --corpus TMP/damaged", 3, "vectors.json is damaged"),
    ],
)
def test_mistakes_are_one_line(table, capsys, arguments, code, named):
    for name, value in table.items():
        arguments, named = arguments.replace(name, str(value)), named.replace(name, str(value))
    assert run(*arguments.split()) == code
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert error[0].startswith("error: ")
    assert named in error[0]
    assert not (table["TMP"] / "x").exists()


def test_groups_without_a_threshold_take_the_proposed_one_and_show_their_sizes(vectors, corpus, capsys):
    assert run("cluster", "--corpus", vectors, "--corpus-text", corpus, "--min-size", 2, "--json") == 0
    shown = capsys.readouterr()
    groups = {json.loads(line)["cluster"] for line in shown.out.splitlines()}
    noise = float(re.search(r"a cosine of (\S+) or more", shown.err)[1])
    threshold = float(re.search(r"groups of 2 or more at threshold (\S+) with", shown.err)[1])
    assert noise <= threshold + 5e-4 <= noise + 0.011
    assert shown.err.splitlines()[-1].startswith(f"{len(groups):,} groups of 2 or more at threshold")
    assert re.search(r"group +sentences +centre", shown.err)
    assert run("cluster", "--corpus", vectors, "--threshold", 1, "--min-size", 200) == 0
    shown = capsys.readouterr().err
    assert "0 groups of 200 or more at threshold 1 with 0 of" in shown
    proposed = re.search(r"try --threshold ([^\s,]+), or a lower --min-size", shown)[1]
    assert run("cluster", "--corpus", vectors, "--threshold", proposed, "--min-size", 200) == 0
    assert capsys.readouterr().out
    assert run("cluster", "--corpus", vectors, "--min-size", 10_000) == 0
    shown = capsys.readouterr().err
    assert "no group of 10000 among" in shown
    assert "--threshold -" not in shown


def test_a_directory_that_is_not_complete_cannot_be_searched(vectors, tmp_path, capsys):
    manifest = read_manifest(vectors)
    (tmp_path / "vectors.json").write_text(json.dumps({**manifest, "complete": False}), encoding="utf-8")
    assert run("mine", "--corpus", tmp_path) == 3
    assert "is not complete" in capsys.readouterr().err


def test_a_reader_that_stops_early_is_no_error(vectors):
    process = start("mine", "--corpus", vectors, "--top-k", 80000)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    with process.stderr:
        said = process.stderr.read()
    empty = r"note: .*3 of 420 vectors are of empty texts: they are left out\n"
    assert re.fullmatch(rf"{empty}note: 1 of 1,000 random pairs .* of \d\.\d+ or more; lower cosines may be chance\n", said)


@pytest.fixture
def indexed(model, tmp_path):
    """A function that searches with an index of a.txt, and the folder: a.txt, b.txt, and `model`, a copy of the export."""
    pytest.importorskip("faiss")
    (tmp_path / "a.txt").write_text("a man\na dog\ntwo women dance\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("the grass\ntall guitar\na man\n", encoding="utf-8")
    shutil.copytree(model, tmp_path / "model")

    def search(*more, corpus="a.txt", model="model"):
        options = ("--model", tmp_path / model, "--corpus", tmp_path / corpus, "--query", "a man", "--top-k", 1)
        return run("search", *options, "--index", tmp_path / "idx", *more)

    assert search() == 0
    return search, tmp_path


def test_an_index_of_something_else_is_refused_by_name(indexed, capsys):
    search, folder = indexed
    before = (folder / "idx").read_bytes()
    assert search() == 0
    short = ("--input", folder / "a.txt", "--output", folder / "short", "--truncate-dim", 4)
    assert run("encode", "--model", folder / "model", *short) == 0
    for changed, more, named in (
        ({"corpus": "b.txt"}, (), "idx was made from corpus a.txt (SHA-256"),
        ({"model": "model@mean"}, (), f"idx was made from model {folder.name} (SHA-256"),
        ({}, ("--max-seq-length", 5), "not with max_seq_length=5"),
        ({}, ("--dtype", "bfloat16"), "not with dtype='bfloat16'"),
        ({"corpus": "short"}, (), "was made without truncate_dim, not with truncate_dim=4"),
    ):
        assert search(*more, **changed) == 3
        error = capsys.readouterr().err.splitlines()[-1]
        assert named in error
        assert error.endswith("delete it, or give another --index")
    assert (folder / "idx").read_bytes() == before


def test_an_index_of_a_corpus_that_was_edited_is_refused(indexed, capsys):
    search, folder = indexed
    stat = (folder / "a.txt").stat()
    (folder / "a.txt").write_text("a man\na cat\ntwo women dance\n", encoding="utf-8")  # of the same length
    os.utime(folder / "a.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert search() == 3
    assert "from corpus a.txt (SHA-256" in capsys.readouterr().err


def test_encode_names_the_prompt_that_it_puts_before_each_text(model, corpus, tmp_path, capsys):
    for number, settings in enumerate(
        ({"default_prompt_name": "sts"}, {"default_prompt_name": None}, {"prompts": {"document": "a "}})
    ):
        folder = Path(shutil.copytree(model, tmp_path / str(number)))
        (folder / "jax_sentemb.json").unlink(missing_ok=True)
        prompts = {"prompts": {"sts": "a "}} | settings
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
        assert run("encode", "--model", folder, "--input", corpus, "--output", tmp_path / f"{number}.npy") == 0
        assert ("the model's prompt 'a ' was put before each text" in capsys.readouterr().err) == (number != 1)


def test_an_index_of_a_model_whose_prompt_or_weights_changed_at_the_same_path_is_refused(indexed, capsys):
    search, folder = indexed
    (folder / "model" / "jax_sentemb.json").unlink()
    settings = folder / "model" / "config_sentence_transformers.json"
    whole = settings.read_text(encoding="utf-8")
    settings.write_text(json.dumps({**json.loads(whole), "prompts": {"document": "passage: "}}), encoding="utf-8")
    assert search() == 3
    assert "was made without prompt, not with prompt='passage: '" in capsys.readouterr().err
    settings.write_text(whole, encoding="utf-8")
    assert search() == 0
    weights = load_file(folder / "model" / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] *= 1.5
    save_file(weights, folder / "model" / "model.safetensors")
    assert search() == 3
    assert f"from model {folder.name} (SHA-256" in capsys.readouterr().err


def test_a_vectors_directory_is_the_same_source_as_its_text_and_an_array_file_is_its_own(indexed, capsys):
    search, folder = indexed
    assert run("encode", "--model", folder / "model", "--input", folder / "a.txt", "--output", folder / "vectors") == 0
    assert search(corpus="vectors") == 0
    np.save(folder / "own.npy", Vectors(folder / "vectors")[:])
    assert search(corpus="own.npy") == 3
    error = capsys.readouterr().err
    assert "warning: --corpus" in error
    assert "was made without vectors, not from vectors own.npy" in error


def test_queries_are_cut_as_the_vectors_were(indexed, capsys):
    _, folder = indexed
    encoded = ("--model", folder / "model", "--input", folder / "a.txt", "--output", folder / "cut")
    assert run("encode", *encoded, "--max-seq-length", 3) == 0
    capsys.readouterr()
    found = ("search", "--model", folder / "model", "--corpus", folder / "cut", "--query", "a man dances", "--top-k", 1)
    assert run(*found) == 0
    assert capsys.readouterr().out.split("\t")[2] == "1.000000"  # the query is cut to "a", as each sentence is
    assert run(*found, "--max-seq-length", 9) == 3
    assert "with max_seq_length=3, not with max_seq_length=9; leave --max-seq-length out" in capsys.readouterr().err


def test_a_model_that_did_not_make_the_vectors_is_refused_although_no_query_needs_it(vectors, model, capsys):
    for command in ("mine", "cluster"):
        assert run(command, "--corpus", vectors, "--model", f"{model}@mean") == 3
        assert f"was made from model {model.parent.name} (SHA-256" in capsys.readouterr().err


RECORDS = [
    ("d0", "a man plays"),
    ("d1", ""),
    ("d2", "two dogs run"),
    ("d3", ""),
    ("d4", "a man plays the guitar"),
    ("d5", "the dog eats"),
]


def json_lines(capsys):
    shown = capsys.readouterr()
    return [json.loads(line) for line in shown.out.splitlines()], shown.err


def table_of(folder, ending):
    """The records as a file of any kind, without the rows of a text file that has no columns."""
    file, kind = folder / f"records{ending}", ending.partition(".gz")[0].partition(".xz")[0]
    if kind == ".parquet":
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        ids, texts = zip(*RECORDS, strict=True)
        parquet.write_table(arrow.table({"_id": ids, "title": ["a"] * 6, "text": [text or None for text in texts]}), file)
        return file
    separator = "," if kind == ".csv" else "\t"
    lines = {
        ".txt": [text for _, text in RECORDS],
        ".jsonl": [json.dumps({"_id": name, "title": "a", "text": text}) + "\n" for name, text in RECORDS],  # and a blank line
    }.get(kind, [separator.join(row) for row in [("_id", "title", "text"), *((name, "a", text) for name, text in RECORDS)]])
    content = "".join(f"{line}\n" for line in lines).encode()
    packers = {".gz": gzip.compress, ".xz": lzma.compress}
    file.write_bytes(packers.get(file.suffix, bytes)(content))
    return file


ENDINGS = [".jsonl", ".csv", ".tsv.gz", ".jsonl.xz", ".parquet"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_and_ids_are_those_of_the_file_where_records_have_no_text(model, tmp_path, capsys, ending):
    file = table_of(tmp_path, ending)
    options = ("--model", model, "--corpus", file, "--json")
    assert run("search", *options, "--queries", file, "--top-k", 4) == 0
    hits, notes = json_lines(capsys)
    assert notes.count("2 of 6 records have no text (rows 1, 3)") == 2  # of the corpus and of the queries
    assert [hit["query"] for hit in hits[::4]] == [0, 2, 4, 5]
    assert {(hit["row"], hit["_id"], hit["text"]) for hit in hits} == {(row, *RECORDS[row]) for row in (0, 2, 4, 5)}
    assert all((hit["row"], hit["_id"]) == (hit["query"], hit["query_id"]) for hit in hits[::4])  # each is nearest to itself
    assert run("mine", *options) == 0
    pairs, _ = json_lines(capsys)
    assert len(pairs) == 6
    for pair in pairs:
        assert (pair["first_id"], pair["first_text"]) == RECORDS[pair["first"]]
        assert (pair["second_id"], pair["second_text"]) == RECORDS[pair["second"]]
    assert run("cluster", *options, "--k", 2) == 0
    members, _ = json_lines(capsys)
    assert sorted((member["row"], member["_id"]) for member in members) == [(row, f"d{row}") for row in (0, 2, 4, 5)]


def test_columns_are_joined_or_named_and_queries_have_a_column_of_their_own(model, tmp_path, capsys):
    file = table_of(tmp_path, ".jsonl")
    (tmp_path / "queries.csv").write_text("key,question\nq1,\nq2,two dogs run\n")
    options = ("--model", model, "--corpus", file, "--column", "title,text", "--json", "--top-k", 12)
    queries = ("--queries", tmp_path / "queries.csv", "--query-column", "question", "--query-id", "key")
    assert run("search", *options, *queries, "--join", ": ", "--id", "title") == 0
    hits, _ = json_lines(capsys)
    assert {(hit["query"], hit["query_id"], hit["_id"]) for hit in hits} == {(1, "q2", "a")}
    texts = {hit["row"]: hit["text"] for hit in hits}
    assert texts == {row: f"a: {text}" if text else "a" for row, (_, text) in enumerate(RECORDS)}
    assert run("search", *options, *queries) == 0
    hits, _ = json_lines(capsys)
    assert {(hit["row"], hit["column"]) for hit in hits} == {
        *((row, "title") for row in range(6)), *((row, "text") for row in (0, 2, 4, 5))
    }  # fmt: skip


@pytest.fixture
def encoded(model, tmp_path):
    """A function that encodes the records, and the vectors that they must have."""

    def encode_records(name, *options):
        output = tmp_path / name
        options = ("--rows-per-shard", 4, *options) if not output.suffix else options
        assert run("encode", "--model", model, "--input", table_of(tmp_path, ".jsonl"), "--output", output, *options) == 0
        return output

    expected = SentenceEncoder.load(model).encode([text for _, text in RECORDS])
    expected[[1, 3]] = 0
    return encode_records, expected


@pytest.mark.parametrize("name", ["shards", "one.npy"])
def test_row_i_of_the_vectors_is_record_i_and_empty_texts_are_zero_rows(encoded, capsys, name):
    encode_records, expected = encoded
    folder = encode_records(name)
    assert "2 of 6 records have no text (rows 1, 3): their vectors are zero" in capsys.readouterr().err
    found = Vectors(folder)
    np.testing.assert_allclose(found[:], expected, atol=1e-6)
    assert found.empty_rows.tolist() == [1, 3]
    assert [(found.record(row).row, found.record(row).id) for row in range(6)] == [(row, f"d{row}") for row in range(6)]
    files = [folder / "000000.npy.records.jsonl", folder / "000001.npy.records.jsonl"]
    files = files if name == "shards" else [folder.with_name("one.npy.records.jsonl")]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert lines[3:5] == [{"row": 3, "_id": "d3", "empty": True}, {"row": 4, "_id": "d4"}]


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "uint8", "binary", "ubinary"])
def test_empty_texts_are_no_results_in_any_precision(encoded, capsys, precision):
    encode_records, expected = encoded
    vectors = Vectors(encode_records("shards", "--precision", precision))
    assert not vectors[:][[1, 3]].any()
    texts = [0, 2, 4, 5]
    for queries in (expected[:1], np.tile(expected[:1], (20, 1)), -expected[:1]):  # few, many, and with negative cosines
        for similarity in ("cosine", "dot"):
            assert sorted(search(queries, vectors, 6, similarity).indices[0].tolist()) == texts
    pairs = mine_pairs(vectors, None, -1.0)
    assert sorted({*pairs.first.tolist(), *pairs.second.tolist()}) == texts
    assert len(pairs.first) == 6
    assert sorted(row for group in community_detection(vectors, -1.0, 1) for row in group) == texts
    groups = kmeans(vectors, 2)
    assert sorted(row for group in groups.rows() for row in group) == texts
    assert groups.labels[[1, 3]].tolist() == [-1, -1]
    assert noise_level(vectors).pairs == 6
    with pytest.raises(ConfigError, match="k=5"):
        kmeans(vectors, 5)


def test_commands_print_the_records_of_vectors(encoded, model, tmp_path, capsys):
    encode_records, _ = encoded
    vectors, file = encode_records("shards"), tmp_path / "records.jsonl"
    options = ("--model", model, "--query", "two dogs run", "--json", "--top-k", 6)
    found = []
    for corpus in (("--corpus", file), ("--corpus", vectors), ("--corpus", vectors, "--corpus-text", file)):
        for index in ((), ("--index", tmp_path / "index"), ("--index", tmp_path / "index")):
            if index:
                pytest.importorskip("faiss")
            assert run("search", *corpus, *options, *index) == 0
            hits, notes = json_lines(capsys)
            assert "2 of 6" in notes
            found.append([(hit["row"], hit["_id"], hit.get("text", dict(RECORDS)[hit["_id"]])) for hit in hits])
    assert len(found[0]) == 4
    assert found[0][0] == (2, "d2", "two dogs run")
    assert all(hits == found[0] for hits in found)
    for command in ("mine", "cluster"):
        results = []
        for corpus in (("--corpus", file, "--model", model), ("--corpus", vectors)):
            assert run(command, *corpus, "--json", *(("--k", 2) if command == "cluster" else ())) == 0
            rows, _ = json_lines(capsys)
            results.append([{name: value for name, value in row.items() if "text" not in name and name != "score"} for row in rows])
        assert results[0] == results[1]
        assert results[0]


def test_encoding_with_other_ids_is_another_directory_and_a_lost_file_of_records_is_made_again(encoded, model, tmp_path, capsys):
    encode_records, _ = encoded
    folder = encode_records("shards")
    with pytest.raises(AssertionError):
        encode_records("shards", "--id", "title")
    assert "was made from records the corpus (SHA-256" in capsys.readouterr().err
    records = folder / "000001.npy.records.jsonl"
    before = records.read_bytes()
    records.write_bytes(before.replace(b"d4", b"d9"))
    assert run("mine", "--corpus", folder) == 3
    assert "000001.npy.records.jsonl: its size or SHA-256 differs" in capsys.readouterr().err
    encode_records("shards")
    assert records.read_bytes() == before


def test_parquet_has_the_rows_and_ids_of_records(encoded):
    parquet = pytest.importorskip("pyarrow.parquet")
    encode_records, expected = encoded
    table = parquet.read_table(encode_records("x.parquet"))
    assert table["row"].to_pylist() == list(range(6))
    assert table["_id"].to_pylist() == [name for name, _ in RECORDS]
    assert table["text"].to_pylist() == [text for _, text in RECORDS]
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist(), np.float32), expected, atol=1e-6)


def test_an_empty_query_is_refused(vectors, model, capsys):
    assert run("search", "--corpus", vectors, "--model", model, "--query", " ") == 2
    assert "--query ' ': the text is empty" in capsys.readouterr().err


def test_rows_count_the_records_of_several_files(model, tmp_path, capsys):
    files = ",".join(str(table_of(tmp_path, ending)) for ending in (".txt", ".jsonl", ".txt.gz", ".csv"))
    assert run("search", "--model", model, "--corpus", files, "--query", "the dog eats", "--top-k", 4, "--json") == 0
    hits, notes = json_lines(capsys)
    assert "8 of 24 records have no text (rows 1, 3, 7, 9, 13, ...)" in notes
    assert [(hit["row"], hit.get("_id")) for hit in hits] == [(5, None), (11, "d5"), (17, None), (23, "d5")]
    assert run("encode", "--model", model, "--input", files, "--output", tmp_path / "vectors") == 0
    assert run("search", "--model", model, "--corpus", tmp_path / "vectors", "--query", "the dog eats", "--top-k", 4) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [(row, name) for _, row, _, _, name in (line.split("\t") for line in lines)]  # an id that is missing is an empty cell
    assert cells == [("5", ""), ("11", "d5"), ("17", ""), ("23", "d5")]


def test_queries_of_several_columns_name_their_column(model, tmp_path, capsys):
    file = table_of(tmp_path, ".csv")
    options = ("--model", model, "--corpus", file, "--queries", file, "--query-column", "title,text", "--top-k", 1, "--json")
    assert run("search", *options) == 0
    hits, _ = json_lines(capsys)
    texts = {(row, "title") for row in range(6)} | {(row, "text") for row in (0, 2, 4, 5)}
    assert {(hit["query"], hit["query_column"]) for hit in hits} == texts
    assert all((hit["_id"], hit["text"]) in RECORDS for hit in hits)
    assert run("search", *options, "--column", "title,text", "--join", " ") == 0
    assert {(hit["query"], hit.get("query_column")) for hit in json_lines(capsys)[0]} == {(row, None) for row in range(6)}


def test_vectors_of_another_program_have_a_row_for_each_record_of_the_text(model, tmp_path, capsys):
    file = table_of(tmp_path, ".jsonl")
    random = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    random[[1, 3]] = [100, 0, 0, 0], [99, 0, 0, 0]  # of empty texts
    np.save(tmp_path / "own.npy", random)
    assert run("mine", "--corpus", tmp_path / "own.npy", "--corpus-text", file, "--json") == 0
    pairs, notes = json_lines(capsys)
    assert "2 of 6 vectors are of empty texts" in notes
    assert {(pair[side], pair[f"{side}_id"]) for pair in pairs for side in ("first", "second")} == {
        (row, f"d{row}") for row in (0, 2, 4, 5)
    }
    np.save(tmp_path / "short.npy", random[:4])
    assert run("mine", "--corpus", tmp_path / "short.npy", "--corpus-text", file) == 3
    assert "has 6 texts (with empty texts)" in capsys.readouterr().err


def test_every_command_that_reads_a_corpus_counts_its_empty_texts(model, tmp_path, capsys):
    file = tmp_path / "corpus.txt"
    words = ["man", "dog", "women", "guitar", "grass"]
    texts = ("" if number % 7 == 3 else f"{words[number % 5]} runs {words[number // 5 % 5]}" for number in range(40))
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    note = "6 of 40 records have no text (rows 3, 10, 17, 24, 31, ...)"
    output = ("--output", tmp_path / "static")
    for arguments in (
        ("mine", "--model", model, "--corpus", file),
        ("cluster", "--model", model, "--corpus", file, "--k", 2),
        ("search", "--model", model, "--corpus", file, "--query", "a"),
        ("encode", "--model", model, "--input", file, "--output", tmp_path / "vectors"),
        ("distill", "--model", model, "--corpus", file, "--width", 8, *output),
        ("postprocess", "--model", model, "--corpus", file, "--remove", 1, "--output", tmp_path / "centred"),
    ):
        assert run(*arguments) == 0
        assert capsys.readouterr().err.count(note) == 1, arguments
    assert run("check", file) == 0
    assert "40 lines, 6 blank" in capsys.readouterr().out


def test_too_many_groups_are_told_before_the_text_is_encoded(corpus, model, monkeypatch, capsys):
    monkeypatch.setattr(SentenceEncoder, "encode", lambda *arguments, **options: pytest.fail("encoded"))
    assert run("cluster", "--corpus", corpus, "--model", model, "--k", 1000) == 2
    assert "--k 1000: the corpus has 417 sentences; give at most this number" in capsys.readouterr().err


def test_a_search_by_words_too_has_the_order_of_reciprocal_ranks(corpus, vectors, model, tmp_path, capsys):
    pytest.importorskip("bm25s")
    queries = tmp_path / "queries.txt"
    queries.write_text("two women dance\n\nthe tall dog\n", encoding="utf-8")
    common = ("--corpus", vectors, "--corpus-text", corpus, "--model", model, "--queries", queries, "--json")

    def found(*options):
        assert run("search", *common, *options) == 0
        rows = {0: [], 2: []}
        for line in map(json.loads, capsys.readouterr().out.splitlines()):
            rows[line["query"]].append((line["row"], line["score"]))
        return rows

    alone, both = found("--top-k", 100), found("--top-k", 5, "--bm25")
    lines = corpus.read_text(encoding="utf-8").splitlines()
    words = bm25.rank(["two women dance", "the tall dog"], lines, 100)
    for query, by_words in zip((0, 2), words.rows.tolist(), strict=True):
        score = {row: 0.0 for row in range(COUNT)}
        for ranked in ([row for row, _ in alone[query]], [row for row in by_words if row >= 0]):
            for rank, row in enumerate(ranked, 1):
                score[row] += 1 / (60 + rank)
        best = sorted(score, key=lambda row: (-score[row], row))[:5]
        assert [row for row, _ in both[query]] == best
        assert [value for _, value in both[query]] == pytest.approx([score[row] for row in best])


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--corpus", "{vectors}"], 2, "--bm25 searches by words, and --corpus .* has vectors: give their text by --corpus-text"),
        (["--corpus", "{corpus}", "--chunks", "each"], 2, "--bm25 ranks whole texts: give --chunks mean or max"),
    ],
)
def test_a_search_by_words_needs_whole_texts(corpus, vectors, model, capsys, options, code, problem):
    pytest.importorskip("bm25s")
    given = [option.format(vectors=vectors, corpus=corpus) for option in options]
    assert run("search", *given, "--model", model, "--query", "dance", "--bm25") == code
    assert re.search(problem, capsys.readouterr().err)


def test_a_search_by_words_names_the_package_that_is_missing(corpus, model, monkeypatch, capsys):
    monkeypatch.setattr(bm25, "package", lambda: None)
    assert run("search", "--corpus", corpus, "--model", model, "--query", "dance", "--bm25") == 2
    assert "--bm25 needs a package: pip install bm25s" in capsys.readouterr().err
