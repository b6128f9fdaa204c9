"""Reads directories of Hugging Face transformers: configuration, safetensors weights, tokenizer.

Pickle files are never opened.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ConfigError, ModelFileError, Setting
from jax_sentemb.files import read_json, shown, user_path
from jax_sentemb.formats.families import FAMILIES, check_stated, family_of
from jax_sentemb.formats.model_dir import check_hashes, transformer_folder
from jax_sentemb.formats.modules import check_layer_mean, read_convolution, read_dense
from jax_sentemb.formats.tensors import Tensors, check_finite, read_safetensors, weight_files
from jax_sentemb.formats.weight_table import HEAD_TABLES, from_torch, head_table
from jax_sentemb.models.architectures import config_class
from jax_sentemb.models.bert import ACTIVATIONS, BertConfig
from jax_sentemb.models.dense import DENSE
from jax_sentemb.types import Params

PREFIXES = tuple(
    dict.fromkeys(family.prefix for family in FAMILIES.values())
)  # in front of every name where a model with a task head was saved
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow
UNREAD = (
    "cls.seq_relationship.",
    "cls.predictions.decoder.",
    "lm_head.decoder.",
    "qa_outputs.",
    "embeddings.position_ids",
    "vocab_projector.weight",
    "decoder.weight",
)
DOWNLOADED = ["*.json", "*.safetensors", "vocab.txt", "merges.txt"]  # of a repository on the hub


def _classes(tensors: Tensors) -> int:
    """The number of outputs of the classifier head; 1 without a classifier head."""
    kernel = tensors.get("classifier.weight", np.empty(0))
    return len(kernel) if kernel.ndim == 2 else 1


def read_encoder(path: str | Path) -> tuple[BertConfig, Params]:
    """Architecture and float32 weights (NumPy) of a directory of transformers, also with modules of sentence-transformers.

    ModelFileError for a file that is missing, damaged, or does not match the architecture.
    """
    config, parts = read_parts(path)
    return config, parts["encoder"]


def read_parts(path: str | Path) -> tuple[BertConfig, dict[str, Params]]:
    """Same as `read_encoder`, with every part of the directory from which training can continue.

    "encoder" is always present; "token_head", "pooler" and "classifier" if they are complete; "cnn" and "dense" for a directory of
    sentence-transformers with such modules.
    """
    root = user_path(path)
    check_hashes(root)
    folder = transformer_folder(root)
    config = _read_config(folder)
    tensors = _read_tensors(weight_files(folder))
    parts = {"encoder": from_torch(config, tensors, folder)}
    for family, part in HEAD_TABLES:
        rows = head_table(config, part, _classes(tensors)) if family == config.model_type else []
        if rows and all(row.torch in tensors and tensors[row.torch].shape == row.shape for row in rows):
            check_finite({row.torch: tensors[row.torch] for row in rows}, folder)
            parts[part] = unflatten_dict({row.ours: row.transform(tensors[row.torch]) for row in rows}, sep="/")
    if "pooler" in parts and _is_placeholder(parts["pooler"]):
        del parts["pooler"]
    check_layer_mean(root)
    if found := read_convolution(root):
        parts["cnn"] = found[1]
    if dense := read_dense(root):
        parts[DENSE] = dense[1]
    return config, parts


def _is_placeholder(pooler: Params) -> bool:
    """Whether a pooler is the identity, which exports have only so that transformers finds one."""
    return not pooler["bias"].any() and np.array_equal(pooler["kernel"], np.eye(len(pooler["kernel"])))


def read_max_seq_length(path: str | Path) -> int:
    """The length in tokens, with special tokens, to which the directory says sentences are cut; at most its number of positions."""
    folder, positions = transformer_folder(path), max_positions(path)
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        if (folder / name).is_file():
            length = read_json(folder / name).get(key)
            if length is None:
                continue
            if not isinstance(length, int | float) or isinstance(length, bool) or not 2 <= length < math.inf:
                raise ModelFileError(f"{folder / name}: {key}={shown(length)} is not a number of tokens")
            return int(min(length, positions))  # transformers writes 1e30 if there is no limit
    return positions


def max_positions(path: str | Path) -> int:
    """The number of tokens for which the encoder of a directory has positions."""
    config = _read_config(transformer_folder(path))
    return config.max_position_embeddings - config.position_offset


def read_config(path: str | Path) -> BertConfig:
    """The architecture of a directory; ModelFileError where it is unsupported."""
    return _read_config(transformer_folder(path))


def _read_config(folder: Path) -> BertConfig:
    file = folder / "config.json"
    stated = read_json(file)
    if "auto_map" in stated:
        raise ModelFileError(f"{file}: auto_map names code for the model; code from a model directory is never run")
    return bert_config(stated, file)


def bert_config(stated: dict[str, Any], file: Path) -> BertConfig:
    """The architecture from the content of config.json; ModelFileError for an unsupported architecture or value."""
    family = family_of(stated.get("model_type"), file)
    kind = config_class(stated["model_type"])
    stated = check_stated(stated, family, file)
    values: dict[str, Any] = {"pad_token_id": 1} if family.behind_pad else {}  # transformers' default
    values |= family.fixed
    for field in dataclasses.fields(kind):
        if field.name in stated and field.name not in ("position_offset", "mask_token_id", "sep_token_id", *family.fixed):
            values[field.name] = _checked(file, field, stated[field.name])
    config = kind(**{"model_type": stated["model_type"], **values})
    if config.hidden_size % config.num_attention_heads:
        raise ModelFileError(
            f"{file}: hidden_size={config.hidden_size} is not divisible by num_attention_heads={config.num_attention_heads}"
        )
    if config.hidden_act not in ACTIVATIONS:
        raise ModelFileError(f"{file}: hidden_act={shown(config.hidden_act)} is not one of {', '.join(ACTIVATIONS)}")
    if not family.behind_pad:
        return config
    if config.max_position_embeddings - config.pad_token_id < 3:  # positions start after pad_token_id
        raise ModelFileError(f"{file}: pad_token_id={config.pad_token_id} leaves no position of {config.max_position_embeddings}")
    return dataclasses.replace(config, position_offset=config.pad_token_id + 1)


def _checked(file: Path, field: dataclasses.Field, value: Any) -> Any:
    """The value of a field of config.json; ModelFileError for another type or an unreasonable number."""
    kinds: Any = (int, float) if field.type is float else field.type
    good = isinstance(value, kinds) and not isinstance(value, bool)
    if good and field.type is not str:
        least = 0 if field.name in ("pad_token_id", "layer_norm_eps", "initializer_range") else 1
        most = 1_000 if field.name == "num_hidden_layers" else 2**31 - 1
        good = least <= value <= most  # False for NaN and infinity
    if not good:
        raise ModelFileError(f"{file}: {field.name}={shown(value)} is not a usable {getattr(field.type, '__name__', field.type)}")
    return float(value) if field.type is float else value


def _read_tensors(files: Sequence[Path]) -> Tensors:
    """float32 tensors of all files by the names of the tables."""
    tensors = {}
    for file in files:
        for stored, tensor in read_safetensors(file, lambda stored: _table_name(stored).startswith(UNREAD)).items():
            name = _table_name(stored)
            if name in tensors:
                raise ModelFileError(f"{file}: {stored} occurs twice (apart from prefixes and old names)")
            tensors[name] = tensor
    return tensors


def read_tokenizer(path: str | Path, config: BertConfig) -> Tokenizer:
    """The tokenizer of a directory; ModelFileError if it is damaged or has ids beyond the rows of the embedding table."""
    tokenizer = Tokenizer.load(transformer_folder(path))
    check_rows(tokenizer.vocab_size, config.vocab_size, path)
    return tokenizer


def _table_name(stored: str) -> str:
    for prefix in PREFIXES:
        stored = stored.removeprefix(prefix)
    for old, new in OLD_NAMES.items():
        stored = stored.replace(old, new)
    return stored


def resolve(name: str, option: str = "encoder.weights") -> Path:
    """The local directory of a model: `name`, or a snapshot of the repository of this name on the hub; errors name `option`.

    A name without an owner that the hub does not know is one of sentence-transformers, as there: all-MiniLM-L6-v2.
    """
    path, where = user_path(name), Setting(option, name) if option else name
    if path.is_dir():
        return path
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(where, ": no such directory")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        try:
            return Path(snapshot_download(name, allow_patterns=DOWNLOADED))
        except RepositoryNotFoundError:
            if "/" in name:
                raise
            return Path(snapshot_download(f"sentence-transformers/{name}", allow_patterns=DOWNLOADED))
    except Exception as error:  # the hub client raises a dozen kinds of exceptions
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(where, f": no such directory, and it cannot be downloaded from the hub ({problem})") from error
