"""Batches: a function of the step, every sentence once an epoch, little padding, the same batch however many processes share it."""

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.config import sized
from jax_sentemb.data import batches as batches_module
from jax_sentemb.data import epoch_order as module
from jax_sentemb.data import shuffle
from jax_sentemb.data.batches import BUCKETS, GROUP, Batches, RoundRobinBatches, bucket, common_widths, make_batches
from jax_sentemb.data.examples import RoundRobin
from jax_sentemb.data.tokens import Tokens, pad
from jax_sentemb.errors import DataError
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.recipes import read_config
from jax_sentemb.training.setup import prepare
from jax_sentemb.training.trainer import Trainer
from jax_sentemb.types import ROW_NUMBERS

pytestmark = pytest.mark.usefixtures("every_shape")
ORDER = [[909, 414, 1383, 1206], [1230, 234, 828, 513], [516, 1443, 1026, 357]]  # lines of steps 0, 1 and 200


def tokens_of(lengths, max_seq_length=None):
    """Row number r holds [CLS], r + 10 repeated, [SEP]; its line is 3 r."""
    lengths = np.array(lengths, np.int32)
    ids = np.concatenate([[2, *[row + 10] * (length - 2), 3] for row, length in enumerate(lengths)]).astype(np.uint16)
    rows = {"ids": ids, "starts": np.cumsum(lengths) - lengths, "lengths": lengths, "line": 3 * np.arange(len(lengths))}
    report = {"lines": len(lengths) + 7, "blank": 4, "duplicates": 3}
    return Tokens(rows, report, "", 0, max_seq_length or int(lengths.max()))


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


def test_widths_are_few_and_the_longest_is_the_limit(monkeypatch):
    monkeypatch.setattr(batches_module, "FIRST", 0)
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
    for part in ("9 usable", "16 lines", "4 blank", "3 equal to an earlier one", "data.batch_size=10", "lower it", "add text"):
        assert part in message
    assert Batches(tokens, 9, 0).steps_per_epoch == 1


def test_pad_and_bucket():
    rows = pad([np.array([5, 6]), np.array([], np.int32), np.array([7, 8, 9])], 3, 1)
    assert rows.tokens.tolist() == [[5, 6, 1], [1, 1, 1], [7, 8, 9]]
    assert rows.mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert [bucket(length, BUCKETS) for length in (1, 16, 17, 24, 25, 512)] == [16, 16, 24, 24, 32, 512]
    with pytest.raises(ValueError):
        bucket(513, BUCKETS)


@pytest.mark.parametrize(
    ("rows", "cost", "widths"),
    [
        ({16: 10, 24: 10, 32: 10}, 79, (16, 24, 32)),
        ({16: 10, 24: 10, 32: 10}, 80, (24, 32)),  # the rows of 16 tokens are padded to 24, and then they count there
        ({16: 10, 24: 10, 32: 10}, 160, (32,)),
        ({64: 1}, 1000, (64,)),
    ],
)
def test_widths_that_cost_less_than_a_compilation_are_left_out(rows, cost, widths):
    assert common_widths(rows, cost) == widths


def test_the_first_batches_have_no_rare_widths_and_the_same_rows(monkeypatch):
    monkeypatch.setattr(batches_module, "COMPILATION", 2000)
    lengths = [*[10] * 200, *[20] * 800, *[30] * 800, *[60] * 40]
    batches = Batches(tokens_of(lengths, 64), 40, 3)
    first, later = ({batches.at(step).tokens.shape[1] for step in steps} for steps in (range(32), range(32, 100)))
    assert (first, later) == ({24, 32, 64}, {16, 24, 32, 64})
    monkeypatch.setattr(batches_module, "FIRST", 0)
    usual = Batches(tokens_of(lengths, 64), 40, 3)
    for step in (0, 7, 31):
        assert rows_in(usual.at(step)) == rows_in(batches.at(step))


def random_batches(count=300, batch_size=15, grouping=1, **options):
    return Batches(tokens_of(drawn_lengths(count)), batch_size, 5, grouping, **options)


@pytest.mark.parametrize("path", ["whole", "group by group"])
def test_random_batches_are_the_random_order_of_the_epoch_as_it_is(path, request):
    if path != "whole":
        request.getfixturevalue("large")
    batches = random_batches(310)
    for epoch in (0, 3):
        drawn = np.random.Generator(np.random.Philox(key=[5, epoch])).permutation(310)
        order = drawn if path == "whole" else shuffle.permuted(np.arange(310), 310, (5, epoch))
        rows = [batches.rows(epoch * 20 + place) for place in range(20)]
        np.testing.assert_array_equal(rows, order[:300].reshape(20, 15))


