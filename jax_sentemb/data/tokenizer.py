"""Word pieces: a thin wrapper over `tokenizers` that treats corpus text as text and fails with one line."""

import contextlib
import hashlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

from jax_sentemb.data.cache import cache_folder, cached
from jax_sentemb.data.corpus_files import Sentences
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import check_own, read_json, replacing, shown, user_path

logger = logging.getLogger("jax_sentemb")

# What each role is called in BERT's and in RoBERTa's family.
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
FILES = ("tokenizer.json", "vocab.txt")  # either of them is a tokenizer
ALPHABET = 1000  # most frequent characters of a new vocabulary
TOKEN_LIMIT = 1 << 22  # the library writes a vocabulary by counting to its highest number: 2**31 takes seconds and gigabytes
FILE_LIMIT = 1 << 26  # bytes of a tokenizer's file
ADDED_LIMIT, RULES_LIMIT = 1 << 16, 1 << 10  # each is looked for in every text
GROWTH_LIMIT = 1000  # characters that replacements make of one
SLOW = 0.2  # processor seconds for a text of PROBED[-1] characters: usual tokenizers take a thousandth of that
PROBED = (16, 32, 64, 128, 256)  # characters of the texts that a tokenizer is tried with
TRAINING_SENTENCES = 500_000  # that a new vocabulary is made from: more cost memory and change little
CHARACTERS_A_PIECE = 64  # text beyond max_seq_length times this is cut before tokenising: a line of 10 MB costs seconds
REMEMBERED = 1 << 19  # words whose pieces are kept: about 100 MB
WORDS_A_TEXT = 64


