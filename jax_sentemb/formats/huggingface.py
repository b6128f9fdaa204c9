"""Reads BERT and RoBERTa directories of Hugging Face transformers: configuration, safetensors weights, tokenizer.

A pickle is never opened.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from safetensors import SafetensorError, safe_open

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.files import check_own, inside, read_json, shown, user_path
from jax_sentemb.formats.model_dir import check_hashes, read_readout, transformer_folder
from jax_sentemb.formats.weight_table import HEAD_TABLES, from_torch, head_table
from jax_sentemb.models.bert import ACTIVATIONS, BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.types import Params

PREFIXES = ("bert.", "roberta.")  # in front of every name where a model with a task head was saved
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow
UNREAD = ("cls.seq_relationship.", "cls.predictions.decoder.", "lm_head.decoder.", "qa_outputs.", "embeddings.position_ids")
FLOATS = ("float32", "float16", "bfloat16", "float64")
HEADER_LIMIT = 1 << 21  # bytes of names and shapes: a thousand layers have less, and reading a hundred megabytes takes a minute


def _classes(tensors: dict[str, np.ndarray]) -> int:
    """Outputs of the classifier on top; 1 where there is none."""
    kernel = tensors.get("classifier.weight", np.empty(0))
    return len(kernel) if kernel.ndim == 2 else 1


def read_encoder(path: str | Path) -> tuple[BertConfig, Params]:
    """Architecture and float32 weights (NumPy) of a BERT or RoBERTa directory, sentence-transformers modules allowed.

    ModelFileError where a file is missing, damaged, or does not fit the architecture.
    """
    config, parts = read_parts(path)
    return config, parts["encoder"]


def read_parts(path: str | Path) -> tuple[BertConfig, dict[str, Params]]:
    """As `read_encoder`, with every part of the directory that training can continue from.

    "encoder" always; "token_head", "pooler" and "classifier" where they are complete; "cnn" where the directory is
    a sentence-transformers one with a CNN.
    """
    root = user_path(path)
    check_hashes(root)
    folder = transformer_folder(root)
    config = _read_config(folder)
    tensors = _read_tensors(_weight_files(folder))
    parts = {"encoder": from_torch(config, tensors, folder)}
    for family, part in HEAD_TABLES:
        rows = head_table(config, part, _classes(tensors)) if family == config.model_type else []
        if rows and all(row.torch in tensors and tensors[row.torch].shape == row.shape for row in rows):
            check_finite({row.torch: tensors[row.torch] for row in rows}, folder)
            parts[part] = unflatten_dict({row.ours: row.transform(tensors[row.torch]) for row in rows}, sep="/")
    if found := read_convolution(root):
        parts["cnn"] = found[1]
    return config, parts


def read_convolution(path: str | Path) -> tuple[Convolution, Params] | None:
    """The convolution between encoder and pooling of a sentence-transformers directory with a CNN; None without one."""
    root = user_path(path)
    readout = read_readout(root)
    if readout.cnn is None:
        return None
    file = readout.cnn / "cnn_config.json"
    stated = read_json(file)
    windows, filters = stated.get("kernel_sizes"), stated.get("out_channels")
    inputs = stated.get("in_embedding_dimension", stated.get("in_word_embedding_dimension"))
    sane = isinstance(windows, list) and all(isinstance(n, int) and 0 < n < 1000 for n in [*windows, filters, inputs])
    sane = sane and windows and len(set(windows)) == len(windows) and all(n % 2 for n in windows)
    strides = stated.get("stride_sizes")
    if not sane or strides not in (None, [1] * len(windows)):
        raise ModelFileError(
            f"{file}: kernel_sizes {shown(windows)}, out_channels {shown(filters)} or stride_sizes {shown(strides)} cannot be used"
        )
    tensors = _read_tensors(_weight_files(readout.cnn))
    params: Params = {}
    for number, window in enumerate(windows):
        expected = {f"convs.{number}.weight": (filters, inputs, window), f"convs.{number}.bias": (filters,)}
        for name, shape in expected.items():
            if name not in tensors or tensors[name].shape != shape:
                raise ModelFileError(f"{readout.cnn}: {name} is missing or not {list(shape)}, as cnn_config.json says")
        kernel, bias = (tensors[name] for name in expected)
        params[f"window_{window}"] = {"kernel": np.ascontiguousarray(kernel.transpose(2, 1, 0)), "bias": bias}
    check_finite(tensors, readout.cnn)
    return Convolution(tuple(windows), filters, reference=not readout.masked), params


def convolution_to_torch(convolution: Convolution, params: Params) -> dict[str, np.ndarray]:
    """Tensors of sentence-transformers' CNN module by name (float32)."""
    tensors = {}
    for number, window in enumerate(convolution.windows):
        kernel, bias = (np.asarray(params[f"window_{window}"][name], np.float32) for name in ("kernel", "bias"))
        tensors[f"convs.{number}.weight"] = np.ascontiguousarray(kernel.transpose(2, 1, 0))
        tensors[f"convs.{number}.bias"] = bias
    return tensors


