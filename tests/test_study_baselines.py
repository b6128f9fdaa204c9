"""experiments/baselines.py: no page has a table of similarity or transfer scores without the baselines that it needs."""

import csv
import itertools
import runpy

import numpy as np
import pytest

from tests.pages import ROOT

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "experiments"))
    BASELINES = runpy.run_path(str(ROOT / "experiments" / "baselines.py"))
BLOCKS = {block.marker: block for block in BASELINES["BLOCKS"]}
TF_IDF = ["tf-idf of the scored sentences", "tf-idf of Wikipedia"]
AVERAGES = ["word vectors, mean", "word vectors without stop words", "SIF as published", "SIF fitted on Wikipedia"]
READOUTS = [f"{model} untrained, {readout}" for model in ("bert-mini", "mini-2") for readout in ("cls", "mean", "first_last")]
PROJECTIONS = ["512 random projections", "4,096 random projections"]


@pytest.mark.parametrize("page", BASELINES["pages"](), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_with_scores_has_the_baselines(page):
    assert page.read_text(encoding="utf-8") == BASELINES["with_baselines"](page), "run python experiments/baselines.py"


@pytest.mark.parametrize(("page", "names"), BASELINES["OWN"].items())
def test_a_page_with_its_own_baselines_has_their_rows(page, names):
    assert (page, "baselines") in BASELINES["OTHER"]
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in names:
        assert f"\n| {name} |" in text


def test_every_encoder_of_adapting_has_a_row_of_tf_idf():
    text = (ROOT / "experiments" / "adapting" / "README.md").read_text(encoding="utf-8")
    measured = [table for table in text.partition("<!-- measured -->")[2].split("\n\n") if "| seeds |" in table]
    assert len(measured) == 2
    assert all("\n| tf-idf |" in table for table in measured)


@pytest.mark.parametrize(
    ("marker", "names", "classifiers"),
    [
        ("baselines", [*TF_IDF, *AVERAGES, *READOUTS], [None]),
        (
            "transfer baselines",
            [*PROJECTIONS, *(f"{name}, 1,024 projections" for name in TF_IDF), *AVERAGES, *READOUTS],
            ["senteval", "senteval_prototyping"],
        ),
    ],
)
def test_a_block_has_every_baseline_with_its_average(marker, names, classifiers):
    block = BLOCKS[marker]
    text = BASELINES["text_of"](block, ROOT / "experiments" / "simcse_family" / "README.md")
    with block.results.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row.get("classifier"), row["baseline"]) for row in rows] == list(itertools.product(classifiers, names))
    for row in rows:
        scores = [float(score) for name, score in row.items() if name not in ("baseline", "classifier", "average", *block.left_out)]
        assert float(row["average"]) == pytest.approx(np.mean(scores), abs=0.011)
        assert f"| {' | '.join(row.values())} |" in text


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("| method | STS12 | STS14 |\n|---|--:|--:|\n| a | 1 | 2 |\n", ["baselines"]),
        ("| | five sets |\n|---|--:|\n| a | 1 |\n", ["baselines"]),
        ("| | SICK | STS-B, mean |\n|---|--:|--:|\n| a | 1 | 1 |\n", ["baselines"]),
        ("| criterion | checkpoint of a run |\n|---|--:|\n| a | 1 |\n", ["baselines"]),
        ("| | CR | average |\n|---|--:|--:|\n| a | 1 | 1 |\n", ["transfer baselines"]),
        ("| method | mean of six transfer tasks |\n|---|--:|\n| a | 1 |\n", ["transfer baselines"]),
        ("| | STS12 | MR |\n|---|--:|--:|\n| a | 1 | 1 |\n", ["baselines", "transfer baselines"]),
        ("| claim | verdict |\n|---|---|\n| a | STS12 and MR |\n", []),
        ("STS12 and MR, mean of five sets\n", []),
    ],
)
def test_a_table_is_known_by_its_head(text, needed):
    assert [marker for marker, block in BLOCKS.items() if BASELINES["needs_block"](text, block)] == needed


def test_a_block_is_replaced_wherever_its_lines_break(tmp_path):
    page, block = ROOT / "experiments" / "conssent" / "README.md", BLOCKS["transfer baselines"]
    text = page.read_text(encoding="utf-8")
    broken = tmp_path / "README.md"
    broken.write_text(text.replace(f"{block.begin}\n", f"{block.begin} "), encoding="utf-8")
    replaced = block.pattern.sub(lambda match: BASELINES["text_of"](block, page), broken.read_text(encoding="utf-8"))
    assert replaced == text
    broken.write_text(text.replace(BLOCKS["baselines"].end, "") + BLOCKS["baselines"].begin, encoding="utf-8")
    with pytest.raises(ValueError, match="belong together"):
        BASELINES["with_baselines"](broken)
