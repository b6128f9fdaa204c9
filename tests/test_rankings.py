"""Measures of rankings: those of trec_eval (pytrec_eval), of mteb, and cases by hand."""

import numpy as np
import pytest

from jax_sentemb.evaluation import bm25
from jax_sentemb.evaluation.rankings import (
    NO_DOCUMENT,
    Judgements,
    Run,
    average_precision,
    fuse,
    gains_of,
    ndcg,
    ordered,
    recall,
    reciprocal_rank,
    without,
)  # fmt: skip

IDS = [f"d{number}" for number in range(60)]  # d10 is before d9 in the order of text, as trec_eval compares ids
DEPTH = 40


def judgement(grades):
    """Judgements of {row: grade}; a negative row is a document that the corpus does not have."""
    known = sorted((row, grade) for row, grade in grades.items() if row >= 0)
    missing = [float(grade) for row, grade in grades.items() if row < 0]
    return Judgements(np.array([row for row, _ in known], int), np.array([grade for _, grade in known], float), np.array(missing))


def random_case(seed, grades, levels):
    """Runs of 30 queries with `levels` different scores, and graded judgements; some queries have no relevant document."""
    random = np.random.default_rng(seed)
    scores = random.integers(levels, size=(30, len(IDS))).astype(np.float32) / 8
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    run = Run(rows, np.take_along_axis(scores, rows, 1))
    judged = []
    for query in range(30):
        chosen = random.choice(np.arange(-3, len(IDS)), random.integers(1, 20), replace=False).tolist()
        judged.append({row: int(random.choice(grades)) if query % 10 else 0 for row in chosen})
    return run, judged


@pytest.mark.parametrize(("seed", "grades", "levels"), [(0, [0, 1], 10_000), (1, [0, 1, 2, 3], 5), (2, [-1, 0, 1, 4], 30)])
def test_measures_are_those_of_trec_eval(seed, grades, levels):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run, judged = random_case(seed, grades, levels)
    name = lambda row: IDS[row] if row >= 0 else f"absent{-row}"  # noqa: E731
    qrels = {f"q{query}": {name(row): grade for row, grade in of_query.items()} for query, of_query in enumerate(judged)}
    results = {
        f"q{query}": {IDS[row]: float(score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)}
        for query, (rows, scores) in enumerate(zip(*run, strict=True))
    }
    names = {"ndcg_cut.10", "recall.20", "map"}
    expected = pytrec_eval.RelevanceEvaluator(qrels, names).evaluate(results)
    judgements = [judgement(of_query) for of_query in judged]
    ideal = [each.ideal for each in judgements]
    relevant = np.array([len(each) for each in ideal])
    gains = gains_of(ordered(run, IDS.__getitem__), judgements)
    ours = {
        "ndcg_cut_10": ndcg(gains, ideal, 10),
        "recall_20": recall(gains, relevant, 20),
        "map": average_precision(gains, relevant),
    }
    for measure, values in ours.items():
        theirs = [expected[f"q{query}"][measure] for query in range(30)]
        assert len(set(theirs)) > 10
        np.testing.assert_allclose(values, theirs, atol=1e-6, err_msg=measure)
    retrieval_metrics = pytest.importorskip("mteb._evaluators.retrieval_metrics")
    expected_mrr = retrieval_metrics.mrr(qrels, results, [10])["MRR@10"]
    np.testing.assert_allclose(reciprocal_rank(gains, 10), expected_mrr, atol=1e-9)


def test_a_case_by_hand():
    gains = np.array([[0.0, 3, 0, 2], [0, 0, 0, 0], [1, 0, 0, 0]])
    ideal = [np.array([3.0, 2, 2]), np.array([1.0]), np.array([])]
    best = 3 + 2 / np.log2(3) + 2 / 2
    assert ndcg(gains, ideal, 10).tolist() == pytest.approx([(3 / np.log2(3) + 2 / np.log2(5)) / best, 0, 0])
    assert ndcg(gains, ideal, 2).tolist() == pytest.approx([(3 / np.log2(3)) / (3 + 2 / np.log2(3)), 0, 0])
    assert reciprocal_rank(gains, 10).tolist() == [0.5, 0, 1]
    assert reciprocal_rank(gains, 1).tolist() == [0, 0, 1]
    assert recall(gains, np.array([3, 1, 0]), 3).tolist() == pytest.approx([1 / 3, 0, 1])
    assert average_precision(gains, np.array([3, 1, 0])).tolist() == pytest.approx([(1 / 2 + 2 / 4) / 3, 0, 1])


