"""ModernBERT (Warner et al. 2024): rotary positions, local layers, gated feed-forward blocks and no biases."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_sentemb.errors import OTHER_MODEL, ModelFileError
from jax_sentemb.files import quote
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.families.family import GENERIC, Family
from jax_sentemb.models.families.weights import Weight, keep, transpose

LAYER_TYPES = {True: "full_attention", False: "sliding_attention"}
THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
ROPES = ({"rope_theta": 0}, {"rope_type": "default", "rope_theta": 0})  # supported rotary positions, with any theta


@dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """The architecture of a ModernBERT; the defaults are those of transformers."""

    vocab_size: int = 50368
    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 50283
    model_type: str = "modernbert"
    local_attention: int = 128  # tokens that a token attends to in a local layer, half of them on each side
    global_attn_every_n_layers: int = 3  # the first layer and every n-th after it are global
    global_rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0

    def is_global(self, number: int) -> bool:
        """Return whether layer `number` (1-based) attends to all tokens."""
        return (number - 1) % self.global_attn_every_n_layers == 0


def _read_fields(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the distance of global layers and the bases of rotary positions, which transformers writes in two ways."""
    fields = {name: value for name, value in content.items() if name != "local_rope_theta" or value is not None}
    if content.get("local_rope_theta", 0) is None:
        fields["local_rope_theta"] = content.get("global_rope_theta")
    types, ropes = content.get("layer_types"), content.get("rope_parameters") or {}
    if types is not None:
        is_usable = isinstance(types, list) and len(types) == content.get("num_hidden_layers")
        global_indices = [index for index, name in enumerate(types) if name == LAYER_TYPES[True]] if is_usable else []
        distance = global_indices[1] if len(global_indices) > 1 else max(len(types), 1) if is_usable else 0
        if not distance or types != [LAYER_TYPES[index % distance == 0] for index in range(len(types))]:
            raise ModelFileError(
                f"{file}: layer_types={quote(types)}: only every n-th layer from the first on may attend globally; {OTHER_MODEL}"
            )
        fields["global_attn_every_n_layers"] = distance
    for name, theta in THETAS.items():
        rope = ropes.get(name) if isinstance(ropes, dict) else None
        if rope is not None and (not isinstance(rope, dict) or {**rope, "rope_theta": 0} not in ROPES):
            raise ModelFileError(
                f"{file}: rope_parameters={quote(ropes)} is not supported, only rope_type='default' and rope_theta; {OTHER_MODEL}"
            )
        if rope and rope.get("rope_theta") is not None:
            fields[theta] = rope["rope_theta"]
    return fields


MODERNBERT = Family(
    model_type="modernbert",
    title="ModernBERT",
    class_prefix="ModernBert",
    weight_prefix="model.",
    module="modern_bert:ModernBert",
    config=ModernBertConfig,
    layers_are_alike=False,
    can_decode=False,
    has_positions=False,
    keys={"layer_norm_eps": "norm_eps", "hidden_act": "hidden_activation"},
    fixed={"type_vocab_size": 0},
    other_keys=("layer_types", "rope_parameters"),
    read_fields=_read_fields,
    harmless={
        "attention_dropout embedding_dropout mlp_dropout initializer_cutoff_factor": "of training",
        "classifier_pooling classifier_activation sparse_prediction sparse_pred_ignore_index": "of a task head",
        "deterministic_flash_attn reference_compile repad_logits_with_grad": "how a GPU computes",
        "position_embedding_type": "ModernBERT has rotary positions",
    },
    refused={
        "norm_bias attention_bias mlp_bias classifier_bias": ((False,), "biases that the architecture lacks"),
        "decoder_bias": ((True,), "a head without a bias"),
        "rope_scaling": ((None,), "other positions"),
    },
    dropout=(),
    written={},
    token_ids={"bos_token_id": "cls", "cls_token_id": "cls", "eos_token_id": "sep", "sep_token_id": "sep"},
    tokenizer_class=GENERIC,
    embeddings=(
        Weight("embeddings/word", "embeddings.tok_embeddings.weight", keep, "V D"),
        Weight("embeddings/norm/scale", "embeddings.norm.weight", keep, "D"),
        Weight("final_norm/scale", "final_norm.weight", keep, "D"),
    ),
    layers=(
        Weight("layer_{}/attention_norm/scale", "layers.{}.attn_norm.weight", keep, "D"),
        Weight("layer_{}/query_key_value", "layers.{}.attn.Wqkv.weight", transpose, "3D D"),
        Weight("layer_{}/attention_output", "layers.{}.attn.Wo.weight", transpose, "D D"),
        Weight("layer_{}/output_norm/scale", "layers.{}.mlp_norm.weight", keep, "D"),
        Weight("layer_{}/intermediate", "layers.{}.mlp.Wi.weight", transpose, "2I D"),
        Weight("layer_{}/output", "layers.{}.mlp.Wo.weight", transpose, "D I"),
    ),
    absent=lambda config: ("layer_0/attention_norm/scale",),
    ignored=("decoder.weight",),
    heads={
        "token_head": (
            Weight("transform/kernel", "head.dense.weight", transpose, "D D"),
            Weight("norm/scale", "head.norm.weight", keep, "D"),
            Weight("bias", "decoder.bias", keep, "V"),
        )
    },
    head_activation="gelu",
    head_settings={"classifier_activation": "gelu"},
)
