"""The keys of config.json for each architecture: used, harmless and refused, as side_files/keys.py explains."""

import dataclasses
from typing import Any, NamedTuple

from jax_sentemb.models.bert_config import DERIVED
from jax_sentemb.models.families.family import Family, Refused


class Refusal(NamedTuple):
    """Why a key is refused, and the values with which it is not."""

    allowed: tuple[Any, ...]
    reason: str


GENERATION = (
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p "
    "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
    "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values suppress_tokens "
    "begin_suppress_tokens exponential_decay_length_penalty prefix decoder_start_token_id bos_token_id eos_token_id sep_token_id "
    "cls_token_id mask_token_id"
)
HARMLESS = {
    "architectures transformers_version _name_or_path name_or_path _commit_hash commit_message": "where the file comes from",
    "dtype torch_dtype use_bfloat16": "weights of any precision are computed in float32",
    "attn_implementation _attn_implementation _attn_implementation_internal _attn_implementation_autoset": "the same numbers "
    "up to rounding",
    "output_attentions output_hidden_states return_dict torchscript tf_legacy_loss xla_device": "what a call of "
    "PyTorch or TensorFlow returns",
    "chunk_size_feed_forward gradient_checkpointing use_cache output_past": "memory of a call",
    "id2label id2label.* label2id label2id.* num_labels _num_labels problem_type finetuning_task task_specific_params "
    "task_specific_params.*": "of a task head",
    "classifier_dropout": "of training",
    "sentence_transformers sentence_transformers.*": "of a cross-encoder's scores",
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type": "no program "
    "reads them",
    "tie_encoder_decoder cross_attention_hidden_size": "of models with a decoder",
    GENERATION: "of programs that generate text",
}
REFUSED: Refused = {
    "auto_map": ((), "it names code for the model, and code from a model directory is never run"),
    "is_decoder is_encoder_decoder add_cross_attention": ((False,), "attention to earlier tokens only"),
    "is_causal": ((False, None), "attention to earlier tokens only"),
    "pruned_heads": (({}, None), "heads without weights"),
    "quantization_config": ((None,), "quantised weights"),
    "adapters": (({}, None), "adapters on top of the weights"),
}


def config_keys(family: Family) -> tuple[set[str], dict[str, str], Refused]:
    """Return the used, harmless and refused keys of a family; an entry may have several harmless or refused keys."""
    refused = {**REFUSED, **family.refused}
    fields = (field.name for field in dataclasses.fields(family.config) if field.name not in (*DERIVED, *family.fixed))
    used = {"tokenizer_class", "tie_word_embeddings", *family.aliases, *family.other_keys}
    used |= {family.keys.get(name, name) for name in fields}
    training = dict.fromkeys(family.dropout, "of training")
    return used - {name for names in refused for name in names.split()}, {**HARMLESS, **training, **family.harmless}, refused
