"""Protocols of the transfer tasks against loops over folds, and the small pieces they are made of."""

import numpy as np
import pytest
from test_classifier import torch_fit

from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.evaluation import classifier, transfer
from jax_sentemb.evaluation.catalog import SETS
from jax_sentemb.evaluation.classifier import ClassifierJob, ClassifierSettings
from jax_sentemb.evaluation.tasks import Task, TaskSplit
from jax_sentemb.evaluation.transfer import Predictions, TransferProtocol, run, stratified_folds

selection = pytest.importorskip("sklearn.model_selection")
linear_model = pytest.importorskip("sklearn.linear_model")

QUICK = TransferProtocol("quick", 3, ClassifierSettings(tenacity=1, epoch_size=1, max_epoch=3, batch_size=16))
LOGREG = TransferProtocol("logreg", 3, None)


def task(name, parts, classes=2, seed=0):
    """A task with random features of the sizes `parts` that tell something of the labels."""
    random = np.random.default_rng(seed)
    direction = random.normal(size=(6, classes))
    splits, features = {}, {}
    for part, rows in parts.items():
        features[part] = random.normal(size=(rows, 6)).astype(np.float32)
        scores = features[part] @ direction
        labels = (scores + 2 * random.normal(size=scores.shape)).argmax(1)
        if SETS[name].spec.procedure == "relatedness":
            labels = np.clip(3 + scores[:, 0] / 3 + random.normal(size=rows) / 3, 0, 5)
        splits[part] = TaskSplit([""] * rows, [], labels)
    return Task(name, SETS[name].spec, splits, tuple(map(str, range(classes))), (), ()), features


