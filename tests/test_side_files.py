"""Every key of every file beside the weights: embeddings are those of sentence-transformers, or the key is refused by name."""

import dataclasses
import json
import logging
import shutil

import jax
import numpy as np
import pytest
import tokenizers
from reference_models import TEXTS, WORDS, build_originals, compare, edited, has_vocabulary, theirs, transformers
from tiny_models import tiny_model

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import write_json
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.load import load
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.families.family import GENERIC
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.side_files.keys import KEYS, REFUSED_FILES, UNREAD_FILES
from jax_sentemb.side_files.reader import check_keys


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    return build_originals(tmp_path_factory)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_originals_have_the_vectors_of_sentence_transformers(originals, family):
    compare(originals[family])


# Values for each key: of a used key another one than the originals have, of a harmless key one that could do harm, of a refused key
# one that must be refused. A key with a dot or a star has its name in the file before the value.
CONFIG_EXAMPLES = {
    "architectures": ["BertForMaskedLM"], "transformers_version": "9.0", "_name_or_path": "x", "name_or_path": "x",
    "_commit_hash": "0", "commit_message": "x", "dtype": "bfloat16", "torch_dtype": "float16", "use_bfloat16": True,
    "attn_implementation": "eager", "_attn_implementation": "eager", "_attn_implementation_internal": "eager",
    "_attn_implementation_autoset": True, "output_attentions": False, "output_hidden_states": True, "return_dict": True,
    "torchscript": False, "tf_legacy_loss": True, "xla_device": None, "chunk_size_feed_forward": 0,
    "gradient_checkpointing": True, "use_cache": False, "output_past": True, "id2label": {"0": "a", "1": "b"},
    "id2label.*": ("id2label.1", "c"), "label2id": {"a": 0, "b": 1}, "label2id.*": ("label2id.c", 1), "num_labels": 2,
    "_num_labels": 2, "problem_type": None, "finetuning_task": "x", "task_specific_params": {"x": {"y": 1}},
    "task_specific_params.*": ("task_specific_params.z", 1), "classifier_dropout": 0.5,
    "sentence_transformers": {"version": "5"}, "sentence_transformers.*": ("sentence_transformers.activation_fn", "x"),
    "directionality": "bidi", "pooler_fc_size": 3, "pooler_num_attention_heads": 3, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 3, "pooler_type": "x", "tie_encoder_decoder": False, "cross_attention_hidden_size": None,
    "max_length": 7, "min_length": 3, "do_sample": True, "early_stopping": True, "num_beams": 2, "num_beam_groups": 2,
    "diversity_penalty": 0.1, "temperature": 0.1, "top_k": 3, "top_p": 0.5, "typical_p": 0.5, "repetition_penalty": 2.0,
    "length_penalty": 2.0, "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 2, "bad_words_ids": [[1]],
    "num_return_sequences": 2, "output_scores": True, "return_dict_in_generate": True, "forced_bos_token_id": 1,
    "forced_eos_token_id": 1, "remove_invalid_values": True, "suppress_tokens": [1], "begin_suppress_tokens": [1],
    "exponential_decay_length_penalty": [1, 1.0], "prefix": "x", "decoder_start_token_id": 1, "bos_token_id": 3, "eos_token_id": 3,
    "sep_token_id": 3, "cls_token_id": 3, "mask_token_id": 3, "auto_map": {"AutoModel": "x.Y"}, "is_decoder": True,
    "is_encoder_decoder": True, "add_cross_attention": True, "is_causal": True, "pruned_heads": {"0": [1]},
    "quantization_config": {"quant_method": "x"}, "adapters": {"x": 1}, "position_embedding_type": "relative_key",
    "hidden_dropout_prob": 0.9, "attention_probs_dropout_prob": 0.9, "model_type": "gpt2", "vocab_size": 7, "hidden_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 9, "hidden_act": "relu", "max_position_embeddings": 9,
    "type_vocab_size": 1, "layer_norm_eps": 0.5, "initializer_range": 0.1, "pad_token_id": 3, "tokenizer_class": "GPT2Tokenizer",
    "tie_word_embeddings": False, "dim": 8, "n_layers": 1, "n_heads": 4, "hidden_dim": 9, "activation": "relu", "dropout": 0.9,
    "attention_dropout": 0.9, "qa_dropout": 0.9, "seq_classif_dropout": 0.9, "sinusoidal_pos_embds": True,
    "relative_attention_num_buckets": 16, "hidden_activation": "relu", "norm_eps": 0.5, "local_attention": 4,
    "global_attn_every_n_layers": 2, "global_rope_theta": 50.0, "local_rope_theta": 50.0,
    "layer_types": ["full_attention", "full_attention"],
    "rope_parameters": {"full_attention": {"rope_theta": 50.0, "rope_type": "default"}}, "embedding_dropout": 0.9,
    "mlp_dropout": 0.9,
    "initializer_cutoff_factor": 1.0, "classifier_pooling": "mean", "classifier_activation": "relu", "sparse_prediction": True,
    "sparse_pred_ignore_index": -1, "deterministic_flash_attn": True, "reference_compile": False, "repad_logits_with_grad": True,
    "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "embedding_size": 8, "summary_type": "mean", "summary_use_proj": False,
    "summary_activation": "relu", "summary_last_dropout": 0.9,
}  # fmt: skip
TOKEN_EXAMPLES = {
    "*_token": ("mask_token", "[E]"), "additional_special_tokens": ["zzyzx"], "extra_special_tokens": ["zzyzx"],
    "extra_special_tokens.*": ("extra_special_tokens.x_token", "zzyzx"),
}  # fmt: skip
ADDED = {"content": "zzyzx", "lstrip": True, "rstrip": False, "single_word": True, "normalized": False, "special": False}
EXAMPLES = {
    "modules.json": {"type": "sentence_transformers.models.BoW", "path": "..", "name": "x", "idx": 3, "kwargs": ["task"]},
    "config_sentence_transformers.json": {
        "prompts": {"query": "the q: "}, "prompts.*": ("prompts.query", "the q: "), "default_prompt_name": "query",
        "similarity_fn_name": "dot", "truncate_dim": 5, "__version__": {"sentence_transformers": "2.0.0"},
        "__version__.*": ("__version__.transformers", "4.0.0"), "version": "1", "requirements": {},
        "requirements.*": ("requirements.numpy", ">=1"), "keep_in_fp32_modules": ["x"], "activation_fn": "x",
        "model_type": "SparseEncoder", "max_active_dims": 4,
    },
    "sentence_bert_config.json": {
        "max_seq_length": 9, "do_lower_case": True, "tokenizer_args": {"strip_accents": False},
        "processor_kwargs": {"tokenize_chinese_chars": False}, "unpad_inputs": False, "cache_dir": "x",
        "model_args.attn_implementation": "eager", "model_kwargs.attn_implementation": "eager", "model_args.torch_dtype": "float32",
        "model_kwargs.torch_dtype": "float32", "model_args.dtype": "float32", "model_kwargs.dtype": "float32",
        "model_args.device_map": None, "model_kwargs.device_map": None, "model_args.low_cpu_mem_usage": True,
        "model_kwargs.low_cpu_mem_usage": True, "model_args.use_safetensors": True, "model_kwargs.use_safetensors": True,
        "model_args.add_pooling_layer": False, "model_kwargs.add_pooling_layer": False, "model_args.trust_remote_code": True,
        "model_kwargs.trust_remote_code": True, "config_args.trust_remote_code": True, "config_kwargs.trust_remote_code": True,
        "transformer_task": "fill-mask", "modality_config": {"message": {"method": "forward", "method_output_name": "x"}},
        "module_output_name": "sentence_embedding", "processing_kwargs": {"text": {"max_length": 5}}, "query_length": 5,
        "document_length": 5, "query_expansion": {"strategy": "min", "length": 5}, "model_args": "x", "model_kwargs": "x",
        "config_args": "x", "config_kwargs": "x", "model_args.*": ("model_args.subfolder", "x"),
        "model_kwargs.*": ("model_kwargs.subfolder", "x"), "config_args.*": ("config_args.num_hidden_layers", 1),
        "config_kwargs.*": ("config_kwargs.num_hidden_layers", 1), "tokenizer_name_or_path": "x", "backend": "onnx",
    },
    "Pooling": {
        "pooling_mode": "cls", "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True,
        "pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True,
        "include_prompt": False, "word_embedding_dimension": 99, "embedding_dimension": 99,
    },
    "Dense": {
        "in_features": 9, "out_features": 9, "bias": False, "activation_function": "torch.nn.modules.activation.ReLU",
        "module_input_name": "token_embeddings", "module_output_name": "other", "use_residual": True, "init_weight": [1],
        "init_bias": [1],
    },
    "Normalize": {"module_input_name": "token_embeddings", "module_output_name": "other"},
    "CNN": {
        "in_word_embedding_dimension": 9, "in_embedding_dimension": 9, "out_channels": 9, "kernel_sizes": [5],
        "stride_sizes": [2, 2],
    },
    "WordWeights": {"word_weights": {"a": 2}, "word_weights.*": ("word_weights.a", 2), "unknown_word_weight": 2, "vocab": ["a"]},
    "WeightedLayerPooling": {
        "layer_start": 0, "num_hidden_layers": 5, "word_embedding_dimension": 9, "embedding_dimension": 9, "layer_weights": [1],
    },
    "model2vec": {
        "normalize": True, "max_length": 3, "model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "x",
        "apply_pca": 4, "apply_zipf": True, "sif_coefficient": 0.1, "hidden_dim": 9, "seq_length": 9, "pooling": "last",
        "embedding_dtype": "float16", "vocabulary_quantization": 9, "head_config": {}, "head_config.*": ("head_config.x", 1),
    },
    "special_tokens_map.json": TOKEN_EXAMPLES,
    "added_tokens.json": {"*": ("zzyzx", None)},
    "tokenizer.json": {
        "model": {"type": "x"}, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "added_tokens": [], "truncation.max_length": 9, "version": "1.0", "decoder": None,
        "truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
        "truncation.strategy": "OnlyFirst", "truncation.stride": 1, "padding": {
            "strategy": {"Fixed": 30}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 3, "pad_type_id": 1,
            "pad_token": "x",
        }, "padding.strategy": "BatchLongest",
        "padding.pad_to_multiple_of": 8, "padding.pad_id": 3, "padding.pad_type_id": 1, "padding.pad_token": "[MASK]",
        "truncation.direction": "Left", "padding.direction": "Left",
    },
    "tokenizer_config.json": {
        **TOKEN_EXAMPLES, "tokenizer_class": "GPT2Tokenizer", "do_lower_case": False, "strip_accents": False,
        "tokenize_chinese_chars": False, "add_prefix_space": True, "model_max_length": 9, "max_len": 9,
        "added_tokens_decoder": "see below", "split_special_tokens": True, "model_specific_special_tokens": {"x": "zzyzx"},
        "model_specific_special_tokens.*": ("model_specific_special_tokens.x", "zzyzx"), "model_input_names": ["input_ids"],
        "chat_template": "{{ messages }}", "name_or_path": "x", "special_tokens_map_file": "x", "tokenizer_file": "x",
        "vocab_file": "x", "merges_file": "x", "tokenizer_type": "x", "clean_up_tokenization_spaces": True,
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True, "processor_class": "x", "use_fast": False,
        "is_local": False, "local_files_only": True, "backend": "x", "files_loaded": ["x"], "verbose": True, "device": "x",
        "cache_dir": "x", "trim_offsets": False, "errors": "ignore", "never_split": ["zzyzx"], "max_length": 5, "stride": 2,
        "truncation": True, "truncation_strategy": "longest_first", "padding": "max_length", "pad_to_multiple_of": 8,
        "pad_token_type_id": 1, "sp_model_kwargs": {}, "sp_model_kwargs.*": ("sp_model_kwargs.nbest_size", -1), "legacy": True,
        "from_slow": True, "keep_accents": True, "response_template": "x", "response_schema": "x", "chat_control_tokens": ["x"],
        "trust_remote_code": True, "auto_map": {"AutoTokenizer": ["x.Y", None]}, "padding_side": "left", "truncation_side": "left",
        "do_basic_tokenize": False, "wordpieces_prefix": "@@", "add_bos_token": True, "add_eos_token": True, "init_inputs": ["x"],
    },
}  # fmt: skip
FILES = {
    "Pooling": "1_Pooling/config.json", "Dense": "2_Dense/config.json", "Normalize": "3_Normalize/config.json",
}  # fmt: skip
SEPARATE = (
    "CNN",
    "WordWeights",
    "WeightedLayerPooling",
    "model2vec",
    "modules.json",
    "added_tokens.json",
)  # have tests of their own
COMPARED = [kind for kind in KEYS if kind not in SEPARATE]
# Harmless keys that sentence-transformers 6 refuses: it reads none of them, but cannot load the directory.
NOT_THEIRS = {
    "sentence_bert_config.json": {"cache_dir"},
    "tokenizer.json": {"version"},
}


