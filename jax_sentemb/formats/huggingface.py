"""Read directories of Hugging Face transformers: configuration, safetensors weights, tokenizer.

Pickle files are never opened.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from jax_sentemb.data.shipped import MODELS, shipped_folder
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import CORRECT, REPLACE_MODEL, ConfigError, ModelFileError, Setting, first_line
from jax_sentemb.files import quote, read_json, user_path
from jax_sentemb.formats.config_json import read_config
from jax_sentemb.formats.model_dir import check_hashes, read_sentence_config, transformer_folder
from jax_sentemb.formats.modules import check_layer_mean, read_convolution, read_dense
from jax_sentemb.formats.tensors import Shapes, Tensors, check_finite, check_memory, read_safetensors, read_shapes, weight_files
from jax_sentemb.formats.weight_table import Row, check_shapes, from_torch, head_table, is_ignored, table, table_name
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.side_files.reader import check_files, check_keys, check_links, read_side_file
from jax_sentemb.types import Params

# Settings that have "token" in their names but are not tokens.
TOKENIZER_FLAGS = ("tokenize_chinese_chars", "clean_up_tokenization_spaces", "split_special_tokens", "tokenizer_class")
SHIPPED = f"{', '.join(MODELS)}, which needs no download"
DOWNLOADED = ["*.json", "*.safetensors", "vocab.txt", "merges.txt"]  # the files of a repository on the hub that are downloaded


def _classes(shapes: Shapes) -> int:
    """Return the number of outputs of the classifier head; 1 without a classifier head."""
    shape = shapes.get("classifier.weight", ())
    return shape[0] if len(shape) == 2 else 1


def read_encoder(path: str | Path) -> tuple[BertConfig, Params]:
    """Read the architecture and the float32 weights (NumPy) of a directory of a Hugging Face library.

    Raises:
        ModelFileError: A file is missing, damaged, or does not match the architecture.
    """
    config, parts = read_parts(path)
    return config, parts["encoder"]


def read_parts(path: str | Path) -> tuple[BertConfig, dict[str, Params]]:
    """Read the architecture of a directory of a Hugging Face library, and every part from which training can continue.

    Returns:
        The architecture and the float32 parameters (NumPy) by part. "encoder" is always present, "token_head", "pooler" and
        "classifier" only if they are complete, and "cnn" and "dense" only if the directory has such modules of
        sentence-transformers.

    Raises:
        ModelFileError: A file is missing, damaged, or does not match the architecture.
    """
    root = user_path(path)
    check_hashes(root)
    folder = transformer_folder(root)
    config = read_config(root)
    _check_other_files(root, folder)
    files = weight_files(folder)
    shapes = _read_shapes(files, config)
    check_shapes(config, shapes, folder)
    heads = {part: rows for part, rows in _heads(config, shapes) if part != "token_head" or _has_head(folder, config)}
    encoder = {row.torch for row in table(config)}
    tensors = _read_tensors(files, encoder.union(row.torch for rows in heads.values() for row in rows))
    parts = {"encoder": from_torch(config, {name: tensors[name] for name in encoder}, folder)}
    for part, rows in heads.items():
        check_finite({row.torch: tensors[row.torch] for row in rows}, folder)
        parts[part] = unflatten_dict({row.flax: row.transform(tensors[row.torch]) for row in rows}, sep="/")
    if "pooler" in parts and _is_placeholder(parts["pooler"]):
        del parts["pooler"]
    check_layer_mean(root)
    if convolution := read_convolution(root):
        parts["cnn"] = convolution[1]
    if dense := read_dense(root):
        parts[DENSE] = dense[1]
    return config, parts


def _check_other_files(root: Path, folder: Path) -> None:
    """Raise ModelFileError for files next to the weights that would change embeddings."""
    for directory in (root, folder):
        check_links(directory)
    has_modules = (root / "modules.json").is_file()
    check_files(folder, has_modules)
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.is_file() else None
    if not has_modules and (template or (folder / "chat_template.jinja").exists()):
        raise ModelFileError(
            f"{folder}: with a chat_template and no modules.json, sentence-transformers turns each text into a chat; remove the "
            "template"
        )


def _has_head(folder: Path, config: BertConfig) -> bool:
    """Return whether the head that predicts tokens has the word embeddings as its output kernel, as in this package."""
    expected = {"tie_word_embeddings": True, **FAMILIES[config.model_type].head_settings}
    content = read_json(folder / "config.json")
    return all(content.get(key, value) == value for key, value in expected.items())


def _is_placeholder(pooler: Params) -> bool:
    """Return whether a pooler is the identity, which exports contain so that transformers does not warn."""
    return not pooler["bias"].any() and np.array_equal(pooler["kernel"], np.eye(len(pooler["kernel"])))


def read_max_seq_length(path: str | Path) -> int:
    """Return the length in tokens, with special tokens, to which the directory cuts sentences; at most its number of positions."""
    folder, positions = transformer_folder(path), max_positions(path)
    file, sentence_config = read_sentence_config(path)
    tokenizer_file = folder / "tokenizer_config.json"
    tokenizer_config = read_side_file(tokenizer_file, tokenizer_file.name) if tokenizer_file.is_file() else {}
    candidates = (
        (file, "model_max_length", tokenizer_overrides(file, sentence_config)),
        (file, "max_seq_length", sentence_config),
        (tokenizer_file, "model_max_length", tokenizer_config),
        (tokenizer_file, "max_len", tokenizer_config),
    )
    for source, key, content in candidates:
        length = content.get(key)
        if length is None:
            continue
        if not isinstance(length, int | float) or isinstance(length, bool) or not 2 <= length < math.inf or length % 1:
            raise ModelFileError(f"{source}: {key}={quote(length)} is not a number of tokens; {CORRECT}")
        if length > positions and source == file and not FAMILIES[read_config(path).model_type].has_positions:
            raise ModelFileError(
                f"{source}: {key}={quote(length)} exceeds max_position_embeddings={positions}; raise that in config.json"
            )
        return int(min(length, positions))  # transformers writes 1e30 if there is no limit
    return positions


def tokenizer_overrides(file: Path, sentence_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizer settings in sentence_bert_config.json: "tokenizer_args", or "processor_kwargs" in newer files."""
    overrides: dict[str, Any] = {}
    for name in ("tokenizer_args", "processor_kwargs"):
        settings = sentence_config.get(name) or {}
        if not isinstance(settings, dict):
            raise ModelFileError(f"{file}: {name}={quote(settings)} is not an object; write the settings between braces")
        overrides |= settings
    return overrides


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read the tokenizer of a directory. Settings in sentence_bert_config.json take precedence over those of the tokenizer.

    Raises:
        ModelFileError: The tokenizer is missing or damaged, or a setting is not supported.
    """
    file, sentence_config = read_sentence_config(path)
    overrides = tokenizer_overrides(file, sentence_config)
    check_keys(overrides, "tokenizer_config.json", file)
    if tokens := [name for name in overrides if "token" in name and name not in TOKENIZER_FLAGS]:
        raise ModelFileError(f"{file}: tokenizer_args with {tokens[0]} is not supported: write it into tokenizer_config.json")
    return Tokenizer.load(transformer_folder(path), overrides, bool(sentence_config.get("do_lower_case")))


def max_positions(path: str | Path) -> int:
    """Return the number of tokens for which the encoder of a directory has positions."""
    config = read_config(path)
    return config.max_position_embeddings - config.position_offset


def _heads(config: BertConfig, shapes: Shapes) -> Iterator[tuple[str, list[Row]]]:
    """Yield the name and the weights of each head whose tensors are all present."""
    for part in FAMILIES[config.model_type].heads:
        rows = head_table(config, part, _classes(shapes))
        if rows and all(shapes.get(row.torch) == row.shape for row in rows):
            yield part, rows


def _read_shapes(files: Sequence[Path], config: BertConfig) -> Shapes:
    """Return the shapes of the tensors of all files by their names in the tables, without those that are ignored."""
    shapes: Shapes = {}
    for file in files:
        for stored, shape in read_shapes(file).items():
            name = table_name(stored)
            if name in shapes:
                raise ModelFileError(f"{file}: {stored} occurs twice (apart from prefixes and old names); {REPLACE_MODEL}")
            if not is_ignored(name, config):
                shapes[name] = shape
    check_memory(files[0].parent, 4 * sum(map(math.prod, shapes.values())))
    return shapes


def _read_tensors(files: Sequence[Path], names: Set[str]) -> Tensors:
    """Return the float32 tensors of all files that have these names in the tables."""
    tensors: Tensors = {}
    for file in files:
        stored = read_safetensors(file, lambda name: table_name(name) not in names)
        tensors |= {table_name(name): tensor for name, tensor in stored.items()}
    return tensors


def read_tokenizer(path: str | Path, config: BertConfig) -> Tokenizer:
    """Read the tokenizer of a directory.

    Raises:
        ModelFileError: The tokenizer is damaged, or its ids do not fit the architecture.
    """
    tokenizer = load_tokenizer(path)
    check_rows(tokenizer.vocab_size, config.vocab_size, path)
    if config.position_offset and tokenizer.pad_id != config.pad_token_id:
        raise ModelFileError(
            f"{path}: pad_token_id={config.pad_token_id} in config.json differs from that of the tokenizer, {tokenizer.pad_id}; "
            "correct config.json, since positions depend on it"
        )
    return tokenizer


def resolve(name: str, option: str = "encoder.weights") -> Path:
    """Return the local directory of a model, after downloading it if necessary.

    Args:
        name: A directory, the name of a model that ships with the package (`mini-distilled`), or the name of a repository on the
            hub. The owner sentence-transformers may be left out, as in all-MiniLM-L6-v2.
        option: The setting or option that errors name.

    Raises:
        ConfigError: There is no such directory, and the repository cannot be downloaded.
    """
    path, where = user_path(name), Setting(option, name) if option else name
    if path.is_dir():
        return path
    if name in MODELS:
        return shipped_folder(MODELS[name])
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        problem = "is a file" if path.is_file() else "no such directory"
        raise ConfigError(where, f": {problem}; give a directory, a name of the hub, or {SHIPPED}")
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
        raise ConfigError(
            where,
            f": no such directory, and it cannot be downloaded from the hub ({first_line(error)}); give a directory, or {SHIPPED}",
        ) from error
