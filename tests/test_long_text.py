"""A long text is cut by its pieces only: what is read of it gives the pieces that the tokenizer gives for the whole."""

import functools
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from jax_sentemb.data import long_text as module
from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_files import splitting
from jax_sentemb.data.tokens import tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.inference.static import Pieces

LETTERS = "abcdefgxyz"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PARTS = [
    *LETTERS,
    "ab", "abc", "caf\u00e9", "e\u0301", "\u0301", "A", "\u0130", "\u00df", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028",
    "\u200b", "\u00ad", "\ufeff", "\x00", "\x1c", "\x85", "!", "-", "/", "a-b", "=\u0338", "\u2260", "\u6f22", "\u0439", "\ue000",
    "\U0001f600", "\u200d", "[SEP]", "9", "a b", " a", "\u1100\u1161",
]  # fmt: skip


def word_pieces(strip_accents=None, lowercase=True, added=(), normalizer=None, pre_tokenizer=None):
    """WordPiece whose words of more than 5 characters are unknown."""
    vocabulary = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "ab", "##bc", "!", "-", "\u6f22", "[", "]", "\u00e9"]
    inner = tokenizers.Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate(vocabulary)}, unk_token="[UNK]", max_input_chars_per_word=5)
    )
    inner.normalizer = normalizer or normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    inner.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    inner.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
    return Tokenizer(inner)


def byte_level(prefix_space=False):
    inner = tokenizers.ByteLevelBPETokenizer(add_prefix_space=prefix_space)
    inner.train_from_iterator(
        ["ab abc abcab  a-b xyz\n\n"] * 9, 300, 1, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    return Tokenizer(inner._tokenizer)


def unigram(*rules, split=True):
    """Unigram as XLM-R has it: neighbouring unknown characters are one piece."""
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        "\u2581",
        *LETTERS,
        "ab",
        "abc",
        "bc",
        "\u2581a",
        "\u2581ab",
        "xyz",
        "!",
        *"<>/pdsmkun",
    ]
    inner = tokenizers.Tokenizer(models.Unigram([(piece, -1.0 - len(piece) / 9) for piece in pieces], unk_id=3))
    inner.normalizer = normalizers.Sequence(list(rules)) if rules else None
    steps = [pre_tokenizers.WhitespaceSplit()] * split + [pre_tokenizers.Metaspace()]
    inner.pre_tokenizer = pre_tokenizers.Sequence(steps)
    inner.add_special_tokens(pieces[:5])
    inner.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return Tokenizer(splitting(inner, pieces[:5]))


def words(lowercase=True):
    return WordTokenizer.of(["a", "ab", "abc", "caf\u00e9", "!", "-", "\u6f22", "9"], lowercase)


MAKERS = {
    "uncased": word_pieces,
    "cased": lambda: word_pieces(lowercase=False),
    "with accents": lambda: word_pieces(strip_accents=False),
    "added tokens": lambda: word_pieces(added=("a b", "!-!")),
    "white space": lambda: word_pieces(normalizer=normalizers.NFKC(), pre_tokenizer=pre_tokenizers.Whitespace()),
    "bytes": byte_level,
    "bytes with a space": lambda: byte_level(True),
    "unigram": lambda: unigram(normalizers.NFKC(), normalizers.Replace("\u200b", "")),
    "unigram, spaces joined": lambda: unigram(normalizers.Replace(tokenizers.Regex(" {2,}"), " "), split=False),
    "words": words,
    "cased words": lambda: words(False),
}
texts = st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from([1, 1, 1, 2, 3, 9, 40])), max_size=12).map(
    lambda parts: "".join(part * times for part, times in parts)
)


def directly(tokenizer, text):
    """The pieces that the library gives for the whole text."""
    return tokenizer._inner.encode(text, add_special_tokens=False).ids


@functools.cache
def made(name):
    return MAKERS[name]()


@pytest.fixture
def small(monkeypatch):
    """Makes every text of a test a long one."""
    for name, value in {"PLAIN": 1, "CHARACTERS_PER_PIECE": 1, "FIRST": 1, "BLOCK": 29, "RUN": 6, "MARKS": 2}.items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=texts, length=st.integers(3, 24))
