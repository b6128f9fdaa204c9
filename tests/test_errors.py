"""Every exception of the package crosses the border of a process with its message, exit code and attributes."""

import ast
import copy
import importlib
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import jax_sentemb
from jax_sentemb.errors import (
    ConfigError,
    NotFinite,
    Setting,
    UserError,
    first_line,
    flag,
    in_python,
    keyword,
    note_text,
    spelled,
    stored_text,
)

ARGUMENTS = {NotFinite: (3, "the loss is NaN")}  # of those that are not made of one message


def exceptions():
    """Every exception class that a module of the package defines."""
    names = (module.name for module in pkgutil.walk_packages(jax_sentemb.__path__, "jax_sentemb."))
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    own = (each for each in classes if issubclass(each, BaseException) and each.__module__.startswith("jax_sentemb"))
    return sorted(own, key=lambda each: each.__qualname__)


def same(copied, error):
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert copied.args == error.args
    assert vars(copied) == vars(error)


@pytest.mark.parametrize("error_type", exceptions(), ids=lambda each: each.__name__)
def test_an_exception_survives_pickle_and_copy(error_type):
    error = error_type(*ARGUMENTS.get(error_type, (f"corpus.txt: line 3\n{'x' * 3000} \x1b[2J: no text; give one",)))
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        same(pickle.loads(pickle.dumps(error, protocol)), error)
    same(copy.copy(error), error)
    assert vars(copy.copy(error)) is not vars(error)
    same(copy.deepcopy(error), error)


def test_an_exception_whose_message_was_changed_keeps_the_change():
    error = ConfigError("data.files=x: no such file")
    error.args = ("sentences=x: no such file",)  # as jax_sentemb.train does
    same(pickle.loads(pickle.dumps(error)), error)


def test_all_user_errors_are_found():
    assert {NotFinite, ConfigError} < set(exceptions())
    assert all(hasattr(each, "exit_code") for each in exceptions() if issubclass(each, UserError))


def diverge():
    raise NotFinite(3, "the loss is NaN")


def test_a_process_pool_gets_the_exception_of_its_worker():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.raises(NotFinite, match="step 3: the loss is NaN") as raised:
            pool.submit(diverge).result()
        assert raised.value.step == 3
        assert pool.submit(len, "abc").result() == 3  # the pool still works


def test_the_first_line_of_an_error_is_its_type_if_it_has_no_message():
    assert first_line(ValueError("\nno such layer\nmore")) == "no such layer"
    assert first_line(ValueError("x" * 400), 10) == "x" * 10
    assert first_line(KeyError()) == "KeyError"
    assert first_line(RuntimeError("")) == "RuntimeError"


def test_notes_spell_settings_as_their_user_gives_them():
    note = ("set ", Setting("eval.eval_steps", 10), " or ", Setting("encoder.weights"))
    assert note_text(*note) == "set --config.eval.eval_steps=10 or --config.encoder.weights"
    with spelled(keyword):
        assert in_python()
        assert note_text(*note) == "set eval__eval_steps=10 or model"
        assert stored_text(*note) == "set eval.eval_steps=10 or encoder.weights"
        with spelled(flag):
            assert not in_python()
    assert not in_python()


def test_only_commands_and_recipes_write_flags():
    """Other messages have a Setting, which is spelled for the shell or for Python."""
    package = Path(__file__).parents[1] / "jax_sentemb"
    files = [file for file in package.rglob("*.py") if file.relative_to(package).parts[0] not in ("cli", "recipes.py", "errors.py")]
    written = []
    for file in files:
        tree = ast.parse(file.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        written += [f"{file.name}: {node.value}" for node in texts if "--config." in node.value and id(node) not in docstrings]
    # A study, which only the shell can run, and the examples in the help of jax-sentemb.
    assert {text.partition(":")[0] for text in written} <= {"config.py", "__main__.py"}, written
