"""Every exception of the package crosses the border of a process with its message, exit code and attributes."""

import copy
import importlib
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import jax_sentemb
from jax_sentemb.errors import ConfigError, NotFinite, UserError

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
