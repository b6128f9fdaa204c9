"""What a method reads from its corpus: sentences, sentences beside a copy with a masked span, or labelled pairs."""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from jax_sentemb.errors import DataError
from jax_sentemb.text.files import Sentences, open_corpus
from jax_sentemb.text.packing import LONGEST, pack
from jax_sentemb.text.pairs import Pairs, PairTokens, read_pairs
from jax_sentemb.text.perturb import RANKED, Draws, delete, insert, permute, replace, split_at, split_randomly, unchangeable
from jax_sentemb.text.tokenizer import Lines, Tokenizer
from jax_sentemb.text.tokens import Tokens, draw, pad, tokenize

TELLING, ORDER_SAMPLE = 1000, 2000  # sentences from which on the order of a corpus is checked, pairs that are looked at


class Examples(Protocol):
    """Rows that batches are made of."""

    line: Any  # int64 [N], an array or Computed: the number of the (first) sentence of a row in the corpus, rising
    lengths: Any  # int [N], an array or Computed: tokens of the longest text of a row
    report: dict[str, Any]  # counts for people
    fingerprint: str  # stands for the content: a run with another one does not continue
    pad_id: int
    max_seq_length: int

    def __len__(self) -> int: ...

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """int32 ids of every text of the rows: V lists of one array a row; pure in (rows, epoch)."""
        ...

    def labels(self, rows: np.ndarray, epoch: int) -> np.ndarray | None:
        """float32 [B], or None without labels."""
        ...


class Computed:
    """Values [N] that are computed when they are asked for: for N that no memory holds."""

    def __init__(self, count: int, at: Callable[[Any], Any]) -> None:
        self._count, self._at = count, at

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Any) -> Any:
        return self._at(rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[np.arange(self._count)])


def all_but(rows: np.ndarray, count: int) -> Computed:
    """0 .. count - 1 without `rows`, which are sorted."""
    before = rows - np.arange(len(rows))  # how many numbers that stay are smaller
    return Computed(count - len(rows), lambda places: places + np.searchsorted(before, places, side="right"))


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
        sentences = open_corpus(*self._files(False))
        self.sentences, self.tokenizer = sentences, self._make_tokenizer(sentences)
        return self._tokens(sentences, self._subset, self._subset_seed)

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

    def perturbed_in_turn(self, tasks: str, k: int, seed: int) -> "InTurn":
        """The same sentences for several tasks of ConsSent, a batch each in turn; labels tell the classified tasks apart."""
        tokens, classified = self.plain(), [task for task in tasks if task not in RANKED]
        places = [classified.index(task) if task in classified else 0 for task in tasks]
        parts = [
            Perturbed(tokens, self.tokenizer.vocab_size, task, k, seed + number, place)
            for number, (task, place) in enumerate(zip(tasks, places, strict=True))
        ]
        return InTurn(parts)

    def span_masked(self, span: int, seed: int) -> "SpanMasked":
        """Distinct sentences, each beside a copy in which `span` characters are masked."""
        tokens = self.plain()
        return SpanMasked(tokens, self.sentences, self.tokenizer, span, seed)

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