def examples_of(kind):
    """The example of each key; a key of one family alone has another value than transformers' default."""
    if not kind.startswith("config.json of"):
        return EXAMPLES[kind]
    row = FAMILIES[kind.removeprefix("config.json of ")]
    defaults = getattr(transformers, f"{row.class_prefix}Config")().to_dict()
    return {key: changed(value) for key, value in defaults.items()} | CONFIG_EXAMPLES


def changed(value):
    """Another value of the same type."""
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else "x"


def example(kind, key):
    """The name in the file and the value."""
    value = examples_of(kind)[key]
    return value if isinstance(value, tuple) else (key, value)


def place(kind):
    """The family whose original is changed, and the file."""
    if kind.startswith("config.json of"):
        return kind.removeprefix("config.json of "), "config.json"
    return "bert", FILES.get(kind, kind)


def copied(originals, kind, tmp_path):
    family, name = place(kind)
    folder = shutil.copytree(originals[family], tmp_path / "model")
    if kind == "tokenizer.json":
        edited(folder, name, {key: EXAMPLES[kind][key] for key in ("truncation", "padding")})
    return folder, name


def test_each_key_has_an_example_and_is_on_one_list():
    for kind, keys in KEYS.items():
        names = [*keys.used, *keys.harmless, *keys.refused]
        assert len(names) == len(set(names)), kind
        examples = examples_of(kind)
        assert set(names) <= set(examples), kind
        assert kind.startswith("config.json of") or set(names) == set(examples), kind
    every = {
        name
        for kind, keys in KEYS.items()
        if kind.startswith("config.json of")
        for name in {*keys.used, *keys.harmless, *keys.refused}
    }
    assert set(CONFIG_EXAMPLES) <= every


