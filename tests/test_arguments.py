"""Argument similarity: readers, correlations by topic, and the ridge regression on folds and unseen topics."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.evaluation import arguments, catalog
from jax_sentemb.evaluation.arguments import ArgumentTask, load_arguments, score_supervised, score_unsupervised
from jax_sentemb.evaluation.sts_data import ScoredPairs
from jax_sentemb.evaluation.word_baselines import TfIdf, WordAverageBaseline

AFS_HEADER = ",".join(["regression_label"] + [f"x{column}" for column in range(8)] + ["sentence_1", "sentence_2"])


def afs(folder, topic, *rows, header=AFS_HEADER):
    lines = [",".join([score, *"12345678", f'"{first}"', second]) for score, first, second in rows]
    (folder / f"ArgPairs_{topic}.csv").write_bytes("\r\n".join([header, *lines]).encode("utf-8-sig") + b"\r\n")


def test_afs(tmp_path):
    for topic in ("DP", "GC", "GM"):
        afs(tmp_path, topic, ("4.5", 'He said ""no"", twice', "b"), ("0", "two\nlines", "d"), ("", "none", "x"), ("2", "é", topic))
    path = tmp_path / "ArgPairs_GC.csv"
    path.write_bytes(path.read_bytes().replace(b"two", b"tw\xffo"))
    task = load_arguments(tmp_path)
    assert (task.name, list(task.topics)) == ("AFS", ["death penalty", "gun control", "gay marriage"])
    assert [pairs.second[-1] for pairs in task.topics.values()] == ["DP", "GC", "GM"]
    pairs = task.topics["gun control"]
    assert pairs.first == ['He said "no", twice', "two lines", "é"]
    assert pairs.gold.tolist() == [4.5, 0, 2]
    assert task.warnings == (f"{path}: 1 bytes that are not UTF-8 were dropped",)
    assert [file.name for file in task.files] == ["ArgPairs_DP.csv", "ArgPairs_GC.csv", "ArgPairs_GM.csv"]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([("5.1", "a", "b")], AFS_HEADER, r"DP\.csv:2: gold score '5.1' is not a number from 0 to 5"),
        ([("1", "a", "b"), ("nan", "a", "b")], AFS_HEADER, r"DP\.csv:3: gold score 'nan'"),
        ([("1", "a", "b")], "4.0,1,2", r"DP\.csv:1: the first field is '4.0', expected a header"),
        ([("", "a", "b")], AFS_HEADER, r"DP\.csv: no row has a gold score"),
        ([], AFS_HEADER, r"DP\.csv has no pairs"),
    ],
)
def test_malformed_afs(tmp_path, rows, header, message):
    with pytest.raises(DataError, match=r"ArgPairs_DP\.csv: no such file"):
        load_arguments(tmp_path)
    afs(tmp_path, "DP", *rows, header=header)
    with pytest.raises(DataError, match=message):
        load_arguments(tmp_path)


def test_missing_columns_of_afs(tmp_path):
    (tmp_path / "ArgPairs_DP.csv").write_text(f"{AFS_HEADER}\n1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"DP\.csv:2: 3 columns, expected 11 or more"):
        load_arguments(tmp_path)


HEADER = "sentence1\tsentence2\tlabel\ttopic\n"


def table(folder, text, name="UKP_ASPECT.tsv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_are_grades(tmp_path):
    text = HEADER + '"a ""b""\tc"\tb\tHS\tdrones\nc\td\tDTORCD\tdrones\ne\tf\tNS\tcoal\ng\th\tSS\tcoal\n'
    task = load_arguments(table(tmp_path, text))
    assert task.name == "UKP_ASPECT"
    assert task.topics["drones"].first == ['a "b" c', "c"]
    assert task.topics["drones"].gold.tolist() == [2, 0]
    assert task.topics["coal"].gold.tolist() == [0, 1]
    assert task.warnings == ()
    known = catalog.load_arguments(tmp_path / "UKP_ASPECT.tsv")
    assert "4 pairs on 2 topics instead of the published 3,595 on 28" in known.warnings[0]


def test_labels_are_numbers(tmp_path):
    task = load_arguments(table(tmp_path, "topic\tlabel\tsentence1\tsentence2\nx\t0.5\ta\tb\nx\t-3\tc\td\n", "mine.tsv"))
    assert (task.name, task.warnings) == ("mine", ())
    assert task.topics["x"] == (["a", "c"], ["b", "d"], pytest.approx([0.5, -3]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sentence1\tsentence2\ttopic\na\tb\tc\nd\te\tf\n",
            r"has no column 'label', only sentence1, sentence2, topic: required are .*for AFS give its folder",
        ),
        (HEADER + "a\tb\tHS\tx\nc\td\tgood\tx\n", r":3: label 'good' is not one of DTORCD, NS, SS, HS like the first label"),
        (HEADER + "a\tb\tHS\tx\nc\td\t3\tx\n", r":3: label '3' is not one of"),
        (HEADER + "a\tb\t1\tx\nc\td\tHS\tx\n", r":3: label 'HS' is not a number"),
        (HEADER + "a\tb\tHS\tx\nc\td\n", r" line 3 has 2 fields, the header has 4"),
        (HEADER + 'a\tb\tHS\tx\n"c\td\tHS\tx\ne\tf\tHS\tx\n', r"cannot be read as a table from line 3 on: unexpected end of data"),
        (HEADER, r" has no pairs: expected a header"),
    ],
)
def test_malformed_tables(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_arguments(table(tmp_path, text))


def test_a_table_that_is_not_utf8_or_not_there(tmp_path):
    path = table(tmp_path, HEADER + "a\tb\tHS\tx\n")
    path.write_bytes(path.read_bytes() + b"\xff")
    with pytest.raises(DataError, match=r"byte 41 is not UTF-8"):
        load_arguments(path)
    with pytest.raises(DataError, match=r"none\.tsv: no such file"):
        load_arguments(tmp_path / "none.tsv")


def corpus(sizes, seed=0, width=4):
    """Topics of pairs whose gold score depends on the embeddings in a way that the cosine does not see."""
    random = np.random.default_rng(seed)
    vectors, topics = {}, {}
    for number, size in enumerate(sizes):
        first, second = ([f"{side}{number}.{row}" for row in range(size)] for side in "ab")
        vectors |= {sentence: random.normal(size=width) for sentence in first + second}
        gold = [abs(vectors[a] - vectors[b])[0] - 2 * (vectors[a] * vectors[b])[1] for a, b in zip(first, second, strict=True)]
        topics[f"topic {number}"] = ScoredPairs(first, second, np.array(gold) + 0.1 * random.normal(size=size))
    return ArgumentTask("test", topics, ()), lambda sentences: np.stack([vectors[sentence] for sentence in sentences])


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
    assert (result["n"], result["left_out"]) == (42, [])


@pytest.mark.parametrize("score", [score_unsupervised, lambda embed, task: score_supervised(embed, task, "10-fold")])
def test_distinct_sentences_are_embedded_in_one_call(score):
    task, embed = corpus([12, 30])
    task.topics["topic 1"].first[3] = task.topics["topic 0"].second[2]
    calls = []
    score(lambda sentences: (calls.append(list(sentences)), embed(sentences))[1], task)
    assert len(calls) == 1
    assert sorted(calls[0]) == sorted({s for pairs in task.topics.values() for s in pairs.first + pairs.second})


def test_topics_without_a_correlation_are_left_out():
    task, embed = corpus([12, 2, 30])
    alone = score_unsupervised(embed, ArgumentTask("test", {"topic 2": task.topics["topic 2"]}, ()))
    task.topics["topic 0"].gold[:] = 1
    result = score_unsupervised(embed, task)
    assert result["left_out"] == ["topic 0", "topic 1"]
    assert (result["n"], result["spearman"]) == (30, alone["spearman"])
    task.topics["topic 2"].gold[:] = 2
    with pytest.raises(DataError, match=r"no topic .* has 3 pairs and two gold scores"):
        score_unsupervised(embed, task)


def test_collapse_and_nan_are_errors():
    task, embed = corpus([12, 30])
    for score in (score_unsupervised, *(lambda e, t, s=scheme: score_supervised(e, t, s) for scheme in arguments.SCHEMES)):
        with pytest.raises(NumericsError, match="all 84 sentence embeddings are equal"):
            score(lambda sentences: np.ones((len(sentences), 3)), task)
        with pytest.raises(NumericsError, match="test: 1 of 84 sentence embeddings are not finite"):
            score(lambda sentences: np.where(np.arange(len(sentences))[:, None] == 5, np.nan, embed(sentences)), task)
    with pytest.raises(NumericsError, match="topic 1: all 30 pairs are equally similar"):  # parallel, of various lengths
        score_unsupervised(
            lambda sentences: np.abs(embed(sentences)[:, :1]) if "1" in sentences[0] else embed(sentences), one(task, 1)
        )


def one(task, number):
    name = f"topic {number}"
    return ArgumentTask("test", {name: task.topics[name]}, ())


@pytest.mark.parametrize("scheme", arguments.SCHEMES)
def test_regression_finds_what_the_cosine_does_not(scheme):
    task, embed = corpus([60, 60, 60])
    assert score_supervised(embed, task, scheme)["pearson"]["mean"] > 85
    assert score_unsupervised(embed, task)["pearson"]["mean"] < 60
    assert score_supervised(embed, task, scheme) == score_supervised(embed, task, scheme)


def features_of(task, embed):
    a, b = (np.concatenate([embed(pairs[side]) for pairs in task.topics.values()]) for side in (0, 1))
    return np.concatenate([np.abs(a - b), a * b], axis=1), np.concatenate([pairs.gold for pairs in task.topics.values()])


def test_ten_folds_are_averaged_within_topics_and_then_over_them():
    """Against scikit-learn on folds that are taken from `_folds`, one fold of a topic without a correlation."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    task, embed = corpus([45, 62])
    topic_of = np.repeat([0, 1], [45, 62])
    fold = arguments._folds(topic_of)
    task.topics["topic 0"].gold[fold[:45] == 4] = 1.5
    result = score_supervised(embed, task, "10-fold")
    x, gold = features_of(task, embed)
    found = {0: [], 1: []}
    for part, penalty in zip(range(10), result["penalties"], strict=True):
        train, test = fold != part, fold == part
        scale = x[train].std(0)
        solver = linear_model.Ridge(alpha=penalty * train.sum()).fit(x[train] / scale, gold[train])
        for topic in (0, 1):
            rows = test & (topic_of == topic)
            if np.ptp(gold[rows]) > 0:
                found[topic].append(100 * spearmanr(solver.predict(x[rows] / scale), gold[rows])[0])
    assert result["spearman"]["topics"] == pytest.approx({f"topic {topic}": np.mean(found[topic]) for topic in (0, 1)})
    assert result["spearman"]["mean"] == pytest.approx(np.mean([np.mean(found[topic]) for topic in (0, 1)]))
    assert result["left_out_folds"] == {"topic 0": 1}
    assert result["n"] == 107 - (fold[:45] == 4).sum()


