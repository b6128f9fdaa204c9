"""Packed rows: every token once and in order, no row beyond a document, the same rows whatever is packed at once."""

import numpy as np
import pytest

from jax_sentemb.config import Config, Data
from jax_sentemb.data import packing
from jax_sentemb.data.batches import Batches
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import train_validation_split
from jax_sentemb.data.packing import pack
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import ALL, Subsample, tokenize
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.recipes import read_config
from jax_sentemb.training.setup import prepare

WIDTH = 16


@pytest.fixture
def corpus(tmp_path):
    """Two files of documents: blank lines of several kinds, trailing spaces, a sentence longer than rows."""
    random = np.random.default_rng(0)

    def sentence(words):
        return " ".join(random.choice(["red", "green", "blue", "apples", "pears", "fall", "grow"], words))

    documents = [[sentence(random.integers(1, 12)) for _ in range(random.integers(1, 9))] for _ in range(40)]
    documents[3].append(sentence(70))
    documents[5][0] += "  "
    ends = ["\n\n", "\n \t\n", "\r\n\r\n", "\n\n\n"]
    texts = [
        "".join("\n".join(document) + ends[at % 4] for at, document in enumerate(part)) for part in (documents[:25], documents[25:])
    ]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text, newline="")
    return f"{tmp_path}/a.txt,{tmp_path}/b.txt", documents


def packed(files, folder, subset=ALL):
    sentences = open_corpus(files)
    tokenizer = Tokenizer.train(sentences, 80)
    tokens = tokenize(sentences, tokenizer, 512, folder, subset, ordered=True)
    return pack(tokens, sentences, WIDTH, folder), tokens, tokenizer, sentences


def test_rows_are_the_documents_cut(corpus, tmp_path):
    files, documents = corpus
    rows, _, tokenizer, _ = packed(files, tmp_path)
    expected, lines, line = [], [], 0
    for document in documents:
        stream = []
        for sentence in document:
            ids = tokenizer.encode([sentence], 512)[0][0].tolist()[1:]
            stream += [(number, line) for number in ids]
            line += 1
        for start in range(0, len(stream), WIDTH - 2):
            part = stream[start : start + WIDTH - 2]
            part = part[1:] if part[0][0] == tokenizer.sep_id else part
            if part:
                body = [number for number, _ in part]
                expected.append([tokenizer.cls_id, *body, *[tokenizer.sep_id] * (body[-1] != tokenizer.sep_id)])
                lines.append(part[0][1])
    assert [rows.ids(row).tolist() for row in range(len(rows))] == expected
    assert rows.line.tolist() == lines
    assert rows.lengths.tolist() == list(map(len, expected))
    assert rows.lengths.max() == WIDTH
    assert rows.report["documents"] == len(documents)
    assert rows.report["usable"] == len(expected)


@pytest.mark.parametrize("at_once", [1, 7])
@pytest.mark.parametrize("subset", [ALL, Subsample(30)])
def test_rows_do_not_depend_on_what_is_packed_at_once(corpus, tmp_path, monkeypatch, at_once, subset):
    files, _ = corpus
    whole = packed(files, tmp_path / "whole", subset)[0]
    monkeypatch.setattr(packing, "SENTENCES", at_once)
    parts = packed(files, tmp_path / "parts", subset)[0]
    assert [parts.ids(row).tolist() for row in range(len(parts))] == [whole.ids(row).tolist() for row in range(len(whole))]
    np.testing.assert_array_equal(parts.line, whole.line)
    assert parts.report == whole.report
    assert parts.fingerprint == whole.fingerprint


def test_text_without_blank_lines_is_one_document_without_padding(tmp_path):
    (tmp_path / "a.txt").write_text("red apples fall\n" * 100)
    rows, *_ = packed(f"{tmp_path}/a.txt", tmp_path)
    assert rows.report["documents"] == 1
    assert (rows.lengths[:-1] >= WIDTH - 2).all()


def test_batches_shuffle_rows_and_rows_are_held_out_exactly(corpus, tmp_path):
    rows = packed(corpus[0], tmp_path)[0]
    batches = Batches(rows, 4, 0)
    drawn = np.concatenate([batches.rows(step) for step in range(batches.steps_per_epoch)])
    assert len(np.unique(drawn)) == len(drawn)
    assert (np.diff(drawn) < 0).any()
    rest, held = train_validation_split(rows, 20, 0)
    assert (len(rest), len(held)) == (len(rows) - 20, 20)
    texts = [text.tobytes() for part in (rest, held) for text in part.texts(np.arange(len(part)), 0)[0]]
    assert sorted(texts) == sorted(rows.ids(row).tobytes() for row in range(len(rows)))


def test_the_setting_reaches_the_method_and_others_refuse_it(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path))
    data = Data(files=corpus[0], vocab_size=80, max_seq_length=WIDTH, batch_size=4, pack=True)
    assert prepare(Config(MaskedLM(), data), tmp_path).examples.report["documents"] == len(corpus[1])
    with pytest.raises(ConfigError, match="SimCSE reads single sentences"):
        prepare(Config(SimCSE(), data), tmp_path)


def test_the_recipe_of_masked_language_models_packs():
    assert read_config("mlm").data.pack
    assert read_config("mlm:tiny").data.pack
