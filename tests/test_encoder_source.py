"""A run's encoder from some layers of a model."""

import json
import shutil

import jax
import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb.config import Config, Data, Encoder, check
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.formats.huggingface import read_parts
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.families.modern_bert import ModernBertConfig
from jax_sentemb.recipes import read_config as read_recipe
from jax_sentemb.training.encoder_source import BertSource, take_layers
from jax_sentemb.training.starting_encoder import read_start, with_start
from jax_sentemb.types import Rows

SENTENCES = synthetic.sentences(100, 0)


@pytest.fixture(scope="module")
def six_layers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("six") / "model"
    write_export(folder, tiny_model(SENTENCES, 200, layers=6))
    return folder


@pytest.mark.parametrize("text", ["0", "0,1", "3,1", "2,2", "1,,2", "-1", "1.5", "a", ",", "1;2"])
def test_malformed_layers_are_refused_in_one_line(text):
    with pytest.raises(ConfigError, match=r"encoder\.layers=.*: write a count such as 3") as caught:
        check(Config(SimCSE(), Data(files="x.txt"), Encoder(weights="x", layers=text)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("recipe", ["adapt", "adapt_words"])
def test_a_recipe_for_a_good_model_starts_no_new_one(recipe):
    config = read_recipe(recipe)
    config.data.files = "x.txt"
    with pytest.raises(ConfigError, match=r"encoder.weights is empty.*encoder.weights=all-MiniLM-L6-v2"):
        check(config)
    config.encoder.weights = "x"
    check(config)
    check(read_recipe(f"{recipe}:tiny"))


def test_layers_need_weights_and_a_layer_that_exists(six_layers):
    with pytest.raises(ConfigError, match=r"encoder.layers=3 needs encoder.weights"):
        check(Config(SimCSE(), Data(files="x.txt"), Encoder(layers="3")))
    for text in ("7", "1,7"):
        with pytest.raises(
            ConfigError, match=f"encoder.layers={text}: encoder.weights has 6 layers; choose from 1 to 6".replace(".", r"\.")
        ):
            BertSource(Encoder(weights=str(six_layers), layers=text), Data(), {})


def test_a_tokenizer_with_more_pieces_than_the_weights_is_refused_before_text_is_read(six_layers, tmp_path):
    for file in six_layers.glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["unseen"] = len(content["model"]["vocab"])
    file.write_text(json.dumps(content))
    source = BertSource(Encoder(weights=str(six_layers)), Data(tokenizer=str(tmp_path)), {})
    with pytest.raises(ModelFileError, match=r"^data\.tokenizer and encoder\.weights: .*; use the tokenizer of the encoder$"):
        source.tokenizer([])


def test_the_encoder_has_the_states_of_the_chosen_layers_and_all_else(six_layers):
    source = BertSource(Encoder(weights=str(six_layers), layers="1,2,5"), Data(), {"data.max_seq_length": 8})
    config, whole = read_parts(six_layers)
    assert source.blank().config.num_hidden_layers == 3
    encoder = source.loaded["encoder"]
    for position, number in enumerate((0, 1, 4)):
        same = jax.tree.map(np.array_equal, encoder[f"layer_{position}"], whole["encoder"][f"layer_{number}"])
        assert all(jax.tree.leaves(same))
    assert set(encoder) == {"embeddings", "layer_0", "layer_1", "layer_2"}
    rows = Rows(np.full((2, 5), 7, np.int32), np.ones((2, 5), bool))
    states = Bert(source.config(source.tokenizer([]))).apply({"params": encoder}, rows).hidden
    expected = Bert(config).apply({"params": whole["encoder"]}, rows).hidden
    np.testing.assert_allclose(states[2], expected[2], atol=1e-6)
    assert np.abs(states[3] - expected[3]).max() > 1e-3


def test_layers_of_a_modernbert_are_its_first_ones():
    config = ModernBertConfig(num_hidden_layers=6)
    parts = {f"layer_{number}": number for number in range(6)} | {"final_norm": 9}
    taken = take_layers(config, parts, "1,2")
    assert (taken[0].num_hidden_layers, taken[1]) == (2, {"layer_0": 0, "layer_1": 1, "final_norm": 9})
    with pytest.raises(ConfigError, match="layers of a ModernBERT differ by their position; choose its first ones, such as 1,2,3"):
        take_layers(config, parts, "1,3")


def test_a_method_that_compares_layers_is_checked_with_the_chosen_ones(six_layers):
    """The pooling of the directory is taken only if the method fits the layers that remain."""
    for layers, pooling in (("", "mean"), ("2,3,4", "cls")):
        config = Config(
            SimCSE(ami=AttentionMI(layers=(5, 6), pairing="heads")),
            Data(files="x.txt"),
            Encoder(weights=str(six_layers), layers=layers),
        )
        assert with_start(config, read_start(config))[0].method.pooling == pooling
