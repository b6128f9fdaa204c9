"""Corpora that a run writes: generated sentences and pairs, and the text of SentEval tasks."""

import numpy as np
import pytest

from jax_sentemb.config import Data
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.pairs import read_pairs
from jax_sentemb.data.synthetic import graded_pairs
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.training.corpus_source import NLI, corpus_files, corpus_task


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def senteval(tmp_path):
    """A SentEval folder with two tasks: single sentences in two files, and scored pairs."""
    root = tmp_path / "senteval"
    (root / "downstream" / "CR").mkdir(parents=True)
    (root / "downstream" / "CR" / "custrev.pos").write_text("good camera\nvery nice\n")
    (root / "downstream" / "CR" / "custrev.neg").write_text("bad lens\nvery poor thing\n")
    (root / "downstream" / "STS" / "STSBenchmark").mkdir(parents=True)
    for part, score in (("train", 5.0), ("dev", 2.5), ("test", 1.0)):
        rows = [f"g\tf\t2012\t{n}\t{value}\t{part} first {n}\t{part} second {n}\n" for n, value in enumerate((score, 0.0))]
        (root / "downstream" / "STS" / "STSBenchmark" / f"sts-{part}.csv").write_text("".join(rows))
    return str(root)


def test_files_of_the_user_are_left_as_they_are(tmp_path):
    assert corpus_files(Data(files="a.txt,b.tsv", column="c", join=" "), "", tmp_path, pairs=False) == ("a.txt,b.tsv", "c", " ")
    assert list(tmp_path.iterdir()) == []


def test_generated_sentences_and_pairs(tmp_path):
    path, column, _ = corpus_files(Data(files="grammar:30"), "grammar", tmp_path, pairs=False)
    assert len(open_corpus(path, column)) == 30
    path, *_ = corpus_files(Data(files="grammar:30"), "grammar", tmp_path, pairs=True)
    scored, classed = read_pairs(path), read_pairs(path, NLI)
    assert len(scored.first) == 30
    assert set(classed.labels) == {0, 1, 2}
    np.testing.assert_array_equal(classed.labels, np.minimum(scored.labels * 3 // 5, 2))
    for seed in (1, 2):  # those that runs are scored on
        test = graded_pairs(200, seed)
        assert not set(test[0] + test[1]) & set(scored.sentences)


def test_all_text_of_a_task_or_of_one_part(tmp_path, senteval):
    path, column, _ = corpus_files(Data(files="senteval:CR"), senteval, tmp_path, pairs=False)
    assert sorted(open_corpus(path, column)) == ["bad lens", "good camera", "very nice", "very poor thing"]
    path, column, _ = corpus_files(Data(files="senteval:STSBenchmark/train"), senteval, tmp_path, pairs=False)
    assert set(open_corpus(path, column)) == {f"train {side} {n}" for side in ("first", "second") for n in (0, 1)}
    path, column, _ = corpus_files(Data(files="senteval:STSBenchmark"), senteval, tmp_path, pairs=False)
    assert len(open_corpus(path, column)) == 12


def test_labelled_pairs_are_those_of_the_training_part(tmp_path, senteval):
    path, *_ = corpus_files(Data(files="senteval:STSBenchmark"), senteval, tmp_path, pairs=True)
    pairs = read_pairs(path)
    assert sorted(zip(pairs.first, pairs.second, pairs.labels.tolist(), strict=True)) == [
        ("train first 0", "train second 0", 5.0),
        ("train first 1", "train second 1", 0.0),
    ]


@pytest.mark.parametrize(
    ("files", "pairs", "error", "says"),
    [
        ("grammar:", False, ConfigError, "write grammar:COUNT"),
        ("grammar:0", True, ConfigError, "write grammar:COUNT"),
        ("senteval:QQ", False, ConfigError, "unknown task 'QQ'"),
        ("senteval:CR", True, ConfigError, "CR has single sentences"),
        ("senteval:CR/train", False, ConfigError, "no part 'train', only all"),
        ("senteval:MR", False, DataError, "is missing"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, senteval, files, pairs, error, says):
    with pytest.raises(error, match=says) as caught:
        corpus_files(Data(files=files), senteval, tmp_path, pairs)
    assert "\n" not in str(caught.value)


def test_a_task_needs_its_folder(tmp_path):
    for folder in ("", "grammar"):
        with pytest.raises(ConfigError, match=r"needs the SentEval folder: eval\.data"):
            corpus_files(Data(files="senteval:CR"), folder, tmp_path, pairs=False)


def test_the_task_of_a_corpus():
    assert corpus_task("senteval:MR") == "MR"
    assert corpus_task("senteval:STSBenchmark/train") == "STSBenchmark"
    with pytest.raises(ConfigError, match=r"eval\.tasks=corpus"):
        corpus_task("corpus.txt")
