"""Reads directories of Hugging Face transformers: configuration, safetensors weights, tokenizer.

Pickle files are never opened.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ConfigError, ModelFileError, Setting
from jax_sentemb.files import read_json, shown, user_path
from jax_sentemb.formats.families import FAMILIES, family_of, with_our_names
from jax_sentemb.formats.model_dir import check_hashes, read_sentence_config, transformer_folder
from jax_sentemb.formats.modules import check_layer_mean, read_convolution, read_dense
from jax_sentemb.formats.tensors import Tensors, check_finite, read_safetensors, weight_files
from jax_sentemb.formats.weight_table import HEAD_TABLES, from_torch, head_table
from jax_sentemb.models.architectures import config_class
from jax_sentemb.models.bert import ACTIVATIONS, BertConfig
from jax_sentemb.models.dense import DENSE
from jax_sentemb.side_files.reader import check_files, check_keys, read_side_file
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
# Settings with "token" in their names that are no tokens.
TOKENIZER_FLAGS = ("tokenize_chinese_chars", "clean_up_tokenization_spaces", "split_special_tokens", "tokenizer_class")
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
    _check_other_files(root, folder)
    tensors = _read_tensors(weight_files(folder))
    parts = {"encoder": from_torch(config, tensors, folder)}
    for family, part in HEAD_TABLES:
        rows = head_table(config, part, _classes(tensors)) if family == config.model_type else []
        if part == "token_head" and not _ties_words(folder):
            continue
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


def _check_other_files(root: Path, folder: Path) -> None:
    """Raise ModelFileError for files beside the weights that would change embeddings."""
    has_modules = (root / "modules.json").is_file()
    check_files(folder, has_modules)
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.is_file() else None
    if not has_modules and (template or (folder / "chat_template.jinja").exists()):
        raise ModelFileError(
            f"{folder}: with a chat_template and no modules.json, sentence-transformers turns each text into a chat"
        )


def _ties_words(folder: Path) -> bool:
    """Return whether a head that predicts tokens has the weights of the word embeddings, as ours has."""
    return read_json(folder / "config.json").get("tie_word_embeddings", True) is not False


def _is_placeholder(pooler: Params) -> bool:
    """Whether a pooler is the identity, which exports have only so that transformers finds one."""
    return not pooler["bias"].any() and np.array_equal(pooler["kernel"], np.eye(len(pooler["kernel"])))


def read_max_seq_length(path: str | Path) -> int:
    """Return the length in tokens, with special tokens, to which the directory cuts sentences; at most its number of positions."""
    folder, positions = transformer_folder(path), max_positions(path)
    file, sentence_config = read_sentence_config(path)
    of_tokenizer = folder / "tokenizer_config.json"
    tokenizer_config = read_side_file(of_tokenizer, of_tokenizer.name) if of_tokenizer.is_file() else {}
    candidates = (
        (file, "model_max_length", tokenizer_overrides(sentence_config)),
        (file, "max_seq_length", sentence_config),
        (of_tokenizer, "model_max_length", tokenizer_config),
        (of_tokenizer, "max_len", tokenizer_config),
    )
    for source, key, content in candidates:
        length = content.get(key)
        if length is None:
            continue
        if not isinstance(length, int | float) or isinstance(length, bool) or not 2 <= length < math.inf:
            raise ModelFileError(f"{source}: {key}={shown(length)} is not a number of tokens")
        if length > positions and source == file and not FAMILIES[read_config(path).model_type].has_positions:
            raise ModelFileError(
                f"{source}: {key}={shown(length)} is beyond max_position_embeddings={positions}; raise that in config.json"
            )
        return int(min(length, positions))  # transformers writes 1e30 if there is no limit
    return positions


def tokenizer_overrides(sentence_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the tokenizer that sentence_bert_config.json has, under its older or newer name."""
    return {**(sentence_config.get("tokenizer_args") or {}), **(sentence_config.get("processor_kwargs") or {})}


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read the tokenizer of a directory with the settings that sentence_bert_config.json has for it.

    Raises:
        ModelFileError: The tokenizer is missing or damaged, or a setting is not supported.
    """
    file, sentence_config = read_sentence_config(path)
    overrides = tokenizer_overrides(sentence_config)
    check_keys(overrides, "tokenizer_config.json", file)
    if tokens := [name for name in overrides if "token" in name and name not in TOKENIZER_FLAGS]:
        raise ModelFileError(f"{file}: tokenizer_args with {tokens[0]} is not supported: write it into tokenizer_config.json")
    return Tokenizer.load(transformer_folder(path), overrides, bool(sentence_config.get("do_lower_case")))


def max_positions(path: str | Path) -> int:
    """The number of tokens for which the encoder of a directory has positions."""
    config = _read_config(transformer_folder(path))
    return config.max_position_embeddings - config.position_offset


def read_config(path: str | Path) -> BertConfig:
    """The architecture of a directory; ModelFileError where it is unsupported."""
    return _read_config(transformer_folder(path))


def _read_config(folder: Path) -> BertConfig:
    file = folder / "config.json"
    return bert_config(read_json(file), file)


def bert_config(content: dict[str, Any], file: Path) -> BertConfig:
    """Return the architecture from the content of config.json.

    Raises:
        ModelFileError: An architecture, a key or a value is not supported.
    """
    family = family_of(content.get("model_type"), file)
    check_keys(content, f"config.json of {content['model_type']}", file)
    return config_of_fields(with_our_names(content, family, file), file)


def config_of_fields(fields: dict[str, Any], file: Path) -> BertConfig:
    """Return the architecture from the fields of BertConfig; ModelFileError for an unsupported architecture or value."""
    family = family_of(fields.get("model_type"), file)
    kind = config_class(fields["model_type"])
    values: dict[str, Any] = {"pad_token_id": 1} if family.behind_pad else {}  # transformers' default
    values |= family.defaults | family.fixed
    for field in dataclasses.fields(kind):
        if field.name in fields and field.name not in ("position_offset", "mask_token_id", "sep_token_id", *family.fixed):
            values[field.name] = _checked(file, field, fields[field.name])
    config = kind(**{"model_type": fields["model_type"], **values})
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
    tokenizer = load_tokenizer(path)
    check_rows(tokenizer.vocab_size, config.vocab_size, path)
    if config.position_offset and tokenizer.pad_id != config.pad_token_id:
        raise ModelFileError(
            f"{path}: pad_token_id={config.pad_token_id} in config.json is not that of the tokenizer, {tokenizer.pad_id}: correct "
            "config.json, since positions depend on it"
        )
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
