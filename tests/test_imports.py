"""The rooms of the package: imports go down only, without circles."""

import ast
from pathlib import Path

import pytest

import jax_sentemb

PACKAGE = Path(__file__).parents[1] / "jax_sentemb"
FLOORS = (  # a folder or module imports its own folder and what stands below; reporting does not know training
    {"__init__", "__main__"},
    {"main"},
    {"cli"},
    {"planning"},
    {"training"},
    {"reporting"},
    {"evaluation", "recipes", "paper_configs", "distillation"},
    {"config", "inference"},
    {"formats"},
    {"methods", "retrieval"},
    {"parallel", "data"},
    {"side_files"},
    {"losses", "models", "provenance", "checks", "cosines"},
    {"types", "files", "public_text", "settings", "setting_texts"},
    {"system"},
    {"errors"},
)
FLOOR = {room: number for number, rooms in enumerate(reversed(FLOORS)) for room in rooms}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path for path in PACKAGE.rglob("*.py")
}


def imports(source, modules):
    """(line, module) of everything that a file imports from the package, wherever in the file; its version is not an import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("jax_sentemb."):
                    yield node.lineno, alias.name.removeprefix("jax_sentemb.")
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jax_sentemb":
            module = (node.module or "").removeprefix("jax_sentemb").removeprefix(".")
            for alias in node.names:
                inner = f"{module}.{alias.name}".removeprefix(".")
                if alias.name != "__version__":
                    yield node.lineno, inner if inner in modules else module or "__init__"


def upward(name, source, modules=MODULES):
    """The imports of a module that go up, or to another room of its floor."""
    room = name.partition(".")[0]
    for line, module in imports(source, modules):
        other = module.partition(".")[0]
        if room != other and FLOOR[other] >= FLOOR[room]:
            yield f"{name}:{line} imports {module}"


def test_every_room_has_a_floor():
    assert {name.partition(".")[0] for name in MODULES} == set(FLOOR)


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_imports_go_down(name):
    assert not list(upward(name, MODULES[name].read_text(encoding="utf-8")))


def test_an_import_that_goes_up_is_found():
    found = list(
        upward("data.tokens", "def f():\n    from jax_sentemb.formats import manifest\n    from jax_sentemb import errors\n")
    )
    assert found == ["data.tokens:2 imports formats.manifest"]
    assert list(upward("methods.x", "import jax_sentemb.retrieval.search")) == ["methods.x:1 imports retrieval.search"]


def test_no_circle_of_modules():
    graph = {name: {module for _, module in imports(path.read_text(encoding="utf-8"), MODULES)} for name, path in MODULES.items()}
    graph["__init__"] = set()  # lazy
    while free := {name for name, below in graph.items() if not below & graph.keys()}:
        graph = {name: below for name, below in graph.items() if name not in free}
    assert not graph


def test_the_root_has_what_it_promises():
    for name in jax_sentemb.__all__:
        assert getattr(jax_sentemb, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = jax_sentemb.absent
