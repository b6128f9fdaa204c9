"""Pages with the numbers of studies: evidence.md and the tables of experiments/adapting are those of the rows that are there."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from jax_sentemb.evaluation.measures import Scored

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import evidence  # noqa: E402


@pytest.fixture(scope="module")
def loaded():
    return evidence.load()


def test_page_and_readme_are_those_of_the_studies(loaded):
    claims, _, _ = loaded
    assert evidence.PAGE.read_text(encoding="utf-8") == evidence.page(claims), "run python docs/evidence.py"
    assert evidence.sentence(claims) in evidence.COMPARING.read_text(encoding="utf-8"), "run python docs/evidence.py"


def test_every_csv_file_of_the_studies_tests_a_claim_or_says_why_not(loaded):
    _, tables, no_claim = loaded
    files = {path.relative_to(ROOT / "experiments").as_posix() for path in (ROOT / "experiments").glob("*/*.csv")}
    assert files == {file for table in tables for file in evidence.files_of(table)} | set(no_claim)
    assert all(no_claim.values())


def test_every_method_of_a_file_belongs_to_a_claim_or_says_why_not(loaded):
    claims, tables, _ = loaded
    listed: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}  # the methods that are there, and those that a table explains
    for table in tables:
        claimed = {
            name for claim in claims if claim.row["measure"] == table["measure"] for pair in claim.row["pairs"] for name in pair
        }
        assert {name.split(" | ")[0] for name in table["names"].values()} <= claimed, table["file"]
        assert set(table["names"]) <= {row["method"] for row in evidence.read(table)}, table["file"]
        assert not set(table["names"]) & set(table.get("unused", {}))
        for file in evidence.files_of(table):
            where = {key: value for key, value in table.get("where", {}).items() if key != "data.subset"}
            there, explained = listed.setdefault((file, table["measure"], *where.values()), (set(), set()))
            there |= {row["method"] for row in evidence.read(table | {"file": file, "where": where})}
            explained |= {*table["names"], *table.get("unused", {}), *table.get("baselines", ())}
    for file, (there, explained) in listed.items():
        assert there <= explained, file


def test_every_claim_says_what_refutes_it_and_what_it_costs(loaded):
    for claim in loaded[0]:
        assert claim.row["refuted"]
        assert claim.row["hours"] > 0
        assert claim.row["published"] or not claim.settings


def test_the_tables_of_adapting_are_those_of_its_rows():
    study = runpy.run_path(str(ROOT / "experiments" / "adapting" / "run.py"))
    rows = study["read_rows"](study["HERE"] / "results.csv")
    assert study["tables"](rows) in study["README"].read_text(encoding="utf-8"), "run python experiments/adapting/run.py --table"
    assert study["advised"]([row for row in rows if row["encoder"] == "MiniLM"]) in study["DOCS"].read_text(encoding="utf-8")


def setting(differences, published=1.0, differs="", last=()):
    return evidence.Setting("study", "about", 0.0, 0.0, differences, list(last), "seed", published, differs)


@pytest.mark.parametrize(
    ("differences", "published", "verdict"),
    [
        ([1.0, 1.1, 1.2], 1.3, evidence.AS_LARGE),  # the interval is 0.85 to 1.35
        ([1.0, 1.1, 1.2], 1.4, evidence.SMALLER),
        ([1.0, 1.1, 1.2], 0.5, evidence.AS_LARGE),
        ([0.10, 0.11, 0.12], 1.0, evidence.NO_SIZE),
        ([-0.2, 0.0, 0.2], 1.0, evidence.UNDECIDED),
        ([-1.0, -1.1, -1.2], 1.0, evidence.OPPOSITE),
        ([1.0, -0.2, 1.2], 1.0, evidence.UNDECIDED),
        ([1.0], 1.0, evidence.UNDECIDED),
    ],
)
def test_the_verdict_is_that_of_the_interval_against_0_and_the_published_difference(differences, published, verdict):
    assert evidence.verdict_of(setting(differences, published), 0.05) == verdict


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ([[1.0, 1.1, 1.2], [1.0, -0.2, 1.2]], evidence.AS_LARGE),
        ([[1.0, 1.1, 1.2], [0.5, 0.51, 0.52]], evidence.SMALLER),
        ([[1.0, 1.1, 1.2], [-1.0, -1.1, -1.2]], evidence.UNDECIDED),
        ([[1.0]], evidence.UNDECIDED),
        ([], evidence.NOT_TESTED),
    ],
)
def test_a_claim_has_the_verdict_of_its_decided_settings(settings, verdict):
    assert evidence.verdict([setting(some) for some in settings], [0.05] * len(settings)) == verdict


def test_a_setting_that_differs_from_the_paper_does_not_decide():
    settings = [setting([1.0, 1.1, 1.2]), setting([-1.0, -1.1, -1.2], differs="other readout")]
    assert evidence.verdict(settings, [0.05, 0.05]) == evidence.AS_LARGE


def test_holms_levels_step_down_until_the_first_test_that_is_not_rejected():
    assert evidence.holm_levels([0.04, 0.001, 0.02, 0.5]) == pytest.approx([0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3])
    assert evidence.holm_levels([0.02, 0.001]) == pytest.approx([0.05, 0.025])


def test_two_untrained_models_are_compared_over_test_items(loaded):
    lines = (ROOT / "experiments" / "items.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["encoder"]: row for row in evidence.csv.DictReader(lines)}
    exact = [setting for claim in loaded[0] for setting in claim.settings if setting.over_items]
    assert len(exact) == len(rows) == 2
    for setting in exact:
        row = rows[setting.about.partition(",")[0]]
        assert setting.differences == [pytest.approx(float(row["difference"]), abs=0.01)]
        assert evidence.interval_of(setting, 0.05) == (float(row["low"]), float(row["high"]))
    assert evidence.verdict_of(exact[0]._replace(over_items=(-0.1, 2.0)), 0.05) == evidence.UNDECIDED


def test_draws_over_items_are_the_same_for_both_models():
    items = runpy.run_path(str(ROOT / "experiments" / "items.py"))
    random = np.random.default_rng(0)
    gold = random.normal(size=60)
    cosines = gold + random.normal(size=60)
    (value, draws), (again, same) = (
        items["mean_of_sets"]([Scored(60, {"spearman": items["spearman_of"](cosines, gold)})] * 2) for _ in range(2)
    )
    assert value["mean"] == pytest.approx(100 * stats.spearmanr(cosines, gold).statistic)
    assert (draws["mean"] == same["mean"]).all()
    assert value == again
    assert draws["mean"].std() > 1


def test_a_single_run_is_no_test(loaded):
    one, many = setting([1.0]), setting([1.0, 1.1, 1.3])
    assert evidence.levels_of([evidence.Claim({}, [one, many, many])])[0][1:] == pytest.approx([0.025, 0.05])


def test_the_interval_is_that_of_a_paired_t_test():
    first, second = [1.0, 2.0, 4.0, 3.5], [1.5, 2.1, 5.0, 3.0]
    test = stats.ttest_rel(second, first)
    expected = test.confidence_interval()
    differences = [late - early for early, late in zip(first, second, strict=True)]
    assert evidence.interval(differences) == pytest.approx((expected.low, expected.high))
    assert evidence.p_value(differences) == pytest.approx(test.pvalue)


CLAIM = {
    "text": "b is better", "pairs": [["A", "B"]], "measure": "m", "refuted": "a loss", "hours": 1, "paper": "P", "table": "T",
    "published": [{"sentences": 100, "scores": [0, 1]}, {"sentences": 1000, "scores": [0, 3]}],
}  # fmt: skip


def compare(tmp_path, monkeypatch, text, claim=CLAIM, **table):
    folder = tmp_path / "experiments" / "one"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.csv").write_text(text)
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    names = {"a": "A", "b": "B", "c": "B | larger"}
    base = {
        "file": "one/results.csv",
        "about": "x",
        "measure": "m",
        "method": "method",
        "unit": ["seed"],
        "value": "score",
        "names": names,
    }
    return evidence.compare(claim, [base | table]).settings


def test_seeds_are_paired_and_every_variant_is_a_setting(tmp_path, monkeypatch):
    rows = "method,seed,score\na,0,10\na,1,20\nb,1,23\nb,0,11\nc,0,9\n"
    first, second = compare(tmp_path, monkeypatch, rows)
    assert (first.without, first.with_, first.differences) == (15, 17, [1, 3])
    assert (second.about, second.differences) == ("x; larger", [-1])


def test_a_method_without_training_is_in_every_group(tmp_path, monkeypatch):
    rows = "method,seed,step,score\na,0,0,10\nb,0,5,11\nb,1,5,12\nb,0,9,13\nb,1,9,13\n"
    settings = compare(tmp_path, monkeypatch, rows, by=["step"], everywhere=["a"])
    assert [one.differences for one in settings] == [[1, 2], [3, 3]]


def test_the_last_point_of_a_curve_that_both_methods_have_counts(tmp_path, monkeypatch):
    rows = "method,seed,step,score\na,0,5,10\na,0,10,20\nb,0,5,11\nb,0,10,22\nb,0,15,40\nc,0,3,9\n"
    (last,) = compare(tmp_path, monkeypatch, rows, curve="step")  # c has no point with a
    assert (last.about, last.without, last.with_) == ("x; step 10", 20, 22)


def test_a_table_of_several_files_pairs_their_seeds_and_has_published_baselines(tmp_path, monkeypatch):
    folder = tmp_path / "experiments" / "one"
    folder.mkdir(parents=True)
    (folder / "more.csv").write_text("variant,seed,score,size\nb,0,12,1\nb,0,13,2\n")
    (tmp_path / "experiments" / "baselines.csv").write_text("baseline,average\nc,9\nother,1\n")
    table = {"file": ["one/results.csv", "one/more.csv"], "method": "variant", "where": {"size": "2"}, "baselines": ["c"]}
    first, second = compare(tmp_path, monkeypatch, "variant,seed,score\na,0,10\n", **table)
    assert (first.differences, second.differences) == ([3], [-1])


def test_a_setting_names_why_it_does_not_decide(tmp_path, monkeypatch):
    rows = "method,seed,score\na,0,10\nb,0,11\nc,0,12\n"
    settings = compare(tmp_path, monkeypatch, rows, differs={"c": "rate too high"})
    assert [one.differs for one in settings] == ["", "rate too high"]
    claim = CLAIM | {"published": [{"scores": [1, 1]}]}
    assert compare(tmp_path, monkeypatch, rows, claim)[0].differs == evidence.NO_GAIN


def test_methods_of_one_claim_have_their_own_published_difference(tmp_path, monkeypatch):
    options = [{"method": "B", "scores": [0, 2]}, {"method": "C", "scores": [0, 5]}]
    claim = CLAIM | {"pairs": [["A", "B"], ["A", "C"]], "published": options}
    rows = "method,seed,score\na,0,1\nb,0,2\nd,0,2\n"
    settings = compare(tmp_path, monkeypatch, rows, claim, names={"a": "A", "b": "B", "d": "C"})
    assert [(one.about, one.published) for one in settings] == [("x; B", 2), ("x; C", 5)]


def test_a_decided_claim_shows_how_many_settings_decide_it():
    small = [
        setting([1.0, 1.1, 1.2], last=[0.1, 1.0, -0.5]),
        setting([0.1, -0.4, 0.3]),
        setting([3.0, 3.1], differs="other readout"),
    ]

    def shown(*settings):
        return evidence._explained(evidence.Claim({"hours": 2}, list(settings)), [0.05] * len(settings))

    assert shown(*small) == "as large as published; 1 of 2 settings, 0 at the last step"
    assert shown(*small[1:]) == "undecided; 0 of 1 have 5 seeds; the others: 2 core-hours"
    assert shown(setting([1.0, -1.0] * 3)) == "undecided; 1 of 1 have 5 seeds"


def test_the_published_difference_is_compared_with_the_plain_interval():
    assert evidence.verdict_of(setting([1.0, 1.1, 1.2], 1.4), 0.01) == evidence.SMALLER  # at 0.01 the interval ends at 1.67


def test_two_models_without_training_have_an_interval_over_items(tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "items.csv").write_text("encoder,first,second,low,high\ne,b,a,1,2\ne,a,b,0.25,0.75\nf,a,b,3,4\n")
    rows = "method,seed,score\na,0,10\nb,0,10.5\nd,0,1\n"
    (only,) = compare(tmp_path, monkeypatch, rows, everywhere=["a", "b"], encoder="e")
    assert evidence.interval_of(only, 0.05) == (0.25, 0.75)
    assert evidence.verdict_of(only, 0.05) == evidence.SMALLER


def test_a_seed_that_one_method_lacks_is_left_out(tmp_path, monkeypatch):
    (only, _) = compare(tmp_path, monkeypatch, "method,seed,score\na,0,10\nb,0,11\nb,1,20\nc,0,3\n")
    assert only.differences == [1]


def test_both_checkpoints_are_shown_and_the_selected_one_counts(tmp_path, monkeypatch):
    rows = "method,seed,at,score\na,0,dev,10\na,0,last,9\nb,0,dev,12\nb,0,last,8\n"
    (only,) = compare(tmp_path, monkeypatch, rows, checkpoint="at")
    assert (only.differences, only.last) == ([2], [-1])


def test_the_published_difference_is_that_of_the_nearest_number_of_sentences(tmp_path, monkeypatch):
    rows = "method,seed,sentences,score\na,0,200,1\nb,0,200,2\na,0,500,1\nb,0,500,2\n"
    settings = compare(tmp_path, monkeypatch, rows, by=["sentences"])
    assert [one.published for one in settings] == [1, 3]  # the ratio to 100 is 2, and to 1,000 it is 2


def test_the_gain_on_few_sentences_is_compared_with_that_on_many(tmp_path, monkeypatch):
    rows = "method,seed,sentences,score\na,0,200,1\nb,0,200,4\na,0,500,1\nb,0,500,2\n"
    published = [{"sentences": 200, "scores": [1, 5]}, {"sentences": 600, "scores": [1, 2]}]
    (only,) = compare(tmp_path, monkeypatch, rows, CLAIM | {"sizes": True, "published": published}, by=["sentences"])
    assert (only.differences, only.published) == ([2], 3)


def test_two_rows_of_a_seed_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"one/results.csv: 2 rows of b have the units"):
        compare(tmp_path, monkeypatch, "method,seed,score\na,0,1\nb,0,1\nb,0,2\n")
