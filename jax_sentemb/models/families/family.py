"""Describe a family of encoders: how they are computed, and what their files contain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.families.weights import EMBEDDINGS, LAYERS, Weight

# Keys -> the values that are accepted, and what another value means.
Refused = Mapping[str, tuple[tuple[Any, ...], str]]
ABSOLUTE: Refused = {"position_embedding_type": (("absolute",), "other positions than those of the weight file")}
GENERIC = "PreTrainedTokenizer"  # the tokenizer class of transformers that follows tokenizer.json
CLS_AND_SEP = {"bos_token_id": "cls", "eos_token_id": "sep"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Encoders with the same `model_type`. The defaults are those of BERT.

    docs/extending.md says how to add one, and which test fails if a field is forgotten.
    """

    model_type: str  # in config.json
    title: str  # the name in texts
    class_prefix: str  # beginning of its class names in transformers
    weight_prefix: str  # before the names of weights that were saved with a head

    # The encoder.
    module: str = "bert:Bert"  # file and class in jax_sentemb/models
    config: type[BertConfig] = BertConfig  # its sizes
    layers_are_alike: bool = True  # False: what a layer computes depends on its number
    can_decode: bool = True  # its layers can read a sentence from left to right (TSDAE)
    positions_after_pad: bool = False  # the first token has the position pad_token_id + 1
    has_positions: bool = True  # a table of positions, beyond which no text can go

    # config.json. Several keys with one reason may be written as one text with spaces.
    keys: Mapping[str, str] = field(default_factory=dict)  # field of `config` -> its key, unless it has the same name
    aliases: tuple[str, ...] = ()  # fields that transformers also reads under the names of the fields
    fixed: Mapping[str, Any] = field(default_factory=dict)  # fields without a key, and their values
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of absent keys, if they differ from those of `config`
    other_keys: tuple[str, ...] = ()  # further keys that `read_fields` follows
    read_fields: Callable[[dict[str, Any], Path], dict[str, Any]] = lambda fields, file: fields
    harmless: Mapping[str, str] = field(default_factory=dict)  # keys that change no embedding -> the reason
    refused: Refused = field(default_factory=lambda: ABSOLUTE)
    dropout: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # keys of rates, which are harmless
    written: Mapping[str, Any] = field(default_factory=lambda: {"position_embedding_type": "absolute"})  # keys of every export
    token_ids: Mapping[str, str] = field(default_factory=dict)  # further keys of every export -> role of the token

    # The tokenizer. A class stands for rules, which are told apart by the type of the model in tokenizer.json.
    tokenizer_class: str = "BertTokenizer"  # of transformers, if the files do not name a class
    tokenizer_classes: Mapping[str, str] = field(default_factory=dict)  # of this family -> type; none: follows tokenizer.json

    # Weights.
    embeddings: tuple[Weight, ...] = EMBEDDINGS
    layers: tuple[Weight, ...] = LAYERS
    renamed: tuple[tuple[str, str], ...] = ()  # part of a name in these tables -> part of the name here, in this order
    absent: Callable[[BertConfig], tuple[str, ...]] = lambda config: ()  # weights of the tables that an encoder lacks
    ignored: tuple[str, ...] = ()  # beginnings of the names of weights that are not read

    # Heads that are read, trained and exported: "token_head", "pooler", "classifier" (of a cross-encoder).
    heads: Mapping[str, tuple[Weight, ...]] = field(default_factory=dict)
    head_activation: str = ""  # of the token head; "": hidden_act
    # Values that config.json must have for its token head to be read.
    head_settings: Mapping[str, Any] = field(default_factory=dict)
