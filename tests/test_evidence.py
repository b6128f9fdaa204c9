"""Pages with the numbers of studies: evidence.md and the tables of experiments/adapting are those of the rows that are there."""

import runpy
import sys
from pathlib import Path
from typing import Any

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
    listed: dict[tuple[Any, ...], tuple[set[str], set[str]]] = {}  # the methods that are there, and those that a table explains
    for table in tables:
        claimed = {
            name for claim in claims if claim.row["measure"] == table["measure"] for pair in claim.row["pairs"] for name in pair
        }
        assert {name.split(" | ")[0] for name in table["names"].values()} <= claimed, table["file"]
        assert set(table["names"]) <= {row["method"] for row in evidence.read(table)}, table["file"]
        assert not set(table["names"]) & set(table.get("unused", {}))
        for file in evidence.files_of(table):
            where = {key: value for key, value in table.get("where", {}).items() if key != "data.subset"}
            columns = tuple((key, str(value)) for key, value in where.items())
            there, explained = listed.setdefault((file, table["measure"], *columns), (set(), set()))
            there |= {row["method"] for row in evidence.read(table | {"file": file, "where": where})}
            explained |= {*table["names"], *table.get("unused", {}), *table.get("baselines", ())}
    for file, (there, explained) in listed.items():
        assert there <= explained, file


def test_every_row_of_a_file_is_compared_or_a_table_says_why_not(loaded):
    by_file: dict[str, list[dict[str, Any]]] = {}
    for table in loaded[1]:
        for file in evidence.files_of(table):
            by_file.setdefault(file, []).append(table)
    for file, tables in by_file.items():
        rows = evidence.read_file(file)
        explained = {column for table in tables for column in table.get("unused_rows", {})}
        for column in {column for table in tables for column in table.get("where", {})} & rows[0].keys() - explained:
            there = {row[column] for row in rows}
            wanted = [table.get("where", {}).get(column, sorted(there)) for table in tables]
            assert there <= {value for one in wanted for value in ([one] if isinstance(one, str) else one)}, (file, column)


def test_every_claim_says_what_refutes_it_and_what_it_costs(loaded):
    for claim in loaded[0]:
        assert claim.row["refuted"]
        can_decide = any(not setting.differs for setting in claim.settings)
        assert can_decide or claim.row.get("needs") or claim.row["hours"] > 0
        for setting in claim.settings:
            assert (
                setting.differs
                or evidence.is_tested(setting)
                or (setting.missing and all(minutes > 0 for _, minutes in setting.missing))
            ), setting.about


def test_printed_scores_of_single_sets_have_the_printed_mean(loaded):
    claims, tables, _ = loaded
    options = [(claim, option) for claim in claims for option in claim.row["published"] if "printed" in option]
    assert len(options) > 20
    for claim, option in options:
        means = [evidence.statistics.mean(scores) for scores in zip(*option["printed"].values(), strict=True)]
        # The papers' own means of IS-BERT-task and N(3) are 0.08 from those of their rows.
        assert means == pytest.approx(option["scores"], abs=0.09), claim.row["text"]
        for table in tables:
            if table["measure"] == claim.row["measure"]:
                assert set(evidence.sets_of(table)) <= option["printed"].keys()


def test_the_published_difference_is_that_of_the_sets_that_are_used():
    option = {"scores": [1, 2], "printed": {"STS12": (10, 12), "STS13": (10, 20), "STS14": (10, 14)}}
    assert evidence.difference_of(option, ("STS12", "STS14")) == 3
    assert evidence.difference_of(option, ("STS12", "CR")) == 1  # the paper does not print CR
    assert evidence.difference_of(option, ()) == 1


def test_the_tables_of_adapting_are_those_of_its_rows():
    study = runpy.run_path(str(ROOT / "experiments" / "adapting" / "run.py"))
    rows = study["read_rows"](study["HERE"] / "results.csv")
    assert study["tables"](rows) in study["README"].read_text(encoding="utf-8"), "run python experiments/adapting/run.py --table"
    assert study["advised"]([row for row in rows if row["encoder"] == "MiniLM"]) in study["DOCS"].read_text(encoding="utf-8")


LEVELS = evidence.Levels()
CLEAR = [1.0, 1.1, 1.2, 1.1, 1.1]  # the interval is 1.01 to 1.19


def setting(differences, published=1.0, differs="", last=()):
    return evidence.Setting("study", "about", 0.0, 0.0, differences, list(last), "seed", published, differs)


