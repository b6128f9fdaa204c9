"""The table of the mutation trial can be applied: every old text occurs once, every mutant is another program."""

import ast

import pytest
from mutants import ROOT, Mutant, read_mutants, stale

MUTANTS = read_mutants()


def test_every_mutant_can_be_made():
    assert len(MUTANTS) >= 60
    assert not stale(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.file)
def test_a_mutant_is_another_valid_program(mutant):
    source = (ROOT / "jax_sentemb" / mutant.file).read_text(encoding="utf-8")
    changed = ast.parse(source.replace(mutant.old, mutant.new))
    assert ast.dump(changed) != ast.dump(ast.parse(source))


def test_what_is_stale_is_named():
    absent = Mutant("losses.py", "not in the file", "x", ("tests/test_losses.py::test_absent", "tests/test_absent.py"))
    lines = stale([absent, absent._replace(file="absent.py", old="import jax", tests=())])
    assert [line.split(":")[0] for line in lines] == ["losses.py", "losses.py", "losses.py", "absent.py"]
