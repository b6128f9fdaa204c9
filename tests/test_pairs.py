"""Labelled pairs: tables of all kinds, labels by name and number, mistakes in one line; pairs joined as transformers joins them."""

import gzip
import json

import numpy as np
import pytest

from jax_sentemb.data import pairs as pairs_module
from jax_sentemb.data.batches import Batches
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.pairs import JoinedPairs, PairTokens, make_pairs, read_pairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import DataError

NLI = ("contradiction", "entailment", "neutral")
ROWS = [("A man.", "A person.", "Entailment"), ("A dog.", "A cat.", "0"), ("It rains.", "Wet.", " neutral "), ("x", "y", "-")]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["a man and a person", "a dog and a cat", "it rains and is wet . x y"] * 3, 80)


def test_labels_are_names_or_numbers_and_rows_without_one_are_counted(tmp_path):
    (tmp_path / "a.tsv").write_text("id\tsentence1\tsentence2\tlabel\n" + "".join("7\t" + "\t".join(row) + "\n" for row in ROWS))
    lines = (json.dumps(dict(zip(("sentence1", "sentence2", "label"), row, strict=True))) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    for name in ("a.tsv", "a.jsonl.gz"):
        pairs = read_pairs(str(tmp_path / name), NLI)
        assert (pairs.first, pairs.second) == (["A man.", "A dog.", "It rains."], ["A person.", "A cat.", "Wet."])
        assert pairs.labels.tolist() == [1, 0, 2]
        assert pairs.unlabelled == 1
    both = read_pairs(f"{tmp_path}/a.tsv,{tmp_path}/a.jsonl.gz", NLI)
    assert len(both.first) == 6
    assert both.sentences == both.first + both.second


def test_a_missing_label_is_none_or_nan_and_a_class_may_be_a_whole_float():
    labels = (None, float("nan"), "", "-", 1.0, "2.0", 0)
    rows = [(f"row {row}", ("A man.", "A dog.", label)) for row, label in enumerate(labels)]
    pairs = make_pairs(rows, NLI, "a.parquet")
    assert (pairs.labels.tolist(), pairs.unlabelled) == ([1, 2, 0], 4)
    for label in ("3", "1.5", "\u00b2", "nan"):
        with pytest.raises(DataError, match=r"row 0: label .* is not one of"):
            make_pairs([("row 0", ("A man.", "A dog.", label))], NLI, "a.parquet")


@pytest.mark.parametrize(("limit", "value"), [("MAX_PAIRS", 2), ("MAX_CHARACTERS", 24)])
def test_more_pairs_than_memory_is_meant_to_hold_are_refused(monkeypatch, limit, value):
    rows = [(f"a.tsv line {line}", ("A man.", "A dog.", "1")) for line in (2, 3, 4)]
    monkeypatch.setattr(pairs_module, limit, value)
    assert len(make_pairs(rows[:2], (), "a.tsv").first) == 2
    with pytest.raises(DataError, match=r"a\.tsv line 4: memory holds at most .* labelled pairs with .*; give fewer rows"):
        make_pairs(rows, (), "a.tsv")


def test_scores_are_numbers_and_a_csv_may_quote(tmp_path):
    (tmp_path / "a.csv").write_text('sentence1,sentence2,score\n"One, two.",Three,4.5\nx,y,\n , y,1\n')
    pairs = read_pairs(str(tmp_path / "a.csv"))
    assert (pairs.first, pairs.labels.tolist(), pairs.unlabelled) == (["One, two."], [4.5], 2)


def test_scores_of_another_scale_are_refused_or_noted(tmp_path, capsys):
    def pairs(low, high):
        (tmp_path / "a.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t{low}\nc\td\t{high}\n")
        corpus = Corpus(lambda pairs: (str(tmp_path / "a.tsv"), "text", ""), lambda lines: Tokenizer.train(lines, 60), 10)
        return corpus.pairs(top_score=5.0)

    for low, high in ((0, 100), (-1, 5)):
        with pytest.raises(DataError, match=rf"method\.top_score=5\.0: the scores of a\.tsv are {low} to {high}; give"):
            pairs(low, high)
    assert len(pairs(0, 4.5).lengths) == 2
    assert capsys.readouterr().err == ""
    pairs(0, 1)
    assert "the scores of a.tsv are 0 to 1, and --config.method.top_score=5.0 is the largest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "classes", "says"),
    [
        ("sentence1\tsentence2\tlabel\na\tb\tmaybe\n", NLI, r"a\.tsv line 2: label 'maybe' is not one of contradiction"),
        ("sentence1\tsentence2\tlabel\na\tb\t3\n", NLI, "label '3' is not one of"),
        ("sentence1\tsentence2\tscore\na\tb\thigh\n", (), r"a\.tsv line 2: score 'high' is not a number"),
        ("sentence1\tsentence2\tscore\na\tb\tnan\n", (), "is not a number"),
        ("sentence1\tsentence2\n", (), "no column 'score', only sentence1, sentence2: labelled pairs have the columns"),
        ("sentence1\tsentence2\tscore\na\tb\n", (), "has 2 fields, the header has 3"),
        ("sentence1\tsentence2\tscore\na\tb\t-\n", (), "none of the 1 rows is a pair"),
        ("sentence1\tsentence2\tscore\n", (), "none of the 0 rows is a pair"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, classes, says):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match=says) as caught:
        read_pairs(str(tmp_path / "a.tsv"), classes)
    assert "\n" not in str(caught.value)


def test_capital_letters_make_no_difference_in_classes(tmp_path):
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tno\nc\td\tYES\n")
    assert read_pairs(str(tmp_path / "a.tsv"), ("Yes", "No")).labels.tolist() == [1, 0]


def test_what_is_no_text_is_named():
    with pytest.raises(DataError, match="row 3: sentence2 is a number, not text"):
        make_pairs([("row 3", ("a", 5, 1.0))], (), "x")


def test_pairs_without_a_text_are_left_out():
    pairs = make_pairs([("row 0", ("a", None, 1.0)), ("row 1", (None, "b", 2.0)), ("row 2", ("a", "b", 3.0))], (), "x")
    assert (pairs.labels.tolist(), pairs.unlabelled) == ([3.0], 2)


def test_a_plain_text_file_has_no_pairs(tmp_path):
    (tmp_path / "a.txt").write_text("a line\n")
    with pytest.raises(DataError, match="has no columns"):
        read_pairs(str(tmp_path / "a.txt"))


def test_rows_are_two_texts_or_one_with_their_label(tokenizer):
    pairs = make_pairs([("", (one, other, score)) for (one, other, _), score in zip(ROWS, (1, 2, 3, 4), strict=True)], (), "x")
    apart, joined = PairTokens(pairs, tokenizer, 12), PairTokens(pairs, tokenizer, 12, joined=True)
    rows = np.array([2, 0])
    (first, second), (together,) = apart.texts(rows, 0), joined.texts(rows, 0)
    for place, row in enumerate(rows):
        expected = tokenizer.encode([pairs.first[row], pairs.second[row]], 12)[0]
        assert [first[place].tolist(), second[place].tolist()] == [ids.tolist() for ids in expected]
        assert together[place].tolist() == [*expected[0].tolist(), *expected[1].tolist()[1:]]
        assert apart.lengths[row] == max(map(len, expected))
    assert apart.labels(rows, 0).tolist() == [3.0, 1.0]
    batch = Batches(apart, 2, 0).at(0)
    assert (batch.tokens.shape[:2], batch.label.shape) == ((2, 2), (2,))
    assert batch.rows.tokens.shape == (4, batch.tokens.shape[-1])
    assert Batches(joined, 2, 0).at(0).tokens.ndim == 2
    prints = {apart.fingerprint, joined.fingerprint, PairTokens(pairs, tokenizer, 11).fingerprint}
    prints.add(PairTokens(pairs._replace(labels=pairs.labels + 1), tokenizer, 12).fingerprint)
    assert len(prints) == 4


def test_pairs_are_joined_and_cut_as_transformers_does(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    random = np.random.default_rng(0)
    words = ["man", "dog", "cat", "rains", "wet"]
    pairs = [tuple(" ".join(random.choice(words, size)) for size in random.integers(1, 30, 2)) for _ in range(100)]
    for length in (7, 8, 20):
        ours, cut = JoinedPairs(tokenizer).encode(pairs, length)
        expected = theirs([one for one, _ in pairs], [other for _, other in pairs], truncation=True, max_length=length)["input_ids"]
        assert [ids.tolist() for ids in ours] == expected
        assert cut == sum(len(tokenizer.encode(list(pair), 99)[0][0]) + len(tokenizer.encode(list(pair), 99)[0][1]) - 1 > length
                          for pair in pairs)  # fmt: skip
