"""Split long texts into chunks, which a model reads without cutting them.

A chunk is a part of a text, `text[start:end]`, that fits the model together with its prompt. A text that fits is one chunk. A
longer text is split at the ends of sentences. A sentence that does not fit is split at spaces, and a word that does not fit, at any
character. A chunk begins with the last sentences of the chunk before it: as many as fit into a quarter of its tokens, and at least
one that fits into half of them. Together, the chunks of a text have all of its characters except spaces.
"""

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.records import Record, Records
from jax_sentemb.data.sentence_ends import sentence_spans
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import ConfigError
from jax_sentemb.files import quote
from jax_sentemb.types import OnCount, no_progress

CHUNKS = ("mean", "max", "each")  # what becomes of the vectors of the chunks of a text
OVERLAP = 4  # a chunk repeats up to 1/OVERLAP of the tokens of the chunk before it
MARKS = 64  # combining marks that stay together with their letter
AT_ONCE, CHARACTERS = 256, 1 << 22  # texts, and characters of texts, that are tokenised together
_WORD = re.compile(r"\S+")


class TokenCounter(Protocol):
    """Converts texts to ids: a Tokenizer, a WordTokenizer, or the pieces of a static table."""

    def encode(self, sentences: Any, max_seq_length: int, /) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return the ids of each text, at most `max_seq_length`, and how many texts were cut."""
        ...


class Chunk(NamedTuple):
    """A part of a text, `text[start:end]`, and its number of tokens without prompt and special tokens."""

    start: int
    end: int
    tokens: int


class Chunker:
    """Splits texts into chunks of at most `max_seq_length` tokens, with a prompt before each."""

    def __init__(self, tokenizer: TokenCounter, max_seq_length: int, prompt: str = "") -> None:
        """Prepare for a model.

        Args:
            tokenizer: The tokenizer of the model.
            max_seq_length: The largest number of tokens that the model reads, with special tokens.
            prompt: The text before each chunk.

        Raises:
            ConfigError: The prompt leaves no token for the text.
        """
        self._tokenizer, self.max_seq_length, self.prompt = tokenizer, max_seq_length, prompt
        self._special, self._added = self._counts(["", prompt])
        self._room = max_seq_length - self._added
        if self._room < 1:
            raise ConfigError(
                f"prompt {quote(prompt)} leaves no room for text within max_seq_length={max_seq_length} tokens; "
                "raise max_seq_length or shorten the prompt"
            )

    def are_long(self, texts: Sequence[str]) -> list[bool]:
        """Return whether each text has to be split."""
        batches = (texts[first : first + AT_ONCE] for first in range(0, len(texts), AT_ONCE))
        return [count > self.max_seq_length for batch in batches for count in self._counts([self.prompt + text for text in batch])]

    def split(self, texts: Iterable[str]) -> Iterator[list[Chunk]]:
        """Yield the chunks of each text, in their order. An empty text has one empty chunk."""
        batch: list[str] = []
        characters = 0
        for text in texts:
            batch.append(text)
            characters += len(text)
            if len(batch) == AT_ONCE or characters > CHARACTERS:
                yield from self._split_batch(batch)
                batch, characters = [], 0
        yield from self._split_batch(batch)

    def _split_batch(self, texts: list[str]) -> Iterator[list[Chunk]]:
        counts = self._counts([self.prompt + text for text in texts])
        for text, count in zip(texts, counts, strict=True):
            yield self._split(text) if count > self.max_seq_length else [Chunk(0, len(text), max(count - self._added, 0))]

    def _split(self, text: str) -> list[Chunk]:
        """Return the chunks of a text that is too long."""
        sentences = self._measured(text, sentence_spans(text))
        if not sentences:  # white space, which has tokens in some vocabularies
            return [Chunk(0, 0, 0)]
        words = self._divided(sentences, lambda long: self._measured(text, _word_spans(text, long)))
        units = self._divided(words, lambda long: self._parts_of_word(text, long))
        groups = list(self._groups(units))
        while True:  # in its sentence, a unit may have more tokens than alone
            spans = [(group[0].start, group[-1].end) for group in groups]
            counts = self._counts([self.prompt + text[start:end] for start, end in spans])
            halves = [
                self._halves(text, group) if count > self.max_seq_length else [group]
                for group, count in zip(groups, counts, strict=True)
            ]
            if len(halves) == sum(map(len, halves)):
                return _without_repeated(
                    [Chunk(*span, max(count - self._added, 0)) for span, count in zip(spans, counts, strict=True)]
                )
            groups = [group for parts in halves for group in parts]

    def _divided(self, units: list[Chunk], divide: Callable[[Chunk], list[Chunk]]) -> list[Chunk]:
        """Return the units, with those that do not fit into a chunk divided."""
        return [part for unit in units for part in (divide(unit) if unit.tokens > self._room else [unit])]

    def _groups(self, units: list[Chunk]) -> Iterator[list[Chunk]]:
        """Yield the units of each chunk."""
        first, total = 0, 0
        for number, unit in enumerate(units):
            if total + unit.tokens > self._room and number > first:
                yield units[first:number]
                last = units[number - 1].tokens
                most = min(max(self._room // OVERLAP, min(last, self._room // 2)), self._room - unit.tokens)
                first, total = number, 0
                while total + units[first - 1].tokens <= most:
                    first -= 1
                    total += units[first].tokens
            total += unit.tokens
        yield units[first:]

    def _halves(self, text: str, group: list[Chunk]) -> list[list[Chunk]]:
        """Return both halves of the units of a chunk, or of its only unit; the unit itself if it is one character."""
        if len(group) > 1:
            middle = len(group) // 2
            return [group[:middle], group[middle:]]
        return [[part] for part in self._measured(text, _halved(text, group[0]))]

    def _parts_of_word(self, text: str, word: Chunk) -> list[Chunk]:
        """Return parts of a word that are short enough for chunks to overlap."""
        parts, most = [word], max(self._room // OVERLAP, 1)
        while long := [part for part in parts if part.tokens > most and part.end - part.start > 1]:
            short = set(parts).difference(long)
            parts = sorted([*short, *self._measured(text, [span for part in long for span in _halved(text, part)])])
        return parts

    def _measured(self, text: str, spans: Iterable[tuple[int, int]]) -> list[Chunk]:
        """Return parts of a text with their numbers of tokens."""
        spans = list(spans)
        counts = self._counts([text[start:end] for start, end in spans])
        return [Chunk(*span, count - self._special) for span, count in zip(spans, counts, strict=True)]

    def _counts(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text with special tokens, at most one more than fit."""
        limit = self.max_seq_length + 1
        batches = (texts[first : first + AT_ONCE] for first in range(0, len(texts), AT_ONCE))
        return [len(ids) for batch in batches for ids in self._tokenizer.encode(batch, limit)[0]]