def test_cross_topic_tests_on_the_topic_that_was_not_trained_on():
    linear_model = pytest.importorskip("sklearn.linear_model")
    task, embed = corpus([20, 25, 30])
    result = score_supervised(embed, task, "cross-topic")
    x, gold = features_of(task, embed)
    topic_of = np.repeat([0, 1, 2], [20, 25, 30])
    for topic, penalty in enumerate(result["penalties"]):
        train = topic_of != topic
        solver = linear_model.Ridge(alpha=penalty * train.sum()).fit(x[train] / x[train].std(0), gold[train])
        expected = 100 * pearsonr(solver.predict(x[~train] / x[train].std(0)), gold[~train])[0]
        assert result["pearson"]["topics"][f"topic {topic}"] == pytest.approx(expected)
    assert result["n"] == 75


def test_no_fold_sees_the_pairs_that_it_is_tested_on():
    """Gold scores of a part and features of one of its rows change nothing for the other rows of that part, to the last bit."""
    task, embed = corpus([30, 25, 21])
    features, gold = features_of(task, embed)
    for part in (arguments._topic_of(task), arguments._folds(arguments._topic_of(task))):
        predicted, _ = arguments._predict(features, gold, part)
        for value in np.unique(part):
            first, *others = np.flatnonzero(part == value)
            changed, features_changed = gold.copy(), features.copy()
            changed[part == value] = 100
            features_changed[first] = 1e3
            again, _ = arguments._predict(features_changed, changed, part)
            np.testing.assert_array_equal(again[others], predicted[others])


