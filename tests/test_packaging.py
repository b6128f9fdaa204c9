"""What is installed: the files of the wheel, the oldest supported versions, and the Pythons that CI tests."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
MATRIX = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]["tests"]["strategy"]["matrix"]
# Prints the folders of packages that are not where their name says, and the patterns of package data, as setuptools reads them.
SETTINGS = """
import json, runpy, setuptools
arguments = {}
setuptools.setup = lambda **keywords: arguments.update(keywords)
runpy.run_path("setup.py")
distribution = setuptools.Distribution(arguments)
distribution.parse_config_files()
print(json.dumps([distribution.package_dir, distribution.package_data]))
"""


def name_of(requirement):
    return requirement.name.lower().replace("_", "-")


def requirements():
    """All requirements of the package and its extras, without the extras that consist of other extras."""
    lines = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    return [requirement for requirement in map(Requirement, lines) if requirement.name != PROJECT["name"]]


def pins(file):
    """(name, version) of each line of a file of constraints."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    for requirement in map(Requirement, (line for line in lines if not line.startswith("#"))):
        (pin,) = requirement.specifier
        assert pin.operator == "==", requirement
        yield name_of(requirement), Version(pin.version)


def test_messages_name_packages_of_the_extras():
    """A message names packages and not an extra, because `jax_sentemb[...]` could not be found before the first release."""
    known = {name_of(requirement) for requirement in requirements()}
    for file in (ROOT / "jax_sentemb").rglob("*.py"):
        for packages in re.findall(r"pip install ([\w\[\]'\" -]+)", file.read_text(encoding="utf-8")):
            for word in packages.split(" (")[0].split():
                assert name_of(Requirement(word.strip("'\""))) in known, f"{file.name}: pip install {packages}"


def test_the_lower_bounds_are_the_oldest_versions_that_are_tested():
    bounds = {}
    for requirement in requirements():
        lowest = {Version(part.version) for part in requirement.specifier if part.operator == ">="}
        assert len(lowest) == 1, f"{requirement}: needs one lower bound"
        assert bounds.setdefault(name_of(requirement), lowest) == lowest, f"{requirement}: two lower bounds"
    assert {name: {version} for name, version in pins("constraints-oldest.txt")} == bounds


def test_the_versions_of_development_are_supported():
    versions = list(pins("constraints.txt"))
    for requirement in requirements():
        for name, version in versions:
            assert name != name_of(requirement) or version in requirement.specifier, f"{name}=={version}: not {requirement}"


def test_the_classifiers_are_the_pythons_that_ci_tests():
    tested = {job["python"] for job in MATRIX["include"]}
    assert {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)} == tested
    assert PROJECT["requires-python"] == f">={min(tested, key=Version)}"
    assert {job["constraints"] for job in MATRIX["include"]} == {"constraints.txt", "constraints-oldest.txt", ""}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the tracked files, unpacked; the names of its files; and the folder that it was built in."""
    pytest.importorskip("setuptools", "77")
    git = shutil.which("git")
    listed = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if not listed or listed.returncode:
        pytest.skip("the files that git tracks are unknown: no git, or no repository")
    tree, unpacked = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("unpacked")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    build = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, check=True)
    (file,) = (tree / "dist").iterdir()
    with zipfile.ZipFile(file) as archive:
        archive.extractall(unpacked)
        names = {name for name in archive.namelist() if not name.endswith("/")}
    return unpacked, names, tree


def tracked(tree, folder):
    """Files that git tracks in a folder, relative to it."""
    return {path.relative_to(tree / folder).as_posix() for path in (tree / folder).rglob("*") if path.is_file()}


def test_the_wheel_has_all_that_the_package_needs_and_nothing_else(wheel):
    _, names, tree = wheel
    done = subprocess.run([sys.executable, "-c", SETTINGS], cwd=tree, capture_output=True, text=True, check=True)
    folders, patterns = json.loads(done.stdout)
    folders = {"jax_sentemb": "jax_sentemb", **folders}
    sources = {f"{package.replace('.', '/')}/{name}" for package, folder in folders.items() for name in tracked(tree, folder)}
    code = {name for name in names if ".dist-info/" not in name}
    assert sorted(code - sources) == []
    whole = tuple(f"{package.replace('.', '/')}/" for package, folder in folders.items() if folder in ("jax_sentemb", "configs"))
    assert sorted(name for name in sources - code if name.startswith(whole)) == []
    for package, listed in patterns.items():
        for pattern in listed:
            assert fnmatch.filter(code, f"{package.replace('.', '/')}/{pattern}"), f"{package}: no file is {pattern}"
    described = {name.partition("/")[2] for name in names - code}
    assert described == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}


def test_the_wheel_works_without_the_checkout(wheel, tmp_path):
    unpacked, _, _ = wheel
    code = """
import jax_sentemb
from jax_sentemb.__main__ import main
print(jax_sentemb.__file__)
main(["", "recipes"])
print(jax_sentemb.SentenceEncoder("mini-distilled").encode(jax_sentemb.sample_sentences()[:2]).shape)
"""
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(unpacked))
    assert "simcse" in done.stdout
    assert done.stdout.endswith("(2, 384)\n")
