"""Files of a model directory that transformers and sentence-transformers load.

Old class paths and pooling keys of sentence-transformers are written, because every version from 2.2 to 6 reads them.
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

from jax_sentemb import __version__
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import check_rows
from jax_sentemb.errors import ConfigError, ResourceError
from jax_sentemb.files import is_full, sole_writer, write_json
from jax_sentemb.formats.huggingface import convolution_to_torch
from jax_sentemb.formats.model_card import Card, render
from jax_sentemb.formats.model_dir import MANIFEST, NO_PROMPTS, WORD_WEIGHTS, Prompts
from jax_sentemb.formats.weight_table import head_to_torch, to_torch
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.types import Params

# Pooling mode -> the key of sentence-transformers' Pooling module. first_last has none: it is for evaluation only.
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
LAST = {"pooling_mode_lasttoken": True}  # only where it is needed: a version that does not know the key stops at it
EXPORTABLE = ("cls", "mean")
CNN_FOLDER, WEIGHTS_FOLDER = "2_CNN", "1_WordWeights"


def has_pair_head(params: Params) -> bool:
    """Whether these parts score pairs of sentences instead of embedding one."""
    return "pooler" in params and "classifier" in params


def check_exportable(pooling: str, convolution: Convolution | None = None) -> None:
    """Raise ConfigError for an embedding that no stock module of sentence-transformers computes."""
    if pooling not in EXPORTABLE:
        raise ConfigError(f"pooling={pooling!r} cannot be exported: sentence-transformers has {' and '.join(EXPORTABLE)}")
    if convolution is not None and convolution.relu:
        raise ConfigError("convolution.relu=True cannot be exported: the CNN of sentence-transformers has no activation")


@dataclass(frozen=True)
class SentenceModel:
    """A BERT that embeds sentences or scores pairs, with all that the files of its export state.

    `params` by part: "encoder"; with a `convolution` "cnn"; a "token_head" is written into the same file, for transformers'
    BertForMaskedLM; "pooler" and "classifier" make it a cross-encoder.
    """

    config: BertConfig
    params: Params
    tokenizer: Tokenizer
    pooling: str
    max_seq_length: int
    normalize: bool = False
    convolution: Convolution | None = None
    prompts: Prompts = NO_PROMPTS

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return self.config.hidden_size if self.convolution is None else self.convolution.width


def write_export(directory: str | Path, model: SentenceModel, card: Card | None = None) -> None:
    """Write every file of an export except its manifest into `directory`, which is made if it does not exist.

    ConfigError for an embedding that stock modules do not compute, or a length that the encoder has no positions for.
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
    write_json(directory / "config.json", _huggingface_config(config, heads, _labels(params, card)))
    readme = render(
        card, pooling=model.pooling, normalize=model.normalize, max_seq_length=model.max_seq_length, width=model.width,
        convolution=model.convolution, is_cross_encoder=is_cross_encoder,
    )  # fmt: skip
    (directory / "README.md").write_text(readme, "utf-8")
    if is_cross_encoder:  # sentence-transformers' CrossEncoder takes its length from the tokenizer
        settings = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
        write_json(directory / "tokenizer_config.json", {**settings, "model_max_length": model.max_seq_length})
    else:
        _write_modules(directory, model)


def _tensors(config: BertConfig, params: Params, heads: Sequence[str]) -> dict[str, np.ndarray]:
    """Tensors by torch name; with a head, the encoder's carry the prefix that transformers' models with heads give them."""
    tensors = to_torch(config, params["encoder"])
    if not heads:
        return tensors
    prefixed = {f"{config.model_type}.{name}": tensor for name, tensor in tensors.items()}
    for part in heads:
        for name, tensor in head_to_torch(config, part, params[part]).items():
            prefixed[f"{config.model_type}.{name}" if part == "pooler" else name] = tensor
    return prefixed


