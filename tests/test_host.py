"""A library leaves the program that uses it as it is."""

import contextlib
import io
import itertools
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_models import tiny_model

from jax_sentemb.data.cache import cache_folder
from jax_sentemb.files import cache_home
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.system.host import unchanged_logging

ROOT = Path(__file__).parents[1]
LINES = [f"a man number {number} was the {('cook', 'farmer', 'porter')[number % 3]}" for number in range(60)]


def test_no_public_call_changes_its_process(tmp_path):
    write_export(tmp_path / "model", tiny_model(LINES, 120))
    (tmp_path / "corpus.csv").write_text("".join(f"{line}\n" for line in ["text", *LINES]), encoding="utf-8")
    pairs = [f"{one}\t{other}\t{number % 5}" for number, (one, other) in enumerate(itertools.pairwise(LINES))]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\n" for line in ["sentence1\tsentence2\tscore", *pairs]), encoding="utf-8")
    command = [sys.executable, ROOT / "tests/host_state.py", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert [line for line in result.stderr.splitlines() if line.startswith("STATE CHANGED")] == []
    assert result.returncode == 0, result.stderr[-3000:]


@contextlib.contextmanager
def bare_root():
    """The root logger without handlers, as in a program that has not configured logging."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])
        yield logging.root


def test_absl_does_not_configure_the_logging_of_the_program(monkeypatch):
    absl = pytest.importorskip("absl.logging")
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    with bare_root() as root:
        with unchanged_logging(), unchanged_logging():
            absl.info("a remark")
            absl.warning("a warning of absl")
            logging.getLogger("program").warning("a warning of the program")
        assert root.handlers == []
        absl.info("a remark")
        assert root.handlers  # what absl does without the block
    assert printed.getvalue() == "a warning of absl\na warning of the program\n"  # as Python prints them without a handler


def test_the_handlers_of_the_program_get_each_record_once(monkeypatch):
    printed, own = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    logger = logging.getLogger("program")
    handler = logging.StreamHandler(own)
    logger.addHandler(handler)
    with bare_root() as root:
        try:
            with unchanged_logging():
                logger.warning("once")
                root.addHandler(logging.StreamHandler(own))
                logging.getLogger("other").warning("again")
        finally:
            logger.removeHandler(handler)
        assert len(root.handlers) == 1  # the one that the program added meanwhile
    assert own.getvalue() == "once\nagain\n"
    assert printed.getvalue() == ""


def test_blocks_in_several_threads_leave_no_handler():
    def enter(number):
        for _ in range(200):
            with unchanged_logging():
                assert logging.root.handlers

    with bare_root() as root, ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(8)))
        assert root.handlers == []


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_empty_name_of_the_cache_is_the_default(value, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAX_SENTEMB_CACHE", raising=False)
    if value is not None:
        monkeypatch.setenv("JAX_SENTEMB_CACHE", value)
    assert cache_home() == tmp_path / ".cache/jax_sentemb"
    assert cache_folder() == tmp_path / ".cache/jax_sentemb/text"


def test_the_caches_are_in_the_folder_of_the_variable_whatever_the_current_one_is(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_SENTEMB_CACHE", "mine")
    before = cache_home()
    assert before == tmp_path / "mine"
    assert before.is_absolute()


COMPILED = """
import jax
import jax_sentemb
jax_sentemb.use_compilation_cache()
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize(("given", "expected"), [("", "~/.cache/jax_sentemb/compiled"), ("~/mine", "~/mine/compiled")])
def test_programs_are_kept_in_the_same_folder_only_when_that_is_asked_for(given, expected, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    environment |= {"HOME": str(tmp_path), "JAX_SENTEMB_CACHE": given, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", COMPILED], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.strip() == expected.replace("~", str(tmp_path)), result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == []
