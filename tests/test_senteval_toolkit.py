"""What the real SentEval toolkit is given."""

import subprocess
import sys

import numpy as np
import pytest

from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.evaluation.senteval_toolkit import senteval_batcher


def test_each_sentence_of_a_task_is_encoded_once_and_order_is_kept():
    calls = []

    def encode(sentences):
        calls.extend(sentences)
        return np.array([[len(sentence), 1.0] for sentence in sentences])

    prepare, batcher = senteval_batcher(encode)
    prepare(None, [["a", "b"], ["cd"], ["a", "b"], []])
    found = batcher(None, [[b"a", b"b"], [], ["a", "b"], ["new", "one"]])
    np.testing.assert_array_equal(found, [[3, 1], [0, 1], [3, 1], [7, 1]])
    assert found.dtype == np.float32
    assert calls == ["a b", "cd", "", "new one"]
    prepare(None, [["cd"]])  # the next task: nothing is kept
    assert calls[-1] == "cd"


def test_a_sentence_transformer_is_asked_by_its_encode():
    class Model:
        def encode(self, sentences, batch_size, show_progress_bar):
            assert (batch_size, show_progress_bar) == (7, False)
            return np.ones((len(sentences), 3))

    _, batcher = senteval_batcher(Model(), batch_size=7)
    assert batcher(None, [["a"], ["b"]]).shape == (2, 3)


def test_what_is_no_directory(tmp_path):
    with pytest.raises(ConfigError, match="is not a directory: give an export"):
        senteval_batcher(tmp_path / "absent")


def test_what_sentence_transformers_cannot_read_is_one_line(tmp_path):
    (tmp_path / "model.json").write_text('{"method": "MultiView"}')
    with pytest.raises(ModelFileError, match=r"cannot read it \(.*\); give jax_sentemb.SentenceEncoder"):
        senteval_batcher(tmp_path)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_function_that_returns_other_rows_is_refused(rows):
    _, batcher = senteval_batcher(lambda sentences: np.ones((rows, 2)))
    with pytest.raises(ConfigError, match=rf"shape \[{rows}, 2\] for 2 sentences"):
        batcher(None, [["a"], ["b"]])


def test_nothing_heavy_is_imported():
    code = (
        "import sys, jax_sentemb.evaluation.senteval_toolkit\nassert not {'jax', 'torch', 'sentence_transformers'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