def _without_repeated(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks without those that lie in the chunk before or after them. Starts and ends are ascending."""
    following = [*chunks[1:], None]
    chunks = [chunk for chunk, after in zip(chunks, following, strict=True) if after is None or chunk.start < after.start]
    return [chunk for before, chunk in zip([None, *chunks], chunks, strict=False) if before is None or chunk.end > before.end]


def _word_spans(text: str, part: Chunk) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _WORD.finditer(text, part.start, part.end))


def _halved(text: str, part: Chunk) -> list[tuple[int, int]]:
    """Return the spans of both halves of a part, which do not separate a letter from its marks; one span for one character."""
    middle = (part.start + part.end) // 2
    candidates = range(middle, min(middle + MARKS, part.end))
    middle = next((number for number in candidates if not unicodedata.combining(text[number])), middle)
    return [span for span in ((part.start, middle), (middle, part.end)) if span[0] < span[1]]


class ChunkTexts:
    """The chunks of numbered texts, as numbered texts.

    Attributes:
        documents: The number of the text of each chunk, int64, ascending.
        starts: The first character of each chunk, int64.
        ends: The number after the last character of each chunk, int64.
    """

    def __init__(
        self, texts: Lines, documents: Int[np.ndarray, " n"], starts: Int[np.ndarray, " n"], ends: Int[np.ndarray, " n"]
    ) -> None:
        self._texts, self.documents, self.starts, self.ends = texts, documents, starts, ends
        self._latest = -1, ""  # the text that was read last: a long text is not read again for each of its chunks

    @classmethod
    def split(cls, texts: Lines, chunker: Chunker, progress: OnCount = no_progress) -> "ChunkTexts":
        """Split texts. Memory holds 24 bytes for each chunk. `progress` is called with the number of texts that were split."""
        documents, starts, ends = array("q"), array("q"), array("q")
        for number, chunks in enumerate(chunker.split(texts)):
            for chunk in chunks:
                documents.append(number)
                starts.append(chunk.start)
                ends.append(chunk.end)
            progress(1)
        return cls(texts, *(np.array(numbers, np.int64) for numbers in (documents, starts, ends)))

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> str:
        document = int(self.documents[number])
        latest, text = self._latest
        if latest != document:
            text = self._texts[document]
            self._latest = document, text
        return text[self.starts[number] : self.ends[number]]


class ChunkRecords(NamedTuple):
    """The records of chunks, with their spans."""

    records: Records  # of the texts
    chunks: ChunkTexts

    @property
    def has_ids(self) -> bool:
        """Return whether some records have ids."""
        return self.records.has_ids

    def record(self, number: int) -> Record:
        """Return the record of a chunk."""
        record = self.records.record(int(self.chunks.documents[number]))
        return record._replace(start=int(self.chunks.starts[number]), end=int(self.chunks.ends[number]))
