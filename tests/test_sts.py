"""STS readers on hand-made folders, and scores against an independent computation."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import pearsonr, spearmanr

from jax_sentemb.errors import DataError, NumericsError
from jax_sentemb.evaluation import suite
from jax_sentemb.evaluation.catalog import GROUPS, SETS, load_sts, load_sts_task
from jax_sentemb.evaluation.sts import (
    PROTOCOLS,
    SIMILARITIES,
    StsProtocol,
    correlate_tasks,
    pair_similarities,
    score_protocol,
    task_cosines,
)
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask, load_pairs


def write(path, *lines, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode(encoding))
    return path


@pytest.fixture
def folder(tmp_path):
    """STS13 and STS16 (with sources behind the pair and a blank score), STS-B dev, SICK test."""
    for year in ("STS13", "STS16"):
        for subset in (*SETS[year].spec.files, "SMT"):
            base = tmp_path / "downstream" / "STS" / f"{year}-en-test"
            write(base / f"STS.input.{subset}.txt", "a\tb\tfrom\tthere", f"{subset} c\td", "e \u2028\tf", "g\th")
            write(base / f"STS.gs.{subset}.txt", "5.0", "", "1", "2.5")
    benchmark = tmp_path / "downstream" / "STS" / "STSBenchmark" / "sts-dev.csv"
    write(benchmark, 'g\tf\ty\t1\t5.000\t"a b\tc"\tsource', "g\tf\ty\t2\t0\td\te")
    sick = tmp_path / "downstream" / "SICK" / "SICK_test_annotated.txt"
    write(sick, "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tlabel", "1\tA\tB\t4.5\tX", "2\tC\tD\t1\tX")
    return tmp_path


def test_sets_are_read_absent_ones_named_and_blank_scores_dropped(folder):
    tasks, absent = load_sts(folder)
    assert list(tasks) == ["STS13", "STS16", "STSBenchmark-dev", "SICKRelatedness-test"]
    assert {"STS12", "STS14", "STS15", "STSBenchmark-dev-disjoint", "STSBenchmark-test", "SICKRelatedness-trial"} <= set(absent)
    assert sorted([*tasks, *absent]) == sorted(GROUPS["sts"])
    assert list(tasks["STS13"].subsets) == ["FNWN", "headlines", "OnWN"]  # without SMT
    pairs = tasks["STS16"].subsets["plagiarism"]
    assert pairs.first == ["a", "e", "g"]
    assert pairs.second == ["b", "f", "h"]
    assert pairs.gold.tolist() == [5, 1, 2.5]
    benchmark = tasks["STSBenchmark-dev"].subsets["dev"]
    assert (benchmark.first, benchmark.second) == (['"a b', "d"], ['c"', "e"])
    assert benchmark.gold.tolist() == [5, 0]
    assert tasks["SICKRelatedness-test"].subsets["test"].second == ["B", "D"]
    assert load_sts(folder / "downstream")[1] == absent


def test_the_disjoint_part_of_sts_b_dev_has_no_pair_of_a_scored_set(folder):
    years = ["2012train", "2012test", "2013", "2014", "2015", "2016", "2017"]
    rows = [f"g\tf\t{year}\t1\t{n}\tsentence {year}.\tOther" for n, year in enumerate(years)]
    benchmark = folder / "downstream" / "STS" / "STSBenchmark"
    write(benchmark / "sts-dev.csv", *rows, "g\tf\t2012train\t1\t3\tin STS 12\tx", "g\tf\t2017\t1\t3\ty\tIn the test.")
    write(benchmark / "sts-test.csv", "g\tf\t2017\t1\t3\tin the test\ty", "g\tf\t2017\t1\t2\ta\tb")
    for subset in SETS["STS12"].spec.files:
        base = folder / "downstream" / "STS" / "STS12-en-test"
        write(base / f"STS.input.{subset}.txt", "X\tIn STS-12", "c\td")
        write(base / f"STS.gs.{subset}.txt", "5.0", "1")
    disjoint = load_sts_task("STSBenchmark-dev-disjoint", folder).subsets["dev"]
    assert disjoint.first == ["sentence 2012train.", "sentence 2017."]
    assert disjoint.gold.tolist() == [0, 6]
    assert len(load_sts_task("STSBenchmark-dev", folder).subsets["dev"].gold) == 9


def test_smt_of_sts13_is_read_where_the_protocol_counts_it(folder):
    year = folder / "downstream" / "STS" / "STS13-en-test"
    assert [name for name, protocol in PROTOCOLS.items() if protocol.smt] == ["multiview"]
    plain, counted = (suite.load("STS13", folder, smt) for smt in (False, True))
    assert list(plain.data.subsets) == ["FNWN", "headlines", "OnWN"]
    assert list(counted.data.subsets) == ["FNWN", "headlines", "OnWN", "SMT"]
    assert year / "STS.gs.SMT.txt" in counted.files
    assert not set(counted.files) - set(plain.files) - {year / f"STS.{kind}.SMT.txt" for kind in ("input", "gs")}
    assert plain.warnings == counted.warnings  # that the pairs are not 1,500: SMT has nothing to do with it
    assert list(load_sts_task("STS16", folder, True).subsets) == list(SETS["STS16"].spec.files)
    (year / "STS.input.SMT.txt").unlink()
    without = suite.load("STS13", folder, True)
    assert list(without.data.subsets) == ["FNWN", "headlines", "OnWN"]
    said = set(without.warnings) - set(plain.warnings)
    assert said == {"STS13: the subset SMT is missing (SentEval does not include it), the score is over FNWN, headlines, OnWN only"}


def test_a_folder_without_any_set_is_an_error(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match=r"(not a SentEval directory: it has no folder downstream|missing: no such folder)"):
            load_sts(folder)
    (tmp_path / "downstream").mkdir()
    with pytest.raises(DataError, match="has no evaluation set"):
        load_sts(tmp_path)


def test_a_year_that_is_there_in_part_is_an_error(folder):
    directory = folder / "downstream" / "STS" / "STS16-en-test"
    write(directory / "STS.gs.headlines.txt", "1", "2")
    with pytest.raises(DataError, match=r"headlines.txt has 4 lines and .* has 2"):
        load_sts(folder)
    (directory / "STS.gs.headlines.txt").unlink()
    with pytest.raises(DataError, match=r"headlines\.txt: no such file"):
        load_sts(folder)


def test_pair_files_tab_separated_or_comma_separated(tmp_path):
    table = write(tmp_path / "p.tsv", "\ufeffscore\tsentence2\tx\tsentence1", '3\t"B" is\t\t"A', "\tC\t\tD", "", "4\tE\t\tF\r")
    pairs = load_pairs(table)
    assert (pairs.first, pairs.second, pairs.gold.tolist()) == (['"A', "F"], ['"B" is', "E"], [3, 4])
    quoted = write(tmp_path / "p.csv", "sentence1,sentence2,score", '"A, ""a""",B,1', '"C', 'c",D,2.5')
    pairs = load_pairs(quoted)
    assert (pairs.first, pairs.second, pairs.gold.tolist()) == (['A, "a"', "C\nc"], ["B", "D"], [1, 2.5])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["sentence1\tsentence2", "a\tb"], "no column 'score'"),
        ([], "no column 'sentence1'"),
        (["sentence1\tsentence2\tscore", "a\tb\t1", "a\tb"], " line 3 has 2 fields, the header has 3"),
        (["sentence1\tsentence2\tscore", "a\tb\tgood"], ":2: score 'good' is not a number"),
        (["sentence1\tsentence2\tscore", "a\tb\tnan"], ":2: score 'nan' is not a number"),
        (["sentence1\tsentence2\tscore", "a\tb\t1", "c\td\t1"], "2 pairs have 1 distinct scores"),
    ],
)
def test_a_malformed_pair_file_is_one_line_with_the_place(tmp_path, lines, message):
    with pytest.raises(DataError, match=message) as caught:
        load_pairs(write(tmp_path / "p.tsv", *lines))
    assert "\n" not in str(caught.value)


