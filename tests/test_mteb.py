"""An export scored by mteb itself, on a task whose data are local: the same number as ours."""

import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.main import main


@pytest.mark.filterwarnings("ignore")
def test_mteb_gives_an_export_our_score(tmp_path, monkeypatch):
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    # A mean over tokens: with [CLS] all cosines of an untrained encoder agree to rounding, and their order means nothing.
    assert program(main, ["main", "--config=quickstart:tiny", "--config.train.max_steps=1", f"--workdir={tmp_path / 'run'}"]) == 0
    assert mteb.get_benchmark("MTEB(eng, v2)").tasks  # what docs/integrations.md names
    first, second, gold = synthetic.graded_pairs(80, seed=3)
    rows = {"sentence1": list(first), "sentence2": list(second), "score": [float(score) for score in gold]}

    class Local(type(mteb.get_task("STSBenchmark"))):
        def load_data(self, **options):
            self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(rows))
            self.data_loaded = True

    model = sentence_transformers.SentenceTransformer(str(tmp_path / "run/export"), device="cpu")
    (result,) = mteb.evaluate(model, [Local()], cache=None, show_progress_bar=False).task_results
    ours = SentenceEncoder(tmp_path / "run/export").evaluate(zip(*rows.values(), strict=True))
    np.testing.assert_allclose(100 * result.scores["test"][0]["cosine_spearman"], ours["spearman"], atol=1e-2)
    np.testing.assert_allclose(100 * result.scores["test"][0]["cosine_pearson"], ours["pearson"], atol=1e-2)
