"""Read the corpus of a run in the form that a method needs: single sentences, ordered, packed, perturbed, masked, or in pairs."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.copies import SpanMasked, TokensDeleted, WordRepeated
from jax_sentemb.data.corpus_files import corpus_name, open_corpus
from jax_sentemb.data.crops import CHUNK, CropPairs
from jax_sentemb.data.examples import NeighbourPairs, Perturbed, RoundRobin
from jax_sentemb.data.packing import LONGEST, pack
from jax_sentemb.data.pairs import LabelledPairs, PairTokens, read_pairs
from jax_sentemb.data.perturb import RANKED
from jax_sentemb.data.sentence_ends import sentence_spans
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.targets import LineVectors, TaughtSentences
from jax_sentemb.data.text_words import long_words_of
from jax_sentemb.data.tokenizer import Lines, Tokenizer
from jax_sentemb.data.tokens import ALL, Subsample, Tokens, draw, tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError, DataError, Setting, note_text
from jax_sentemb.files import print_warning

DISTANT = 10  # lines; at this distance running text has changed its subject
NEARLY_EQUAL = 0.4  # two sentences with this share of common long words or more say nearly the same
TEXTS = 0.5  # share of records with several sentences from which on records are texts, not sentences
MIN_ORDER_CHECK, ORDER_SAMPLE = 1000, 2000  # fewest sentences for a check of their order; pairs that the check compares


class Corpus:
    """The files of a run. A method calls one of the functions below once. The call sets `sentences` and `tokenizer`."""

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
        """Define the corpus. Nothing is read yet.

        Args:
            files: Returns file names, columns and the text that joins columns: for False those of sentences, for True those of
                labelled pairs.
            make_tokenizer: Returns the tokenizer for the sentences.
            max_seq_length: The number of tokens after which a text is cut.
            subset: The part of the corpus to use.
            workers: The number of processes that tokenise.
            pack: Whether the run requests `packed` rows. Methods that support them check it.
            teacher: Returns the vectors of a teacher for lines of a text.
        """
        self._teacher = teacher
        self._files, self._max_seq_length = files, max_seq_length
        self._make_tokenizer, self._subset, self._workers = make_tokenizer, subset, workers
        self.pack = pack

    def plain(self) -> Tokens:
        """Return distinct sentences, one text in each row."""
        return self._plain()[1]

    def _plain(self) -> tuple[Sentences, Tokens]:
        sentences = self._open()
        return sentences, self._tokens(sentences, self._subset)

    def _open(self, in_order: bool = False) -> Sentences:
        """Open the files; raise DataError if they must be `in_order` and seem to be shuffled."""
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
        """Return the sentences in the order of the corpus, duplicates included. Their batches are consecutive sentences.

        Raises:
            ConfigError: The run uses a subset.
            DataError: The corpus seems to be shuffled.
        """
        return self._ordered()[1]

    def _ordered(self) -> tuple[Sentences, Tokens]:
        if self._subset.size:
            raise ConfigError(
                Setting("data.subset", f"{self._subset.size:g}"),
                ": this method needs consecutive sentences, but a subset is random; remove it, and shorten the file instead",
            )
        sentences = self._open(in_order=True)
        return sentences, self._tokens(sentences, ordered=True)

    def neighbours(self) -> NeighbourPairs:
        """Return pairs of consecutive sentences of one document; raise DataError if the corpus seems to be shuffled."""
        sentences, tokens = self._ordered()
        return NeighbourPairs(tokens, sentences)

    def crops(self, sentences: int, shift: int, documents: str, seed: int) -> CropPairs:
        """Return pairs of packs of consecutive sentences of one document.

        Args:
            sentences: The number of sentences of a pack.
            shift: The number of sentences between the starts of both packs.
            documents: "lines": each line is a document. "blocks": each line is a sentence, and a blank line ends a document.
            seed: The seed of the first sentences of pairs.

        Raises:
            DataError: No document is long enough, or "blocks" seem to be shuffled.
        """
        text, tokens = self._plain() if documents == "lines" else self._ordered()
        if documents == "blocks" and several_sentences(text) >= TEXTS and _is_one_document(text):
            raise DataError(
                Setting("method.documents", documents),
                ": no blank line parts documents, and most lines have several sentences; put a blank line after each document, or, "
                "if a line or record is a document, set ",
                Setting("method.documents", "lines"),
            )
        assert isinstance(self.tokenizer, Tokenizer)  # methods on word vectors have no crops
        return CropPairs(tokens, text, self.tokenizer, (sentences, shift), documents == "lines", seed)

    def packed(self) -> Tokens:
        """Return rows of up to max_seq_length tokens, packed from the sentences in order, with duplicates and without a prompt."""
        sentences = self._open()
        longest = max(LONGEST, self._max_seq_length)
        plain = self.tokenizer.with_prompt("") if isinstance(self.tokenizer, Tokenizer) else self.tokenizer
        tokens = tokenize(sentences, plain, longest, None, self._subset, True, self._workers)
        return pack(tokens, sentences, self._max_seq_length)

    def _tokens(self, sentences: Sentences, subset: Subsample = ALL, ordered: bool = False) -> Tokens:
        return tokenize(sentences, self.tokenizer, self._max_seq_length, None, subset, ordered, self._workers)

    def perturbed(self, task: str, k: int, seed: int) -> Perturbed:
        """Return distinct sentences, made inconsistent or split in two for a task of ConsSent."""
        return Perturbed(self.plain(), self.tokenizer.vocab_size, task, k, seed)

    def perturbed_in_turn(self, tasks: str, k: int, seed: int) -> RoundRobin:
        """Return the same sentences for several tasks of ConsSent, one batch per task in turn.

        The labels identify the classified task.
        """
        tokens, classified = self.plain(), [task for task in tasks if task not in RANKED]
        task_numbers = [classified.index(task) if task in classified else 0 for task in tasks]
        parts = [
            Perturbed(tokens, self.tokenizer.vocab_size, task, k, seed + number, task_number)
            for number, (task, task_number) in enumerate(zip(tasks, task_numbers, strict=True))
        ]
        return RoundRobin(parts)

    def span_masked(self, span: int, seed: int) -> SpanMasked:
        """Return distinct sentences, each with a copy in which `span` characters are masked."""
        sentences, tokens = self._plain()
        assert isinstance(self.tokenizer, Tokenizer)  # methods on word vectors do not mask spans
        return SpanMasked(tokens, sentences, self.tokenizer, span, seed)

    def word_repeated(self, rate: float, seed: int) -> WordRepeated:
        """Return distinct sentences, each with a copy in which at most the share `rate` of its tokens (or two) are repeated."""
        return WordRepeated(self.plain(), rate, seed)

    def tokens_deleted(self, rate: float, seed: int) -> TokensDeleted:
        """Return distinct sentences, each with a copy without a share `rate` of its tokens."""
        return TokensDeleted(self.plain(), rate, seed)

    def pairs(self, classes: tuple[str, ...] = (), joined: bool = False, top_score: float = math.inf) -> PairTokens:
        """Return pairs that are labelled with one of `classes`, or with a score up to `top_score`.

        A row is two texts, or one `joined` text.
        """
        files = self._files(True)[0]
        pairs = read_pairs(files, classes)
        if not classes and len(pairs.labels):
            _check_scores(pairs.labels, top_score, corpus_name(files))
        if self._subset.size:
            pairs = _draw_pairs(pairs, self._subset)
        self.sentences, self.tokenizer = pairs.sentences, self._make_tokenizer(pairs.sentences)
        self.rows = np.array(pairs.records).__getitem__
        return PairTokens(pairs, self.tokenizer, self._max_seq_length, joined)


def _check_scores(scores: Float[np.ndarray, " pairs"], top_score: float, name: str) -> None:
    """Raise DataError for scores of a file below 0 or above `top_score`, and warn of scores that are all far below it."""
    lowest, highest = scores.min(), scores.max()
    range_text, setting = f"the scores of {name} are {lowest:g} to {highest:g}", Setting("method.top_score", top_score)
    if lowest < 0 or highest > top_score:
        raise DataError(setting, f": {range_text}; give the largest score of their scale, which begins at 0")
    if highest <= top_score / 2:
        print_warning(note_text(f"{range_text}, and ", setting, " is the largest score of their scale"))


def _draw_pairs(pairs: LabelledPairs, subset: Subsample) -> LabelledPairs:
    rows = draw(len(pairs.first), subset)
    first, second = ([side[row] for row in rows] for side in (pairs.first, pairs.second))
    return LabelledPairs(first, second, pairs.labels[rows], pairs.unlabelled, [pairs.records[row] for row in rows])


def check_order(sentences: Lines, name: str) -> None:
    """Raise DataError if neighbouring sentences share hardly more words than two random sentences of the corpus.

    The measured ratio is 2.7 to 11 in running text and 0.7 to 1.3 in shuffled text, Chinese included. Corpora of fewer than
    MIN_ORDER_CHECK sentences are accepted, and those in which no long word occurs twice.
    """
    if len(sentences) < MIN_ORDER_CHECK:
        return
    in_common = words_in_common(sentences)
    if any(in_common) and not is_ordered(*in_common):
        raise DataError(
            Setting("data.files", name),
            ": neighbouring sentences have no more words in common than random ones: the corpus seems to be "
            "shuffled, and this method learns from consecutive sentences",
        )


def is_ordered(neighbours: float, random_pairs: float) -> bool:
    """Return whether these two results of `words_in_common` are those of running text."""
    return 0 < neighbours >= 1.5 * random_pairs


def words_in_common(sentences: Lines) -> tuple[float, float]:
    """Return the share of common long words of neighbouring sentences, and of random pairs: means over ORDER_SAMPLE pairs."""
    count, random = len(sentences), np.random.default_rng(0)
    first, second = random.integers(count - 1, size=ORDER_SAMPLE), random.integers(count - 1, size=ORDER_SAMPLE)
    second += second >= first  # never the same sentence twice
    return float(_in_common(sentences, first, first + 1).mean()), float(_in_common(sentences, first, second).mean())


def is_running_text(sentences: Lines, several: float) -> bool:
    """Return whether an ordered corpus is running text with a sentence a line, and no list of texts, of pairs or sorted by topic.

    In running text, neighbouring lines share more words than lines at distance 2 or DISTANT, and few neighbours are NEARLY_EQUAL.
    Neighbours share 1.5 to 4.4 times as many words as DISTANT lines; in a list sorted by topic it is 0.8 to 1.3 times as many. In a
    list of pairs, lines at distance 2 share more words than neighbours. At most 2.3 % of neighbours are NEARLY_EQUAL, but 8 to 68 %
    in lists of captions and their variants (SICK, SNLI). `several` is the result of `several_sentences`: 98 % of abstracts have
    several sentences, but 2 to 7 % of the lines of running text.
    """
    if several >= TEXTS:
        return False
    first = np.random.default_rng(0).integers(len(sentences) - DISTANT, size=ORDER_SAMPLE)
    shares = [_in_common(sentences, first, first + distance) for distance in (1, 2, DISTANT)]
    near, at_two, distant = (part.mean() for part in shares)
    return bool(near >= 1.35 * distant and at_two <= 1.2 * near and np.mean(shares[0] >= NEARLY_EQUAL) <= 0.045)


def several_sentences(sentences: Lines) -> float:
    """Return the share of records that hold several sentences, in a random sample."""
    numbers = np.random.default_rng(0).integers(len(sentences), size=ORDER_SAMPLE)
    return float(np.mean([len(sentence_spans(sentences[number])) > 1 for number in numbers]))


def _in_common(sentences: Lines, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the share of long words that the sentences of each pair have in common."""
    pairs = ((long_words_of(sentences[left]), long_words_of(sentences[right])) for left, right in zip(first, second, strict=True))
    return np.array([len(left & right) / max(len(left | right), 1) for left, right in pairs])


def _is_one_document(text: Sentences) -> bool:
    """Return whether all lines are in one file, without a blank line between two of them."""
    chunks = (text.starts_document(start, min(start + CHUNK, len(text))) for start in range(0, len(text), CHUNK))
    return sum(int(chunk.sum()) for chunk in chunks) == 1
