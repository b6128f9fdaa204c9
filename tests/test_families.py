"""Every architecture beside BERT: equal to transformers on random weights, written under its own name, refused by a list."""

import copy
import json
import pkgutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tokenizers
from reference_models import config_of

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.formats.config_json import parse_config, read_config
from jax_sentemb.formats.huggingface import read_encoder, read_parts
from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.inference.load import load
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.attention import Capture
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.heads import token_states
from jax_sentemb.models.mpnet import distance_buckets
from jax_sentemb.parallel import make_mesh, shard_batch
from jax_sentemb.side_files.keys import KEYS
from jax_sentemb.training.encoder_source import take_layers
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch, Rows, TrainState

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

LENGTHS = (1, 2, 3, 5, 8, 13, 21, 30)
FILE = Path("config.json")
TEXTS = ["a few words", "consequence of no words a few words of no consequence"]
# Every row of the table is tested with the sizes of reference_models.py; these are further ones.
FURTHER = [("electra", {"embedding_size": 16})]
MODELS = [(family, {}) for family in FAMILIES] + FURTHER
# One family for each module and configuration class: the others compute the same.
OWN_MODULES = [(family, {}) for family in {(row.module, row.config): family for family, row in FAMILIES.items()}.values()]
HEADS = [family for family, row in FAMILIES.items() if "token_head" in row.heads]


def named(model):
    family, fields = model
    return "-".join([family, *fields])


