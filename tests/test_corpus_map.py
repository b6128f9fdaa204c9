"""Maps of a corpus: layout, groups, topic words, the page, and the command `jax-sentemb map`."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from jax_sentemb.__main__ import main
from jax_sentemb.cli import map as command
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError
from jax_sentemb.reporting import corpus_map, map_page, svg

HOSTILE = '<script>alert(1)</script> & "quoted" <img src=x onerror=y> \x1b[31m'


def three_groups(count=60, noise=0.3, width=8, seed=0):
    """Vectors around three directions, and the direction of each."""
    random = np.random.default_rng(seed)
    number = np.arange(count) % 3
    return (np.eye(width)[number] + noise * random.normal(size=(count, width))).astype(np.float32), number


def without_t_sne(monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)


def test_topic_words_of_a_hand_case():
    texts = ["the cat sleeps", "The CAT runs", "the dog runs", "the dog barks", "the cat and the dog", "42 the dog_house"]
    group_of = np.array([0, 0, 1, 1, 0, 1])
    # cat: 3 of 3 in group 0 and 3 of 6 in all; runs: 1 of 3, once in each group; the: everywhere. "dog" of "dog_house" counts.
    assert corpus_map.topic_words(texts, group_of, 2) == [["cat"], ["dog"]]
    assert corpus_map.topic_words(texts, np.zeros(6, int), 1) == [[]]  # nothing tells a group of all sentences apart


def test_the_best_topic_word_is_frequent_and_special():
    texts = ["a1 red ball", "red ball", "red", "red ball sky", *["ball sun"] * 3, *["sun"] * 5]
    group_of = np.array([0] * 4 + [1] * 8)
    # p log(p/q): red 1 log(1 / (4/12)) = 1.10; ball 0.75 log(0.75 / 0.5) = 0.30, and 1.5 times as frequent as elsewhere
    assert corpus_map.topic_words(texts, group_of, 2)[0] == ["red"]
    assert corpus_map.topic_words(["ball", "ball", "sun", "ball"], np.array([0, 0, 1, 1]), 2)[0] == ["ball"]  # the only one


def test_labels_become_groups_and_the_rarest_share_one():
    labels = ["b", "a", "b", None, " ", 7, "a", "b"]
    names, group_of = corpus_map.label_groups(labels)
    assert names == ["b", "a", corpus_map.UNLABELLED, "7"]
    assert group_of.tolist() == [0, 1, 0, 2, 2, 3, 1, 0]
    many = [letter for number, letter in enumerate("abcdefghij") for _ in range(20 - number)]
    names, group_of = corpus_map.label_groups(many)
    assert names == [*"abcdefg", corpus_map.OTHER]
    assert np.bincount(group_of).tolist() == [20, 19, 18, 17, 16, 15, 14, 13 + 12 + 11]
    assert len(corpus_map.label_groups(list("abcdefgh"))[0]) == 8


def test_the_share_of_neighbours_in_the_group_of_a_hand_case(monkeypatch):
    monkeypatch.setattr(corpus_map, "NEIGHBOURS", 2)
    angles = np.radians([0, 1, 2, 90, 91, 3])  # the last of group 1 lies among group 0
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    group_of = np.array([0, 0, 0, 1, 1, 1])
    # Group 0: 0 -> 1, 2; 1 -> 0, 2; 2 -> 1, 5. Group 1: 3 -> 4, 5; 4 -> 3, 5; 5 -> 2, 1.
    np.testing.assert_allclose(corpus_map.neighbour_shares(unit, group_of, 2), [2.5 / 3, 2 / 3])


def test_principal_components_keep_distances_of_points_in_a_plane():
    random = np.random.default_rng(1)
    plane = random.normal(size=(20, 2)) * [3, 1]
    rows = plane @ np.linalg.qr(random.normal(size=(5, 5)))[0][:2] + 7
    found = corpus_map.principal_components(rows)
    distances = [np.linalg.norm(side[:, None] - side[None], axis=2) for side in (plane, found)]
    np.testing.assert_allclose(*distances, atol=1e-9)
    assert found[:, 0].std() > found[:, 1].std()
    assert corpus_map.principal_components(np.ones((4, 1))).shape == (4, 2)


def test_the_second_pca_is_turned_to_resemble_the_first(monkeypatch):
    without_t_sne(monkeypatch)
    vectors, number = three_groups()
    mirrored = vectors * np.array([-1, 1, -1, 1, 1, -1, 1, 1], np.float32)
    found = corpus_map.make_map([""] * 60, {"A": vectors, "B": mirrored}, number.tolist())
    assert found["layout"] == "PCA"
    assert "pip install openTSNE" in found["reason"]
    first, second = (np.array(panel["positions"]) for panel in found["panels"])
    assert np.abs(first - second).max() <= 2  # the same points, rounded


def test_t_sne_is_deterministic_and_starts_the_second_panel_from_the_first():
    pytest.importorskip("openTSNE")
    vectors, number = three_groups()
    moved, _ = three_groups(noise=0.05, seed=5)
    texts = [f"word{group} sentence" for group in number]
    found = corpus_map.make_map(texts, {"before": vectors, "after": moved}, number.tolist(), seed=3)
    assert (found["layout"], found["reason"]) == ("t-SNE", "")
    assert found == corpus_map.make_map(texts, {"before": vectors, "after": moved}, number.tolist(), seed=3)
    json.dumps(found, allow_nan=False)
    before, after = (np.array(panel["positions"]) for panel in found["panels"])
    assert before.min() == after.min() == 0
    assert max(before.max(), after.max()) == corpus_map.SIDE
    centres = [np.stack([side[number == group].mean(axis=0) for group in range(3)]) for side in (before, after)]
    nearest = np.linalg.norm(centres[0][:, None] - centres[1][None], axis=2).argmin(axis=1)
    assert nearest.tolist() == [0, 1, 2]  # the groups are where they were
    for group in found["groups"]:
        assert group["chance"] == round(19 / 59, 4)
        assert group["shares"][1] == 1.0 >= group["shares"][0] > group["chance"]


def test_clusters_are_those_of_both_models_and_are_named_by_their_words(monkeypatch):
    without_t_sne(monkeypatch)
    vectors, number = three_groups(noise=0.05)
    texts = [f"{('cat', 'dog', 'dog')[group]} {row}" for row, group in enumerate(number)]
    found = corpus_map.make_map(texts, {"A": np.ones((60, 2)), "B": vectors})  # the first model tells nothing apart
    assert found["grouped_by"] == "cluster"
    assert [group["count"] for group in found["groups"]] == [20, 20, 20]
    assert sorted(group["name"] for group in found["groups"]) == ["cat", "dog (1)", "dog (2)"]
    assert len(set(zip(found["group_of"], number.tolist(), strict=True))) == 3


@pytest.mark.parametrize("vectors", [np.ones((40, 3)), np.zeros((40, 3)), np.eye(2)[[0]], np.eye(40)])
def test_vectors_that_have_no_map_are_laid_out_all_the_same(vectors):
    found = corpus_map.make_map(["one text"] * len(vectors), {"A": vectors}, ["x"] * len(vectors))
    assert np.isfinite(np.array(found["panels"][0]["positions"])).all()
    map_page.map_page("x", found)


def test_every_group_has_a_shape_of_its_own():
    assert list(svg.MARKS) == list(svg.SERIES)
    assert len(svg.MARKS) == corpus_map.GROUPS
    assert len({outline for _, outline in svg.MARKS.values()}) == len({name for name, _ in svg.MARKS.values()}) == 8


@pytest.fixture
def page(monkeypatch):
    """The page of a map of hostile texts and labels under two models."""
    without_t_sne(monkeypatch)
    vectors, number = three_groups()
    labels = [("plain", HOSTILE, None)[group] for group in number]
    texts = [f"{HOSTILE} {row}" for row in range(60)]
    found = corpus_map.make_map(texts, {"A": vectors, "<b>B</b>": vectors}, labels)
    text = map_page.map_page(f"Map of {HOSTILE}", found)
    return text, ElementTree.fromstring(text)


def test_both_panels_show_the_same_sentences_in_the_marks_of_their_groups(page):
    _, tree = page
    panels = [picture for picture in tree.iter("svg") if picture.get("class") == "map"]
    shown = [[(path.get("class"), path[0].text) for path in panel.iter("path")] for panel in panels]
    assert shown[0] == shown[1]
    assert len({text for _, text in shown[0]}) == 60
    for name, text in shown[0]:
        group = {"a": HOSTILE, "b": corpus_map.UNLABELLED, "c": "plain"}[name.removeprefix("point ")]
        assert text.endswith(f"[{group}]".replace("\x1b", "\ufffd"))
    for panel in panels:
        shapes = {(p.get("class"), re.sub(r"^M[\d.]+ [\d.]+", "", p.get("d"))) for p in panel.iter("path")}
        assert shapes == {(f"point {letter}", svg.MARKS[letter][1]) for letter in "abc"}
        assert panel.get("role") == "img"
        assert [panel[0].tag, panel[1].tag] == ["title", "desc"]
        assert "plain: 20 sentences" in panel[1].text


def test_other_labels_lie_faint_below_the_groups():
    labels = [letter for letter in "abcdefghijk" for _ in range(3)]
    found = corpus_map.make_map(labels, {"A": np.eye(33)}, labels, reason_for_pca="it is a test")
    tree = ElementTree.fromstring(map_page.map_page("x", found))
    classes = [path.get("class") for picture in tree.iter("svg") if picture.get("class") == "map" for path in picture.iter("path")]
    assert classes[:12] == ["point h faint"] * 12  # four labels of three sentences
    assert not any("faint" in name for name in classes[12:])


def test_hostile_texts_stay_texts_and_the_page_has_no_code(page):
    text, tree = page
    assert "<script" not in text
    assert "\x1b" not in text
    assert not {element.tag for element in tree.iter()} & {"script", "img", "link", "iframe", "use", "b:B"}
    assert not [key for element in tree.iter() for key in element.attrib if key.startswith("on") or key in ("src", "href", "style")]
    assert "http" not in text


def test_the_table_has_the_numbers_of_every_group(page):
    _, tree = page
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert rows[0] == ["group", "sentences", "frequent words", "by chance", "A", "<b>B</b>"]
    assert [row[0] for row in rows[1:]] == [
        f"circle{HOSTILE}".replace("\x1b", "\ufffd"),
        "square" + corpus_map.UNLABELLED,
        "triangleplain",
    ]
    assert all(row[1] == "20" and row[3] == "32%" and row[4] == row[5] for row in rows[1:])


class StandIn:
    """An encoder whose vectors depend on the first letter of a text."""

    truncate_dim = None

    def prompt_for(self, task):
        return ""

    def encode(self, texts, batch_size, show_progress_bar, prompt):
        return np.stack([np.eye(26)[ord(text[0]) - ord("a")] + 0.01 * len(text) for text in texts])


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A table of sentences with labels, one of them empty, and stand-ins for models."""
    monkeypatch.setattr(command, "load_encoder", lambda options: StandIn())
    without_t_sne(monkeypatch)
    rows = [{"text": f"{letter}pple number {number}", "section": letter.upper()} for number in range(25) for letter in "ab"]
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": " ", "section": "C"}]), encoding="utf-8")
    return file