class SpanMasked:
    """Sentences beside a copy with a masked span (Mirror-BERT): `span` characters, drawn anew each epoch, become one [MASK].

    Sentences of fewer than SHORTEST characters stay as they are. The mask is the tokenizer's own (the published code writes the
    text " [MASK] ", also for RoBERTa, whose mask token has another name).
    """

    SHORTEST = 30
    GROWTH = 4  # tokens that a masked copy may have more than its sentence: pieces of a word that was cut apart

    def __init__(self, tokens: Tokens, sentences: Lines, tokenizer: Tokenizer, span: int, seed: int) -> None:
        self._tokens, self._sentences, self._span, self._seed = tokens, sentences, span, seed
        self._tokenizer = tokenizer.copy()  # batches are made in a thread of their own
        self.line, self.report, self.pad_id = tokens.line, tokens.report, tokens.pad_id
        self.max_seq_length = tokens.max_seq_length
        self.lengths = Computed(len(tokens), lambda rows: np.minimum(tokens.lengths[rows] + self.GROWTH, tokens.max_seq_length))
        self.fingerprint = f"{tokens.fingerprint}|span {span}"

    def __len__(self) -> int:
        return len(self._tokens)

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """The sentences, and the sentences with a masked span."""
        whole = self._tokens.texts(rows, epoch)[0]
        halves = {place: cut for place, row in enumerate(rows.tolist()) if (cut := self._halves(row, epoch))}
        sides = [self._tokenizer.encode([cut[side] for cut in halves.values()], self.max_seq_length)[0] for side in (0, 1)]
        masked = list(whole)
        for place, left, right in zip(halves, *sides, strict=True):
            ids = np.concatenate([left[:-1], [self._tokenizer.mask_id], right[1:]]).astype(np.int32)
            limit = int(self.lengths[rows[place]])
            masked[place] = ids if len(ids) <= limit else np.append(ids[: limit - 1], ids[-1])
        return [whole, masked]

    def labels(self, rows: np.ndarray, epoch: int) -> None:
        """There are none."""
        return None

    def _halves(self, row: int, epoch: int) -> tuple[str, str] | None:
        """What is left and right of the masked span of a sentence; None for one that is too short to mask."""
        text = self._sentences[int(self.line[row])]
        if len(text) < max(self.SHORTEST, self._span + 1):
            return None
        random = np.random.Generator(np.random.Philox(key=[self._seed, row], counter=[epoch, 0, 0, 0]))
        start = int(random.integers(len(text) - self._span + 1))
        return text[:start], text[start + self._span :]


