"""Write model directories that transformers and sentence-transformers load.

The class paths and pooling keys are the old ones, because every version of sentence-transformers from 2.2 to 6 reads them.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ConfigError, ResourceError
from jax_sentemb.files import is_full, path_in_errors, remove, sole_writer, staging, write_json
from jax_sentemb.formats.config_json import config_json
from jax_sentemb.formats.encode_settings import DEFAULTS, FILE, EncodeSettings
from jax_sentemb.formats.model_card import Card, describe_modules, render
from jax_sentemb.formats.model_dir import MANIFEST, WORD_WEIGHTS
from jax_sentemb.formats.modules import convolution_to_torch, dense_files, layer_mean_files
from jax_sentemb.formats.tensors import Tensors
from jax_sentemb.formats.weight_table import head_to_torch, to_torch
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.types import Params

# Keys of the Pooling module of sentence-transformers by pooling. first_last is written as a mean over layers, then over tokens.
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
LAST_TOKEN_KEY = {"pooling_mode_lasttoken": True}  # written only if needed, because old versions raise an error for this key
EXPORTABLE = ("cls", "mean", "first_last")
CNN_FOLDER, WEIGHTS_FOLDER, LAYERS_FOLDER = "2_CNN", "1_WordWeights", "1_WeightedLayerPooling"


def has_pair_head(params: Params) -> bool:
    """Return whether these parts are a cross-encoder, which scores pairs of sentences."""
    return "pooler" in params and "classifier" in params


def check_exportable(pooling: str, convolution: Convolution | None = None) -> None:
    """Raise ConfigError for an embedding that the standard modules of sentence-transformers cannot compute."""
    if pooling not in EXPORTABLE:
        raise ConfigError(f"pooling={pooling!r} cannot be exported: use {', '.join(EXPORTABLE[:-1])} or {EXPORTABLE[-1]}")
    if convolution is not None and convolution.relu:
        raise ConfigError("convolution.relu=True cannot be exported: the CNN of sentence-transformers has no activation")


@dataclass(frozen=True)
class SentenceModel:
    """A BERT that embeds sentences or scores pairs, with everything that its export contains.

    The part "encoder" of `params` is always present. The part "cnn" belongs to `convolution`, and "dense" to `dense`. The part
    "token_head" is written to the same file for transformers' BertForMaskedLM. A cross-encoder has "pooler" and "classifier".
    """

    config: BertConfig
    params: Params
    tokenizer: Tokenizer
    pooling: str
    max_seq_length: int
    normalize: bool = False
    convolution: Convolution | None = None
    settings: EncodeSettings = DEFAULTS
    dense: tuple[str, ...] = ()  # activations of the dense layers

    @property
    def width(self) -> int:
        """Return the width of an embedding."""
        return self.params[DENSE][f"layer_{len(self.dense) - 1}"]["kernel"].shape[1] if self.dense else self.pooled_width

    @property
    def pooled_width(self) -> int:
        """Return the width of the pooled states."""
        return self.config.hidden_size if self.convolution is None else self.convolution.width


def write_export(directory: str | Path, model: SentenceModel, card: Card | None = None) -> None:
    """Write every file of an export except its manifest to `directory`, and create the directory if necessary.

    Args:
        directory: The folder for the files.
        model: The model to export.
        card: Metadata for README.md.

    Raises:
        ConfigError: Standard modules cannot compute the embedding, or the encoder has too few positions for `max_seq_length`.
    """
    config, params, card = model.config, model.params, card or Card()
    positions = config.max_position_embeddings - config.position_offset
    check_exportable(model.pooling, model.convolution)
    if not 2 <= model.max_seq_length <= positions:
        raise ConfigError(f"max_seq_length={model.max_seq_length} is not between 2 and the encoder's {positions} positions")
    check_rows(model.tokenizer.vocab_size, config.vocab_size, "the model")
    is_cross_encoder = has_pair_head(params)
    heads = [part for part in ("token_head", *(("pooler", "classifier") if is_cross_encoder else ())) if part in params]
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(save(_tensors(config, params, heads), metadata={"format": "pt"}))
    model.tokenizer.save(directory)
    content = config_json(config, model.tokenizer, heads, _labels(params, card))
    if model.pooling == "first_last":
        content["output_hidden_states"] = True
    write_json(directory / "config.json", content)
    width = model.settings.width_of(model.width)
    readme = render(
        card, pooling=model.pooling, normalize=model.normalize and width == model.width,
        max_seq_length=model.max_seq_length, width=width,
        modules=describe_modules(model.convolution, model.dense, model.settings.similarity_fn_name),
        is_cross_encoder=is_cross_encoder,
    )  # fmt: skip
    (directory / "README.md").write_text(readme, "utf-8")
    tokenizer_config = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
    write_json(directory / "tokenizer_config.json", {**tokenizer_config, "model_max_length": model.max_seq_length})
    if not is_cross_encoder:
        _write_modules(directory, model)


def _tensors(config: BertConfig, params: Params, heads: Sequence[str]) -> Tensors:
    """Return tensors by torch name. With a head, the names of the encoder have the prefix that transformers then expects."""
    tensors = to_torch(config, params["encoder"])
    if not heads:  # without a pooler, transformers' AutoModel warns of new weights
        pooler = {"kernel": np.eye(config.hidden_size), "bias": np.zeros(config.hidden_size)}
        return {**tensors, **head_to_torch(config, "pooler", pooler)}
    prefix = FAMILIES[config.model_type].weight_prefix
    prefixed = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
    for part in heads:
        for name, tensor in head_to_torch(config, part, params[part]).items():
            prefixed[f"{prefix}{name}" if part == "pooler" else name] = tensor
    return prefixed


def _write_modules(directory: Path, model: SentenceModel) -> None:
    """Write the files that sentence-transformers reads besides the transformer: modules.json, and the settings of each module.

    The CNN of sentence-transformers reads the states at [PAD]. Word weights of 1 before it set these states to zero, as the
    convolution of this package does, so padding does not change the embedding. A `reference` convolution has no word weights.
    """
    config, convolution, settings = model.config, model.convolution, model.settings
    pooling = "mean" if model.pooling == "first_last" else model.pooling
    masks_padding = convolution is not None and not convolution.reference
    chain = [("", "Transformer")]
    chain += [(LAYERS_FOLDER, "WeightedLayerPooling")] * (model.pooling == "first_last")
    chain += [(WEIGHTS_FOLDER, "WordWeights")] * masks_padding + [(CNN_FOLDER, "CNN")] * (convolution is not None)
    layers = [(f"{2 + number}_Dense", "Dense") for number in range(len(model.dense))]
    chain += [("1_Pooling", "Pooling"), *layers] + [(f"{2 + len(layers)}_Normalize", "Normalize")] * model.normalize
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{module_type}"}
        for number, (path, module_type) in enumerate(chain)
    ]
    files: dict[str, dict | list] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": model.max_seq_length, "do_lower_case": False},
        FILE: settings.to_json(),
        "1_Pooling/config.json": pooling_config(model.pooled_width, pooling, settings.include_prompt),
    }
    if model.pooling == "first_last":
        files[f"{LAYERS_FOLDER}/config.json"], tensors = layer_mean_files(config.num_hidden_layers, config.hidden_size)
        _write_tensors(directory / LAYERS_FOLDER, tensors)
    if convolution is not None:
        files[f"{CNN_FOLDER}/cnn_config.json"] = {
            "in_word_embedding_dimension": config.hidden_size,
            "out_channels": convolution.filters,
            "kernel_sizes": list(convolution.windows),
            "stride_sizes": [1] * len(convolution.windows),
        }
        _write_tensors(directory / CNN_FOLDER, convolution_to_torch(convolution, model.params["cnn"]))
    for number, (folder, _) in enumerate(layers):
        files[f"{folder}/config.json"], tensors = dense_files(model.dense[number], model.params[DENSE][f"layer_{number}"])
        _write_tensors(directory / folder, tensors)
    if masks_padding:
        weights = {"vocab": [""] * config.vocab_size, "word_weights": {}, "unknown_word_weight": 1}
        files |= {f"{WEIGHTS_FOLDER}/{name}": weights for name in WORD_WEIGHTS}
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        write_json(directory / name, content)


def _write_tensors(folder: Path, tensors: Tensors) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def pooling_config(width: int, pooling: str, include_prompt: bool) -> dict[str, Any]:
    """Return the settings of the Pooling module of sentence-transformers, in the form that every version reads."""
    keys = {key: mode == pooling for mode, key in POOLING_KEYS.items()}
    keys |= (LAST_TOKEN_KEY if pooling == "last" else {}) | ({} if include_prompt else {"include_prompt": False})
    return {"word_embedding_dimension": width, **keys}


def check_replaceable(directory: Path) -> None:
    """Raise ConfigError if `directory` holds anything but an export."""
    if directory.exists() and not (directory / MANIFEST).is_file() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an export of jax_sentemb: give another directory or move it away")


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `directory`, which replaces it if the block succeeds and is deleted otherwise.

    Raises:
        BusyError: Another process writes the same export.
        ConfigError: `directory` exists and is not an export.
        ResourceError: The disk is full.
    """
    previous = directory.parent / f".{directory.name[:60]}.previous"  # characters; a name has at most 255 bytes
    try:
        check_replaceable(directory)
        with path_in_errors(directory), sole_writer(directory):
            if previous.is_dir() and not previous.is_symlink() and not directory.exists():  # killed between the two renames
                previous.rename(directory)
            with staging(directory) as stage:
                yield stage
                _replace(directory, stage, previous)
    except OSError as error:
        error_type = ResourceError if is_full(error) else ConfigError
        raise error_type(f"cannot write the export {directory}: {error.strerror or error}") from None


def _replace(directory: Path, stage: Path, previous: Path) -> None:
    """Rename `stage` to `directory`. A rename cannot replace a non-empty folder, so the earlier export is renamed first."""
    if directory.exists():
        remove(previous)
        directory.rename(previous)
    try:
        stage.rename(directory)
    except OSError:
        if previous.exists():
            previous.rename(directory)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def _labels(params: Params, card: Card) -> list[str]:
    """Return the names of the outputs of a cross-encoder: "score", or its classes."""
    outputs = params["classifier"]["bias"].shape[0] if has_pair_head(params) else 1
    if outputs == 1:
        return ["score"]
    classes = card.training.get("method.classes", ())
    return [*classes] if len(classes) == outputs else [f"LABEL_{number}" for number in range(outputs)]
