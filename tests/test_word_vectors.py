"""Word-vector files, averages, tf-idf, and what is done to embeddings as a set."""

import gzip
import io
import lzma
import os
import zipfile

import numpy as np
import pytest

from jax_sentemb.cosines import unit_length
from jax_sentemb.data import unpacking
from jax_sentemb.data.word_vectors import WordVectorTable, is_word_vectors, read_word_vectors
from jax_sentemb.errors import ModelFileError, NumericsError
from jax_sentemb.evaluation.catalog import load_sts_task
from jax_sentemb.evaluation.postprocess import first_component, remove_first_component, whiten
from jax_sentemb.evaluation.sts import correlate_tasks, task_cosines
from jax_sentemb.evaluation.word_baselines import DocumentCounts, FixedSIF, RandomProjection, TfIdf, WordAverageBaseline

GLOVE = "the 1 2 3\n. . . 0 0 1\nthe 9 9 9\ncaf\u00e9 -1 0.5 2e-1\n"
EXPECTED = [[1, 2, 3], [0, 0, 1], [-1, 0.5, 0.2]]


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.txt.gz", "v.vec.xz"])
def test_text_files(tmp_path, name):
    """Words with spaces, as in GloVe 840B, are told from numbers by the width; the first of equal words counts."""
    text = ("4 3\n" if ".vec" in name else "") + GLOVE
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(f".{name.rsplit('.', 1)[1]}", bytes)
    (tmp_path / name).write_bytes(pack(text.encode()))
    found = read_word_vectors(tmp_path / name)
    assert found.name == "v"
    assert found.words == ["the", ". . .", "caf\u00e9"]
    np.testing.assert_allclose(found.vectors, EXPECTED)
    assert read_word_vectors(tmp_path / name, {"caf\u00e9"}).words == ["caf\u00e9"]
    assert is_word_vectors(name)


def test_archives(tmp_path):
    words = np.array([word.encode() for word in ("a", "b", "a")])
    np.savez(tmp_path / "v.npz", words=words, vectors=np.arange(6, dtype=np.float16).reshape(3, 2))
    found = read_word_vectors(tmp_path / "v.npz")
    assert found.words == ["a", "b"]
    np.testing.assert_array_equal(found.vectors, [[0, 1], [2, 3]])
    assert found.vectors.dtype == np.float32
    assert not is_word_vectors(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"a 1 2\nb 1\n", r"v.txt:2: expected a word and 2 numbers"),
        ("v.txt", b"a 1 2\nb 1 x\n", r"v.txt:2: a value of 'b' is not a number"),
        ("v.txt", b"a 1 nan\n", r"the vector of 'a' is not finite"),
        ("v.txt", b"", r"has no vector"),
        ("v.txt.gz", gzip.compress(GLOVE.encode(), mtime=0)[:-9], r"v.txt.gz is damaged"),
        ("v.txt.xz", b"no xz", r"v.txt.xz is damaged"),
        ("v.npz", b"PK no zip", r"v.npz"),
        ("v.txt", "2 \u00b2\na 1\n".encode(), r"v.txt:1: a value of '2' is not a number"),
        ("v.vec.gz", gzip.compress(b"a" * (1 << 21)), r"v.vec.gz:1: the line has 1,048,576 bytes or more"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        read_word_vectors(tmp_path / name)


def test_a_pipe_and_an_archive_that_unpacks_to_far_more_are_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "v.npz", words=np.array(["a"]), vectors=np.zeros((1, 1 << 20), np.float32))
    monkeypatch.setattr(unpacking, "LIMIT", 1 << 20)
    with pytest.raises(ModelFileError, match=r"unpacks to more than 1,\d+,\d+ bytes"):
        read_word_vectors(tmp_path / "v.npz")
    (tmp_path / "w.vec.gz").write_bytes(gzip.compress(b"a 1 2\n" * (1 << 18)))
    with pytest.raises(ModelFileError, match=r"unpacks to more than 1,\d+,\d+ bytes"):
        read_word_vectors(tmp_path / "w.vec.gz")
    os.mkfifo(tmp_path / "v.txt")
    with pytest.raises(ModelFileError, match="a pipe"):
        read_word_vectors(tmp_path / "v.txt")