def check_finite(tensors: dict[str, np.ndarray], where: Path) -> None:
    """ModelFileError where one of them holds NaN or Inf."""
    bad = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if bad:
        raise ModelFileError(f"{where}: {bad[0]} holds NaN or Inf")


def read_max_seq_length(path: str | Path) -> int:
    """Tokens a sentence is cut to, specials included: what the directory states, at most what its positions allow."""
    folder, positions = transformer_folder(path), max_positions(path)
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        if (folder / name).is_file():
            length = read_json(folder / name).get(key)
            if length is None:
                continue
            if not isinstance(length, int | float) or isinstance(length, bool) or not 2 <= length < math.inf:
                raise ModelFileError(f"{folder / name}: {key}={shown(length)} is no number of tokens")
            return int(min(length, positions))  # transformers writes 1e30 for "no limit"
    return positions


def max_positions(path: str | Path) -> int:
    """Tokens that the encoder of a directory has positions for."""
    config = _read_config(transformer_folder(path))
    return config.max_position_embeddings - config.position_offset


def _read_config(folder: Path) -> BertConfig:
    file = folder / "config.json"
    stated = read_json(file)
    if "auto_map" in stated:
        raise ModelFileError(f"{file}: auto_map says that the model is code; code that a model names is not run")
    return bert_config(stated, file)


def bert_config(stated: dict[str, Any], file: Path) -> BertConfig:
    """The architecture that a config.json states; ModelFileError for an unsupported architecture or value."""
    model_type = stated.get("model_type")
    if model_type not in ("bert", "roberta"):
        raise ModelFileError(f"{file}: model_type {shown(model_type)} is neither bert nor roberta")
    for key, needed in (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False)):
        if stated.get(key, needed) != needed:
            raise ModelFileError(f"{file}: {key}={shown(stated[key])} is not supported, only {needed!r}")
    values: dict[str, Any] = {"pad_token_id": 1 if model_type == "roberta" else 0}  # transformers' defaults
    for field in dataclasses.fields(BertConfig):
        if field.name in stated and field.name not in ("position_offset", "mask_token_id", "sep_token_id"):
            values[field.name] = _checked(file, field, stated[field.name])
    config = BertConfig(**values)
    if config.hidden_size % config.num_attention_heads:
        raise ModelFileError(f"{file}: hidden_size={config.hidden_size} does not divide into {config.num_attention_heads} heads")
    if config.hidden_act not in ACTIVATIONS:
        raise ModelFileError(f"{file}: hidden_act={shown(config.hidden_act)} is not one of {', '.join(ACTIVATIONS)}")
    if model_type == "bert":
        return config
    if config.max_position_embeddings - config.pad_token_id < 3:  # positions begin behind it
        raise ModelFileError(f"{file}: pad_token_id={config.pad_token_id} leaves no position of {config.max_position_embeddings}")
    return dataclasses.replace(config, position_offset=config.pad_token_id + 1)


