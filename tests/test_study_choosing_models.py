"""experiments/choosing_models: the estimates on vectors whose quality is known, and the tables of the study."""

import sys

import jax
import numpy as np
import pytest

from tests.pages import ROOT

FOLDER = ROOT / "experiments" / "choosing_models"


@pytest.fixture(scope="module")
def study():
    """Return the modules `estimates`, `encoding` and `run` of the study."""
    before, names = list(sys.path), ("estimates", "encoding", "labelled_sets", "run", "study_data", "data")
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
    import encoding
    import estimates
    import run

    yield estimates, encoding, run
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(hidden)


def noisy(deviations, rows=4000, width=4):
    """Return standard normal rows with noise of each deviation, [models, rows, width]."""
    draw = np.random.default_rng(0)
    shared = draw.normal(size=(rows, width))
    return np.stack([shared + deviation * draw.normal(size=shared.shape) for deviation in deviations]).astype(np.float32)


def nats(first, second, width=4):
    """Return the mutual information of two models of `noisy`."""
    return -width / 2 * np.log(1 - 1 / ((1 + first**2) * (1 + second**2)))


@pytest.mark.parametrize(("name", "error"), [("gaussian", 0.15), ("mixture", 0.3), ("flow", 0.3)])
def test_information_is_that_of_gaussian_vectors(study, monkeypatch, name, error):
    estimates, _, _ = study
    monkeypatch.setattr(estimates, "LAYERS", 2)
    deviations = (0.3, 1.0, 100.0)
    vectors = noisy(deviations)
    matrix = getattr(estimates, name)(estimates.split(vectors, vectors / vectors.std(axis=1, keepdims=True)))
    assert matrix[0, 1] == pytest.approx(nats(0.3, 1.0), rel=error)
    assert matrix[1, 0] == pytest.approx(nats(0.3, 1.0), rel=error)
    assert matrix[0, 0] > 3 * matrix[0, 1]  # a model knows itself best
    assert np.abs(matrix[2, :2]).max() < 0.2  # noise says nothing
    assert np.argmax(matrix[:, 1]) == 1


@pytest.mark.parametrize("name", ["mixture", "conditional_mixture", "flow"])
def test_densities_integrate_to_one(study, name):
    estimates, _, _ = study
    draw = np.random.default_rng(0)
    source, target = draw.normal(size=(1, 3)).astype(np.float32), draw.normal(size=(estimates.MODES, 2)).astype(np.float32)
    start = estimates.start_flow if name == "flow" else estimates.start_mixture
    params = start(source, target)
    if name == "conditional_mixture":
        params = estimates.start_conditional_mixture(params, source, target)
    params = {key: value + 0.2 * draw.normal(size=value.shape) for key, value in params.items()}
    axis = np.linspace(-12, 12, 481)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 1, 2)
    entropies = jax.vmap(getattr(estimates, f"{name}_entropy"), (None, None, 0))(params, source, points)
    assert np.exp(-np.asarray(entropies)).sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=0.01)


def test_sufficiency_is_the_median_over_the_other_models(study):
    estimates, _, _ = study
    matrix = np.array([[99.0, 1, 2, 30], [4, 99, 5, 20], [6, 7, 99, 10], [0, 0, 0, 99]])
    assert estimates.sufficiency(matrix).tolist() == [2, 5, 7, 0]
    # Target 3 has the largest values; after scaling it counts as much as the others.
    scaled = estimates.normalised_sufficiency(matrix)
    assert estimates.normalised_sufficiency(matrix * np.array([1.0, 2, 3, 100])) == pytest.approx(scaled)
    assert np.argsort(scaled).tolist() == [3, 0, 1, 2]


def test_components_are_the_principal_axes(study):
    estimates, _, _ = study
    vectors = np.random.default_rng(0).normal(size=(200, 6)) * [5, 4, 3, 2, 1, 0.5]
    white = estimates.components(vectors, 4, True)
    assert np.cov(white.T, bias=True) == pytest.approx(np.eye(4), abs=1e-4)
    wide = estimates.components(vectors, 8, False)
    assert wide.shape == (200, 8)
    assert not wide[:, 6:].any()
    assert np.square(wide[:, :6]).mean() == pytest.approx(1, abs=1e-4)
    assert (np.diff(wide.var(axis=0)) <= 0).all()


