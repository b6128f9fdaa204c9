"""A corpus of which each process has a part: every row once, one width in all processes, and little padding."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_batches import drawn_lengths, tokens_of

from jax_sentemb.config import Data
from jax_sentemb.data import batches as batches_module
from jax_sentemb.data import divided as module
from jax_sentemb.data.batches import Batches, make_batches
from jax_sentemb.data.divided import Part
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.training.setup import own_data

pytestmark = pytest.mark.usefixtures("every_shape")


def parts_of(examples):
    """The parts as processes make them that run at once; a thread for each."""
    arrays, everyone = [None] * len(examples), threading.Barrier(len(examples))

    def make(number):
        def gather(values):
            arrays[number] = values
            everyone.wait(timeout=10)
            found = np.stack(arrays)
            everyone.wait(timeout=10)
            return found

        try:
            return Part(examples[number], number, gather)
        except BaseException:
            everyone.abort()
            raise

    with ThreadPoolExecutor(len(examples)) as pool:
        return list(pool.map(make, range(len(examples))))


def divided_batches(counts, batch_size, grouping=32, longest=32):
    examples = [tokens_of(drawn_lengths(count, longest, seed), longest) for seed, count in enumerate(counts)]
    return examples, [make_batches(part, batch_size, 5, grouping) for part in parts_of(examples)]


def rows_in(batches):
    """The row numbers in batches of `tokens_of`."""
    return [row for batch in batches for row in (batch.tokens[:, 1] - 10).tolist()]


@pytest.mark.parametrize(("grouping", "first"), [(1, 0), (32, 0), (32, 32)])
def test_every_row_of_every_part_comes_once_an_epoch_in_batches_of_one_width(grouping, first, monkeypatch):
    monkeypatch.setattr(batches_module, "FIRST", first)
    examples, batches = divided_batches([300, 300, 300], 45, grouping)
    orders = []
    for epoch in range(2):
        steps = range(epoch * 20, epoch * 20 + 20)
        shares = [[of_process.at(step) for step in steps] for of_process in batches]
        for tokens, of_process in zip(examples, shares, strict=True):
            assert sorted(rows_in(of_process)) == list(range(300))
            for batch in of_process:
                np.testing.assert_array_equal(batch.mask.sum(1), tokens.lengths[rows_in([batch])])
        for at_once in zip(*shares, strict=True):
            longest = max(batch.mask.sum(1).max() for batch in at_once)
            usual = 16 if longest <= 16 else 24 if longest <= 24 else 32
            expected = 32 if first and epoch == 0 else usual  # the first 32 batches are not worth another program
            if epoch == 0 or not first:
                assert {batch.tokens.shape for batch in at_once} == {(15, expected)}
            numbers = np.concatenate([batch.row for batch in at_once])
            assert len(set(numbers.tolist())) == 45
        orders.append(rows_in(shares[0]))
    assert orders[0] != orders[1]


def test_an_epoch_is_one_of_the_smallest_part_and_the_rest_of_the_others_comes_in_later_ones():
    _, batches = divided_batches([100, 40], 8)
    assert [of_process.steps_per_epoch for of_process in batches] == [10, 10]
    seen = [set(rows_in(of_process.at(step) for step in range(200))) for of_process in batches]
    assert seen == [set(range(100)), set(range(40))]
    assert len(set(rows_in(batches[0].at(step) for step in range(10)))) == 40


def test_parts_are_the_batch_with_less_padding_in_all_processes():
    _, batches = divided_batches([320, 320], 32, grouping=1, longest=64)
    split = 0
    for step in range(20):
        whole = [of_process.at(step) for of_process in batches]
        parts = [of_process.parts(step, number, 2, unit=8) for number, of_process in enumerate(batches)]
        assert len(parts[0]) == len(parts[1])
        if len(parts[0]) == 1:
            continue
        split += 1
        for both in zip(*parts, strict=True):
            assert both[0].tokens.shape == both[1].tokens.shape
            assert 2 * len(both[0].tokens) % 8 == 0
        room = sum(part.tokens.size for of_process in parts for part in of_process)
        assert room < sum(batch.tokens.size for batch in whole)
        places = np.concatenate([part.position for of_process in parts for part in of_process])
        assert sorted(places.tolist()) == list(range(32))
        for number, of_process in enumerate(parts):
            for part in of_process:
                own, width = part.position - 16 * number, part.tokens.shape[1]
                np.testing.assert_array_equal(part.tokens, whole[number].tokens[own, :width])
                np.testing.assert_array_equal(part.row, whole[number].row[own])
                assert not whole[number].mask[own, width:].any()
    assert split > 10


def test_sorted_batches_of_all_parts_are_about_equally_long():
    """Else each batch would be as wide as the longest of four random batches; parts differ in size, it is not the first epoch."""
    _, batches = divided_batches([5000, 4200, 4800, 4400], 64, longest=64)
    epoch = range(batches[0].steps_per_epoch, 2 * batches[0].steps_per_epoch)
    alone = Batches(tokens_of(drawn_lengths(20_000, 64), 64), 64, 5)
    divided, whole = (
        1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)
        for masks in (
            [of_process.at(step).mask for of_process in batches for step in epoch],
            [alone.at(step).mask for step in range(alone.steps_per_epoch)],
        )
    )
    assert divided < whole + 0.05 < 0.3


def test_the_lengths_of_all_rows_arrive_in_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)
    examples = [tokens_of(drawn_lengths(count, 300, count), 300) for count in (5, 14, 23)]
    for part in parts_of(examples):
        for tokens, lengths in zip(examples, part.all_lengths, strict=True):
            np.testing.assert_array_equal(lengths, tokens.lengths)


def test_report_and_fingerprint_are_those_of_all_parts():
    examples = [tokens_of([4, 6, 8], 32), tokens_of([20, 20, 20, 20, 20], 32)]
    for number, tokens in enumerate(examples):
        tokens.fingerprint = f"text {number}"
    first, second = parts_of(examples)
    assert first.report == second.report
    assert (first.report["lines"], first.report["blank"], first.report["median_tokens"]) == (3 + 7 + 5 + 7, 8, 20)
    assert first.report["mean_tokens"] == pytest.approx(118 / 8, abs=0.06)
    assert (first.total, len(first), len(second)) == (8, 3, 5)
    assert first.fingerprint == second.fingerprint
    for others in (examples[::-1], examples[:1], [*examples, examples[0]]):
        assert parts_of(others)[0].fingerprint != first.fingerprint


def test_a_process_takes_its_files_and_at_least_its_share_of_the_sentences():
    data = Data(files="text-{process}.txt", subset=3, validation=5)
    own = own_data(data, 4)
    assert (own.files, own.subset, own.validation) == ("text-0.txt", 1, 2)
    assert own_data(Data(files="{process}", subset=0.5), 4).subset == 0.5
    assert own_data(data, 1) is data


def test_parts_that_cannot_be_divided_are_refused_in_one_line():
    ordered = tokens_of([5] * 9)
    ordered.ordered = True
    with pytest.raises(ConfigError, match=r"data.files has \{process\}, but its batches are consecutive sentences"):
        parts_of([ordered])
    few = parts_of([tokens_of([5] * 9), tokens_of([5] * 3)])
    with pytest.raises(DataError, match=r"have 9, 3 usable examples, and each process gives 4 to a batch: lower data.batch_size"):
        make_batches(few[0], 8, 0)
    with pytest.raises(DataError, match=r"data\.batch_size=7 is not a multiple of the 2 parts"):
        make_batches(few[0], 7, 0)
