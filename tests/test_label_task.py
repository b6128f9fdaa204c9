"""Labelled texts: neighbours by hand, logistic regression as in scikit-learn, and the chance level by simulation."""

import json

import numpy as np
import pytest

from jax_sentemb.data.corpus_files import open_text
from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.evaluation.label_task import LabelTask, _labelled, fold_of, nearest_others, predicted_by_folds
from jax_sentemb.evaluation.measures import values_of
from jax_sentemb.evaluation.word_baselines import nearest_by_words


def clouds(seed, sizes, width=8, spread=1.5):
    """Vectors of classes of these sizes around a centre each, and their classes, in random order."""
    random = np.random.default_rng(seed)
    classes = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = random.normal(size=(len(sizes), width))
    return (centres[classes] + spread * random.normal(size=(len(classes), width))).astype(np.float32), classes


def task(tmp_path, classes, **options):
    lines = [json.dumps({"text": f"text {row}", "label": f"class {number}"}) for row, number in enumerate(classes.tolist())]
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return LabelTask("--labels", str(file), **options)


def test_neighbours_and_clusters_are_those_of_scikit_learn(tmp_path):
    neighbors, metrics = pytest.importorskip("sklearn.neighbors"), pytest.importorskip("sklearn.metrics")
    vectors, classes = clouds(0, (30, 20, 10))
    opened = task(tmp_path, classes)
    ((name, scored),) = opened.score("model", {"texts": vectors})
    values = values_of(scored)
    assert (name, scored.items) == ("model", 60)
    order = neighbors.NearestNeighbors(n_neighbors=6, metric="cosine").fit(vectors).kneighbors(vectors)[1][:, 1:]
    same = classes[order] == classes[:, None]
    assert values["accuracy@1"] == pytest.approx(100 * same[:, 0].mean())
    assert values["accuracy@5"] == pytest.approx(100 * same.any(axis=1).mean())
    from jax_sentemb.retrieval.kmeans import kmeans

    clusters = kmeans(vectors, 3, 0).labels
    assert values["V-measure"] == pytest.approx(100 * metrics.v_measure_score(classes, clusters))
    assert values["ARI"] == pytest.approx(100 * metrics.adjusted_rand_score(classes, clusters))
    drawn = np.random.default_rng(1).integers(60, size=60)
    expected = metrics.adjusted_rand_score(classes[drawn], clusters[drawn])
    assert scored.measures["ARI"](drawn) == pytest.approx(100 * expected)


@pytest.mark.parametrize("sizes", [(30, 20, 10), (25, 35), (30, 2, 1, 12)])
def test_logistic_regression_is_that_of_scikit_learn(sizes):
    linear_model = pytest.importorskip("sklearn.linear_model")
    vectors, classes = clouds(len(sizes), sizes)
    folds, counts = fold_of(classes), np.bincount(classes)
    expected = np.empty(len(classes), int)
    for fold in range(5):
        train = (folds != fold) & (counts[classes] > 1)
        model = linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit(vectors[train], classes[train])
        expected[folds == fold] = model.predict(vectors[folds == fold])
    assert len(set(expected)) > 1
    assert predicted_by_folds(vectors, classes).tolist() == expected.tolist()


def test_folds_spread_each_class_evenly():
    _, classes = clouds(1, (31, 7, 1, 5))
    folds = fold_of(classes)
    for number in range(4):
        counts = np.bincount(folds[classes == number], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(folds).tolist() == [9, 9, 9, 9, 8]


def test_a_text_is_not_its_own_neighbour_also_among_equal_ones():
    vectors = np.array([[1, 0]] * 9 + [[0, 1]], np.float32)
    nearest = nearest_others(vectors, 3)
    assert nearest.shape == (10, 3)
    assert not (nearest == np.arange(10)[:, None]).any()
    assert nearest[8].tolist() == [0, 1, 2]
    assert nearest_others(vectors[:3], 5).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_tf_idf_finds_the_neighbours_of_scikit_learn():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    random = np.random.default_rng(5)
    texts = [" ".join(f"w{word}" for word in random.zipf(1.5, 8) % 40) for _ in range(300)]
    counts = text.CountVectorizer(token_pattern=r"\w+").fit_transform(texts).toarray()
    table = counts * np.log(301 / (1 + (counts > 0).sum(axis=0)))
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-9)
    cosines = table @ table.T - 2 * np.eye(300)
    nearest = nearest_by_words(texts, 5)
    rows = np.arange(300)[:, None]
    np.testing.assert_allclose(cosines[rows, nearest], -np.sort(-cosines, axis=1)[:, :5], atol=1e-6)
    assert all(len(set(row)) == 5 for row in nearest.tolist())
    assert nearest_by_words(["a b", "a b", "c"], 5).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_chance_is_what_random_vectors_reach(tmp_path):
    _, classes = clouds(2, (40, 15, 5))
    opened = task(tmp_path, classes)
    random = np.random.default_rng(0)
    hits = []
    for _ in range(300):
        nearest = nearest_others(random.normal(size=(60, 6)).astype(np.float32), 5)
        same = classes[nearest] == classes[:, None]
        hits.append([same[:, 0].mean(), same.any(axis=1).mean()])
    constants = opened.constants()
    measured = 100 * np.mean(hits, axis=0)
    assert (constants["chance"]["accuracy@1"], constants["chance"]["accuracy@5"]) == pytest.approx(measured, abs=0.7)
    assert constants["chance"]["logistic"] == pytest.approx(100 * (40**2 + 15**2 + 5**2) / 3600)
    assert abs(constants["chance"]["ARI"]) < 5
    assert constants["largest class"] == pytest.approx(
        {"accuracy@1": 200 / 3, "accuracy@5": 200 / 3, "logistic": 200 / 3, "V-measure": 0, "ARI": 0}
    )


