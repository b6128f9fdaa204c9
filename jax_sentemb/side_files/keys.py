"""The keys of every JSON file of a model directory that is opened, each on one of three lists.

used      the loader follows the value
harmless  the value changes no embedding, for the reason given
refused   a value that is not among the allowed ones would change embeddings, and is refused by the name of its key

A key on no list gives a warning. The keys are those that transformers 3 to 5, tokenizers, sentence-transformers 2 to 6 and
model2vec read or write. tests/test_side_files.py compares each key with sentence-transformers. A dot separates a key from the one
inside its value, and `*` stands for any name.
"""

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import NamedTuple

from jax_sentemb.models.families.family import Refused
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.side_files.config_keys import Refusal, config_keys


class Keys(NamedTuple):
    """The keys of a file."""

    used: frozenset[str]
    harmless: dict[str, str]
    refused: dict[str, Refusal]

    def refusal(self, name: str) -> Refusal | None:
        """Return the entry of a key in the list of refused ones; an exact name goes before a pattern."""
        if name in self.used or name in self.harmless:
            return None
        return self.refused.get(name) or next((refusal for key, refusal in self.refused.items() if fnmatchcase(name, key)), None)

    def knows(self, name: str) -> bool:
        """Return whether a key is on a list."""
        return any(fnmatchcase(name, known) for known in (*self.used, *self.harmless, *self.refused))

    def has_inner(self, name: str) -> bool:
        """Return whether a list has keys inside the value of this key."""
        return any(known.startswith(f"{name}.") for known in (*self.used, *self.harmless, *self.refused))


def _keys(used: str | Collection[str], harmless: dict[str, str], refused: Refused) -> Keys:
    """Make the lists of a file; a name in `harmless` or `refused` may be several names, separated by spaces."""
    separate = {name: reason for names, reason in harmless.items() for name in names.split()}
    refusals = {name: Refusal(*refusal) for names, refusal in refused.items() for name in names.split()}
    return Keys(frozenset(used.split() if isinstance(used, str) else used), separate, refusals)


TOKENS = "*_token additional_special_tokens extra_special_tokens extra_special_tokens.*"
ONLY_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
ONLY_SCORES = {"text": {"method": "forward", "method_output_name": "logits"}}
LOADING = "how Python loads or runs the weights; the numbers are the same up to rounding"
OUTER = ("sentence_embedding",)
WIDTH = "the width is that of the weights"

