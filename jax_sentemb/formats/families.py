"""The files of the architectures that can be read and written, by `model_type`: one row for each, beside the tables of weights.

models/architectures.py says which module computes each of them.
"""

from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import shown


class Family(NamedTuple):
    """Differences between the files of an architecture and those of BERT."""

    architecture: str  # beginning of the class names of transformers
    prefix: str  # in front of the names of an encoder that was saved with a head
    behind_pad: bool = False  # positions begin at pad_token_id + 1
    keys: dict[str, str] = {}  # field of BertConfig -> key of config.json
    fixed: dict[str, Any] = {}  # fields that config.json does not state
    defaults: dict[str, Any] = {}  # of transformers, where they are not those of BERT
    aliases: tuple[str, ...] = ()  # fields of BertConfig that transformers reads as well as their `keys`
    names: tuple[tuple[str, str], ...] = ()  # part of a name of BERT's tensor -> part of the name here, in this order
    special: dict[str, Any] = {}  # further keys of config.json
    has_positions: bool = True  # a table of positions, beyond which no text can go
    left_out: tuple[str, ...] = ()  # keys of BERT's config.json that have no meaning here


ROBERTA: dict[str, Any] = {"prefix": "roberta.", "behind_pad": True, "special": {"bos_token_id": 0, "eos_token_id": 2}}
LAYER_TYPES = {True: "full_attention", False: "sliding_attention"}
THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
ROPES = ({"rope_theta": 0}, {"rope_type": "default", "rope_theta": 0})  # supported rotary positions, of any theta
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
        defaults={"num_hidden_layers": 6},
        aliases=("hidden_size", "num_hidden_layers", "num_attention_heads"),
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
    "mpnet": Family(
        "MPNet",
        "mpnet.",
        behind_pad=True,
        fixed={"type_vocab_size": 0},
        names=(
            (".attention.self.query.", ".attention.attn.q."),
            (".attention.self.key.", ".attention.attn.k."),
            (".attention.self.value.", ".attention.attn.v."),
            (".attention.output.dense.", ".attention.attn.o."),
            (".attention.output.LayerNorm.", ".attention.LayerNorm."),
        ),
        special={"bos_token_id": 0, "eos_token_id": 2, "relative_attention_num_buckets": 32},
    ),
    "modernbert": Family(
        "ModernBert",
        "model.",
        has_positions=False,
        keys={"layer_norm_eps": "norm_eps", "hidden_act": "hidden_activation"},
        fixed={"type_vocab_size": 0},
        left_out=("hidden_dropout_prob", "attention_probs_dropout_prob", "position_embedding_type"),
    ),
}


def family_of(model_type: Any, file: Path) -> Family:
    """The family of a `model_type`; ModelFileError, which lists those that are there, for another one."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ModelFileError(f"{file}: model_type {shown(model_type)} is not one of {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def with_our_names(content: dict[str, Any], family: Family, file: Path) -> dict[str, Any]:
    """Return the content of config.json with the names of BertConfig.

    BERT's names for what has another name in the family are left out, since transformers does not read them.

    Raises:
        ModelFileError: Two names of a value contradict each other.
    """
    for ours, theirs in family.keys.items():
        if ours in family.aliases and ours in content and content[ours] != content.get(theirs, content[ours]):
            raise ModelFileError(f"{file}: {ours}={shown(content[ours])} is not {theirs}={shown(content[theirs])}")
    foreign = {*family.keys, *family.fixed} - {*family.aliases, *family.keys.values()}
    known = {name: value for name, value in content.items() if name not in foreign}
    known |= {ours: content[theirs] for ours, theirs in family.keys.items() if theirs in content}
    return _with_layer_types(known, file) if family.architecture == "ModernBert" else known


def _with_layer_types(stated: dict[str, Any], file: Path) -> dict[str, Any]:
    """The distance of global layers and the bases of their rotary positions, which transformers writes in two ways."""
    kinds, ropes = stated.get("layer_types"), stated.get("rope_parameters") or {}
    found = {name: value for name, value in stated.items() if name != "local_rope_theta" or value is not None}
    if stated.get("local_rope_theta", 0) is None:
        found["local_rope_theta"] = stated.get("global_rope_theta")
    if kinds is not None:
        known = isinstance(kinds, list) and len(kinds) == stated.get("num_hidden_layers")
        places = [place for place, kind in enumerate(kinds) if kind == LAYER_TYPES[True]] if known else []
        every = places[1] if len(places) > 1 else max(len(kinds), 1) if known else 0
        if not every or kinds != [LAYER_TYPES[place % every == 0] for place in range(len(kinds))]:
            raise ModelFileError(f"{file}: layer_types={shown(kinds)}: only every n-th layer from the first on may attend globally")
        found["global_attn_every_n_layers"] = every
    for kind, name in THETAS.items():
        rope = ropes.get(kind) if isinstance(ropes, dict) else None
        if rope is not None and (not isinstance(rope, dict) or {**rope, "rope_theta": 0} not in ROPES):
            raise ModelFileError(
                f"{file}: rope_parameters={shown(ropes)} is not supported, only rope_type='default' and rope_theta"
            )
        if rope and rope.get("rope_theta") is not None:
            found[name] = rope["rope_theta"]
    return found