def test_agreement_is_that_with_the_other_models_only(study):
    estimates, _, _ = study
    draw = np.random.default_rng(0)
    good = draw.normal(size=(80, 16))
    vectors = [good, 3 * good, good + 0.5 * draw.normal(size=good.shape), draw.normal(size=good.shape)]
    twins = estimates.agreement([estimates.similarities(rows) for rows in vectors[:2]])
    assert twins["agreement of pairs"] == pytest.approx([1, 1])  # cosine ignores the length
    assert twins["agreement of neighbours"].tolist() == [1, 1]
    for name, values in estimates.agreement([estimates.similarities(rows) for rows in vectors]).items():
        assert values[0] == pytest.approx(values[1]), name
        assert values[0] > values[2] > values[3], name
        assert values[3] < 0.25, name


def test_every_estimate_of_one_model_is_higher_for_the_better(study):
    estimates, _, _ = study
    draw = np.random.default_rng(0)
    texts = draw.normal(size=(100, 16))
    halves = [texts + 0.3 * draw.normal(size=texts.shape) for _ in range(2)]
    good = estimates.single(texts, *halves)
    bad = estimates.single(texts[:, :8] * 0.1 + 1, *(half[:, :8] + 5 * draw.normal(size=(100, 8)) for half in halves))
    assert all(good[name] > bad[name] for name in good)


def rows_of(run, values, scores):
    """Return rows of one set for each row of scores [sets, models]; each model is its own family."""
    return [
        {"set": f"set {number}" if number else run.REFERENCE, "group": run.GROUPS[number % 3], "family": model, "model": model}
        | {"score": scores[number][column]}
        | {f"{pool}: {name}": values[number][column] for pool, names in run.POOLED.items() for name in names}
        | dict.fromkeys(run.SINGLE, 1.0)
        for number in range(len(scores))
        for column, model in enumerate("ABCDE")
    ]


def test_a_table_has_mean_correlation_and_points_lost(study):
    _, _, run = study
    scores = [[10.0, 20, 30, 40, 50], [10.0, 20, 30, 40, 50], [50.0, 40, 30, 20, 10], [10.0, 20, 30, 40, 50]]
    values = [[1.0, 2, 3, 4, 5], [1.0, 2, 3, 5, 4], [1.0, 2, 3, 4, 5], [1.0, 2, 3, 4, 5]]
    lines = {line[0]: line[1:] for line in run.summary(rows_of(run, values, scores), run.FAMILIES)}
    mean, _, *groups, first, lost = lines["agreement of pairs"]
    assert (mean, groups) == ("0.47", ["1.00", "0.90", "-1.00"])  # (1 + 0.9 - 1 + 1) / 4
    assert (first, lost) == ("2 of 4", "12.5")  # 0, 10, 40 and 0 points
    assert lines["dimension"][0] == "0.00"  # equal values order nothing
    reference = lines["labels of STS-B"]
    assert (reference[0], reference[-2:]) == ("0.33", ["2 of 3", "13.3"])  # 1, -1 and 1; the set itself is left out


def test_the_interval_contains_the_mean_and_shrinks_without_noise(study):
    _, _, run = study
    scores = np.tile(np.arange(8.0), (6, 1))
    assert run.interval(scores, scores) == pytest.approx((1, 1))
    assert run.interval(np.stack([scores[0], -scores[0]]), scores[:2]) == pytest.approx((-1, 1))  # sets are drawn
    noise = scores + np.random.default_rng(0).normal(size=scores.shape)
    low, high = run.interval(noise, scores)
    assert low < run.correlations(noise, scores).mean() < high


def test_models_are_families_names_and_paths(study):
    _, encoding, _ = study
    models = encoding.parse_models(["A:one=a@cls", "A:two=b=c", "B:three=elsewhere"])
    assert [tuple(model) for model in models] == [("A", "one", "a@cls"), ("A", "two", "b=c"), ("B", "three", "elsewhere")]
    for wrong in (["A=path"], ["A:one"], ["A:one=a", "B:one=b"]):
        with pytest.raises(ValueError, match="model"):
            encoding.parse_models(wrong)


def test_the_pages_have_the_tables_of_the_results(study):
    _, _, run = study
    tables = run.tables(run.read_rows(run.RESULTS), True)
    for page, is_complete in run.PAGES.items():
        block = tables if is_complete else tables.partition("\n\n")[0]
        text = page.read_text(encoding="utf-8")
        assert f"{run.START}\n{block}\n{run.END}" in text, "run python experiments/choosing_models/run.py --table"