def run(*arguments):
    return program(main, ["jax-sentemb", "map", *map(str, arguments)])


def test_the_command_writes_a_page_with_the_labels_of_the_corpus(corpus, capsys):
    output = corpus.with_name("map.html")
    options = ("--corpus", corpus, "--label-column", "section", "--sentences", 30, "--output", output)
    assert run("--model", "x/one", "y/two", *options) == 0
    out, err = capsys.readouterr()
    assert out == f"written: {output}: 30 sentences, 2 groups, PCA\n"
    assert "1 of 51 records have no text (rows 50): they are left out" in err
    assert "laid out by PCA: for t-SNE: pip install openTSNE" in err
    tree = ElementTree.fromstring(output.read_text(encoding="utf-8"))
    titles = ["".join(caption.itertext()).split(".")[0] for caption in tree.iter("figcaption")]
    assert titles == ["one", "two"]
    for picture in (picture for picture in tree.iter("svg") if picture.get("class") == "map"):
        texts = [path[0].text for path in picture.iter("path")]
        assert len(set(texts)) == 30
        assert all(text.endswith(f"[{text[0].upper()}]") for text in texts)
    before = output.read_bytes()
    assert run("--model", "x/one", "y/two", *options) == 0
    assert output.read_bytes() == before
    assert run("--model", "x/one", "y/two", *options, "--seed", 1) == 0
    assert output.read_bytes() != before


