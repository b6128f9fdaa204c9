"""SentenceEncoder.encode with chunks: short texts do not change, mean and maximum equal NumPy's, each chunk has its place."""

import logging

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.formats.static_embedding import StaticTable, write_static
from jax_sentemb.inference import chunk_vectors

SENTENCES = ["A man plays the guitar.", "Two women dance on the grass.", "A small dog runs!", "Does a tall man eat?"]
LONG = " ".join(SENTENCES * 3)
TEXTS = ["A dog.", LONG, "", "Two women. " * 30, LONG, "  a  "]


@pytest.fixture(scope="module", params=[False, True], ids=["any length", "unit length"])
def encoder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_export(folder, tiny_model(SENTENCES, 100, normalize=request.param))
    return SentenceEncoder(folder, max_seq_length=20)


def expected(encoder, text, mode, prompt=""):
    """The vector of a text by hand, from the spans that chunks="each" returns."""
    each = encoder.encode(text, chunks="each", prompt=prompt)
    parts = [text[start:end] for start, end in zip(each.starts, each.ends, strict=True)]
    vectors = np.stack([encoder.encode(prompt + part, prompt="").astype(np.float64) for part in parts])
    np.testing.assert_allclose(each.embeddings, vectors, atol=1e-6)
    if len(parts) == 1:
        return vectors[0]
    if mode == "max":
        pooled = vectors.max(axis=0)
    else:
        lengths = [len(encoder.tokenizer.encode([prompt + part], 20)[0][0]) for part in parts]
        weights = [length - len(encoder.tokenizer.encode([prompt], 20)[0][0]) for length in lengths]
        pooled = sum(weight * vector for weight, vector in zip(weights, vectors, strict=True)) / sum(weights)
    is_unit = np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    return pooled / np.linalg.norm(pooled) if is_unit else pooled


def test_short_texts_have_exactly_the_same_vectors(encoder):
    texts = [*SENTENCES, "", " a ", "A dog."]
    for mode in ("mean", "max"):
        np.testing.assert_array_equal(encoder.encode(texts, chunks=mode), encoder.encode(texts))
    each = encoder.encode(texts, chunks="each")
    np.testing.assert_array_equal(each.embeddings, encoder.encode(texts))
    assert (each.rows.tolist(), each.starts.tolist(), each.ends.tolist()) == (
        [*range(len(texts))], [0] * len(texts), [len(text) for text in texts],
    )  # fmt: skip


@pytest.mark.parametrize("prompt", ["", "a man "])
@pytest.mark.parametrize("mode", ["mean", "max"])
def test_the_vector_of_a_long_text_is_that_of_numpy(encoder, mode, prompt):
    vectors = encoder.encode(TEXTS, chunks=mode, prompt=prompt)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(encoder, text, mode, prompt), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(LONG, chunks=mode, prompt=prompt), vectors[1], atol=1e-6)
    assert np.abs(vectors[1] - encoder.encode(LONG, prompt=prompt)).max() > 1e-3  # which is cut


def test_other_arguments_apply_to_the_vector_of_the_text(encoder):
    whole = encoder.encode(TEXTS, chunks="mean")
    narrow = encoder.encode(TEXTS, chunks="mean", truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(narrow, whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True), atol=1e-5)
    assert encoder.encode(TEXTS, chunks="each", precision="binary").embeddings.dtype == np.int8
    assert encoder.encode([], chunks="mean").shape == whole[:0].shape
    assert encoder.encode([], chunks="each").rows.shape == (0,)
    np.testing.assert_allclose(encoder.encode_document(TEXTS, chunks="max"), encoder.encode(TEXTS, chunks="max"), atol=1e-6)


def test_each_chunk_has_its_place(encoder):
    embeddings, rows, starts, ends = encoder.encode(TEXTS, chunks="each")
    assert sorted(set(rows.tolist())) == list(range(len(TEXTS)))
    assert len(embeddings) == len(rows) > len(TEXTS)
    for row, start, end in zip(rows, starts, ends, strict=True):
        assert len(encoder.tokenizer.encode([TEXTS[row][start:end]], 100)[0][0]) <= 20


def test_blocks_change_nothing(encoder, monkeypatch):
    whole = encoder.encode(TEXTS, chunks="mean")
    monkeypatch.setattr(chunk_vectors, "AT_ONCE", 2)
    np.testing.assert_allclose(encoder.encode(TEXTS, chunks="mean"), whole, atol=1e-6)


def test_nothing_is_cut(encoder, caplog):
    with caplog.at_level(logging.WARNING, "jax_sentemb"):
        encoder.encode(TEXTS, chunks="mean")
        assert (encoder.truncated, caplog.text) == (0, "")
        encoder.encode(TEXTS)
    assert encoder.truncated == 2
    assert "2 of 5 distinct sentences are longer than max_seq_length=20 tokens and were cut" in caplog.text


@pytest.mark.parametrize("mode", ["mean", "each"])
def test_progress_counts_texts(encoder, mode):
    finished = []
    encoder.encode(TEXTS, chunks=mode, progress=finished.append)
    assert sum(finished) == len(set(TEXTS))
    assert min(finished) >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": "sum"}, r"^chunks='sum'"),
        ({"chunks": True}, r"^chunks=True"),
        (
            {"chunks": "mean", "output_value": "token_embeddings"},
            r"^chunks is for sentence embeddings; leave out output_",
        ),
        ({"chunks": "mean", "prompt": "a man plays " * 9}, r"^prompt 'a man .* leaves no room for text within max_seq_length=20"),
    ],
)
def test_what_cannot_be_done_is_one_line(encoder, options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        encoder.encode(TEXTS, **options)
    assert "\n" not in str(caught.value)


def test_a_static_table_reads_whole_texts_unless_it_has_a_limit(tmp_path):
    tokenizer = tiny_model(SENTENCES, 100).tokenizer
    table = np.random.default_rng(0).normal(size=(tokenizer.vocab_size, 6)).astype(np.float32)
    write_static(tmp_path / "table", StaticTable(table, tokenizer, False))
    encoder = SentenceEncoder(tmp_path / "table")
    np.testing.assert_array_equal(encoder.encode(TEXTS, chunks="mean"), encoder.encode(TEXTS))
    assert encoder.encode(TEXTS, chunks="each").rows.tolist() == list(range(len(TEXTS)))
    encoder.max_seq_length = 7
    each = encoder.encode(LONG, chunks="each")
    assert len(each.rows) > 3
    counts = [len(ids) for ids in encoder.tokenizer.encode([LONG[a:b] for a, b in zip(each.starts, each.ends, strict=True)], 99)[0]]
    assert max(counts) <= 7
    mean = (np.array(counts)[:, None] * each.embeddings).sum(axis=0) / sum(counts)
    np.testing.assert_allclose(encoder.encode(LONG, chunks="mean"), mean, atol=1e-5)
