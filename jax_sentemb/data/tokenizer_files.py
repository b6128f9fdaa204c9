"""Read the files of a tokenizer as transformers does: one tokenizer.json, changed by the settings next to it."""

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from jax_sentemb.data.tokenizer_checks import check_rules, check_size, check_speed, damage
from jax_sentemb.data.tokenizer_classes import GENERIC, apply_class, class_of
from jax_sentemb.errors import REPLACE_MODEL, ModelFileError, plain
from jax_sentemb.files import check_untrusted, quote, read_json
from jax_sentemb.side_files.reader import check_keys, read_side_file

logger = logging.getLogger("jax_sentemb")

FILES = ("tokenizer.json", "vocab.txt")  # a directory with either of them has a tokenizer
ROLES = ("pad", "unk", "cls", "sep", "mask")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class TokenizerFiles(NamedTuple):
    """The tokenizer of a directory."""

    inner: tokenizers.Tokenizer
    where: str  # the file, for messages
    names: dict[str, str]  # special tokens by role, as far as the settings have them
    follows_file: bool  # whether transformers takes the special tokens around a text from tokenizer.json


def read_tokenizer_files(folder: Path, overrides: Mapping[str, Any], lowercase: bool) -> TokenizerFiles:
    """Read the tokenizer of a directory.

    Args:
        folder: The directory.
        overrides: Settings that replace those of tokenizer_config.json (tokenizer_args in sentence_bert_config.json).
        lowercase: Whether text is lower-cased before anything else (do_lower_case in sentence_bert_config.json).

    Raises:
        ModelFileError: A file is missing, is damaged, contradicts another file, or is not supported.
    """
    file, vocabulary = (folder / name for name in FILES)
    if not file.is_file() and not vocabulary.is_file():
        raise ModelFileError(f"{folder} has no tokenizer.json and no vocab.txt; {REPLACE_MODEL}")
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else None
    settings = _read_settings(folder) | dict(overrides)
    tokenizer_class = class_of(settings, config, folder / "tokenizer_config.json")
    source = file if file.is_file() else vocabulary
    if file.is_file():
        state = check_rules(file)
        check_keys(state, "tokenizer.json", file)
        with damage(file):
            _check_case(state, settings, overrides, file)
    else:
        check_untrusted(vocabulary)
        with damage(vocabulary):
            state = json.loads(_from_vocabulary(vocabulary, settings, config is not None, lowercase).to_str())
    with damage(source):
        if file.is_file():
            apply_class(state, tokenizer_class, settings, file)
        if lowercase:
            _prepend_lowercase(state)
        _add_tokens(state, settings, folder, tokenizer_class)
        inner = tokenizers.Tokenizer.from_str(json.dumps(state))
        _check_ids(inner, state, source)
        check_speed(inner, source)
    follows_file = tokenizer_class == GENERIC and file.is_file() and config is not None
    return TokenizerFiles(inner, str(source), _role_names(settings), follows_file)


def read_pieces(folder: Path) -> tuple[tokenizers.Tokenizer, Path, int | None]:
    """Read tokenizer.json alone, as a static table does.

    Returns:
        The tokenizer, its file, and the number of pieces to which it cuts a text, or None.

    Raises:
        ModelFileError: The file is missing or damaged.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelFileError(f"{folder} has no tokenizer.json; {REPLACE_MODEL}")
    state = check_rules(file)
    check_keys(state, "tokenizer.json", file)
    with damage(file):
        _add_tokens(state, {}, folder)
        inner = tokenizers.Tokenizer.from_str(json.dumps(state))
        max_length = inner.truncation["max_length"] if inner.truncation else None
        inner.no_truncation()
        inner.no_padding()
        check_speed(inner, file)
    return inner, file, max_length


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json with the special and added tokens of the older files next to it."""
    file, older, added = (folder / name for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"))
    settings = read_side_file(file, "tokenizer_config.json") if file.is_file() else {}
    inputs = settings.get("model_input_names")
    if inputs is not None and not (isinstance(inputs, list) and "attention_mask" in inputs):
        raise ModelFileError(f"{file}: model_input_names={quote(inputs)} is not supported; give a list with attention_mask")
    specials = read_side_file(older, "special_tokens_map.json") if older.is_file() else {}
    for key, token in specials.items():
        if key in settings and _content(settings[key]) != _content(token) and key.endswith("_token"):
            raise ModelFileError(
                f"{older}: {key}={quote(_content(token))} differs from {quote(settings[key])} in tokenizer_config.json; correct "
                "one of them"
            )
    settings = {**specials, **{key: value for key, value in settings.items() if value is not None or key not in specials}}
    if added.is_file() and "added_tokens_decoder" not in settings:
        settings["added_tokens"] = read_side_file(added, "added_tokens.json")
    return settings


def _check_case(state: Mapping[str, Any], settings: Mapping[str, Any], overrides: Mapping[str, Any], file: Path) -> None:
    """Raise ModelFileError if tokenizer.json and tokenizer_config.json differ on lower-casing."""
    setting, normalizer = settings.get("do_lower_case"), state.get("normalizer") or {}
    contradicts = isinstance(setting, bool) and normalizer.get("type") == "BertNormalizer" and normalizer["lowercase"] != setting
    if contradicts and "do_lower_case" not in overrides:
        raise ModelFileError(
            f"{file} has lowercase={normalizer['lowercase']} but tokenizer_config.json has do_lower_case={setting}: set both to "
            "the value with which the encoder was trained"
        )


def _prepend_lowercase(state: dict[str, Any]) -> None:
    """Lower-case text before anything else, unless BERT's rules do so already."""
    normalizer = state.get("normalizer") or {}
    steps = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer] if normalizer else []
    if any(step.get("type") == "Lowercase" or (step.get("type") == "BertNormalizer" and step["lowercase"]) for step in steps):
        return
    state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *steps]}