def test_what_is_not_utf8_is_refused_with_the_byte(tmp_path):
    path = write(tmp_path / "p.tsv", "sentence1\tsentence2\tscore", "caf\u00e9\tb\t1", encoding="latin-1")
    with pytest.raises(DataError, match="byte 29 is not UTF-8"):
        load_pairs(path)
    with pytest.raises(DataError, match="no such file"):
        load_pairs(tmp_path / "missing.tsv")


def ranks(values):
    """Average ranks by counting, ties shared."""
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]


def pearson(x, y):
    x, y = np.subtract(x, np.mean(x)), np.subtract(y, np.mean(y))
    return (x @ y) / np.sqrt((x @ x) * (y @ y))


VECTORS = np.random.default_rng(2).normal(size=(30, 5)).astype(np.float32)


def lookup(sentences):
    return VECTORS[[int(sentence) for sentence in sentences]]


@pytest.fixture
def task():
    """Two subsets of unequal size and level; sentences are numbers of VECTORS, scores have many ties."""
    random = np.random.default_rng(0)

    def pairs(count, offset):
        first, second = random.integers(0, 30, (2, count)).astype(str)
        return ScoredPairs([*first, "3", "3"], [*second, "4", "4"], np.round(random.random(count + 2) * 4) / 2 + offset)

    return StsTask("made", {"small": pairs(9, 0), "large": pairs(38, 2)})