@pytest.mark.parametrize("path", ["whole", "group by group"])
def test_in_random_batches_lengths_differ_as_in_the_corpus_and_all_meet(path, request):
    """Partners: with p = 14 / 299 a sentence has met 299 (1 - (1 - p)^60) = 282 others after 60 epochs."""
    if path != "whole":
        request.getfixturevalue("large")
    found = {grouping: seen(random_batches(grouping=grouping)) for grouping in (1, GROUP)}
    lengths = drawn_lengths(300)
    spread, partners = found[1]
    assert spread == pytest.approx(np.sqrt(14 / 15) * lengths.std(), rel=0.02)  # of samples of 15
    assert partners == pytest.approx(282, rel=0.01)
    spread, partners = found[GROUP]
    assert spread < 0.2 * lengths.std()
    assert partners < 100


def seen(batches):
    """Mean standard deviation of the lengths in a batch, mean number of others that a sentence met in 60 epochs."""
    met, spreads = np.zeros((300, 300), bool), []
    for epoch in range(60):
        rows = np.array([batches.rows(epoch * 20 + place) for place in range(20)])
        assert sorted(rows.ravel().tolist()) == list(range(300))
        met[rows[:, :, None], rows[:, None, :]] = True
        spreads.append(batches.tokens.lengths[rows].std(axis=1).mean())
    return np.mean(spreads), met.sum(axis=1).mean() - 1


CUTS = [(16, 1, (4, 8, 12)), (16, 8, (8,)), (12, 4, (4, 8)), (15, 1, (3, 7, 11)), (24, 3, (6, 12, 18))]


@pytest.mark.parametrize(("batch_size", "unit", "cuts"), CUTS)
def test_the_parts_of_a_random_batch_are_its_sentences_with_less_padding(batch_size, unit, cuts):
    batches = random_batches(batch_size=batch_size)
    batches.tokens.labels = lambda rows, epoch: rows.astype(np.float32)
    split = 0
    for step in range(20):
        whole, parts = batches.at(step), batches.parts(step, unit=unit)
        lengths, width = np.sort(whole.mask.sum(1)), whole.tokens.shape[1]
        room = [cut * bucket(int(lengths[cut - 1]), batches.buckets) + (batch_size - cut) * width for cut in cuts]
        assert sum(part.tokens.size for part in parts) == min(room)
        if len(parts) == 1:
            assert_same(parts[0], whole)
            continue
        split += 1
        assert len(parts[0].tokens) in cuts
        assert len(parts[1].tokens) == batch_size - len(parts[0].tokens)
        assert sorted(np.concatenate([part.position for part in parts]).tolist()) == list(range(batch_size))
        for part in parts:
            width = part.tokens.shape[1]
            assert width == bucket(int(part.mask.sum(1).max()), batches.buckets)
            np.testing.assert_array_equal(part.tokens, whole.tokens[part.position, :width])
            np.testing.assert_array_equal(part.mask, whole.mask[part.position, :width])
            np.testing.assert_array_equal(part.label, whole.label[part.position])
            np.testing.assert_array_equal(part.row, whole.row[part.position])
            assert not whole.mask[part.position, width:].any()
        assert parts[0].tokens.shape[1] < parts[1].tokens.shape[1] == whole.tokens.shape[1]
        assert parts[0].mask.sum(1).max() <= parts[1].mask.sum(1).min()
    assert split > 10


