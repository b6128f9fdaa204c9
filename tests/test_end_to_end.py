"""What ships: commands in processes of their own, with the compiler's default flags, all devices and nothing replaced.

Other tests replace batch shapes, devices and the compiler's optimisations to save minutes (conftest.py, environment.py).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FAMILIES = {
    "micse": "contrastive learning, with a queue and attention mutual information",
    "is_bert": "mutual information of a sentence and its tokens",
    "cons_sent": "consistency of sequences, a recurrent encoder",
    "multi_view": "two views on word vectors",
    "mlm": "a masked language model",
    "sbert_nli": "labelled pairs",
    "distill_encoder": "a teacher",
}
REPLACED = ("JAX_", "XLA_", "NPROC", "OMP_", "TOKENIZERS_", "PYTEST_")


def run(folder, *arguments):
    """Return the output of a command that succeeds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(REPLACED)}
    environment["JAX_SENTEMB_CACHE"] = str(Path("~/.cache/jax_sentemb/end_to_end").expanduser())  # of compiled programs, as users'
    done = subprocess.run(
        [sys.executable, "-m", "jax_sentemb", *map(str, arguments)], capture_output=True, text=True, cwd=folder, env=environment,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def trained(folder, recipe):
    """Return the output of a tiny run, whose last loss is finite."""
    output = run(folder, "train", "--config", f"{recipe}:tiny", "--workdir", recipe)
    events = [json.loads(line) for line in (folder / recipe / "metrics.jsonl").read_text().splitlines()]
    losses = [event["train/loss"] for event in events if "train/loss" in event]
    assert len(losses) == 6
    assert np.isfinite(losses).all()
    return output


@pytest.mark.parametrize("recipe", [name for name in FAMILIES if name != "micse"])
def test_a_family_of_methods_trains_scores_and_exports(tmp_path, recipe):
    output = trained(tmp_path, recipe)
    assert "max abs difference" in output
    assert (tmp_path / recipe / "report.html").is_file()


def test_commands_on_an_export_agree_with_sentence_transformers(tmp_path):
    """From training to search, and the vectors of `encode` are those that PyTorch computes from the export."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    trained(tmp_path, "micse")
    sentences = [line for line in (tmp_path / "micse" / "corpus.txt").read_text().splitlines() if line][:20]
    (tmp_path / "corpus.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    run(tmp_path, "export", "--workdir", "micse", "--output", "exported")
    run(tmp_path, "encode", "--model", "exported", "--input", "corpus.txt", "--output", "vectors.npy")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    expected = model.encode(sentences, normalize_embeddings=True)
    vectors = np.load(tmp_path / "vectors.npy").astype(np.float32)
    np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-3)
    output = run(tmp_path, "search", "--model", "exported", "--corpus", "corpus.txt", "--query", sentences[3], "--top-k", "1")
    assert sentences[3] in output
    pairs = tmp_path / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    pairs.parent.mkdir(parents=True)
    cosines = np.float64(expected[:10]) @ np.float64(expected[10:]).T  # all near 1 after six steps: every digit counts
    rows = [f"g\tf\t2017\t1\t{cosines[n, n]:.12f}\t{sentences[n]}\t{sentences[10 + n]}\n" for n in range(10)]
    pairs.write_text("".join(rows))
    output = run(tmp_path, "evaluate", "--model", "exported", "--data", ".", "--tasks", "STS-B")
    assert "100.00" in output  # the gold scores are the cosines that PyTorch found
