"""Split sentences into word pieces with `tokenizers`. Special tokens in a text stay text, and errors are reported in one line."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from jax_sentemb.errors import OTHER_MODEL, ModelFileError
from jax_sentemb.files import quote, user_path, write_text
from jax_sentemb.provenance import VOCABULARY, Source

logger = logging.getLogger("jax_sentemb")

ALPHABET = 1000  # most frequent characters that a new vocabulary contains
TRAINING_SENTENCES = 500_000  # sentences from which a new vocabulary is made; more take memory and change little


@runtime_checkable
class Lines(Protocol):
    """Numbered sentences: a list, or a corpus."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> str: ...

    def __iter__(self) -> Iterator[str]: ...


def read_lines(sentences: Lines, numbers: Iterable[int]) -> list[str]:
    """Return the sentences with these numbers; DataError if a file of a corpus changed."""

    def read() -> list[str]:
        return [sentences[number] for number in numbers]

    return sentences.read_unchanged(read) if isinstance(sentences, Sentences) else read()


class Tokenizer:
    """Converts sentences to ids with [CLS] and [SEP]. The text "[SEP]" inside a sentence is tokenised as text.

    Attributes:
        vocab_size: The highest id + 1.
        pad_id, unk_id, cls_id, sep_id, mask_id: The ids of the special tokens.
        names: The special tokens by their roles.
        prompt: The text before every sentence.
        fingerprint: The SHA-256 of everything that determines the ids.

    Raises:
        ModelFileError: The tokenizer lacks a special token.
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
        configured: Mapping[str, str] | None = None,
        *,
        follows_file: bool = False,
        only_pieces: bool = False,
    ) -> None:
        self.vocab_size = count_tokens(inner, where)
        self.names = special_names(inner, where, configured or {}, only_pieces)
        if isinstance(inner.model, tokenizers.models.Unigram):
            inner = splitting(inner, list(self.names.values()))
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        self._inner, self._only_pieces = inner, only_pieces
        for role, name in self.names.items():
            setattr(self, f"{role}_id", inner.token_to_id(name))
        inner.add_special_tokens(list(self.names.values()))  # these tokens are special even if the file does not declare it
        if not only_pieces:
            self._set_ends(where, follows_file)
        self._check_text_stays_text(where)
        self._state = json.loads(inner.to_str())
        self._cache = PieceCache(inner) if separable(self._state) else None
        self._shortened = Shortener(inner, self._state)
        self.fingerprint = hashlib.sha256(inner.to_str().encode()).hexdigest()

    @classmethod
    def load(cls, directory: str | Path, overrides: Mapping[str, Any] | None = None, lowercase: bool = False) -> "Tokenizer":
        """Read the tokenizer of a directory as transformers does: `tokenizer.json` or `vocab.txt`, with the settings next to it.

        Without do_lower_case, text for a `vocab.txt` without capital letters is lower-cased.

        Args:
            directory: The directory.
            overrides: Settings that replace those of tokenizer_config.json.
            lowercase: Whether text is lower-cased first, as sentence_bert_config.json may require.

        Raises:
            ModelFileError: A file is missing, is damaged, contradicts another file, or needs its own code.
        """
        files = read_tokenizer_files(user_path(directory), overrides or {}, lowercase)
        with damage(files.where):
            return cls(files.inner, files.where, files.names, follows_file=files.follows_file)

    @classmethod
    def load_pieces(cls, directory: str | Path) -> "tuple[Tokenizer, int | None]":
        """Read the `tokenizer.json` of a static table, which needs no special tokens.

        Returns:
            The tokenizer, and the number of pieces to which it cuts texts, or None.
        """
        inner, file, cut = read_pieces(user_path(directory))
        with damage(file):
            return cls(inner, str(file), only_pieces=True), cut

    @classmethod
    def train(cls, sentences: Lines, vocab_size: int) -> "Tokenizer":
        """Make a new lower-casing WordPiece vocabulary. The same sentences give the same vocabulary.

        It is made from TRAINING_SENTENCES evenly spaced sentences.

        Args:
            sentences: The corpus.
            vocab_size: The largest number of pieces. The vocabulary is larger if its characters alone need more pieces.
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
        """Write files from which `transformers` and sentence-transformers compute the same ids.

        The files are tokenizer.json, vocab.txt (WordPiece only), tokenizer_config.json and special_tokens_map.json.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "tokenizer.json", self._inner.to_str(pretty=True))
        word_pieces = self._state["model"]["type"] == "WordPiece"
        normalizer = self._state["normalizer"] or {}
        specials = {f"{role}_token": name for role, name in self.names.items()}
        # With split_special_tokens, transformers also tokenises "[SEP]" in a sentence as text.
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
        """Return tokenizer.json as text."""
        return self._inner.to_str()

    @property
    def numbers(self) -> dict[str, int]:
        """Return the id of every piece."""
        return self._inner.get_vocab()

    def copy(self) -> "Tokenizer":
        """Return an equal tokenizer, for another thread."""
        return self.with_prompt(self.prompt)

    def with_prompt(self, prompt: str) -> "Tokenizer":
        """Return this tokenizer with another prompt before every sentence. `save` does not write the prompt."""
        return _prompted(tokenizers.Tokenizer.from_str(self._inner.to_str()), self.names, prompt, self._only_pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tokenizer for another process, without its cache of words."""
        return _prompted, (self._inner, self.names, self.prompt, self._only_pieces)

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Convert sentences to ids.

        Args:
            sentences: The sentences.
            max_seq_length: The largest number of ids of a sentence, with [CLS] and [SEP].

        Returns:
            The int32 ids of each sentence, and the number of sentences that were cut.

        Raises:
            TypeError: A sentence is not a str. The message has its number.
            ValueError: A sentence is not valid Unicode.
        """
        check_text(sentences)
        if self.prompt:
            sentences = [self.prompt + sentence for sentence in sentences]
        if not len(sentences):
            return [], 0
        limit = max_seq_length - 2
        pieces, counts = self.pieces(sentences, limit)
        cut = counts > limit
        ends = np.cumsum(np.minimum(counts, limit) + 2)
        starts = np.append(0, ends[:-1])
        ids = np.empty(ends[-1], np.int32)
        ids[starts], ids[ends - 1] = self.cls_id, self.sep_id
        is_piece = np.ones(len(ids), bool)
        is_piece[starts] = is_piece[ends - 1] = False
        ids[is_piece] = pieces[positions_within(counts) < limit]
        return [ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], int(cut.sum())

    def pieces(self, texts: Sequence[str], limit: int) -> tuple[Int[np.ndarray, " pieces"], Int[np.ndarray, " texts"]]:
        """Return the int32 ids of all texts, concatenated and without [CLS] and [SEP], and the number of pieces of each, int64 [N].

        If a text has more than `limit` pieces, more than `limit` of them are returned, but not always all.
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
        """Put [CLS] and [SEP] around a text; raise ModelFileError if transformers would follow a file with other tokens."""
        cls, sep = self.names["cls"], self.names["sep"]
        ends = self._inner.encode("")
        is_usual = ends.ids == [self.cls_id, self.sep_id] and not any(self._inner.encode("a").type_ids)
        if follows_file and not is_usual:
            raise ModelFileError(
                f"{where}: the post_processor puts {quote(ends.tokens)} around a text; only {cls} and {sep} are supported; "
                f"{OTHER_MODEL}"
            )
        if ends.ids != [self.cls_id, self.sep_id]:
            self._inner.post_processor = TemplateProcessing(
                single=f"{cls} $A {sep}",
                pair=f"{cls} $A {sep} $B:1 {sep}:1",
                special_tokens=[(cls, self.cls_id), (sep, self.sep_id)],
            )

    def _check_text_stays_text(self, where: str) -> None:
        """Raise ModelFileError for a tokenizer that turns the text "[SEP]" in a sentence into the special token."""
        for role, name in self.names.items():
            if (
                role != "unk"
                and getattr(self, f"{role}_id") in self._inner.encode(f"a {name} {name}b", add_special_tokens=False).ids
            ):
                raise ModelFileError(
                    f"{where} reads the text {name!r} in a sentence as its special token; "
                    "add a pre_tokenizer to tokenizer.json, or choose another model"
                )