@pytest.mark.parametrize("kind", COMPARED)
def test_harmless_keys_change_nothing(originals, tmp_path, kind, caplog):
    folder, name = copied(originals, kind, tmp_path)
    before = load(folder)(TEXTS)
    for key in KEYS[kind].harmless:
        if key not in NOT_THEIRS.get(kind, ()):
            edited(folder, name, dict([example(kind, key)]))
    np.testing.assert_array_equal(load(folder)(TEXTS), before)
    compare(folder)
    assert "is not known" not in caplog.text


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind in COMPARED for key in sorted(KEYS[kind].refused)])
def test_a_refused_key_is_named(originals, tmp_path, kind, key):
    folder, name = copied(originals, kind, tmp_path)
    written, value = example(kind, key)
    edited(folder, name, {written: value})
    with pytest.raises(ModelFileError) as caught:
        load(folder)
    assert written in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("value", ["true", "attention_mask", 3, {"attention_mask": 1}])
def test_names_of_inputs_that_are_no_list_are_refused(originals, tmp_path, value):
    folder, _ = copied(originals, "tokenizer_config.json", tmp_path)
    edited(folder, "tokenizer_config.json", {"model_input_names": value})
    with pytest.raises(ModelFileError, match=r"model_input_names=.* is not supported; give a list with attention_mask"):
        load(folder)


