"""Word-piece tokenizer: wraps `tokenizers`, treats special tokens in corpus text as text, and reports errors as one line."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tokenizers
from jaxtyping import Int
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

from jax_sentemb.data.cache import cache_folder, cached
from jax_sentemb.data.containers import check_text
from jax_sentemb.data.long_text import Shortener
from jax_sentemb.data.piece_cache import PieceCache, positions_within, separable
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer_checks import check_rules, check_size, check_speed, count_tokens, damage
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import check_own, read_json, shown, user_path, write_text
from jax_sentemb.provenance import VOCABULARY, Source

logger = logging.getLogger("jax_sentemb")

# Names of each special token in the families of BERT (ModernBERT) and RoBERTa (XLM-R, MPNet).
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
NEVER = -1e4  # log probability of a Unigram piece that no text contains
FILES = ("tokenizer.json", "vocab.txt")  # a directory with either of them has a tokenizer
ALPHABET = 1000  # most frequent characters that a new vocabulary contains
TRAINING_SENTENCES = 500_000  # from which a new vocabulary is made; more cost memory and change little


@runtime_checkable
class Lines(Protocol):
    """Numbered sentences: a list, or a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> str: ...


class Tokenizer:
    """Converts sentences to ids with [CLS] and [SEP]. The text "[SEP]" inside a sentence is tokenised as text.

    Attributes: vocab_size (the highest id + 1), pad_id, unk_id, cls_id, sep_id, mask_id, `names` (role -> token), `prompt` (text
    before every sentence), and fingerprint, the SHA-256 of everything that determines the ids. ModelFileError for a tokenizer
    without these tokens.
    """

    added = 2  # special tokens of a row
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    prompt = ""

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "the tokenizer", stated: Mapping[str, str] | None = None) -> None:
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        self._inner = inner
        self.vocab_size = count_tokens(inner, where)
        self.names = special_names(inner, where, stated or {})
        for role, name in self.names.items():
            setattr(self, f"{role}_id", inner.token_to_id(name))
        inner.add_special_tokens(list(self.names.values()))  # whatever the file declares, these tokens are special
        if inner.encode("").ids != [self.cls_id, self.sep_id]:
            cls, sep = self.names["cls"], self.names["sep"]
            inner.post_processor = TemplateProcessing(
                single=f"{cls} $A {sep}",
                pair=f"{cls} $A {sep} $B:1 {sep}:1",
                special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
            )
        self._check_text_stays_text(where)
        self._state = json.loads(inner.to_str())
        self._cache = PieceCache(inner) if separable(self._state) else None
        self._shortened = Shortener(inner, self._state)
        self.fingerprint = hashlib.sha256(inner.to_str().encode()).hexdigest()

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Reads `tokenizer.json`, or else `vocab.txt` with do_lower_case of `tokenizer_config.json`.

        If do_lower_case is missing, a vocabulary without capital letters is lower-cased. ModelFileError for files that are missing,
        damaged, contradict each other, or need code of their own.
        """
        folder = user_path(directory)
        file, vocabulary = (folder / name for name in FILES)
        if not file.is_file() and not vocabulary.is_file():
            raise ModelFileError(f"{folder} has no tokenizer.json and no vocab.txt")
        config = folder / "tokenizer_config.json"
        settings = read_json(config) if config.is_file() else {}
        stated = _stated_names(folder, settings)
        if "auto_map" in settings:
            raise ModelFileError(f"{config}: auto_map names code for the tokenizer; code from a model directory is never run")
        if not file.is_file():
            check_own(vocabulary)
            with damage(vocabulary):
                return cls(_from_vocabulary(vocabulary, settings), str(vocabulary), stated)
        check_rules(file)
        with damage(file):
            found = cls(without_special_pieces(tokenizers.Tokenizer.from_file(str(file))), str(file), stated)
            check_speed(found._inner, file)
        stated, normalizer = settings.get("do_lower_case"), found._state["normalizer"] or {}
        if isinstance(stated, bool) and normalizer.get("type") == "BertNormalizer" and normalizer["lowercase"] != stated:
            raise ModelFileError(
                f"{file} has lowercase={normalizer['lowercase']} but {config.name} has do_lower_case={stated}: set both to the "
                "value with which the encoder was trained"
            )
        return found

    @classmethod
    def train(cls, sentences: Lines, vocab_size: int) -> "Tokenizer":
        """A new lower-casing WordPiece vocabulary of at most `vocab_size` pieces; the same sentences give the same vocabulary.

        It is made from TRAINING_SENTENCES evenly spaced sentences. It is never smaller than the number of characters it needs.
        """
        texts = [sentences[number] for number in range(0, len(sentences), -(-len(sentences) // TRAINING_SENTENCES) or 1)]
        trainer = BertWordPieceTokenizer(lowercase=True)
        # The trainer numbers characters in the order of a hash table and breaks ties by number. Numbering the characters here makes
        # the result reproducible.
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(trainer._tokenizer.normalizer.normalize_str(text))
        counts = Counter({character: count for character, count in counts.items() if not character.isspace()})
        alphabet = [character for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:ALPHABET]]
        first = [name for name, _ in SPECIALS.values()] + alphabet + [f"##{character}" for character in alphabet]
        trainer.train_from_iterator(
            texts, vocab_size=max(vocab_size, len(first)), min_frequency=1, special_tokens=first, show_progress=False
        )
        return cls(BertWordPieceTokenizer(trainer.get_vocab(), lowercase=True)._tokenizer)

    def save(self, directory: str | Path) -> None:
        """Writes files from which `transformers` and sentence-transformers compute the same ids.

        tokenizer.json, vocab.txt (WordPiece only), tokenizer_config.json, special_tokens_map.json.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "tokenizer.json", self._inner.to_str(pretty=True))
        word_pieces = self._state["model"]["type"] == "WordPiece"
        normalizer = self._state["normalizer"] or {}
        specials = {f"{role}_token": name for role, name in self.names.items()}
        # split_special_tokens: transformers, too, then tokenises "[SEP]" in a sentence as text.
        settings: dict[str, Any] = {"split_special_tokens": True, **specials}
        if word_pieces and normalizer.get("type") == "BertNormalizer" and self.names["cls"] == "[CLS]":
            # transformers reads these values from here, not from tokenizer.json.
            settings |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": normalizer["lowercase"],
                "strip_accents": normalizer["strip_accents"],
                "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
            }
        else:
            settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}  # this class follows tokenizer.json
            settings |= {"bos_token": self.names["cls"], "eos_token": self.names["sep"]}
        if word_pieces:
            pieces = {number: piece for piece, number in self._inner.get_vocab().items()}
            write_text(folder / "vocab.txt", "".join(f"{pieces.get(n, f'[free{n}]')}\n" for n in range(self.vocab_size)))
        write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        write_text(folder / "special_tokens_map.json", json.dumps(specials, indent=2) + "\n")

    @property
    def serialized(self) -> str:
        """tokenizer.json as text."""
        return self._inner.to_str()

    @property
    def numbers(self) -> dict[str, int]:
        """The id of every piece."""
        return self._inner.get_vocab()

    def copy(self) -> "Tokenizer":
        """An equal tokenizer, for another thread."""
        return self.with_prompt(self.prompt)

    def with_prompt(self, prompt: str) -> "Tokenizer":
        """This tokenizer with `prompt` before every sentence, in place of its own; `save` does not write it."""
        return _prompted(tokenizers.Tokenizer.from_str(self._inner.to_str()), self.names, prompt)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the tokenizer, for another process, without its cache of words."""
        return _prompted, (self._inner, self.names, self.prompt)

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """int32 ids of each sentence, at most `max_seq_length` with [CLS] and [SEP], and the number of sentences that were cut.

        TypeError for a sentence that is not str, ValueError for one that is not valid Unicode; both name its number.
        """
        check_text(sentences)
        if self.prompt:
            sentences = [self.prompt + sentence for sentence in sentences]
        if not len(sentences):
            return [], 0
        room = max_seq_length - 2
        pieces, counts = self.pieces(sentences, room)
        cut = counts > room
        ends = np.cumsum(np.minimum(counts, room) + 2)
        starts = np.append(0, ends[:-1])
        ids = np.empty(ends[-1], np.int32)
        ids[starts], ids[ends - 1] = self.cls_id, self.sep_id
        inside = np.ones(len(ids), bool)
        inside[starts] = inside[ends - 1] = False
        ids[inside] = pieces[positions_within(counts) < room]
        return [ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], int(cut.sum())

    def pieces(self, texts: Sequence[str], limit: int) -> tuple[Int[np.ndarray, " pieces"], Int[np.ndarray, " texts"]]:
        """Return int32 ids of all texts, concatenated and without [CLS] and [SEP], and int64 [N], how many each has.

        Of a text with more than `limit` pieces, more than `limit` of them are returned, but not always all.
        """
        texts = self._shortened(texts, limit + 1)
        if not texts:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        if self._cache:
            return self._cache.pieces(texts)
        with damage("the tokenizer"):
            rows = [encoding.ids for encoding in self._inner.encode_batch_fast(texts, add_special_tokens=False)]
        counts = np.array([len(row) for row in rows], np.int64)
        return np.fromiter(chain.from_iterable(rows), np.int32, counts.sum()), counts

    def _check_text_stays_text(self, where: str) -> None:
        """ModelFileError for a tokenizer that turns the text "[SEP]" in a sentence into the special token."""
        for role in ("pad", "cls", "sep", "mask"):
            name = self.names[role]
            if getattr(self, f"{role}_id") in self._inner.encode(f"a {name} {name}b", add_special_tokens=False).ids:
                raise ModelFileError(f"{where} reads the text {name!r} in a sentence as its special token: set a pre-tokenizer")


def _prompted(inner: tokenizers.Tokenizer, names: Mapping[str, str], prompt: str) -> Tokenizer:
    found = Tokenizer(inner, stated=names)
    if prompt:
        found.prompt, found.fingerprint = prompt, hashlib.sha256(f"{found.fingerprint}|{prompt}".encode()).hexdigest()
    return found


def special_names(inner: tokenizers.Tokenizer, where: str, stated: Mapping[str, str]) -> dict[str, str]:
    """The token of each role: the stated one, else that of the family to which the first token of a row belongs.

    MPNet's vocabulary has the names of both families, and uses those of RoBERTa. ModelFileError for a role without a token.
    """
    ends = inner.encode("").tokens
    first = stated.get("cls") or (ends[0] if len(ends) == 2 else "")
    order = -1 if first == SPECIALS["cls"][1] else 1
    found = {}
    for role, names in SPECIALS.items():
        candidates = [stated.get(role, ""), *names[::order]]
        known = [name for name in candidates if name and inner.token_to_id(name) is not None]
        if not known:
            raise ModelFileError(f"{where} has no {' or '.join(names)} token: it does not fit a BERT or RoBERTa encoder")
        found[role] = known[0]
    return found


def _stated_names(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens by role that tokenizer_config.json or, before it was enough, special_tokens_map.json states."""
    file = folder / "special_tokens_map.json"
    older = read_json(file) if file.is_file() else {}
    found = {}
    for role in SPECIALS:
        token = settings.get(f"{role}_token") or older.get(f"{role}_token")
        name = token.get("content") if isinstance(token, dict) else token
        if isinstance(name, str):
            found[role] = name
    return found