def scores_of(embed, task):
    return correlate_tasks(task_cosines(embed, {task.name: task}), {task.name: task})[task.name]


def test_scores_equal_an_independent_computation_with_ties(task):
    def cosine(one, other):
        one, other = VECTORS[int(one)].astype(np.float64), VECTORS[int(other)].astype(np.float64)
        return (one @ other) / np.sqrt((one @ one) * (other @ other))

    cosines = {name: list(map(cosine, pairs.first, pairs.second)) for name, pairs in task.subsets.items()}
    gold = {name: pairs.gold for name, pairs in task.subsets.items()}
    result = scores_of(lookup, task)
    assert result["n"] == 51
    for kind, rank in (("pearson", np.asarray), ("spearman", lambda values: ranks(np.round(values, 12)))):
        expected = {name: 100 * pearson(rank(cosines[name]), rank(gold[name])) for name in gold}
        together = [rank(np.concatenate(list(side.values()))) for side in (cosines, gold)]
        assert result[kind]["subsets"] == pytest.approx(expected, abs=1e-9)
        assert result[kind]["all"] == pytest.approx(100 * pearson(*together), abs=1e-9)
        assert result[kind]["mean"] == pytest.approx((expected["small"] + expected["large"]) / 2, abs=1e-9)
        assert result[kind]["wmean"] == pytest.approx((11 * expected["small"] + 40 * expected["large"]) / 51, abs=1e-9)


def test_each_distinct_sentence_of_all_sets_is_embedded_once(task):
    calls = []

    def embed(sentences):
        calls.append(sentences)
        return lookup(sentences)

    tasks = {"one": task, "two": task._replace(name="two")}
    results = correlate_tasks(task_cosines(embed, tasks), tasks)
    assert results["one"] == results["two"]
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0]))


def test_collapsed_and_non_finite_embeddings_are_errors_not_numbers(task):
    noise = np.random.default_rng(1)

    def constant(sentences):
        return np.ones((len(sentences), 4)) + 1e-6 * noise.normal(size=(len(sentences), 4))

    def broken(sentences):
        vectors = lookup(sentences)
        vectors[0, 0] = np.nan
        return vectors

    with pytest.raises(NumericsError, match=r"have the similarity 1.000000"):
        scores_of(constant, task)
    with pytest.raises(NumericsError, match=r"1 of .* sentence embeddings are not finite"):
        scores_of(broken, task)


