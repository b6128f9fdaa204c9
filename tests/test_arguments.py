"""Argument similarity: readers, correlations by topic, and the ridge regression on folds and unseen topics."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from jax_sentemb.errors import DataError, NumericsError
from jax_sentemb.evaluation import arguments
from jax_sentemb.evaluation.arguments import ArgumentTask, load_arguments, score_supervised, score_unsupervised
from jax_sentemb.evaluation.sts import Pairs


def afs(folder, topic, *rows):
    header = ",".join(["regression_label"] + [f"x{column}" for column in range(8)] + ["sentence_1", "sentence_2"])
    lines = [",".join([score, *"12345678", f'"{first}"', second]) for score, first, second in rows]
    (folder / f"ArgPairs_{topic}.csv").write_bytes("\r\n".join([header, *lines]).encode() + b"\r\n")


def test_afs(tmp_path):
    for topic in ("DP", "GC", "GM"):
        afs(tmp_path, topic, ("4.5", 'He said ""no"", twice', "b"), ("0", "two\nlines", "d"), ("2", "e", "f"))
    path = tmp_path / "ArgPairs_GC.csv"
    path.write_bytes(path.read_bytes().replace(b"two", b"tw\xffo"))  # not UTF-8: dropped, as published readers do
    task = load_arguments(tmp_path)
    assert (task.name, list(task.topics)) == ("AFS", ["death penalty", "gun control", "gay marriage"])
    pairs = task.topics["gun control"]
    assert pairs.first == ['He said "no", twice', "two\nlines", "e"]
    assert pairs.gold.tolist() == [4.5, 0, 2]


HEADER = "sentence1\tsentence2\tlabel\ttopic\n"


def test_labels_are_grades(tmp_path):
    path = tmp_path / "UKP_ASPECT.tsv"
    path.write_text(HEADER + '"a ""b"""\tb\tHS\tdrones\nc\td\tDTORCD\tdrones\ne\tf\tNS\tcoal\ng\th\tSS\tcoal\n', encoding="utf-8")
    task = load_arguments(path)
    assert task.name == "UKP_ASPECT"
    assert task.topics["drones"].first == ['a "b"', "c"]
    assert task.topics["drones"].gold.tolist() == [2, 0]
    assert task.topics["coal"].gold.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sentence1\tsentence2\ttopic\na\tb\tc\nd\te\tf\n", r":1: no column 'label'"),
        (HEADER + "a\tb\tHS\tx\nc\td\tgood\tx\n", r":3: label 'good' is neither DTORCD, NS, SS, HS nor a number"),
        (HEADER + "a\tb\tHS\tx\nc\td\n", r":3: 2 fields, expected 4"),
        (HEADER + "a\tb\tHS\tx\n", r": 1 pairs: expected a header and at least two pairs"),
        (HEADER + "a\tb\tHS\tx\nc\td\tHS\ty\ne\tf\tHS\ty\n", r"a topic has 1 pairs"),
    ],
)
def test_malformed_files(tmp_path, text, message):
    path = tmp_path / "p.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_arguments(path)
    with pytest.raises(DataError, match=r"ArgPairs_DP\.csv: No such file"):
        load_arguments(tmp_path)


def corpus(sizes, seed=0, width=4):
    """Topics of pairs whose gold score depends on the embeddings in a way that the cosine does not see."""
    random = np.random.default_rng(seed)
    table, topics = {}, {}
    for number, size in enumerate(sizes):
        first, second = ([f"{side}{number}.{row}" for row in range(size)] for side in "ab")
        table |= {sentence: random.normal(size=width) for sentence in first + second}
        gold = [abs(table[a] - table[b])[0] - 2 * (table[a] * table[b])[1] for a, b in zip(first, second, strict=True)]
        topics[f"topic {number}"] = Pairs(first, second, np.array(gold) + 0.1 * random.normal(size=size))
    return ArgumentTask("test", topics, ()), lambda sentences: np.stack([table[sentence] for sentence in sentences])