def _add_tokens(state: dict[str, Any], settings: Mapping[str, Any], folder: Path, tokenizer_class: str = GENERIC) -> None:
    """Complete the added tokens of a tokenizer.json with those of the other files.

    Special tokens without a role around a text are recognised in texts, as in transformers, unless split_special_tokens is set.
    """
    known = {token["content"]: dict(token) for token in state.get("added_tokens") or []}
    decoder = settings.get("added_tokens_decoder") or {}
    if decoder and tokenizer_class != GENERIC and (lost := known.keys() - {token["content"] for token in decoder.values()}):
        raise ModelFileError(
            f"{folder}/tokenizer_config.json: added_tokens_decoder lacks the token {quote(min(lost))} of tokenizer.json, and "
            "transformers 4 and 5 differ on it: add it"
        )
    for number, token in decoder.items():
        entry = _added_token(token, int(number))
        if known.get(entry["content"], entry) != entry:
            raise ModelFileError(
                f"{folder}/tokenizer_config.json: the added token {quote(entry['content'])} differs from tokenizer.json; "
                "correct one of them"
            )
        known[entry["content"]] = entry
    specials = _special_tokens(settings)
    for content, number in (settings.get("added_tokens") or {}).items():
        known.setdefault(content, _added_token({"content": content, "special": content in specials}, number))
    vocabulary = _ids_of(state["model"])
    next_id = max([*vocabulary.values(), *(token["id"] for token in known.values())], default=-1) + 1
    for content, token in specials.items():
        if content not in known:
            number = vocabulary.get(content, next_id)
            next_id += number == next_id
            known[content] = _added_token({**token, "special": True}, number)
    if settings.get("split_special_tokens") is not True:
        with_role = {*_role_names(settings).values(), *(name for names in SPECIALS.values() for name in names)}
        for token in known.values():
            token["special"] = token["special"] and token["content"] in with_role
    state["added_tokens"] = sorted(known.values(), key=lambda token: token["id"])


# Names of each special token in the families of BERT (ModernBERT) and RoBERTa (XLM-R, MPNet).
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


def _added_token(token: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return an entry of `added_tokens` in tokenizer.json, with the library's defaults."""
    flags = {flag: bool(token.get(flag, flag == "normalized" and not token.get("special"))) for flag in FLAGS}
    return {"id": number, "content": token["content"], **flags}


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the special tokens that the settings name, by their content."""
    tokens: list[Any] = [value for key, value in settings.items() if key.endswith("_token")]
    for key in ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"):
        value = settings.get(key) or ()
        tokens += value.values() if isinstance(value, dict) else value
    entries = [
        token if isinstance(token, dict) else {"content": token} for token in tokens if token and not isinstance(token, bool)
    ]
    return {entry["content"]: entry for entry in entries}


def _ids_of(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of each piece of a model in tokenizer.json."""
    vocabulary = model["vocab"]
    return {piece: number for number, (piece, _) in enumerate(vocabulary)} if isinstance(vocabulary, list) else vocabulary


def _check_ids(inner: tokenizers.Tokenizer, state: Mapping[str, Any], file: Path) -> None:
    for token in state["added_tokens"]:
        number = inner.token_to_id(token["content"])
        if number != token["id"]:
            raise ModelFileError(
                f"{file}: the added token {quote(token['content'])} has id {token['id']}, expected {number}; correct the id"
            )


def _role_names(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens in the settings by role."""
    names = {role: _content(settings.get(f"{role}_token")) for role in ROLES}
    return {role: name for role, name in names.items() if isinstance(name, str)}


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _from_vocabulary(vocabulary: Path, settings: Mapping[str, Any], is_encoder: bool, lowercase: bool) -> tokenizers.Tokenizer:
    """Build BERT's rules on vocab.txt.

    Raises:
        ModelFileError: The files of an encoder do not tell whether text is lower-cased.
    """
    check_size(vocabulary, "vocabulary")
    pieces = vocabulary.read_text(encoding="utf-8").rstrip().split("\n")
    lower = settings.get("do_lower_case")
    if len(set(pieces)) < len(pieces):
        piece, count = Counter(pieces).most_common(1)[0]
        file = plain(str(vocabulary))
        logger.warning("%s has %s on %d lines: the last one counts, as in transformers", file, quote(piece), count)
    if lower is None:
        lower = lowercase or not any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
        if is_encoder and not lower:
            raise ModelFileError(
                f"{vocabulary} has capital letters, but tokenizer_config.json has no do_lower_case: add "
                '"do_lower_case": false, or true, which transformers assumes'
            )
    chinese = settings.get("tokenize_chinese_chars")
    unknown = _content(settings.get("unk_token")) or SPECIALS["unk"][0]
    inner = tokenizers.Tokenizer(models.WordPiece(models.WordPiece.read_file(str(vocabulary)), unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=bool(lower),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=True if chinese is None else chinese,
    )
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return inner


def splitting(inner: tokenizers.Tokenizer, names: list[str]) -> tokenizers.Tokenizer:
    """Return a tokenizer that splits the text "<pad>" after its first character, so that it does not become a special token.

    SentencePiece lists "<pad>" among its pieces with the best score of all, so such text would become padding.
    """
    state = json.loads(inner.to_str())
    pattern = "|".join(f"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in names if len(name) > 1)
    rule = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    splitter = state.get("pre_tokenizer")
    steps = splitter["pretokenizers"] if splitter and splitter["type"] == "Sequence" else [splitter] if splitter else []
    if rule in steps:
        return inner
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, rule]}
    return tokenizers.Tokenizer.from_str(json.dumps(state))
