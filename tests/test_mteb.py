"""An export scored by mteb itself, on STS-B in the format of SentEval: the same number as ours."""

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.data import synthetic
from jax_sentemb.formats.sentence_transformers import write_export

PLACE = "downstream/STS/STSBenchmark/sts-test.csv"


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """An untrained encoder that is read by the mean: with [CLS] all its cosines would agree to rounding."""
    first, second, _ = synthetic.graded_pairs(80, seed=3)
    folder = tmp_path_factory.mktemp("export") / "export"
    write_export(folder, tiny_model([*first, *second], 400, positions=40))
    return folder


@pytest.fixture(params=["generated", "published"])
def senteval(request, tmp_path):
    """A SentEval folder with the test part of STS-B: written here, or the published one."""
    if request.param == "published":
        return request.getfixturevalue("shared") / "data/senteval"
    (tmp_path / PLACE).parent.mkdir(parents=True)
    pairs = enumerate(zip(*synthetic.graded_pairs(80, seed=3), strict=True))
    lines = [f"main\tmade\t2026\t{row}\t{gold:.3f}\t{first}\t{second}\n" for row, (first, second, gold) in pairs]
    (tmp_path / PLACE).write_text("".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_mteb_gives_an_export_our_score(export, senteval, tmp_path, monkeypatch):
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    assert mteb.get_benchmark("MTEB(eng, v2)").tasks  # what docs/integrations.md names
    rows = [line.split("\t") for line in (senteval / PLACE).read_text(encoding="utf-8").splitlines()]
    columns = {"sentence1": [row[5] for row in rows], "sentence2": [row[6] for row in rows]}
    columns["score"] = [float(row[4]) for row in rows]

    class Local(type(mteb.get_task("STSBenchmark"))):
        def load_data(self, **options):
            self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(columns))
            self.data_loaded = True

    model = sentence_transformers.SentenceTransformer(str(export), device="cpu")
    (result,) = mteb.evaluate(model, [Local()], cache=None, show_progress_bar=False).task_results
    ours = SentenceEncoder(export).evaluate(senteval, tasks="STS-B")
    np.testing.assert_allclose(100 * result.scores["test"][0]["cosine_spearman"], ours["STSBenchmark-test"], atol=1e-2)
