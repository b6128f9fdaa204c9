"""Build the encoder of a configuration; models/families describes how the architectures differ."""

import pkgutil
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from jax_sentemb.errors import ConfigError
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors


def transformer_config(fields: dict[str, Any]) -> BertConfig:
    """Return the configuration of a transformer from its fields, as model.json has them."""
    return FAMILIES[fields.get("model_type", "bert")].config(**fields)


def make_encoder(
    config: BertConfig | WordsConfig, dtype: DTypeLike = jnp.float32, dropout: float = 0.1, **memory: Any
) -> TokenEncoder:
    """Return the encoder of a configuration; only a transformer uses `dropout` and `memory`, the rest of its fields."""
    if isinstance(config, WordsConfig):
        encoder: Any = WordVectors(config, dtype)  # Flax declares no type for what `apply` returns
    else:
        family = FAMILIES[config.model_type]
        memory["scan"] = memory.get("scan", False) and family.layers_are_alike
        encoder = pkgutil.resolve_name(f"jax_sentemb.models.{family.module}")(config, dtype, dropout, **memory)
    return encoder


def bert_config(encoder: TokenEncoder) -> BertConfig:
    """Return the configuration of a transformer.

    Raises:
        ConfigError: The encoder is a table of word vectors.
    """
    if not isinstance(encoder.config, BertConfig):
        raise ConfigError("this method works on a BERT: build the config with encoder=Encoder(...)")
    return encoder.config
