"""Shorten long texts before they are tokenised. The first pieces of a shortened text are those of the whole text."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import tokenizers

from jax_sentemb.data.tokenizer_checks import damage

PLAIN = 1024  # characters; shorter texts are never shortened
CHARACTERS_PER_PIECE = 16  # a text with more characters for each piece is shortened
FIRST = 8  # characters for each piece that are read first
BLOCK = 1 << 16  # characters that are read at once afterwards
RUN = 128  # a run of this length and one twice as long are compared to learn whether longer runs add pieces
MARKS = 64  # combining marks that stay together with their letter
WORDS = 3  # last words of a text that more text may change
LONGEST_PIECE = 512  # characters
HUGE = 1 << 20  # characters; in longer texts every block is tested for an effect, and fewer endings are compared
BERT_RULES = ("BertNormalizer", "BertPreTokenizer")


class Shortener:
    """Shortens texts for one tokenizer. It reads a text from its beginning, and at most one block more than needed.

    With BERT's rules (WordPiece and word vocabularies), the text is rewritten as its first words. A word that is too long for the
    vocabulary keeps only its first characters. With other rules, a beginning is enough if all its endings give the same pieces.
    Long runs of characters that add no piece (white space, zero-width characters, unknown characters) are left out.
    """

    def __init__(self, inner: tokenizers.Tokenizer, state: dict[str, Any]) -> None:
        """Prepare for a tokenizer, whose content in tokenizer.json is `state`."""
        self._inner = inner
        self._word_limit = _word_limit(state)
        self._run = max(RUN, self._word_limit + 1)
        self._effects: dict[str, str | None] = {}  # of a run of a character, see `_effect`
        self._longest_piece = 0

    def __call__(self, texts: Sequence[str], pieces: int) -> list[str]:
        """Return texts with the same first `pieces` pieces. A result has fewer pieces only if the whole text has so few."""
        plain = max(PLAIN, CHARACTERS_PER_PIECE * pieces)
        plain = min(plain, BLOCK) if self._word_limit else plain
        return [text if len(text) <= plain else self._short(text, pieces) for text in texts]

    def _short(self, text: str, pieces: int) -> str:
        blocks = self._blocks(text, max(PLAIN, FIRST * pieces))
        with damage("the tokenizer"):
            return self._first_words(blocks, pieces) if self._word_limit else self._beginning(blocks, pieces)

    def _first_words(self, blocks: Iterator[str], pieces: int) -> str:
        """Return the first words, normalised and joined by spaces. Each gives one piece or more."""
        words: list[str] = []
        unfinished, longest = "", self._word_limit + 1
        for block in blocks:
            text = unfinished + self._inner.normalizer.normalize_str(block)
            parts = self._inner.pre_tokenizer.pre_tokenize_str(text)
            new_words = [word[:longest] for word, _ in parts]
            unfinished = new_words.pop() if parts and parts[-1][1][1] == len(text) else ""
            words += new_words
            if len(words) >= pieces:
                return " ".join(words[:pieces])
        return " ".join([*words, unfinished])

    def _beginning(self, blocks: Iterator[str], pieces: int) -> str:
        """Return the first blocks that are enough, or all of them."""
        text, next_test = "", 0
        for block in blocks:
            text += block if len(text) < HUGE else self._shorter_if_equal(block, block[: 2 * self._run])
            if len(text) >= next_test:
                if self._is_enough(text, pieces):
                    return text
                next_test = 2 * len(text)
        return text

    def _is_enough(self, text: str, pieces: int) -> bool:
        """Return whether every text that begins with `text` has the same first `pieces` pieces.

        A longer text changes only the last words. In a text that is one long word, it changes only the last pieces. One of the
        pieces of the longer text ends within the length of the longest piece before the end of `text`. The pieces up to there are
        those of the part up to there, because BPE and Unigram models cut the parts between ends of pieces independently.
        """
        encoding = self._inner.encode(text, add_special_tokens=False)
        ids = encoding.ids[:pieces]
        if len(ids) < pieces:
            return False

        def same(end: int) -> bool:
            return self._inner.encode(text[:end], add_special_tokens=False).ids[:pieces] == ids

        starts = _starts_of_last_words(encoding)
        if starts and all(map(same, starts)):
            return True
        ends = range(len(text) - self._piece_limit(), len(text))
        return all(map(same, ends if len(text) < HUGE else ends[:: len(ends) // 2]))

    def _piece_limit(self) -> int:
        """Return the number of characters of the longest piece."""
        self._longest_piece = self._longest_piece or min(max(map(len, self._inner.get_vocab())), LONGEST_PIECE)
        return self._longest_piece

    def _blocks(self, text: str, first: int) -> Iterator[str]:
        """Yield the text in blocks. After the first block, blocks that add no pieces are shortened."""
        start, end = 0, first
        while start < len(text):
            limit = end + MARKS
            while end < min(limit, len(text)) and unicodedata.combining(text[end]):
                end += 1
            block = text[start:end]
            yield self._without_runs(block) if start else block
            start, end = end, end + BLOCK

    def _without_runs(self, block: str) -> str:
        """Return the block, or a short text with the same effect if none of its characters adds pieces in a long run."""
        if len(block) <= 2 * self._run + 2:
            return block
        removed, spaces, joined = [], [], []
        for character in set(block):
            effect = self._effect(character)
            if effect is None:
                return block
            {"": removed, " ": spaces}.get(effect, joined).append(character)
        if spaces and joined:
            return block
        middle = "".join(spaces[:1])
        if joined:
            middle = block.translate({ord(character): None for character in removed})
            if len(middle) <= 2 * self._run:  # a word that is not cut already has its ends
                return "".join((block[0] if block[0] in removed else "", middle, block[-1] if block[-1] in removed else ""))
            middle = middle[: 2 * self._run]
        short = f"{block[0]}{middle}{block[-1]}"  # with both ends, since a letter may take the mark that follows it
        if not joined:
            return short
        one_word = self._word_limit or len(joined) == 1  # with other rules, different characters may be different words
        return short if one_word else self._shorter_if_equal(block, short)

    def _shorter_if_equal(self, block: str, short: str) -> str:
        return short if self._ids(f"a{short}a") == self._ids(f"a{block}a") else block

    def _effect(self, character: str) -> str | None:
        """Return the effect of a long run of a character on the tokenizer.

        It is "" if the run is removed, " " if it equals one space, the character if it equals a shorter run, and None if longer
        runs add pieces.
        """
        if character not in self._effects:
            run = self._inside_and_alone(character * self._run)
            equal = {"": "", " ": " ", character: character * 2 * self._run}
            self._effects[character] = next((name for name, other in equal.items() if run == self._inside_and_alone(other)), None)
        return self._effects[character]

    def _inside_and_alone(self, text: str) -> tuple[list[int], list[int]]:
        return self._ids(f"a{text}a"), self._ids(text)

    def _ids(self, text: str) -> list[int]:
        return self._inner.encode(text, add_special_tokens=False).ids


def _starts_of_last_words(encoding: tokenizers.Encoding) -> list[int]:
    """Return the offsets at which the last WORDS words begin; an empty list if there are fewer words."""
    starts: dict[int | None, int] = {}
    for word, (start, _) in zip(reversed(encoding.word_ids), reversed(encoding.offsets), strict=True):
        if word not in starts and len(starts) == WORDS:
            return sorted(starts.values())
        starts[word] = start
    return []


def _word_limit(state: dict[str, Any]) -> int:
    """Return the largest number of characters of a word that is not unknown, for tokenizers with BERT's rules; else 0."""
    rules = tuple((state[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer"))
    if rules != BERT_RULES or not all(token["special"] for token in state["added_tokens"]):
        return 0
    model = state["model"]
    if model["type"] == "WordPiece":
        return model["max_input_chars_per_word"]
    return max(map(len, model["vocab"]), default=1) if model["type"] == "WordLevel" else 0
