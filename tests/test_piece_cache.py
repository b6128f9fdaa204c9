"""Cached word pieces: every text has the ids that the library gives, however the cache is filled, emptied or interrupted."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer import CORPUS, ODD, directly, ids_of

from jax_sentemb.data import piece_cache
from jax_sentemb.data.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def trained():
    return Tokenizer.train(CORPUS, 200)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.text(max_size=30) | st.lists(st.sampled_from(["fox", " ", "[SEP]", ",", "\u0301", "\u6f22", "\u00a0"])).map("".join),
        max_size=6,
    )
)
def test_remembered_words_change_no_id(trained, sentences):
    assert ids_of(trained, sentences, 512) == directly(trained, sentences)


def test_forgetting_words_changes_no_id(trained, monkeypatch):
    monkeypatch.setattr(piece_cache, "MAX_WORDS", 3)
    monkeypatch.setattr(piece_cache, "WORDS_PER_TEXT", 2)
    for sentence in CORPUS + ODD:
        assert ids_of(trained, [sentence, "fox"], 512) == directly(trained, [sentence, "fox"])
        assert len(trained._cache._numbers) < 20


def test_an_interrupted_call_leaves_no_word_with_foreign_pieces(trained):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained._cache, "_inner", SimpleNamespace(encode_batch=interrupt))
        with pytest.raises(KeyboardInterrupt):
            trained.encode(["words never met before"], 32)
    sentences = ["others not met either", "words never met before"]
    assert ids_of(trained, sentences) == directly(trained, sentences)
