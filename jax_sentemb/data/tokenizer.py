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
from jax_sentemb.data.tokenizer_checks import count_tokens, damage
from jax_sentemb.data.tokenizer_classes import is_built_by_bert
from jax_sentemb.data.tokenizer_files import SPECIALS, read_pieces, read_tokenizer_files, splitting
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import shown, user_path, write_text
from jax_sentemb.provenance import VOCABULARY, Source

logger = logging.getLogger("jax_sentemb")

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
    pad_id = 0
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    prompt = ""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        where: str = "the tokenizer",
        stated: Mapping[str, str] | None = None,
        *,
        follows_file: bool = False,
        only_pieces: bool = False,
    ) -> None:
        self.vocab_size = count_tokens(inner, where)
        self.names = special_names(inner, where, stated or {}, only_pieces)
        if isinstance(inner.model, tokenizers.models.Unigram):
            inner = splitting(inner, list(self.names.values()))
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        self._inner, self._only_pieces = inner, only_pieces
        for role, name in self.names.items():
            setattr(self, f"{role}_id", inner.token_to_id(name))
        inner.add_special_tokens(list(self.names.values()))  # whatever the file declares, these tokens are special
        if not only_pieces:
            self._set_ends(where, follows_file)
        self._check_text_stays_text(where)
        self._state = json.loads(inner.to_str())
        self._cache = PieceCache(inner) if separable(self._state) else None
        self._shortened = Shortener(inner, self._state)
        self.fingerprint = hashlib.sha256(inner.to_str().encode()).hexdigest()

    @classmethod
    def load(cls, directory: str | Path, overrides: Mapping[str, Any] | None = None, lowercase: bool = False) -> "Tokenizer":
        """Read the tokenizer of a directory as transformers does: `tokenizer.json` or `vocab.txt`, with the settings beside it.

        `overrides` replace settings of tokenizer_config.json, and `lowercase` lower-cases text first, as sentence_bert_config.json
        may say. Without do_lower_case a `vocab.txt` without capital letters is lower-cased.

        Raises:
            ModelFileError: A file is missing, damaged, contradicts another one, or needs code of its own.
        """
        files = read_tokenizer_files(user_path(directory), overrides or {}, lowercase)
        with damage(files.where):
            return cls(files.inner, files.where, files.names, follows_file=files.follows_file)

    @classmethod
    def load_pieces(cls, directory: str | Path) -> "tuple[Tokenizer, int | None]":
        """Read the `tokenizer.json` of a static table, which needs no special tokens, and the number of pieces it cuts texts to."""
        inner, file, cut = read_pieces(user_path(directory))
        with damage(file):
            return cls(inner, str(file), only_pieces=True), cut

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
        if self.names["cls"] == "[CLS]" and is_built_by_bert(self._state):
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
        return _prompted(tokenizers.Tokenizer.from_str(self._inner.to_str()), self.names, prompt, self._only_pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the tokenizer, for another process, without its cache of words."""
        return _prompted, (self._inner, self.names, self.prompt, self._only_pieces)

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

    def _set_ends(self, where: str, follows_file: bool) -> None:
        """Put [CLS] and [SEP] around a text; ModelFileError if transformers follows a file that has something else."""
        cls, sep = self.names["cls"], self.names["sep"]
        ends = self._inner.encode("")
        is_usual = ends.ids == [self.cls_id, self.sep_id] and not any(self._inner.encode("a").type_ids)
        if follows_file and not is_usual:
            raise ModelFileError(
                f"{where}: the post_processor puts {shown(ends.tokens)} around a text; only {cls} and {sep} are supported"
            )
        if ends.ids != [self.cls_id, self.sep_id]:
            self._inner.post_processor = TemplateProcessing(
                single=f"{cls} $A {sep}",
                pair=f"{cls} $A {sep} $B:1 {sep}:1",
                special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
            )

    def _check_text_stays_text(self, where: str) -> None:
        """ModelFileError for a tokenizer that turns the text "[SEP]" in a sentence into the special token."""
        for role, name in self.names.items():
            if (
                role != "unk"
                and getattr(self, f"{role}_id") in self._inner.encode(f"a {name} {name}b", add_special_tokens=False).ids
            ):
                raise ModelFileError(f"{where} reads the text {name!r} in a sentence as its special token: set a pre-tokenizer")


def _prompted(inner: tokenizers.Tokenizer, names: Mapping[str, str], prompt: str, only_pieces: bool) -> Tokenizer:
    found = Tokenizer(inner, stated=names, only_pieces=only_pieces)
    if prompt:
        found.prompt, found.fingerprint = prompt, hashlib.sha256(f"{found.fingerprint}|{prompt}".encode()).hexdigest()
    return found


def special_names(inner: tokenizers.Tokenizer, where: str, stated: Mapping[str, str], only_pieces: bool = False) -> dict[str, str]:
    """Return the token of each role: the stated one, else that of the family to which the first token of a row belongs.

    MPNet's vocabulary has the names of both families, and uses those of RoBERTa. ModelFileError for a role without a token, unless
    the tokenizer has `only_pieces`.
    """
    ends = inner.encode("").tokens
    first = stated.get("cls") or (ends[0] if len(ends) == 2 else "")
    order = -1 if first == SPECIALS["cls"][1] else 1
    found = {}
    for role, names in SPECIALS.items():
        candidates = [stated.get(role, ""), *names[::order]]
        known = [name for name in candidates if name and inner.token_to_id(name) is not None]
        if only_pieces and not known:
            continue
        if not known:
            raise ModelFileError(f"{where} has no {' or '.join(names)} token: it does not fit a BERT or RoBERTa encoder")
        found[role] = known[0]
    return found


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