def test_a_zero_vector_has_cosine_zero(task):
    def embed(sentences):
        return lookup(sentences) * (np.array([int(s) % 7 for s in sentences]) > 0)[:, None]

    assert np.isfinite(scores_of(embed, task)["spearman"]["all"])


def test_real_sets_have_the_published_numbers_of_pairs(shared):
    tasks, absent = load_sts(shared / "data" / "senteval")
    counts = {name: sum(len(pairs.gold) for pairs in task.subsets.values()) for name, task in tasks.items()}
    assert counts == {
        "STS12": 3108, "STS14": 3750, "STS15": 3000, "STSBenchmark-dev": 1500, "STSBenchmark-dev-disjoint": 363,
        "STSBenchmark-test": 1379, "SICKRelatedness-trial": 500, "SICKRelatedness-test": 4927,
    }  # fmt: skip
    assert {"STS13", "STS16"} <= set(absent)
    assert len(load_pairs(shared / "data" / "sts_raw" / "STS14.tsv").gold) == 3750


@pytest.fixture
def scored():
    """A set of two subsets of unequal size, the place of its sentences and random embeddings with a common direction."""
    random = np.random.default_rng(3)
    names = [f"s{number}" for number in range(60)]
    pairs = {
        subset: ScoredPairs(names[start : start + size], names[start + 30 : start + size + 30], random.uniform(0, 5, size))
        for subset, start, size in (("one", 0, 12), ("two", 12, 18))
    }
    return StsTask("STS99", pairs), {name: row for row, name in enumerate(names)}, random.normal(size=(60, 5)) + 1


def test_protocols_choose_correlation_and_aggregate(scored):
    task, place, vectors = scored
    everything = scores_of(lambda sentences: vectors[[place[sentence] for sentence in sentences]], task)
    for name, correlation, aggregate in (("simcse", "spearman", "all"), ("senteval", "pearson", "mean")):
        result = score_protocol(task, pair_similarities(vectors, place, task, PROTOCOLS[name]), PROTOCOLS[name], 0)
        assert result["score"] == pytest.approx(everything[correlation][aggregate], abs=1e-9)
        assert result["sizes"] == {"one": 12, "two": 18}
        assert "interval" not in result


def test_every_similarity_against_scipy(scored):
    task, place, vectors = scored
    found = pair_similarities(vectors, place, task, PROTOCOLS["simcse"])
    result = score_protocol(task, found, PROTOCOLS["simcse"], 0)
    for kind, metric in (("cosine", "cosine"), ("euclidean", "euclidean"), ("manhattan", "cityblock")):
        for subset, pairs in task.subsets.items():
            both = [[vectors[place[sentence]] for sentence in side] for side in (pairs.first, pairs.second)]
            distance = np.array([cdist([one], [other], metric)[0, 0] for one, other in zip(*both, strict=True)])
            assert result[kind]["pearson"]["subsets"][subset] == pytest.approx(100 * pearsonr(-distance, pairs.gold)[0], abs=1e-7)
            assert result[kind]["spearman"]["subsets"][subset] == pytest.approx(100 * spearmanr(-distance, pairs.gold)[0])
    pairs = task.subsets["one"]
    dots = [vectors[place[one]] @ vectors[place[other]] for one, other in zip(pairs.first, pairs.second, strict=True)]
    np.testing.assert_allclose(found["dot"]["one"], dots)


def test_the_multiview_protocol_removes_the_first_component_of_each_side(scored):
    task, place, vectors = scored
    result = score_protocol(task, pair_similarities(vectors, place, task, PROTOCOLS["multiview"]), PROTOCOLS["multiview"], 0)
    expected = []
    for pairs in task.subsets.values():
        both = []
        for side in (pairs.first, pairs.second):
            matrix = vectors[[place[sentence] for sentence in side]]
            component = np.linalg.svd(matrix, full_matrices=False)[2][0]
            matrix = matrix - matrix @ component[:, None] * component
            both.append(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))
        expected.append(100 * pearsonr((both[0] * both[1]).sum(1), pairs.gold)[0])
    assert result["score"] == pytest.approx(np.mean(expected), abs=1e-7)


