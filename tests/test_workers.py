"""Worker processes: the same files for any number of them, and none is left or waited for when something goes wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_sentemb.data import corpus_files, text_file, workers
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Subsample, tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ResourceError
from jax_sentemb.system import host

LINES = [f"the {one} of {other}\u00e9" for one in ("fox", "dog", "owl", "cat") for other in range(100)]
PROGRAM = """
import os, sys, time
from pathlib import Path
from jax_sentemb.data import corpus_files, text_file, workers
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize

class Slow(Tokenizer):
    def __reduce__(self):
        return Slow, (self._inner,)

    def encode(self, sentences, max_seq_length):
        here = Path(sys.argv[1]) / f"{os.getpid()}.pid"
        here.write_text(str("jax" in sys.modules), encoding="utf-8")
        time.sleep(float(sys.argv[2]))
        return super().encode(sentences, max_seq_length)

if __name__ == "__main__":
    text_file.LARGE = workers.PARALLEL = 1
    workers.SENTENCES = 10
    corpus = corpus_files.open_corpus(sys.argv[1] + "/corpus.txt", cache=Path(sys.argv[1]))
    tokenize(corpus, Slow.train(["the fox"] * 9, 100), 16, Path(sys.argv[1]), workers=2)
"""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """400 lines that count as many."""
    monkeypatch.setattr(text_file, "LARGE", 1)
    monkeypatch.setattr(workers, "PARALLEL", 1)
    monkeypatch.setattr(workers, "SENTENCES", 30)
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return open_corpus(str(tmp_path / "corpus.txt"), cache=tmp_path)


def entry(folder):
    (found,) = folder.glob("*.tokens")
    return {file.name: file.read_bytes() for file in found.iterdir()}


@pytest.mark.parametrize("kind", ["pieces", "words"])
def test_any_number_of_workers_writes_the_same_files(corpus, tmp_path, monkeypatch, kind):
    tokenizer = Tokenizer.train(LINES, 90) if kind == "pieces" else WordTokenizer.of(["the", "fox", "dog"], True)
    alone = tokenize(corpus, tokenizer, 8, tmp_path / "0", workers=0)
    original = type(tokenizer).encode

    def encode(self, sentences, length):
        assert list(sentences) == [""], "tokenised in this process"  # an empty sentence shows what a row without text has
        return original(self, sentences, length)

    monkeypatch.setattr(type(tokenizer), "encode", encode)
    subset = {"subset": Subsample(250, 1)} if kind == "words" else {}
    assert len(tokenize(corpus, tokenizer, 8, tmp_path / "0", workers=2)) == len(alone)  # it is there
    helped = tokenize(corpus, tokenizer, 8, tmp_path / "2", workers=2, **subset)
    assert helped.fingerprint == alone.fingerprint or subset
    monkeypatch.undo()
    if subset:
        tokenize(corpus, tokenizer, 8, tmp_path / "1", workers=0, **subset)
    assert entry(tmp_path / "2") == entry(tmp_path / ("1" if subset else "0"))


def test_small_corpora_and_single_cores_have_no_workers_unless_asked_for(corpus, monkeypatch):
    job = workers.TokenizeJob(corpus, Tokenizer.train(LINES, 90), 8)
    monkeypatch.setattr(workers, "_in_workers", lambda job, parts, count: iter([count]))
    assert list(workers.blocks(job, range(400), 3)) == [3]
    for cores in (5, 2):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: range(cores), raising=False)
        assert list(workers.blocks(job, range(400), -1)) == [cores]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    for asked in (-1, 0):
        assert sum(len(block.lengths) for block in workers.blocks(job, range(400), asked)) == 400
    monkeypatch.setattr(workers, "PARALLEL", 401)
    assert sum(len(block.lengths) for block in workers.blocks(job, range(400), 3)) == 400


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("9900000 100000", 8)],
)
def test_the_quota_of_a_container_limits_the_processors(quota, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(host, "QUOTA", tmp_path / "cpu.max")
    assert host.usable_cpus() == 8
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert host.usable_cpus() == expected


class Dying(Tokenizer):
    """Its worker is killed, as by a system without memory."""

    def __reduce__(self):
        return Dying, (self._inner,)

    def encode(self, sentences, max_seq_length):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_one_line_and_leaves_no_half_cache(corpus, tmp_path):
    with pytest.raises(ResourceError, match=r"data\.num_workers=0") as caught:
        tokenize(corpus, Dying.train(LINES, 90), 8, tmp_path / "cache", workers=2)
    assert "\n" not in str(caught.value)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] in ([".lock"], [])


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, 1), (signal.SIGTERM, 60), (signal.SIGKILL, 60)])
def test_a_signal_to_the_parent_leaves_no_worker(tmp_path, number, seconds):
    """`seconds` is what a block takes: after Ctrl-C the blocks that are being tokenised are finished."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(corpus_files.__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        started = wait_for(
            lambda: pids if len(pids := [path for path in tmp_path.glob("*.pid") if path.read_text()]) == 2 else None
        )
        assert {path.read_text(encoding="utf-8") for path in started} == {"False"}  # without jax they start quickly
        parent.send_signal(number)
    assert parent.returncode != 0
    wait_for(lambda: not any(Path(f"/proc/{path.stem}").exists() for path in started) or None)


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while (found := condition()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found
