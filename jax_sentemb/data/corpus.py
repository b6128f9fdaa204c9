"""The corpus of a run: what a method asks it for, and whether its order means something."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_sentemb.data.corpus_files import Sentences, open_corpus
from jax_sentemb.data.examples import Perturbed, RoundRobin, SpanMasked
from jax_sentemb.data.packing import LONGEST, pack
from jax_sentemb.data.pairs import Pairs, PairTokens, read_pairs
from jax_sentemb.data.perturb import RANKED
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.data.tokens import Tokens, draw, tokenize
from jax_sentemb.errors import DataError

TELLING, ORDER_SAMPLE = 1000, 2000  # sentences from which on the order of a corpus is checked, pairs that are looked at


class Corpus:
    """The files of a run. A method asks once for what it reads; `sentences` and `tokenizer` are there afterwards."""

    sentences: Lines
    tokenizer: Any  # a Tokenizer, or a WordTokenizer

    def __init__(
        self,
        files: Callable[[bool], tuple[str, str]],
        make_tokenizer: Callable[[Lines], Any],
        max_seq_length: int,
        subset: float = 0.0,
        subset_seed: int = 0,
        workers: int = 0,
        pack: bool = False,
    ) -> None:
        """`files` gives names and column(s): of sentences for False, of labelled pairs for True. `workers` tokenise.

        `pack`: the run asks for `packed` rows; methods that read them look here.
        """
        self._files, self._max_seq_length = files, max_seq_length
        self._make_tokenizer, self._subset, self._subset_seed = make_tokenizer, subset, subset_seed
        self._workers = workers
        self.pack = pack

    def plain(self) -> Tokens:
        """Distinct sentences, one text a row."""
        return self._plain()[1]

    def _plain(self) -> tuple[Sentences, Tokens]:
        sentences = open_corpus(*self._files(False))
        self.sentences, self.tokenizer = sentences, self._make_tokenizer(sentences)
        return sentences, self._tokens(sentences, self._subset, self._subset_seed)

    def ordered(self) -> Tokens:
        """Sentences in the order of the corpus, duplicates included; batches of them are consecutive.

        DataError for a corpus whose neighbours have no more words in common than any two of its sentences.
        """
        files, column = self._files(False)
        sentences = open_corpus(files, column)
        check_order(sentences, files)
        self.sentences, self.tokenizer = sentences, self._make_tokenizer(sentences)
        return self._tokens(sentences, ordered=True)

    def packed(self) -> Tokens:
        """Rows of up to max_seq_length tokens, packed from the sentences in their order, duplicates included."""
        sentences = open_corpus(*self._files(False))
        self.sentences, self.tokenizer = sentences, self._make_tokenizer(sentences)
        longest = max(LONGEST, self._max_seq_length)
        tokens = tokenize(sentences, self.tokenizer, longest, None, self._subset, self._subset_seed, True, self._workers)
        return pack(tokens, sentences, self._max_seq_length)

    def _tokens(self, sentences: Sentences, subset: float = 0.0, seed: int = 0, ordered: bool = False) -> Tokens:
        return tokenize(sentences, self.tokenizer, self._max_seq_length, None, subset, seed, ordered, self._workers)

    def perturbed(self, task: str, k: int, seed: int) -> "Perturbed":
        """Distinct sentences, made inconsistent or cut in two for a task of ConsSent."""
        return Perturbed(self.plain(), self.tokenizer.vocab_size, task, k, seed)

    def perturbed_in_turn(self, tasks: str, k: int, seed: int) -> "RoundRobin":
        """The same sentences for several tasks of ConsSent, a batch each in turn; labels tell the classified tasks apart."""
        tokens, classified = self.plain(), [task for task in tasks if task not in RANKED]
        places = [classified.index(task) if task in classified else 0 for task in tasks]
        parts = [
            Perturbed(tokens, self.tokenizer.vocab_size, task, k, seed + number, place)
            for number, (task, place) in enumerate(zip(tasks, places, strict=True))
        ]
        return RoundRobin(parts)

    def span_masked(self, span: int, seed: int) -> "SpanMasked":
        """Distinct sentences, each beside a copy in which `span` characters are masked."""
        sentences, tokens = self._plain()
        return SpanMasked(tokens, sentences, self.tokenizer, span, seed)

    def pairs(self, classes: tuple[str, ...] = (), joined: bool = False) -> PairTokens:
        """Labelled pairs: a class of `classes`, or a score. Two texts a row, or `joined` to one."""
        pairs = read_pairs(self._files(True)[0], classes)
        if self._subset:
            pairs = _some(pairs, self._subset, self._subset_seed)
        self.sentences, self.tokenizer = pairs.sentences, self._make_tokenizer(pairs.sentences)
        return PairTokens(pairs, self.tokenizer, self._max_seq_length, joined)


def _some(pairs: Pairs, subset: float, seed: int) -> Pairs:
    rows = draw(len(pairs.first), subset, seed)
    return Pairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.labels[rows], pairs.unlabelled)


def check_order(sentences: Lines, name: str) -> None:
    """DataError if neighbouring sentences have hardly more words in common than sentences drawn from anywhere.

    Measured: 2.7 to 11 times as much in running text, 0.7 to 1.2 in shuffled text. Below TELLING sentences nothing is said.
    """
    if len(sentences) >= TELLING and not ordered(*words_in_common(sentences)):
        raise DataError(
            f"data.files={name}: neighbouring sentences have no more words in common than any two of the corpus: it seems to be "
            "shuffled, and this method learns from consecutive sentences"
        )


def ordered(neighbours: float, anywhere: float) -> bool:
    """Whether such `words_in_common` are those of running text."""
    return neighbours >= 1.5 * anywhere


def words_in_common(sentences: Lines) -> tuple[float, float]:
    """The share of long words that neighbouring sentences have in common, and that of any two; means over ORDER_SAMPLE pairs."""
    count, random = len(sentences), np.random.default_rng(0)
    at, anywhere = random.integers(count - 1, size=ORDER_SAMPLE), random.integers(count, size=ORDER_SAMPLE)

    def in_common(first: np.ndarray, second: np.ndarray) -> float:
        pairs = ((_long_words(sentences[one]), _long_words(sentences[other])) for one, other in zip(first, second, strict=True))
        return sum(len(one & other) / max(len(one | other), 1) for one, other in pairs) / ORDER_SAMPLE

    return in_common(at, at + 1), in_common(at, anywhere)


def _long_words(sentence: str) -> set[str]:
    return set(re.findall(r"\w{4,}", sentence.lower()))
