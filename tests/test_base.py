"""The base class of methods: what a subclass has to define, and what it gets."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.config import Config, Data, check
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods import Method
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import EmbeddingMethod, InitialState
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.types import TrainState


@dataclass
class Least(Method):
    """Defines what it has to define, and a field that overrides a member of the base class."""

    pooling: str = "mean"
    ami: AttentionMI | None = None

    def init(self, encoder, loaded, key):
        return InitialState({"encoder": loaded["encoder"]})

    def encode(self, encoder, params, state, batch, seeds):
        return self.embed(encoder, params, batch.rows)

    def objective(self, params, state, encoded):
        return jnp.square(encoded).mean(), ({}, None)


def test_defaults_describe_a_method_with_one_encoder():
    method, params, state = Least(), {"encoder": {"kernel": np.ones(1)}}, TrainState({}, None, None, None, None, None)
    assert method.encoders(params) == {"": params}
    assert method.post_update(state, None) is state
    assert (method.embedding_params, method.step_shares, method.convolution) == ((), {}, None)
    assert (method.is_cross_encoder, method.reads_packed) == (False, False)
    assert list(Least.__dataclass_fields__) == ["pooling", "ami"]  # members of the base class are not hyper-parameters


def test_ami_must_fit_the_encoder():
    encoder = Bert(BertConfig(num_hidden_layers=3, num_attention_heads=2))
    Least(ami=AttentionMI(layers=(2, 3))).check(encoder, 8)
    with pytest.raises(ConfigError, match="from 1 to 3"):
        Least(ami=AttentionMI(layers=(3, 4))).check(encoder, 8)


def test_an_embedding_method_needs_a_transformer():
    @dataclass
    class Embedding(Least, EmbeddingMethod):
        pass

    Embedding().check(Bert(BertConfig()), 8)
    with pytest.raises(ConfigError, match="works on a BERT"):
        Embedding().check(WordVectors(WordsConfig(5, 2)), 8)


@pytest.mark.parametrize("name", ["init", "encode", "objective"])
def test_a_method_without_a_required_function_cannot_be_built(name):
    functions = {part: getattr(Least, part) for part in ("init", "encode", "objective") if part != name}
    with pytest.raises(TypeError, match=name):
        type("Incomplete", (Method,), functions)()


def test_a_config_takes_methods_only():
    check(Config(Least(), Data(files="grammar:9")))
    with pytest.raises(ConfigError, match="method="):
        check(Config(type("Other", (), {"pooling": "mean"})(), Data(files="grammar:9")))