@pytest.mark.parametrize("kind", [kind for kind in COMPARED if KEYS[kind].refused])
def test_allowed_values_of_refused_keys_change_nothing(originals, tmp_path, kind):
    for number in range(3):
        folder, name = copied(originals, kind, tmp_path / str(number))
        for key, refusal in KEYS[kind].refused.items():
            if len(refusal.allowed) > number and "*" not in key:
                edited(folder, name, {key: refusal.allowed[number]})
        if kind == "sentence_bert_config.json" and number:
            continue  # the second value is that of a cross-encoder
        compare(folder)


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind in COMPARED for key in sorted(KEYS[kind].used)])
def test_a_used_key_has_the_same_effect_or_is_refused(originals, tmp_path, kind, key):
    folder, name = copied(originals, kind, tmp_path)
    written, value = example(kind, key)
    if key == "added_tokens_decoder":
        tokens = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        size = json.loads((folder / "config.json").read_text())["vocab_size"] - 4
        value = {str(token.pop("id")): token for token in tokens} | {str(size): ADDED}
    if key == "default_prompt_name":
        edited(folder, name, {"prompts": {"query": "the q: "}})
    if key == "pooling_mode_cls_token":
        edited(folder, name, {"pooling_mode_mean_tokens": False})
    edited(folder, name, {written: value})
    try:
        load(folder)
    except ModelFileError:
        return
    compare(folder)


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_an_unknown_key_is_a_warning_that_names_it(tmp_path, kind, caplog):
    if kind == "added_tokens.json":
        return  # each key is a token
    with caplog.at_level(logging.WARNING, "jax_sentemb"):
        for _ in range(2):
            check_keys({"brand_new": 1}, kind, tmp_path / "some.json")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'some.json'}: the key 'brand_new' is not known to this version and was ignored"
    ]