def test_features_that_know_nothing_score_nothing():
    """Pooled over folds they would come to -20: the intercept of a fold is low where its tested scores are high."""
    task, _ = corpus([60, 60, 60])
    for scheme in arguments.SCHEMES:
        scores = []
        for seed in range(20):
            random = np.random.default_rng(seed)
            result = score_supervised(lambda sentences, random=random: random.normal(size=(len(sentences), 10)), task, scheme)
            scores.append(result["pearson"]["mean"])
        assert abs(np.mean(scores)) < 6  # four standard errors


def test_folds():
    topic_of = np.repeat([0, 1, 2], [100, 37, 4])
    fold = arguments._folds(topic_of)
    assert np.bincount(fold[topic_of == 0]).tolist() == [10] * 10
    assert np.bincount(fold[topic_of == 1]).tolist() == [4] * 7 + [3] * 3
    # A topic's folds depend on no other topic, and are shuffled.
    np.testing.assert_array_equal(fold[topic_of == 1], arguments._folds(np.zeros(37, int)))
    assert fold[:10].tolist() == [2, 7, 2, 8, 7, 4, 9, 7, 8, 5]


def test_schemes():
    task, embed = corpus([12, 30])
    with pytest.raises(ConfigError, match="'5-fold' is unknown; the schemes are 10-fold, cross-topic"):
        score_supervised(embed, task, "5-fold")
    with pytest.raises(DataError, match="has one topic"):
        score_supervised(embed, one(task, 0), "cross-topic")
    with pytest.raises(DataError, match="as a correlation needs"):
        score_supervised(embed, one(task, 0), "10-fold")