class Perturbed:
    """Sentences for a task of ConsSent: one text that is made inconsistent half of the time, or the two parts of a cut sentence.

    Labels of the first kind: 1 consistent, 0 not, and 2 * `place` more where the task is one of several. Sentences that are too
    short for the change, or that no change makes another sentence, stay consistent (the paper does not say);
    those that cannot be cut, of fewer than 3 words, are left out. `report` counts all of them.
    """

    def __init__(self, tokens: Tokens, vocab_size: int, task: str, k: int, seed: int, place: int = 0) -> None:
        self._tokens, self._task, self._k, self._seed, self._place = tokens, task, k, seed, place
        self._ranked = task in RANKED
        short_rows = np.flatnonzero(tokens.lengths <= (2 if self._ranked else k))
        short, none = len(short_rows), short_rows[:0]
        self._kept = kept = all_but(short_rows if self._ranked else none, len(tokens))
        longer = k if task == "I" else 0
        self.line = Computed(len(kept), lambda rows: tokens.line[kept[rows]])
        self.lengths = Computed(len(kept), lambda rows: tokens.lengths[kept[rows]] + longer)
        self.pad_id, self.max_seq_length = tokens.pad_id, tokens.max_seq_length + longer
        self.fingerprint = f"{tokens.fingerprint}|{task}({k})|2"
        share = np.cumsum(tokens.word_counts(vocab_size), dtype=np.float64)
        self._share = share / share[-1]
        self._fixed = unchangeable(tokens, task, k, self._share)
        self.report = {**tokens.report, "too short for the task": short, "not changed by the task": len(self._fixed)}
        if short + len(self._fixed) == len(tokens):
            need = 3 if self._ranked else k + 1
            kind = ", of different words but not all of the corpus" if len(self._fixed) else ""
            raise DataError(
                f"task {task}({k}) needs sentences of {need} words or more{kind}, and the corpus has none: lower method.k"
            )

    def __len__(self) -> int:
        return len(self._kept)

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """The sentences as the task has them."""
        batch = pad([self._tokens.ids(row) for row in self._kept[rows].tolist()], self._tokens.max_seq_length, self.pad_id)
        lengths, draws = batch.mask.sum(axis=1), Draws(self._seed, epoch, rows)
        if self._ranked:
            parts = (split_randomly if self._task == "N" else split_at)(batch.tokens, lengths, draws)
            return [_ragged(*part) for part in parts]
        words = () if self._task in "DP" else (self._share,)
        change = {"D": delete, "P": permute, "I": insert, "R": replace}[self._task]
        changed = _ragged(*change(batch.tokens, lengths, self._k, draws, *words))
        plain, kept = _ragged(batch.tokens, lengths), self._consistent(rows, epoch)
        return [[whole if keep else other for whole, other, keep in zip(plain, changed, kept, strict=True)]]

    def labels(self, rows: np.ndarray, epoch: int) -> np.ndarray | None:
        """float32 [B], 1 for a consistent sentence; None for the tasks that rank."""
        return None if self._ranked else self._consistent(rows, epoch).astype(np.float32) + 2 * self._place

    def _consistent(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Bool [B]: half of the sentences, and those that are too short to change or cannot be changed."""
        kept, sentences = Draws(self._seed, epoch, rows).uniform(9, 1)[:, 0] < 0.5, self._kept[rows]
        return kept | (self._tokens.lengths[sentences] <= self._k) | np.isin(sentences, self._fixed)


class InTurn:
    """Several kinds of examples that are trained on in turn, a batch each; what is asked of all of them is that of the first."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        first = parts[0]
        self.line, self.lengths, self.pad_id, self.max_seq_length = first.line, first.lengths, first.pad_id, first.max_seq_length
        self.report = first.report
        self.fingerprint = "|".join(part.fingerprint for part in parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """Those of the first kind."""
        return self.parts[0].texts(rows, epoch)

    def labels(self, rows: np.ndarray, epoch: int) -> np.ndarray | None:
        """Those of the first kind."""
        return self.parts[0].labels(rows, epoch)


class Some:
    """Some rows of other examples; `which` names them in the fingerprint."""

    def __init__(self, whole: Examples, rows: np.ndarray | Computed, which: str) -> None:
        self._whole, self._rows = whole, rows
        self.line = Computed(len(rows), lambda places: whole.line[rows[places]])
        self.lengths = Computed(len(rows), lambda places: whole.lengths[rows[places]])
        self.report, self.pad_id, self.max_seq_length = whole.report, whole.pad_id, whole.max_seq_length
        self.fingerprint = f"{whole.fingerprint}|{which}"
        self.ordered = getattr(whole, "ordered", False)

    def __len__(self) -> int:
        return len(self._rows)

    def texts(self, rows: np.ndarray, epoch: int) -> list[list[np.ndarray]]:
        """Those of the rows."""
        return self._whole.texts(self._rows[rows], epoch)

    def labels(self, rows: np.ndarray, epoch: int) -> np.ndarray | None:
        """Those of the rows."""
        return self._whole.labels(self._rows[rows], epoch)


def hold_out(examples: Examples, count: int, seed: int) -> tuple[Examples, Examples]:
    """The examples without `count` sentences, and those of them: drawn by seed, or the last ones of an ordered corpus."""
    if count >= len(examples):
        raise DataError(f"data.validation={count} leaves nothing of the {len(examples)} examples to train on")
    if getattr(examples, "ordered", False):
        rows = np.arange(len(examples) - count, len(examples))
    else:
        rows = np.random.Generator(np.random.Philox(seed)).choice(len(examples), count, replace=False)
    if isinstance(examples, InTurn):
        lines = np.sort(examples.line[rows])
        rest, held = zip(*(_divide(part, _rows_of_lines(part, lines), count) for part in examples.parts), strict=True)
        return InTurn(rest), InTurn(held)
    return _divide(examples, np.sort(rows), count)


def _divide(examples: Examples, held: np.ndarray, count: int) -> tuple[Examples, Examples]:
    """The examples without the sorted rows `held`, and those."""
    which = f"{count} held out {zlib.crc32(held.tobytes())}"
    return Some(examples, all_but(held, len(examples)), f"without {which}"), Some(examples, held, which)


def _rows_of_lines(examples: Examples, lines: np.ndarray) -> np.ndarray:
    """The rows of those of the sorted `lines` that the examples have, by bisection: there may be too many rows to look at all."""
    rows = np.zeros(len(lines), np.int64)  # how many rows are known to have a smaller line
    for bit in reversed(range(len(examples).bit_length())):
        further = np.minimum(rows + (1 << bit), len(examples))
        rows = np.where(examples.line[further - 1] < lines, further, rows)
    found = rows[rows < len(examples)]
    return found[examples.line[found] == lines[: len(found)]]


def _ragged(tokens: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return [row[:length].astype(np.int32) for row, length in zip(tokens, lengths.tolist(), strict=True)]


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
