"""Exports: their files, equality with torch and sentence-transformers, atomic replacement, refusal of what differs."""

import dataclasses
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open
from tiny_models import tiny_model

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ConfigError, ModelFileError, NumericsError, ResourceError
from jax_sentemb.files import sha256
from jax_sentemb.formats.huggingface import read_encoder, read_max_seq_length
from jax_sentemb.formats.model_card import Card
from jax_sentemb.formats.model_dir import read_readout
from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
from jax_sentemb.formats.weight_table import from_torch, table
from jax_sentemb.inference import verify as export_module
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.export import export, publish
from jax_sentemb.inference.load import load
from jax_sentemb.inference.verify import PROBES, check_outputs, verify_export
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.pooling import pool
from tests.tiny_models import bert_config

FILES = [
    "1_Pooling/config.json", "README.md", "config.json", "config_sentence_transformers.json", "jax_sentemb.json",
    "model.safetensors", "modules.json", "sentence_bert_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.txt",
]  # fmt: skip
LENGTH = 24
# sentence-transformers makes special tokens of the literal text "[SEP]" in a sentence; with us text stays text.
PLAIN = [sentence for sentence in PROBES if "[" not in sentence]


class Model:
    """A small encoder with random weights, as training has it in memory."""

    def __init__(self, pooling: str = "cls", normalize: bool = False, family: str = "bert") -> None:
        self.tokenizer = Tokenizer.train([*PROBES, "caf\u00e9 tables and more words for the vocabulary"] * 5, 120)
        self.config = bert_config(
            vocab_size=self.tokenizer.vocab_size + 3,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=20,
            max_position_embeddings=40,
            initializer_range=0.02,
            model_type=family,
            pad_token_id=self.tokenizer.pad_id,
            position_offset=self.tokenizer.pad_id + 1 if family == "roberta" else 0,
        )
        self.pooling, self.normalize = pooling, normalize
        random = np.random.default_rng(0)
        tensors = {row.torch: random.normal(0, 0.3, row.shape).astype(np.float32) for row in table(self.config)}
        self.params = from_torch(self.config, tensors, "here")

    def __call__(self, sentences):
        def embed(params, rows):
            vectors = pool(Bert(self.config).apply({"params": params}, rows).hidden, rows.mask, self.pooling)
            return vectors / (vectors**2).sum(-1, keepdims=True) ** 0.5 if self.normalize else vectors

        return Embedder(embed, self.tokenizer, LENGTH, batch_size=16, buckets=())(self.params, sentences)

    def export(self, directory, embed=None, params=None, card=None, **changes):
        settings = dict(pooling=self.pooling, normalize=self.normalize, max_seq_length=LENGTH) | changes
        model = SentenceModel(self.config, {"encoder": params or self.params}, self.tokenizer, **settings)
        return export(directory, model, embed or self, card)


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "export"
    scores = {kind: {"all": 50.0, "mean": 40.0, "wmean": 45.0} for kind in ("spearman", "pearson")}
    model.export(directory, card=Card(method="miCSE", training={"sentences": 1000}, scores={"STS12": {"n": 2, **scores}}))
    return directory


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_the_files_are_those_that_loaders_expect(exported):
    assert files(exported) == FILES
    assert [path.name for path in exported.parent.iterdir()] == ["export"]
    with safe_open(exported / "model.safetensors", "numpy") as weights:
        assert weights.metadata() == {"format": "pt"}
        assert "embeddings.word_embeddings.weight" in weights.keys()  # noqa: SIM118
    modules = json.loads((exported / "modules.json").read_text())
    assert [(module["type"], module["path"]) for module in modules] == [
        ("sentence_transformers.models.Transformer", ""),
        ("sentence_transformers.models.Pooling", "1_Pooling"),
    ]
    assert json.loads((exported / "1_Pooling" / "config.json").read_text()) == {
        "word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
    }  # fmt: skip
    assert json.loads((exported / "sentence_bert_config.json").read_text())["max_seq_length"] == LENGTH


def test_the_manifest_tells_method_scores_verification_and_hashes(exported):
    manifest = json.loads((exported / "jax_sentemb.json").read_text())
    assert manifest["method"] == "miCSE"
    assert manifest["training"] == {"sentences": 1000}
    assert manifest["scores"]["STS12"]["spearman"]["all"] == 50
    assert manifest["verification"]["max_abs_difference"] <= 1e-5
    assert manifest["verification"]["sentences"] == len(PROBES) >= 60
    assert manifest["sha256"] == {name: sha256(exported / name) for name in FILES if name != "jax_sentemb.json"}


def test_the_directory_reads_back_as_it_was(model, exported):
    config, params = read_encoder(exported)
    assert config == model.config
    jax.tree.map(np.testing.assert_array_equal, params, model.params)
    assert (read_readout(exported).pooling, read_readout(exported).normalize, read_max_seq_length(exported)) == (
        "cls",
        False,
        LENGTH,
    )
    np.testing.assert_allclose(load(exported, batch_size=3)(PROBES), model(PROBES), atol=1e-5)


def test_a_flipped_bit_in_an_export_is_found(model, tmp_path):
    model.export(tmp_path / "export")
    path = tmp_path / "export" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="SHA-256"):
        read_encoder(tmp_path / "export")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("pooling", "normalize", "family"),
    [("cls", False, "bert"), ("mean", False, "bert"), ("mean", True, "bert"), ("cls", False, "roberta")],
)
def test_sentence_transformers_gives_the_same_vectors(tmp_path, pooling, normalize, family):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = Model(pooling, normalize, family)
    model.export(tmp_path / "export")
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    assert loaded.max_seq_length == LENGTH
    np.testing.assert_allclose(loaded.encode(PLAIN), model(PLAIN), atol=1e-5)