@pytest.mark.parametrize(("rows", "classes", "folds"), [(100, 2, 10), (57, 3, 5), (40, 4, 3)])
def test_folds_are_those_of_scikit_learn(rows, classes, folds):
    labels = np.random.default_rng(rows).integers(0, classes, rows)
    for seed in (1111, 3):
        expected = selection.StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels)
        for ours, theirs in zip(stratified_folds(labels, folds, seed), expected, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


def test_two_hot_targets():
    targets = transfer.two_hot(np.array([3.6, 5, 0, 0.4, 1]))
    expected = [[0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1], [0] * 5, [0.4, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(targets, expected, atol=1e-6)


def test_pair_features():
    found = transfer.pair_features(np.array([[1.0, -2]]), np.array([[3.0, 4]]))
    np.testing.assert_array_equal(found, [[2, 6, 3, -8]])


def accuracy(model, features, labels):
    weight, bias = model
    return ((features @ weight.T + bias).argmax(1) == labels).mean()


def torch_best(features, labels, jobs, classes=2):
    """L2 of the best mean validation accuracy over the jobs, and that accuracy in percent."""
    means = [
        round(100 * np.mean([torch_fit(features, labels, job, l2, QUICK.settings, classes)[1] for job in jobs]), 2)
        for l2 in transfer.L2
    ]
    return transfer.L2[int(np.argmax(means))], max(means)


def test_nested_folds_in_the_senteval_protocol():
    mr, features = task("MR", {"all": 90})
    labels, x = mr.splits["all"].labels, features["all"]
    result = run(mr, features, QUICK)
    accuracies, devs, chosen = [], [], []
    for train, test in stratified_folds(labels, 3, 1111):
        jobs = [ClassifierJob(train[rows], train[valid]) for rows, valid in stratified_folds(labels[train], 3, 1111)]
        l2, dev = torch_best(x, labels, jobs)
        model, _ = torch_fit(x, labels, classifier.validation_job(train, 1111), l2, QUICK.settings, 2)
        accuracies.append(round(100 * accuracy(model, x[test], labels[test]), 2))
        devs.append(dev)
        chosen.append(l2)
    assert result.scores["accuracy"] == pytest.approx(np.mean(accuracies), abs=0.01)
    assert result.scores["dev"] == pytest.approx(np.mean(devs), abs=0.01)
    assert result.chosen["l2"] == chosen


def test_train_and_test_in_the_senteval_protocol():
    trec, features = task("TREC", {"train": 90, "test": 40}, classes=3)
    labels, x = trec.splits["train"].labels, features["train"]
    result = run(trec, features, QUICK)
    l2, dev = torch_best(x, labels, [ClassifierJob(*fold) for fold in stratified_folds(labels, 3, 1111)], 3)
    model, _ = torch_fit(x, labels, classifier.validation_job(np.arange(90), 1111), l2, QUICK.settings, 3)
    expected = 100 * accuracy(model, features["test"], trec.splits["test"].labels)
    assert result.chosen == {"l2": l2}
    assert result.scores == pytest.approx({"accuracy": expected, "dev": dev}, abs=0.01)


def test_train_dev_and_test_in_the_senteval_protocol():
    sst, features = task("SST2", {"train": 90, "dev": 30, "test": 40})
    both = np.concatenate([features["train"], features["dev"]])
    labels = np.concatenate([sst.splits[part].labels for part in ("train", "dev")])
    job = ClassifierJob(np.arange(90), np.arange(90, 120))
    result = run(sst, features, QUICK)
    l2, dev = torch_best(both, labels, [job])
    model, _ = torch_fit(both, labels, job, l2, QUICK.settings, 2)  # trained again, as SentEval does
    expected = 100 * accuracy(model, features["test"], sst.splits["test"].labels)
    assert result.chosen == {"l2": l2}
    assert result.scores == pytest.approx({"accuracy": expected, "dev": dev}, abs=0.01)


def sklearn_fit(strength, features, labels):
    solver = linear_model.LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    return solver.fit(features.astype(np.float64), labels)


def test_nested_folds_with_logistic_regression():
    mr, features = task("MR", {"all": 90})
    labels, x = mr.splits["all"].labels, features["all"]
    result = run(mr, features, LOGREG)
    accuracies, chosen = [], []
    for train, test in stratified_folds(labels, 3, 1111):
        inner = stratified_folds(labels[train], 3, 1111)
        means = [
            np.mean([sklearn_fit(c, x[train[a]], labels[train[a]]).score(x[train[b]], labels[train[b]]) for a, b in inner])
            for c in transfer.INVERSE_L2
        ]
        chosen.append(transfer.INVERSE_L2[int(np.argmax(np.round(100 * np.array(means), 2)))])
        accuracies.append(round(100 * sklearn_fit(chosen[-1], x[train], labels[train]).score(x[test], labels[test]), 2))
    assert result.chosen["C"] == chosen
    assert result.scores["accuracy"] == pytest.approx(np.mean(accuracies), abs=0.01)


def test_train_and_test_with_logistic_regression_and_f1():
    metrics = pytest.importorskip("sklearn.metrics")
    mrpc, features = task("MRPC", {"train": 90, "test": 40})
    labels, x = mrpc.splits["train"].labels, features["train"]
    result = run(mrpc, features, LOGREG)
    means = [
        np.mean([sklearn_fit(c, x[a], labels[a]).score(x[b], labels[b]) for a, b in stratified_folds(labels, 3, 1111)])
        for c in transfer.INVERSE_L2_KFOLD
    ]
    best = transfer.INVERSE_L2_KFOLD[int(np.argmax(np.round(100 * np.array(means), 2)))]
    found = sklearn_fit(best, x, labels).predict(features["test"])
    gold = mrpc.splits["test"].labels
    assert result.chosen == {"C": best}
    assert result.scores["accuracy"] == pytest.approx(100 * (found == gold).mean(), abs=0.01)
    assert result.scores["f1"] == pytest.approx(100 * metrics.f1_score(gold, found), abs=0.01)


def test_train_dev_and_test_with_logistic_regression():
    sst, features = task("SST2", {"train": 90, "dev": 30, "test": 40})
    gold = {part: split.labels for part, split in sst.splits.items()}
    models = [sklearn_fit(c, features["train"], gold["train"]) for c in transfer.INVERSE_L2]
    devs = [round(100 * model.score(features["dev"], gold["dev"]), 2) for model in models]
    best = int(np.argmax(devs))
    result = run(sst, features, LOGREG)
    assert result.chosen == {"C": transfer.INVERSE_L2[best]}
    expected = {"accuracy": 100 * models[best].score(features["test"], gold["test"]), "dev": devs[best]}
    assert result.scores == pytest.approx(expected, abs=0.01)


def test_probing_sweeps_width_and_dropout_on_the_development_set(monkeypatch):
    monkeypatch.setattr(transfer, "HIDDEN", (4, 5))
    tense, features = task("Tense", {"train": 90, "dev": 30, "test": 40})
    result = run(tense, features, QUICK)
    assert result.chosen["hidden"] in (4, 5)
    assert result.chosen["dropout"] in transfer.DROPOUT
    both = np.concatenate([features["train"], features["dev"]])
    labels = np.concatenate([tense.splits[part].labels for part in ("train", "dev")])
    job = ClassifierJob(np.arange(90), np.arange(90, 120))
    without = [
        torch_fit(both, labels, job, l2, QUICK.settings._replace(hidden=hidden), 2)[1] for hidden in (4, 5) for l2 in transfer.L2
    ]
    assert result.scores["dev"] >= 100 * max(without) - 0.01  # the sweep contains every fit without dropout
    words, features = task("WordContent", {"train": 90, "dev": 30, "test": 40})
    assert set(run(words, features, QUICK).chosen) == {"l2"}  # SentEval gives it no hidden layer


def test_relatedness(monkeypatch):
    monkeypatch.setattr(transfer, "RELATEDNESS", QUICK.settings._replace(loss="squared"))
    sick, features = task("SICKRelatedness", {"train": 90, "dev": 30, "test": 40})
    result = run(sick, features, QUICK)
    gold = sick.splits["test"].labels
    both = np.concatenate([features["train"], features["dev"]])
    targets = transfer.two_hot(np.concatenate([sick.splits[part].labels for part in ("train", "dev")]))
    (weight, bias), dev = torch_fit(both, targets, ClassifierJob(np.arange(90), np.arange(90, 120)), 0.0, transfer.RELATEDNESS, 5)
    scores = np.exp(features["test"] @ weight.T + bias)
    found = scores / scores.sum(1, keepdims=True) @ np.arange(1, 6)
    assert result.scores["pearson"] == pytest.approx(100 * np.corrcoef(found, gold)[0, 1], abs=1e-2)
    assert result.scores["mse"] == pytest.approx(np.square(found - gold).mean(), abs=1e-3)
    assert result.scores["dev"] == pytest.approx(100 * dev, abs=1e-2)


def test_an_ensemble_weighs_by_validation_scores():
    trec, _ = task("TREC", {"train": 9, "test": 3}, classes=3)
    trec.splits["test"].labels[:] = [0, 1, 2]
    good = Predictions(np.array([[0.6, 0.4, 0], [0, 0.6, 0.4], [0.4, 0, 0.6]]), np.full(3, 90.0))
    bad = Predictions(np.array([[0.1, 0.9, 0], [0, 1, 0], [1.0, 0, 0]]), np.array([10.0, 10, 90]))
    # Rows 0 and 1 follow the better member, nine to one; row 2 weighs both alike and is lost.
    assert transfer.ensemble(trec, [good, bad])["accuracy"] == pytest.approx(66.67)
    sick, _ = task("SICKRelatedness", {"train": 9, "dev": 9, "test": 4})
    one, other = np.array([1.0, 2, 3, 4]), np.array([4.0, 1, 2, 2])
    sick.splits["test"].labels[:] = 0.75 * one + 0.25 * other
    members = [Predictions(one, np.full(4, 60.0)), Predictions(other, np.full(4, 20.0))]
    assert transfer.ensemble(sick, members)["mse"] == pytest.approx(0, abs=1e-12)


def test_what_cannot_be_scored():
    mr, features = task("MR", {"all": 90})
    with pytest.raises(NumericsError, match=r"MR: all 90 embeddings of all are equal: the model collapsed"):
        run(mr, {"all": np.ones((90, 6), np.float32)}, LOGREG)
    broken = features["all"].copy()
    broken[4, 2] = np.nan
    with pytest.raises(NumericsError, match=r"MR: .* not finite"):
        run(mr, {"all": broken}, LOGREG)
    mr.splits["all"].labels[:] = 0
    mr.splits["all"].labels[:2] = 1
    with pytest.raises(DataError, match=r"MR: 3 folds need at least 3 examples of every class, the smallest class has 2"):
        run(mr, features, LOGREG)
    with pytest.raises(ConfigError, match="--classifier svm is unknown; the classifiers are senteval"):
        transfer.check_protocol("svm")
