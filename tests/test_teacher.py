"""Vectors of a teacher: computed once, continued after an interruption, read by line; a model, a directory or several."""

import errno
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb.data import synthetic
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokens import ALL, Subsample, draw
from jax_sentemb.distillation import teacher as module
from jax_sentemb.distillation.teacher import open_teacher, teacher_names, teacher_vectors
from jax_sentemb.errors import ConfigError, DataError, ResourceError
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import write_shards
from jax_sentemb.training.api import train
from jax_sentemb.types import EncodedSentences

LINES = [*synthetic.sentences(40, 0), synthetic.sentences(40, 0)[0], *synthetic.sentences(30, 5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    write_export(folder / "model", tiny_model(LINES, 300, settings=EncodeSettings({"document": "text: "})))
    (folder / "corpus.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "ROWS", 16)
    return tmp_path / "text"


def expected(folder, lines=LINES):
    return SentenceEncoder(folder / "model").encode(lines, normalize_embeddings=True, prompt_name="document")


def test_a_model_is_read_by_line_with_its_prompt_at_length_1_in_float16(folder, cache):
    vectors = teacher_vectors(str(folder / "model"), "float32", open_corpus(str(folder / "corpus.txt")), ALL)
    lines = np.array([70, 3, 40, 3])
    np.testing.assert_allclose(vectors.take(lines), expected(folder)[lines], atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors.take(lines), axis=1), 1, atol=1e-6)
    (entry,) = cache.glob("*.vectors")
    assert np.load(entry / "000000.npy").dtype == np.float16
    assert len(list(entry.glob("*.npy"))) == -(-len(LINES) // 16)


def test_a_subset_encodes_its_lines_only(folder, cache):
    sentences = open_corpus(str(folder / "corpus.txt"))
    subset = Subsample(20, 3)
    lines = draw(len(sentences), subset)
    vectors = teacher_vectors(str(folder / "model"), "float32", sentences, subset)
    np.testing.assert_allclose(vectors.take(lines[[19, 0, 7]]), expected(folder)[lines[[19, 0, 7]]], atol=1e-3)
    (entry,) = cache.glob("*.vectors")
    assert json.loads((entry / "vectors.json").read_text())["rows"] == 20
    assert teacher_vectors(str(folder / "model"), "float32", sentences, Subsample(20, 4)).fingerprint != vectors.fingerprint


def count_encoded(monkeypatch):
    encoded = []
    encode = SentenceEncoder.encode

    def counting(self, texts, *arguments, **options):
        encoded.append(len(texts))
        if len(encoded) == counting.fails_at:
            raise KeyboardInterrupt
        return encode(self, texts, *arguments, **options)

    counting.fails_at = -1
    monkeypatch.setattr(SentenceEncoder, "encode", counting)
    return encoded, counting


def test_an_interrupted_computation_continues_and_a_finished_one_is_not_repeated(folder, cache, monkeypatch):
    encoded, counting = count_encoded(monkeypatch)
    counting.fails_at = 3
    sentences = open_corpus(str(folder / "corpus.txt"))
    with pytest.raises(KeyboardInterrupt):
        teacher_vectors(str(folder / "model"), "float32", sentences, ALL)
    counting.fails_at = -1
    del encoded[:]
    first = teacher_vectors(str(folder / "model"), "float32", sentences, ALL)
    assert sum(encoded) == len(LINES) - 32
    del encoded[:]
    again = teacher_vectors(str(folder / "model"), "float32", sentences, ALL)
    assert (encoded, again.fingerprint) == ([], first.fingerprint)


@pytest.mark.parametrize("damage", ["shard", "manifest"])
def test_a_damaged_entry_is_computed_again(folder, cache, damage):
    sentences = open_corpus(str(folder / "corpus.txt"))
    before = teacher_vectors(str(folder / "model"), "float32", sentences, ALL).take(np.arange(len(LINES)))
    (entry,) = cache.glob("*.vectors")
    file = entry / {"shard": "000001.npy", "manifest": "vectors.json"}[damage]
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    after = teacher_vectors(str(folder / "model"), "float32", sentences, ALL).take(np.arange(len(LINES)))
    np.testing.assert_array_equal(before, after)


def test_another_precision_or_text_has_another_entry(folder, cache, tmp_path):
    (tmp_path / "other.txt").write_text("\n".join(LINES[1:]) + "\n", encoding="utf-8")
    prints = {
        teacher_vectors(str(folder / "model"), dtype, open_corpus(str(text)), ALL).fingerprint
        for dtype, text in (
            ("float32", folder / "corpus.txt"),
            ("bfloat16", folder / "corpus.txt"),
            ("float32", tmp_path / "other.txt"),
        )
    }
    assert len(prints) == len(list(cache.glob("*.vectors"))) == 3


def write_directory(folder, path, corpus_sha256, rows=LINES):
    sources = {
        "model": Source("m", "m"), "corpus": Source("text", corpus_sha256), "precision": "float32", "dtype": "float32",
        "normalize": False, "max_seq_length": 40, "rows_per_shard": 32, "format": "npy",
    }  # fmt: skip
    write_shards(path, marked(sources), rows, lambda texts: EncodedSentences(3 * expected(folder, texts), 0), lambda rows: None)


def test_a_directory_of_encode_is_used_as_it_is_if_it_has_the_same_text(folder, tmp_path):
    sentences = open_corpus(str(folder / "corpus.txt"))
    write_directory(folder, tmp_path / "vectors", sentences.fingerprint)
    vectors = teacher_vectors(str(tmp_path / "vectors"), "float32", sentences, Subsample(10, 0))
    np.testing.assert_allclose(vectors.take(np.array([5, 60])), expected(folder)[[5, 60]], atol=1e-5)
    write_directory(folder, tmp_path / "other", "x")
    write_directory(folder, tmp_path / "shorter", sentences.fingerprint, LINES[:50])
    for name, problem in (
        ("other", r"from corpus text \(SHA-256 x\), not from corpus of data\.files"),
        ("shorter", "has 50 vectors, data.files has 71 texts"),
    ):
        with pytest.raises(DataError, match=rf"method\.teacher=.*{problem}"):
            teacher_vectors(str(tmp_path / name), "float32", sentences, ALL)
    np.save(tmp_path / "file.npy", expected(folder))
    alone = teacher_vectors(str(tmp_path / "file.npy"), "float32", sentences, ALL)
    np.testing.assert_allclose(alone.take(np.array([5])), expected(folder)[[5]], atol=1e-6)
    np.save(tmp_path / "file.npy", expected(folder)[::-1])
    assert teacher_vectors(str(tmp_path / "file.npy"), "float32", sentences, ALL).fingerprint != alone.fingerprint


@pytest.mark.parametrize("row", [0, 15, 16, len(LINES) - 1])
def test_a_file_of_vectors_with_nan_names_its_row(folder, tmp_path, row):
    vectors = expected(folder)
    vectors[row, 3] = np.nan
    np.save(tmp_path / "file.npy", vectors)
    with pytest.raises(DataError, match=rf"^method\.teacher=.*file\.npy: row {row} is not finite \(NaN or Inf\); compute"):
        teacher_vectors(str(tmp_path / "file.npy"), "float32", open_corpus(str(folder / "corpus.txt")), ALL)


def test_a_directory_of_a_text_with_blank_lines_has_a_row_for_each_line(folder, tmp_path):
    lines = [line for number, line in enumerate(LINES) for line in ([""] * (number % 4 == 1) + [line])]
    (tmp_path / "gaps.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sentences = open_corpus(str(tmp_path / "gaps.txt"))
    write_directory(folder, tmp_path / "vectors", sentences.fingerprint, lines)
    vectors = teacher_vectors(str(tmp_path / "vectors"), "float32", sentences, ALL)
    np.testing.assert_allclose(vectors.take(np.array([70, 1, 5])), expected(folder)[[70, 1, 5]], atol=1e-5)


def test_the_cosine_of_several_teachers_is_the_mean_of_theirs(folder):
    sentences = open_corpus(str(folder / "corpus.txt"))
    names = str(folder / "model"), "words:17"
    both = teacher_vectors(", ".join(names), "float32", sentences, ALL)
    rows = np.array([1, 2, 50])
    assert both.width == 16 + 17
    cosines = [
        each.take(rows) @ each.take(rows).T
        for each in (both, *(teacher_vectors(name, "float32", sentences, ALL) for name in names))
    ]
    np.testing.assert_allclose(cosines[0], (cosines[1] + cosines[2]) / 2, atol=1e-5)


def tf_idf(lines):
    """The tf-idf vectors of lines, by the definition: a column for each word."""
    words = [re.findall(r"\w+", line.lower()) for line in lines]
    vocabulary = sorted({word for each in words for word in each})
    counts = np.array([[each.count(word) for word in vocabulary] for each in words])
    weights = np.log((1 + len(lines)) / (1 + (counts > 0).sum(axis=0))) + 1
    return counts * weights / np.linalg.norm(counts * weights, axis=1, keepdims=True)


def test_vectors_of_words_have_the_cosines_of_tf_idf(tmp_path):
    lines = ["The dog saw the cat.", "The cat saw a mouse", "the, the!", "A quark decays", "The quark saw the dog", "The end"]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    vectors = teacher_vectors("words:9999", "float32", open_corpus(str(tmp_path / "lines.txt")), ALL).take(np.arange(len(lines)))
    exact = tf_idf(lines)
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=0.05)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_words_of_a_text_that_was_edited_are_refused(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("the dog\nthe cat\n", encoding="utf-8")
    teacher = teacher_vectors("words:4096", "float32", open_corpus(str(file)), ALL)
    teacher.take(np.arange(2))
    file.write_text("the cat\nthe dog\n", encoding="utf-8")
    with pytest.raises(DataError, match="changed"):
        teacher.take(np.arange(2))


def test_a_text_without_words_has_a_vector(tmp_path):
    (tmp_path / "lines.txt").write_text("?!\n...\nwords\n", encoding="utf-8")
    vectors = teacher_vectors("words:4096", "float32", open_corpus(str(tmp_path / "lines.txt")), ALL).take(np.arange(3))
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(3), atol=0.1)


def test_a_path_with_a_comma_is_one_teacher(folder, tmp_path):
    shutil.copytree(folder / "model", tmp_path / "a,b")
    assert teacher_names(str(tmp_path / "a,b")) == [str(tmp_path / "a,b")]
    assert teacher_names("one, two,") == ["one", "two"]
    path = str(tmp_path / "a,b")
    assert teacher_names(f"one,{path},{path}@mean, two") == ["one", path, f"{path}@mean", "two"]


def test_words_of_scripts_without_spaces_are_pairs_of_characters(tmp_path):
    lines = [
        "我在北京的公园里散步",
        "北京有很多公园",
        "股票市场今天下跌",
        "हिन्दी में लिखा",
        "हिन्दी",
        "cafe\u0301",
        "caf\u00e9",
        "东 kg",
        "东",
        "हानीदू",
    ]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    vectors = teacher_vectors("words:4096", "float32", open_corpus(str(tmp_path / "lines.txt")), ALL).take(np.arange(len(lines)))
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.2 > cosines[0, 2] + 0.1
    assert cosines[3, 4] > 0.4
    assert cosines[4, 9] < 0.1  # the same consonants with other vowels
    assert cosines[5, 6] == pytest.approx(1)
    assert cosines[7, 8] > 0.5


def test_an_entry_without_its_description_is_computed_again(folder, cache):
    sentences, name = open_corpus(str(folder / "corpus.txt")), str(folder / "model")
    teacher_vectors(name, "float32", sentences, ALL)
    (entry,) = cache.glob("*.vectors")
    (entry / "vectors.json").unlink()
    vectors = teacher_vectors(name, "float32", sentences, ALL).take(np.arange(5))
    np.testing.assert_allclose(vectors, expected(folder, LINES[:5]), atol=1e-3)


def test_a_file_of_vectors_that_is_absent_is_named(folder):
    with pytest.raises(ConfigError, match=r"^method\.teacher=absent\.npy: no such file$"):
        teacher_vectors("absent.npy", "float32", open_corpus(str(folder / "corpus.txt")), ALL)


def test_every_teacher_is_opened_before_one_encodes(folder, cache):
    names = f"{folder / 'model'},words:10000"
    with pytest.raises(ConfigError, match=r"words:10000: write words:WIDTH with a WIDTH from 16 to 9999"):
        teacher_vectors(names, "float32", open_corpus(str(folder / "corpus.txt")), ALL)
    assert not list(cache.glob("*.vectors"))


def test_too_little_text_is_told_before_a_teacher_encodes_it(folder, cache, tmp_path):
    given = {"recipe": "distill_encoder", "teacher": str(folder / "model"), "layers": 1, "data__max_seq_length": 16}
    with pytest.raises(DataError, match=r"data__validation=1000 leaves none of the \d+ examples to train on"):
        train(folder / "corpus.txt", **given, workdir=tmp_path / "run")
    assert not list(cache.glob("*.vectors"))


def test_a_misspelled_keyword_is_told_the_right_ones(folder):
    with pytest.raises(ConfigError, match=r"^method\.teacher=Start: .*; other teachers are start and words:4096$"):
        teacher_vectors("Start", "float32", open_corpus(str(folder / "corpus.txt")), ALL)


@pytest.mark.parametrize("name", ["./missing", "words:0", "words:x", "words:15"])
def test_a_teacher_that_is_missing_is_named_in_one_line(folder, name):
    with pytest.raises(ConfigError, match=rf"^method\.teacher={name}") as caught:
        teacher_vectors(name, "float32", open_corpus(str(folder / "corpus.txt")), ALL)
    assert "\n" not in str(caught.value)


def test_a_bert_without_a_pooling_is_warned_of_once(folder, tmp_path, capsys):
    plain = tmp_path / "plain"
    shutil.copytree(folder / "model", plain)
    (plain / "modules.json").unlink()
    for name, warned in ((folder / "model", False), (f"{plain}@first_last", False), (plain, True), (plain, False)):
        open_teacher("method.teacher", str(name), "float32")
        assert ("not a sentence encoder" in capsys.readouterr().err) == warned, name


def test_a_cache_that_cannot_be_written_is_one_line(folder, tmp_path, monkeypatch):
    sentences = open_corpus(str(folder / "corpus.txt"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match=r"^cache .*set JAX_SENTEMB_CACHE to another folder"):
        teacher_vectors(str(folder / "model"), "float32", sentences, ALL)


@pytest.mark.parametrize("name", [None, "model.safetensors"])
def test_an_error_of_the_encoding_is_not_blamed_on_the_cache(folder, monkeypatch, name):
    error = OSError(errno.EIO, "broken", name)

    def fails(self, *arguments, **options):
        raise error

    monkeypatch.setattr(SentenceEncoder, "encode", fails)
    with pytest.raises(OSError, match="broken") as raised:
        teacher_vectors(str(folder / "model"), "float32", open_corpus(str(folder / "corpus.txt")), ALL)
    assert raised.value is error


def test_a_disk_that_is_full_at_a_shard_is_blamed_on_the_cache(folder, cache, monkeypatch):
    replace = Path.replace

    def fails(self, target):
        if target.suffix == ".npy":
            raise OSError(errno.ENOSPC, "full")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(ResourceError, match=f"^cache {re.escape(str(cache))}: full; set JAX_SENTEMB_CACHE to another folder"):
        teacher_vectors(str(folder / "model"), "float32", open_corpus(str(folder / "corpus.txt")), ALL)
