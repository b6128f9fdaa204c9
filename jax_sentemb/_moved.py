"""Modules under the names that they had before 0.1.0: they work for one release and say where they went."""

import importlib
import sys
import types
import warnings
from typing import Any


class _Moved(types.ModuleType):
    """A module whose names are those of `_targets`; it can be called where the package's root has a function of its name."""

    _targets: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for target in self._targets:
                module = importlib.import_module(target)
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def moved(name: str, *targets: str) -> None:
    """Make the module `name` stand for the modules `targets`; a DeprecationWarning at its import names them."""
    warnings.warn(
        f"{name} is {' and '.join(targets)} now; the old name goes with the next release", DeprecationWarning, stacklevel=3
    )
    module: Any = sys.modules[name]
    module.__class__ = _Moved
    module._targets = targets


def command(old: str, name: str) -> int:
    """The exit code of `jax-sentemb name`, called as python -m jax_sentemb.`old`."""
    from jax_sentemb.__main__ import main
    from jax_sentemb.cli.program import program

    print(f"note: python -m jax_sentemb.{old} is jax-sentemb {name} now", file=sys.stderr)
    return program(main, [f"jax-sentemb {name}", name, *sys.argv[1:]])