def test_an_array_that_claims_more_than_its_archive_has_is_refused_by_its_header(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 24, 1 << 10)})
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as archive:
        archive.writestr("words.npy", b"")
        archive.writestr("vectors.npy", header.getvalue() + b"0" * 64)
    with pytest.raises(ModelFileError, match=r"v\.npz"):
        read_word_vectors(tmp_path / "v.npz")
    np.savez(tmp_path / "w.npz", words=np.array(["a"]))
    with zipfile.ZipFile(tmp_path / "w.npz", "a") as archive:
        archive.writestr("vectors.npy", header.getvalue() + b"0" * 64)
    with pytest.raises(ModelFileError, match=r"vectors\.npy': its header describes 68,719,476,736 bytes of numbers"):
        read_word_vectors(tmp_path / "w.npz")


def test_archives_without_vectors_or_with_objects(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["a"]))
    with pytest.raises(ModelFileError, match="expected the arrays words and vectors"):
        read_word_vectors(tmp_path / "v.npz")
    np.savez(tmp_path / "v.npz", words=np.array([["a"], 3], object), vectors=np.ones((2, 2)))
    with pytest.raises(ModelFileError, match=r"words\.npy': it has Python objects, which are never loaded"):
        read_word_vectors(tmp_path / "v.npz")
    with pytest.raises(ModelFileError, match="no such file; give a file of word vectors"):
        read_word_vectors(tmp_path / "absent.npz")
    np.savez(tmp_path / "v.npz", words=np.array(["a"]), vectors=np.ones((1, 2)))
    with pytest.raises(ModelFileError, match="has no vector for any word of the text"):
        read_word_vectors(tmp_path / "v.npz", {"b"})


VECTORS = WordVectorTable("v", ["the", "cat", "sat", "."], np.array([[1, 0], [0, 1], [2, 2], [9, 9]], np.float32))


def test_average():
    sentences = ["the cat sat", "The CAT unknown", "unknown", "", "cat cat the ."]
    expected = [[1, 1], [0.5, 0.5], [0, 0], [0, 0], [10 / 4, 11 / 4]]
    np.testing.assert_allclose(WordAverageBaseline(VECTORS).encode(sentences), expected)
    without = WordAverageBaseline(VECTORS, stop_words=True).encode(sentences)
    np.testing.assert_allclose(without, [[1, 1.5], [0, 1], [0, 0], [0, 0], [0, 1]])
    assert WordAverageBaseline(VECTORS).fit(sentences) == WordAverageBaseline(VECTORS)


def test_sif_weights_rare_words_up():
    model = WordAverageBaseline(VECTORS, sif=0.1).fit(["the cat", "the sat", "the the the x"])  # 8 words, "the" is 5 of them
    common, rare = 0.1 / (0.1 + 5 / 8), 0.1 / (0.1 + 1 / 8)
    np.testing.assert_allclose(model.encode(["the cat"])[0], [common / 2, rare / 2], rtol=1e-6)


def test_random_projections_are_the_largest_over_the_words():
    encoded = RandomProjection(VECTORS, 300).encode(["the CAT", "cat", "unknown", "cat the the x"])
    matrix = RandomProjection(VECTORS, 300).encode(["the", "cat"])  # the vectors of both are unit vectors: the columns of W
    np.testing.assert_allclose(encoded[0], matrix.max(axis=0))
    np.testing.assert_allclose(encoded[1:], [matrix[1], np.zeros(300), encoded[0]])
    assert np.abs(matrix).max() <= 2**-0.5
    assert matrix.std() == pytest.approx(2**-0.5 / 3**0.5, rel=0.1)  # uniform between -1/sqrt(2) and 1/sqrt(2)
    assert (RandomProjection(VECTORS, 7).encode(["cat"]) == encoded[1:2, :7]).all()


def test_tf_idf():
    sentences = ["a cat, a 7", "a bird", "Ä 7"]
    common, rare = np.log(4 / 3), np.log(4 / 2)  # "7" and "a" are in two of three sentences; columns in the order of words
    rows = [[common, 2 * common, 0, 0, 0], [0, common, rare, 0, 0], [common, 0, 0, 0, rare], [0, 0, 0, 0, 0]]
    encoded = TfIdf().fit(sentences).encode(["a 7: A", "a bird", "Ä-7", "unknown"])
    np.testing.assert_allclose(encoded, unit_length(np.array(rows)), rtol=1e-6)


def test_tf_idf_of_other_text_weighs_a_word_that_it_lacks_most():
    fitted = TfIdf(counts=DocumentCounts.of(["a a", "a b", "c", "d"])).fit(["a b new"])
    weights = {"a": np.log(5 / 3), "b": np.log(5 / 2), "new": np.log(5)}
    assert fitted.weights == pytest.approx(weights)


