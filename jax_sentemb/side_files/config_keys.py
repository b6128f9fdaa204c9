"""The keys of config.json for each architecture: used, harmless and refused, as side_files/keys.py explains."""

from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """Why a key is refused, and the values with which it is not."""

    allowed: tuple[Any, ...]
    reason: str


Refused = dict[str, tuple[tuple[Any, ...], str]]

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
ABSOLUTE: Refused = {"position_embedding_type": (("absolute",), "other positions than those of the weight file")}
BERT_USED = (
    "model_type vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act max_position_embeddings "
    "type_vocab_size layer_norm_eps initializer_range pad_token_id tokenizer_class tie_word_embeddings"
)
DROPOUT = {"hidden_dropout_prob attention_probs_dropout_prob": "of training"}
BERT = BERT_USED, HARMLESS | DROPOUT, REFUSED | ABSOLUTE

CONFIGS: dict[str, tuple[str, dict[str, str], Refused]] = {
    "config.json of bert": BERT,
    "config.json of roberta": BERT,
    "config.json of xlm-roberta": BERT,
    "config.json of distilbert": (
        "model_type vocab_size dim n_layers n_heads hidden_dim activation hidden_size num_hidden_layers num_attention_heads "
        "max_position_embeddings initializer_range pad_token_id tokenizer_class tie_word_embeddings",
        HARMLESS
        | {
            "dropout attention_dropout qa_dropout seq_classif_dropout": "of training",
            "sinusoidal_pos_embds": "the positions are in the weight file",
        },
        REFUSED | ABSOLUTE,
    ),
    "config.json of mpnet": (
        BERT_USED.replace("type_vocab_size ", "").replace("pad_token_id ", ""),
        HARMLESS | DROPOUT | {"type_vocab_size": "MPNet has no segments"},
        REFUSED
        | ABSOLUTE
        | {"relative_attention_num_buckets": ((32,), "another number of distances"), "pad_token_id": ((1,), "other positions")},
    ),
    "config.json of modernbert": (
        "model_type vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_activation norm_eps "
        "max_position_embeddings initializer_range pad_token_id local_attention global_attn_every_n_layers global_rope_theta "
        "local_rope_theta layer_types rope_parameters tokenizer_class "
        "tie_word_embeddings",
        HARMLESS
        | {
            "attention_dropout embedding_dropout mlp_dropout initializer_cutoff_factor": "of training",
            "classifier_pooling classifier_activation sparse_prediction sparse_pred_ignore_index": "of a task head",
            "deterministic_flash_attn reference_compile repad_logits_with_grad": "how a GPU computes",
            "position_embedding_type": "ModernBERT has rotary positions",
        },
        REFUSED
        | {
            "norm_bias attention_bias mlp_bias classifier_bias": ((False,), "biases that the architecture lacks"),
            "decoder_bias": ((True,), "a head without a bias"),
            "rope_scaling": ((None,), "other positions"),
        },
    ),
}
