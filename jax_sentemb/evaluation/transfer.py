"""Score transfer and probing tasks: classifiers on frozen embeddings, with SentEval's folds and one of two kinds of training.

`senteval` is SentEval's PyTorch classifier (see classifier.py), trained for all folds and L2 penalties at once.
`senteval_prototyping` uses SentEval's fast settings, and `senteval_2018` the default settings with the loss of PyTorch <= 0.4.0.
`logreg` is L2-regularised logistic regression to the optimum, over the grids that SentEval uses with scikit-learn. Relatedness has
one protocol, SentEval's regression through class probabilities (Tai et al. 2015).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int, Real

from jax_sentemb.errors import RETRAIN, ConfigError, DataError, NumericsError
from jax_sentemb.evaluation import classifier, logistic
from jax_sentemb.evaluation.classifier import ClassifierJob, ClassifierSettings
from jax_sentemb.evaluation.tasks import Task


class TransferProtocol(NamedTuple):
    """The training of classifiers and the number of folds."""

    name: str
    folds: int
    settings: ClassifierSettings | None  # None: logistic regression to the optimum


PROTOCOLS = {
    "senteval": TransferProtocol("senteval", 10, ClassifierSettings()),
    "senteval_prototyping": TransferProtocol(
        "senteval_prototyping", 5, ClassifierSettings(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
    ),
    "senteval_2018": TransferProtocol("senteval_2018", 10, ClassifierSettings(summed=True)),
    "logreg": TransferProtocol("logreg", 10, None),
}
RELATEDNESS = ClassifierSettings(tenacity=3, epoch_size=50, max_epoch=1000, loss="squared")

L2 = (1e-5, 1e-4, 1e-3, 1e-2)
INVERSE_L2 = tuple(2.0**power for power in range(-2, 4))  # for tasks of one set, or of train, dev and test
INVERSE_L2_KFOLD = tuple(2.0**power for power in range(-1, 6))  # for tasks of train and test

HIDDEN = (50, 100, 200)  # widths from which a probing task selects on its development set
DROPOUT = (0.0, 0.1, 0.2)
Folds = Sequence[tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]]  # (train, test) rows of each fold


class Predictions(NamedTuple):
    """The outputs of one model on the test examples, and its validation scores, as ensembles use them."""

    outputs: Float[np.ndarray, " examples *classes"]  # class probabilities, or predicted scores
    dev: Float[np.ndarray, " examples"]  # validation score, in percent, of the fold of each test example


class Result(NamedTuple):
    """The scores of one task (in percent, except the mean squared error), selected hyper-parameters and predictions."""

    scores: dict[str, float]  # "accuracy", "f1", "pearson", "spearman", "mse", "dev"
    chosen: dict[str, object]  # hyper-parameters selected on validation data
    predictions: Predictions


def run(task: Task, features: dict[str, Float[np.ndarray, "_ width"]], protocol: TransferProtocol) -> Result:
    """Train and score `task` on features {split: [n, D]}; see `pair_features` for pairs.

    Raises:
        NumericsError: Features are not finite, or all are equal.
        DataError: A class has fewer rows than there are folds.
    """
    for split, values in features.items():
        if not np.isfinite(values).all():
            raise NumericsError(f"{task.name}: the embeddings of {split} are not finite (NaN or Inf); {RETRAIN}")
        if np.ptp(values, axis=0).max() <= 1e-6 * np.abs(values).max():
            raise NumericsError(f"{task.name}: all {len(values)} embeddings of {split} are equal: the model collapsed; {RETRAIN}")
    if task.spec.procedure == "relatedness":
        return _relatedness(task, features)
    if task.spec.procedure == "nested":
        return _nested(task, features["all"], protocol)
    if task.spec.procedure == "kfold":
        return _kfold(task, features, protocol)
    return _split(task, features, protocol)


def pair_features(
    first: Float[np.ndarray, "pairs width"], second: Float[np.ndarray, "pairs width"]
) -> Float[np.ndarray, "pairs 2*width"]:
    """Return [|u - v|, u * v] of pairs of embeddings (Tai et al. 2015, as in SentEval)."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def stratified_folds(labels: Int[np.ndarray, " rows"], folds: int, seed: int, name: str = "") -> Folds:
    """Return (train, test) rows of each fold, as scikit-learn's StratifiedKFold(folds, shuffle=True, random_state=seed) does.

    Raises:
        DataError: A class has fewer rows than there are folds; the message begins with `name`.
    """
    # Classes are numbered in the order in which they appear, and each fold takes every folds-th row of the sorted labels.
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[inverse]
    counts = np.bincount(codes)
    if counts.min() < folds:
        raise DataError(
            f"{name}: {folds} folds need at least {folds} examples of every class, the smallest class has {counts.min()}; "
            "add examples"
        )
    ordered = np.sort(codes)
    class_counts = np.array([np.bincount(ordered[fold::folds], minlength=len(counts)) for fold in range(folds)])
    generator = np.random.RandomState(seed)  # scikit-learn's generator
    fold_of = np.empty(len(labels), int)
    for code in range(len(counts)):
        assigned = np.arange(folds).repeat(class_counts[:, code])
        generator.shuffle(assigned)
        fold_of[codes == code] = assigned
    return [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(folds)]


