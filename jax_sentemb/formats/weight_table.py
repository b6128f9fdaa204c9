"""The weights of every architecture: tables that map the parameters of this package to PyTorch's tensors, used both ways."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Shaped

from jax_sentemb.errors import ModelFileError
from jax_sentemb.formats.families import FAMILIES
from jax_sentemb.formats.tensors import Tensors
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.mpnet import BUCKETS
from jax_sentemb.types import Params


def keep(tensor: Shaped[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """The tensor without a change."""
    return tensor


def transpose(tensor: Shaped[np.ndarray, "rows columns"]) -> Shaped[np.ndarray, "columns rows"]:
    """Converts torch's Linear weight [out, in] to our kernel [in, out], or back."""
    return np.ascontiguousarray(tensor.T)


# Our path, torch's name, the transform between them (in both directions), and the shape in torch:
# V vocabulary, P positions, S token types (segments), D hidden, I intermediate, C classes, H heads, B buckets of distances;
# T is 3 D and J is 2 I.
EMBEDDING_TABLE = (
    ("embeddings/word", "embeddings.word_embeddings.weight", keep, "VD"),
    ("embeddings/position", "embeddings.position_embeddings.weight", keep, "PD"),
    ("embeddings/token_type", "embeddings.token_type_embeddings.weight", keep, "SD"),
    ("embeddings/norm/scale", "embeddings.LayerNorm.weight", keep, "D"),
    ("embeddings/norm/bias", "embeddings.LayerNorm.bias", keep, "D"),
)
LAYER_TABLE = (
    ("layer_{}/query/kernel", "encoder.layer.{}.attention.self.query.weight", transpose, "DD"),
    ("layer_{}/query/bias", "encoder.layer.{}.attention.self.query.bias", keep, "D"),
    ("layer_{}/key/kernel", "encoder.layer.{}.attention.self.key.weight", transpose, "DD"),
    ("layer_{}/key/bias", "encoder.layer.{}.attention.self.key.bias", keep, "D"),
    ("layer_{}/value/kernel", "encoder.layer.{}.attention.self.value.weight", transpose, "DD"),
    ("layer_{}/value/bias", "encoder.layer.{}.attention.self.value.bias", keep, "D"),
    ("layer_{}/attention_output/kernel", "encoder.layer.{}.attention.output.dense.weight", transpose, "DD"),
    ("layer_{}/attention_output/bias", "encoder.layer.{}.attention.output.dense.bias", keep, "D"),
    ("layer_{}/attention_norm/scale", "encoder.layer.{}.attention.output.LayerNorm.weight", keep, "D"),
    ("layer_{}/attention_norm/bias", "encoder.layer.{}.attention.output.LayerNorm.bias", keep, "D"),
    ("layer_{}/intermediate/kernel", "encoder.layer.{}.intermediate.dense.weight", transpose, "ID"),
    ("layer_{}/intermediate/bias", "encoder.layer.{}.intermediate.dense.bias", keep, "I"),
    ("layer_{}/output/kernel", "encoder.layer.{}.output.dense.weight", transpose, "DI"),
    ("layer_{}/output/bias", "encoder.layer.{}.output.dense.bias", keep, "D"),
    ("layer_{}/output_norm/scale", "encoder.layer.{}.output.LayerNorm.weight", keep, "D"),
    ("layer_{}/output_norm/bias", "encoder.layer.{}.output.LayerNorm.bias", keep, "D"),
)
TABLES = {  # embeddings and layers where they are not those of BERT
    "mpnet": ((*EMBEDDING_TABLE, ("relative_bias", "encoder.relative_attention_bias.weight", keep, "BH")), LAYER_TABLE),
    "modernbert": (
        (
            ("embeddings/word", "embeddings.tok_embeddings.weight", keep, "VD"),
            ("embeddings/norm/scale", "embeddings.norm.weight", keep, "D"),
            ("final_norm/scale", "final_norm.weight", keep, "D"),
        ),
        (
            ("layer_{}/attention_norm/scale", "layers.{}.attn_norm.weight", keep, "D"),  # not in the first layer
            ("layer_{}/query_key_value", "layers.{}.attn.Wqkv.weight", transpose, "TD"),
            ("layer_{}/attention_output", "layers.{}.attn.Wo.weight", transpose, "DD"),
            ("layer_{}/output_norm/scale", "layers.{}.mlp_norm.weight", keep, "D"),
            ("layer_{}/intermediate", "layers.{}.mlp.Wi.weight", transpose, "JD"),
            ("layer_{}/output", "layers.{}.mlp.Wo.weight", transpose, "DI"),
        ),
    ),
}
_ROBERTA_HEAD = (
    ("transform/kernel", "lm_head.dense.weight", transpose, "DD"),
    ("transform/bias", "lm_head.dense.bias", keep, "D"),
    ("norm/scale", "lm_head.layer_norm.weight", keep, "D"),
    ("norm/bias", "lm_head.layer_norm.bias", keep, "D"),
    ("bias", "lm_head.bias", keep, "V"),
)
_POOLER = (
    ("kernel", "pooler.dense.weight", transpose, "DD"),
    ("bias", "pooler.dense.bias", keep, "D"),
)
HEAD_TABLES = {
    # The masked-language-model head; its output kernel is the word embedding.
    ("bert", "token_head"): (
        ("transform/kernel", "cls.predictions.transform.dense.weight", transpose, "DD"),
        ("transform/bias", "cls.predictions.transform.dense.bias", keep, "D"),
        ("norm/scale", "cls.predictions.transform.LayerNorm.weight", keep, "D"),
        ("norm/bias", "cls.predictions.transform.LayerNorm.bias", keep, "D"),
        ("bias", "cls.predictions.bias", keep, "V"),
    ),
    ("roberta", "token_head"): _ROBERTA_HEAD,
    ("xlm-roberta", "token_head"): _ROBERTA_HEAD,
    ("distilbert", "token_head"): (
        ("transform/kernel", "vocab_transform.weight", transpose, "DD"),
        ("transform/bias", "vocab_transform.bias", keep, "D"),
        ("norm/scale", "vocab_layer_norm.weight", keep, "D"),
        ("norm/bias", "vocab_layer_norm.bias", keep, "D"),
        ("bias", "vocab_projector.bias", keep, "V"),
    ),
    ("mpnet", "token_head"): _ROBERTA_HEAD,
    ("modernbert", "token_head"): (
        ("transform/kernel", "head.dense.weight", transpose, "DD"),
        ("norm/scale", "head.norm.weight", keep, "D"),
        ("bias", "decoder.bias", keep, "V"),
    ),
    ("bert", "pooler"): _POOLER,
    ("roberta", "pooler"): _POOLER,
    ("xlm-roberta", "pooler"): _POOLER,
    ("mpnet", "pooler"): _POOLER,
    # The head of a cross-encoder: one score, or a logit for each class.
    ("bert", "classifier"): (
        ("kernel", "classifier.weight", transpose, "CD"),
        ("bias", "classifier.bias", keep, "C"),
    ),
}
IGNORED = (
    "pooler.",
    "cls.",
    "lm_head.",
    "classifier.",
    "qa_outputs.",
    "embeddings.position_ids",
    "vocab_",
    "pre_classifier.",
    "head.",
    "decoder.",
)  # not the encoder


