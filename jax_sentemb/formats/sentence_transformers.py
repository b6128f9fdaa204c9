"""Writes model directories that transformers and sentence-transformers load.

They have old class paths and pooling keys of sentence-transformers, because every version from 2.2 to 6 reads them.
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
from jax_sentemb.files import is_full, naming, remove, sole_writer, staging, write_json
from jax_sentemb.formats.config_json import config_json
from jax_sentemb.formats.encode_settings import DEFAULTS, FILE, EncodeSettings
from jax_sentemb.formats.model_card import Card, module_words, render
from jax_sentemb.formats.model_dir import MANIFEST, WORD_WEIGHTS
from jax_sentemb.formats.modules import convolution_to_torch, dense_files, layer_mean_files
from jax_sentemb.formats.tensors import Tensors
from jax_sentemb.formats.weight_table import head_to_torch, to_torch
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.types import Params

# Pooling mode -> key of the Pooling module of sentence-transformers. first_last is a mean over tokens after one over layers.
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
LAST = {"pooling_mode_lasttoken": True}  # written only if needed, because versions that do not know the key raise an error
EXPORTABLE = ("cls", "mean", "first_last")
CNN_FOLDER, WEIGHTS_FOLDER, LAYERS_FOLDER = "2_CNN", "1_WordWeights", "1_WeightedLayerPooling"


def has_pair_head(params: Params) -> bool:
    """Whether these parts are a cross-encoder, which scores pairs of sentences."""
    return "pooler" in params and "classifier" in params


def check_exportable(pooling: str, convolution: Convolution | None = None) -> None:
    """ConfigError for an embedding that the standard modules of sentence-transformers do not compute."""
    if pooling not in EXPORTABLE:
        raise ConfigError(f"pooling={pooling!r} cannot be exported: sentence-transformers has {' and '.join(EXPORTABLE)}")
    if convolution is not None and convolution.relu:
        raise ConfigError("convolution.relu=True cannot be exported: the CNN of sentence-transformers has no activation")


@dataclass(frozen=True)
class SentenceModel:
    """A BERT that embeds sentences or scores pairs, with everything that its export contains.

    Parts of `params`: "encoder"; "cnn" with a `convolution`; "dense" with `dense`, the activations of its layers; "token_head",
    which is written to the same file for transformers' BertForMaskedLM; "pooler" and "classifier" of a cross-encoder.
    """

    config: BertConfig
    params: Params
    tokenizer: Tokenizer
    pooling: str
    max_seq_length: int
    normalize: bool = False
    convolution: Convolution | None = None
    settings: EncodeSettings = DEFAULTS
    dense: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The width of an embedding."""
        return self.params[DENSE][f"layer_{len(self.dense) - 1}"]["kernel"].shape[1] if self.dense else self.pooled_width

    @property
    def pooled_width(self) -> int:
        """The width of the pooled states."""
        return self.config.hidden_size if self.convolution is None else self.convolution.width


def write_export(directory: str | Path, model: SentenceModel, card: Card | None = None) -> None:
    """Writes every file of an export except its manifest to `directory`, and creates the directory if necessary.

    ConfigError for an embedding that standard modules do not compute, or a length beyond the positions of the encoder.
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
    readme = render(
        card, pooling=model.pooling, normalize=model.normalize, max_seq_length=model.max_seq_length, width=model.width,
        modules=module_words(model.convolution, model.dense, model.settings.similarity_fn_name), is_cross_encoder=is_cross_encoder,
    )  # fmt: skip
    (directory / "README.md").write_text(readme, "utf-8")
    tokenizer_config = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
    write_json(directory / "tokenizer_config.json", {**tokenizer_config, "model_max_length": model.max_seq_length})
    if not is_cross_encoder:
        _write_modules(directory, model)


def _tensors(config: BertConfig, params: Params, heads: Sequence[str]) -> Tensors:
    """Tensors by torch name. With a head, names of the encoder have the prefix of transformers' models with heads."""
    tensors = to_torch(config, params["encoder"])
    if not heads:  # without a pooler transformers' AutoModel warns of new weights
        pooler = {"kernel": np.eye(config.hidden_size), "bias": np.zeros(config.hidden_size)}
        return {**tensors, **head_to_torch(config, "pooler", pooler)}
    prefix = FAMILIES[config.model_type].weight_prefix
    prefixed = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
    for part in heads:
        for name, tensor in head_to_torch(config, part, params[part]).items():
            prefixed[f"{prefix}{name}" if part == "pooler" else name] = tensor
    return prefixed


