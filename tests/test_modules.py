"""Dense layers of sentence-transformers: read, applied, kept by training, written; what cannot be computed is refused."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ModelFileError
from jax_sentemb.formats.encode_settings import EncodeSettings, read_encode_settings
from jax_sentemb.formats.huggingface import read_parts
from jax_sentemb.formats.model_dir import read_readout
from jax_sentemb.formats.modules import read_dense
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.load import load
from jax_sentemb.models.dense import apply_dense

SENTENCES = synthetic.sentences(120, 0)
RANDOM = np.random.default_rng(0)
LAYERS = {
    "layer_0": {"kernel": RANDOM.normal(size=(16, 12)).astype(np.float32), "bias": RANDOM.normal(size=12).astype(np.float32)},
    "layer_1": {"kernel": RANDOM.normal(size=(12, 6)).astype(np.float32)},
}
SETTINGS = EncodeSettings({"query": "q: ", "same": "q: "}, "same")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory with two dense layers, unit length and a default prompt."""
    folder = tmp_path_factory.mktemp("dense")
    tiny = tiny_model(SENTENCES, 200, normalize=True, settings=SETTINGS, dense=("tanh", "identity"))
    write_export(folder / "model", dataclasses.replace(tiny, params={**tiny.params, "dense": LAYERS}))
    return folder / "model"


def test_layers_read_back_as_they_were(model):
    activations, layers = read_dense(model)
    assert activations == ("tanh", "identity")
    jax.tree.map(np.testing.assert_array_equal, layers, LAYERS)
    assert [folder.name for folder in read_readout(model).dense] == ["2_Dense", "3_Dense"]
    assert read_encode_settings(model) == SETTINGS


def test_sentence_transformers_computes_the_same_embedding(model):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(model), device="cpu").encode(SENTENCES[:8])
    ours = load(model)(SENTENCES[:8])
    assert ours.shape == (8, 6)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    pooled = load(f"{model}@mean")(SENTENCES[:8])  # a pooling of the states is without the layers
    expected = np.tanh(pooled @ LAYERS["layer_0"]["kernel"] + LAYERS["layer_0"]["bias"]) @ LAYERS["layer_1"]["kernel"]
    assert pooled.shape == (8, 16)
    cosines = (expected * ours).sum(1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() < 0.999  # `pooled` has unit length, the layers read states that have not


def test_training_keeps_the_layers_and_scores_through_them(model):
    corpus = model.parent / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    workdir = model.parent / "run"
    options = {
        "data.files": corpus, "encoder.weights": model, "train.max_steps": 2, "data.batch_size": 16, "eval.eval_steps": 1,
        "eval.data": "", "eval.diagnostic_sentences": 50, "eval.report_sentences": 0, "optimizer.learning_rate": 0.01,
    }  # fmt: skip
    flags = [f"--config.{name}={value}" for name, value in options.items()]
    assert program(main, ["jax-sentemb", "train", "--config", "simcse", f"--workdir={workdir}", *flags]) == 0
    export = read_parts(workdir / "export")[1]
    jax.tree.map(np.testing.assert_array_equal, export["dense"], LAYERS)
    start = read_parts(model)[1]
    word = ("encoder", "embeddings", "word")
    assert not np.array_equal(export[word[0]][word[1]][word[2]], start[word[0]][word[1]][word[2]])
    assert load(workdir)(SENTENCES[:3]).shape == (3, 6)
    np.testing.assert_allclose(load(workdir)(SENTENCES[:3]), load(workdir / "export")(SENTENCES[:3]), atol=1e-5)


def test_every_activation_is_that_of_torch():
    torch = pytest.importorskip("torch")
    from jax_sentemb.formats.modules import ACTIVATION_CLASSES

    values = np.linspace(-3, 3, 13, dtype=np.float32)[None]
    for name, path in ACTIVATION_CLASSES.items():
        expected = getattr(torch.nn, path.rpartition(".")[2])()(torch.tensor(values)).numpy()
        found = apply_dense({"layer_0": {"kernel": jnp.eye(13)}}, (name,), jnp.asarray(values))
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation_function": "os.system"}, "is not one of torch.nn"),
        ({"use_residual": True}, "use_residual"),
        ({"module_input_name": "token_embeddings"}, "only 'sentence_embedding'"),
        ({"out_features": 13}, "do not fit"),
        ({"bias": False}, "do not fit"),
    ],
)
def test_layers_that_would_be_computed_wrong_are_refused(model, change, words):
    file = model / "2_Dense" / "config.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(before), **change}))
        with pytest.raises(ModelFileError, match=words):
            read_dense(model)
    finally:
        file.write_text(before)


def test_a_layer_of_another_width_is_refused(model):
    modules = [("Transformer", "."), ("Pooling", "1_Pooling"), ("Dense", "3_Dense"), ("Dense", "2_Dense")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    before = (model / "modules.json").read_text()
    try:
        (model / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(ModelFileError, match="not the width of the layer before it"):
            read_dense(model)
    finally:
        (model / "modules.json").write_text(before)
