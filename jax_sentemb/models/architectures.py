"""Maps `model_type` to a config class and an encoder; the only module that does."""

from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from jax_sentemb.errors import ConfigError
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.modern_bert import ModernBert, ModernBertConfig
from jax_sentemb.models.mpnet import MPNet
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors

MODULES: dict[str, Any] = {
    "bert": Bert,
    "roberta": Bert,
    "xlm-roberta": Bert,
    "distilbert": Bert,
    "mpnet": MPNet,
    "modernbert": ModernBert,
}
CONFIGS: dict[str, type[BertConfig]] = {"modernbert": ModernBertConfig}  # of the others: BertConfig


def config_class(model_type: str) -> type[BertConfig]:
    """The class with the sizes of a transformer of this `model_type`."""
    return CONFIGS.get(model_type, BertConfig)


def transformer_config(stated: dict[str, Any]) -> BertConfig:
    """The configuration of a transformer from its fields, as model.json has them."""
    return config_class(stated.get("model_type", "bert"))(**stated)


def make_encoder(
    config: BertConfig | WordsConfig, dtype: DTypeLike = jnp.float32, dropout: float = 0.1, **memory: Any
) -> TokenEncoder:
    """The encoder of a configuration; only a transformer uses `dropout` and `memory`, the rest of its fields."""
    if isinstance(config, WordsConfig):
        encoder: Any = WordVectors(config, dtype)  # Flax declares no type for what `apply` returns
    else:
        encoder = MODULES[config.model_type](config, dtype, dropout, **memory)
    return encoder


def bert_config(encoder: TokenEncoder) -> BertConfig:
    """The configuration of a transformer; ConfigError for word vectors."""
    if not isinstance(encoder.config, BertConfig):
        raise ConfigError("this method works on a BERT: build the config with encoder=Encoder(...)")
    return encoder.config
