"""The notebooks of docs/ run from top to bottom in a kernel of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


def test_a_list_is_trained_on_saved_and_loaded_in_sentence_transformers(tmp_path):
    for package in ("nbclient", "ipykernel", "pandas", "sentence_transformers"):
        pytest.importorskip(package)
    code = [sys.executable, "-W", "ignore", "-c", RUN, ROOT / "docs/notebooks/train.ipynb", tmp_path / "done.ipynb"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_SENTEMB_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(code, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *_, scores, _, difference = outputs(tmp_path / "done.ipynb")
    before, after = (json.loads(scores.replace("'", '"'))[when] for when in ("before", "after"))
    assert after > before + 10
    assert (tmp_path / "my-encoder" / "modules.json").is_file()
    assert float(difference) < 1e-5
