"""Dependency trees of CoNLL-U files: words, texts, errors with their lines, and pairs with the same and with other trees."""

import pytest

from jax_sentemb.data.conllu import Parse, read_conllu
from jax_sentemb.errors import DataError
from jax_sentemb.reporting.pair_plots import model_names, syntax_pairs


def word(number, form, head, relation, misc="_"):
    return "\t".join([str(number), form, "_", "_", "_", "_", str(head), relation, "_", misc])


LIFE = [
    word(1, "Life", 2, "nsubj"),
    word(2, "is", 0, "root"),
    word(3, "good", 2, "acomp", "SpaceAfter=No"),
    word(4, ".", 2, "punct"),
]
SPANISH = [
    "# sent_id = 2",
    "# text = Vámonos al mar",
    "1-2\tVámonos" + "\t_" * 8,
    word(1, "Vamos", 0, "root"),
    word(2, "nos", 1, "obj"),
    word(3, "al", 4, "case"),
    "3.1\tx" + "\t_" * 8,
    word(4, "mar", 1, "obl"),
]


def written(tmp_path, *sentences, end="\n\n"):
    file = tmp_path / "parses.conllu"
    file.write_text("\n\n".join("\n".join(lines) for lines in sentences) + end, encoding="utf-8")
    return file


@pytest.mark.parametrize("end", ["\n\n", "\n", ""])
def test_words_and_text_of_sentences(tmp_path, end):
    life, spanish = read_conllu(written(tmp_path, LIFE, SPANISH, end=end))
    assert life == Parse("Life is good.", ((2, "nsubj"), (0, "root"), (2, "acomp"), (2, "punct")))
    assert spanish == Parse("Vámonos al mar", ((0, "root"), (1, "obj"), (4, "case"), (1, "obl")))


def test_a_text_belongs_to_one_sentence(tmp_path):
    assert [parse.text for parse in read_conllu(written(tmp_path, ["# text = A b", *LIFE], LIFE))] == ["A b", "Life is good."]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no parsed sentence"),
        (["# text = only a comment"], "no parsed sentence"),
        (["1 Life _ _ _ _ 0 root _ _"], ":1: 1 tab-separated fields instead of 10"),
        ([*LIFE[:3], word(4, ".", "_", "punct")], ":4: the head '_' of word 4 is not a number"),
        ([*LIFE[:2], word(4, ".", 2, "punct")], ":3: the words of this sentence are not numbered"),
        ([*LIFE[:3], word(4, ".", 9, "punct")], ":4: head 9 is beyond the 4 words"),
        ([*LIFE[:3], word(4, ".", 0, "root")], ":4: this sentence has 2 roots"),
        ([word(1, "a", 2, "x"), word(2, "b", 1, "y"), word(3, "c", 0, "root")], ":3: word 1 of this sentence is not connected"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(tmp_path, lines, says):
    with pytest.raises(DataError, match=says) as caught:
        read_conllu(written(tmp_path, lines))
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_conllu(tmp_path / "absent.conllu")
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(DataError, match="byte 0 is not UTF-8"):
        read_conllu(tmp_path / "x")


A, B, C = ((0, "root"),), ((2, "det"), (0, "root")), ((2, "amod"), (0, "root"))


def test_pairs_have_the_same_or_different_trees_and_share_their_first_sentence():
    parses = [Parse(f"{name}{number}", tree) for name, tree in (("a", A), ("b", B), ("c", C)) for number in range(6)]
    parses += [Parse("b0", B)] * 5  # a sentence is not paired with itself
    same, different = syntax_pairs(parses, 10)
    assert len(same) == len(different) == 10
    for first, second in same:
        assert parses[first].tree == parses[second].tree
        assert parses[first].text != parses[second].text
    assert all(parses[first].tree != parses[second].tree for first, second in different)
    assert [first for first, _ in same] == [first for first, _ in different]
    assert {parses[first].tree for first, _ in same} == {A, B, C}
    assert len(syntax_pairs(parses, 100)[0]) == 15
    assert (same, different) == syntax_pairs(parses, 10)


@pytest.mark.parametrize("parses", [[Parse("a", A), Parse("b", B)], [Parse("a", A), Parse("b", A)], [Parse("a", A)] * 3])
def test_without_both_kinds_of_pairs_there_is_an_error(parses):
    with pytest.raises(DataError, match="distinct parsed sentences have"):
        syntax_pairs(parses, 5)


def test_models_are_named_by_what_tells_them_apart(tmp_path):
    assert model_names([tmp_path / "simcse"]) == ["simcse"]
    assert model_names([tmp_path / "a" / "export", tmp_path / "b" / "export"]) == ["a/export", "b/export"]
    with pytest.raises(DataError, match="same model twice"):
        model_names([tmp_path, tmp_path])