def test_unsupervised_scores_are_means_over_topics():
    task, embed = corpus([12, 30])
    result = score_unsupervised(embed, task)
    for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
        expected = []
        for pairs in task.topics.values():
            a, b = embed(pairs.first), embed(pairs.second)
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            expected.append(100 * correlation(cosine, pairs.gold)[0])
        assert list(result[kind]["topics"].values()) == pytest.approx(expected)
        assert result[kind]["mean"] == pytest.approx(np.mean(expected))
    assert result["n"] == 42


def test_a_topic_with_one_gold_score_is_left_out_and_collapse_is_an_error():
    task, embed = corpus([12, 30])
    task.topics["topic 0"].gold[:] = 1
    assert score_unsupervised(embed, task)["left_out"] == ["topic 0"]
    with pytest.raises(NumericsError, match="topic 1: all 30 pairs are equally similar"):
        score_unsupervised(lambda sentences: np.ones((len(sentences), 3)), task)
    task.topics["topic 1"].gold[:] = 2
    with pytest.raises(DataError, match="every topic has one gold score"):
        score_unsupervised(embed, task)
    with pytest.raises(NumericsError, match="not finite"):
        score_supervised(lambda sentences: np.full((len(sentences), 3), np.nan), task, "10-fold")


@pytest.mark.parametrize("scheme", ["10-fold", "cross-topic"])
def test_regression_finds_what_the_cosine_does_not(scheme):
    task, embed = corpus([60, 60, 60])
    assert score_supervised(embed, task, scheme)["pearson"]["mean"] > 85
    assert score_unsupervised(embed, task)["pearson"]["mean"] < 60
    assert score_supervised(embed, task, scheme) == score_supervised(embed, task, scheme)


@pytest.mark.parametrize("scheme", ["10-fold", "cross-topic"])
def test_regression_learns_nothing_from_the_pairs_that_it_is_tested_on(scheme):
    """Gold scores that are noise cannot be predicted, however wide the features are."""
    task, embed = corpus([60, 60, 60], width=40)
    random = np.random.default_rng(5)
    for pairs in task.topics.values():
        pairs.gold[:] = random.normal(size=60)
    assert abs(score_supervised(embed, task, scheme)["pearson"]["mean"]) < 25


def test_cross_topic_needs_topics():
    task, embed = corpus([12, 30])
    with pytest.raises(DataError, match="2 topics: cross-topic evaluation needs three"):
        score_supervised(embed, task, "cross-topic")


def test_ridge_is_that_of_scikit_learn_with_the_best_left_out_error():
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    features, test = random.normal(size=(50, 8)) * 3 + 1, random.normal(size=(7, 8)) * 3 + 1
    gold = features[:, 0] + 4 * random.normal(size=50)
    found = arguments._ridge(features, gold, test)
    mean, scale = features.mean(0), features.std(0)
    errors, predictions = [], []
    for penalty in arguments.PENALTIES * 50 / 100:
        left_out = []
        for row in range(50):
            # Standardised once, by all training rows; only the regression is repeated.
            keep = np.arange(50) != row
            solver = linear_model.Ridge(alpha=penalty).fit(((features - mean) / scale)[keep], gold[keep])
            left_out.append(solver.predict((features[row : row + 1] - mean) / scale)[0] - gold[row])
        errors.append(np.square(left_out).sum())
        predictions.append(linear_model.Ridge(alpha=penalty).fit((features - mean) / scale, gold).predict((test - mean) / scale))
    np.testing.assert_allclose(found, predictions[int(np.argmin(errors))], rtol=1e-6)


def test_real_corpus(shared):
    path = shared / "data" / "afs" / "UKP_ASPECT.tsv"
    if not path.is_file():
        pytest.skip("no corpus")
    task = load_arguments(path)
    assert len(task.topics) == 28
    assert sum(len(pairs.gold) for pairs in task.topics.values()) == 3595
