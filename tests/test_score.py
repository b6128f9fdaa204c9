"""jax_sentemb.score: an encoder on pairs, on tables and on a SentEval folder."""

import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.evaluation.catalog import SETS
from jax_sentemb.evaluation.score import score

PAIRS = [("a b", "a b", 5), ("a b", "a c", 3.5), ("a", "d", 0), ("c d", "c a", 2)]


class Letters:
    """Encodes a sentence as how often it has each of four letters."""

    def encode(self, sentences):
        return np.array([[sentence.count(letter) for letter in "abcd"] for sentence in sentences], np.float32)


def write_sts13(root):
    for subset in SETS["STS13"].spec.files:
        folder = root / "downstream/STS/STS13-en-test"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"STS.input.{subset}.txt").write_text("".join(f"{one}\t{other}\n" for one, other, _ in PAIRS))
        (folder / f"STS.gs.{subset}.txt").write_text("".join(f"{gold}\n" for *_, gold in PAIRS))


def test_pairs_are_correlated_with_the_cosines():
    cosines = [1, 0.5, 0, 0.5]
    found = score(Letters(), PAIRS)
    assert found["pairs"] == 4
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(cosines, [5, 3.5, 0, 2])[0, 1], abs=1e-4)
    assert found["spearman"] == pytest.approx(94.868, abs=1e-2)


@pytest.mark.parametrize("table", ["dict", "pandas", "datasets"])
def test_a_table_of_pairs_in_memory_is_scored(table):
    first, second, gold = zip(*PAIRS, strict=True)
    columns = {"score": list(gold), "sentence1": list(first), "more": [0] * 4, "sentence2": list(second)}
    if table != "dict":
        module = pytest.importorskip(table)
        columns = module.DataFrame(columns) if table == "pandas" else module.Dataset.from_dict(columns)
    assert score(Letters(), columns) == score(Letters(), PAIRS)


def test_queries_and_documents_are_encoded_by_their_own_methods(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "a b"}\n{"_id": "2", "text": "c d"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t2\t1\n")

    class Reversed(Letters):
        def encode_query(self, sentences):
            return self.encode(sentences)[:, ::-1]

    found = [score(encoder, retrieval=tmp_path, resamples=0)["MRR@10"] for encoder in (Letters(), Reversed())]
    assert found == [50, 100]


def test_tasks_of_a_folder_are_scored_by_name(tmp_path):
    write_sts13(tmp_path)
    assert score(Letters(), tmp_path, "sts13") == {"STS13": pytest.approx(score(Letters(), PAIRS * 3)["spearman"], abs=1e-4)}
    assert score(Letters(), str(tmp_path)).keys() == {"STS13"}


def test_what_cannot_be_scored_is_said(tmp_path):
    write_sts13(tmp_path)
    with pytest.raises(DataError, match="pair 1 is not"):
        score(Letters(), [PAIRS[0], ("a", "b")])
    for gold in ("5", float("nan"), True, None):
        with pytest.raises(DataError, match=r"^pair 1: score=.* must be a finite number"):
            score(Letters(), [PAIRS[0], ("a", "b", gold)])
    with pytest.raises(DataError, match="all 4 pairs have the gold score 1"):
        score(Letters(), [(first, second, 1) for first, second, _ in PAIRS])
    with pytest.raises(ConfigError, match=r"^tasks='STS12' are those of a SentEval folder"):
        score(Letters(), PAIRS, "STS12")
    with pytest.raises(ConfigError, match=r"^tasks=STS99 is unknown"):
        score(Letters(), tmp_path, "STS99")
    with pytest.raises(DataError, match=r"absent\.tsv': no such file"):
        score(Letters(), tmp_path / "absent.tsv")
    with pytest.raises(DataError, match="is not a SentEval directory"):
        score(Letters(), tmp_path / "downstream/STS")
    with pytest.raises(
        DataError, match=r"^data is dict with the columns sentence1, sentence2; it needs sentence1, sentence2, score$"
    ):
        score(Letters(), {"sentence1": ["a"], "sentence2": ["b"]})
    with pytest.raises(DataError, match=r"^data: the columns sentence1, sentence2, score have 2, 2, 1 rows$"):
        score(Letters(), {"sentence1": ["a", "b"], "sentence2": ["b", "a"], "score": [1]})
    with pytest.raises(DataError, match="data is empty"):
        score(Letters(), [])
    with pytest.raises(DataError, match="STS12-en-test"):
        score(Letters(), tmp_path, "STS12")
