"""Readers of SentEval's classification files on hand-made folders."""

import numpy as np
import pytest

from jax_sentemb.errors import DataError
from jax_sentemb.evaluation import tasks
from jax_sentemb.evaluation.catalog import GROUPS, SETS


def load_task(name, folder):
    return tasks.load_task(name, SETS[name].spec, folder)


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


@pytest.fixture
def folder(tmp_path):
    """A few lines of every kind of file."""
    down = tmp_path / "downstream"
    write(down / "MR" / "rt-polarity.pos", "caf\xe9  is fine\r\ngood\n\na b c d\n", "latin-1")
    write(down / "MR" / "rt-polarity.neg", "bad\x85worse still\nno\n", "latin-1")
    for name in ("train_5500.label", "TREC_10.label"):
        write(down / "TREC" / name, "NUM:dist How far is it ?\nHUM:ind Who ?\nABBR:exp What is \xe9 ?\n", "latin-1")
    for name in ("train", "dev", "test"):
        write(down / "SST" / "binary" / f"sentiment-{name}", "a fine film\t1\nbad\t0\n")
        write(down / "SST" / "fine" / f"sentiment-{name}", "4 a fine film\n0 bad\r\n")
    for name in ("train", "test"):
        text = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        text += "1\t2\t3\tHe \u201csaid\u201d it\tIt was said\n0\t4\t5\tNo\tYes it is\n"
        write(down / "MRPC" / f"msr_paraphrase_{name}.txt", text)
    for name in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        lines = "1\tA b c\tB\t4.5\tENTAILMENT\n2\tC\tD e\t1\tNEUTRAL\n3\tC\tD f\t0.5\tCONTRADICTION\n"
        write(down / "SICK" / name, SICK + lines)
    for name in ("train", "dev", "test"):
        write(down / "STS" / "STSBenchmark" / f"sts-{name}.csv", "g\tf\ty\t1\t5.000\ta b\tc\tsource\ng\tf\ty\t2\t0\td\te\n")
    rows = "".join(
        f"{part}\t{label}\tthe sentence {word}\n" for part in ("tr", "va", "te") for label, word in (("PRES", "a"), ("PAST", "b c"))
    )
    write(tmp_path / "probing" / "past_present.txt", rows)
    return tmp_path


def test_two_files_in_sentevals_order_with_sentevals_line_ends(folder):
    mr = load_task("MR", folder)
    split = mr.splits["all"]
    # By number of tokens, then label; empty lines stay; \x85 ends a line of Latin-1 text.
    assert split.first == ["", "bad", "no", "good", "worse still", "caf\xe9 is fine", "a b c d"]
    assert split.labels.tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert split.second == []
    assert mr.sentences == split.first
    assert len(mr.warnings) == 2
    assert "rt-polarity.pos: 4 sentences instead of the published 5,331" in mr.warnings[0]


def test_order_is_that_of_python_sorting(tmp_path):
    random = np.random.default_rng(0)
    lines = [" ".join("x" * random.integers(1, 5)) + f" {number}" for number in range(60)]
    write(tmp_path / "downstream/CR/custrev.pos", "\n".join(lines[:30]))
    write(tmp_path / "downstream/CR/custrev.neg", "\n".join(lines[30:]))
    samples = [line.split() for line in lines]
    expected = sorted(zip(samples, [1] * 30 + [0] * 30, strict=True), key=lambda z: (len(z[0]), z[1]))
    split = load_task("CR", tmp_path).splits["all"]
    assert split.first == [" ".join(tokens) for tokens, _ in expected]
    assert split.labels.tolist() == [label for _, label in expected]


def test_questions(folder):
    split = load_task("TREC", folder).splits["test"]
    assert split.first == ["Who ?", "What is \xe9 ?", "How far is it ?"]
    assert split.labels.tolist() == [3, 0, 5]


def test_sentiment(folder):
    assert load_task("SST2", folder).splits["dev"].first == ["bad", "a fine film"]
    fine = load_task("SST5", folder)
    assert fine.splits["train"].labels.tolist() == [0, 4]
    assert fine.classes == tuple("01234")


def test_pairs(folder):
    mrpc = load_task("MRPC", folder)
    assert mrpc.splits["test"].first == ["No", "He \u201csaid\u201d it"]
    assert mrpc.splits["test"].second == ["Yes it is", "It was said"]
    assert mrpc.splits["test"].labels.tolist() == [0, 1]
    assert sorted(mrpc.sentences) == sorted(["No", "He \u201csaid\u201d it", "Yes it is", "It was said"] * 2)
    entailment = load_task("SICKEntailment", folder).splits["train"]
    assert entailment.second == ["D f", "D e", "B"]  # equal lengths: by label, CONTRADICTION first
    assert entailment.labels.tolist() == [0, 1, 2]
    assert load_task("SICKRelatedness", folder).splits["dev"].labels.tolist() == [0.5, 1, 4.5]
    assert load_task("STSBenchmark", folder).splits["test"].labels.tolist() == [0, 5]


def test_probing_files_hold_three_parts(folder):
    tense = load_task("Tense", folder)
    assert tense.classes == ("PAST", "PRES")
    assert tense.splits["dev"].first == ["the sentence a", "the sentence b c"]
    assert tense.splits["dev"].labels.tolist() == [1, 0]
    assert "past_present.txt: 2 sentences of train instead of the published 100,000" in tense.warnings[0]


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("TREC", "downstream/TREC/TREC_10.label", "NUM:a b\nno label\n", r"TREC_10.label:2: expected LABEL:sublabel question"),
        ("TREC", "downstream/TREC/TREC_10.label", "NUM:a b\nXYZ:a b\n", r"TREC .*unknown label 'XYZ', expected one of ABBR"),
        ("SST2", "downstream/SST/binary/sentiment-dev", "a 1\n", r"sentiment-dev:1: 1 tab-separated fields, expected at least 2"),
        ("SST5", "downstream/SST/fine/sentiment-dev", "4 a\n1\n", r"sentiment-dev:2: expected a label, a space and a sentence"),
        ("SST2", "downstream/SST/binary/sentiment-dev", "a\t1\nb\t1\n", r"SST2 .*all 2 examples have the same class"),
        ("SST2", "downstream/SST/binary/sentiment-dev", "", r"SST2 .*one of its splits is empty"),
        (
            "SICKRelatedness",
            "downstream/SICK/SICK_trial.txt",
            SICK + "1\ta\tb\t6\tX\n",
            r"gold score '6' is not a number from 0 to 5",
        ),
        ("Tense", "probing/past_present.txt", "xx\tA\tb\n", r"past_present.txt:1: the first field is 'xx'"),
    ],
)
def test_malformed_files(folder, name, file, text, message):
    write(folder / file, text)
    with pytest.raises(DataError, match=message):
        load_task(name, folder)


def test_other_encodings_and_missing_files(folder):
    write(folder / "downstream/SST/binary/sentiment-dev", "caf\xe9\t1\nb\t0\n", "latin-1")
    with pytest.raises(DataError, match=r"sentiment-dev: byte 3 is not UTF-8"):
        load_task("SST2", folder)
    with pytest.raises(DataError, match=r"SUBJ: .*subj.objective is missing"):
        load_task("SUBJ", folder)


def test_real_tasks_have_the_published_sizes(shared):
    root = shared / "data" / "senteval"
    if not root.is_dir():
        pytest.skip("no SentEval folder")
    for name in (*GROUPS["transfer"], *GROUPS["probing"]):
        if all(file.is_file() for file in SETS[name].files(root)):
            assert load_task(name, root).warnings == ()