def without_special_pieces(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer; of a Unigram one (XLM-R, MPNet in several languages) no text is cut into the piece of a special token.

    SentencePiece lists "<pad>" among its pieces, with the best score of all: text that says so would become padding.
    """
    if not isinstance(inner.model, tokenizers.models.Unigram):
        return inner
    state = json.loads(inner.to_str())
    special = {token["content"] for token in state["added_tokens"] if token["special"]}
    pieces = state["model"]["vocab"]
    state["model"]["vocab"] = [[piece, NEVER if piece in special else score] for piece, score in pieces]
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def new_tokenizer(sentences: Lines, vocab_size: int) -> Tokenizer:
    """A new vocabulary for a corpus; that of a large corpus is kept in the cache."""
    if not isinstance(sentences, Sentences) or not sentences.indexed:
        return Tokenizer.train(sentences, vocab_size)
    sources = {
        "corpus": Source("corpus", sentences.fingerprint),
        "vocab_size": vocab_size,
        "tokenizers": tokenizers.__version__,
    }

    def write(folder: Path) -> dict[str, Any]:
        Tokenizer.train(sentences, vocab_size).save(folder)
        sentences.check_unchanged()
        return {}

    return Tokenizer.load(cached(cache_folder(), VOCABULARY, sources, write))


def _from_vocabulary(vocabulary: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    check_size(vocabulary, "vocabulary")
    pieces = vocabulary.read_text(encoding="utf-8").rstrip().split("\n")
    lower = settings.get("do_lower_case")
    if len(set(pieces)) < len(pieces):
        piece, count = Counter(pieces).most_common(1)[0]
        logger.warning("%s has %s on %d lines: the last one counts, as in transformers", vocabulary, shown(piece), count)
    if lower is None:
        lower = not any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
    return BertWordPieceTokenizer(
        str(vocabulary),
        lowercase=bool(lower),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )._tokenizer