def test_projections_of_many_words_keep_the_cosines_of_tf_idf():
    sentences = [" ".join(f"w{number}" for number in range(start, start + 12)) for start in range(0, 60, 3)]
    exact = TfIdf().fit(sentences).encode(sentences)
    projected = TfIdf(width=50).fit(sentences).encode(sentences)
    assert (exact.shape, projected.shape) == ((20, 69), (20, 50))
    np.testing.assert_allclose(np.linalg.norm(projected, axis=1), 1, rtol=1e-6)
    errors = projected @ projected.T - exact @ exact.T
    assert 0 < np.sqrt(np.square(errors).mean()) < (2 / 50) ** 0.5  # the variance of a product is at most 2 / width


def test_first_component_and_whitening():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 6)) * [5, 1, 1, 1, 1, 0] + 2
    vectors[:, 5] = 1  # no variance
    component = np.linalg.svd(vectors, full_matrices=False)[2][0]
    assert abs(first_component(vectors) @ component) == pytest.approx(1)
    np.testing.assert_allclose(remove_first_component(vectors), vectors - np.outer(vectors @ component, component), atol=1e-9)
    white = whiten(vectors)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-9)
    values = np.linalg.eigvalsh(white.T @ white / 40)
    np.testing.assert_allclose(values, [0, 1, 1, 1, 1, 1], atol=1e-6)
    assert np.isfinite(whiten(vectors[:3])).all()
    with pytest.raises(NumericsError, match="not finite"):
        whiten(np.array([[np.nan, 1], [1, 2]]))


def test_real_vectors_on_real_pairs(shared):
    """Removing the first component after SIF weights lifts averages of GloVe on STS-B (Arora et al. 2017)."""
    file, root = shared / "vectors" / "glove.6B.50d.top100k.npz", shared / "data" / "senteval"
    if not (file.is_file() and root.is_dir()):
        pytest.skip("no word vectors")
    task = load_sts_task("STSBenchmark-test", root)
    sentences = [sentence for pairs in task.subsets.values() for side in (pairs.first, pairs.second) for sentence in side]
    vectors = read_word_vectors(file, {word for sentence in sentences for word in sentence.split()})
    assert vectors.vectors[vectors.words.index("the")][:3] == pytest.approx([0.418, 0.24968, -0.41242], abs=1e-3)
    model = WordAverageBaseline(vectors, sif=1e-3).fit(sentences)

    def spearman(embed):
        return correlate_tasks(task_cosines(embed, {"b": task}), {"b": task})["b"]["spearman"]["all"]

    plain = spearman(WordAverageBaseline(vectors).encode)
    weighted = spearman(lambda chosen: remove_first_component(model.encode(chosen)))
    assert plain == pytest.approx(40, abs=1)
    assert weighted > plain + 10


def test_sif_of_other_text_has_its_weights_and_component_from_that_text():
    vectors = WordVectorTable("glove", ["a", "b", "c"], np.eye(3, dtype=np.float32))
    fixed = FixedSIF.fitted(vectors, 1.0, ["a", "a", "a b"])
    # frequencies 3/4 and 1/4, weights 1 / (1 + p); the component is the first singular vector of the three embeddings
    embeddings = np.array([[4 / 7, 0, 0], [4 / 7, 0, 0], [2 / 7, 2 / 5, 0]])
    component = np.linalg.svd(embeddings)[2][0]
    expected = np.array([0, 2 / 5, 1 / 2]) - (np.array([0, 2 / 5, 1 / 2]) @ component) * component
    np.testing.assert_allclose(fixed.encode(["b c"])[0], expected, atol=1e-6)


def test_sif_of_raw_text_knows_the_frequencies_of_tokenised_text():
    vectors = WordVectorTable("glove", ["the", "cats", "sleep", ".", "isn", "'t"], np.eye(6, dtype=np.float32))
    raw = FixedSIF.fitted(vectors, 1.0, ["The cats sleep.", "Sleep isn't the cats'."])
    tokenised = FixedSIF.fitted(vectors, 1.0, ["the cats sleep .", "sleep isn 't the cats ' ."])
    assert raw.average.weights == tokenised.average.weights
    np.testing.assert_array_equal(raw.encode(["Cats sleep."]), tokenised.encode(["cats sleep ."]))
