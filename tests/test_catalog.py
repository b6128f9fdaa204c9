"""The table of evaluation sets."""

import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation import catalog
from jax_sentemb.evaluation.catalog import DEVELOPMENT, GROUPS, SETS, SEVEN, heading, select, set_name


def test_tasks_are_known_by_their_usual_spellings():
    spelled = "STS-B, stsb-dev,SICK-R,sick_e,sst-2,sts12,trec,BigramShift"
    assert {name for name, _ in select(spelled)} == {
        "STSBenchmark-test", "STSBenchmark-dev", "SICKRelatedness-test", "SICKEntailment", "SST2", "STS12", "TREC", "BigramShift",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"--tasks STSBenchmak is unknown; .*did you mean STSBenchmark"):
        select("STSBenchmak")


def test_no_spelling_means_two_sets():
    names = [catalog._letters(name) for name in SETS]
    aliases = [alias for row in SETS.values() for alias in row.aliases]
    assert len({*names, *aliases}) == len(names) + len(aliases)
    assert all(alias == catalog._letters(alias) for alias in aliases)
    assert all(set_name(name) == name for name in SETS)


def test_averages_are_those_of_the_papers():
    averaged = {group: [name for name in names if SETS[name].averaged] for group, names in GROUPS.items()}
    assert averaged["sts"] == list(SEVEN)
    assert averaged["transfer"] == ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
    assert len(averaged["probing"]) == 10
    assert {"STSBenchmark-dev", "STSBenchmark-dev-disjoint", "SICKRelatedness-trial"} <= set(DEVELOPMENT)


def test_headings_are_short():
    columns = ("STSBenchmark-test", "SICKRelatedness rho", "MRPC F1", "my pearson", "TopConstituents")
    assert [heading(column) for column in columns] == ["STS-B", "SICK-R rho", "MRPC F1", "my pearson", "TopConst"]


def test_the_hub_writes_every_layout_that_a_row_names():
    from jax_sentemb.evaluation.download import LAYOUTS

    assert {row.hub.layout for row in SETS.values() if row.hub} == set(LAYOUTS)