def test_transformers_gives_the_same_vectors(model, exported):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    loaded = transformers.AutoModel.from_pretrained(exported).eval()
    assert type(loaded).__name__ == "BertModel"
    inputs = tokenizer(PLAIN, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    with torch.no_grad():
        vectors = loaded(**inputs).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(vectors, model(PLAIN), atol=1e-5)


def transposed(params):
    """The parameters with one square matrix transposed: shapes fit, vectors do not."""
    layer = params["layer_1"]
    kernel = np.ascontiguousarray(layer["key"]["kernel"].T)
    return params | {"layer_1": layer | {"key": layer["key"] | {"kernel": kernel}}}


def test_an_export_that_encodes_otherwise_is_refused_and_the_earlier_one_stays(model, tmp_path):
    model.export(tmp_path / "export")
    before = {name: (tmp_path / "export" / name).read_bytes() for name in FILES}
    with pytest.raises(ModelFileError, match=r"max abs difference of .* above 1e-05"):
        model.export(tmp_path / "export", params=transposed(model.params))
    assert {name: (tmp_path / "export" / name).read_bytes() for name in FILES} == before
    with pytest.raises(ModelFileError, match="nothing was exported"):
        model.export(tmp_path / "new", params=transposed(model.params))
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_vectors_of_another_shape_or_not_finite_are_refused(model, exported):
    with pytest.raises(ModelFileError, match=r"encodes to \[3, 16\], the model in memory to \[3, 15\]"):
        verify_export(exported, lambda sentences: model(sentences)[:, 1:], PROBES[:3])
    with pytest.raises(ModelFileError, match="difference of nan"):
        verify_export(exported, lambda sentences: model(sentences) * np.nan, PROBES[:3])


def test_a_good_export_replaces_an_earlier_one_and_leaves_nothing_beside_it(model, tmp_path):
    (tmp_path / "export").mkdir()  # empty: may be used
    for number in (1, 2):
        model.export(tmp_path / "export", card=Card(name=f"number {number}"))
    assert "# number 2" in (tmp_path / "export" / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_a_stop_between_the_two_renames_loses_nothing(model, tmp_path, monkeypatch):
    model.export(tmp_path / "export", card=Card(name="first"))
    rename = Path.rename

    def failing(self, target):
        if self.name.endswith(".partial"):
            raise OSError(28, os.strerror(28))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(ResourceError, match="No space left"):
        model.export(tmp_path / "export", card=Card(name="second"))
    assert "# first" in (tmp_path / "export" / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_what_is_not_an_export_is_never_replaced(model, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    for target in (tmp_path / "notes", tmp_path / "notes" / "mine.txt"):
        with pytest.raises(ConfigError, match="is not an export of jax_sentemb"):
            model.export(target)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep"
    with pytest.raises(ConfigError, match="cannot write the export"):
        model.export(tmp_path / "notes" / "mine.txt" / "below")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"pooling": "max"}, ConfigError, "pooling='max' cannot be exported"),
        ({"max_seq_length": 41}, ConfigError, "max_seq_length=41 is not between 2 and the encoder's 40 positions"),
        ({"params": {"head": {"bias": np.zeros(2)}}}, ModelFileError, "is missing"),
    ],
)
def test_settings_that_cannot_be_exported_are_named(model, tmp_path, changes, kind, message):
    with pytest.raises(kind, match=message):
        model.export(tmp_path / "export", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "config", BertConfig(vocab_size=7))
    with pytest.raises(ModelFileError, match=r"tokens, the encoder's vocab_size is 7"):
        model.export(tmp_path / "export")


def test_exporting_needs_neither_torch_nor_transformers():
    import subprocess
    import sys

    code = "import sys, jax_sentemb.inference.export; print({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
    assert export_module.TOLERANCE == 1e-5


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (np.zeros((5, 0)), "have no dimension"),
        (np.full((5, 3), [[1.0, np.nan, 2]]), "5 of 5 outputs of the model have NaN or Inf"),
        (np.zeros((5, 3)), "collapsed: its outputs for 5 different texts are equal"),
        (np.full((5, 3), 1e6) + np.arange(5)[:, None] * 1e-3, "collapsed"),
    ],
)
def test_outputs_of_no_use_are_refused(outputs, problem):
    with pytest.raises(NumericsError, match=problem):
        check_outputs(outputs)


def test_outputs_that_differ_little_are_published():
    check_outputs(np.full((5, 3), 1.0) + np.arange(5)[:, None] * 1e-4)
    check_outputs(np.arange(4.0)[:, None])


def test_a_collapsed_model_replaces_no_export(tmp_path):
    model = tiny_model(["a man plays a guitar", "two women dance"], 60)
    params = jax.tree.map(np.zeros_like, model.params)
    collapsed = dataclasses.replace(model, params=params)
    write = lambda folder: write_export(folder, collapsed)  # noqa: E731
    (tmp_path / "empty").mkdir()
    with pytest.raises(NumericsError, match="nothing was exported"):
        publish(tmp_path / "empty" / "model", write, lambda texts: np.zeros((len(texts), 16)), PROBES, load, {})
    assert list((tmp_path / "empty").iterdir()) == []
