"""Choose which layers of a transformer are trained."""

from typing import Any

from jax_sentemb.models.bert import BertConfig, first_trained_layer
from jax_sentemb.models.encoder import TokenEncoder

AFTER_LAYERS = ("final_norm",)  # parameters that follow the last layer


def split_layers(encoder: TokenEncoder, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the trained and the frozen parameters of an encoder whose `last_layers` are trained.

    Embeddings, their projection, and what is common to all layers (the relative bias of MPNet) are frozen.
    """
    config = encoder.config
    assert isinstance(config, BertConfig), "word vectors have no layers"
    first = max(first_trained_layer(config, encoder.last_layers), 1)
    names = {f"layer_{number - 1}" for number in range(first, config.num_hidden_layers + 1)} | set(AFTER_LAYERS)
    trained = {name: part for name, part in params.items() if name in names}
    return trained, {name: part for name, part in params.items() if name not in names}