def ensemble(task: Task, members: Sequence[Predictions]) -> dict[str, float]:
    """Score the average of the members' predictions, weighted by normalised validation scores (ConsSent, section 5)."""
    weights = np.array([np.maximum(member.dev, 0) for member in members])
    weights = weights / np.maximum(weights.sum(axis=0), 1e-12)
    outputs = np.stack([member.outputs for member in members])
    mixed = np.einsum("m n ..., m n -> n ...", outputs, weights)
    labels = task.splits["all" if task.spec.procedure == "nested" else "test"].labels
    if task.spec.procedure == "relatedness":
        return _regression_scores(mixed, labels)
    return _classification_scores(mixed.argmax(axis=1), labels, task)


def _nested(task: Task, features: np.ndarray, protocol: TransferProtocol) -> Result:
    """Cross-validate twice: inner folds select L2, and the score is the mean of the rounded accuracies of the outer folds."""
    labels, seed = task.splits["all"].labels, 1111
    outer = stratified_folds(labels, protocol.folds, seed, task.name)
    inner = [
        [(train[rows], train[valid]) for rows, valid in stratified_folds(labels[train], protocol.folds, seed, task.name)]
        for train, _ in outer
    ]
    if protocol.settings:
        grid = L2
        jobs = [ClassifierJob(*fold) for folds in inner for fold in folds]
        accuracy = classifier.fit(features, labels, jobs, _repeat(grid, len(jobs)), protocol.settings).valid
        dev = (100 * accuracy.reshape(len(outer), -1, len(grid)).mean(axis=1)).round(2)
        chosen = np.array([grid[index] for index in dev.argmax(axis=1)])
        jobs = [classifier.validation_job(train, protocol.settings.seed) for train, _ in outer]
        fitted = classifier.fit(features, labels, jobs, chosen[:, None], protocol.settings)
        outputs = [_outputs(fitted, fold, 0, features[test]) for fold, (_, test) in enumerate(outer)]
    else:
        grid = INVERSE_L2
        folds = [fold for (train, test), folds in zip(outer, inner, strict=True) for fold in [*folds, (train, test)]]
        fitted = logistic.fit(features, labels, _masks(folds, len(labels), len(grid)), np.tile(grid, len(folds)))
        accuracy = _accuracies(fitted, features, labels, folds, len(grid)).reshape(len(outer), -1, len(grid))
        dev = (100 * accuracy[:, :-1].mean(axis=1)).round(2)
        best = dev.argmax(axis=1)
        chosen = np.array(grid)[best]
        last = (np.arange(len(outer)) + 1) * (protocol.folds + 1) - 1  # the fit on all training rows of a fold
        selected_fits = last * len(grid) + best
        outputs = [
            logistic.probabilities(fitted.weight[index], fitted.bias[index], features[test])
            for index, (_, test) in zip(selected_fits, outer, strict=True)
        ]
    all_outputs = np.zeros((len(labels), len(task.classes)))
    dev_of_row = np.zeros(len(labels))
    accuracies = []
    for (_, test), output, score in zip(outer, outputs, dev.max(axis=1), strict=True):
        all_outputs[test], dev_of_row[test] = output, score
        accuracies.append(round(100 * float((output.argmax(axis=1) == labels[test]).mean()), 2))
    scores = {"accuracy": round(float(np.mean(accuracies)), 2), "dev": round(float(dev.max(axis=1).mean()), 2)}
    return Result(scores, {_strength(protocol): chosen.tolist()}, Predictions(all_outputs, dev_of_row))