def _checked(file: Path, field: dataclasses.Field, value: Any) -> Any:
    """`value` of a config.json field, of its type and within sane limits."""
    kinds: Any = (int, float) if field.type is float else field.type
    good = isinstance(value, kinds) and not isinstance(value, bool)
    if good and field.type is not str:
        least = 0 if field.name in ("pad_token_id", "layer_norm_eps", "initializer_range") else 1
        most = 1_000 if field.name == "num_hidden_layers" else 2**31 - 1
        good = least <= value <= most  # so it is finite
    if not good:
        raise ModelFileError(f"{file}: {field.name}={shown(value)} is not a usable {field.type.__name__}")
    return value


def _weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the shards that its index names."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelFileError(f"{index} has no weight_map")
        return [inside(folder, name, index) for name in dict.fromkeys(map(str, names.values()))]
    pickles = [file.name for file in sorted(folder.iterdir()) if file.suffix in (".bin", ".pt", ".pth", ".ckpt")]
    if pickles:
        raise ModelFileError(
            f"{folder} has only {pickles[0]}, a pickle, which is never opened: convert it where you trust it, with "
            "transformers.AutoModel.from_pretrained(folder).save_pretrained(folder, safe_serialization=True)"
        )
    raise ModelFileError(f"{folder} has no model.safetensors")


def _read_tensors(files: Sequence[Path]) -> dict[str, np.ndarray]:
    """float32 tensors of all files by the names of the tables."""
    tensors = {}
    for file in files:
        for stored, tensor in read_safetensors(file, lambda stored: _table_name(stored).startswith(UNREAD)).items():
            name = _table_name(stored)
            if name in tensors:
                raise ModelFileError(f"{file}: {stored} is there twice (prefixes and old names count as the same)")
            tensors[name] = tensor
    return tensors


def read_safetensors(file: Path, leave_out: Callable[[str], bool] = lambda name: False) -> dict[str, np.ndarray]:
    """float32 tensors of a file by name, without those to leave out; ModelFileError where it is damaged or holds other types."""
    try:
        check_own(file)
        with file.open("rb") as opened:
            if (size := int.from_bytes(opened.read(8), "little")) > HEADER_LIMIT:
                raise ModelFileError(f"{file} is damaged: it says that its header has {size:,} bytes")
        with safe_open(file, framework="numpy") as tensors:
            names = [name for name in tensors.keys() if not leave_out(name)]  # noqa: SIM118 (not a dict)
            return {name: _float32(tensors.get_tensor(name), f"{file}: {name}") for name in names}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{file} is missing or damaged: {str(error)[:200]}") from None


def read_tokenizer(path: str | Path, config: BertConfig) -> Tokenizer:
    """The tokenizer of a directory; ModelFileError where it is damaged or has ids that the encoder has no row for."""
    tokenizer = Tokenizer.load(transformer_folder(path))
    check_rows(tokenizer.vocab_size, config.vocab_size, path)
    return tokenizer


def _table_name(stored: str) -> str:
    for prefix in PREFIXES:
        stored = stored.removeprefix(prefix)
    for old, new in OLD_NAMES.items():
        stored = stored.replace(old, new)
    return stored


def _float32(tensor: np.ndarray, where: str) -> np.ndarray:
    if tensor.dtype.name not in FLOATS:
        raise ModelFileError(f"{where} has type {tensor.dtype.name}, expected one of {', '.join(FLOATS)}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes Inf, which is refused later
        return tensor.astype(np.float32, copy=False)


def resolve(name: str, field: str = "encoder.weights=") -> Path:
    """The local directory of a model: `name` itself, or a snapshot of the hub's repository of that name; `field` begins errors."""
    path = user_path(name)
    if path.is_dir():
        return path
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(f"{field}{name}: no such directory")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "vocab.txt", "merges.txt"]))
    except Exception as error:  # the hub client has a dozen kinds of errors for one cause
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{field}{name}: no such directory, and not to be had from the hub ({problem})") from error
