"""experiments/baselines.py: no page has a table of similarity scores without the baselines that it needs."""

import csv
import runpy

import numpy as np
import pytest

from tests.pages import ROOT

BASELINES = runpy.run_path(str(ROOT / "experiments" / "baselines.py"))


@pytest.mark.parametrize("page", BASELINES["pages"](), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_with_similarity_scores_has_the_baselines(page):
    assert page.read_text(encoding="utf-8") == BASELINES["with_baselines"](page), "run python experiments/baselines.py"


def test_the_block_has_untrained_readouts_and_word_baselines_with_their_average():
    with (ROOT / "experiments" / "baselines.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [row["baseline"] for row in rows]
    words = ["tf-idf", "word vectors, mean", "word vectors without stop words", "SIF as published", "SIF fitted on the corpus"]
    readouts = [f"{model} untrained, {readout}" for model in ("bert-mini", "mini-2") for readout in ("cls", "mean", "first_last")]
    assert names == words + readouts
    for row in rows:
        scores = [float(score) for name, score in row.items() if name not in ("baseline", "average")]
        assert float(row["average"]) == pytest.approx(np.mean(scores), abs=0.011)
        assert f"| {row['baseline']} |" in BASELINES["block"](ROOT / "experiments" / "simcse_family" / "README.md")


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("| method | STS12 | STS14 |\n|---|--:|--:|\n| a | 1 | 2 |\n", True),
        ("| | five sets |\n|---|--:|\n| a | 1 |\n", True),
        ("| claim | verdict |\n|---|---|\n| a | STS12 |\n", False),
        ("STS12 and STS14, mean of five sets\n", False),
    ],
)
def test_a_table_is_known_by_its_head(text, needed):
    assert BASELINES["needs_baselines"](text) == needed
