"""Words as tokens, their table of vectors, ordered corpora, and word models as files."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from jax_sentemb.config import Words
from jax_sentemb.data.batches import Batches
from jax_sentemb.data.corpus import Corpus, check_order, is_running_text
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokens import Subsample, tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer, count_words
from jax_sentemb.errors import ConfigError, DataError, ModelFileError
from jax_sentemb.formats.word_model import is_word_model, write_word_model
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.load import load
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
from jax_sentemb.training.encoder_source import word_table

SENTENCES = ["The dog barks, the cat doesn't.", "the DOG sleeps", "a bird sings"]


def test_words_are_split_at_spaces_and_punctuation():
    tokenizer = WordTokenizer.of(["the", "dog", ","], lowercase=True)
    rows, cut = tokenizer.encode(["The dog, the cat", "", "dog dog dog"], 3)
    assert [row.tolist() for row in rows] == [[2, 3, 4], [], [3, 3, 3]]
    assert cut == 1
    assert WordTokenizer.of(["the"], lowercase=False).encode(["The the"], 9)[0][0].tolist() == [1, 2]
    assert count_words(SENTENCES, True).most_common(2) == [("the", 3), ("dog", 2)]


def test_a_vocabulary_reads_back_and_anything_else_is_refused(tmp_path):
    tokenizer = WordTokenizer.of(["the", "dog"], lowercase=True)
    tokenizer.save(tmp_path)
    assert WordTokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint == tokenizer.copy().fingerprint
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
        WordTokenizer.load(tmp_path / "none")


def test_the_table_has_words_of_the_corpus_by_frequency_then_of_what_is_scored(tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2\ndog 3 4\nfrog 5 6\nunused 7 8\nsings 9 9\n")
    words = Words(vectors=str(tmp_path / "v.txt"))
    tokenizer, parts = word_table(words, SENTENCES, ["a frog sings"], 0)
    assert tokenizer.vocab_size == 6
    assert tokenizer.encode(["the dog sings frog bird"], 9)[0][0].tolist() == [2, 3, 4, 5, 1]
    vectors = parts[FROZEN]["vectors"]
    np.testing.assert_array_equal(vectors, [[0, 0], [0, 0], [1, 2], [3, 4], [9, 9], [5, 6]])
    np.testing.assert_array_equal(parts[FROZEN]["counts"], [0, 0, 3, 2, 1, 0])
    few, _ = word_table(Words(vectors=str(tmp_path / "v.txt"), max_words=2), SENTENCES, [], 0)
    assert few.vocab_size == 4


def test_new_vectors_are_drawn_by_seed_and_can_be_trained():
    _, one = word_table(Words(hidden_size=5, trained=True), SENTENCES, [], 0)
    _, same = word_table(Words(hidden_size=5, trained=True), SENTENCES, [], 0)
    _, other = word_table(Words(hidden_size=5, trained=True), SENTENCES, [], 1)
    assert set(one) == {"encoder", FROZEN}
    assert set(one[FROZEN]) == {"counts"}
    np.testing.assert_array_equal(one["encoder"]["vectors"], same["encoder"]["vectors"])
    assert (one["encoder"]["vectors"][2:] != other["encoder"]["vectors"][2:]).all()
    assert not one["encoder"]["vectors"][:2].any()


def story(count, seed=0):
    """Sentences in which neighbours share words."""
    random = np.random.default_rng(seed)
    return [f"chapter{row // 5} word{random.integers(500)}a word{random.integers(500)}b" for row in range(count)]


def test_a_shuffled_corpus_is_refused_and_running_text_is_not(tmp_path):
    lines = story(1500)
    check_order(lines, "a.txt")
    np.random.default_rng(0).shuffle(lines)
    with pytest.raises(DataError, match=r"a\.txt: neighbouring sentences .* seems to be shuffled") as caught:
        check_order(lines, "a.txt")
    assert "\n" not in str(caught.value)
    check_order(lines[:900], "a.txt")  # too few to tell
    check_order([f"{number:03x}" for number in range(1500)], "a.txt")  # nothing in common anywhere


def test_the_order_of_a_script_without_spaces_is_told_by_pairs_of_characters():
    """Each line names the person of its scene in another sentence."""
    random = np.random.default_rng(0)
    signs = lambda count: "".join(map(chr, random.integers(0x4E00, 0x9FFF, count)))  # noqa: E731
    lines = [f"{signs(6)}{name}{signs(6)}" for name in (signs(2) for _ in range(300)) for _ in range(5)]
    check_order(lines, "a.txt")
    assert is_running_text(lines, 0.0)
    random.shuffle(lines)
    with pytest.raises(DataError, match=r"a\.txt: neighbouring sentences .* seems to be shuffled"):
        check_order(lines, "a.txt")


def test_a_subset_of_running_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in story(40)))
    lines = Corpus(lambda pairs: (str(tmp_path / "a.txt"), "text", ""), lambda lines: None, 10, Subsample(20))
    for read in (lines.ordered, lines.neighbours):
        with pytest.raises(ConfigError, match=r"data\.subset=20: this method needs consecutive sentences"):
            read()


def test_ordered_batches_are_consecutive_with_duplicates_and_every_sentence_once(tmp_path):
    lines = [*story(21), "the same", "the same", "the end"]
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in lines))
    corpus = open_corpus(str(tmp_path / "a.txt"))
    tokenizer = WordTokenizer.of(sorted(count_words(lines, True)), True)
    tokens = tokenize(corpus, tokenizer, 10, tmp_path / "cache", ordered=True)
    assert len(tokens) == 24
    assert len(tokenize(corpus, tokenizer, 10, tmp_path / "cache")) == 23  # without order, one copy is enough
    batches = Batches(tokens, 4, 0)
    for epoch in range(2):
        rows = [batches.rows(step) for step in range(6 * epoch, 6 * epoch + 6)]
        assert all((np.diff(part) == 1).all() for part in rows)
        assert sorted(np.concatenate(rows).tolist()) == list(range(24))
    assert [batches.rows(step)[0] for step in range(6)] != [batches.rows(step)[0] for step in range(6, 12)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer, loaded = word_table(Words(hidden_size=4), SENTENCES, [], 0)
    method, encoder = MultiView(hidden=3), WordsConfig(tokenizer.vocab_size, 4)
    params = jax.device_get(method.init(WordVectors(encoder), loaded, jax.random.key(0)).params)
    settings = dataclasses.asdict(method)
    facts = {"method": "MultiView", "settings": settings, "max_seq_length": 16}
    facts["encoder"] = dataclasses.asdict(encoder)
    write_word_model(folder, facts, params, tokenizer)
    return folder, build_embedder(facts, tokenizer)(params, SENTENCES)


def test_a_word_model_reads_back(model):
    folder, expected = model
    assert is_word_model(folder)
    np.testing.assert_allclose(load(folder)(SENTENCES), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"method": "os.system"}, ModelFileError, "does not describe a model"),
        ({"settings": {"depth": 3}}, ModelFileError, "does not describe a model"),
        ({"settings": {"views": "h"}}, ModelFileError, "is not one of fg"),
        ({"encoder": {}}, ModelFileError, "does not describe a model"),
    ],
)
def test_a_word_model_that_is_changed_is_refused_in_one_line(model, tmp_path, change, error, says):
    import shutil

    shutil.copytree(model[0], tmp_path / "changed")
    file = tmp_path / "changed" / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(error, match=says) as caught:
        load(tmp_path / "changed")
    assert "\n" not in str(caught.value)


def test_damaged_weights_are_refused(model, tmp_path):
    import shutil

    shutil.copytree(model[0], tmp_path / "changed")
    (tmp_path / "changed" / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelFileError, match="missing or damaged"):
        load(tmp_path / "changed")
