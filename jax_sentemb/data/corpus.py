"""The corpus of a run, in the form that a method reads: single sentences, ordered, packed, perturbed, masked, or in pairs."""

import re
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.copies import SpanMasked, TokensDeleted, WordRepeated
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.crops import CropPairs
from jax_sentemb.data.examples import NeighbourPairs, Perturbed, RoundRobin
from jax_sentemb.data.packing import LONGEST, pack
from jax_sentemb.data.pairs import LabelledPairs, PairTokens, read_pairs
from jax_sentemb.data.perturb import RANKED
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.targets import LineVectors, TaughtSentences
from jax_sentemb.data.tokenizer import Lines, Tokenizer
from jax_sentemb.data.tokens import ALL, Subsample, Tokens, draw, tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError, DataError, Setting

FAR = 10  # lines after which running text has moved on
ALIKE = 0.4  # share of long words in common, from which on two sentences say nearly the same
TELLING, ORDER_SAMPLE = 1000, 2000  # fewest sentences for which the order of a corpus is checked; pairs that the check compares


class Corpus:
    """The files of a run. A method calls one of the methods below, once; this sets `sentences` and `tokenizer`."""

    sentences: Lines
    rows: Callable[[Int[np.ndarray, " n"]], Int[np.ndarray, " n"]]  # the records of the files that have these sentences or pairs
    tokenizer: Tokenizer | WordTokenizer
    teacher = ""  # the fingerprint of the vectors of a teacher

    def __init__(
        self,
        files: Callable[[bool], tuple[str, str, str]],
        make_tokenizer: Callable[[Lines], Tokenizer | WordTokenizer],
        max_seq_length: int,
        subset: Subsample = ALL,
        workers: int = 0,
        pack: bool = False,
        teacher: Callable[[Sentences, Subsample], LineVectors] | None = None,
    ) -> None:
        """`files` returns file names, columns and what joins them: for False those of sentences, for True those of labelled pairs.

        `workers`: processes that tokenise. `pack`: whether the run requests `packed` rows; methods that support them check it.
        `teacher` returns the vectors of a teacher for lines of a text.
        """
        self._teacher = teacher
        self._files, self._max_seq_length = files, max_seq_length
        self._make_tokenizer, self._subset, self._workers = make_tokenizer, subset, workers
        self.pack = pack

    def plain(self) -> Tokens:
        """Distinct sentences, one text a row."""
        return self._plain()[1]

    def _plain(self) -> tuple[Sentences, Tokens]:
        sentences = self._open()
        return sentences, self._tokens(sentences, self._subset)

    def _open(self, in_order: bool = False) -> Sentences:
        """Open the files; DataError if they must be `in_order` and seem to be shuffled."""
        files = self._files(False)
        sentences = open_corpus(*files)
        if in_order:
            check_order(sentences, files[0])
        self.sentences, self.tokenizer, self.rows = sentences, self._make_tokenizer(sentences), sentences.rows
        return sentences

    def taught(self) -> TaughtSentences:
        """Return distinct sentences, each with the vector of the teacher."""
        sentences, tokens = self._plain()
        assert self._teacher is not None
        vectors = self._teacher(sentences, self._subset)
        self.teacher = vectors.fingerprint
        return TaughtSentences(tokens, vectors)

    def ordered(self) -> Tokens:
        """Sentences in the order of the corpus, duplicates included. Batches of them are consecutive sentences.

        DataError for a corpus that seems to be shuffled, ConfigError for a subset of it.
        """
        return self._ordered()[1]

    def _ordered(self) -> tuple[Sentences, Tokens]:
        if self._subset.size:
            raise ConfigError(
                Setting("data.subset", f"{self._subset.size:g}"),
                ": this method reads consecutive sentences, not random ones: leave it out, and cut the file for less text",
            )
        sentences = self._open(in_order=True)
        return sentences, self._tokens(sentences, ordered=True)

    def neighbours(self) -> NeighbourPairs:
        """Pairs of consecutive sentences of one document. DataError for a corpus that seems to be shuffled."""
        sentences, tokens = self._ordered()
        return NeighbourPairs(tokens, sentences)

    def crops(self, sentences: int, shift: int, documents: str, seed: int) -> CropPairs:
        """Return pairs of packs of consecutive sentences of one document.

        Args:
            sentences: Of a pack.
            shift: How many sentences later the second pack begins.
            documents: "lines": each line is a document. "blocks": each line is a sentence, and a blank line ends a document.
            seed: Of the places where pairs begin.

        Raises:
            DataError: No document is long enough, or "blocks" seem to be shuffled.
        """
        text, tokens = self._plain() if documents == "lines" else self._ordered()
        assert isinstance(self.tokenizer, Tokenizer)  # methods on word vectors have no crops
        return CropPairs(tokens, text, self.tokenizer, (sentences, shift), documents == "lines", seed)

    def packed(self) -> Tokens:
        """Rows of up to max_seq_length tokens, packed from the sentences in their order, duplicates included, without a prompt."""
        sentences = self._open()
        longest = max(LONGEST, self._max_seq_length)
        plain = self.tokenizer.with_prompt("") if isinstance(self.tokenizer, Tokenizer) else self.tokenizer
        tokens = tokenize(sentences, plain, longest, None, self._subset, True, self._workers)
        return pack(tokens, sentences, self._max_seq_length)

    def _tokens(self, sentences: Sentences, subset: Subsample = ALL, ordered: bool = False) -> Tokens:
        return tokenize(sentences, self.tokenizer, self._max_seq_length, None, subset, ordered, self._workers)

    def perturbed(self, task: str, k: int, seed: int) -> Perturbed:
        """Distinct sentences, made inconsistent or split in two for a task of ConsSent."""
        return Perturbed(self.plain(), self.tokenizer.vocab_size, task, k, seed)

    def perturbed_in_turn(self, tasks: str, k: int, seed: int) -> RoundRobin:
        """The same sentences for several tasks of ConsSent, one batch per task in turn; labels identify the classified task."""
        tokens, classified = self.plain(), [task for task in tasks if task not in RANKED]
        places = [classified.index(task) if task in classified else 0 for task in tasks]
        parts = [
            Perturbed(tokens, self.tokenizer.vocab_size, task, k, seed + number, place)
            for number, (task, place) in enumerate(zip(tasks, places, strict=True))
        ]
        return RoundRobin(parts)

    def span_masked(self, span: int, seed: int) -> SpanMasked:
        """Distinct sentences, each with a copy in which `span` characters are masked."""
        sentences, tokens = self._plain()
        assert isinstance(self.tokenizer, Tokenizer)  # methods on word vectors do not mask spans
        return SpanMasked(tokens, sentences, self.tokenizer, span, seed)

    def word_repeated(self, rate: float, seed: int) -> WordRepeated:
        """Distinct sentences, each with a copy in which tokens are repeated, at most the share `rate` of them (or two)."""
        return WordRepeated(self.plain(), rate, seed)

    def tokens_deleted(self, rate: float, seed: int) -> TokensDeleted:
        """Return distinct sentences, each with a copy without a share `rate` of its tokens."""
        return TokensDeleted(self.plain(), rate, seed)

    def pairs(self, classes: tuple[str, ...] = (), joined: bool = False) -> PairTokens:
        """Pairs labelled with one of `classes`, or with a score. A row is two texts, or one text of `joined` sentences."""
        pairs = read_pairs(self._files(True)[0], classes)
        if self._subset.size:
            pairs = _drawn(pairs, self._subset)
        self.sentences, self.tokenizer = pairs.sentences, self._make_tokenizer(pairs.sentences)
        self.rows = np.array(pairs.records).__getitem__
        return PairTokens(pairs, self.tokenizer, self._max_seq_length, joined)