def test_a_label_for_nearly_every_sentence_is_noted(corpus, capsys):
    rows = [{"text": f"apple {number}", "section": str(number)} for number in range(30)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = ("--corpus", corpus, "--label-column", "section", "--output", corpus.with_name("map.html"))
    assert run("--model", "x", *options) == 0
    noted = f"{31 - corpus_map.GROUPS} of 30 sentences have rare labels, which share a group; leave out --label-column for clusters"
    assert noted in capsys.readouterr().err


def test_one_model_has_one_panel_and_equal_names_are_told_apart(corpus):
    assert run("--model", "x", "--corpus", corpus, "--output", corpus.with_name("one.html")) == 0
    assert corpus.with_name("one.html").read_text(encoding="utf-8").count("<figure>") == 1
    assert command._model_names(["a/export", "b/export"]) == ["a/export", "b/export"]
    assert command._model_names(["before=a/export", "b/export"]) == ["before", "export"]
    with pytest.raises(ConfigError, match="the same name"):
        command._model_names(["export=a", "b/export"])
    assert command._model_names(["a/x/export", "b/x/export"]) == ["a/x/export", "b/x/export"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ({"--model": ["a", "b", "c"]}, 2, "--model a b c: a map shows one model or two; leave some out"),
        ({"--model": ["a", "./a"]}, 2, "--model a is given twice"),
        ({"--sentences": ["2001"]}, 2, "--sentences 2001: a map shows 2 to 2000 sentences"),
        ({"--sentences": ["1"]}, 2, "--sentences 1: a map shows 2 to 2000 sentences"),
        ({"--output": ["."]}, 2, "--output . exists and is not a page: give another name or move it away"),
        ({"--output": ["one.txt"]}, 2, "--output one.txt exists and is not a page: give another name or move it away"),
        ({"--corpus": ["absent.txt"]}, 3, "--corpus absent.txt"),
        ({"--label-column": ["nothing"]}, 3, "nothing"),
        ({"--corpus": ["one.txt"], "--label-column": ["section"]}, 2, "--label-column section: one.txt has lines but no columns"),
        ({"--corpus": ["one.txt"]}, 3, "--corpus one.txt has 1 sentence; a map needs at least 2"),
        ({"--output": ["absent/map.html"]}, 2, "--output absent/map.html: there is no folder absent; create it"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(corpus, monkeypatch, capsys, arguments, code, problem):
    monkeypatch.chdir(corpus.parent)
    Path("one.txt").write_text("only\n", encoding="utf-8")
    files = sorted(Path().iterdir())
    given = {"--model": ["m"], "--corpus": [str(corpus)], "--output": ["map.html"]} | arguments
    assert run(*(part for name, values in given.items() for part in (name, *values))) == code
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert problem in line
    assert sorted(Path().iterdir()) == files
