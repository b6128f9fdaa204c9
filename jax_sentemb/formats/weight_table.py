"""Convert the parameters of this package to PyTorch's tensors and back, by the tables of models/families."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from jax_sentemb.errors import REPLACE_MODEL, ModelFileError
from jax_sentemb.formats.tensors import Shapes, Tensors
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.families.weights import Transform, Weight, sizes_of
from jax_sentemb.types import Params

# Weights whose names begin like this are ignored unless a family has them in a head. A family may ignore others as well.
IGNORED = ("pooler.", "cls.", "lm_head.", "classifier.", "qa_outputs.", "embeddings.position_ids")
PREFIXES = tuple(dict.fromkeys(family.weight_prefix for family in FAMILIES.values()))
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow


class Row(NamedTuple):
    """A weight of an encoder of a given size."""

    flax: str  # path in the parameter tree
    torch: str
    transform: Transform
    shape: tuple[int, ...]  # in PyTorch


def table(config: BertConfig) -> list[Row]:
    """Return every weight of an encoder of this architecture."""
    family = FAMILIES[config.model_type]
    rows = [_row(config, weight) for weight in family.embeddings]
    rows += [_row(config, weight, layer) for layer in range(config.num_hidden_layers) for weight in family.layers]
    absent = family.absent(config)
    return [row for row in rows if row.flax not in absent and 0 not in row.shape]


def head_table(config: BertConfig, part: str, classes: int = 1) -> list[Row]:
    """Return every weight of a part other than the encoder ("token_head", "pooler", "classifier"); [] if the family lacks it."""
    return [_row(config, weight, classes=classes) for weight in FAMILIES[config.model_type].heads.get(part, ())]


def _row(config: BertConfig, weight: Weight, layer: int = 0, classes: int = 1) -> Row:
    torch = weight.torch
    for bert, name in FAMILIES[config.model_type].renamed:
        torch = torch.replace(bert, name)
    return Row(weight.flax.format(layer), torch.format(layer), weight.transform, sizes_of(weight.shape, config, classes))


def table_name(stored: str) -> str:
    """Return the name that the tables have for a tensor, whose stored name may have a prefix or an older spelling."""
    for prefix in PREFIXES:
        stored = stored.removeprefix(prefix)
    for old, new in OLD_NAMES.items():
        stored = stored.replace(old, new)
    return stored


def is_ignored(name: str, config: BertConfig) -> bool:
    """Return whether a tensor belongs to a head that this package does not use."""
    family = FAMILIES[config.model_type]
    return name.startswith((*IGNORED, *family.ignored)) and name not in head_names(config)


def head_names(config: BertConfig) -> set[str]:
    """Return the torch names of all weights of the heads that are used."""
    return {row.torch for part in FAMILIES[config.model_type].heads for row in head_table(config, part)}


def check_shapes(config: BertConfig, shapes: Shapes, where: str | Path) -> None:
    """Raise ModelFileError unless the tensors are those of an encoder of this architecture. Tensors of heads are not checked.

    Args:
        config: The architecture.
        shapes: The shapes of the tensors by torch name.
        where: The file or folder, for the message.
    """
    skipped = head_names(config)
    _raise_for(_shape_faults(config, {name: shape for name, shape in shapes.items() if name not in skipped}), where)


def from_torch(config: BertConfig, tensors: Tensors, where: str | Path) -> Params:
    """Return the parameter tree (NumPy) of an encoder from its tensors by torch name.

    Raises:
        ModelFileError: Tensors are missing, superfluous or do not fit; the message lists them.
    """
    _check_fit(config, tensors, where)
    return unflatten_dict({row.flax: row.transform(tensors[row.torch]) for row in table(config)}, sep="/")


def to_torch(config: BertConfig, params: Params) -> Tensors:
    """Return tensors by torch name (float32) from the parameter tree of an encoder.

    Raises:
        ModelFileError: Parameters are missing, superfluous or do not fit; the message lists them.
    """
    rows = {row.flax: row for row in table(config)}
    tensors = {}
    for path, leaf in flatten_dict(params, sep="/").items():
        values = np.asarray(leaf, np.float32)
        if path in rows:
            tensors[rows[path].torch] = rows[path].transform(values)
        else:
            tensors[path] = values  # `_check_fit` reports it by its path in the parameter tree
    _check_fit(config, tensors, "parameters")
    return tensors


def head_to_torch(config: BertConfig, part: str, params: Params) -> Tensors:
    """Return tensors by torch name (float32) of a part other than the encoder."""
    leaves = flatten_dict(params, sep="/")
    return {row.torch: row.transform(np.asarray(leaves[row.flax], np.float32)) for row in head_table(config, part)}


def _check_fit(config: BertConfig, tensors: Tensors, where: str | Path) -> None:
    """Raise ModelFileError unless `tensors` have exactly the names and shapes of the table and are finite."""
    faults = _shape_faults(config, {name: tensor.shape for name, tensor in tensors.items()})
    faults += [f"{name} contains NaN or Inf" for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    _raise_for(faults, where)


def _shape_faults(config: BertConfig, shapes: Shapes) -> list[str]:
    """Return a text for each difference between the tensors and the table."""
    expected = {row.torch: row.shape for row in table(config)}
    faults = [f"{name} is missing, expected {list(shape)}" for name, shape in expected.items() if name not in shapes]
    for name, shape in shapes.items():
        if name not in expected:
            faults.append(f"{name} {list(shape)} is not part of a {config.model_type} encoder")
        elif shape != expected[name]:
            faults.append(f"{name} has shape {list(shape)}, expected {list(expected[name])}")
    return faults


def _raise_for(faults: list[str], where: str | Path) -> None:
    """Raise ModelFileError with the first faults, if there are any."""
    if faults:
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise ModelFileError(
            f"{where}: {len(faults)} tensors do not fit config.json: {'; '.join(faults[:10])}{more}; {REPLACE_MODEL}"
        )