def test_any_text_gives_the_pieces_of_the_whole(name, small, text, length):
    tokenizer = made(name)
    whole = directly(tokenizer, text)
    (row,), cut = tokenizer.encode([text], length)
    room = length - tokenizer.added
    found = row[1:-1] if tokenizer.added else row
    assert found.tolist() == whole[:room]
    assert cut == (len(whole) > room)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "run",
    ["\n", "\u200b \t", "x", "abcxyz", "ab ", "!", "\u6f22"],
    ids=["lines", "zero-width", "letter", "letters", "words", "marks", "characters"],
)
def test_a_text_of_100_000_characters_takes_little_time(name, run):
    tokenizer = made(name)
    text = "ab " + run * (100_000 // len(run)) + " abc"
    begin = time.process_time()
    (row,), cut = tokenizer.encode([text], 16)
    assert time.process_time() - begin < 2
    whole = directly(tokenizer, text)
    found = row[1:-1] if tokenizer.added else row
    assert found.tolist() == whole[: 16 - tokenizer.added]
    assert cut == (len(whole) > 16 - tokenizer.added)


@pytest.mark.parametrize("name", MAKERS)
def test_a_short_word_next_to_a_long_run_keeps_its_ends(name):
    tokenizer = made(name)
    for run in ("\u200b", "\u200d", "\x00", "\u00ad", "\u200b\x00"):
        for word in ("a", "ab", "xyz", "e\u0301"):
            for text in (run * 4000 + word, word + run * 4000, f"a{run * 2000}{word}{run * 2000}x", f"{word}{run * 4000}{word} b"):
                (row,), _ = tokenizer.encode([text], 16)
                found = row[1:-1] if tokenizer.added else row
                assert found.tolist() == directly(tokenizer, text)[: 16 - tokenizer.added], (run, word)


def test_a_text_is_whole_in_pairs_tables_and_the_rows_of_a_corpus(tmp_path):
    tokenizer, hidden = made("uncased"), "\t" * 30_000 + "ab" + "\u200b" * 30_000 + " ab xyz"
    plain = "ab ab xyz"
    (pair, same), cut = JoinedPairs(tokenizer).encode([(hidden, hidden), (plain, plain)], 12)
    assert (pair.tolist(), cut) == (same.tolist(), 0 if len(same) < 12 else 2)
    pieces, (shares, truncated) = Pieces(tokenizer), Pieces(tokenizer).share_matrix([hidden, plain], 3, tokenizer.vocab_size)
    assert truncated == 2
    np.testing.assert_array_equal(shares[0].toarray(), shares[1].toarray())
    assert pieces.encode([hidden], 3)[0][0].tolist() == pieces.encode([plain], 3)[0][0].tolist()
    (tmp_path / "corpus.txt").write_text(f"{plain}\n{hidden}\n!\n", encoding="utf-8")
    rows = tokenize(Sentences([tmp_path / "corpus.txt"], tmp_path), tokenizer, 16, tmp_path)
    assert (rows.report["duplicates"], rows.report["truncated"], len(rows)) == (1, 0, 2)


@pytest.mark.parametrize(("first", "second"), [(40, 41), (41, 40), (40, 40), (1, 40), (4, 6), (9000, 9001), (9001, 9000)])
@pytest.mark.parametrize("length", [9, 10, 11, 12])
def test_the_odd_token_of_a_pair_belongs_to_the_longer_side(first, second, length):
    sides = "a " * first, "b " * second
    (row,), _ = JoinedPairs(made("uncased")).encode([sides], length)
    library = tokenizers.Tokenizer.from_str(made("uncased").serialized)
    library.enable_truncation(length, strategy="longest_first")
    # The library makes an encoding of every pair of overflowing parts: gigabytes for thousands of tokens.
    surplus = 8960 if first > 8960 else 0
    assert row.tolist() == library.encode("a " * (first - surplus), "b " * (second - surplus)).ids
