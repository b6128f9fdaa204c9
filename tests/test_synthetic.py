"""The generated sentences and their graded pairs: deterministic, disjoint, graded by meaning and not by words."""

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from jax_sentemb.data import synthetic
from jax_sentemb.evaluation import word_baselines

CORPUS = synthetic.sentences(4000, seed=0)
FIRST, SECOND, GOLD = synthetic.graded_pairs(1000, seed=1)


def scenes(count: int, seed: int) -> list[synthetic.Scene]:
    random = np.random.default_rng(seed)
    return [synthetic._any_scene(random)[0] for _ in range(count)]


def in_domain(scene: synthetic.Scene) -> int:
    return scene["agent"].domain


def test_same_seed_same_text_and_another_seed_another_text():
    assert synthetic.sentences(50, seed=3) == synthetic.sentences(50, seed=3)
    assert synthetic.sentences(50, seed=3) != synthetic.sentences(50, seed=4)
    one, two = synthetic.graded_pairs(50, seed=3), synthetic.graded_pairs(50, seed=3)
    assert one[:2] == two[:2]
    np.testing.assert_array_equal(one[2], two[2])
    assert synthetic.graded_pairs(50, seed=4)[0] != one[0]


def test_a_larger_corpus_begins_with_the_smaller_one():
    assert CORPUS[:100] == synthetic.sentences(100, seed=0)


def test_no_training_sentence_occurs_in_the_pairs_whatever_the_seeds():
    for seed in (1, 2):  # 1 is the seed of the pairs themselves
        assert not set(synthetic.sentences(4000, seed)) & {*FIRST, *SECOND}
    assert not any(synthetic._held_out(sentence) for sentence in CORPUS)
    assert all(synthetic._held_out(sentence) for sentence in [*FIRST, *SECOND])


def test_the_text_is_varied_readable_and_short():
    assert len(set(CORPUS)) > 0.99 * len(CORPUS)
    assert len({*FIRST, *SECOND}) > 0.98 * 2 * len(GOLD)
    words = [word_baselines._words(sentence) for sentence in CORPUS]
    assert 400 < len({word for sentence in words for word in sentence}) < 600
    assert min(map(len, words)) >= 4
    assert max(map(len, words)) <= 28
    for sentence in CORPUS:
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert sentence.isascii()
        assert not any(mark in sentence for mark in ("  ", " ,", ",,", "{", "|", ";"))


def test_was_and_were_follow_the_number_of_the_object():
    assert any("lambs were" in sentence for sentence in CORPUS)
    assert not any("lambs was" in sentence or "loaf were" in sentence for sentence in CORPUS)


def test_gold_of_one_meaning_is_five_in_any_words():
    for scene in scenes(50, seed=0):
        assert synthetic.similarity(scene, dict(scene)) == pytest.approx(5.0)


def test_gold_of_unrelated_meanings_is_zero():
    for one, other in zip(scenes(200, seed=0), scenes(200, seed=1), strict=True):
        bare = {"time": None, "manner": None}
        if in_domain(one) != in_domain(other):
            assert synthetic.similarity(one | bare, other | bare) == 0.0


def test_gold_is_symmetric_and_falls_with_every_role_that_is_replaced():
    for one, other in zip(scenes(200, seed=0), scenes(200, seed=1), strict=True):
        assert synthetic.similarity(one, other) == pytest.approx(synthetic.similarity(other, one))
        if in_domain(one) == in_domain(other):
            continue
        scores, mixed = [5.0], dict(one)
        for role in ("agent", "action", "object", "place"):
            mixed[role] = other[role]
            scores.append(synthetic.similarity(one, mixed))
        assert all(before > after for before, after in itertools.pairwise(scores))


def test_gold_grades_activity_above_domain_above_nothing():
    kitchen, harbour = synthetic._WORLD[0], synthetic._WORLD[1]
    bread, cake = kitchen[0]["object"]
    soup, herring = kitchen[1]["object"][0], harbour[0]["object"][0]
    similarities = [synthetic._concept_similarity(bread, other) for other in (bread, cake, soup, herring, None)]
    assert similarities == [1.0, 0.6, 0.3, 0.0, 0.0]


def test_gold_by_hand():
    kitchen = synthetic._WORLD[0]
    first = {role: kitchen[0][role][0] for role in ("agent", "action", "object", "place")}
    first |= {"time": synthetic._TIMES[0], "manner": None}
    second = first | {"object": kitchen[0]["object"][1], "place": kitchen[1]["place"][0], "time": synthetic._TIMES[1]}
    # agent 1, action 1, object 0.6, place 0.3, time 0 of weight 0.5; nobody says how
    assert synthetic.similarity(first, second) == pytest.approx(5 * 2.9 / 4.5)


def test_pairs_cover_the_whole_range_evenly():
    assert GOLD.shape == (1000,)
    assert GOLD.dtype == np.float64
    assert GOLD.min() >= 0
    assert GOLD.max() <= 5
    np.testing.assert_array_equal(np.histogram(GOLD, bins=10, range=(0, 5))[0], 100)


def test_names_to_avoid_are_avoided_and_leave_a_name_for_every_concept():
    random = np.random.default_rng(0)
    for scene in scenes(300, seed=0):
        first = synthetic._names(random, scene)
        second = synthetic._names(random, scene, avoid=set(first.values()))
        assert first.keys() == second.keys()
        assert not set(first.values()) & set(second.values())


def test_word_overlap_alone_does_not_solve_the_pairs_and_is_not_reversed():
    overlap = spearmanr(GOLD, word_baselines.bag_of_words_similarity(FIRST, SECOND)).statistic
    weighted = spearmanr(GOLD, word_baselines.tf_idf_similarity(FIRST, SECOND, CORPUS)).statistic
    assert 0.0 < overlap < 0.3
    assert overlap < weighted < 0.4


def test_baselines_by_hand():
    first, second = ["The cat, the dog.", "a b", "a"], ["the dog", "c", "!"]
    # counts {the 2, cat 1, dog 1} and {the 1, dog 1}
    np.testing.assert_allclose(word_baselines.bag_of_words_similarity(first, second), [3 / np.sqrt(6 * 2), 0.0, 0.0])
    # corpus of 3: "the" in all (weight log 4/4 = 0), "dog" in 1 (log 2), "cat" in none (log 4)
    corpus = ["the dog", "the", "the"]
    np.testing.assert_allclose(word_baselines.tf_idf_similarity(first[:1], second[:1], corpus), [1 / np.sqrt(5)])
