"""Every architecture beside BERT: equal to transformers on random weights, written under its own name, refused by a list."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ModelFileError
from jax_sentemb.formats.config_json import parse_config
from jax_sentemb.formats.huggingface import read_encoder, read_parts
from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
from jax_sentemb.inference.load import load
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.attention import Capture
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.heads import init_token_head, token_states
from jax_sentemb.models.mpnet import distance_buckets
from jax_sentemb.types import Rows

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

COMMON = {"vocab_size": 90, "max_position_embeddings": 40}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
MODERN = {"local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}
CONFIGS = {
    "roberta": lambda: transformers.RobertaConfig(**COMMON, **SIZES, type_vocab_size=1),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(**COMMON, **SIZES, type_vocab_size=1),
    "distilbert": lambda: transformers.DistilBertConfig(**COMMON, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
    "mpnet": lambda: transformers.MPNetConfig(**COMMON, **SIZES),
    "modernbert": lambda: transformers.ModernBertConfig(**COMMON, **SIZES, **MODERN, cls_token_id=1, sep_token_id=2),
}
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 30)
TEXTS = ["a few words", "consequence of no words a few words of no consequence"]


def test_every_family_is_tested_and_has_a_module():
    assert {*CONFIGS, "bert"} == set(FAMILIES)


@pytest.fixture(scope="module", params=CONFIGS)
def theirs(request, tmp_path_factory):
    """(model_type, directory, model) of random weights."""
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(CONFIGS[request.param](), attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return request.param, folder, model


def padded_rows(config, lengths):
    random, width = np.random.default_rng(0), max(lengths)
    mask = np.arange(width) < np.array(lengths)[:, None]
    return Rows(np.where(mask, random.integers(5, 90, mask.shape), config.pad_token_id).astype(np.int32), mask)


def test_states_and_attention_equal_transformers_for_every_length(theirs):
    _, folder, model = theirs
    config, params = read_encoder(folder)
    rows = padded_rows(config, LENGTHS)
    encoder = make_encoder(config)
    capture = Capture((2,), lambda number, attention: attention.probabilities)
    ours = jax.jit(lambda params: encoder.apply({"params": params}, rows, capture=capture))(params)
    with torch.no_grad():
        output = model(torch.tensor(rows.tokens).long(), torch.tensor(rows.mask).long(), output_attentions=True)
    for row, length in enumerate(LENGTHS):
        expected = output.last_hidden_state[row, :length].numpy()
        np.testing.assert_allclose(ours.hidden[-1][row, :length], expected, atol=1e-5)
        attention = output.attentions[1][row, :, :length, :length].numpy()
        np.testing.assert_allclose(ours.observed[2][row, :, :length, :length], attention, atol=1e-5)
    short = Rows(*(part[4:5, : LENGTHS[4]] for part in rows))
    alone = jax.jit(lambda params: encoder.apply({"params": params}, short))(params)
    np.testing.assert_allclose(ours.hidden[-1][4, : LENGTHS[4]], alone.hidden[-1][0], atol=1e-5)  # padding changes nothing


@pytest.mark.parametrize("theirs", ["distilbert", "mpnet", "modernbert"], indirect=True)  # RoBERTa's module is that of BERT
def test_attention_mutual_information_reaches_the_weights_of_attention_and_blocks_change_nothing(theirs):
    kind, folder, _ = theirs
    config, params = read_encoder(folder)
    lengths = (20, 11, 15)
    rows, seeds = padded_rows(config, np.repeat(lengths, 2)), jnp.arange(6, dtype=jnp.uint32)
    ami = AttentionMI(samples=30)
    positions = ami.sample(seeds[::2], jnp.array(lengths), 20, ami.slices((1, 2), 2))
    capture = ami.capture_attention(positions, (1, 2), 2)

    def information(params, **memory):
        output = make_encoder(config, dropout=0.1, **memory).apply({"params": params}, rows, seeds, capture=capture)
        return ami.mutual_information(output.observed, positions)[0].sum()

    value, gradients = jax.jit(jax.value_and_grad(information))(params)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(gradients)}
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves.values())
    read = [leaf for name, leaf in leaves.items() if ("query" in name or "relative" in name) and "bias'" not in name]
    assert read
    assert all(float(jnp.abs(leaf).max()) > 1e-6 for leaf in read)
    if kind in ("mpnet", "modernbert"):
        in_blocks = jax.jit(lambda params: information(params, attention_block=8))(params)
        np.testing.assert_allclose(in_blocks, value, rtol=1e-4)


@pytest.mark.parametrize("theirs", ["mpnet", "modernbert"], indirect=True)
def test_some_places_alone_have_the_states_of_all_and_a_fused_kernel_too(theirs):
    config, params = read_encoder(theirs[1])
    rows = padded_rows(config, (20, 11))
    places = jnp.array([[0, 19, 3], [10, 2, 0]])

    @jax.jit
    def states(params):
        plain, fused = make_encoder(config), make_encoder(config, fused_attention="xla")
        read = {"capture": Capture((2,), lambda _, attention: attention.log_normalizer)}
        ways = (
            (plain, {"token_places": places}), (fused, {}),
            (plain, read), (plain, {"first_token_only": True}), (plain, {"first_token_only": True, **read}),
        )  # fmt: skip
        found = [encoder.apply({"params": params}, rows, **options) for encoder, options in ways]
        return [output.hidden[-1] for output in found], found[2].observed[2], found[4].observed[2]

    (some, fused, whole, first, observed), normalizer, of_first = states(params)
    np.testing.assert_allclose(observed, first, atol=1e-5)
    np.testing.assert_allclose(of_first, normalizer, atol=1e-5)
    np.testing.assert_allclose(first, whole[:, :1], atol=1e-5)
    np.testing.assert_allclose(some, jnp.take_along_axis(whole, places[..., None], 1), atol=1e-5)
    np.testing.assert_allclose(fused[rows.mask], whole[rows.mask], atol=1e-5)


def padding_with(number):
    """A tokenizer whose [PAD] has this number, as the positions of RoBERTa need it."""
    state = json.loads(Tokenizer.train(TEXTS * 4, 60).serialized)
    other = {0: number, number: 0}
    state["model"]["vocab"] = {piece: other.get(value, value) for piece, value in state["model"]["vocab"].items()}
    for token in state["added_tokens"]:
        token["id"] = other.get(token["id"], token["id"])
    state["added_tokens"].sort(key=lambda token: token["id"])
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))


def test_an_export_has_the_name_of_its_architecture_and_loads_without_a_warning(theirs, tmp_path):
    kind, folder, model = theirs
    config, params = read_encoder(folder)
    tokenizer = padding_with(config.pad_token_id) if config.position_offset else Tokenizer.train(TEXTS * 4, 60)
    write_export(tmp_path, SentenceModel(config, {"encoder": params}, tokenizer, "mean", 20))
    stated = json.loads((tmp_path / "config.json").read_text())
    assert stated["architectures"] == [type(model).__name__]
    assert stated["model_type"] == kind
    again, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert "pooler" not in read_parts(tmp_path)[1]
    vectors, averages = load(tmp_path)(TEXTS), load(f"{tmp_path}@first_last")(TEXTS)
    for text, vector, average in zip(TEXTS, vectors, averages, strict=True):
        ids, _ = tokenizer.encode([text], 20)
        with torch.no_grad():
            output = again.eval()(torch.tensor(ids[0][None]).long(), output_hidden_states=True)
        np.testing.assert_allclose(vector, output.last_hidden_state[0].mean(0).numpy(), atol=1e-5)
        layers = output.hidden_states  # WeightedLayerPooling reads these
        np.testing.assert_allclose(average, (layers[1] + layers[2])[0].mean(0).numpy() / 2, atol=1e-5)


@pytest.mark.parametrize("theirs", ["mpnet", "modernbert"], indirect=True)
def test_a_masked_language_model_has_the_logits_of_transformers(theirs, tmp_path):
    config, params = read_encoder(theirs[1])
    head = init_token_head(jax.random.key(0), config)
    head = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.arange(leaf.size, dtype=jnp.float32).reshape(leaf.shape) % 0.7, head)
    model = SentenceModel(config, {"encoder": params, "token_head": head}, Tokenizer.train(TEXTS * 4, 60), "mean", 20)
    write_export(tmp_path, model)
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    rows = padded_rows(config, (9,))
    encoder = make_encoder(config)
    states = jax.jit(lambda params: token_states(head, encoder.apply({"params": params}, rows).hidden[-1], encoder))(params)
    with torch.no_grad():
        expected = again.eval()(torch.tensor(rows.tokens).long()).logits.numpy()
    np.testing.assert_allclose(states @ params["embeddings"]["word"].T + head["bias"], expected, atol=2e-5)
    jax.tree.map(np.testing.assert_array_equal, read_parts(tmp_path)[1]["token_head"], jax.device_get(head))


def test_distances_are_in_the_buckets_of_transformers():
    relative = torch.arange(-399, 400)
    expected = transformers.models.mpnet.modeling_mpnet.MPNetEncoder.relative_position_bucket(relative)
    np.testing.assert_array_equal(distance_buckets(400), expected.numpy())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"global_attn_every_n_layers": 3, "global_rope_theta": 8e4, "local_rope_theta": None}, (3, 8e4, 8e4)),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, (2, 160000.0, 10000.0)),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 5.0, "rope_type": "default"}}}, (3, 160000.0, 5.0)),
    ],
)
def test_layer_kinds_and_rotary_bases_are_read_in_both_spellings(change, expected):
    config = parse_config({"model_type": "modernbert", "num_hidden_layers": 4, **change}, Path("config.json"))
    assert (config.global_attn_every_n_layers, config.global_rope_theta, config.local_rope_theta) == expected


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("modernbert", {"norm_bias": True}, "norm_bias=True is not supported"),
        ("modernbert", {"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}, "only every n-th layer"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "only rope_type='default'"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "only 32"),
    ],
)
def test_variants_that_would_be_computed_wrong_are_refused(kind, change, words):
    with pytest.raises(ModelFileError, match=words):
        parse_config({"model_type": kind, **change}, Path("config.json"))


def test_mpnet_uses_the_names_of_roberta_although_its_vocabulary_has_both(tmp_path):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "word", "<mask>"]
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = tokenizers.normalizers.BertNormalizer(), tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])
    inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"unk_token": "[UNK]", "mask_token": {"content": "<mask>"}}))
    tokenizer = Tokenizer.load(tmp_path)
    for found in (tokenizer, tokenizer.copy()):
        assert (found.cls_id, found.pad_id, found.sep_id, found.unk_id, found.mask_id) == (0, 1, 2, 5, 11)
    assert tokenizer.encode(["a word"], 9)[0][0].tolist() == [0, 9, 10, 2]
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").names == tokenizer.names


def test_modernberts_tokenizer_keeps_runs_of_spaces_and_text_that_looks_special(tmp_path):
    inner = tokenizers.ByteLevelBPETokenizer()
    inner.train_from_iterator(TEXTS * 4, 300, 1, special_tokens=["<|padding|>"], show_progress=False)
    inner = inner._tokenizer
    inner.normalizer = tokenizers.normalizers.NFC()
    inner.add_tokens([tokenizers.AddedToken("    ", normalized=True), tokenizers.AddedToken("  ", normalized=True)])
    inner.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", tokenizers.AddedToken("[MASK]", lstrip=True)])
    ends = [(name, inner.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    spaces, looks_special = (row.tolist()[1:-1] for row in tokenizer.encode(["a    few", "[SEP] words"], 40)[0])
    assert inner.token_to_id("    ") in spaces
    assert tokenizer.sep_id not in looks_special
    tokenizer.save(tmp_path / "again")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    for text in ("a few   words", "[SEP] words  of", ""):
        assert theirs(text)["input_ids"] == tokenizer.encode([text], 40)[0][0].tolist()


def test_a_sentencepiece_vocabulary_of_xlm_r_does_not_read_text_as_special_tokens(tmp_path):
    words = [(piece, -3.0) for piece in ("\u2581a", "\u2581word", "\u2581", "<", ">", "/", "p", "a", "d", "s", "u", "n", "k", "m")]
    inner = tokenizers.Tokenizer(
        tokenizers.models.Unigram([("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *words], 3)
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    found = tokenizer.encode(["a word", "a <pad>"], 40)[0]
    assert found[0].tolist() == [0, 4, 5, 2]
    assert not {1, 0} & {*found[1].tolist()[1:-1]}


def test_another_architecture_is_refused_with_the_list():
    with pytest.raises(ModelFileError, match="not one of bert, roberta, xlm-roberta, distilbert, mpnet, modernbert"):
        parse_config({"model_type": "gpt2"}, Path("config.json"))