def test_the_shares_of_all_processes_are_the_parts():
    batches = random_batches(batch_size=16)
    for step in range(10):
        shares = [batches.parts(step, index, 4, unit=8) for index in range(4)]
        together = jax.tree.map(lambda *sides: np.concatenate(sides), *shares)
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(batches.parts(step, unit=8)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_parts_have_few_shapes_and_need_much_less_room():
    batches = Batches(tokens_of(drawn_lengths(20_000, 64), 64), 32, 0, 1)
    parts = [batches.parts(step) for step in range(batches.steps_per_epoch)]
    room = sum(part.tokens.size for of_batch in parts for part in of_batch)
    assert room < 0.7 * sum(batches.at(step).tokens.size for step in range(batches.steps_per_epoch))
    shapes = {tuple(part.tokens.shape for part in of_batch) for of_batch in parts}
    assert len(shapes) <= 12  # each is a compilation


def test_sorted_and_ordered_batches_and_those_that_cannot_be_divided_come_whole():
    assert all(len(random_batches(grouping=grouping).parts(step)) == 1 for grouping in (2, GROUP) for step in range(20))
    batches = random_batches(batch_size=16)
    assert all(len(batches.parts(step, unit=16)) == 1 for step in range(10))
    tokens = tokens_of(drawn_lengths(300))
    tokens.ordered = True
    ordered, sorted_too = (Batches(tokens, 15, 5, grouping) for grouping in (1, GROUP))
    for step in range(20):
        assert (np.diff(ordered.rows(step)) == 1).all()
        assert ordered.rows(step).tolist() == sorted_too.rows(step).tolist()
        assert len(ordered.parts(step)) == 1


def test_a_batch_says_which_rows_it_has_in_numbers_that_stay_small(monkeypatch):
    batches = random_batches()
    assert batches.at(3).row.dtype == np.int32
    assert batches.at(3).row.tolist() == batches.rows(3).tolist()
    monkeypatch.setattr(batches_module, "ROW_NUMBERS", 7)
    assert batches.at(3).row.tolist() == (batches.rows(3) % 7).tolist()
    assert np.arange(ROW_NUMBERS - 9, ROW_NUMBERS).astype(np.float32).astype(int)[-1] == ROW_NUMBERS - 1  # exact in float32


def test_the_recipes_of_conssent_have_random_batches_the_others_sorted_ones():
    for path in sorted((Path(__file__).parents[1] / "configs").glob("*.py")):
        for size in ("", ":tiny"):
            config = read_config(f"{path}{size}")
            assert config.data.length_grouping == (1 if isinstance(config.method, ConsSent) else GROUP)
        if isinstance(config.method, ConsSent):
            config.data.length_grouping = 2
            assert sized(config, "tiny").data.length_grouping == 2


def test_all_batches_of_a_run_are_grouped_as_it_says(tmp_path):
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'cons_sent_multitask.py'}:tiny")
    spread = {}
    for config.data.length_grouping in (1, 4):
        material = prepare(config, tmp_path)
        for name, batches in (("trained", material.batches), ("held out", material.validation)):
            lengths = [batches.at(step).mask.any(1).sum(-1) if batches.at(step).mask.ndim == 3 else batches.at(step).mask.sum(-1)
                       for step in range(min(batches.steps_per_epoch, 24))]  # fmt: skip
            spread[name, config.data.length_grouping] = np.mean([some.std() for some in lengths])
    assert spread["trained", 4] < 0.8 * spread["trained", 1]
    assert spread["held out", 4] != spread["held out", 1]


def test_a_run_trains_on_the_two_widths_of_a_random_batch(tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"w{number} " * (3 + number % 2 * 30) + "\n" for number in range(40)))
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'simcse.py'}:tiny")
    config.data.files, config.data.max_seq_length, config.eval.data = str(tmp_path / "corpus.txt"), 64, ""
    widths = {}
    for config.data.length_grouping in (1, 5):
        with Trainer(config, tmp_path / f"run{config.data.length_grouping}") as session:
            widths[config.data.length_grouping] = {len(session._batch(step)) for step in range(5)}
    assert widths == {1: {2}, 5: {1}}


class Epochs:
    """Rows whose ids and labels are the epoch that they are asked for."""

    def __init__(self, count):
        self.line, self.lengths = np.arange(count), np.array([3, 9] * (count // 2))
        self.report, self.fingerprint, self.pad_id, self.max_seq_length = {}, "", 0, 24

    def __len__(self):
        return len(self.line)

    def texts(self, rows, epoch):
        return [[np.full(self.lengths[row], epoch + 1) for row in rows]]

    def labels(self, rows, epoch):
        return np.full(len(rows), epoch, np.float32)


@pytest.mark.parametrize("grouping", [1, GROUP])
def test_each_epoch_asks_for_its_own_texts_and_labels(grouping):
    drawn = Batches(Epochs(20), 4, 0, grouping)
    for step, epoch in ((0, 0), (4, 0), (5, 1), (14, 2)):
        for part in (drawn.at(step), drawn.at(step, 1, 2), *drawn.parts(step)):
            assert set(part.tokens[part.mask].tolist()) == {epoch + 1}
            assert set(part.label.tolist()) == {epoch}


def test_batches_in_turn_go_through_every_kind_batch_by_batch():
    kinds = [Batches(tokens_of([5] * count), 2, seed) for seed, count in enumerate((8, 6, 7))]
    drawn = RoundRobinBatches(kinds)
    assert drawn.steps_per_epoch == 9
    for step in range(20):
        kind, number = kinds[step % 3], step // 3
        assert_same(drawn.at(step), kind.at(number))
        assert_same(drawn.at(step, 1, 2), kind.at(number, 1, 2))
        assert_same(drawn.parts(step)[0], kind.parts(number)[0])
        assert drawn.lines(step).tolist() == kind.lines(number).tolist()


def test_kinds_in_turn_are_drawn_in_different_orders():
    one = tokens_of([5] * 40)
    first, second = (make_batches(RoundRobin([one, one]), 4, 0).lines(step) for step in (0, 1))
    assert first.tolist() != second.tolist()
