"""The architectures that can be read and written, by `model_type`: one row for each, beside the tables of BERT's weights."""

from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import shown


class Family(NamedTuple):
    """What differs from BERT in the files of an architecture."""

    architecture: str  # beginning of the class names of transformers
    prefix: str  # in front of the names of an encoder that was saved with a head
    behind_pad: bool = False  # positions begin at pad_token_id + 1
    keys: dict[str, str] = {}  # field of BertConfig -> key of config.json
    fixed: dict[str, Any] = {}  # fields that config.json does not state
    names: tuple[tuple[str, str], ...] = ()  # part of a name of BERT's tensor -> part of the name here, in this order
    special: dict[str, Any] = {}  # further keys of config.json


ROBERTA: dict[str, Any] = {"prefix": "roberta.", "behind_pad": True, "special": {"bos_token_id": 0, "eos_token_id": 2}}
FAMILIES = {
    "bert": Family("Bert", "bert."),
    "roberta": Family("Roberta", **ROBERTA),
    "xlm-roberta": Family("XLMRoberta", **ROBERTA),
    "distilbert": Family(
        "DistilBert",
        "distilbert.",
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
        },
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        names=(
            ("encoder.layer.", "transformer.layer."),
            (".attention.self.query.", ".attention.q_lin."),
            (".attention.self.key.", ".attention.k_lin."),
            (".attention.self.value.", ".attention.v_lin."),
            (".attention.output.dense.", ".attention.out_lin."),
            (".attention.output.LayerNorm.", ".sa_layer_norm."),
            (".intermediate.dense.", ".ffn.lin1."),
            (".output.dense.", ".ffn.lin2."),
            (".output.LayerNorm.", ".output_layer_norm."),
        ),
    ),
}


def family_of(model_type: Any, file: Path) -> Family:
    """The family of a `model_type`; ModelFileError, which lists those that are there, for another one."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ModelFileError(f"{file}: model_type {shown(model_type)} is not one of {', '.join(FAMILIES)}")
    return FAMILIES[model_type]
