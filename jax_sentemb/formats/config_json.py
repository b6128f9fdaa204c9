"""Read and write config.json of Hugging Face transformers."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import CORRECT, OTHER_MODEL, ModelFileError
from jax_sentemb.files import quote, read_json
from jax_sentemb.formats.model_dir import transformer_folder
from jax_sentemb.models.bert import ACTIVATIONS
from jax_sentemb.models.bert_config import DERIVED, BertConfig
from jax_sentemb.models.families.family import Family
from jax_sentemb.models.families.table import FAMILIES, family_of
from jax_sentemb.side_files.reader import check_keys

DROPOUT = 0.1  # in exports, for fine-tuning in PyTorch


def read_config(path: str | Path) -> BertConfig:
    """Return the architecture of a model directory.

    Raises:
        ModelFileError: config.json is missing or damaged, or something in it is not supported.
    """
    folder = transformer_folder(path)
    if (folder / "run.json").is_file():
        raise ModelFileError(f"{folder} is the work directory of a run, not its model; give {folder / 'export'}")
    file = folder / "config.json"
    return parse_config(read_json(file), file)


def parse_config(content: dict[str, Any], file: Path) -> BertConfig:
    """Return the architecture from the content of config.json.

    Raises:
        ModelFileError: An architecture, a key or a value is not supported.
    """
    family = family_of(content.get("model_type"), file)
    check_keys(content, f"config.json of {family.model_type}", file)
    return config_of_fields(_fields(content, family, file), file)


def _fields(content: dict[str, Any], family: Family, file: Path) -> dict[str, Any]:
    """Return the content of config.json with the field names of this package.

    If the family has its own name for a field, BERT's name is left out, since transformers does not read it.

    Raises:
        ModelFileError: Two names of a value contradict each other.
    """
    for name, key in family.keys.items():
        if name in family.aliases and name in content and content[name] != content.get(key, content[name]):
            raise ModelFileError(f"{file}: {name}={quote(content[name])} is not {key}={quote(content[key])}; keep only {key}")
    foreign = {*family.keys, *family.fixed} - {*family.aliases, *family.keys.values()}
    fields = {name: value for name, value in content.items() if name not in foreign}
    fields |= {name: content[key] for name, key in family.keys.items() if key in content}
    return family.read_fields(fields, file)


def config_of_fields(fields: dict[str, Any], file: Path) -> BertConfig:
    """Return the architecture from the fields of its configuration, as model.json has them.

    Raises:
        ModelFileError: An architecture or a value is not supported.
    """
    family = family_of(fields.get("model_type"), file)
    values: dict[str, Any] = {**family.defaults, **family.fixed}
    for field in dataclasses.fields(family.config):
        if field.name in fields and field.name not in (*DERIVED, *family.fixed):
            values[field.name] = _checked_value(file, field, fields[field.name])
    config = family.config(**{"model_type": family.model_type, **values})
    if config.hidden_size % config.num_attention_heads:
        raise ModelFileError(
            f"{file}: hidden_size={config.hidden_size} is not divisible by num_attention_heads={config.num_attention_heads}; "
            f"{CORRECT}"
        )
    if config.hidden_act not in ACTIVATIONS:
        raise ModelFileError(f"{file}: hidden_act={quote(config.hidden_act)} is not one of {', '.join(ACTIVATIONS)}; {OTHER_MODEL}")
    if not family.positions_after_pad:
        return config
    if config.max_position_embeddings - config.pad_token_id < 3:
        raise ModelFileError(
            f"{file}: pad_token_id={config.pad_token_id} leaves no position of {config.max_position_embeddings}; {CORRECT}"
        )
    return dataclasses.replace(config, position_offset=config.pad_token_id + 1)


def _checked_value(file: Path, field: dataclasses.Field, value: Any) -> Any:
    """Return the value of a field of config.json; raise ModelFileError for a wrong type or a number out of range."""
    types: Any = (int, float) if field.type is float else field.type
    is_valid = isinstance(value, types) and not isinstance(value, bool)
    if is_valid and field.type is not str:
        minimum = 0 if field.name in ("pad_token_id", "layer_norm_eps", "initializer_range") else 1
        maximum = 1_000 if field.name == "num_hidden_layers" else 2**31 - 1
        is_valid = minimum <= value <= maximum  # False for NaN and infinity
    if not is_valid:
        type_name = getattr(field.type, "__name__", field.type)
        raise ModelFileError(f"{file}: {field.name}={quote(value)} is not a usable {type_name}; {CORRECT}")
    return float(value) if field.type is float else value


def config_json(config: BertConfig, tokenizer: Tokenizer, heads: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Return config.json of transformers' model of this family.

    Args:
        config: The architecture.
        tokenizer: The tokenizer of the model, for the ids of special tokens.
        heads: The parts of the model other than the encoder. Without any, the architecture is the plain model.
        labels: Names of the outputs of a "classifier".
    """
    family = FAMILIES[config.model_type]
    head = "ForSequenceClassification" if "classifier" in heads else "ForMaskedLM" if heads else "Model"
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name not in (*DERIVED, *family.fixed)}
    content = {"architectures": [family.class_prefix + head]}
    content |= {family.keys.get(name, name): value for name, value in fields.items()}
    content |= dict.fromkeys(family.dropout, DROPOUT) | dict(family.written)
    content |= {key: getattr(tokenizer, f"{role}_id") for key, role in family.token_ids.items()}
    if "classifier" in heads:
        content |= {"id2label": {str(number): name for number, name in enumerate(labels)}}
        content |= {"label2id": {name: number for number, name in enumerate(labels)}}
        # With this entry, the CrossEncoder of sentence-transformers returns the score itself, not its sigmoid.
        content |= {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    return {**content, "torch_dtype": "float32"}