def _kfold(task: Task, features: dict[str, np.ndarray], protocol: TransferProtocol) -> Result:
    """Select L2 by folds of the training set, and test one classifier that is trained on the whole set."""
    train, test = task.splits["train"].labels, task.splits["test"].labels
    folds = stratified_folds(train, protocol.folds, 1111, task.name)
    all_rows = np.arange(len(train))
    if protocol.settings:
        jobs = [ClassifierJob(*fold) for fold in folds]
        valid = classifier.fit(features["train"], train, jobs, _repeat(L2, len(jobs)), protocol.settings).valid
        dev = (100 * valid.mean(axis=0)).round(2)
        chosen = L2[dev.argmax()]
        job = classifier.validation_job(all_rows, protocol.settings.seed)
        fitted = classifier.fit(features["train"], train, [job], np.array([[chosen]]), protocol.settings)
        outputs = _outputs(fitted, 0, 0, features["test"])
    else:
        grid = INVERSE_L2_KFOLD
        all_folds = [*folds, (all_rows, all_rows)]
        best_fits = logistic.fit(features["train"], train, _masks(all_folds, len(train), len(grid)), np.tile(grid, len(all_folds)))
        accuracy = _accuracies(best_fits, features["train"], train, folds, len(grid)).reshape(len(folds), len(grid))
        dev = (100 * accuracy.mean(axis=0)).round(2)
        chosen = grid[dev.argmax()]
        selected_fit = len(folds) * len(grid) + int(dev.argmax())
        outputs = logistic.probabilities(best_fits.weight[selected_fit], best_fits.bias[selected_fit], features["test"])
    return _tested(task, outputs, test, float(dev.max()), {_strength(protocol): chosen})


def _split(task: Task, features: dict[str, np.ndarray], protocol: TransferProtocol) -> Result:
    """Select L2, for probing tasks also width and dropout, by the development set, which also stops training."""
    labels = {name: split.labels for name, split in task.splits.items()}
    if not protocol.settings:
        grid, rows = INVERSE_L2, np.arange(len(labels["train"]))
        fitted = logistic.fit(features["train"], labels["train"], _masks([(rows, rows)], len(rows), len(grid)), np.array(grid))
        outputs = [logistic.probabilities(weight, bias, features["dev"]) for weight, bias in zip(*fitted, strict=True)]
        dev = np.array([round(100 * float((output.argmax(axis=1) == labels["dev"]).mean()), 2) for output in outputs])
        best = int(dev.argmax())
        output = logistic.probabilities(fitted.weight[best], fitted.bias[best], features["test"])
        return _tested(task, output, labels["test"], float(dev[best]), {_strength(protocol): grid[best]})
    # SentEval trains again with the best L2, on the same rows from the same seed, which gives the same fit.
    rows = np.arange(len(labels["train"]))
    job = ClassifierJob(rows, len(rows) + np.arange(len(labels["dev"])))
    train_and_dev = np.concatenate([features["train"], features["dev"]])
    targets = np.concatenate([labels["train"], labels["dev"]])
    candidates = []
    for hidden in HIDDEN if task.spec.has_hidden_layer else (0,):
        rates = DROPOUT if task.spec.has_hidden_layer else (0.0,)
        settings = protocol.settings._replace(hidden=hidden)
        l2, dropout = np.tile(L2, len(rates)), np.repeat(rates, len(L2))
        fitted = classifier.fit(train_and_dev, targets, [job], l2[None], settings, dropout)
        scores = (100 * fitted.valid[0]).round(2)
        best = int(scores.argmax())
        chosen = {"l2": float(l2[best])} | ({"hidden": hidden, "dropout": float(dropout[best])} if hidden else {})
        candidates.append((float(scores[best]), chosen, fitted, best))
    dev, chosen, fitted, best = max(candidates, key=lambda entry: entry[0])  # the first one of equal scores, as in SentEval
    return _tested(task, _outputs(fitted, 0, best, features["test"]), labels["test"], dev, chosen)


