"""Names and shapes of weights in PyTorch: those of BERT, and heads that several families have.

A shape is a text such as "3D D". The letters are V vocabulary, P positions, S token types (segments), E width of the word
embeddings, D hidden, I intermediate, H heads and C classes; a number before a letter multiplies it. A weight without elements
is absent: BERT's table also serves encoders without segments.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from jax_sentemb.models.bert_config import BertConfig

Transform = Callable[[Shaped[np.ndarray, "..."]], Shaped[np.ndarray, "..."]]


class Weight(NamedTuple):
    """A weight here and in PyTorch; "{}" in its names is the number of a layer."""

    flax: str
    torch: str
    transform: Transform  # in both directions
    shape: str  # in PyTorch


def keep(tensor: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """Return the tensor."""
    return tensor


def transpose(tensor: Shaped[np.ndarray, "rows columns"]) -> Shaped[np.ndarray, "columns rows"]:
    """Convert the weight [out, in] of PyTorch's Linear to a kernel [in, out], or back."""
    return np.ascontiguousarray(tensor.T)


def sizes_of(shape: str, config: BertConfig, classes: int = 1) -> tuple[int, ...]:
    """Return the sizes of a shape in an encoder of this configuration."""
    letters = {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
        "E": config.embedding_width,
        "D": config.hidden_size,
        "I": config.intermediate_size,
        "H": config.num_attention_heads,
        "C": classes,
        "": 1,
    }
    axes = [(axis.rstrip("VPSEDIHC"), axis.lstrip("0123456789")) for axis in shape.split()]
    return tuple(int(number or 1) * letters[letter] for number, letter in axes)


EMBEDDINGS = (
    Weight("embeddings/word", "embeddings.word_embeddings.weight", keep, "V E"),
    Weight("embeddings/position", "embeddings.position_embeddings.weight", keep, "P E"),
    Weight("embeddings/token_type", "embeddings.token_type_embeddings.weight", keep, "S E"),
    Weight("embeddings/norm/scale", "embeddings.LayerNorm.weight", keep, "E"),
    Weight("embeddings/norm/bias", "embeddings.LayerNorm.bias", keep, "E"),
)
LAYERS = (
    Weight("layer_{}/query/kernel", "encoder.layer.{}.attention.self.query.weight", transpose, "D D"),
    Weight("layer_{}/query/bias", "encoder.layer.{}.attention.self.query.bias", keep, "D"),
    Weight("layer_{}/key/kernel", "encoder.layer.{}.attention.self.key.weight", transpose, "D D"),
    Weight("layer_{}/key/bias", "encoder.layer.{}.attention.self.key.bias", keep, "D"),
    Weight("layer_{}/value/kernel", "encoder.layer.{}.attention.self.value.weight", transpose, "D D"),
    Weight("layer_{}/value/bias", "encoder.layer.{}.attention.self.value.bias", keep, "D"),
    Weight("layer_{}/attention_output/kernel", "encoder.layer.{}.attention.output.dense.weight", transpose, "D D"),
    Weight("layer_{}/attention_output/bias", "encoder.layer.{}.attention.output.dense.bias", keep, "D"),
    Weight("layer_{}/attention_norm/scale", "encoder.layer.{}.attention.output.LayerNorm.weight", keep, "D"),
    Weight("layer_{}/attention_norm/bias", "encoder.layer.{}.attention.output.LayerNorm.bias", keep, "D"),
    Weight("layer_{}/intermediate/kernel", "encoder.layer.{}.intermediate.dense.weight", transpose, "I D"),
    Weight("layer_{}/intermediate/bias", "encoder.layer.{}.intermediate.dense.bias", keep, "I"),
    Weight("layer_{}/output/kernel", "encoder.layer.{}.output.dense.weight", transpose, "D I"),
    Weight("layer_{}/output/bias", "encoder.layer.{}.output.dense.bias", keep, "D"),
    Weight("layer_{}/output_norm/scale", "encoder.layer.{}.output.LayerNorm.weight", keep, "D"),
    Weight("layer_{}/output_norm/bias", "encoder.layer.{}.output.LayerNorm.bias", keep, "D"),
)
POOLER = (
    Weight("kernel", "pooler.dense.weight", transpose, "D D"),
    Weight("bias", "pooler.dense.bias", keep, "D"),
)


def token_head(dense: str, norm: str, bias: str) -> tuple[Weight, ...]:
    """Return a masked-language-model head from PyTorch's names of its parts; its output kernel is the word embedding."""
    return (
        Weight("transform/kernel", f"{dense}.weight", transpose, "E D"),
        Weight("transform/bias", f"{dense}.bias", keep, "E"),
        Weight("norm/scale", f"{norm}.weight", keep, "E"),
        Weight("norm/bias", f"{norm}.bias", keep, "E"),
        Weight("bias", bias, keep, "V"),
    )
