"""The notebook of docs/ runs from top to bottom: here as a script with the recipe's tiny form, in a kernel in the nightly tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs/notebooks/train.ipynb"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def outputs(file):
    """The text of the results of each cell of code."""
    cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    results = [[each["data"]["text/plain"] for each in cell["outputs"] if "data" in each] for cell in cells]
    return ["".join("".join(text) for text in found) for found in results]


def test_the_cells_run_with_a_tiny_encoder(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("sentence_transformers")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_SENTEMB_CACHE", "cache")
    names: dict[str, Any] = {}
    for source in code[:-1]:
        exec(source.replace('"quickstart"', '"quickstart:tiny"').replace("2000", "200").replace("=100", "=4"), names)
    *lines, difference = code[-1].splitlines()
    exec("\n".join(lines), names)
    assert (tmp_path / "my-encoder" / "modules.json").is_file()
    assert eval(difference, names) < 1e-5


@pytest.mark.nightly
def test_a_list_is_trained_on_saved_and_loaded_in_sentence_transformers(tmp_path):
    for package in ("nbclient", "ipykernel", "pandas", "sentence_transformers"):
        pytest.importorskip(package)
    code = [sys.executable, "-W", "ignore", "-c", RUN, NOTEBOOK, tmp_path / "done.ipynb"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_SENTEMB_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(code, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *_, scores, _, difference = outputs(tmp_path / "done.ipynb")
    before, after = (json.loads(scores.replace("'", '"'))[when] for when in ("before", "after"))
    assert after > before + 10
    assert (tmp_path / "my-encoder" / "modules.json").is_file()
    assert float(difference) < 1e-5
