"""Reading Hugging Face directories: equality with torch, every accepted spelling, and refusal of everything else."""

import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import jax
import ml_dtypes
import numpy as np
import pytest
from huggingface_hub.errors import RepositoryNotFoundError
from safetensors.numpy import load_file, save_file

from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.formats.huggingface import read_encoder, read_max_seq_length, read_parts, resolve, tokenizer_overrides
from jax_sentemb.formats.weight_table import from_torch, table, to_torch
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.types import Rows

CONFIG = {
    "model_type": "bert", "vocab_size": 29, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 20, "type_vocab_size": 2, "hidden_act": "gelu",
}  # fmt: skip
QUERY = "encoder.layer.1.attention.self.query.weight"


def random_tensors(config: BertConfig, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {weight.torch: random.normal(size=weight.shape).astype(np.float32) for weight in table(config)}


@pytest.fixture
def tensors():
    return random_tensors(BertConfig(**CONFIG))


@pytest.fixture
def folder(tmp_path, tensors):
    """A complete directory; tests spoil one thing in it."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def refused(folder, *words):
    with pytest.raises(ModelFileError) as caught:
        read_encoder(folder)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def assert_same(params, expected):
    jax.tree.map(np.testing.assert_array_equal, params, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
@pytest.mark.parametrize("width", [1, 7, 32])
def test_token_states_equal_torch_for_any_length_and_padding(tmp_path, family, width):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=97, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40)
    settings = getattr(transformers, f"{family}Config")(**sizes, max_position_embeddings=40, attn_implementation="eager")
    model = getattr(transformers, f"{family}Model")(settings).eval()
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(tmp_path)

    config, params = read_encoder(tmp_path)
    pad = settings.pad_token_id
    assert config.position_offset == (pad + 1 if family == "Roberta" else 0)
    random = np.random.default_rng(width)
    lengths = random.integers(1, width + 1, 6)
    mask = np.arange(width) < lengths[:, None]
    tokens = np.where(mask, random.integers(3, 97, mask.shape), pad).astype(np.int32)
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(tokens, dtype=torch.long),
            attention_mask=torch.tensor(mask, dtype=torch.long),
            output_hidden_states=True,
        ).hidden_states
    hidden = jax.jit(lambda params, rows: Bert(config).apply({"params": params}, rows).hidden)(params, Rows(tokens, mask))
    assert len(hidden) == len(expected) == 4
    for ours, theirs in zip(hidden, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours)[mask], theirs.numpy()[mask], atol=1e-5)


def test_the_table_names_every_parameter_of_the_model_once(tensors):
    config = BertConfig(**CONFIG)
    rows = Rows(np.zeros((1, 4), np.int32), np.ones((1, 4), bool))
    expected = jax.eval_shape(Bert(config).init, jax.random.key(0), rows)["params"]
    params = from_torch(config, tensors, "here")
    assert jax.tree.map(np.shape, params) == jax.tree.map(lambda leaf: leaf.shape, expected)
    back = to_torch(config, jax.tree.map(np.ascontiguousarray, params))  # as they come from a device
    assert back.keys() == tensors.keys()
    assert all(np.array_equal(back[name], tensors[name]) for name in tensors)
    assert all(tensor.flags.c_contiguous for tensor in back.values())


def spelled(tensors, spelling):
    """The same weights as other programs write them."""
    if spelling == "old norm names":
        return {
            name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor for name, tensor in tensors.items()
        }
    if spelling in ("bert.", "roberta."):
        return {spelling + name: tensor for name, tensor in tensors.items()}
    extras = ("pooler.dense.weight", "bert.pooler.dense.bias", "cls.predictions.bias", "lm_head.bias")
    return tensors | {name: np.full(3, np.nan, np.float32) for name in extras} | {"embeddings.position_ids": np.arange(20)[None]}


@pytest.mark.parametrize("spelling", ["old norm names", "bert.", "roberta.", "heads"])
def test_known_spellings_are_the_same_weights(folder, tensors, spelling):
    _, expected = read_encoder(folder)
    save_file(spelled(tensors, spelling), folder / "model.safetensors")
    assert_same(read_encoder(folder)[1], expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_become_float32(folder, tensors, dtype):
    narrow = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    save_file(narrow, folder / "model.safetensors")
    config, params = read_encoder(folder)
    expected = from_torch(config, {name: tensor.astype(np.float32) for name, tensor in narrow.items()}, "here")
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    assert_same(params, expected)


@pytest.fixture
def sharded(folder, tensors):
    """The weights in two files with an index, as transformers writes large models."""
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def test_sharded_weights_are_read_together(sharded, tensors):
    config, params = read_encoder(sharded)
    assert_same(params, from_torch(config, tensors, "here"))
    (sharded / "model-00002-of-00002.safetensors").unlink()
    refused(sharded, "model-00002-of-00002.safetensors", "missing")


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "C:\\x", "a/../../x", "nul\0", "link", ""])
def test_shards_outside_the_directory_are_never_opened(tmp_path, sharded, tensors, name):
    inner = tmp_path / "inner"
    inner.mkdir()
    for file in sharded.glob("*.*"):
        shutil.move(file, inner)
    save_file(tensors, tmp_path / "outside.safetensors")
    (inner / "link").symlink_to(tmp_path / "outside.safetensors")
    (inner / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {QUERY: name}}))
    refused(inner, "inner" if name == "" else "leads out of")


def test_files_of_the_hub_cache_are_links_and_still_readable(sharded, tensors):
    snapshot = sharded / "cache" / "snapshots" / "0a1b"
    blobs = sharded / "cache" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in sharded.glob("*.*"):
        shutil.move(file, blobs)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    config, params = read_encoder(snapshot)
    assert_same(params, from_torch(config, tensors, "here"))


def test_pickles_are_named_and_not_opened(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "no model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    refused(folder, "pytorch_model.bin", "never opened", "save_pretrained")


def spoil(tensors, fault):
    if fault == "missing":
        del tensors[QUERY]
    elif fault == "extra":
        tensors["adapter.weight"] = np.zeros((2, 3), np.float32)
    elif fault == "transposed":
        name = "encoder.layer.0.intermediate.dense.weight"
        tensors[name] = np.ascontiguousarray(tensors[name].T)
    elif fault == "not finite":
        tensors[QUERY][3, 4] = np.inf
    elif fault == "too large":
        tensors[QUERY] = np.full((8, 8), 1e300)
    elif fault == "integers":
        tensors[QUERY] = np.zeros((8, 8), np.int32)
    elif fault == "twice":
        tensors["bert." + QUERY] = tensors[QUERY]
    return tensors


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", (QUERY, "is missing, expected [8, 8]")),
        ("extra", ("adapter.weight [2, 3]", "not part of a bert encoder")),
        ("transposed", ("intermediate.dense.weight has shape [8, 12], expected [12, 8]",)),
        ("not finite", (QUERY, "NaN or Inf")),
        ("too large", (QUERY, "NaN or Inf")),
        ("integers", (QUERY, "int32")),
        ("twice", (QUERY, "twice")),
    ],
)
def test_weights_that_do_not_fit_are_listed(folder, tensors, fault, words):
    save_file(spoil(tensors, fault), folder / "model.safetensors")
    refused(folder, *words)


def test_ten_faults_are_listed_and_the_rest_counted(folder, tensors):
    save_file({"embeddings.LayerNorm.bias": tensors["embeddings.LayerNorm.bias"]}, folder / "model.safetensors")
    message = refused(folder, "36 tensors do not fit", "and 26 more")
    assert message.count("is missing") == 10


def test_parameters_of_another_architecture_are_not_written(tensors):
    config = BertConfig(**CONFIG)
    params = from_torch(config, tensors, "here")
    params["head"] = {"kernel": np.zeros((8, 8), np.float32)}
    params["layer_0"]["output"]["bias"] = np.zeros(9, np.float32)
    with pytest.raises(ModelFileError, match=r"output.dense.bias has shape \[9\], expected \[8\]; head/kernel \[8, 8\] is not"):
        to_torch(config, params)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "t5"}, ("model_type 't5'",)),
        ({"model_type": None}, ("model_type None",)),
        ({"hidden_size": "8"}, ("hidden_size='8'", "int")),
        ({"hidden_size": -8}, ("hidden_size=-8",)),
        ({"hidden_size": True}, ("hidden_size=True",)),
        ({"num_hidden_layers": 10**9}, ("num_hidden_layers=1000000000",)),
        ({"num_attention_heads": 3}, ("hidden_size=8", "num_attention_heads=3")),
        ({"layer_norm_eps": float("nan")}, ("layer_norm_eps=nan",)),
        ({"hidden_act": "swish"}, ("hidden_act='swish'", "gelu")),
        ({"position_embedding_type": "relative_key"}, ("position_embedding_type='relative_key'",)),
        ({"is_decoder": True}, ("is_decoder=True",)),
        ({"num_hidden_layers": 3}, ("encoder.layer.2.", "is missing")),
        ({"vocab_size": 30}, ("has shape [29, 8], expected [30, 8]",)),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_field(folder, change, words):
    (folder / "config.json").write_text(json.dumps(CONFIG | change))
    refused(folder, *words)


@pytest.mark.parametrize("text", ["", "[]", "{", "nul", "[" * 200_000, "\udcff"])
def test_a_damaged_config_is_refused(folder, text):
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(folder, "config.json")


def test_missing_directories_and_files_are_named(folder):
    refused(folder / "missing", "not a directory")
    (folder / "config.json").unlink()
    refused(folder, "config.json: no such file")


def test_damaged_weight_files_give_our_error_and_nothing_else(folder):
    intact = (folder / "model.safetensors").read_bytes()
    random = np.random.default_rng(0)
    header = 8 + int.from_bytes(intact[:8], "little")
    for trial in range(300):
        damaged = bytearray(intact)
        for place in random.integers(0, header, 1 + trial % 4):
            damaged[place] = random.integers(256)
        if trial % 3 == 0:
            del damaged[random.integers(len(damaged)) :]
        (folder / "model.safetensors").write_bytes(damaged)
        try:
            read_encoder(folder)
        except ModelFileError:
            continue
        assert load_file(folder / "model.safetensors").keys() == random_tensors(BertConfig(**CONFIG)).keys()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 20),
        ({"sentence_bert_config.json": {"max_seq_length": 12}, "tokenizer_config.json": {"model_max_length": 9}}, 12),
        ({"sentence_bert_config.json": {"max_seq_length": None}, "tokenizer_config.json": {"model_max_length": 9}}, 9),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, 20),
        ({"tokenizer_config.json": {"max_len": 8}}, 8),
        ({"sentence_roberta_config.json": {"max_seq_length": 11}}, 11),
        ({"sentence_bert_config.json": {}, "sentence_xlnet_config.json": {"max_seq_length": 11}}, 11),
        ({"sentence_bert_config.json": {"max_seq_length": 12, "tokenizer_args": {"model_max_length": 7}}}, 7),
    ],
)
def test_length_limit_is_what_is_stated_within_the_positions(folder, files, expected):
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Transformer", "path": ""}]))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    assert read_max_seq_length(folder) == expected


@pytest.mark.parametrize("length", [2.5, "7", True, 1, -3])
def test_a_length_that_is_no_number_of_tokens_is_refused(folder, length):
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Transformer", "path": ""}]))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    with pytest.raises(ModelFileError, match=f"max_seq_length={length!r} is not a number of tokens"):
        read_max_seq_length(folder)


def test_without_a_list_of_modules_the_length_of_sentence_transformers_is_not_read(folder, caplog):
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12}))
    assert read_max_seq_length(folder) == 20
    read_parts(folder)
    assert "sentence_bert_config.json was not read" in caplog.text


def test_a_name_without_an_owner_is_one_of_sentence_transformers(monkeypatch, tmp_path):
    asked = []

    def snapshot(name, **options):
        asked.append(name)
        if name != "sentence-transformers/all-MiniLM-L6-v2":
            raise RepositoryNotFoundError("404", response=SimpleNamespace(headers={}, request=None))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve("all-MiniLM-L6-v2") == tmp_path
    assert asked == ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"]
    with pytest.raises(ConfigError, match=r"^encoder\.weights=some/model: no such directory, and it cannot be downloaded"):
        resolve("some/model")
    assert asked[2:] == ["some/model"]


@pytest.mark.parametrize("name", ["tokenizer_args", "processor_kwargs"])
def test_settings_of_the_tokenizer_are_an_object(tmp_path, name):
    file = tmp_path / "sentence_bert_config.json"
    for value in (-1, float("nan"), "x", [1], True):
        with pytest.raises(ModelFileError, match=rf"sentence_bert_config\.json: {name}=.* is not an object"):
            tokenizer_overrides(file, {name: value})
    assert tokenizer_overrides(file, {"tokenizer_args": {"a": 1, "b": 1}, "processor_kwargs": {"a": 2}}) == {"a": 2, "b": 1}
    assert tokenizer_overrides(file, {name: None}) == {}