@pytest.mark.parametrize(("noise", "rows"), [(0.3, 50), (4, 50), (1, 10)])
def test_ridge_is_that_of_scikit_learn_with_the_best_left_out_error(noise, rows):
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    features, test = random.normal(size=(rows, 8)) * 3 + 1, random.normal(size=(7, 8)) * 3 + 1
    features[:, 5], test[:, 5] = 0.1, 7  # a column that does not vary where it is learnt from
    gold = features[:, 0] + noise * random.normal(size=rows) + 3
    found, chosen = arguments._ridge(features, gold, test)
    mean, scale = features.mean(0), np.where(np.arange(8) == 5, 1, features.std(0))
    errors, predictions = [], []
    for penalty in arguments.PENALTIES * rows:
        left_out = []
        for row in range(rows):
            # Standardised once, by all training rows; only the regression is repeated.
            keep = np.arange(rows) != row
            solver = linear_model.Ridge(alpha=penalty).fit(((features - mean) / scale)[keep], gold[keep])
            left_out.append(solver.predict((features[row : row + 1] - mean) / scale)[0] - gold[row])
        errors.append(np.square(left_out).sum())
        predictions.append(linear_model.Ridge(alpha=penalty).fit((features - mean) / scale, gold).predict((test - mean) / scale))
    assert chosen == arguments.PENALTIES[int(np.argmin(errors))]
    np.testing.assert_allclose(found, predictions[int(np.argmin(errors))], rtol=1e-6)


@pytest.fixture(scope="module")
def aspect(shared):
    path = shared / "data" / "afs" / "UKP_ASPECT.tsv"
    if not path.is_file():
        pytest.skip("no corpus")
    return load_arguments(path)


def test_real_corpus(aspect):
    assert (len(aspect.topics), aspect.warnings) == (28, ())
    gold = np.concatenate([pairs.gold for pairs in aspect.topics.values()])
    assert np.bincount(gold.astype(int)).tolist() == [571 + 1723, 841, 460]


def test_real_corpus_with_words(aspect, shared):
    """Words tell something, tf-idf more than averages of vectors, as in the paper's Table 2."""
    words = {word for pairs in aspect.topics.values() for side in pairs[:2] for s in side for word in s.lower().split()}
    path = shared / "vectors" / "glove.6B.50d.top100k.npz"
    if not path.is_file():
        pytest.skip("no word vectors")
    glove = WordAverageBaseline(read_word_vectors(path, words)).encode
    averages = score_unsupervised(glove, aspect)
    tf_idf = score_unsupervised(lambda sentences: TfIdf(1024).fit(sentences).encode(sentences), aspect)
    assert 10 < averages["pearson"]["mean"] < tf_idf["pearson"]["mean"] < 50
    # With labels more, on topics that were not trained on less.
    folds, unseen = (score_supervised(glove, aspect, scheme)["pearson"]["mean"] for scheme in arguments.SCHEMES)
    assert averages["pearson"]["mean"] < unseen < folds
