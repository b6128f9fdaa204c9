"""Batches: a function of the step, every sentence once an epoch, little padding, the same batch however many processes share it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.errors import DataError
from jax_sentemb.text import batches as module
from jax_sentemb.text import shuffle
from jax_sentemb.text.batches import BUCKETS, GROUP, Batches, bucket
from jax_sentemb.text.tokens import Tokens, pad

ORDER = [[909, 414, 1383, 1206], [1230, 234, 828, 513], [516, 1443, 1026, 357]]  # lines of steps 0, 1 and 200


def tokens_of(lengths, max_seq_length=None):
    """Row number r holds [CLS], r + 10 repeated, [SEP]; its line is 3 r."""
    lengths = np.array(lengths, np.int32)
    ids = np.concatenate([[2, *[row + 10] * (length - 2), 3] for row, length in enumerate(lengths)]).astype(np.uint16)
    rows = {"starts": np.cumsum(lengths) - lengths, "lengths": lengths, "line": 3 * np.arange(len(lengths))}
    report = {"lines": len(lengths) + 7, "blank": 4, "duplicates": 3}
    return Tokens(ids, rows, report, "", 0, max_seq_length or int(lengths.max()))


def drawn_lengths(count, longest=32, seed=0):
    return np.clip(np.random.default_rng(seed).lognormal(3, 0.5, count).astype(int), 3, longest)


def rows_in(rows):
    """The row numbers in a batch of `tokens_of`."""
    return (rows.tokens[:, 1] - 10).tolist()


@pytest.fixture
def large(monkeypatch):
    """As a corpus of which no memory holds the order; (epoch, places) that were permuted."""
    asked = []

    def permuted(places, count, key):
        asked.append((key[1], places.tolist()))
        return shuffle.permuted(places, count, key)

    monkeypatch.setattr(module, "WHOLE", 0)
    monkeypatch.setattr(module, "permuted", permuted)
    return asked


def assert_same(first, second):
    np.testing.assert_array_equal(first.tokens, second.tokens)
    np.testing.assert_array_equal(first.mask, second.mask)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(4, 300),
    batch_size=st.integers(2, 40),
    seed=st.integers(0, 2**63),
    ordered=st.booleans(),
    whole=st.sampled_from([0, module.WHOLE]),
)
def test_every_sentence_comes_at_most_once_an_epoch_and_never_twice_in_a_batch(count, batch_size, seed, ordered, whole):
    tokens = tokens_of(drawn_lengths(count))
    tokens.ordered = ordered
    if count < batch_size:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WHOLE", whole)
        check_epochs(Batches(tokens, batch_size, seed), count, batch_size, ordered)


def check_epochs(batches, count, batch_size, ordered):
    assert batches.steps_per_epoch == count // batch_size
    for epoch in range(2):
        seen = []
        for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
            rows = rows_in(batches.at(step))
            assert batches.lines(step).tolist() == [3 * row for row in rows]
            assert len(rows) == batch_size
            assert not ordered or (np.diff(rows) == 1).all()
            seen += rows
        assert len(seen) == len(set(seen)) == batches.steps_per_epoch * batch_size


def test_a_batch_is_a_function_of_tokens_seed_and_step():
    tokens = tokens_of(drawn_lengths(3000))
    forward = Batches(tokens, 16, 5)
    expected = [forward.at(step) for step in range(400)]
    fresh = Batches(tokens, 16, 5)
    for step in (399, 3, 200, 186, 187, 0, 374):
        assert_same(fresh.at(step), expected[step])
    assert sum((Batches(tokens, 16, 6).lines(step) == forward.lines(step)).mean() for step in range(10)) < 1
    epoch = forward.steps_per_epoch
    assert sum((forward.lines(step) == forward.lines(step + epoch)).mean() for step in range(10)) < 1


def test_the_order_of_a_seed_stays_what_it_was():
    """A checkpoint continues with the same batches on every platform and after every upgrade, or this turns red."""
    batches = Batches(tokens_of(drawn_lengths(500)), 4, 42)
    assert [batches.lines(step).tolist() for step in (0, 1, 200)] == ORDER


def test_a_batch_of_a_large_corpus_costs_the_same_at_any_step(large):
    tokens = tokens_of(drawn_lengths(5000))
    group = GROUP * 8
    for step in (10**6, 0, 3, 31, 32):
        batches = Batches(tokens, 8, 5)
        batches.at(step)
        epoch, place = divmod(step, batches.steps_per_epoch)
        start = place // GROUP * group
        assert large.pop() == (epoch, list(range(start, min(start + group, batches.steps_per_epoch * 8))))
        assert not large  # this group, and nothing else
        first = place // GROUP * GROUP - place  # of the group's steps, counted from this one
        for other in range(first, min(first + GROUP, batches.steps_per_epoch - place)):
            batches.at(step + other)
        assert not large


def test_a_large_corpus_has_an_order_for_each_epoch_and_seed_and_its_batches_have_any_length(large):
    tokens = tokens_of(drawn_lengths(3000))
    batches, other = Batches(tokens, 16, 5), Batches(tokens, 16, 6)
    steps, epoch = range(64), batches.steps_per_epoch
    for different in ([other.lines(step) for step in steps], [batches.lines(step + epoch) for step in steps]):
        assert sum((batches.lines(step) == lines).mean() for step, lines in zip(steps, different, strict=True)) < 1
    fresh = Batches(tokens, 16, 5)
    for step in (199, 3, 180, 0, 374):
        assert_same(fresh.at(step), batches.at(step))
    widths = np.array([batches.at(step).mask.shape[1] for step in range(epoch)])
    assert abs(np.corrcoef(widths, np.arange(epoch) % GROUP)[0, 1]) < 0.3  # short ones do not come first
    lengths = tokens.lengths[[batches.rows(step) for step in range(epoch)]]
    assert (lengths.max(1) - lengths.min(1)).mean() < 4  # of 3 to 32: batches of sentences of one length
    groups = lengths.mean(1)[: epoch // GROUP * GROUP].reshape(-1, GROUP)
    assert np.corrcoef(groups)[~np.eye(len(groups), dtype=bool)].max() < 0.7  # each group has its batches in another order
    shares = [np.concatenate([batches.at(7, index, 4).tokens[:, 1] for index in range(4)])]
    assert shares[0].tolist() == batches.at(7).tokens[:, 1].tolist()


def test_rows_are_right_padded_with_the_mask_on_the_tokens():
    tokens = tokens_of(drawn_lengths(64))
    rows = Batches(tokens, 16, 0).at(0)
    assert (rows.tokens.dtype, rows.mask.dtype) == (np.int32, np.bool_)
    for row, ids, mask in zip(rows_in(rows), rows.tokens, rows.mask, strict=True):
        length = tokens.lengths[row]
        assert ids.tolist() == tokens.ids(row).tolist() + [0] * (len(ids) - length)
        assert mask.tolist() == [True] * length + [False] * (len(ids) - length)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_the_shares_of_all_processes_are_the_global_batch(count):
    batches = Batches(tokens_of(drawn_lengths(300)), 16, 1)
    for step in range(batches.steps_per_epoch):
        shares = [batches.at(step, index, count) for index in range(count)]
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *shares)
        assert_same(together, batches.at(step))


def test_widths_are_few_and_the_longest_is_the_limit():
    batches = Batches(tokens_of(drawn_lengths(5000, 90), max_seq_length=90), 8, 0)
    assert batches.buckets == (16, 24, 32, 48, 64, 90)
    widths = set()
    for step in range(batches.steps_per_epoch):
        rows = batches.at(step)
        longest = int(rows.mask.sum(1).max())
        assert rows.tokens.shape[1] == bucket(longest, batches.buckets)
        widths.add(rows.tokens.shape[1])
    assert widths == {16, 24, 32, 48, 64, 90}
    assert Batches(tokens_of([5, 5], max_seq_length=12), 2, 0).at(0).tokens.shape == (2, 12)
    assert Batches(tokens_of([5, 5], max_seq_length=32), 2, 0, buckets=()).at(0).tokens.shape == (2, 32)


def test_little_of_a_batch_is_padding_though_its_sentences_are_drawn_from_many():
    lengths = drawn_lengths(20_000, 64)
    batches = Batches(tokens_of(lengths, 64), 32, 0)
    steps = range(batches.steps_per_epoch)
    masks = [batches.at(step).mask for step in steps]
    padding = 1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)
    drawn = np.random.default_rng(0).permutation(lengths)[: 32 * len(steps)].reshape(-1, 32)
    unsorted = 1 - drawn.sum() / sum(32 * bucket(int(longest), batches.buckets) for longest in drawn.max(1))
    assert padding < 0.22 < 0.45 < unsorted
    widths = np.array([mask.shape[1] for mask in masks])
    assert abs(np.corrcoef(widths[: GROUP * 10], np.arange(GROUP * 10))[0, 1]) < 0.2  # short ones do not come first


def test_fewer_sentences_than_a_batch_is_one_line_with_both_ways_out():
    tokens = tokens_of([5] * 9)
    with pytest.raises(DataError) as caught:
        Batches(tokens, 10, 0)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("9 usable", "16 lines", "4 blank", "3 duplicates", "data.batch_size=10", "lower it", "add text"):
        assert part in message
    assert Batches(tokens, 9, 0).steps_per_epoch == 1


def test_pad_and_bucket():
    rows = pad([np.array([5, 6]), np.array([], np.int32), np.array([7, 8, 9])], 3, 1)
    assert rows.tokens.tolist() == [[5, 6, 1], [1, 1, 1], [7, 8, 9]]
    assert rows.mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert [bucket(length, BUCKETS) for length in (1, 16, 17, 24, 25, 512)] == [16, 16, 24, 24, 32, 512]
    with pytest.raises(ValueError):
        bucket(513, BUCKETS)
