"""Every architecture beside BERT: equal to transformers on random weights, written under its own name, refused by a list."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ModelFileError
from jax_sentemb.formats.families import FAMILIES
from jax_sentemb.formats.huggingface import bert_config, read_encoder, read_parts
from jax_sentemb.formats.sentence_transformers import SentenceModel, write_export
from jax_sentemb.inference.load import load
from jax_sentemb.models.bert import Bert, Capture
from jax_sentemb.types import Rows

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

COMMON = {"vocab_size": 90, "max_position_embeddings": 40}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = {
    "roberta": lambda: transformers.RobertaConfig(**COMMON, **SIZES, type_vocab_size=1),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(**COMMON, **SIZES, type_vocab_size=1),
    "distilbert": lambda: transformers.DistilBertConfig(**COMMON, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
}
LENGTHS = (1, 2, 7, 30)


def test_every_family_is_tested():
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


def test_states_and_attention_equal_transformers_for_every_length(theirs):
    _, folder, model = theirs
    config, params = read_encoder(folder)
    random = np.random.default_rng(0)
    width = max(LENGTHS)
    tokens = random.integers(5, 90, (len(LENGTHS), width)).astype(np.int32)
    mask = np.arange(width) < np.array(LENGTHS)[:, None]
    tokens[~mask] = config.pad_token_id
    capture = Capture((2,), lambda number, attention: attention.probabilities)
    encode = jax.jit(lambda rows: Bert(config).apply({"params": params}, rows, capture=capture))
    ours = encode(Rows(tokens, mask))
    with torch.no_grad():
        output = model(torch.tensor(tokens).long(), torch.tensor(mask).long(), output_attentions=True)
    for row, length in enumerate(LENGTHS):
        expected = output.last_hidden_state[row, :length].numpy()
        np.testing.assert_allclose(ours.hidden[-1][row, :length], expected, atol=1e-5)
        alone = encode(Rows(tokens[row : row + 1, :length], mask[row : row + 1, :length]))
        np.testing.assert_allclose(ours.hidden[-1][row, :length], alone.hidden[-1][0], atol=1e-5)  # padding changes nothing
        attention = output.attentions[1][row, :, :length, :length].numpy()
        np.testing.assert_allclose(ours.observed[2][row, :, :length, :length], attention, atol=1e-5)


def test_an_export_has_the_name_of_its_architecture_and_loads_without_a_warning(theirs, tmp_path, caplog):
    kind, folder, model = theirs
    config, params = read_encoder(folder)
    tokenizer = Tokenizer.train(["a few words of no consequence"] * 4, 60)
    write_export(tmp_path, SentenceModel(config, {"encoder": params}, tokenizer, "mean", 20))
    stated = json.loads((tmp_path / "config.json").read_text())
    assert stated["architectures"] == [type(model).__name__]
    assert stated["model_type"] == kind
    again, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert "pooler" not in read_parts(tmp_path)[1]
    ids, _ = tokenizer.encode(["a few words"], 20)
    with torch.no_grad():
        states = again.eval()(torch.tensor(ids[0][None]).long()).last_hidden_state[0]
    np.testing.assert_allclose(load(tmp_path)(["a few words"])[0], states.mean(0).numpy(), atol=1e-5)


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
    with pytest.raises(ModelFileError, match="not one of bert, roberta, xlm-roberta, distilbert"):
        bert_config({"model_type": "gpt2"}, Path("config.json"))