def _drawn(pairs: LabelledPairs, subset: Subsample) -> LabelledPairs:
    rows = draw(len(pairs.first), subset)
    first, second = ([side[row] for row in rows] for side in (pairs.first, pairs.second))
    return LabelledPairs(first, second, pairs.labels[rows], pairs.unlabelled, [pairs.records[row] for row in rows])


def check_order(sentences: Lines, name: str) -> None:
    """DataError if neighbouring sentences share hardly more words than two random sentences of the corpus.

    The measured ratio is 2.7 to 11 in running text and 0.7 to 1.2 in shuffled text. Corpora below TELLING sentences are accepted.
    """
    if len(sentences) >= TELLING and not ordered(*words_in_common(sentences)):
        raise DataError(
            Setting("data.files", name),
            ": neighbouring sentences have no more words in common than random ones: the corpus seems to be "
            "shuffled, and this method learns from consecutive sentences",
        )


def ordered(neighbours: float, anywhere: float) -> bool:
    """Whether these two results of `words_in_common` are those of running text."""
    return neighbours >= 1.5 * anywhere


def words_in_common(sentences: Lines) -> tuple[float, float]:
    """The share of long words common to neighbouring sentences, and to random ones; means over ORDER_SAMPLE pairs."""
    count, random = len(sentences), np.random.default_rng(0)
    at, anywhere = random.integers(count - 1, size=ORDER_SAMPLE), random.integers(count, size=ORDER_SAMPLE)
    return float(_in_common(sentences, at, at + 1).mean()), float(_in_common(sentences, at, anywhere).mean())


def is_running_text(sentences: Lines) -> bool:
    """Whether neighbours of an ordered corpus share more words than lines that are FAR apart or next but one, and are rarely ALIKE.

    Running text moves on: measured 1.5 to 4.4 times as much as FAR lines on. A list that is sorted by topic has 0.8 to 1.3 times as
    much, and in a list of pairs every other line repeats more than its neighbour does. Neither does running text say a sentence
    twice: at most 2.3 % of neighbours are ALIKE, but 8 to 68 % in lists of captions and their variants (SICK, SNLI).
    """
    at = np.random.default_rng(0).integers(len(sentences) - FAR, size=ORDER_SAMPLE)
    shares = [_in_common(sentences, at, at + distance) for distance in (1, 2, FAR)]
    near, next_but_one, far = (part.mean() for part in shares)
    return bool(near >= 1.35 * far and next_but_one <= 1.2 * near and np.mean(shares[0] >= ALIKE) <= 0.045)


def _in_common(sentences: Lines, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    pairs = ((_long_words(sentences[one]), _long_words(sentences[other])) for one, other in zip(first, second, strict=True))
    return np.array([len(one & other) / max(len(one | other), 1) for one, other in pairs])


def _long_words(sentence: str) -> set[str]:
    return set(re.findall(r"\w{4,}", sentence.lower()))