def random_model(kind, family, fields, folder):
    """A model of transformers with random weights, written to the folder."""
    torch.manual_seed(0)
    model = getattr(transformers, kind).from_config(config_of(family, 90, **fields), attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", params=MODELS, ids=named)
def theirs(request, tmp_path_factory):
    """(model_type, directory, model) of random weights."""
    folder = tmp_path_factory.mktemp(request.param[0])
    return request.param[0], folder, random_model("AutoModel", *request.param, folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_names_what_transformers_has(family):
    """The class names, the module, the defaults of absent keys, and every key that transformers writes."""
    row = FAMILIES[family]
    theirs = getattr(transformers, f"{row.class_prefix}Config")()
    assert theirs.model_type == family
    assert getattr(transformers, f"{row.class_prefix}Model").base_model_prefix == row.weight_prefix.removesuffix(".")
    assert pkgutil.resolve_name(f"jax_sentemb.models.{row.module}").__name__
    assert (type(theirs) in transformers.AutoModelForMaskedLM._model_mapping) == ("token_head" in row.heads)
    written = theirs.to_dict()
    assert parse_config({"model_type": family}, FILE) == parse_config(written, FILE)
    assert [key for key in written if not KEYS[f"config.json of {family}"].knows(key)] == []


def padded_rows(config, lengths):
    random, width = np.random.default_rng(0), max(lengths)
    mask = np.arange(width) < np.array(lengths)[:, None]
    return Rows(np.where(mask, random.integers(5, 90, mask.shape), config.pad_token_id).astype(np.int32), mask)


def test_states_and_attention_of_every_layer_equal_transformers_for_every_length(theirs):
    _, folder, model = theirs
    config, params = read_encoder(folder)
    rows = padded_rows(config, LENGTHS)
    encoder = make_encoder(config)
    capture = Capture((1, 2), lambda number, attention: attention.probabilities)
    ours = jax.jit(lambda params: encoder.apply({"params": params}, rows, capture=capture))(params)
    given = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        output = model(torch.tensor(rows.tokens).long(), torch.tensor(rows.mask).long(), **given)
    for row, length in enumerate(LENGTHS):
        for states, expected in zip(ours.hidden, [*output.hidden_states[:-1], output.last_hidden_state], strict=True):
            np.testing.assert_allclose(states[row, :length], expected[row, :length].numpy(), atol=1e-5)
        for layer in (1, 2):
            attention = output.attentions[layer - 1][row, :, :length, :length].numpy()
            np.testing.assert_allclose(ours.observed[layer][row, :, :length, :length], attention, atol=1e-5)
    short = Rows(*(part[4:5, : LENGTHS[4]] for part in rows))
    alone = jax.jit(lambda params: encoder.apply({"params": params}, short))(params)
    np.testing.assert_allclose(ours.hidden[-1][4, : LENGTHS[4]], alone.hidden[-1][0], atol=1e-5)  # padding changes nothing


@pytest.mark.parametrize("theirs", OWN_MODULES, indirect=True, ids=named)
def test_attention_mutual_information_reaches_the_weights_of_attention_and_blocks_change_nothing(theirs):
    config, params = read_encoder(theirs[1])
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
    in_blocks = jax.jit(lambda params: information(params, attention_block=8))(params)
    np.testing.assert_allclose(in_blocks, value, rtol=1e-4)


@pytest.mark.parametrize("theirs", OWN_MODULES, indirect=True, ids=named)
def test_some_places_alone_have_the_states_of_all_and_a_fused_kernel_too(theirs):
    config, params = read_encoder(theirs[1])
    rows = padded_rows(config, (20, 11))
    places = jnp.array([[0, 19, 3], [10, 2, 0]])

    @jax.jit
    def states(params):
        plain, fused = make_encoder(config), make_encoder(config, fused_attention="xla")
        read = {"capture": Capture((2,), lambda _, attention: attention.log_normalizer)}
        ways = (
            (plain, {"token_indices": places}), (fused, {}),
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


def tokenizer_for(config):
    """A tokenizer whose [PAD] has the number of the configuration, as the positions of RoBERTa need it."""
    number = config.pad_token_id
    state = json.loads(Tokenizer.train(TEXTS * 4, 60).serialized)
    other = {0: number, number: 0}
    state["model"]["vocab"] = {piece: other.get(value, value) for piece, value in state["model"]["vocab"].items()}
    for token in state["added_tokens"]:
        token["id"] = other.get(token["id"], token["id"])
    state["added_tokens"].sort(key=lambda token: token["id"])
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))


def test_an_export_has_the_name_and_the_keys_of_its_architecture_and_loads_without_a_warning(theirs, tmp_path, caplog):
    family, folder, model = theirs
    config, params = read_encoder(folder)
    tokenizer = tokenizer_for(config)
    write_export(tmp_path, SentenceModel(config, {"encoder": params}, tokenizer, "mean", 20))
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["architectures"] == [type(model).__name__]
    assert content["model_type"] == family
    assert read_config(tmp_path) == config
    ids = {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
    assert all(content[key] == ids[role] for key, role in FAMILIES[family].token_ids.items())
    assert all(content[key] == value for key, value in FAMILIES[family].written.items())
    again, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert "pooler" not in read_parts(tmp_path)[1]
    assert "is not known" not in caplog.text
    vectors, averages = load(tmp_path)(TEXTS), load(f"{tmp_path}@first_last")(TEXTS)
    for text, vector, average in zip(TEXTS, vectors, averages, strict=True):
        ids, _ = tokenizer.encode([text], 20)
        with torch.no_grad():
            output = again.eval()(torch.tensor(ids[0][None]).long(), output_hidden_states=True)
        np.testing.assert_allclose(vector, output.last_hidden_state[0].mean(0).numpy(), atol=1e-5)
        layers = output.hidden_states  # WeightedLayerPooling reads these
        np.testing.assert_allclose(average, (layers[1] + layers[2])[0].mean(0).numpy() / 2, atol=1e-5)


@pytest.fixture(scope="module", params=HEADS)
def masked(request, tmp_path_factory):
    """A masked-language model of transformers whose layers have another activation than most heads: (directory, model)."""
    folder = tmp_path_factory.mktemp(request.param)
    return folder, random_model("AutoModelForMaskedLM", request.param, {"hidden_act": "relu"}, folder)


def test_a_masked_language_model_has_the_logits_of_transformers_and_is_written_as_it_was_read(masked, tmp_path):
    folder, model = masked
    config, parts = read_parts(folder)
    rows, encoder = padded_rows(config, (9,)), make_encoder(config)

    @jax.jit
    def logits(parts):
        states = token_states(parts["token_head"], encoder.apply({"params": parts["encoder"]}, rows).hidden[-1], encoder)
        return states @ parts["encoder"]["embeddings"]["word"].T + parts["token_head"]["bias"]

    params = {part: parts[part] for part in ("encoder", "token_head")}
    write_export(tmp_path, SentenceModel(config, params, tokenizer_for(config), "mean", 20))
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(again) is type(model)
    for theirs in (model, again.eval()):
        with torch.no_grad():
            expected = theirs(torch.tensor(rows.tokens).long()).logits.numpy()
        np.testing.assert_allclose(logits(parts), expected, atol=3e-5)
    jax.tree.map(np.testing.assert_array_equal, read_parts(tmp_path)[1]["token_head"], parts["token_head"])


@pytest.mark.parametrize("family", HEADS)
def test_a_head_whose_words_are_not_the_embeddings_is_not_taken(family, tmp_path):
    random_model("AutoModelForMaskedLM", family, {"tie_word_embeddings": False}, tmp_path)
    assert "token_head" not in read_parts(tmp_path)[1]


def test_a_modernbert_head_with_another_activation_is_not_taken(tmp_path):
    random_model("AutoModelForMaskedLM", "modernbert", {"classifier_activation": "relu"}, tmp_path)
    assert "token_head" not in read_parts(tmp_path)[1]


@pytest.mark.parametrize("kind", ["AutoModelForPreTraining", "AutoModelForSequenceClassification"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_is_read_from_a_model_with_another_head(family, kind, tmp_path):
    if type(config_of(family, 90)) not in getattr(transformers, kind)._model_mapping:
        return
    model = random_model(kind, family, {}, tmp_path)
    config, params = read_encoder(tmp_path)
    own = {name: tensor.detach().numpy() for name, tensor in model.base_model.state_dict().items()}
    tensors = to_torch(config, params)
    assert all(np.array_equal(own[name], tensor) for name, tensor in tensors.items())
    assert [name for name in own if name not in tensors and not name.startswith("pooler.")] == []


@pytest.mark.parametrize("theirs", [(family, {"num_hidden_layers": 3}) for family in FAMILIES], indirect=True, ids=named)
def test_some_layers_are_an_encoder_that_transformers_reads(theirs, tmp_path):
    family, folder, model = theirs
    whole = copy.deepcopy(model)
    del next(part for part in whole.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == 3)[
        1 if FAMILIES[family].layers_are_alike else 2
    ]
    config, params = read_encoder(folder)
    if not FAMILIES[family].layers_are_alike:
        with pytest.raises(ConfigError, match="differ by their position"):
            take_layers(config, params, "1,3")
    config, params = take_layers(config, params, "1,3" if FAMILIES[family].layers_are_alike else "1,2")
    write_export(tmp_path, SentenceModel(config, {"encoder": params}, tokenizer_for(config), "mean", 20))
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    rows = padded_rows(config, (9,))
    ours = jax.jit(lambda params: make_encoder(config).apply({"params": params}, rows).hidden[-1])(params)
    for theirs in (model, whole):
        with torch.no_grad():
            expected = theirs(torch.tensor(rows.tokens).long()).last_hidden_state.numpy()
        np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("theirs", [(family, {"num_hidden_layers": 3}) for family, _ in OWN_MODULES], indirect=True, ids=named)
def test_layers_that_are_alike_are_scanned_with_the_same_states(theirs):
    family, folder, model = theirs
    config, params = read_encoder(folder)
    rows, encoder = padded_rows(config, (9,)), make_encoder(config, scan=True)
    assert encoder.scan == FAMILIES[family].layers_are_alike
    states = jax.jit(lambda params: encoder.apply({"params": params}, rows).hidden[-1])(params)
    with torch.no_grad():
        expected = model(torch.tensor(rows.tokens).long()).last_hidden_state.numpy()
    np.testing.assert_allclose(states, expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_moves_every_weight_of_the_encoder_and_of_the_head(family, tmp_path):
    """SimCSE with the loss of masked tokens where the family has a head, which is refused elsewhere."""
    random_model("AutoModel", family, {"num_hidden_layers": 1, "type_vocab_size": 1}, tmp_path)
    config, parts = read_parts(tmp_path)
    method, encoder = SimCSE(pooling="mean", mlm_weight=1.0, mlm_probability=0.4), make_encoder(config, dropout=0.1)
    if family not in HEADS:
        with pytest.raises(ConfigError, match="has no masked-language-model head"):
            method.check(encoder, 4)
        method = SimCSE(pooling="mean")
    method.check(encoder, 4)
    optimizer, mesh = optax.sgd(1.0), make_mesh(4, jax.devices()[:1])
    state = create_state(method, encoder, optimizer, parts, 0, mesh)
    before = jax.device_get(state.params)
    rows = padded_rows(config, (40, 35, 37, 39))
    batch = Batch(rows.tokens, rows.mask)
    state, metrics = make_step(method, encoder, optimizer, mesh, 0)(state, shard_batch(batch, mesh))
    assert np.isfinite(float(metrics["loss"]))
    after = jax.device_get(state.params)
    still = [
        jax.tree_util.keystr(path)
        for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
        if np.array_equal(old, new)
    ]
    assert set(still) <= {"['encoder']['layer_0']['key']['bias']"}  # it adds the same to all scores of a query


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_decodes_or_is_refused(family, tmp_path):
    random_model("AutoModel", family, {"num_hidden_layers": 1}, tmp_path)
    config, parts = read_parts(tmp_path)
    method, encoder = TSDAE(), make_encoder(config)
    if not FAMILIES[family].can_decode:
        with pytest.raises(ConfigError, match=r"^encoder\.weights: the layers of a .* cannot decode"):
            method.check(encoder, 2)
        return
    method.check(encoder, 2)
    rows = padded_rows(config, (20, 9, 15, 7))
    batch = Batch(rows.tokens.reshape(2, 2, -1), rows.mask.reshape(2, 2, -1))
    seeds, params = jnp.arange(2, dtype=jnp.uint32), method.init(encoder, parts, jax.random.key(0)).params
    state = TrainState(params, None, None, None, None, jnp.int32(0))
    loss = jax.jit(lambda params: method.objective(params, state, method.encode(encoder, params, state, batch, seeds))[0])(params)
    assert np.isfinite(float(loss))


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
    config = parse_config({"model_type": "modernbert", "num_hidden_layers": 4, **change}, FILE)
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
        parse_config({"model_type": kind, **change}, FILE)


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
    with pytest.raises(ModelFileError, match=f"not one of {', '.join(FAMILIES)}; choose another model$"):
        parse_config({"model_type": "gpt2"}, FILE)


def test_a_page_lists_the_families_of_the_table():
    titles = [row.title for row in FAMILIES.values()]
    text = " ".join((Path(__file__).parents[1] / "docs/adapting.md").read_text(encoding="utf-8").split())
    assert f"{', '.join(titles[:-1])} and {titles[-1]}" in text