def test_what_was_not_retrieved_has_no_gain():
    run = Run(np.array([[1, NO_DOCUMENT]]), np.array([[1.0, 0.0]], np.float32))
    assert gains_of(run, [judgement({0: 2, -1: 3})]).tolist() == [[0, 0]]
    assert gains_of(run, [judgement({})]).tolist() == [[0, 0]]


def test_equal_scores_are_ordered_by_id_as_text():
    run = Run(np.array([[2, 10, 9, NO_DOCUMENT, NO_DOCUMENT]]), np.array([[2.0, 1, 1, 0, 0]], np.float32))
    assert ordered(run, IDS.__getitem__).rows.tolist() == [[2, 9, 10, NO_DOCUMENT, NO_DOCUMENT]]


def test_one_document_of_a_query_can_be_left_out():
    run = Run(np.array([[4, 7, 1], [4, 7, NO_DOCUMENT]]), np.array([[3.0, 2, 1], [3, 2, 0]], np.float32))
    assert without(run, np.array([7, NO_DOCUMENT])).rows.tolist() == [[4, 1, NO_DOCUMENT], [4, 7, NO_DOCUMENT]]
    assert without(run, np.array([4, 5])).scores.tolist() == [[2, 1, -np.inf], [3, 2, 0]]


def test_fusion_by_hand():
    scores = np.ones((1, 3), np.float32)
    fused = fuse([Run(np.array([[4, 7, 1]]), scores), Run(np.array([[1, 4, NO_DOCUMENT]]), scores)], 5)
    assert fused.rows.tolist() == [[4, 1, 7, NO_DOCUMENT, NO_DOCUMENT]]
    np.testing.assert_allclose(fused.scores[0, :3], [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62], rtol=1e-6)
    assert fuse([Run(np.array([[4, 7, 1]]), scores)] * 2, 2).rows.tolist() == [[4, 7]]


@pytest.mark.filterwarnings("ignore")
def test_fusion_is_that_of_ranx():
    ranx = pytest.importorskip("ranx")
    runs = []
    for seed in (3, 4):
        scores = np.random.default_rng(seed).permutation(len(IDS)).astype(np.float32)
        rows = np.argsort(-scores)[:30]
        runs.append(Run(rows[None], scores[rows][None]))
    named = [{IDS[row]: float(score) for row, score in zip(run.rows[0], run.scores[0], strict=True)} for run in runs]
    theirs = ranx.fuse([ranx.Run({"q": scores}) for scores in named], method="rrf", params={"k": 60}).run["q"]
    ours = fuse(runs, len(IDS))
    known = ours.rows[0] != NO_DOCUMENT
    assert dict(zip((IDS[row] for row in ours.rows[0][known]), ours.scores[0][known].tolist(), strict=True)) == pytest.approx(
        theirs
    )


@pytest.mark.parametrize(
    ("queries", "documents", "rows"),
    [
        (["the of", "cat"], ["dogs", "a cat sat"], [[-1, -1], [1, -1]]),
        (["zebra"], ["a cat sat", "dogs"], [[-1, -1]]),
        (["cat"], ["", "a cat", ""], [[1, -1, -1]]),
        (["cat", ""], ["!!", "the"], [[-1, -1], [-1, -1]]),
        (["größe"], ["die Größe der Stadt", "Größe Größe", "x y"], [[1, 0, -1]]),
    ],
)
def test_bm25_returns_documents_that_share_a_word(queries, documents, rows):
    pytest.importorskip("bm25s")
    assert bm25.rank(queries, documents, 5).rows.tolist() == rows
