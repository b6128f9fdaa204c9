"""experiments/baselines.py: no page has a table of similarity or transfer scores without the baselines that it needs."""

import csv
import runpy

import numpy as np
import pytest

from tests.pages import ROOT

BASELINES = runpy.run_path(str(ROOT / "experiments" / "baselines.py"))
PAGE = ROOT / "experiments" / "simcse_family" / "README.md"
READOUTS = [f"{model} untrained, {readout}" for model in ("bert-mini", "mini-2") for readout in ("cls", "mean", "first_last")]


@pytest.mark.parametrize("page", BASELINES["pages"](), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_with_scores_has_the_baselines(page):
    assert page.read_text(encoding="utf-8") == BASELINES["with_baselines"](page), "run python experiments/baselines.py"


def test_the_block_has_untrained_readouts_and_word_baselines_with_their_average():
    with (ROOT / "experiments" / "baselines.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [row["baseline"] for row in rows]
    words = ["word vectors, mean", "word vectors without stop words", "SIF as published", "SIF fitted on the corpus"]
    assert names == words + READOUTS
    for row in rows:
        scores = [float(score) for name, score in row.items() if name not in ("baseline", "average")]
        assert float(row["average"]) == pytest.approx(np.mean(scores), abs=0.011)
        assert f"| {row['baseline']} |" in BASELINES["block"](PAGE, BASELINES["SIMILARITY_BLOCK"])


def test_the_transfer_block_has_random_projections_and_untrained_encoders_by_both_classifiers():
    with (ROOT / "experiments" / "transfer_baselines.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    block = BASELINES["block"](PAGE, BASELINES["TRANSFER_BLOCK"])
    names = ["word vectors, mean", "512 random projections", "4,096 random projections", *READOUTS]
    assert [(row["baseline"], row["classifier"]) for row in rows] == [
        (name, classifier) for classifier in ("senteval", "senteval_prototyping") for name in names
    ]
    for row in rows:
        scores = [float(score) for name, score in row.items() if name not in ("baseline", "classifier", "average")]
        assert float(row["average"]) == pytest.approx(np.mean(scores), abs=0.011)
        assert f"| {row['baseline']} | {row['classifier']} | {row['CR']} |" in block


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("| method | STS12 | STS14 |\n|---|--:|--:|\n| a | 1 | 2 |\n", ["SIMILARITY_BLOCK"]),
        ("| | five sets |\n|---|--:|\n| a | 1 |\n", ["SIMILARITY_BLOCK"]),
        ("| | CR | average |\n|---|--:|--:|\n| a | 1 | 1 |\n", ["TRANSFER_BLOCK"]),
        ("| method | mean of six transfer tasks |\n|---|--:|\n| a | 1 |\n", ["TRANSFER_BLOCK"]),
        ("| | STS12 | MR |\n|---|--:|--:|\n| a | 1 | 1 |\n", ["SIMILARITY_BLOCK", "TRANSFER_BLOCK"]),
        ("| claim | verdict |\n|---|---|\n| a | STS12 and MR |\n", []),
        ("STS12 and MR, mean of five sets\n", []),
    ],
)
def test_a_table_is_known_by_its_head(text, needed):
    assert [
        name for name in ("SIMILARITY_BLOCK", "TRANSFER_BLOCK") if BASELINES["needs_baselines"](text, BASELINES[name])
    ] == needed