@pytest.mark.parametrize(
    ("differences", "published", "verdict"),
    [
        (CLEAR, 1.18, evidence.AS_LARGE),
        (CLEAR, 1.2, evidence.SMALLER),
        (CLEAR, 0.5, evidence.AS_LARGE),
        ([0.10, 0.11, 0.12, 0.11, 0.11], 1.0, evidence.NO_SIZE),
        ([-0.5, 0.0, 0.5, 0.0, 0.0], 1.0, evidence.UNDECIDED),
        ([-each for each in CLEAR], 1.0, evidence.OPPOSITE),
        ([1.0, -0.2, 1.2, -0.5, 1.0], 1.0, evidence.UNDECIDED),
        (CLEAR[:4], 1.0, evidence.UNDECIDED),  # too few seeds
    ],
)
def test_the_verdict_is_that_of_the_interval_against_0_and_the_published_difference(differences, published, verdict):
    assert evidence.verdict_of(setting(differences, published), LEVELS) == verdict


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ([CLEAR, [1.0, -0.2, 1.2, -0.5, 1.0]], evidence.AS_LARGE),
        ([CLEAR, [0.5, 0.51, 0.52, 0.5, 0.5]], evidence.SMALLER),
        ([CLEAR, [0.5, -0.5, 0.4, -0.4, 0.0]], evidence.SMALLER),  # the second is undecided, but excludes the published size
        ([CLEAR, [-each for each in CLEAR]], evidence.UNDECIDED),
        ([[1.0]], evidence.UNDECIDED),
        ([], evidence.NOT_TESTED),
    ],
)
def test_a_claim_has_the_verdict_of_its_decided_settings(settings, verdict):
    assert evidence.verdict([setting(some) for some in settings], [LEVELS] * len(settings)) == verdict


def test_a_setting_that_differs_from_the_paper_does_not_decide():
    settings = [setting(CLEAR), setting([-each for each in CLEAR], differs="other readout")]
    assert evidence.verdict(settings, [LEVELS, LEVELS]) == evidence.AS_LARGE


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
    assert evidence.verdict_of(exact[0]._replace(over_items=(-0.1, 2.0)), LEVELS) == evidence.UNDECIDED


