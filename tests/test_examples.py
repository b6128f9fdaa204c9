"""What methods read: a sentence beside a copy with a masked span, and labelled pairs, alone and in batches."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.data.batches import Batches
from jax_sentemb.data.copies import SpanMasked, TokensDeleted, WordRepeated
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import NeighbourPairs, train_validation_split
from jax_sentemb.data.pairs import LabelledPairs, PairTokens, read_pairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Tokens, tokenize
from jax_sentemb.errors import DataError

LINES = [
    "a short one",
    "the quick brown fox jumps over the lazy dog",
    "a short one",  # left out: a row is not a line
    "nobody was surprised that the report said nothing at all",
    "exactly thirty characters here",
    "twenty-nine characters here!!",
    "extraordinarily uncharacteristic misunderstandings",
]
ROWS = [line for number, line in enumerate(LINES) if number != 2]
MASKED = [1, 2, 3, 5]  # rows of 30 characters and more
ALL = np.arange(len(ROWS))
SPAN, LENGTH, SEED = 5, 32, 7
TOKENIZER = Tokenizer.train(LINES * 3, 150)
PAIRS = LabelledPairs(
    ["a fox", "the dog", "a report", "one"],
    ["a dog jumps over", "lazy", "nobody said", "fox"],
    np.float32([1, 0, 2, 1]),
    0,
    range(4),
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """SpanMasked(span, seed) over LINES, whose tokens are cut to `length`."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("".join(line + "\n" for line in LINES))
    sentences = open_corpus(str(folder / "a.txt"))

    def make(span=SPAN, seed=SEED, length=LENGTH):
        return SpanMasked(tokenize(sentences, TOKENIZER, length, folder / "cache"), sentences, TOKENIZER, span, seed)

    return make


def lists(texts):
    return [[ids.tolist() for ids in side] for side in texts]


def copies(examples, rows, epoch):
    return lists(examples.texts(np.array(rows), epoch))[1]


def start_of(row, epoch, seed=SEED):
    """Where the span begins: counter-based, so a run that goes on masks the same characters."""
    random = np.random.Generator(np.random.Philox(key=[seed, row], counter=[epoch, 0, 0, 0]))
    return int(random.integers(len(ROWS[row]) - SPAN + 1))


def test_a_copy_is_the_string_without_the_span_and_one_mask_between_the_halves(examples):
    made, cut = examples(), 0
    assert made.line.tolist() == [0, 1, 3, 4, 5, 6]
    for epoch in range(40):
        plain, masked = lists(made.texts(ALL, epoch))
        assert plain == [ids.tolist() for ids in TOKENIZER.encode(ROWS, LENGTH)[0]]
        for row in MASKED:
            text, start, room = ROWS[row], start_of(row, epoch), made.lengths[row] - 2
            left, right = (ids[1:-1].tolist() for ids in TOKENIZER.encode([text[:start], text[start + SPAN :]], LENGTH)[0])
            inner = [*left, TOKENIZER.mask_id, *right]
            assert masked[row] == [TOKENIZER.cls_id, *inner[:room], TOKENIZER.sep_id]
            assert masked[row].count(TOKENIZER.mask_id) == 1
            assert TOKENIZER.mask_id not in plain[row]
            cut += len(inner) > room
    assert cut > 0  # some copies grow by more than there is room for


def test_sentences_of_less_than_thirty_characters_stay_as_they_are(examples):
    assert [len(ROWS[row]) for row in (3, 4)] == [30, 29]
    for epoch in range(10):
        plain, masked = lists(examples().texts(ALL, epoch))
        assert [row for row in ALL if plain[row] != masked[row]] == MASKED


def test_a_sentence_that_is_no_longer_than_the_span_stays_as_it_is(examples):
    plain, masked = lists(examples(span=len(ROWS[1])).texts(np.array([1, 5]), 0))
    assert [one == other for one, other in zip(plain, masked, strict=True)] == [True, False]


