"""Crops: which packs of a document make a pair, in text with blank lines and in documents on one line; the loss against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import train_validation_split
from jax_sentemb.data.sentence_ends import split_sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.methods.crops import Crops, Packs
from jax_sentemb.settings import check_settings
from jax_sentemb.types import TrainState

torch = pytest.importorskip("torch")
DOCUMENTS = [
    [f"Document {document} sentence {number} ends." for number in range(count)] for document, count in enumerate((7, 2, 3, 11))
]
TOKENIZER = Tokenizer.train([sentence for sentences in DOCUMENTS for sentence in sentences] * 3, 120)
LENGTH = 40


def corpus(path, text, length=LENGTH):
    path.write_text(text)
    return Corpus(lambda pairs: (str(path), "text", ""), lambda lines: TOKENIZER, length)


@pytest.fixture(params=["blocks", "lines"])
def examples(request, tmp_path):
    """CropPairs of DOCUMENTS, written in each of the two ways."""
    join, between = ("\n", "\n\n") if request.param == "blocks" else (" ", "\n")
    text = between.join(join.join(sentences) for sentences in DOCUMENTS) + "\n"

    def make(sentences=2, shift=1, seed=0, length=LENGTH):
        return corpus(tmp_path / "a.txt", text, length).crops(sentences, shift, request.param, seed)

    return make


def packs(sentences=2, shift=1):
    """Every pair of packs of the documents that are long enough, as ids."""
    found = {}
    for document, text in enumerate(DOCUMENTS):
        for start in range(len(text) - sentences - shift + 1):
            pair = [" ".join(text[begin : begin + sentences]) for begin in (start, start + shift)]
            found[tuple(map(tuple, (ids.tolist() for ids in TOKENIZER.encode(pair, LENGTH)[0])))] = (document, start)
    return found


@pytest.mark.parametrize(("sentences", "shift"), [(1, 1), (2, 1)])
def test_no_sentence_that_is_held_out_is_trained_on(tmp_path, sentences, shift):
    documents = [[f"Document {document} sentence {number} ends." for number in range(30)] for document in range(3)]
    text = "\n\n".join("\n".join(lines) for lines in documents) + "\n"
    made = corpus(tmp_path / "a.txt", text).crops(sentences, shift, "blocks", 0)
    sentences_of = {}
    for document, lines in enumerate(documents):
        for start in range(31 - sentences):
            ids = TOKENIZER.encode([" ".join(lines[start : start + sentences])], LENGTH)[0][0]
            sentences_of[tuple(ids.tolist())] = {(document, number) for number in range(start, start + sentences)}
    for seed in range(4):
        training, held_out = train_validation_split(made, 5, seed)
        assert len(held_out) == 5
        assert len(made) - 15 <= len(training) <= len(made) - 8
        read = [set(), set()]
        for part, found in zip((training, held_out), read, strict=True):
            for epoch in range(30):
                for side in part.texts(np.arange(len(part)), epoch):
                    found.update(*(sentences_of[tuple(ids.tolist())] for ids in side))
        assert not read[0] & read[1]


def test_too_many_held_out_pairs_leave_nothing_to_train_on(examples):
    with pytest.raises(DataError, match=r"data\.validation=5 leaves none of the 6 pairs"):
        train_validation_split(examples(2, 1), 5, 0)


@pytest.mark.parametrize(("sentences", "shift"), [(2, 1), (2, 2), (1, 1), (3, 1)])
def test_a_pair_is_two_packs_of_a_document_and_every_place_is_drawn(examples, sentences, shift):
    made, known = examples(sentences, shift), packs(sentences, shift)
    window = sentences + shift
    counts = [len(text) // window for text in DOCUMENTS]
    assert len(made) == sum(counts)
    rows, seen = np.arange(len(made)), set()
    for epoch in range(150):
        first, second = made.texts(rows, epoch)
        places = [known[tuple(one.tolist()), tuple(other.tolist())] for one, other in zip(first, second, strict=True)]
        assert [document for document, _ in places] == [document for document, count in enumerate(counts) for _ in range(count)]
        owner = [document for document, _ in places]
        neighbours = np.abs(np.subtract.outer(found := made.labels(rows, epoch), found)) == 1
        assert neighbours.tolist() == [[abs(a - b) == 1 and owner[a] == owner[b] for b in rows] for a in rows]
        seen |= set(places)
        for side in (first, second):
            assert all(len(ids) <= length for ids, length in zip(side, made.lengths[rows], strict=True))
    assert seen == {place for place in known.values() if counts[place[0]]}


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_lines_that_are_documents_are_not_read_as_one_document(tmp_path, end):
    """Otherwise neighbouring documents make the pairs."""
    text = "\n".join(" ".join(sentences) for sentences in DOCUMENTS) + "\n"
    with pytest.raises(DataError, match=r"^method\.documents=blocks: no blank line .* set method\.documents=lines$"):
        corpus(tmp_path / "a.txt", text + end).crops(1, 1, "blocks", 0)


def test_files_that_are_documents_need_no_blank_line(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n".join(" ".join(sentences) for sentences in DOCUMENTS) + "\n")
    files = f"{tmp_path}/a.txt,{tmp_path}/b.txt"
    assert len(Corpus(lambda pairs: (files, "text", ""), lambda lines: TOKENIZER, LENGTH).crops(1, 1, "blocks", 0))


def test_pairs_are_pure_in_seed_row_and_epoch(examples):
    made = examples()
    rows = np.arange(len(made))

    def lists(texts):
        return [[ids.tolist() for ids in side] for side in texts]

    together = lists(made.texts(rows, 3))
    assert [lists(made.texts(np.array([row]), 3)) for row in rows] == [[[side[row]] for side in together] for row in rows]
    assert lists(made.texts(rows, 4)) != together
    assert lists(examples(seed=1).texts(rows, 3)) != together
    assert examples().fingerprint == made.fingerprint != examples(shift=2).fingerprint
    assert list(made.lengths) == list(made.lengths[:]) == list(made.lengths[rows])
    assert list(made.line) == sorted(made.line)


def test_short_documents_are_counted_and_a_pack_that_is_too_long_ends_with_sep(examples):
    made = examples()
    assert made.report["documents"] == 4
    assert made.report["too short"] == 1  # of two sentences
    assert made.report["pairs of packs"] == len(made) == 2 + 1 + 3
    cut = examples(length=9)
    for side in cut.texts(np.arange(len(cut)), 0):
        assert {len(ids) for ids in side} == {9}
        assert {int(ids[-1]) for ids in side} == {TOKENIZER.sep_id}
    with pytest.raises(DataError, match=r"has no document of 13 sentences .*: lower .*method\.sentences"):
        examples(sentences=12)


def test_sentences_end_before_a_capital_letter_or_a_digit():
    text = 'It rains, e.g. here. "Does it?" Yes! 3 days (it did). Then, at 3.5 p.m. it stopped.  Done'
    assert split_sentences(text) == [
        "It rains, e.g. here.", '"Does it?"', "Yes!", "3 days (it did).", "Then, at 3.5 p.m. it stopped.", "Done",
    ]  # fmt: skip
    tokenised = "the flow is steady . its pressure , at mach 2.5 , is constant ! a plate is flat ."
    assert split_sentences(tokenised) == ["the flow is steady .", "its pressure , at mach 2.5 , is constant !", "a plate is flat ."]
    assert split_sentences("  ") == []


@pytest.mark.parametrize("places", [None, (0, 2, 4, 6, 8), (0, 3, 4, 9, 2)])
def test_the_loss_and_its_gradients_are_those_of_torch_without_neighbouring_pairs(places):
    views = [np.random.default_rng(number).normal(size=(5, 4)).astype(np.float32) for number in (0, 1)]
    state = TrainState({}, None, None, None, None, jnp.int32(0))

    def loss(first, second):
        found = None if places is None else jnp.array(places, jnp.float32)
        return Crops(temperature=0.2).objective({}, state, Packs(first, second, found))[0]

    found, gradients = jax.value_and_grad(loss, (0, 1))(*map(jnp.array, views))
    leaves = [torch.tensor(view, requires_grad=True) for view in views]
    first, second = (torch.nn.functional.normalize(leaf, dim=1) for leaf in leaves)
    logits = first @ second.T / 0.2
    for anchor, other in [(1, 2), (2, 1), (1, 4), (4, 1)] if places == (0, 3, 4, 9, 2) else []:
        logits[anchor, other] = -torch.inf
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(5))
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [{"sentences": 0}, {"shift": 0}, {"documents": "pages"}, {"temperature": 0.0}])
def test_settings_outside_their_limits_are_one_line(settings):
    with pytest.raises(ConfigError, match=rf"method\.{next(iter(settings))}="):
        check_settings(Crops(**settings), "method.")
