"""The evaluate command on a hand-made SentEval folder with word vectors, and the store behind it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from jax_sentemb.cli.evaluate import main
from jax_sentemb.cli.program import program
from jax_sentemb.evaluation import arguments, suite
from jax_sentemb.evaluation.catalog import SETS
from jax_sentemb.evaluation.sts import PROTOCOLS
from jax_sentemb.evaluation.tables import FailedTask, layout

WORDS = [f"{one}{other}" for one in "klmnrs" for other in "aeiou"]


@pytest.fixture
def folder(tmp_path):
    """CR and Tense, whose labels hang on a word, STS13 and SICK, whose scores hang on shared words."""
    random = np.random.default_rng(0)

    def sentence(*extra):
        return " ".join([*random.choice(WORDS, random.integers(3, 7)), *extra])

    def write(path, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    root = tmp_path / "data"
    write(root / "downstream/CR/custrev.pos", [sentence("good") for _ in range(30)])
    write(root / "downstream/CR/custrev.neg", [sentence("bad") for _ in range(25)])
    rows = [(part, "PAST" if number % 2 else "PRES") for part in ("tr", "va", "te") for number in range(20)]
    write(root / "probing/past_present.txt", [f"{part}\t{label}\t{sentence(label.lower())}" for part, label in rows])

    def pairs(count):
        for number in range(count):
            first = sentence()
            yield first, first if number % 2 else sentence(), 5 - 4 * (number % 2 == 0) + random.uniform(-1, 0)

    for subset in SETS["STS13"].spec.files:
        made = list(pairs(12))
        write(root / f"downstream/STS/STS13-en-test/STS.input.{subset}.txt", [f"{a}\t{b}" for a, b, _ in made])
        write(root / f"downstream/STS/STS13-en-test/STS.gs.{subset}.txt", [f"{gold:.3f}" for _, _, gold in made])
    for part in ("train", "trial", "test_annotated"):
        lines = [f"{n}\t{a}\t{b}\t{gold:.2f}\t{('NEUTRAL', 'ENTAILMENT')[n % 2]}" for n, (a, b, gold) in enumerate(pairs(12))]
        lines = ["id\tsentence_A\tsentence_B\trelatedness_score\tlabel", *lines]
        write(root / f"downstream/SICK/SICK_{part}.txt", lines)
    vectors = [
        f"{word} " + " ".join(f"{x:.4f}" for x in random.normal(size=30)) for word in [*WORDS, "good", "bad", "past", "pres"]
    ]
    write(tmp_path / "small.txt", vectors)
    return tmp_path


def run(*arguments):
    return program(main, ["evaluate", *map(str, arguments)])


QUICK = ("--classifier", "logreg", "--resamples", 50)


def test_scores_of_several_models_with_their_ensemble(folder, capsys):
    tasks = ("--tasks", "sts,CR,Tense", "--data", folder / "data", "--output", folder / "out", *QUICK)
    assert (
        run("--model", folder / "small.txt", "--model", "again=" + str(folder / "small.txt@sif+whiten"), "--ensemble", *tasks) == 0
    )
    shown = capsys.readouterr()
    assert (
        "missing, not scored: STS12, STS14, STS15, STS16, STSBenchmark-dev, STSBenchmark-dev-disjoint, STSBenchmark-test"
        in shown.out
    )
    assert "instead of the published 1,500: scores are not comparable" in shown.err
    table = (folder / "out" / "tables.md").read_text(encoding="utf-8")
    assert "| model | STS13 | SICK-R trial | SICK-R | mean of 2 |" in table
    assert "| ensemble |" in table
    record = json.loads((folder / "out" / "small.txt" / "STS13.json").read_text(encoding="utf-8"))
    assert record["protocol"] == "simcse"
    assert record["sizes"] == dict.fromkeys(SETS["STS13"].spec.files, 12)
    assert record["scores"]["score"] == record["scores"]["cosine"]["spearman"]["all"] > 50
    low, high = record["scores"]["interval"]
    assert low < record["scores"]["score"] < high
    assert len(record["data_sha256"]) == 6
    assert set(record["versions"]) >= {"jax_sentemb", "jax", "numpy"}
    again = json.loads((folder / "out" / "again" / "CR.json").read_text(encoding="utf-8"))
    assert again["protocol"] == "logreg"
    assert again["scores"]["accuracy"] > 65
    assert len(again["chosen"]["C"]) == 10
    assert again["model_facts"]["options"] == ["sif", "whiten"]
    assert str(folder) not in json.dumps(again)
    mixed = json.loads((folder / "out" / "ensemble" / "CR.json").read_text(encoding="utf-8"))
    assert mixed["scores"]["accuracy"] > 65


def test_plots_of_cosine_against_gold(folder):
    pytest.importorskip("matplotlib")
    arguments = ("--data", folder / "data", "--tasks", "STS13", "--output", folder / "out", "--plots", *QUICK)
    assert run("--model", folder / "small.txt", *arguments) == 0
    assert (folder / "out" / "small.txt" / "STS13.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "out" / "small.txt" / "STS13.csv").read_text(encoding="utf-8").splitlines()) == 37


def test_tf_idf_and_the_senteval_protocol(folder, capsys):
    assert (
        run("--model", "tf-idf", "--tasks", "CR,STS13", "--data", folder / "data", "--sts-protocol", "senteval", "--resamples", 0)
        == 0
    )
    assert "Pearson x 100 of the cosine, mean over subsets (protocol senteval)" in capsys.readouterr().out


def test_a_collapsed_model_fails_task_by_task_and_never_prints_nan(folder, capsys):
    vectors = (folder / "small.txt").read_text(encoding="utf-8").splitlines()
    (folder / "flat.txt").write_text("".join(line.split(" ")[0] + " 1 1 1\n" for line in vectors), encoding="utf-8")
    models = ("--model", folder / "flat.txt", "--model", folder / "small.txt")
    assert run(*models, "--tasks", "CR,STS13", "--data", folder / "data", "--output", folder / "out", *QUICK) == 5
    shown = capsys.readouterr()
    assert "error: flat.txt: CR: all 55 embeddings of all are equal: the model collapsed" in shown.err
    assert "error: flat.txt: STS13: FNWN: all 12 pairs have the similarity" in shown.err
    assert "failed" in shown.out
    assert "nan" not in shown.out.lower()
    assert not (folder / "out" / "flat.txt").exists()
    assert (folder / "out" / "small.txt" / "CR.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "x", "--data", "DATA", "--tasks", "STS99"], 2, "--tasks STS99 is unknown; the groups are sts"),
        (["--model", "x", "--data", "DATA", "--tasks", "SUBJ"], 3, "SUBJ: DATA/downstream/SUBJ/subj.objective is missing"),
        (["--model", "x", "--data", "absent"], 3, "--data absent: no such folder; give the SentEval folder"),
        (
            ["--model", "x", "--data", "."],
            3,
            "--data . is not a SentEval directory: it has no folder downstream; for your own files",
        ),
        (["--data", "DATA"], 2, "no --model"),
        (["--model", "x"], 2, "no data: give --pairs FILE, --retrieval DIR or --labels FILE"),
        (["--check", "--model", "x", "--arguments", "y"], 2, "--check needs --data"),
        (["--fetch", "--model", "x", "--arguments", "y"], 2, "--fetch needs --data"),
        (["--model", "./absent", "--data", "DATA"], 2, "--model ./absent: no such directory"),
        (["--model", "WORDS@maximum", "--data", "DATA"], 2, "option 'maximum' is unknown; the options are cls, mean"),
        (["--model", "WORDS@cls", "--data", "DATA"], 2, "cls is a pooling of encoders"),
        (["--model", "tf-idf@sif", "--data", "DATA"], 2, "tf-idf takes only whiten"),
        (["--model", "WORDS@sif+random-projection", "--data", "DATA"], 2, "random-projection takes no other option"),
        (["--model", "tf-idf", "--model", "tf-idf", "--data", "DATA"], 2, "two models are called tf-idf: write NAME=PATH"),
        (["--model", "x", "--data", "DATA", "--sts-protocol", "y"], 2, "--sts-protocol y: unknown; there are simcse"),
        (["--model", "x", "--data", "DATA", "--classifier", "y"], 2, "--classifier y is unknown; the classifiers are senteval"),
        (["--model", "x", "--data", "DATA", "--plots"], 2, "--plots needs --output"),
        (
            ["ensemble=tf-idf", "b=tf-idf", "--data", "DATA", "--ensemble"],
            2,
            "a model is called ensemble, as the row of --ensemble",
        ),
        (["--model", "x", "--data", "DATA", "--ensemble"], 2, "--ensemble has one model, x; give two or more"),
        (["--model", "tf-idf", "--data", "DATA", "--tasks", "CR", "--vectors", "WORDS"], 2, "--vectors WORDS is not used"),
        (["--model", "x", "--data", "DATA", "--check"], 2, "--model x is not used: --check scores nothing"),
        (["--data", "DATA", "--check", "--tasks", "sts"], 2, "--tasks is not used: --check scores nothing"),
        (["--data", "DATA", "--check", "--plots"], 2, "--plots is not used: --check scores nothing"),
        (["--model", "..=WORDS", "--data", "DATA"], 2, "'..' cannot be the name of a model"),
        (["--models", "x"], 2, "--help lists the options"),
        (["--model", "tf-idf", "--data", "DATA", "--tasks", "Length"], 3, "Length: DATA/probing/sentence_length.txt is missing"),
    ],
)
def test_mistakes(folder, capsys, arguments, code, message):
    place = {"DATA": str(folder / "data"), "WORDS": str(folder / "small.txt")}

    def fill(text):
        for name, value in place.items():
            text = text.replace(name, value)
        return text

    assert run(*map(fill, arguments)) == code
    error = capsys.readouterr().err
    assert fill(message) in error
    assert error.splitlines()[-1].startswith("error: ")


def test_an_argument_corpus_of_ones_own_needs_no_senteval_folder(folder, capsys):
    rows = [f"{one} {other}\t{one}\t{label}\ttopic" for one, other, label in zip(WORDS, WORDS[3:], "012" * 9, strict=False)]
    (folder / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel\ttopic", *rows]), encoding="utf-8")
    assert run("--model", folder / "small.txt", "--arguments", folder / "pairs.tsv", "--output", folder / "out") == 0
    assert "pairs pearson" in capsys.readouterr().out
    record = json.loads((folder / "out" / "small.txt" / "pairs.json").read_text(encoding="utf-8"))
    assert record["scores"]["unsupervised"]["n"] == 27
    assert "has one topic" in record["scores"]["cross-topic"]["left_out"]
    assert set(record["data_sha256"]) == {"pairs.tsv"}


def test_regressions_that_nobody_sees_are_not_trained(folder, capsys, monkeypatch):
    rows = [f"{one}\t{other}\t{label}\ttopic" for one, other, label in zip(WORDS, WORDS[3:], "012" * 9, strict=False)]
    (folder / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel\ttopic", *rows]), encoding="utf-8")
    trained = []
    monkeypatch.setattr(arguments, "score_supervised", lambda embed, task, scheme: trained.append(scheme) or {})
    for output, schemes in (((), []), (("--output", folder / "regressions"), ["10-fold", "cross-topic"])):
        assert run("--model", folder / "small.txt", "--arguments", folder / "pairs.tsv", *output) == 0
        assert "pairs pearson" in capsys.readouterr().out
        assert trained == schemes


def test_lists(folder, capsys):
    assert run("--tasks", "help") == 0
    assert "transfer   MR, CR, SUBJ" in capsys.readouterr().out
    (folder / "data/downstream/CR/custrev.neg").write_text("", encoding="utf-8")
    assert run("--check", "--data", folder / "data") == 3
    shown = capsys.readouterr().out
    assert "missing: downstream/TREC/ train_5500.label, TREC_10.label" in shown
    assert "SICKEntailment            there    train 12, dev 12, test 12" in shown
    assert "warning: " in shown
    assert "CR                        bad      CR (downstream/CR/custrev.neg, downstream/CR/custrev.pos): all 30 examples" in shown


def test_a_damaged_task_of_a_group_does_not_keep_the_others_from_being_scored(folder, capsys):
    (folder / "data/downstream/CR/custrev.neg").write_text("", encoding="utf-8")
    assert run("--model", folder / "small.txt", "--tasks", "sts,transfer", "--data", folder / "data", *QUICK) == 3
    shown = capsys.readouterr()
    assert "error: CR (downstream/CR/custrev.neg, " in shown.err
    assert "STS13" in shown.out


def test_a_mean_over_subsets_says_which_of_sts13(folder, capsys):
    year, names = folder / "data/downstream/STS/STS13-en-test", "FNWN, headlines, OnWN"
    arguments = ("--model", folder / "small.txt", "--tasks", "STS13", "--data", folder / "data", *QUICK, "--output", folder / "out")
    assert run(*arguments, "--sts-protocol", "multiview") == 0
    shown = capsys.readouterr()
    said = f"STS13: the subset SMT is missing (SentEval does not include it), the score is over {names} only"
    assert said in shown.err + shown.out
    assert f"STS13: mean over {names}\n" in shown.out
    for kind in ("input", "gs"):
        (year / f"STS.{kind}.SMT.txt").write_bytes((year / f"STS.{kind}.FNWN.txt").read_bytes())
    for protocol, noted in (("multiview", f"STS13: mean over {names}, SMT\n"), ("senteval", f"STS13: mean over {names}\n")):
        assert run(*arguments, "--sts-protocol", protocol) == 0
        shown = capsys.readouterr()
        assert noted in shown.out
        assert "SMT is missing" not in shown.err + shown.out
        scores = json.loads((folder / "out" / "small.txt" / "STS13.json").read_text(encoding="utf-8"))["scores"]
        subsets = list(scores["cosine"]["pearson"]["subsets"].values())
        assert len(subsets) == (4 if protocol == "multiview" else 3)
        assert scores["score"] == pytest.approx(np.mean(subsets))
    assert run(*arguments, "--sts-protocol", "simcse") == 0
    assert "mean over FNWN" not in capsys.readouterr().out


def test_each_distinct_sentence_is_encoded_once_and_forgotten_after_its_last_task(folder):
    items = [suite.load(name, folder / "data") for name in ("STS13", "SICKRelatedness-test", "SICKRelatedness", "CR")]
    calls = []

    def encode(sentences):
        calls.extend(sentences)
        return np.array([[hash(sentence) % 1000, len(sentence)] for sentence in sentences])

    store = suite.EmbeddingStore(items, encode, lambda count: None)
    for number, item in enumerate(items):
        place, vectors = store.vectors(number, item)
        assert set(place) == set(item.sentences)
        for sentence, row in place.items():
            assert vectors[row].tolist() == [hash(sentence) % 1000, len(sentence)]
        assert all(store.last[sentence] > number for sentence in store._stored)
    assert sorted(calls) == sorted({sentence for item in items for sentence in item.sentences})


def test_an_average_leaves_development_sets_out_and_needs_every_score():
    def outcome(name, score):
        return SimpleNamespace(item=SimpleNamespace(name=name, group="sts", sizes={}), headline={name: score})

    both = {
        name: outcome(name, score) for name, score in {"STS12": 50.0, "STSBenchmark-dev": 10.0, "STSBenchmark-test": 71.0}.items()
    }
    outcomes = {"a": both, "b": {"STS12": outcome("STS12", 40.0), "STSBenchmark-dev": outcome("STSBenchmark-dev", 20.0)}}
    protocols = SimpleNamespace(sts=PROTOCOLS["simcse"], classifier=SimpleNamespace(name="logreg"))
    (found,) = layout(outcomes, protocols, ["STS13", "MR"], [FailedTask("b", "STSBenchmark-test", "out of memory")])
    assert found.columns == ["STS12", "STS-B dev", "STS-B", "mean of 2"]
    assert found.rows == [("a", ["50.00", "10.00", "71.00", "60.50"]), ("b", ["40.00", "20.00", "failed", "-"])]
    assert found.notes == ["missing, not scored: STS13", "failed: b: STSBenchmark-test: out of memory"]