def test_copies_are_pure_in_seed_row_and_epoch_whatever_else_is_asked_for(examples):
    made = examples()
    together = copies(made, ALL, 3)
    copies(made, ALL, 4)
    assert copies(made, ALL[::-1], 3) == together[::-1]
    assert [copies(made, [row], 3)[0] for row in ALL] == together
    assert copies(made, [2, 0, 2], 3) == [together[2], together[0], together[2]]
    assert copies(examples(), ALL, 3) == together


def test_other_epochs_and_seeds_mask_elsewhere(examples):
    one, other = examples(), examples(seed=SEED + 1)
    for row in MASKED:
        drawn = [copies(one, [row], epoch) for epoch in range(20)]
        assert len({str(masked) for masked in drawn}) > 8
        assert sum(masked == copies(other, [row], epoch) for epoch, masked in enumerate(drawn)) < 8


def test_a_copy_is_no_longer_than_its_row_says_and_ends_with_sep(examples):
    made, plain = examples(length=12), [len(ids) for ids in TOKENIZER.encode(ROWS, 12)[0]]
    assert list(made.lengths) == [min(length + 4, 12) for length in plain]
    for epoch in range(30):
        for limit, ids in zip(made.lengths, copies(made, ALL, epoch), strict=True):
            assert len(ids) <= limit
            assert (ids[0], ids[-1], ids.count(TOKENIZER.sep_id)) == (TOKENIZER.cls_id, TOKENIZER.sep_id, 1)


def test_a_prompt_stands_before_a_copy_once(examples, tmp_path):
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in LINES))
    prompted, sentences = TOKENIZER.with_prompt("report: "), open_corpus(str(tmp_path / "a.txt"))
    made = SpanMasked(tokenize(sentences, prompted, LENGTH, tmp_path / "cache"), sentences, prompted, SPAN, SEED)
    prefix = TOKENIZER.encode(["report:"], LENGTH)[0][0].tolist()[1:-1]
    for row, copy in zip(MASKED, copies(examples(), MASKED, 0), strict=True):
        expected = [copy[0], *prefix, *copy[1:-1]][: int(made.lengths[row]) - 1]
        assert copies(made, [row], 0)[0] == [*expected, copy[-1]]


def test_the_fingerprint_knows_the_span(examples):
    assert examples().fingerprint != examples(span=7).fingerprint


def test_a_text_that_is_edited_ends_the_run_and_one_that_is_touched_does_not(tmp_path):
    file = tmp_path / "a.txt"
    text = "".join(line + "\n" for line in ROWS)
    file.write_text(text)
    sentences = open_corpus(str(file))
    examples = SpanMasked(tokenize(sentences, TOKENIZER, LENGTH, tmp_path / "cache"), sentences, TOKENIZER, SPAN, 0)
    before = examples.texts(ALL, 0)[1]
    file.touch()
    file.rename(tmp_path / "b.txt")
    for old, new in zip(before, examples.texts(ALL, 0)[1], strict=True):
        np.testing.assert_array_equal(old, new)
    with (tmp_path / "b.txt").open("r+") as opened:  # in place, with as many bytes and the same length of every line
        opened.write(text.replace("quick", "wrong"))
    with pytest.raises(DataError, match=r"a\.txt changed while it was read"):
        examples.texts(ALL, 1)


