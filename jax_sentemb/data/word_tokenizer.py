"""Split sentences into words for methods on word vectors: wraps `tokenizers`, without [CLS] and [SEP]."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from jaxtyping import Int
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from jax_sentemb.data.containers import check_text
from jax_sentemb.data.long_text import Shortener
from jax_sentemb.data.tokenizer_checks import check_rules, count_tokens, damage
from jax_sentemb.errors import REPLACE_MODEL, ModelFileError
from jax_sentemb.files import write_text

PAD, UNKNOWN = "[PAD]", "[UNK]"
FILE = "tokenizer.json"


class WordTokenizer:
    """Converts sentences to word ids: splits at spaces and punctuation, and lower-cases if the vocabulary is in lower case.

    The attributes vocab_size, pad_id, unk_id and fingerprint are those of Tokenizer. `added` is the number of special tokens of a
    row.
    """

    added = 0

    def __init__(self, inner: tokenizers.Tokenizer, where: str = "the tokenizer") -> None:
        pad, unknown = inner.token_to_id(PAD), inner.token_to_id(UNKNOWN)
        if pad is None or unknown is None:
            raise ModelFileError(f"{where} lacks {PAD} or {UNKNOWN}: it is not a word vocabulary of jax_sentemb; {REPLACE_MODEL}")
        inner.no_padding()
        inner.no_truncation()
        self._inner, self.pad_id, self.unk_id = inner, pad, unknown
        self.vocab_size = count_tokens(inner, where)
        self.mask_id = self.sep_id = unknown  # word vocabularies have no such tokens, and methods on words do not use them
        state = inner.to_str()
        self._shortened = Shortener(inner, json.loads(state))
        self.fingerprint = hashlib.sha256(state.encode()).hexdigest()

    @classmethod
    def of(cls, words: Sequence[str], lowercase: bool) -> "WordTokenizer":
        """Return a tokenizer with a vocabulary of these words, numbered in this order after [PAD] and [UNK]."""
        vocabulary = {word: number for number, word in enumerate(dict.fromkeys((PAD, UNKNOWN, *words)))}
        inner = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
        inner.normalizer, inner.pre_tokenizer = _rules(lowercase)
        return cls(inner)

    @property
    def words(self) -> list[str]:
        """Return all words in the order of their ids, with [PAD] and [UNK]."""
        vocabulary = self._inner.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @property
    def lowercase(self) -> bool:
        """Return whether sentences are lower-cased."""
        return self._inner.normalizer is None or self._inner.normalizer.normalize_str("A") == "a"

    def extended(self, words: Iterable[str]) -> "WordTokenizer":
        """Return a tokenizer with these words added at the end of the vocabulary."""
        return WordTokenizer.of([*self.words[2:], *words], self.lowercase)

    @classmethod
    def load(cls, directory: str | Path) -> "WordTokenizer":
        """Read tokenizer.json.

        Raises:
            ModelFileError: The file is missing, damaged or not a word vocabulary.
        """
        file = Path(directory) / FILE
        if not file.is_file():
            raise ModelFileError(f"{file} is missing; {REPLACE_MODEL}")
        check_rules(file)
        with damage(file):
            inner = tokenizers.Tokenizer.from_file(str(file))
            tokenizer = cls(inner, str(file))
            model_type = json.loads(inner.to_str())["model"]["type"]
        if model_type != "WordLevel":
            raise ModelFileError(f"{file} is a {model_type} tokenizer, expected a word vocabulary (WordLevel); {REPLACE_MODEL}")
        ids = sorted(inner.get_vocab().values())
        if ids != list(range(tokenizer.vocab_size)) or (tokenizer.pad_id, tokenizer.unk_id) != (0, 1):
            raise ModelFileError(
                f"{file} is damaged: ids must be consecutive from 0, with {PAD} and {UNKNOWN} first; {REPLACE_MODEL}"
            )
        return tokenizer

    def save(self, directory: str | Path) -> None:
        """Write tokenizer.json."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        write_text(Path(directory) / FILE, self._inner.to_str(pretty=True))

    def copy(self) -> "WordTokenizer":
        """Return an equal tokenizer, for another thread."""
        return WordTokenizer(tokenizers.Tokenizer.from_str(self._inner.to_str()))

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return the int32 word ids of each sentence, at most `max_seq_length`, and the number of sentences that were cut."""
        check_text(sentences)
        texts = self._shortened(sentences, max_seq_length + 1)
        with damage("the tokenizer"):
            rows = [encoding.ids for encoding in self._inner.encode_batch_fast(texts, add_special_tokens=False)]
        cut = sum(len(row) > max_seq_length for row in rows)
        return [np.array(row[:max_seq_length], np.int32) for row in rows], cut


def count_words(sentences: Iterable[str], lowercase: bool) -> Counter[str]:
    """Return the number of occurrences of each word, split as WordTokenizer does."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(split_words(sentence, lowercase))
    return counts


def split_words(sentence: str, lowercase: bool) -> list[str]:
    """Return the words of a sentence, split as WordTokenizer does."""
    normalizer, splitter = _rules(lowercase)
    return [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(sentence))]


@functools.cache
def _rules(lowercase: bool) -> tuple[normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer]:
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False, handle_chinese_chars=False)
    return normalizer, pre_tokenizers.BertPreTokenizer()
