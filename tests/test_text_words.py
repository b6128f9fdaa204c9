"""Words of texts in all scripts."""

import pytest

from jax_sentemb.data.text_words import long_words_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The CAT, it's snake_case!", ["the", "cat", "it", "s", "snake_case"]),
        ("cafe\u0301 Ｗｉｄｅ", ["café", "wide"]),  # a combined accent, and characters of full width
        ("हिन्दी में", ["हिन्दी", "में"]),  # marks belong to their word
        ("我在北京", ["我在", "在北", "北京"]),
        ("东 kg东京", ["东", "kg", "东京"]),
        (" \u3000.,", []),
    ],
)
def test_words_are_runs_of_letters_and_pairs_of_a_script_without_spaces(text, words):
    assert words_of(text) == words


def test_long_words_have_four_letters_or_are_pairs():
    assert long_words_of("The CAT plays, plays 三国演义 x नमस्ते") == {"plays", "三国", "国演", "演义", "नमस्ते"}
