"""Sentences beside a copy with a masked span: pure in seed, row and epoch; one mask; the rest of the string as it was."""

import numpy as np
import pytest

from jax_sentemb.data.batches import Batches
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import SpanMasked
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize
from jax_sentemb.errors import DataError

SENTENCES = [
    "a short one",
    "the quick brown fox jumps over the lazy dog",
    "nobody was surprised that the report said nothing at all",
    "twenty-nine characters in here",
    "a sentence that is much longer than the limit of tokens can ever hold because it goes on and on and on and on",
    "exactly these words are here!",
]
SPAN, LENGTH = 5, 32


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("".join(sentence + "\n" for sentence in SENTENCES))
    sentences = open_corpus(str(folder / "a.txt"))
    tokenizer = Tokenizer.train(SENTENCES * 3, 150)
    return tokenize(sentences, tokenizer, LENGTH, folder / "cache"), sentences, tokenizer


def masked(material, seed=0):
    return SpanMasked(*material, SPAN, seed)


ROWS = np.arange(len(SENTENCES))


def test_the_first_text_is_the_sentence_and_the_second_has_one_mask_in_it(material):
    tokens, _, tokenizer = material
    examples = masked(material)
    assert len(examples) == len(SENTENCES)
    for epoch in range(30):
        plain, copies = examples.texts(ROWS, epoch)
        for row, (whole, copy) in enumerate(zip(plain, copies, strict=True)):
            assert whole.tolist() == tokens.ids(row).tolist()
            assert (copy[0], copy[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
            assert len(copy) <= examples.lengths[row] <= LENGTH
            if len(SENTENCES[row]) < SpanMasked.SHORTEST:
                assert copy.tolist() == whole.tolist()
            elif row != 4:  # there the mask can lie behind the limit
                assert (copy == tokenizer.mask_id).sum() == 1


def test_what_stays_is_the_string_without_the_span(material):
    tokenizer = material[2]
    examples = masked(material)
    row, text, seen = 1, SENTENCES[1], set()
    for epoch in range(60):
        copy = examples.texts(np.array([row]), epoch)[1][0].tolist()
        starts = []
        for start in range(len(text) - SPAN + 1):
            left, right = tokenizer.encode([text[:start], text[start + SPAN :]], LENGTH)[0]
            whole = [*left[:-1].tolist(), tokenizer.mask_id, *right[1:].tolist()]
            if (whole if len(whole) <= examples.lengths[row] else [*whole[: examples.lengths[row] - 1], tokenizer.sep_id]) == copy:
                starts.append(start)
        assert starts
        seen.update(starts)
    assert min(seen) <= 2  # both ends of the string are reached
    assert max(seen) >= len(text) - SPAN - 2


def test_a_copy_depends_on_seed_row_and_epoch_alone(material):
    examples = masked(material)
    together = examples.texts(ROWS, 3)[1]
    backwards = examples.texts(ROWS[::-1], 3)[1][::-1]
    alone = [examples.texts(np.array([row]), 3)[1][0] for row in ROWS]
    for one, two, three in zip(together, backwards, alone, strict=True):
        assert one.tolist() == two.tolist() == three.tolist()
    long = np.array([1, 2, 3])
    for other in (examples.texts(long, 4)[1], masked(material, seed=1).texts(long, 3)[1]):
        assert any(one.tolist() != two.tolist() for one, two in zip(examples.texts(long, 3)[1], other, strict=True))


def test_batches_hold_both_texts_and_no_label(material):
    batch = Batches(masked(material), 3, 0).at(0)
    assert batch.tokens.shape == batch.mask.shape == (3, 2, batch.tokens.shape[-1])
    assert batch.label is None
    again = Batches(masked(material), 3, 0).at(0)
    np.testing.assert_array_equal(batch.tokens, again.tokens)


def test_the_fingerprint_knows_the_span(material):
    assert masked(material).fingerprint != SpanMasked(*material, 7, 0).fingerprint


def test_a_text_that_is_edited_ends_the_run_and_one_that_is_touched_does_not(tmp_path):
    file = tmp_path / "a.txt"
    text = "".join(sentence + "\n" for sentence in SENTENCES)
    file.write_text(text)
    sentences, tokenizer = open_corpus(str(file)), Tokenizer.train(SENTENCES * 3, 150)
    examples = SpanMasked(tokenize(sentences, tokenizer, LENGTH, tmp_path / "cache"), sentences, tokenizer, SPAN, 0)
    before = examples.texts(ROWS, 0)[1]
    file.touch()
    file.rename(tmp_path / "b.txt")
    for old, new in zip(before, examples.texts(ROWS, 0)[1], strict=True):
        np.testing.assert_array_equal(old, new)
    with (tmp_path / "b.txt").open("r+") as opened:  # in place, with as many bytes and the same length of every line
        opened.write(text.replace("quick", "wrong"))
    with pytest.raises(DataError, match=r"a\.txt changed while it was read"):
        examples.texts(ROWS, 1)


def test_a_text_that_is_edited_and_restored_while_a_batch_is_read_is_read_again(tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    text = "".join(sentence + "\n" for sentence in SENTENCES)
    file.write_text(text)
    sentences, tokenizer = open_corpus(str(file)), Tokenizer.train(SENTENCES * 3, 150)
    examples = SpanMasked(tokenize(sentences, tokenizer, LENGTH, tmp_path / "cache"), sentences, tokenizer, SPAN, 0)
    expected, halves = examples.texts(ROWS, 0)[1], examples._halves

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
    for old, new in zip(expected[1:], examples.texts(ROWS[1:], 0)[1], strict=True):
        np.testing.assert_array_equal(old, new)
