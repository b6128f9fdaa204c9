"""The way from the command to the gradient of miCSE is short, and extending.md tells it as it is."""

import importlib.util
import inspect
import re
import traceback
from pathlib import Path

import pytest

from jax_sentemb import config
from jax_sentemb.cli.program import program
from jax_sentemb.main import main
from jax_sentemb.methods import attention_mi, simcse
from jax_sentemb.training import setup

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
architecture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(architecture)


class Reached(Exception):
    """Both losses were evaluated."""


def test_the_files_of_the_way_are_those_on_the_call_stacks(monkeypatch, tmp_path):
    seen = {}

    def record(owner, name, end=False):
        real = getattr(owner, name)

        def recording(*arguments, **options):
            found = real(*arguments, **options)
            for frame in traceback.extract_stack():
                path = Path(frame.filename)
                if path.is_relative_to(architecture.PACKAGE):
                    seen.setdefault(path.relative_to(architecture.PACKAGE).as_posix(), set()).add(name)
            seen.setdefault(
                Path(inspect.unwrap(real).__code__.co_filename).relative_to(architecture.PACKAGE).as_posix(), set()
            ).add(name)
            if end:
                raise Reached
            return found

        monkeypatch.setattr(owner, name, recording)

    record(config, "check_settings")
    record(setup, "make_batches")
    record(simcse, "info_nce")
    record(attention_mi.AttentionMI, "term", end=True)
    flags = ("eval.data=", "eval.diagnostic_sentences=16", "eval.report_sentences=0", "data.files=grammar:60")
    line = ["main", f"--config={ROOT}/configs/micse.py:tiny", f"--workdir={tmp_path}", *(f"--config.{flag}" for flag in flags)]
    with pytest.raises(Reached):
        program(main, line)
    called = set(seen) - set(architecture.BESIDE)
    assert called == set(architecture.PATH)
    assert {"info_nce", "term"} <= seen["training/step.py"]


def test_the_way_is_short():
    assert len(architecture.PATH) <= architecture.MOST_FILES
    assert sum(architecture.lines(architecture.PACKAGE / name) for name in architecture.PATH) <= architecture.MOST_LINES


def test_files_and_functions_are_small():
    large = [str(file) for file in architecture.PACKAGE.rglob("*.py") if architecture.lines(file) > architecture.MOST_OF_A_FILE]
    large += [name for lines, _, name in architecture.functions() if lines > architecture.MOST_OF_A_FUNCTION]
    large += [name for _, count, name in architecture.functions() if count > architecture.MOST_ARGUMENTS]
    assert large == [architecture.EXCEPTION]


def test_the_page_names_the_files_and_its_numbers_are_not_old():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\S+\.py) \| (\d+) \|", page, re.MULTILINE))
    assert list(rows) == list(architecture.PATH)
    total = sum(architecture.lines(architecture.PACKAGE / name) for name in rows)
    assert sum(map(int, rows.values())) == pytest.approx(total, rel=0.1), "run python docs/architecture.py"
