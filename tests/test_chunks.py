"""Chunks of long texts: they fit the model, overlap, and have every character; the spans of their records."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.data.chunks import Chunk, Chunker, ChunkRecords, ChunkTexts, _without_repeated
from jax_sentemb.data.corpus_files import open_text
from jax_sentemb.data.sentence_ends import sentence_spans
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError
from jax_sentemb.inference.static import LONGEST, Pieces

SENTENCES = ["A man plays the guitar.", "Two women dance on the grass.", "A small dog runs!", "Does a tall man eat?"]
PIECES = Tokenizer.train(SENTENCES, 100)
WORDS = WordTokenizer.of(["a", "man", "plays", "the", "guitar", "two", "women", "dance", "dog", ".", "!", "?"], True)
TOKENIZERS = {"pieces": PIECES, "words": WORDS, "static": Pieces(PIECES)}


def counts(tokenizer, texts):
    return [len(ids) for ids in tokenizer.encode(texts, 10_000)[0]]


def split(text, limit, prompt="", tokenizer=PIECES):
    return next(Chunker(tokenizer, limit, prompt).split([text]))


ALPHABET = st.sampled_from([*SENTENCES, *"aQ.!?。é\u0301 \n\t\u00a0\u200b", "\n\n", "。", "guitar", "x" * 30])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(parts=st.lists(ALPHABET, max_size=40), limit=st.integers(4, 24), prompt=st.sampled_from(["", "a "]))
def test_chunks_fit_and_have_every_character_in_order(name, parts, limit, prompt):
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    chunks = split(text, limit, prompt, tokenizer)
    texts = [text[chunk.start : chunk.end] for chunk in chunks]
    assert max(counts(tokenizer, [prompt + part for part in texts])) <= limit
    added = counts(tokenizer, [prompt])[0]
    assert [chunk.tokens for chunk in chunks] == [count - added for count in counts(tokenizer, [prompt + part for part in texts])]
    starts, ends = [chunk.start for chunk in chunks], [chunk.end for chunk in chunks]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    covered = np.zeros(len(text), bool)
    for start, end in zip(starts, ends, strict=True):
        covered[start:end] = True
    assert not "".join(character for character, is_covered in zip(text, covered, strict=True) if not is_covered).strip()
    is_long = Chunker(tokenizer, limit, prompt).are_long([text])[0]
    assert is_long or chunks == [Chunk(0, len(text), chunks[0].tokens)]


def test_a_text_is_split_at_sentence_ends_and_chunks_overlap():
    text = " ".join(SENTENCES * 2)
    one = counts(PIECES, SENTENCES)
    chunks = split(text, max(one) * 2)
    assert len(chunks) > 2
    spans = sentence_spans(text)
    for chunk, following in itertools.pairwise(chunks):
        assert chunk.start in [start for start, _ in spans]
        assert chunk.end in [end for _, end in spans]
        assert text[following.start : chunk.end] in SENTENCES  # the last sentence is repeated


class Characters:
    """A tokenizer whose tokens are all characters, as those of byte-level vocabularies are."""

    def encode(self, texts, limit):
        return [[0] * min(len(text) + 2, limit) for text in texts], 0


@pytest.mark.parametrize("space", [" " * 5000, "\n" * 200, "\u3000\n" * 50])
def test_long_white_space_is_one_empty_chunk(space):
    assert split(space, 10, tokenizer=Characters()) == [Chunk(0, 0, 0)]
    chunks = split(f"{space}A man plays.{space}", 10, tokenizer=Characters())
    assert [len(space), len(space) + 12] == [chunks[0].start, chunks[-1].end]


def test_a_sentence_that_does_not_fit_is_split_at_spaces_with_overlap():
    text = "a man plays the guitar " * 20
    chunks = split(text, 12)
    for chunk, following in itertools.pairwise(chunks):
        assert (text[chunk.start - 1 : chunk.start] + text[chunk.end]).strip() == ""
        assert 0 < len(text[following.start : chunk.end].split()) <= 3


@pytest.mark.parametrize("text", ["中文字" * 200, "e\u0301" * 300, "x" * 90 + " " + "man" * 30])
def test_a_word_that_does_not_fit_is_split_between_letters(text):
    tokenizer = Tokenizer.train(["中 文 字 a man x é e\u0301"] * 3, 60)
    chunks = split(text, 10, tokenizer=tokenizer)
    assert len(chunks) > 1 or counts(tokenizer, [text])[0] <= 10
    assert not any(text[chunk.start] == "\u0301" for chunk in chunks)
    assert max(counts(tokenizer, [text[chunk.start : chunk.end] for chunk in chunks])) <= 10


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("no end here", ["no end here"]),
        ("flow is shown .  the wing is thin .", ["flow is shown .", "the wing is thin ."]),
        ("一。二！「三？」四", ["一。", "二！", "「三？」", "四"]),
        ("title\n \nBody. Next", ["title", "Body.", "Next"]),
        ("„Ja.“ Er ging. Dann", ["„Ja.“ Er ging.", "Dann"]),
        ("wait . . . now", ["wait . . .", "now"]),
        (" \n ", []),
    ],
)
def test_ends_of_sentences(text, sentences):
    assert [text[start:end] for start, end in sentence_spans(text)] == sentences


def test_a_prompt_that_leaves_no_room_is_one_line():
    Chunker(PIECES, 4, "a ")
    with pytest.raises(ConfigError, match=r"^prompt 'a man ' leaves no room for text within max_seq_length=4 tokens; raise"):
        Chunker(PIECES, 4, "a man ")


def test_a_table_that_reads_whole_texts_has_one_chunk_for_each():
    text = " ".join(SENTENCES * 50)
    assert split(text, LONGEST, tokenizer=Pieces(PIECES)) == [Chunk(0, len(text), counts(Pieces(PIECES), [text])[0])]


def test_texts_of_chunks_are_read_by_number_with_their_records(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"_id": "x", "text": "A man plays the guitar. A small dog runs!"}\n{"_id": "y", "text": ""}\n{"text": "a"}\n')
    records = open_text("--input", str(file), "text", "", "")
    texts = ChunkTexts.split(records.texts, Chunker(PIECES, 8))
    assert texts.documents.tolist() == [0] * (len(texts) - 2) + [1, 2]
    assert [texts[number] for number in reversed(range(len(texts)))][:2] == ["a", ""]
    rows = ChunkRecords(records, texts)
    for number, document in enumerate(texts.documents.tolist()):
        record = rows.record(number)
        assert (record.row, record.id) == (document, ["x", "y", None][document])
        assert records.texts[document][record.start : record.end] == texts[number]


def test_a_chunk_within_its_neighbour_is_left_out():
    spans = [(0, 6), (0, 10), (5, 10), (8, 20)]
    chunks = [Chunk(*span, 1) for span in spans]
    assert _without_repeated(chunks) == [chunks[1], chunks[3]]