class Lines(Protocol):
    """Numbered sentences: a list, or a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> str: ...


class Tokenizer:
    """Sentences to ids with [CLS] and [SEP]. The text "[SEP]" in a sentence stays text.

    Attributes: vocab_size (the highest id + 1), pad_id, unk_id, cls_id, sep_id, mask_id, `names` (role -> token), and fingerprint,
    a SHA-256 of everything that decides the ids. ModelFileError for a tokenizer without those tokens.
    """

    added = 2  # special tokens of a row
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "the tokenizer") -> None:
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        self._inner = inner
        self.vocab_size = count_tokens(inner, where)
        self.names = {}
        for role, names in SPECIALS.items():
            known = [name for name in names if inner.token_to_id(name) is not None]
            if not known:
                raise ModelFileError(f"{where} has no {' or '.join(names)} token: it does not fit a BERT or RoBERTa encoder")
            self.names[role] = known[0]
            setattr(self, f"{role}_id", inner.token_to_id(known[0]))
        inner.add_special_tokens(list(self.names.values()))  # what a file calls special decides what its text means
        if inner.encode("").ids != [self.cls_id, self.sep_id]:
            cls, sep = self.names["cls"], self.names["sep"]
            inner.post_processor = TemplateProcessing(
                single=f"{cls} $A {sep}",
                pair=f"{cls} $A {sep} $B:1 {sep}:1",
                special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
            )
        self._check_text_stays_text(where)
        self._state = json.loads(inner.to_str())
        self._words = Words(inner) if _separable(self._state) else None
        self.fingerprint = hashlib.sha256(inner.to_str().encode()).hexdigest()

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """From `tokenizer.json`, or else from `vocab.txt` with the do_lower_case of `tokenizer_config.json`.

        Where that is not given, a vocabulary without capital letters is lower-cased. ModelFileError for files that are missing,
        damaged, contradict each other or need code of their own.
        """
        folder = user_path(directory)
        file, vocabulary = (folder / name for name in FILES)
        if not file.is_file() and not vocabulary.is_file():
            raise ModelFileError(f"{folder} has no tokenizer.json and no vocab.txt")
        config = folder / "tokenizer_config.json"
        settings = read_json(config) if config.is_file() else {}
        if "auto_map" in settings:
            raise ModelFileError(f"{config}: auto_map says that the tokenizer is code; code that a model names is not run")
        if not file.is_file():
            check_own(vocabulary)
            with damage(vocabulary):
                return cls(_from_vocabulary(vocabulary, settings), str(vocabulary))
        check_rules(file)
        with damage(file):
            found = cls(tokenizers.Tokenizer.from_file(str(file)), str(file))
            _check_speed(found._inner, file)
        stated, normalizer = settings.get("do_lower_case"), found._state["normalizer"] or {}
        if isinstance(stated, bool) and normalizer.get("type") == "BertNormalizer" and normalizer["lowercase"] != stated:
            raise ModelFileError(
                f"{file} has lowercase={normalizer['lowercase']}, {config.name} do_lower_case={stated}: make them what the encoder "
                "was trained with"
            )
        return found

    @classmethod
    def train(cls, sentences: Lines, vocab_size: int) -> "Tokenizer":
        """A lower-casing WordPiece vocabulary of at most `vocab_size` pieces; the same sentences give the same one.

        It is made from TRAINING_SENTENCES of them, evenly spaced, and never smaller than the characters that it needs.
        """
        texts = [sentences[number] for number in range(0, len(sentences), -(-len(sentences) // TRAINING_SENTENCES) or 1)]
        trainer = BertWordPieceTokenizer(lowercase=True)
        # The trainer numbers characters in the order of a hash table and breaks ties by number: numbered here, it is reproducible.
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
        """Files from which `transformers` and sentence-transformers give the same ids.

        tokenizer.json, vocab.txt (WordPiece only), tokenizer_config.json, special_tokens_map.json.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "tokenizer.json") as partial:  # a run writes them anew at each start, and may be killed there
            self._inner.save(str(partial))
        word_pieces = self._state["model"]["type"] == "WordPiece"
        normalizer = self._state["normalizer"] or {}
        specials = {f"{role}_token": name for role, name in self.names.items()}
        # split_special_tokens: the text "[SEP]" stays text there too.
        settings: dict[str, Any] = {"split_special_tokens": True, **specials}
        if word_pieces and normalizer.get("type") == "BertNormalizer" and self.names["cls"] == "[CLS]":
            # transformers takes these from here, not from tokenizer.json.
            settings |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": normalizer["lowercase"],
                "strip_accents": normalizer["strip_accents"],
                "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
            }
        else:
            settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}  # whatever tokenizer.json says
            settings |= {"bos_token": self.names["cls"], "eos_token": self.names["sep"]}
        if word_pieces:
            pieces = {number: piece for piece, number in self._inner.get_vocab().items()}
            _write(folder / "vocab.txt", "".join(f"{pieces.get(n, f'[free{n}]')}\n" for n in range(self.vocab_size)))
        _write(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        _write(folder / "special_tokens_map.json", json.dumps(specials, indent=2) + "\n")

    @property
    def serialized(self) -> str:
        """tokenizer.json as text."""
        return self._inner.to_str()

    @property
    def numbers(self) -> dict[str, int]:
        """The number of every piece."""
        return self._inner.get_vocab()

    def copy(self) -> "Tokenizer":
        """An equal one, for another thread."""
        return Tokenizer(tokenizers.Tokenizer.from_str(self._inner.to_str()))

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: without the words that were met."""
        return Tokenizer, (self._inner,)

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[np.ndarray], int]:
        """int32 ids of each sentence, at most `max_seq_length` with [CLS] and [SEP], and how many sentences were cut.

        TypeError or ValueError, with the sentence's number, for what is not str or no Unicode text.
        """
        check_text(sentences)
        longest = max_seq_length * CHARACTERS_A_PIECE
        texts = [sentence if len(sentence) <= longest else _beginning(sentence, longest) for sentence in sentences]
        if not texts:
            return [], 0
        pieces, counts = self.pieces(texts)
        room = max_seq_length - 2
        cut = (counts > room) | np.array([len(sentence) > longest for sentence in sentences])
        ends = np.cumsum(np.minimum(counts, room) + 2)
        starts = np.append(0, ends[:-1])
        ids = np.empty(ends[-1], np.int32)
        ids[starts], ids[ends - 1] = self.cls_id, self.sep_id
        inside = np.ones(len(ids), bool)
        inside[starts] = inside[ends - 1] = False
        ids[inside] = pieces[_places(counts) < room]
        return [ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], int(cut.sum())

    def pieces(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """int32 ids of all texts, one after the other, uncut and without [CLS] and [SEP]; int64 [N], how many each has."""
        if not texts:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        if self._words:
            return self._words.pieces(texts)
        with damage("the tokenizer"):
            rows = [encoding.ids for encoding in self._inner.encode_batch_fast(texts, add_special_tokens=False)]
        counts = np.array([len(row) for row in rows], np.int64)
        return np.fromiter(chain.from_iterable(rows), np.int32, counts.sum()), counts

    def _check_text_stays_text(self, where: str) -> None:
        """ModelFileError for a tokenizer with which a corpus could write [SEP] into the middle of its sentences."""
        for role in ("pad", "cls", "sep", "mask"):
            name = self.names[role]
            if getattr(self, f"{role}_id") in self._inner.encode(f"a {name} {name}b", add_special_tokens=False).ids:
                raise ModelFileError(f"{where} reads the text {name!r} in a sentence as its special token: set a pre-tokenizer")


def new_tokenizer(sentences: Lines, vocab_size: int) -> Tokenizer:
    """A vocabulary of the corpus; that of a large one is kept in the cache."""
    if not isinstance(sentences, Sentences) or not sentences.indexed:
        return Tokenizer.train(sentences, vocab_size)
    name = hashlib.sha256(f"{sentences.fingerprint}|{vocab_size}|{tokenizers.__version__}".encode()).hexdigest()[:24]

    def write(folder: Path) -> dict[str, Any]:
        Tokenizer.train(sentences, vocab_size).save(folder)
        sentences.check_unchanged()
        return {}

    return Tokenizer.load(cached(cache_folder() / f"{name}.vocabulary", write))


class Words:
    """The pieces of words that were met before: most words of a text were, and looking them up is several times faster.

    For tokenizers that are `_separable`. A word is what stands between two spaces, punctuation included.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        self._forget()

    def pieces(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """As Tokenizer.pieces."""
        lines = [text.split(" ") for text in texts]
        interrupted = len(self._numbers) != len(self._starts)  # a call that ended early left words without pieces
        if interrupted or len(self._numbers) > REMEMBERED:
            self._forget()
        number = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(lines)), np.int64)
        self._learn()
        counts = self._counts[number]
        ids = self._ids[np.repeat(self._starts[number], counts) + _places(counts)]
        words = np.array([len(line) for line in lines])
        return ids, np.add.reduceat(counts, np.cumsum(words) - words)

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids, self._starts, self._counts = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _learn(self) -> None:
        """Tokenise the new words, many in one text: one by one they cost three times as much."""
        new, self._numbers.new = self._numbers.new, []
        texts = [" ".join(new[start : start + WORDS_A_TEXT]) for start in range(0, len(new), WORDS_A_TEXT)]
        with damage("the tokenizer"):
            encodings = self._inner.encode_batch(texts, add_special_tokens=False)
        # Where each piece and each word begins in all texts, joined with a space: a piece belongs to the last word before it.
        bases = np.cumsum([0, *(len(text) + 1 for text in texts)])
        places = [base + start for base, encoding in zip(bases.tolist(), encodings, strict=False) for start, _ in encoding.offsets]
        word_ends = np.cumsum([len(word) + 1 for word in new], dtype=np.int64)
        counts = np.bincount(np.searchsorted(word_ends, places, side="right"), minlength=len(new))
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32)
        starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(counts) - counts])
        self._ids, self._counts = np.concatenate([self._ids, ids]), np.concatenate([self._counts, counts])
        self._starts = starts  # last: it says that the words are learnt