def _prompted(inner: tokenizers.Tokenizer, names: Mapping[str, str], prompt: str, only_pieces: bool) -> Tokenizer:
    tokenizer = Tokenizer(inner, configured=names, only_pieces=only_pieces)
    if prompt:
        tokenizer.prompt = prompt
        tokenizer.fingerprint = hashlib.sha256(f"{tokenizer.fingerprint}|{prompt}".encode()).hexdigest()
    return tokenizer


def special_names(
    inner: tokenizers.Tokenizer, where: str, configured: Mapping[str, str], only_pieces: bool = False
) -> dict[str, str]:
    """Return the token of each role.

    A token that is not configured is that of the family to which the first token of a row belongs. MPNet's vocabulary has the names
    of both families, and uses those of RoBERTa.

    Args:
        inner: The tokenizer.
        where: Its file, for the message.
        configured: Tokens by role, from the settings.
        only_pieces: Whether tokens may be missing.

    Raises:
        ModelFileError: A role has no token, and `only_pieces` is False.
    """
    ends = inner.encode("").tokens
    first = configured.get("cls") or (ends[0] if len(ends) == 2 else "")
    order = -1 if first == SPECIALS["cls"][1] else 1
    tokens = {}
    for role, names in SPECIALS.items():
        candidates = [configured.get(role, ""), *names[::order]]
        known = [name for name in candidates if name and inner.token_to_id(name) is not None]
        if only_pieces and not known:
            continue
        if not known:
            raise ModelFileError(
                f"{where} has no {' or '.join(names)} token: it does not fit a BERT or RoBERTa encoder; use the "
                "tokenizer of the encoder"
            )
        tokens[role] = known[0]
    return tokens


def new_tokenizer(sentences: Lines, vocab_size: int) -> Tokenizer:
    """Make a new vocabulary for a corpus. The vocabulary of a large corpus is stored in the cache."""
    if not isinstance(sentences, Sentences) or not sentences.is_indexed:
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
