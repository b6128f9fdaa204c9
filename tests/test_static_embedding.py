"""Static tables that others wrote: model2vec's shared, weighted and cut ones."""

import numpy as np
import pytest
import tokenizers
from reference_models import TEXTS, WORDS, compare, edited
from safetensors.numpy import save_file
from tokenizers import models, pre_tokenizers

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import write_json
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.inference.load import load

HARMLESS = {"tokenizer_name": "x", "apply_pca": 4, "sif_coefficient": 0.1, "hidden_dim": 9, "embedding_dtype": "float16"}


def model2vec(folder, tensors, modules=("StaticEmbedding",), pieces=("[PAD]", "[UNK]"), **config):
    """A directory as model2vec writes it."""
    folder.mkdir()
    vocabulary = {
        piece: number for number, piece in enumerate([*pieces, *sorted({word for text in WORDS for word in text.split()})])
    }
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(list(pieces))
    inner.enable_truncation(20)
    inner.save(str(folder / "tokenizer.json"))
    save_file(tensors(len(vocabulary)), folder / "model.safetensors")
    write_json(folder / "config.json", {"model_type": "model2vec", "architectures": ["StaticModel"], **config})
    if modules:
        paths = [".", "1_Normalize"]
        listed = [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (kind, path) in enumerate(zip(modules, paths, strict=False))
        ]
        write_json(folder / "modules.json", listed)
    return folder


def vectors(rows, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(rows, 8)).astype(dtype)


def shared_rows(size, dtype=np.float32):
    """Vocabulary quantisation: pieces share rows, and each has a weight."""
    random = np.random.default_rng(1)
    weights = {"weights": random.uniform(0.5, 2, size).astype(dtype)} if dtype != np.float16 else {}
    return {"embeddings": vectors(5, dtype), "mapping": random.integers(0, 5, size), **weights}


@pytest.mark.parametrize(
    "tensors",
    [
        lambda size: {"embeddings": vectors(size)},
        lambda size: {"embedding.weight": vectors(size)},
        shared_rows,
        lambda size: {"embeddings": vectors(size), "weights": np.linspace(0.5, 2, size).astype(np.float64)},
        lambda size: {name: value.astype(np.int32) if name == "mapping" else value for name, value in shared_rows(size).items()},
    ],
)
@pytest.mark.parametrize("modules", [("StaticEmbedding",), ("StaticEmbedding", "Normalize")])
def test_model2vec_has_the_vectors_of_sentence_transformers(tmp_path, tensors, modules):
    folder = model2vec(tmp_path / "model", tensors, modules)
    compare(folder)
    saved = SentenceEncoder(folder).save(tmp_path / "saved")
    np.testing.assert_allclose(load(saved)(TEXTS), load(folder)(TEXTS), atol=1e-6)
    compare(saved)


def test_model2vec_without_modules_follows_its_own_settings(tmp_path):
    plain, unit = (model2vec(tmp_path / str(on), shared_rows, (), normalize=on, max_length=30) for on in (False, True))
    assert load(plain).embedder.max_seq_length == 20  # tokenizer.json cuts before
    listed = model2vec(tmp_path / "listed", shared_rows, ("StaticEmbedding", "Normalize"))
    np.testing.assert_allclose(load(unit)(TEXTS), load(listed)(TEXTS), atol=1e-6)
    lengths = np.linalg.norm(load(plain)(TEXTS), axis=1, keepdims=True)
    np.testing.assert_allclose(load(plain)(TEXTS) / np.maximum(lengths, 1e-12), load(unit)(TEXTS), atol=1e-6)
    edited(unit, "config.json", HARMLESS)
    np.testing.assert_allclose(load(unit)(TEXTS), load(listed)(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        (lambda size: {"other": vectors(size)}, "expected a matrix"),
        (lambda size: {"embeddings": vectors(5), "mapping": np.full(size, 5)}, "mapping must give"),
        (lambda size: {"embeddings": vectors(5), "mapping": np.full(size, -1)}, "mapping must give"),
        (lambda size: {"embeddings": vectors(5), "mapping": np.full(size, 1.5)}, "mapping must give"),
        (lambda size: {"embeddings": vectors(5), "mapping": np.zeros(size - 1, np.int64)}, "use the tokenizer of the encoder"),
        (lambda size: {"embeddings": vectors(size), "weights": np.ones(size - 1, np.float32)}, "weights has shape"),
    ],
)
def test_a_damaged_model2vec_directory_is_refused(tmp_path, tensors, problem):
    with pytest.raises(ModelFileError, match=problem):
        load(model2vec(tmp_path / "model", tensors))


@pytest.mark.parametrize(
    "setting", [{"normalize": "false"}, {"normalize": 1}, *({"max_length": value} for value in (-1, 0, 2.5, "3", True))]
)
def test_settings_of_model2vec_of_another_type_are_refused(tmp_path, setting):
    ((name, value),) = setting.items()
    with pytest.raises(ModelFileError, match=f"config.json: {name}={value!r} (is not|must be)"):
        load(model2vec(tmp_path / "model", shared_rows, (), **setting))
