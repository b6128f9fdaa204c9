"""The batched classifier against the same training written as a plain PyTorch loop, fit by fit, from the same seeds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import NumericsError
from jax_sentemb.evaluation import classifier
from jax_sentemb.evaluation.classifier import ClassifierJob, ClassifierSettings, _logits, fit, probabilities, validation_job

torch = pytest.importorskip("torch")

EPS = float(np.finfo(np.float32).eps)
RATES = {"adam": 1e-3, "rmsprop": 1e-2}
QUICK = ClassifierSettings(tenacity=1, epoch_size=2, max_epoch=8, batch_size=16)


def data(rows=150, width=6, classes=3, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width)).astype(np.float32)
    labels = (features @ random.normal(size=(width, classes)) + random.normal(size=(rows, classes))).argmax(1)
    return features, labels


def torch_fit(features, targets, job, l2, settings, classes):
    """(weights of the best check, its score): one classifier, as SentEval's loop trains it."""
    random = np.random.RandomState(settings.seed)
    torch.manual_seed(settings.seed)
    if job.drawn_before:
        random.permutation(job.drawn_before)
    layers = [torch.nn.Linear(features.shape[1], settings.hidden or classes)]
    if settings.hidden:
        layers += [torch.nn.Sigmoid(), torch.nn.Linear(settings.hidden, classes)]
    model = torch.nn.Sequential(*layers)
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[settings.optimizer]
    optimizer = kind(model.parameters(), weight_decay=l2)
    x, y = torch.from_numpy(features[job.train]), torch.from_numpy(targets[job.train])
    best, kept, failures, passes = -1.0, None, 0, 0
    while passes <= settings.max_epoch:
        for _ in range(settings.epoch_size):
            order = random.permutation(len(x))
            for first in range(0, len(x), settings.batch_size):
                chosen = torch.from_numpy(order[first : first + settings.batch_size])
                output = model(x[chosen])
                if settings.loss == "squared":
                    loss = torch.nn.functional.mse_loss(output.softmax(-1), y[chosen])
                else:
                    reduction = "sum" if settings.summed else "mean"
                    loss = torch.nn.functional.cross_entropy(output, y[chosen], reduction=reduction)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        passes += settings.epoch_size
        with torch.no_grad():
            output = model(torch.from_numpy(features[job.valid]))
        if settings.loss == "squared":
            grades = np.arange(1, classes + 1)
            score = np.corrcoef(output.softmax(-1).numpy() @ grades, targets[job.valid] @ grades)[0, 1]
        else:
            score = (output.argmax(1).numpy() == targets[job.valid]).mean()
        if score > best:
            best, kept = score, [parameter.detach().numpy().copy() for parameter in model.parameters()]
        elif failures >= settings.tenacity:
            break
        else:
            failures += 1
    return kept, best


def weight_error(weights, job, settings):
    """Bound on the rounding of trained float32 weights, absolute.

    Every update rounds the weight once, by eps times its size, and carries the rounding of the gradient: a sum over the
    batch, so batch * eps, of which both optimisers make about that share of their rate.
    """
    updates = (settings.max_epoch + settings.epoch_size) * -(-len(job.train) // settings.batch_size)
    largest = max(np.abs(weight).max() for weight in weights)
    return updates * EPS * (largest + RATES[settings.optimizer] * settings.batch_size)


def score_of(weights, features, targets, settings):
    """(validation score in float64, bound on its error in float32) of weights as `torch_fit` returns them."""
    x, size = features.astype(np.float64), np.abs(features)
    for place in range(0, len(weights), 2):
        weight, bias = (array.astype(np.float64) for array in weights[place : place + 2])
        x, size = x @ weight.T + bias, size @ np.abs(weight).T + np.abs(bias)
        if place + 2 < len(weights):
            x, size = 1 / (1 + np.exp(-x)), np.ones_like(x)
    if settings.loss != "squared":
        return (x.argmax(1) == targets).mean(), EPS  # a count, divided once
    grades = np.arange(1, x.shape[1] + 1)
    found, gold = np.exp(x) @ grades / np.exp(x).sum(1), targets.astype(np.float64) @ grades
    # Logits are sums of D + 1 terms; an expectation moves by at most its range times their error. It is itself a sum of C terms
    # of relative error eps, and exp and the division add a few. Pearson's r is a cosine: it moves by no more than the error of a
    # side relative to its standard deviation, which is where the cancellation of the mean comes in.
    logits = (features.shape[1] + 2) * EPS * size.max(1)
    error = np.ptp(grades) * logits + (len(grades) + 4) * EPS * found
    sums = len(found) * EPS
    own, other = np.sqrt(np.mean(error**2)) / found.std(), len(grades) * EPS * np.sqrt(np.mean(gold**2)) / gold.std()
    return np.corrcoef(found, gold)[0, 1], own + other + sums


def agree(features, targets, jobs, l2, settings, classes):
    found = fit(features, targets, jobs, l2, settings)
    for number, job in enumerate(jobs):
        for column, value in enumerate(l2[number]):
            weights, best = torch_fit(features, targets, job, value, settings, classes)
            layers = (["hidden"] if settings.hidden else []) + ["output"]
            ours = [found.params[layer][leaf][number, column] for layer in layers for leaf in ("weight", "bias")]
            for one, other in zip(ours, weights, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=weight_error(weights, job, settings))
            score, error = score_of(ours, features[job.valid], targets[job.valid], settings)
            assert found.valid[number, column] == pytest.approx(score, rel=0, abs=error)
            if settings.loss != "squared":
                assert found.valid[number, column] == pytest.approx(best, rel=0, abs=EPS)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        QUICK,
        QUICK._replace(optimizer="rmsprop", tenacity=0),
        QUICK._replace(hidden=5),
        QUICK._replace(summed=True, seed=7),
    ],
    ids=["adam", "rmsprop", "hidden", "summed"],
)
def test_every_fit_is_the_one_that_pytorch_trains(settings):
    """Twenty jobs of unequal size in sixteen slots, so that a slot is used again and the last batch is often short."""
    features, labels = data()
    random = np.random.default_rng(1)
    jobs = []
    for number in range(20):
        rows = random.permutation(len(labels))
        jobs.append(ClassifierJob(rows[: 96 + number % 3], rows[110 : 140 - number]))
    jobs[3] = validation_job(np.arange(100), settings.seed, 0.2)
    l2 = np.tile([1e-5, 1e-1], (len(jobs), 1))
    agree(features, labels, jobs, l2, settings, 3)