def equal_or_refused(folder):
    """Whether the vectors are equal; None if the directory is refused."""
    try:
        ours = load(folder)(TEXTS)
    except ModelFileError:
        return None
    try:
        expected = theirs(folder).encode(TEXTS)
    except (ValueError, TypeError, AttributeError):
        return None  # they refuse it
    return np.abs(ours - expected).max() < 1e-5


def token(content, special=True, **flags):
    return {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": not special,
        "special": special,
    } | flags


TOKENIZER_CASES = {
    "no class": {"tokenizer_config.json": {"tokenizer_class": None}},
    "generic class": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}},
    "fast class": {"tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast"}},
    "class in config.json": {
        "tokenizer_config.json": {"tokenizer_class": None}, "config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    },
    "cased": {"tokenizer_config.json": {"do_lower_case": False}},
    "case not stated": {"tokenizer_config.json": {"do_lower_case": None}},
    "accents": {"tokenizer_config.json": {"strip_accents": False}},
    "accents in the file": {"tokenizer.json": {"normalizer.strip_accents": False}},
    "control characters": {"tokenizer.json": {"normalizer.clean_text": False}},
    "short words": {"tokenizer.json": {"model.max_input_chars_per_word": 4}},
    "other marks": {"tokenizer.json": {"model.continuing_subword_prefix": "@@"}},
    "other normalizer": {"tokenizer.json": {"normalizer": {"type": "NFKC"}}},
    "no normalizer": {"tokenizer.json": {"normalizer": None}},
    "other splitter": {"tokenizer.json": {"pre_tokenizer": {"type": "Whitespace"}}},
    "prefix": {"tokenizer_config.json": {"add_prefix_space": True}},
    "no prefix": {"tokenizer_config.json": {"add_prefix_space": False}},
    "prefix in the file": {"tokenizer.json": {"pre_tokenizer.add_prefix_space": True}},
    "lower case first": {"sentence_bert_config.json": {"do_lower_case": True}},
    "cased by arguments": {"sentence_bert_config.json": {"tokenizer_args": {"do_lower_case": False}}},
    "cased, then lower": {"sentence_bert_config.json": {"tokenizer_args": {"do_lower_case": False}, "do_lower_case": True}},
    "length by arguments": {"sentence_bert_config.json": {"processor_kwargs": {"model_max_length": 7}}},
    "no length": {"sentence_bert_config.json": {"max_seq_length": None}},
    "nothing around": {"tokenizer.json": {"post_processor": None}},
    "added special": {"tokenizer_config.json": {"additional_special_tokens": ["[e1]"]}},
    "added special as an object": {"special_tokens_map.json": {"bos_token": token("[e1]")}},
    "split special": {"tokenizer_config.json": {"additional_special_tokens": ["[e1]"], "split_special_tokens": True}},
    "added.json": {"added_tokens.json": {"[e1]": "+0", "zzyzx": "+1"}},
    "added.json with a gap": {"added_tokens.json": {"[e1]": "+2"}},
    "added.json, special": {
        "added_tokens.json": {"[e1]": "+0"}, "special_tokens_map.json": {"additional_special_tokens": ["[e1]"]},
    },
    "decoder": {"tokenizer_config.json": {"added_tokens_decoder": {"+0": token("zzyzx", special=False, lstrip=True)}}},
    "decoder, special": {"tokenizer_config.json": {"added_tokens_decoder": {"+0": token("[e1]")}}},
    "decoder and added.json": {
        "tokenizer_config.json": {"added_tokens_decoder": {"+0": token("zzyzx", special=False)}},
        "added_tokens.json": {"[e1]": "+1"},
    },
    "another mask": {"tokenizer_config.json": {"mask_token": "[e1]"}},
    "another cls": {"tokenizer_config.json": {"cls_token": "[e1]"}},
    "another unk": {"tokenizer_config.json": {"unk_token": "a"}},
    "maps differ": {"tokenizer_config.json": {"pad_token": "a"}, "special_tokens_map.json": {"pad_token": "text"}},
}  # fmt: skip
# At least these must load, so that the test is not one of refusals; by the class of the tokenizer.
MUST_LOAD = {
    "BertTokenizer": {"no class", "fast class", "accents", "lower case first", "added special", "added.json", "decoder"},
    "RobertaTokenizer": {
        "no class", "generic class", "prefix", "no prefix", "lower case first", "added special", "decoder", "cased",
    },
    "XLMRobertaTokenizer": {
        "no class", "generic class", "prefix", "no prefix", "lower case first", "added special", "decoder", "cased",
    },
    "CamembertTokenizer": {"no class", "generic class", "prefix", "no prefix", "lower case first", "decoder", "cased"},
    "MPNetTokenizer": {"no class", "generic class", "accents", "lower case first", "added special", "added.json"},
    GENERIC: {"no class", "generic class", "lower case first", "added special", "decoder", "accents", "no length"},
}  # fmt: skip
OF_BERT = {  # cases that need the special tokens of BERT
    "generic class", "cased by arguments", "cased, then lower", "length by arguments", "no length", "split special",
    "added.json, special", "decoder, special",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_settings_of_tokenizers_have_the_same_effect_or_are_refused(originals, tmp_path, family):
    wrong, loaded = [], set()
    size = tokenizers.Tokenizer.from_file(str(originals[family] / "tokenizer.json")).get_vocab_size()
    before = theirs(originals[family]).encode(TEXTS)
    for name, changes in TOKENIZER_CASES.items():
        folder = shutil.copytree(originals[family], tmp_path / name)
        for file, change in changes.items():
            if file == "tokenizer.json" and not applies(folder, change):
                continue
            edited(folder, file, numbered(change, size, folder))
        equal = equal_or_refused(folder)
        loaded |= {name} if equal else set()
        wrong += [name] if equal is False else []
    assert not wrong
    assert MUST_LOAD[FAMILIES[family].tokenizer_class] | (OF_BERT if family == "bert" else set()) <= loaded
    assert np.isfinite(before).all()


def applies(folder, change):
    """Whether the part of tokenizer.json that is changed is there."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return all((content.get(part) or {}).get(key) is not None for part, _, key in (name.partition(".") for name in change) if key)


def numbered(change, size, folder):
    """A change with the numbers of new tokens, and with those of the file in a list of all added tokens."""
    text = json.dumps(change)
    for offset in range(3):
        text = text.replace(f'"+{offset}":', f'"{size + offset}":').replace(f'"+{offset}"', str(size + offset))
    change = json.loads(text)
    if "added_tokens_decoder" in change:
        known = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        change["added_tokens_decoder"] |= {str(entry.pop("id")): entry for entry in known}
    return change


@pytest.mark.parametrize("family", [family for family in FAMILIES if has_vocabulary(family)])
@pytest.mark.parametrize("settings", [{}, {"strip_accents": False}, {"tokenize_chinese_chars": False}, {"do_lower_case": False}])
def test_a_vocabulary_alone_is_read_as_transformers_reads_it(originals, tmp_path, family, settings):
    folder = shutil.copytree(originals[family], tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    edited(folder, "tokenizer_config.json", settings)
    assert equal_or_refused(folder)


@pytest.mark.parametrize("name", [name for name in sorted({*REFUSED_FILES, "chat_template.jinja"})])
def test_files_that_would_change_embeddings_are_refused(originals, tmp_path, name):
    folder = shutil.copytree(originals["bert"], tmp_path / "model")
    (folder / "modules.json").unlink()
    (folder / name).write_text("{}")
    with pytest.raises(ModelFileError, match=name.partition(".")[0]):
        load(folder)


@pytest.mark.parametrize(
    "name", ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json", "vocab.txt"]
)
def test_links_to_nothing_and_folders_in_place_of_files_are_refused(originals, tmp_path, name):
    folder = shutil.copytree(originals["bert"], tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../blobs/of-an-unfinished-download")
    with pytest.raises(ModelFileError, match=f"{name} is a link to a missing file"):
        load(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(ModelFileError, match=f"{name} is a folder"):
        load(folder)


@pytest.mark.parametrize("name", UNREAD_FILES)
def test_files_that_nobody_reads_are_named(originals, tmp_path, name, caplog):
    folder = shutil.copytree(originals["bert"], tmp_path / "model")
    (folder / "modules.json").unlink()
    write_json(folder / name, {"max_seq_length": 5, "prompts": {"a": "b "}, "default_prompt_name": "a"})
    compare(folder)
    assert f"{name} was not read" in caplog.text


@pytest.mark.parametrize(
    ("key", "change"), [("kwargs", {"kwargs": ["task"]}), ("name", {"name": "same"}), ("path", {"path": ".."})]
)
def test_entries_of_modules_that_change_embeddings_are_refused(originals, tmp_path, key, change):
    folder = shutil.copytree(originals["bert"], tmp_path / "model")
    edited(folder, "modules.json", {"idx": 7})
    compare(folder)
    edited(folder, "modules.json", change)
    with pytest.raises(ModelFileError, match=key):
        load(folder)


def test_text_that_spells_a_special_token_stays_text_here_and_not_in_transformers(originals, tmp_path):
    folder = originals["bert"]
    texts = ["a [SEP] b", "[MASK]", "a [PAD]"]
    assert (np.abs(load(folder)(texts) - theirs(folder).encode(texts)).max(axis=1) > 1e-2).all()
    changed = shutil.copytree(folder, tmp_path / "model")
    edited(changed, "tokenizer_config.json", {"split_special_tokens": True})
    compare(changed, texts)  # and exports have this setting
    np.testing.assert_array_equal(load(changed)(texts), load(folder)(texts))


def test_a_unigram_vocabulary_without_the_letters_of_a_special_token_keeps_text_as_text(originals):
    tokenizer = Tokenizer.load(originals["xlm-roberta"])  # it has no piece "<"
    (row,), _ = tokenizer.encode(["a <pad> b</s>"], 64)
    assert not {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id} & set(row[1:-1].tolist())
    assert tokenizer.unk_id in row


@pytest.mark.parametrize("kind", ["CNN", "WordWeights", "WeightedLayerPooling"])
def test_keys_of_modules_before_the_pooling_have_the_same_effect_or_are_refused(tmp_path, kind):
    before = tmp_path / "before"
    options = {"pooling": "first_last"} if kind == "WeightedLayerPooling" else {"convolution": Convolution((1, 3), 6)}
    model = dataclasses.replace(tiny_model(WORDS, 150), **options)
    if kind != "WeightedLayerPooling":
        model.params["cnn"] = model.convolution.init(jax.random.key(0), 16)
    write_export(before, model)
    keys, files = KEYS[kind], {"CNN": ["2_CNN/cnn_config.json"], "WeightedLayerPooling": ["1_WeightedLayerPooling/config.json"]}
    names = files.get(kind, ["1_WordWeights/config.json", "1_WordWeights/wordweights_config.json"])
    compare(before)
    for number, key in enumerate([*keys.used, *keys.harmless, *keys.refused]):
        folder = shutil.copytree(before, tmp_path / str(number))
        for name in names:
            edited(folder, name, dict([example(kind, key)]))
        if key in keys.harmless:
            np.testing.assert_array_equal(load(folder)(TEXTS), load(before)(TEXTS))
        else:
            with pytest.raises(ModelFileError):
                load(folder)