class _Numbers(dict[str, int]):
    """Word -> its number; a word that is asked for the first time gets the next one and is noted in `new`."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        number = self[word] = len(self)
        return number


def _separable(state: dict[str, Any]) -> bool:
    """Whether the pieces of a text are those of its parts between spaces; so with BERT's rules, which never look across one."""
    kinds = [(state[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and all(token["special"] for token in state["added_tokens"])


def _places(counts: np.ndarray) -> np.ndarray:
    """0 .. count - 1 for each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def check_text(sentences: Sequence[str]) -> None:
    """TypeError or ValueError, with the sentence's number, for what is not str or no Unicode text."""
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {number} is {type(sentence).__name__}, not str")
        if not sentence.isascii():
            try:
                sentence.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"sentence {number} holds half a surrogate pair, which is no Unicode text") from None


def _beginning(sentence: str, longest: int) -> str:
    """At most `longest` characters, whole words where it has spaces: the last word must not give other pieces than uncut."""
    text = sentence[:longest]
    space = -1 if sentence[longest] == " " else text.rfind(" ")
    return text if space < 0 else text[:space]


def _from_vocabulary(vocabulary: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    if vocabulary.stat().st_size > FILE_LIMIT:
        raise ModelFileError(f"{vocabulary} has {vocabulary.stat().st_size:,} bytes, more than any vocabulary")
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


def check_rules(file: Path) -> None:
    """ModelFileError, before anything is built from a tokenizer.json, for more rules than it can need or replacements that explode.

    A chain of 40 rules that each write a letter twice makes a terabyte of one letter.
    """
    check_own(file)
    if file.stat().st_size > FILE_LIMIT:
        raise ModelFileError(f"{file} has {file.stat().st_size:,} bytes, more than any tokenizer")
    with damage(file):
        state = json.loads(file.read_bytes())
        added, rules = state.get("added_tokens") or [], list(_rules([state.get("normalizer"), state.get("pre_tokenizer")]))
        if len(added) > ADDED_LIMIT or len(rules) > RULES_LIMIT:
            raise ModelFileError(f"{file} has {len(added):,} added tokens and {len(rules):,} rules, more than it can need")
        growth = math.prod(_growth(rule) for rule in rules)
    if growth > GROWTH_LIMIT:
        raise ModelFileError(f"{file}: its replacements may make {growth:.0e} characters of one")


def _check_speed(inner: tokenizers.Tokenizer, file: Path) -> None:
    """ModelFileError for regular expressions that backtrack so long that short texts take seconds.

    The texts grow, so that the first one that is too slow ends the trial. The library itself ends a single match after 10**7 steps
    (0.1 s) with an error, which `damage` turns into one line; many matches of fewer steps are what is tried here.
    """
    for length in PROBED:
        for text in ("a" * length, " " * length, ("the quick brown fox, 42 of them; " * length)[:length]):
            begin = time.thread_time()
            inner.encode(text)
            if time.thread_time() - begin > SLOW:
                raise ModelFileError(f"{file} takes more than {SLOW} s for {length} characters: its regular expressions backtrack")


def _rules(parts: list[Any]) -> Iterator[dict[str, Any]]:
    """Every normalizer and pre-tokenizer, those inside sequences as well."""
    waiting = parts[::-1]
    while waiting:
        if isinstance(part := waiting.pop(), dict):
            yield part
            waiting += [step for name in ("normalizers", "pretokenizers") for step in part.get(name) or []][::-1]


def _growth(rule: dict[str, Any]) -> float:
    """How many characters a rule makes of one, at most; of those whose number its own text decides."""
    if rule.get("type") != "Replace":
        return 1
    pattern, content = rule["pattern"], len(rule["content"])
    return max(1, content / max(len(pattern["String"]), 1) if "String" in pattern else content + 1)


def count_tokens(inner: tokenizers.Tokenizer, where: str) -> int:
    """The highest number of a token + 1; ModelFileError beyond TOKEN_LIMIT."""
    count = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if count > TOKEN_LIMIT:
        raise ModelFileError(f"{where} numbers a token {count - 1}: no encoder has so many")
    return count


def check_rows(tokens: int, rows: int, where: str | Path) -> None:
    """ModelFileError where a tokenizer of so many `tokens` does not fit an embedding of so many `rows`."""
    if tokens > rows:
        raise ModelFileError(
            f"{where}: the tokenizer has {tokens} tokens, the encoder's vocab_size is {rows}: they do not belong together"
        )


@contextlib.contextmanager
def damage(source: str | Path) -> Iterator[None]:
    """ModelFileError for whatever a damaged file makes the libraries raise; PanicException of the binding is no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ModelFileError):
        raise
    except BaseException as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelFileError(f"{source} is damaged: {reason[:200]}") from None


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")