KEYS: dict[str, Keys] = {
    "modules.json": _keys(
        "type path name", {"idx": "modules are applied in the order of the list"}, {"kwargs": (([], None), "options of a module")}
    ),
    "config_sentence_transformers.json": _keys(
        "prompts prompts.* default_prompt_name similarity_fn_name truncate_dim",
        {
            "__version__ __version__.* version": "versions of the program that wrote the file",
            "requirements requirements.*": "Python packages of another program",
            "keep_in_fp32_modules": LOADING,
            "activation_fn": "of the scores of a cross-encoder, which are returned before it",
        },
        {
            "model_type": (("SentenceTransformer",), "another kind of model"),
            "max_active_dims": ((None,), "sparse embeddings"),
        },
    ),
    "sentence_bert_config.json": _keys(
        "max_seq_length do_lower_case tokenizer_args processor_kwargs",
        {
            "unpad_inputs": "how batches are packed",
            "cache_dir": "a folder of downloads",
            "model_args.attn_implementation model_kwargs.attn_implementation": LOADING,
            "model_args.torch_dtype model_kwargs.torch_dtype model_args.dtype model_kwargs.dtype": LOADING,
            "model_args.device_map model_kwargs.device_map model_args.low_cpu_mem_usage model_kwargs.low_cpu_mem_usage": LOADING,
            "model_args.use_safetensors model_kwargs.use_safetensors": LOADING,
            "model_args.add_pooling_layer model_kwargs.add_pooling_layer": "the pooler of transformers is not used",
            "model_args.trust_remote_code model_kwargs.trust_remote_code": "code from a model directory is never run",
            "config_args.trust_remote_code config_kwargs.trust_remote_code": "code from a model directory is never run",
        },
        {
            "transformer_task": (("feature-extraction", "sequence-classification"), "another kind of model"),
            "modality_config": ((ONLY_TEXT, ONLY_SCORES), "only text is read"),
            "module_output_name": (("token_embeddings", "scores"), "another output of the transformer"),
            "processing_kwargs": (({}, None), "options of each call of the tokenizer"),
            "query_length document_length query_expansion": ((None,), "other lengths for queries and documents"),
            "model_args model_kwargs config_args config_kwargs": (({}, None), "a change of config.json"),
            "model_args.* model_kwargs.* config_args.* config_kwargs.*": ((), "a change of config.json"),
            "tokenizer_name_or_path": ((None,), "a tokenizer elsewhere"),
            "backend": (("torch", None), "other weights"),
        },
    ),
    "Pooling": _keys(
        "pooling_mode pooling_mode_cls_token pooling_mode_mean_tokens pooling_mode_max_tokens pooling_mode_mean_sqrt_len_tokens "
        "pooling_mode_weightedmean_tokens pooling_mode_lasttoken include_prompt",
        {"word_embedding_dimension embedding_dimension": WIDTH},
        {},
    ),
    "Dense": _keys(
        "in_features out_features bias activation_function",
        {},
        {
            "module_input_name": (OUTER, "a layer on something other than the embedding"),
            "module_output_name": ((*OUTER, None), "a layer on something other than the embedding"),
            "use_residual": ((False,), "a residual connection"),
            "init_weight init_bias": ((None,), "the weights are those of the weight file"),
        },
    ),
    "Normalize": _keys(
        "",
        {},
        {
            "module_input_name": (OUTER, "the length of something other than the embedding"),
            "module_output_name": ((*OUTER, None), "the length of something other than the embedding"),
        },
    ),
    "CNN": _keys("in_word_embedding_dimension in_embedding_dimension out_channels kernel_sizes stride_sizes", {}, {}),
    "WordWeights": _keys("word_weights word_weights.* unknown_word_weight", {"vocab": "all weights are 1"}, {}),
    "WeightedLayerPooling": _keys(
        "layer_start num_hidden_layers", {"word_embedding_dimension embedding_dimension": WIDTH}, {"layer_weights": ((None,), "")}
    ),
    "model2vec": _keys(
        "normalize max_length",
        {
            "model_type architectures tokenizer_name apply_pca apply_zipf sif_coefficient hidden_dim seq_length pooling": "how the "
            "table was made",
            "embedding_dtype vocabulary_quantization": "recorded in the weight file",
            "head_config head_config.*": "of a classifier, which is not read",
        },
        {},
    ),
    "special_tokens_map.json": _keys(TOKENS, {}, {}),
    "added_tokens.json": _keys("*", {}, {}),
    "tokenizer.json": _keys(
        "model normalizer pre_tokenizer post_processor added_tokens truncation.max_length",
        {
            "version": "the library refuses formats that it does not know",
            "decoder": "turns ids into text",
            "truncation truncation.strategy truncation.stride": "texts are cut by max_seq_length",
            "padding padding.strategy padding.pad_to_multiple_of padding.pad_id padding.pad_type_id padding.pad_token": "padding "
            "is masked",
        },
        {
            "truncation.direction": (("Right",), "the end of a long text is cut"),
            "padding.direction": (("Right",), "padding is at the end"),
        },
    ),
    "tokenizer_config.json": _keys(
        f"{TOKENS} tokenizer_class do_lower_case strip_accents tokenize_chinese_chars add_prefix_space model_max_length max_len "
        "added_tokens_decoder split_special_tokens chat_template model_specific_special_tokens model_specific_special_tokens.* "
        "model_input_names",
        {
            "name_or_path special_tokens_map_file tokenizer_file vocab_file merges_file tokenizer_type": "paths of the author",
            "clean_up_tokenization_spaces": "turns ids into text",
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": "turns ids into text",
            "processor_class use_fast is_local local_files_only backend files_loaded verbose device cache_dir": LOADING,
            "trim_offsets errors": "offsets and decoding",
            "never_split": "only the slow tokenizers of transformers 3 and 4 read it",
            "max_length stride truncation truncation_strategy padding pad_to_multiple_of pad_token_type_id": "of single calls",
            "sp_model_kwargs sp_model_kwargs.* legacy from_slow keep_accents": "of SentencePiece's own file, which is not read",
            "response_template response_schema chat_control_tokens": "of chats",
            "trust_remote_code": "code from a model directory is never run",
        },
        {
            "auto_map": ((), "it names code for the tokenizer, and code from a model directory is never run"),
            "padding_side": (("right",), "padding is at the end"),
            "truncation_side": (("right",), "the end of a long text is cut"),
            "do_basic_tokenize": ((True, None), "text would not be split at punctuation"),
            "wordpieces_prefix": (("##",), "another mark of pieces inside a word"),
            "add_bos_token add_eos_token": ((False, None), "other special tokens around a text"),
            "init_inputs": (([],), "positional arguments of a tokenizer class"),
        },
    ),
    **{f"config.json of {name}": _keys(*config_keys(family)) for name, family in FAMILIES.items()},
}

# Files next to the weights, by their names.
REFUSED_FILES = {
    "adapter_config.json": "an adapter on top of the weights is not supported: merge it into the weights",
    "processor_config.json": "only text is read",
    "preprocessor_config.json": "only text is read",
}
# Files that sentence-transformers does not read either: the reason, and whether it holds with a modules.json.
UNREAD_FILES = {
    "sentence_mpnet_config.json": ("sentence-transformers does not read this name; use sentence_bert_config.json", True),
    "sentence_bert_config.json": ("without a modules.json sentence-transformers does not read it either", False),
    "config_sentence_transformers.json": ("without a modules.json sentence-transformers does not read it either", False),
}