def test_draws_over_items_are_the_same_for_both_models(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
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


def test_the_family_of_a_correction_has_the_settings_that_can_decide():
    few, readout = setting([1.0, 1.1, 1.3, 1.2]), setting(CLEAR, differs="other readout")
    many, wide = setting(CLEAR), setting([1.0, -1.0, 0.5, -0.5, 0.1])
    (levels,) = evidence.levels_of([evidence.Claim({}, [few, readout, many, wide])])
    assert levels[:2] == [LEVELS, LEVELS]
    assert [level.zero for level in levels[2:]] == pytest.approx([0.025, 0.05])


def test_a_practical_size_is_excluded_by_two_one_sided_tests():
    differences = [0.05, 0.1, 0.0, -0.1, 0.1]
    below = stats.ttest_1samp(differences, 0.25, alternative="less").pvalue
    above = stats.ttest_1samp(differences, -0.25, alternative="greater").pvalue
    assert evidence.p_practical(differences) == pytest.approx(max(below, above))
    assert evidence.p_practical([0.1]) == evidence.p_below([0.1], 1.0) == 1.0
    for level in (0.9, 1.1):  # just below and above the p-value
        levels = LEVELS._replace(practical=level * max(below, above))
        assert (evidence.verdict_of(setting(differences), levels) == evidence.NO_SIZE) == (level > 1)


def test_the_test_of_no_practical_size_does_not_depend_on_that_against_0():
    true_zero = setting([0.01, -0.01, 0.02, -0.02, 0.0])
    clear = setting([1.0, 1.1, 1.2, 1.1, 1.0], published=1.0)
    (levels,) = evidence.levels_of([evidence.Claim({}, [true_zero, *[clear] * 9])])
    assert levels[0].practical == pytest.approx(0.005)  # its p-value is the smallest of ten
    assert evidence.verdict_of(true_zero, levels[0]) == evidence.NO_SIZE


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
    settings = compare(tmp_path, monkeypatch, rows, differs={"a and b": "other layers"})
    assert [one.differs for one in settings] == ["other layers", ""]
    for gain, reason in ((0.2, evidence.NO_GAIN), (0.3, "")):
        claim = CLAIM | {"published": [{"scores": [1, 1 + gain]}]}
        assert compare(tmp_path, monkeypatch, rows, claim)[0].differs == reason


def test_methods_of_one_claim_have_their_own_published_difference(tmp_path, monkeypatch):
    options = [{"pair": ["A", "B"], "scores": [0, 2]}, {"pair": ["A", "C"], "scores": [0, 5]}]
    claim = CLAIM | {"pairs": [["A", "B"], ["A", "C"]], "published": options}
    rows = "method,seed,score\na,0,1\nb,0,2\nd,0,2\n"
    settings = compare(tmp_path, monkeypatch, rows, claim, names={"a": "A", "b": "B", "d": "C"})
    assert [(one.about, one.published) for one in settings] == [("x; B", 2), ("x; C", 5)]


def test_a_decided_claim_shows_how_many_settings_decide_it():
    clear = setting(CLEAR, last=[0.1, 1.0, -0.5, 0.2, 0.1])
    small = [clear, setting([0.1, -0.4, 0.3]), setting([3.0] * 5, differs="other readout")]
    assert shown(*small) == "as large as published; 1 of 2 settings, 0 at the last step; published size excluded in 0 of 1"
    excluding = setting([0.1, -0.4, 0.3, -0.1, 0.1])
    assert shown(clear, excluding) == "same sign, smaller; 1 of 2 settings, 0 at the last step; published size excluded in 1 of 2"


def shown(*settings, published=({"scores": [0, 1]},), needs=""):
    row = {"published": published, "hours": 2, "needs": needs}
    return evidence._explained(evidence.Claim(row, list(settings)), [LEVELS] * len(settings))


def test_an_undecided_claim_says_why_and_what_is_excluded():
    few = setting([0.1, -0.4, 0.3])._replace(missing=((("file", "SimCSE"), 30.0), (("file", "miCSE"), 60.0)))
    again = few._replace(missing=((("file", "SimCSE"), 30.0),))
    assert shown(few, again) == "undecided (too few seeds); 0 of 2 have 5 seeds; the others: 1.5 core-hours"
    assert shown(few._replace(differs="other readout")) == "undecided (no setting can decide); 2 core-hours"
    assert shown(few._replace(differs="x"), needs="STS16 is missing") == "undecided (no setting can decide); STS16 is missing"
    wide, narrow = setting([2.0, -2.0] * 3), setting([0.3, -0.3] * 3)
    neither = "undecided (not above 0, not below 0)"
    assert shown(wide) == f"{neither}; 1 of 1 have 5 seeds; published size excluded in 0 of 1"
    assert shown(wide, narrow, few) == (
        f"{neither}; 2 of 3 have 5 seeds; published size excluded in 1 of 2; the others: 1.5 core-hours"
    )
    assert shown(wide, published=()) == f"{neither}; 1 of 1 have 5 seeds"
    above, below = setting([2.0, 2.1, 2.2] * 2), setting([-2.0, -2.1, -2.2] * 2)
    assert shown(above, below) == "undecided (settings contradict); 2 of 2 have 5 seeds; published size excluded in 1 of 2"


def test_missing_runs_are_those_of_trained_methods_with_fewer_seeds(tmp_path, monkeypatch):
    rows = "method,seed,score\na,,10\n" + "".join(f"b,{seed},12\n" for seed in range(3)) + "c,0,11\n"
    table = {"everywhere": ["a"], "minutes": {"b": 10}, "same_run": {"c": "b"}}
    first, second = compare(tmp_path, monkeypatch, rows, **table)
    assert [minutes for _, minutes in (*first.missing, *second.missing)] == [20, 40]
    assert first.missing[0][0] == second.missing[0][0]  # two views of one model


def test_the_published_difference_is_compared_with_the_plain_interval():
    assert (
        evidence.verdict_of(setting(CLEAR, 1.2), evidence.Levels(zero=0.01)) == evidence.SMALLER
    )  # at 0.01 the interval ends at 1.25


def test_two_models_without_training_have_an_interval_over_items(tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "items.csv").write_text("encoder,first,second,low,high\ne,b,a,1,2\ne,a,b,0.25,0.75\nf,a,b,3,4\n")
    rows = "method,seed,score\na,0,10\nb,0,10.5\nd,0,1\n"
    (only,) = compare(tmp_path, monkeypatch, rows, everywhere=["a", "b"], encoder="e")
    assert evidence.interval_of(only, 0.05) == (0.25, 0.75)
    assert evidence.verdict_of(only, LEVELS) == evidence.SMALLER


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
    with pytest.raises(ValueError, match=r"one/results.csv: two rows of b have the unit"):
        compare(tmp_path, monkeypatch, "method,seed,score\na,0,1\nb,0,1\nb,0,2\n")
    compare(tmp_path, monkeypatch, "method,seed,score\na,0,1\nb,0,1\nb,0,1\n")  # the same run in two files


def test_the_step_is_selected_by_a_column_of_a_file_with_every_step(tmp_path, monkeypatch):
    rows = "method,seed,step,dev,score\na,0,1,5,10\na,0,2,4,11\nb,0,1,3,12\nb,0,2,7,14\nb,0,3,6,20\n"
    (only,) = compare(tmp_path, monkeypatch, rows, select="dev")
    assert (only.differences, only.last) == ([4], [9])


def test_the_scores_of_one_run_cost_its_minutes_once(tmp_path, monkeypatch):
    rows = "method,seed,task,score\na,0,x,1\na,0,y,1\nb,0,x,1\nb,0,y,1\n"
    settings = compare(tmp_path, monkeypatch, rows, by=["task"], scored=["task"], minutes=15)
    assert evidence.core_hours(settings) == 2