def _write_modules(directory: Path, model: SentenceModel) -> None:
    """Write what sentence-transformers reads besides the transformer: the list of modules, and the settings of each.

    Its CNN convolves whatever stands at [PAD]. Word weights of 1 in front of it set [PAD] to zero, as our convolution does, so that
    padding changes nothing there either; a `reference` convolution goes without.
    """
    config, convolution = model.config, model.convolution
    masked = convolution is not None and not convolution.reference
    kinds = [("", "Transformer")]
    kinds += [(WEIGHTS_FOLDER, "WordWeights")] * masked + [(CNN_FOLDER, "CNN")] * (convolution is not None)
    kinds += [("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * model.normalize
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    files: dict[str, dict | list] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": model.max_seq_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {"jax_sentemb": __version__},
            "prompts": dict(model.prompts.texts),
            "default_prompt_name": next(
                (name for name, text in model.prompts.texts.items() if text == model.prompts.default), None
            ),
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": pooling_config(model.width, model.pooling),
    }
    if convolution is not None:
        files[f"{CNN_FOLDER}/cnn_config.json"] = {
            "in_word_embedding_dimension": config.hidden_size,
            "out_channels": convolution.filters,
            "kernel_sizes": list(convolution.windows),
            "stride_sizes": [1] * len(convolution.windows),
        }
        (directory / CNN_FOLDER).mkdir(exist_ok=True)
        tensors = convolution_to_torch(convolution, model.params["cnn"])
        (directory / CNN_FOLDER / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    if masked:
        weights = {"vocab": [""] * config.vocab_size, "word_weights": {}, "unknown_word_weight": 1}
        files |= {f"{WEIGHTS_FOLDER}/{name}": weights for name in WORD_WEIGHTS}
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        write_json(directory / name, content)


def pooling_config(width: int, pooling: str) -> dict[str, Any]:
    """The settings of sentence-transformers' Pooling module, as every version reads them."""
    keys = {key: mode == pooling for mode, key in POOLING_KEYS.items()}
    return {"word_embedding_dimension": width, **keys, **(LAST if pooling == "last" else {})}


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A sibling folder to write into; it takes the place of `directory` when the block ends well, else vanishes.

    BusyError while another process writes the same export.
    """
    try:
        if directory.exists() and not (directory / MANIFEST).is_file() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigError(f"{directory} exists and is not an export of jax_sentemb: give another directory or move it away")
        with sole_writer(directory) as stage:
            stage.mkdir()
            yield stage
            _replace(directory, stage, directory.parent / f".{directory.name[:100]}.previous")
    except OSError as error:
        problem = ResourceError if is_full(error) else ConfigError
        raise problem(f"cannot write the export {directory}: {error.strerror or error}") from None


def _replace(directory: Path, stage: Path, previous: Path) -> None:
    """Rename `stage` to `directory`. No folder can be renamed over a full one: the earlier export steps aside."""
    if directory.exists():
        shutil.rmtree(previous, ignore_errors=True)
        directory.rename(previous)
    try:
        stage.rename(directory)
    except OSError:
        if previous.exists():
            previous.rename(directory)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def _labels(params: Params, card: Card) -> list[str]:
    """What the outputs of a cross-encoder are: "score", or the names of its classes."""
    outputs = params["classifier"]["bias"].shape[0] if has_pair_head(params) else 1
    stated = card.training.get("method.classes", ())
    return ["score"] if outputs == 1 else [*stated] if len(stated) == outputs else [f"LABEL_{place}" for place in range(outputs)]


def _huggingface_config(config: BertConfig, heads: Sequence[str], labels: Sequence[str]) -> dict:
    """config.json of transformers' BertModel or RobertaModel, or with a head. Dropout 0.1 is for fine-tuning in torch."""
    special: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2} if config.model_type == "roberta" else {}
    kind = "ForSequenceClassification" if "classifier" in heads else "ForMaskedLM" if heads else "Model"
    if "classifier" in heads:
        # The score itself, not its sigmoid, is what sentence-transformers' CrossEncoder returns.
        numbered = dict(enumerate(labels))
        special |= {"id2label": {str(place): name for place, name in numbered.items()}}
        special |= {"label2id": {name: place for place, name in numbered.items()}}
        special |= {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    return {
        "architectures": [("Roberta" if config.model_type == "roberta" else "Bert") + kind],
        "model_type": config.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.hidden_act,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_eps": config.layer_norm_eps,
        "initializer_range": config.initializer_range,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "position_embedding_type": "absolute",
        "pad_token_id": config.pad_token_id,
        **special,
        "torch_dtype": "float32",
    }