def _write_modules(directory: Path, model: SentenceModel) -> None:
    """Writes what sentence-transformers reads besides the transformer: the list of modules, and the settings of each module.

    The CNN of sentence-transformers reads the states at [PAD]. Word weights of 1 before it set [PAD] to zero, as our convolution
    does, so that padding does not change the embedding; a `reference` convolution has no word weights.
    """
    config, convolution = model.config, model.convolution
    masked = convolution is not None and not convolution.reference
    kinds = [("", "Transformer")]
    kinds += [(LAYERS_FOLDER, "WeightedLayerPooling")] * (model.pooling == "first_last")
    kinds += [(WEIGHTS_FOLDER, "WordWeights")] * masked + [(CNN_FOLDER, "CNN")] * (convolution is not None)
    layers = [(f"{2 + number}_Dense", "Dense") for number in range(len(model.dense))]
    kinds += [("1_Pooling", "Pooling"), *layers] + [(f"{2 + len(layers)}_Normalize", "Normalize")] * model.normalize
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    files: dict[str, dict | list] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": model.max_seq_length, "do_lower_case": False},
        FILE: model.settings.to_json(),
        "1_Pooling/config.json": pooling_config(model.pooled_width, "mean" if model.pooling == "first_last" else model.pooling),
    }
    if model.pooling == "first_last":
        stated, tensors = layer_mean_files(config.num_hidden_layers, config.hidden_size)
        files[f"{LAYERS_FOLDER}/config.json"] = stated
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
    if masked:
        weights = {"vocab": [""] * config.vocab_size, "word_weights": {}, "unknown_word_weight": 1}
        files |= {f"{WEIGHTS_FOLDER}/{name}": weights for name in WORD_WEIGHTS}
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        write_json(directory / name, content)


def _write_tensors(folder: Path, tensors: Tensors) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def pooling_config(width: int, pooling: str) -> dict[str, Any]:
    """The settings of the Pooling module of sentence-transformers, in the form that every version reads."""
    keys = {key: mode == pooling for mode, key in POOLING_KEYS.items()}
    return {"word_embedding_dimension": width, **keys, **(LAST if pooling == "last" else {})}


def check_replaceable(directory: Path) -> None:
    """ConfigError if `directory` holds anything but an export."""
    if directory.exists() and not (directory / MANIFEST).is_file() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an export of jax_sentemb: give another directory or move it away")


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `directory`, which replaces it if the block succeeds and is deleted otherwise.

    Raises:
        BusyError: Another process writes the same export.
        ConfigError: `directory` exists and is not an export.
        ResourceError: The disk is full.
    """
    previous = directory.parent / f".{directory.name[:60]}.previous"  # characters; a name has at most 255 bytes
    try:
        check_replaceable(directory)
        with naming(directory), sole_writer(directory):
            if previous.is_dir() and not previous.is_symlink() and not directory.exists():  # killed between the two renames
                previous.rename(directory)
            with staging(directory) as stage:
                yield stage
                _replace(directory, stage, previous)
    except OSError as error:
        problem = ResourceError if is_full(error) else ConfigError
        raise problem(f"cannot write the export {directory}: {error.strerror or error}") from None


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
    """Names of the outputs of a cross-encoder: "score", or its classes."""
    outputs = params["classifier"]["bias"].shape[0] if has_pair_head(params) else 1
    stated = card.training.get("method.classes", ())
    return ["score"] if outputs == 1 else [*stated] if len(stated) == outputs else [f"LABEL_{place}" for place in range(outputs)]