def test_relatedness():
    random = np.random.default_rng(0)
    features = random.normal(size=(120, 4)).astype(np.float32)
    grade = np.clip(3 + features[:, 0] + random.normal(size=120) / 3, 1, 4.99)
    low = np.floor(grade).astype(int)
    targets = np.zeros((120, 5), np.float32)
    targets[np.arange(120), low - 1] = low + 1 - grade
    targets[np.arange(120), low] = grade - low
    job = ClassifierJob(np.arange(80), np.arange(80, 120))
    agree(features, targets, [job], np.zeros((1, 1)), QUICK._replace(loss="squared"), 5)


def test_dropout_changes_the_fit_and_no_dropout_does_not():
    features, labels = data()
    jobs = [ClassifierJob(np.arange(100), np.arange(100, 150))]
    settings = QUICK._replace(hidden=8)
    both = fit(features, labels, jobs, np.full((1, 2), 1e-4), settings, dropout=np.array([0.0, 0.5]))
    plain = fit(features, labels, jobs, np.full((1, 1), 1e-4), settings)
    weight = both.params["hidden"]["weight"][0]
    expected = plain.params["hidden"]["weight"][0, 0]
    np.testing.assert_allclose(weight[0], expected, rtol=0, atol=weight_error([expected], jobs[0], settings))
    assert np.abs(weight[1] - weight[0]).max() > 1e-3


def test_the_seed_decides_what_dropout_leaves():
    features, labels = data()
    jobs = [ClassifierJob(np.arange(100), np.arange(100, 150))]
    masks = []
    for seed in (1, 2):
        settings = QUICK._replace(hidden=8, seed=seed, max_epoch=2)
        start = classifier._initial(3, 6, settings._replace(seed=1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(classifier, "_initial", lambda *_, start=start: start)
            patch.setattr(classifier, "_plan", lambda jobs, settings, plan=classifier._plan: plan(jobs, settings._replace(seed=1)))
            masks.append(fit(features, labels, jobs, np.full((1, 1), 1e-4), settings, dropout=np.array([0.5])).params)
    assert np.abs(masks[0]["hidden"]["weight"] - masks[1]["hidden"]["weight"]).max() > 1e-3


def test_hidden_units_that_dropout_left_are_divided_by_their_share():
    layer = {"weight": jnp.ones((1, 64, 2)) / 2, "bias": jnp.zeros((1, 64))}
    output = {"weight": jnp.stack([jnp.zeros(64), jnp.ones(64) / 64])[None], "bias": jnp.zeros((1, 2))}
    scores = _logits({"hidden": layer, "output": output}, jnp.ones((200, 2)), jnp.array([0.25]), jax.random.key(0))
    kept = 0.75 / (1 + np.exp(-1 / 0.75)) + 0.25 / 2  # dropped units are 0 before the sigmoid, which makes 1/2 of them
    assert float(scores[0, 1].mean()) == pytest.approx(kept, abs=4e-3)  # 12,800 draws of a deviation of 0.13: 1.1e-3


def test_probabilities_are_those_of_the_softmax():
    features, labels = data()
    found = fit(features, labels, [ClassifierJob(np.arange(100), np.arange(100, 150))], np.full((1, 1), 1e-4), QUICK)
    layer = {name: leaf[0, 0] for name, leaf in found.params["output"].items()}
    scores = np.exp(features.astype(np.float64) @ layer["weight"].T + layer["bias"])
    ours = probabilities({"output": layer}, features)
    # A probability moves by at most half the error of a difference of two logits, sums of width + 1 terms each.
    logits = (features.shape[1] + 2) * EPS * (np.abs(features) @ np.abs(layer["weight"]).T + np.abs(layer["bias"])).max()
    np.testing.assert_allclose(ours, scores / scores.sum(1, keepdims=True), rtol=0, atol=logits + 8 * EPS)


def test_features_that_are_not_finite():
    features, labels = data()
    features[3, 2] = np.nan
    with pytest.raises(NumericsError, match="not finite"):
        fit(features, labels, [ClassifierJob(np.arange(100), np.arange(100, 150))], np.full((1, 1), 1e-4), QUICK)


def test_rows_for_early_stopping_are_drawn_as_senteval_draws_them():
    """SentEval draws a permutation of all rows first, so the order of the batches begins with the generator's second one."""
    rows = np.arange(100, 140)
    job, order = validation_job(rows, 3, 0.25), np.random.RandomState(3).permutation(40)
    np.testing.assert_array_equal(job.valid, rows[order[:10]])
    np.testing.assert_array_equal(job.train, rows[order[10:]])
    assert job.drawn_before == 40