def test_the_interval_is_that_of_draws_of_pairs(scored):
    """Against a plain loop over scipy's correlation, and narrower for more pairs."""
    task, place, vectors = scored
    widths = []
    for repeats in (1, 8):
        larger = StsTask(
            "STS99",
            {
                subset: ScoredPairs(pairs.first * repeats, pairs.second * repeats, np.tile(pairs.gold, repeats))
                for subset, pairs in task.subsets.items()
            },
        )
        for protocol in (PROTOCOLS["simcse"], PROTOCOLS["senteval"], StsProtocol("w", "spearman", "wmean")):
            found = pair_similarities(vectors, place, larger, protocol)
            low, high = score_protocol(larger, found, protocol, 2000)["interval"]
            random = np.random.default_rng(1)
            draws = []
            parts = [(found["cosine"][subset], pairs.gold) for subset, pairs in larger.subsets.items()]
            if protocol.aggregate == "all":
                parts = [tuple(np.concatenate(side) for side in zip(*parts, strict=True))]
            correlation = {"spearman": spearmanr, "pearson": pearsonr}[protocol.correlation]
            for _ in range(300):
                rows = [random.integers(len(gold), size=len(gold)) for _, gold in parts]
                each = [correlation(one[row], gold[row])[0] for (one, gold), row in zip(parts, rows, strict=True)]
                weights = [len(gold) for _, gold in parts] if protocol.aggregate == "wmean" else None
                draws.append(100 * np.average(each, weights=weights))
            expected = np.percentile(draws, [2.5, 97.5])
            np.testing.assert_allclose([low, high], expected, atol=0.25 * (expected[1] - expected[0]))
            widths.append(high - low)
    assert max(widths[3:]) < min(widths[:3])


def test_the_interval_of_a_weighted_mean_has_the_weights_of_the_score():
    """One subset correlates perfectly in every draw, so the interval is a linear function of the other's, by its weight."""
    random, names = np.random.default_rng(0), [f"s{number}" for number in range(200)]
    gold = {"large": np.arange(90.0), "small": random.normal(size=10)}
    task = StsTask(
        "STS99", {name: ScoredPairs(names[: len(values)], names[100 : 100 + len(values)], values) for name, values in gold.items()}
    )
    found = {kind: {"large": gold["large"], "small": random.normal(size=10)} for kind in SIMILARITIES}
    intervals = {
        aggregate: score_protocol(task, found, StsProtocol("w", "pearson", aggregate), 200)["interval"]
        for aggregate in ("mean", "wmean")
    }
    small = (np.array(intervals["mean"]) - 50) / 50
    assert small[1] - small[0] > 0.2
    np.testing.assert_allclose(intervals["wmean"], 90 + 10 * small, rtol=1e-9)


def test_the_interval_leaves_out_a_fortieth_at_each_end():
    random, names = np.random.default_rng(0), [f"s{number}" for number in range(80)]
    gold, similar = random.normal(size=(2, 40))
    task = StsTask("STS99", {"one": ScoredPairs(names[:40], names[40:], gold)})
    found = {kind: {"one": similar} for kind in SIMILARITIES}
    low, high = score_protocol(task, found, StsProtocol("w", "pearson", "mean"), 10_000)["interval"]
    rows = random.integers(40, size=(10_000, 40))
    draws = 100 * np.array([np.corrcoef(similar[row], gold[row])[0, 1] for row in rows])
    expected = np.percentile(draws, [2.5, 97.5])
    # Of 10,000 draws, the standard error of such a percentile is 0.7 % of the width; 5 and 95 would move each end by 8 %.
    np.testing.assert_allclose([low, high], expected, atol=0.04 * (expected[1] - expected[0]))