def _relatedness(task: Task, features: dict[str, np.ndarray]) -> Result:
    """Regress the score as the expectation of a softmax over the grades 1 to 5, trained on the two grades next to a gold score."""
    labels = {name: split.labels for name, split in task.splits.items()}
    job = ClassifierJob(np.arange(len(labels["train"])), len(labels["train"]) + np.arange(len(labels["dev"])))
    train_and_dev = np.concatenate([features["train"], features["dev"]])
    targets = two_hot(np.concatenate([labels["train"], labels["dev"]]))
    fitted = classifier.fit(train_and_dev, targets, [job], np.zeros((1, 1)), RELATEDNESS)
    outputs = _outputs(fitted, 0, 0, features["test"]) @ np.arange(1, targets.shape[1] + 1)
    dev = 100 * float(fitted.valid[0, 0])
    scores = _regression_scores(outputs, labels["test"])
    return Result(scores | {"dev": dev}, {}, Predictions(outputs, np.full(len(outputs), dev)))


def two_hot(gold: Real[np.ndarray, " n"], grades: int = 5) -> Float[np.ndarray, "n {grades}"]:
    """Return gold scores as weights of the two integer grades around them, float32 (Tai et al. 2015).

    3.6 is (0, 0, .4, .6, 0). Below 1 the weights add up to less than 1, as in SentEval: 0.4 is (.4, 0, 0, 0, 0).
    """
    return np.maximum(0, 1 - np.abs(np.asarray(gold)[:, None] - np.arange(1, grades + 1))).astype(np.float32)


def _strength(protocol: TransferProtocol) -> str:
    return "l2" if protocol.settings else "C"


def _repeat(grid: Sequence[float], jobs: int) -> np.ndarray:
    return np.tile(np.array(grid), (jobs, 1))


def _outputs(fitted: classifier.ClassifierFits, job: int, fit: int, features: np.ndarray) -> np.ndarray:
    params = {name: {leaf: values[job, fit] for leaf, values in layer.items()} for name, layer in fitted.params.items()}
    return np.asarray(classifier.probabilities(params, features))


def _masks(folds: Sequence[tuple[np.ndarray, np.ndarray]], rows: int, grid: int) -> np.ndarray:
    """Return masks of the training rows of each fit, bool [folds * grid, rows]."""
    masks = np.zeros((len(folds), rows), bool)
    for mask, (train, _) in zip(masks, folds, strict=True):
        mask[train] = True
    return masks.repeat(grid, axis=0)


def _accuracies(
    fitted: logistic.LogisticFits,
    features: np.ndarray,
    labels: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    grid: int,
) -> np.ndarray:
    """Return the accuracy of every fit on the test rows of its fold [folds * grid]."""
    accuracies = []
    for fold, (_, test) in enumerate(folds):
        for fit in range(fold * grid, (fold + 1) * grid):
            outputs = logistic.probabilities(fitted.weight[fit], fitted.bias[fit], features[test])
            accuracies.append((outputs.argmax(axis=1) == labels[test]).mean())
    return np.array(accuracies)


def _tested(task: Task, outputs: np.ndarray, labels: np.ndarray, dev: float, chosen: dict[str, object]) -> Result:
    scores = _classification_scores(outputs.argmax(axis=1), labels, task)
    return Result(scores | {"dev": dev}, chosen, Predictions(outputs, np.full(len(outputs), dev)))


def _classification_scores(predicted: np.ndarray, labels: np.ndarray, task: Task) -> dict[str, float]:
    scores = {"accuracy": round(100 * float((predicted == labels).mean()), 2)}
    if task.spec.has_f1:
        hits = int(((predicted == 1) & (labels == 1)).sum())
        scores["f1"] = round(200 * hits / max(int((predicted == 1).sum() + (labels == 1).sum()), 1), 2)
    return scores


def _regression_scores(predicted: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    if np.ptp(predicted) == 0:
        raise NumericsError(f"the regression predicts the same value for every pair, so there is no correlation; {RETRAIN}")
    pearson: Any = scipy.stats.pearsonr(predicted, gold)  # SciPy declares no attributes
    spearman: Any = scipy.stats.spearmanr(predicted, gold)
    return {
        "pearson": 100 * float(pearson.statistic),
        "spearman": 100 * float(spearman.statistic),
        "mse": float(np.square(predicted - gold).mean()),
    }


def check_protocol(name: str) -> TransferProtocol:
    """Return the protocol of this name.

    Raises:
        ConfigError: The name is unknown.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"--classifier {name} is unknown; the classifiers are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
