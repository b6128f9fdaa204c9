"""An export scored by mteb itself, on a task whose data are local: the same number as ours."""

import jax
import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.data import synthetic
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.types import Rows


@pytest.mark.filterwarnings("ignore")
def test_mteb_gives_an_export_our_score(tmp_path, monkeypatch):
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    assert mteb.get_benchmark("MTEB(eng, v2)").tasks  # what docs/integrations.md names
    first, second, gold = synthetic.graded_pairs(80, seed=3)
    rows = {"sentence1": list(first), "sentence2": list(second), "score": [float(score) for score in gold]}

    tokenizer = Tokenizer.train([*first, *second], 400)
    config = BertConfig(tokenizer.vocab_size, 16, 1, 2, 32, 40, pad_token_id=tokenizer.pad_id)
    params = jax.jit(Bert(config).init)(jax.random.key(0), Rows(np.zeros((1, 3), np.int32), np.ones((1, 3), bool)))["params"]
    # A mean over tokens: with [CLS] all cosines of an untrained encoder agree to rounding, and their order means nothing.
    write_export(tmp_path / "export", SentenceModel(config, {"encoder": jax.device_get(params)}, tokenizer, "mean", 40))

    class Local(type(mteb.get_task("STSBenchmark"))):
        def load_data(self, **options):
            self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(rows))
            self.data_loaded = True

    model = sentence_transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    (result,) = mteb.evaluate(model, [Local()], cache=None, show_progress_bar=False).task_results
    ours = SentenceEncoder(tmp_path / "export").evaluate(zip(*rows.values(), strict=True))
    np.testing.assert_allclose(100 * result.scores["test"][0]["cosine_spearman"], ours["spearman"], atol=1e-2)
    np.testing.assert_allclose(100 * result.scores["test"][0]["cosine_pearson"], ours["pearson"], atol=1e-2)