def test_a_sample_keeps_texts_with_their_labels(tmp_path):
    _, classes = clouds(3, (40, 20))
    sampled = task(tmp_path, classes, sample=25)
    lines = sampled.texts["texts"].lines
    assert len(lines) == 25
    kept = [int(line.split()[1]) for line in lines]
    assert kept == sorted(kept)
    assert sampled.facts["classes"] == {f"class {number}": int((classes[kept] == number).sum()) for number in (0, 1)}
    assert "25 texts are a random sample" in sampled.notes[0]
    assert len(task(tmp_path, classes, sample=0).texts["texts"].lines) == 60


def test_one_class_is_too_few(tmp_path):
    with pytest.raises(DataError, match=r"labels\.jsonl: 3 texts have 1 class in 'label'; give texts of at least two classes"):
        task(tmp_path, np.zeros(3, int))


def test_repeated_texts_and_single_classes_are_noted(tmp_path):
    file = tmp_path / "x.tsv"
    file.write_text("text\tlabel\na\tx\na\ty\nb\tx\n", encoding="utf-8")
    assert LabelTask("--labels", str(file)).notes == [
        "1 texts repeat an earlier one, so the nearest other text may be a copy",
        "1 classes have a single text, which no other text can match",
    ]


def test_a_label_belongs_to_one_text(tmp_path):
    file = tmp_path / "two.jsonl"
    rows = [{"title": f"title {row}", "text": f"text {row}", "label": row % 2} for row in range(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(ConfigError, match="--column title,text: a label belongs to one text; name one column"):
        LabelTask("--labels", str(file), column="title,text")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sample": -1}, "sample=-1: must be a whole number of 0 or more"),
        ({"sample": 2.5}, "sample=2.5: must be"),
        ({"sample": None}, "sample=None: must be"),
        ({"column": None}, "column=None: must be a str"),
        ({"label_column": 4}, "label_column=4: must be a str"),
        ({"label_column": " "}, "is empty"),
    ],
)
def test_options_out_of_range(tmp_path, options, problem):
    with pytest.raises(ConfigError, match=problem):
        task(tmp_path, np.arange(6) % 2, **options)


def test_whole_numbers_are_one_class_however_they_are_stored(tmp_path):
    rows = [{"text": f"text {row}", "label": label} for row, label in enumerate((1, "1", 1.0, 0, 0.0, "0", 0.5))]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert _labelled(open_text("--labels", str(file), "text", id_column="label"))[1] == ["1", "1", "1", "0", "0", "0", "0.5"]


def test_many_classes_need_no_square_of_memory(tmp_path):
    classes = np.arange(2400) // 2
    opened = task(tmp_path, classes)
    assert "1,200 classes, more than 1,000: only the nearest texts are scored" in opened.notes
    vectors, _ = clouds(4, (2400,))
    vectors[1::2] = vectors[::2]
    ((_, scored),) = opened.score("model", {"texts": vectors})
    assert values_of(scored) == {"accuracy@1": 100, "accuracy@5": 100}
    for values in opened.constants().values():
        assert set(values) == {"accuracy@1", "accuracy@5"}


def test_collapsed_vectors_are_refused(tmp_path):
    opened = task(tmp_path, np.arange(60) % 3)
    for row in (np.zeros(8), np.arange(8)):
        with pytest.raises(NumericsError, match="all 60 text vectors are equal: the embeddings collapsed"):
            list(opened.score("model", {"texts": np.tile(row.astype(np.float32), (60, 1))}))
