"""Build what transformers builds for a tokenizer class. Some classes follow tokenizer_config.json instead of tokenizer.json.

BERT's classes take lower-casing, accents and Chinese characters from tokenizer_config.json. Those of RoBERTa and XLM-R take the
space before a text from there. PreTrainedTokenizerFast follows tokenizer.json. Files on which transformers 4 and 5 differ are
refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import quote
from jax_sentemb.models.families.family import GENERIC
from jax_sentemb.models.families.table import FAMILIES

# The type of the model in tokenizer.json by class. It selects the rules of the class.
PIECES = {name: pieces for family in FAMILIES.values() for name, pieces in family.tokenizer_classes.items()}
DEFAULTS: dict[str, Mapping[str, Any]] = {  # of the model in tokenizer.json: what the classes build
    "WordPiece": {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    "BPE": {"dropout": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False},
    "Unigram": {"unk_id": 3, "byte_fallback": False},
}
SPACE = "\u2581"  # SentencePiece's mark of a space


def class_of(settings: Mapping[str, Any], config: Mapping[str, Any] | None, where: Path) -> str:
    """Return the tokenizer class that transformers uses.

    Args:
        settings: The content of tokenizer_config.json.
        config: The content of config.json, or None.
        where: The file that errors name.

    Raises:
        ModelFileError: The class is not supported.
    """
    model_type = (config or {}).get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family and not family.tokenizer_classes:
        return GENERIC
    name = settings.get("tokenizer_class") or (config or {}).get("tokenizer_class")
    if name is None:
        return family.tokenizer_class if family else GENERIC
    base = name.removesuffix("Fast") if isinstance(name, str) else name
    if base not in (supported := (*PIECES, GENERIC, "TokenizersBackend")):
        raise ModelFileError(f"{where}: tokenizer_class={quote(name)} is not supported; supported are {', '.join(supported)}")
    return GENERIC if base == "TokenizersBackend" else base


def apply_class(state: dict[str, Any], name: str, settings: Mapping[str, Any], file: Path) -> None:
    """Change a tokenizer.json to what transformers builds for the class `name` and the settings.

    Raises:
        ModelFileError: transformers 4 and 5 differ, or the file and the settings contradict each other.
    """
    rules = {"WordPiece": _as_word_pieces, "BPE": _as_byte_level, "Unigram": _as_unigram}
    rules.get(PIECES.get(name, ""), _check_generic)(state, settings, file)


def is_built_by_bert(state: dict[str, Any]) -> bool:
    """Return whether BertTokenizer of transformers builds this tokenizer.json from its settings."""
    normalizer = state["normalizer"] or {}
    keys = {"do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars"}
    try:
        _as_word_pieces({**state}, {key: normalizer.get(name) for key, name in keys.items()}, Path())
    except ModelFileError:
        return False
    return True


def _as_word_pieces(state: dict[str, Any], settings: Mapping[str, Any], file: Path) -> None:
    _check_model(state, "WordPiece", file)
    normalizer = state.get("normalizer") or {}
    _check_type(normalizer, ("BertNormalizer",), "normalizer", file)
    _check_type(state.get("pre_tokenizer") or {}, ("BertPreTokenizer",), "pre_tokenizer", file)
    unknown = state["model"].get("unk_token")
    if unknown != (setting := _content(settings.get("unk_token")) or "[UNK]"):
        raise ModelFileError(
            f"{file}: unk_token={quote(unknown)} is not {setting!r}, the unk_token of tokenizer_config.json; correct one of them"
        )
    if normalizer.get("clean_text", True) is not True:
        raise _other_rules(file, "clean_text=false")
    _check_defaults(normalizer, settings, file)
    lowercase = settings.get("do_lower_case")
    chinese = settings.get("tokenize_chinese_chars")
    state["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True if chinese is None else chinese,
        "strip_accents": settings.get("strip_accents"),
        "lowercase": True if lowercase is None else lowercase,
    }


def _check_defaults(normalizer: Mapping[str, Any], settings: Mapping[str, Any], file: Path) -> None:
    """Raise ModelFileError if tokenizer.json differs from a default of transformers that the settings do not confirm."""
    lowercase = normalizer.get("lowercase", True)
    strip = normalizer.get("strip_accents")
    facts = (
        ("do_lower_case", lowercase, True),
        ("strip_accents", lowercase if strip is None else strip, lowercase),
        ("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True), True),
    )
    for key, value, default in facts:
        if settings.get(key) is None and value != default:
            raise ModelFileError(
                f"{file} has {key}={quote(value)}, but tokenizer_config.json has no {key}, and transformers assumes the opposite; "
                "add the value with which the encoder was trained to tokenizer_config.json"
            )


def _as_byte_level(state: dict[str, Any], settings: Mapping[str, Any], file: Path) -> None:
    _check_model(state, "BPE", file)
    if state["model"].get("continuing_subword_prefix") or state["model"].get("end_of_word_suffix"):
        raise _other_rules(file, "a mark of pieces inside a word")
    if state.get("normalizer"):
        raise _other_rules(file, "a normalizer")
    splitter = state.get("pre_tokenizer") or {}
    _check_type(splitter, ("ByteLevel",), "pre_tokenizer", file)
    if splitter.get("use_regex", True) is not True:
        raise _other_rules(file, "use_regex=false")
    prefix = _prefix(splitter.get("add_prefix_space", False), settings, default=False, file=file)
    state["pre_tokenizer"] = {**splitter, "add_prefix_space": prefix}


def _as_unigram(state: dict[str, Any], settings: Mapping[str, Any], file: Path) -> None:
    _check_model(state, "Unigram", file)
    for inner, outer in (("cls_token", "bos_token"), ("sep_token", "eos_token")):
        pair = [_content(settings.get(key)) for key in (inner, outer)]
        if None not in pair and pair[0] != pair[1]:
            raise ModelFileError(
                f"{file.parent}/tokenizer_config.json: {inner}={quote(pair[0])} is not the {outer} {quote(pair[1])}; "
                "correct one of them"
            )
    steps = _steps(state.get("normalizer"), "normalizers")
    for step in steps:
        _check_type(step, ("Precompiled", "Replace", "Strip"), "normalizer", file)
    splitters = _steps(state.get("pre_tokenizer"), "pretokenizers")
    for step in splitters:
        _check_type(step, ("WhitespaceSplit", "Metaspace"), "pre_tokenizer", file)
    space = next((step for step in splitters if step["type"] == "Metaspace"), {})
    if space.get("replacement", SPACE) != SPACE:
        raise _other_rules(file, "another mark of spaces")
    prefix = _prefix(space.get("prepend_scheme", "always") != "never", settings, default=True, file=file)
    state["normalizer"] = next((step for step in steps if step["type"] == "Precompiled"), None)
    scheme = "always" if prefix else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}


def _check_generic(state: dict[str, Any], settings: Mapping[str, Any], file: Path) -> None:
    if (state.get("model") or {}).get("dropout"):
        raise ModelFileError(
            f"{file}: dropout={quote(state['model']['dropout'])} draws the pieces at random and is not supported; remove it"
        )
    setting = settings.get("add_prefix_space")
    for step in _steps(state.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "ByteLevel" and setting not in (None, value := step.get("add_prefix_space", False)):
            raise _other_prefix(file, value, setting)


def _prefix(value: bool, settings: Mapping[str, Any], default: bool, file: Path) -> bool:
    """Return whether a space is put before a text; raise ModelFileError if only tokenizer.json has a value, not the default."""
    setting = settings.get("add_prefix_space")
    if setting is None and value != default:
        raise _other_prefix(file, value, setting)
    return value if setting is None else bool(setting)


def _other_prefix(file: Path, value: Any, setting: Any) -> ModelFileError:
    return ModelFileError(
        f"{file} has add_prefix_space={quote(value)} and tokenizer_config.json {quote(setting)}: set both to the value with which "
        "the encoder was trained"
    )


def _check_model(state: Mapping[str, Any], model_type: str, file: Path) -> None:
    """Raise ModelFileError for a model of pieces that the class would not build."""
    model = state.get("model") or {}
    _check_type(model, (model_type,), "model", file)
    for key, default in DEFAULTS[model_type].items():
        if model.get(key, default) not in (default, *((0.0,) if key == "dropout" else ())):
            raise _other_rules(file, f"{key}={quote(model[key])}")


def _check_type(rule: Mapping[str, Any], types: tuple[str, ...], part: str, file: Path) -> None:
    if rule.get("type") not in types:
        raise _other_rules(file, f"{part} {quote(rule.get('type'))}")


def _other_rules(file: Path, problem: str) -> ModelFileError:
    return ModelFileError(
        f"{file}: transformers ignores {problem} for this tokenizer_class; if the file is right, set tokenizer_class to "
        "PreTrainedTokenizerFast in tokenizer_config.json"
    )


def _steps(rule: Mapping[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """Return the rules of a normalizer or pre-tokenizer in their order."""
    if not rule:
        return []
    return [step for part in rule[key] for step in _steps(part, key)] if rule.get("type") == "Sequence" else [dict(rule)]


def _content(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token