class Weight(NamedTuple):
    """One row of the table for a given architecture."""

    ours: str
    torch: str
    transform: Callable[[Shaped[np.ndarray, "..."]], Shaped[np.ndarray, "..."]]
    shape: tuple[int, ...]  # in torch


def table(config: BertConfig) -> list[Weight]:
    """Every weight of an encoder of this architecture."""
    embeddings, layer_rows = TABLES.get(config.model_type, (EMBEDDING_TABLE, LAYER_TABLE))
    layers = [_weight(config, row, layer) for layer in range(config.num_hidden_layers) for row in layer_rows]
    absent = () if config.type_vocab_size else ("embeddings/token_type",)
    absent += ("layer_0/attention_norm/scale",) if config.model_type == "modernbert" else ()
    return [weight for weight in (*(_weight(config, row) for row in embeddings), *layers) if weight.ours not in absent]


def head_table(config: BertConfig, part: str, classes: int = 1) -> list[Weight]:
    """Every weight of a part other than the encoder ("token_head", "pooler", "classifier"); [] if this family does not have it."""
    return [_weight(config, row, classes=classes) for row in HEAD_TABLES.get((config.model_type, part), ())]


def _weight(config: BertConfig, row: tuple, layer: int = 0, classes: int = 1) -> Weight:
    sizes = {
        "C": classes,
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
        "D": config.hidden_size,
        "I": config.intermediate_size,
        "H": config.num_attention_heads,
        "B": BUCKETS,
        "T": 3 * config.hidden_size,
        "J": 2 * config.intermediate_size,
    }
    ours, torch, transform, axes = row
    for part, other in FAMILIES[config.model_type].names:
        torch = torch.replace(part, other)
    return Weight(ours.format(layer), torch.format(layer), transform, tuple(sizes[axis] for axis in axes))


def from_torch(config: BertConfig, tensors: Tensors, where: str | Path) -> Params:
    """The parameter tree (NumPy) of the encoder from tensors by torch name; ModelFileError lists tensors that do not fit."""
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(IGNORED)}
    _check_fit(config, tensors, where)
    return unflatten_dict({weight.ours: weight.transform(tensors[weight.torch]) for weight in table(config)}, sep="/")


def to_torch(config: BertConfig, params: Params) -> Tensors:
    """Tensors by torch name (float32) from our parameter tree; ModelFileError lists tensors that do not fit."""
    rows = {weight.ours: weight for weight in table(config)}
    tensors = {}
    for path, leaf in flatten_dict(params, sep="/").items():
        values = np.asarray(leaf, np.float32)
        if path in rows:
            tensors[rows[path].torch] = rows[path].transform(values)
        else:
            tensors[path] = values  # `_check_fit` reports it by our name
    _check_fit(config, tensors, "parameters")
    return tensors


def head_to_torch(config: BertConfig, part: str, params: Params) -> Tensors:
    """Tensors by torch name (float32) of a part other than the encoder."""
    leaves = flatten_dict(params, sep="/")
    return {weight.torch: weight.transform(np.asarray(leaves[weight.ours], np.float32)) for weight in head_table(config, part)}


def _check_fit(config: BertConfig, tensors: Tensors, where: str | Path) -> None:
    """ModelFileError unless `tensors` have exactly the names and shapes of the table and are finite."""
    expected = {weight.torch: weight.shape for weight in table(config)}
    faults = [f"{name} is missing, expected {list(shape)}" for name, shape in expected.items() if name not in tensors]
    for name, tensor in tensors.items():
        if name not in expected:
            faults.append(f"{name} {list(tensor.shape)} is not part of a {config.model_type} encoder")
        elif tensor.shape != expected[name]:
            faults.append(f"{name} has shape {list(tensor.shape)}, expected {list(expected[name])}")
        elif not np.isfinite(tensor).all():
            faults.append(f"{name} contains NaN or Inf")
    if faults:
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise ModelFileError(f"{where}: {len(faults)} tensors do not fit config.json: {'; '.join(faults[:10])}{more}")