def test_a_text_that_is_edited_and_restored_while_a_batch_is_read_is_read_again(tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    text = "".join(line + "\n" for line in ROWS)
    file.write_text(text)
    sentences = open_corpus(str(file))
    examples = SpanMasked(tokenize(sentences, TOKENIZER, LENGTH, tmp_path / "cache"), sentences, TOKENIZER, SPAN, 0)
    expected, halves = examples.texts(ALL, 0)[1], examples._halves

    def write(content):
        with file.open("r+") as opened:
            opened.write(content)

    def disturbed(row, epoch):  # sentence 1, which the first row of the batch has, is read while it is another
        monkeypatch.setattr(examples, "_halves", halves)
        write(text.replace("quick", "wrong"))
        found = halves(1, epoch)
        write(text)
        return found

    monkeypatch.setattr(examples, "_halves", disturbed)
    for old, new in zip(expected[1:], examples.texts(ALL[1:], 0)[1], strict=True):
        np.testing.assert_array_equal(old, new)


def test_batches_hold_both_texts_of_their_rows_and_epoch(examples):
    made = examples()
    batches = Batches(made, 3, 0, buckets=(4, 8, 16))
    for step in range(4):  # two epochs
        batch, rows = batches.at(step), batches.rows(step)
        assert batch.tokens.shape == batch.mask.shape == (3, 2, batch.tokens.shape[-1])
        assert batch.label is None
        held = [[ids[mask].tolist() for ids, mask in zip(*row, strict=True)] for row in zip(*batch[:2], strict=True)]
        plain, masked = lists(made.texts(rows, step // 2))
        assert held == [list(both) for both in zip(plain, masked, strict=True)]


@settings(max_examples=100, deadline=None)
@given(count=st.integers(2, 300), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_held_out_rows_are_a_random_part_and_the_others_are_all_the_rest(count, share, seed):
    kept = np.sort(np.random.default_rng(seed).choice(3 * count, count, replace=False))
    rows = {"ids": np.zeros(0, np.uint16), "line": kept, "lengths": np.arange(count, dtype=np.int32), "starts": np.arange(count)}
    whole, held_count = Tokens(rows, {}, "known", 0, 8), min(int(share * count) + 1, count - 1)
    rest, held = train_validation_split(whole, held_count, seed)
    lines = np.random.Generator(np.random.Philox(seed)).choice(kept, held_count, replace=False)
    out = np.isin(kept, lines)
    for part, chosen in ((rest, ~out), (held, out)):
        assert len(part) == chosen.sum()
        assert list(part.line) == kept[chosen].tolist()
        assert part.lengths[np.arange(len(part))].tolist() == np.flatnonzero(chosen).tolist()
    assert len({whole.fingerprint, rest.fingerprint, held.fingerprint}) == 3


def test_what_is_held_out_decides_the_fingerprint(examples):
    assert len({part.fingerprint for seed in range(20) for part in train_validation_split(examples(), 2, seed)}) > 10
    assert train_validation_split(examples(), 2, 3)[0].fingerprint == train_validation_split(examples(), 2, 3)[0].fingerprint


@pytest.mark.parametrize("joined", [False, True])
def test_batches_of_pairs_hold_their_labels(joined, every_shape):
    pairs = PairTokens(PAIRS, TOKENIZER, LENGTH, joined)
    batches = Batches(pairs, 2, 0)
    seen = []
    for step in range(2):
        batch, rows = batches.at(step), batches.rows(step)
        assert batch.tokens.shape == batch.mask.shape == ((2, 16) if joined else (2, 2, 16))
        assert (batch.label.dtype, batch.label.tolist()) == (np.float32, PAIRS.labels[rows].tolist())
        assert batch.mask.reshape(2, -1, batch.mask.shape[-1]).sum(-1).max(1).tolist() == pairs.lengths[rows].tolist()
        held = [ids[mask].tolist() for ids, mask in zip(*batch.rows, strict=True)]
        for side, texts in enumerate(lists(pairs.texts(rows, 0))):
            assert held[side :: 1 if joined else 2] == texts
        seen += rows.tolist()
    assert sorted(seen) == [0, 1, 2, 3]


def test_the_fingerprint_of_pairs_stands_for_texts_labels_tokenizer_and_length():
    other = Tokenizer.train(LINES, 90)
    made = [
        PairTokens(PAIRS, TOKENIZER, 12),
        PairTokens(PAIRS, TOKENIZER, 11),
        PairTokens(PAIRS, TOKENIZER, 12, joined=True),
        PairTokens(PAIRS, other, 12),
        PairTokens(PAIRS._replace(labels=np.float32([1, 0, 2, 0])), TOKENIZER, 12),
        PairTokens(PAIRS._replace(first=PAIRS.second, second=PAIRS.first), TOKENIZER, 12),
        PairTokens(PAIRS._replace(second=["a dog", *PAIRS.second[1:]]), TOKENIZER, 12),
    ]
    assert len({pairs.fingerprint for pairs in made}) == len(made)
    assert PairTokens(PAIRS, TOKENIZER, 12).fingerprint == made[0].fingerprint


def test_a_bad_row_of_pairs_is_named_with_file_and_line_in_every_kind_of_file(tmp_path):
    rows = [("a", "b", "Neutral"), ("c", "d", "-"), ("e", "f", "perhaps")]
    keys = ("sentence1", "sentence2", "label")
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in [keys, *rows]))
    lines = "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for name, line in (("a.csv", 4), ("a.jsonl.gz", 3)):
        with pytest.raises(DataError, match=rf"{name} line {line}: label 'perhaps' is not one of neutral, other") as caught:
            read_pairs(str(tmp_path / name), ("neutral", "other"))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"), [("a.tsv", "no column 'sentence1', only none"), ("a.jsonl", "none of the 0 rows is a pair")]
)
def test_an_empty_file_has_no_pairs(tmp_path, name, says):
    (tmp_path / name).write_text("")
    with pytest.raises(DataError, match=says):
        read_pairs(str(tmp_path / name))


def test_of_an_ordered_corpus_the_last_sentences_are_held_out_and_labels_stay_with_their_rows():
    pairs = PairTokens(PAIRS, TOKENIZER, LENGTH, False)
    pairs.ordered = True
    rest, held = train_validation_split(pairs, 2, 0)
    both = np.arange(2)
    assert rest.labels(both, 0).tolist() == [1, 0]
    assert held.labels(both, 0).tolist() == [2, 1]
    assert lists(held.texts(both, 0)) == lists(pairs.texts(both + 2, 0))
    assert lists(rest.texts(both, 0)) == lists(pairs.texts(both, 0))


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """WordRepeated(rate, seed) over LINES, whose tokens are cut to `length`."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("".join(line + "\n" for line in [*LINES, "on"]))
    sentences = open_corpus(str(folder / "a.txt"))
    return lambda rate=0.32, seed=SEED, length=LENGTH: WordRepeated(
        tokenize(sentences, TOKENIZER, length, folder / "cache"), rate, seed
    )


def without_repetitions(copy, plain):
    """Whether `copy` is `plain` in which some tokens, never the first or the last, stand twice; and how many do."""
    place, twice = 0, []
    for number, token in enumerate(plain):
        times = 2 if copy[place : place + 2] == [token, token] and len(copy) - place > len(plain) - number else 1
        twice += [number] * (times - 1)
        if copy[place : place + times] != [token] * times:
            return None
        place += times
    return twice if place == len(copy) else None


def test_a_copy_repeats_at_most_a_third_of_its_tokens_in_place(repeated):
    made, counts = repeated(), {row: set() for row in range(7)}
    for epoch in range(60):
        plain, copied = lists(made.texts(np.arange(7), epoch))
        assert plain == [ids.tolist() for ids in TOKENIZER.encode([*ROWS, "on"], LENGTH)[0]]
        for row, (copy, whole) in enumerate(zip(copied, plain, strict=True)):
            twice = without_repetitions(copy, whole)
            assert twice is not None
            assert not {0, len(whole) - 1} & set(twice)
            assert len(copy) <= made.lengths[row]
            counts[row].add(len(twice))
    for row, seen in counts.items():
        words = int(made.lengths[row] - len(plain[row]))
        inner = len(plain[row]) - 2
        assert words == min(max(2, int(0.32 * inner)), inner)
        assert seen == set(range(words + 1))  # every number from none to the most


def test_repeated_words_are_pure_in_seed_row_and_epoch(repeated):
    made = repeated()
    together = copies(made, ALL, 3)
    assert [copies(made, [row], 3)[0] for row in ALL] == together
    assert copies(made, ALL, 4) != together
    assert copies(repeated(seed=SEED + 1), ALL, 3) != together


def test_a_copy_keeps_its_ends_and_a_share_of_the_other_tokens_in_order(tmp_path):
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in [*LINES, "on"]))
    sentences = open_corpus(str(tmp_path / "a.txt"))
    examples = TokensDeleted(tokenize(sentences, TOKENIZER, LENGTH, tmp_path / "cache"), 0.6, SEED)
    kept, inner = 0, 0
    for epoch in range(60):
        plain, copied = lists(examples.texts(np.arange(7), epoch))
        for copy, whole in zip(copied, plain, strict=True):
            assert (copy[0], copy[-1]) == (whole[0], whole[-1])
            assert len(copy) >= min(len(whole), 3)  # a token between the ends stays
            rest = iter(whole)
            assert all(token in rest for token in copy)
            if len(whole) > 12:  # the token that always stays hardly counts
                kept, inner = kept + len(copy) - 2, inner + len(whole) - 2
    assert kept / inner == pytest.approx(0.4, abs=0.02)
    together = copies(examples, np.arange(7), 3)
    assert [copies(examples, [row], 3)[0] for row in range(7)] == together
    assert copies(examples, np.arange(7), 4) != together


def test_a_copy_that_grows_too_long_is_cut_and_ends_with_sep(repeated):
    made = repeated(rate=1.0, length=12)
    assert int(made.lengths[1]) == 12
    for epoch in range(20):
        for limit, ids in zip(made.lengths, copies(made, np.arange(7), epoch), strict=True):
            assert len(ids) <= limit
            assert (ids[0], ids[-1], ids.count(TOKENIZER.sep_id)) == (TOKENIZER.cls_id, TOKENIZER.sep_id, 1)


def test_the_fingerprint_knows_the_share_of_repeated_words(repeated):
    assert repeated(0.3).fingerprint != repeated(0.2).fingerprint


def neighbours(folder, text, length=LENGTH):
    """(pairs of line numbers, the examples) of a text whose lines are sentences."""
    (folder / "a.txt").write_text(text)
    sentences = open_corpus(str(folder / "a.txt"))
    tokens = tokenize(sentences, TOKENIZER, length, folder / "cache", ordered=True)
    return NeighbourPairs(tokens, sentences), tokens, sentences


@pytest.mark.parametrize("chunk", [2, 3, 1 << 18])
def test_neighbours_are_consecutive_sentences_of_one_document_each_in_one_pair(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(NeighbourPairs, "CHUNK", chunk)
    documents = [
        ["a one", "a two", "a three"],
        ["b one"],
        ["c one", "c two", "\x00", "c three", "c four"],
        ["d one", "d two", "d three"],
    ]
    made, tokens, sentences = neighbours(tmp_path, "\n".join("".join(line + "\n" for line in document) for document in documents))
    pairs = [tuple(sentences[int(tokens.line[row])] for row in (first, first + 1)) for first in made._first]
    assert pairs == [("a one", "a two"), ("c one", "c two"), ("c three", "c four"), ("d one", "d two")]
    assert [sentences[int(line)] for line in made.line] == [first for first, _ in pairs]
    assert (made.report["pairs of neighbours"], made.report["without a neighbour"]) == (4, 3)
    expected = [[ids.tolist() for ids in TOKENIZER.encode(list(side), LENGTH)[0]] for side in zip(*pairs, strict=True)]
    assert lists(made.texts(np.arange(4), 0)) == expected
    assert list(made.lengths) == [max(len(one), len(other)) for one, other in zip(*expected, strict=True)]
    assert made.fingerprint != tokens.fingerprint


def test_a_corpus_of_single_sentences_has_no_neighbours(tmp_path):
    with pytest.raises(DataError, match="no two consecutive sentences") as caught:
        neighbours(tmp_path, "one\n\nanother\n\na third\n")
    assert "\n" not in str(caught.value)
