"""jax-sentemb compare: the runs it makes, its table, and its messages."""

import csv
import re

import numpy as np
import pytest

from jax_sentemb.cli import compare
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.data.word_vectors import WordVectorTable
from jax_sentemb.evaluation.word_baselines import FixedSIF
from jax_sentemb.reporting.comparison_table import START, WORDS, Entry, as_markdown, difference, layout
from jax_sentemb.training import run
from jax_sentemb.training.comparison import Budget, base_config, comparison
from jax_sentemb.training.sweep import variants

TINY = [
    "--config.encoder.hidden_size=32", "--config.encoder.num_hidden_layers=1", "--config.encoder.num_attention_heads=2",
    "--config.encoder.intermediate_size=64", "--config.eval.max_seq_length=24", "--config.eval.diagnostic_sentences=64",
    "--config.eval.report_sentences=0", "--config.eval.batch_size=32",
]  # fmt: skip


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, word vectors, and a SentEval folder with STS13, SICK and STS-B dev of generated pairs."""
    root = tmp_path_factory.mktemp("compare")
    sentences = synthetic.sentences(300, 3)
    write(root / "corpus.txt", sentences)
    words = sorted({word for sentence in sentences for word in sentence.split()})
    random = np.random.default_rng(0)
    write(root / "glove.txt", [" ".join([word, *(f"{value:.3f}" for value in random.normal(size=6))]) for word in words])
    sts = root / "data/downstream/STS"
    for seed, subset in enumerate(("FNWN", "headlines", "OnWN")):
        first, second, gold = synthetic.graded_pairs(24, seed)
        write(sts / f"STS13-en-test/STS.input.{subset}.txt", map("\t".join, zip(first, second, strict=True)))
        write(sts / f"STS13-en-test/STS.gs.{subset}.txt", gold)
    pairs = list(zip(*synthetic.graded_pairs(24, 9), strict=True))
    write(sts / "STSBenchmark/sts-dev.csv", ["\t".join(("g", "f", "2017", "1", f"{gold}", a, b)) for a, b, gold in pairs])
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    write(
        root / "data/downstream/SICK/SICK_test_annotated.txt",
        [header, *(f"1\t{a}\t{b}\t{gold}\tNEUTRAL" for a, b, gold in pairs[:12])],
    )
    return root


def command(folder, *options):
    return ["jax-sentemb compare", "--corpus", str(folder / "corpus.txt"), "--data", str(folder / "data"), *options]


def test_a_comparison_has_baselines_both_budgets_and_intervals_and_continues(folder, tmp_path, capsys):
    other = write(tmp_path / "other.yaml", ["recipe: simcse", "data.length_grouping: 1"])
    options = ["--recipes", f"simcse,{other}", "--seeds", "2", "--steps", "2", "--batch-size", "8", "--max-seq-length", "24"]
    options += ["--workdir", str(tmp_path), "--vectors", str(folder / "glove.txt"), *TINY]
    assert program(compare.main, command(folder, *options)) == 0
    shown = capsys.readouterr()
    page = (tmp_path / "compare.md").read_text()
    results = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.split("\n\n")[0].splitlines()]
    names = [row[0] for row in results[2:]]
    assert names == [
        "untrained, cls", "untrained, mean", "untrained, first_last", "tf-idf", "word vectors, mean",
        "word vectors without stop words", "SIF as published", "SIF fitted on the corpus",
        "simcse, published", "other, published", "simcse, common", "other, common",
    ]  # fmt: skip
    by_name = {row[0]: row for row in results[2:]}
    assert by_name["simcse, published"][1:4] == ["cls", "32", "64"]
    assert by_name["simcse, common"][1:4] == by_name["other, common"][1:4] == ["mean", "24", "8"]
    assert re.fullmatch(r"(\d of )?2", by_name["simcse, common"][4])
    assert re.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", by_name["simcse, published"][-2])
    assert by_name["simcse, common"][-1] == ""
    assert by_name["other, common"][-1] == "+0.00 [+0.00, +0.00]"  # the only difference is one that the common budget sets
    assert by_name["other, published"][-1] != "+0.00 [+0.00, +0.00]"
    assert "average: mean of STS13, SICKRelatedness-test; absent: STS12" in page
    assert "STS-B dev without the pairs of the scored sets" in page
    with (tmp_path / "compare.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["seed"]) for row in rows if row["name"] == "simcse"] == [
        ("published", "1"), ("published", "2"), ("common", "1"), ("common", "2"),
    ]  # fmt: skip
    assert "missing baselines" not in shown.out
    assert program(compare.main, command(folder, *options)) == 0
    again = capsys.readouterr().out
    assert again.count("already done") == 2 * 3 + 2 * 4
    assert "step 4" not in again
    assert (tmp_path / "compare.md").read_text() == page


def test_the_common_budget_is_the_same_for_all_and_the_published_one_is_that_of_the_recipe(folder):
    base = base_config(str(folder / "corpus.txt"), "text", "", folder / "data")
    made = comparison(["simcse", "micse", "is_bert"], 3, base, Budget(100, 16, 20, "mean"), [("optimizer.weight_decay", "0.1")])
    runs = {(chosen["variant"], chosen["train.seed"]): config for chosen, config in variants(made.study)}
    assert len(runs) == 3 * 2 * 3
    common = [runs[f"{name}:common", "2"] for name in ("simcse", "micse", "is_bert")]
    for config in common:
        assert (config.train.max_steps, config.data.batch_size, config.data.max_seq_length) == (100, 16, 20)
        assert (config.method.pooling, config.optimizer.warmup_steps, config.optimizer.warmup_ratio) == ("mean", 0, 0.1)
        assert (config.eval.eval_steps, config.eval.dev) == (10, "STSBenchmark-dev-disjoint")
    assert [config.optimizer.learning_rate for config in common] == [3e-5, 3e-5, 2e-6]
    published = runs["micse:published", "1"]
    assert (published.data.batch_size, published.optimizer.warmup_steps, published.eval.eval_steps) == (50, 250, 500)
    assert (runs["is_bert:published", "1"].data.max_seq_length, runs["is_bert:published", "1"].data.column) == (130, "text")
    assert {config.optimizer.weight_decay for config in runs.values()} == {0.1}
    assert {config.train.seed for config in runs.values()} == {1, 2, 3}
    starts = [config for _, config in variants(made.starts)]
    assert [config.method.pooling for config in starts[:3]] == ["cls", "mean", "first_last"]
    assert {config.train.max_steps for config in starts} == {0}
    assert len(starts) == 3 * 3


def test_the_start_from_a_bert_is_scored_once(folder):
    base = base_config(str(folder / "corpus.txt"), "text", "some/bert", folder / "data")
    made = comparison(["simcse"], 5, base, Budget(100, 16, 20, "mean"))
    assert len(variants(made.starts)) == 3
    assert {config.encoder.weights for _, config in variants(made.study)} == {"some/bert"}


def test_without_a_development_set_the_last_step_is_scored(folder, tmp_path):
    sts13 = tmp_path / "downstream/STS/STS13-en-test"
    sts13.mkdir(parents=True)
    for file in (folder / "data/downstream/STS/STS13-en-test").iterdir():
        (sts13 / file.name).write_text(file.read_text())
    made = comparison(["simcse"], 1, base_config(str(folder / "corpus.txt"), "text", "", tmp_path), Budget(9, 8, 20, "mean"))
    assert not made.selects
    assert {config.eval.select for _, config in variants(made.study)} == {"last"}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--recipes", "simcse,nothing"], 2, "--config nothing: no such file and no recipe of that name"),
        (["--recipes", ","], 2, "--recipes is empty"),
        (["--recipes", "simcse,simcse"], 2, "a recipe is named twice"),
        (["--recipes", "micse_low_shot"], 2, "--recipes micse_low_shot is a study of several runs"),
        (["--recipes", "is_bert_ssl_ft"], 2, "--recipes is_bert_ssl_ft trains twice"),
        (["--recipes", "cons_sent"], 2, "--recipes cons_sent trains on word vectors"),
        (["--recipes", "cross_encoder_stsb"], 2, "--recipes cross_encoder_stsb does not train sentence embeddings"),
        (["--recipes", "mlm"], 2, "--recipes mlm does not train sentence embeddings"),
        (["--recipes", "sbert_stsb"], 2, "--recipes sbert_stsb has its own data, senteval:STSBenchmark"),
        (["--recipes", "simcse:tiny"], 2, "--recipes simcse has its own data"),
        (["--recipes", "simcse,is_bert", "--readout", "cls"], 2, "--readout cls: is_bert can only be read by mean; use --readout"),
        (["--recipes", "simcse", "--readout", "max"], 2, "--readout max: simcse can only be read by"),
        (["--recipes", "simcse", "--seeds", "0"], 2, "'0' is not a whole number from 1"),
        (["--recipes", "simcse", "--config.data.batch_size=8"], 2, "is not a setting of a comparison; use --batch-size"),
        (["--recipes", "simcse", "--config.method.temperature=1"], 2, "differs between recipes; write it into a recipe (.yaml)"),
        (["--recipes", "simcse", "--config.optimizer.lr=1"], 2, "did you mean --config.optimizer.learning_rate?"),
        (["--recipes", "simcse", "--recipe", "x"], 2, "did you mean --recipes?"),
        (["--recipes", "simcse", "--corpus", "absent.txt"], 3, "--corpus absent.txt: no such file"),
        (["--recipes", "simcse", "--data", "absent"], 3, "absent is not a SentEval directory"),
        (["--recipes", "simcse", "--vectors", "absent.json"], 2, "--vectors absent.json: not a file of word vectors"),
        (["--recipes", "simcse", "--vectors", "absent.txt"], 4, "absent.txt: No such file"),
        (["--recipes", "simcse", "--weights", "./absent"], 2, "--weights ./absent: no such directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_any_run(folder, tmp_path, capsys, monkeypatch, options, code, message):
    monkeypatch.setattr(run, "run_all", None)
    given = {options[index]: options[index + 1] for index in range(0, len(options) - 1, 2) if "." not in options[index][:10]}
    base = {"--corpus": str(folder / "corpus.txt"), "--data": str(folder / "data"), "--workdir": str(tmp_path / "work")} | given
    rest = [option for option in options if option.startswith("--config.")]
    assert program(compare.main, ["compare", *(part for pair in base.items() for part in pair), *rest]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "work").exists()


def test_a_recipe_with_labels_is_refused_before_the_first_run_trains(folder, tmp_path, capsys):
    options = ["--recipes", "simcse,sbert_nli", "--seeds", "1", "--workdir", str(tmp_path), "--steps", "2", *TINY]
    assert program(compare.main, command(folder, *options)) == 3
    assert "variant=sbert_nli:published: " in capsys.readouterr().err
    assert not list(tmp_path.glob("*simcse*/scores.json"))
    assert list(tmp_path.glob("*start*/scores.json"))


def test_differences_are_paired_by_seed():
    assert difference({1: 10.0, 2: 14.0}, {1: 9.0, 2: 11.0}) == "+2.00 [-10.71, +14.71]"  # t(0.975, 1) = 12.706, s = sqrt 2
    assert difference({1: 10.0, 2: 14.0}, {0: 9.0}) == "+3.00 [-22.41, +28.41]"
    assert difference({1: 10.0, 2: 14.0}, {2: 11.0}) == "+3.00"
    assert difference({1: 10.0}, {2: 11.0}) == ""


def test_the_best_start_is_compared_and_failed_runs_are_named():
    facts = {"readout": "mean", "length": 32, "batch": 64, "steps": 1000, "rate": 3e-5}
    entries = [
        Entry("cls", START, {}, {0: {"STS12": 30.0, "STS13": 50.0}}),
        Entry("mean", START, {}, {0: {"STS12": 44.0, "STS13": 40.0}}),
        Entry("tf-idf", WORDS, {}, {0: {"STS12": 90.0, "STS13": 90.0}}),
        Entry("a", "common", facts, {1: {"STS12": 50.0, "STS13": 52.0}}, [250]),
        Entry("b", "common", facts, {}),
    ]
    tables = layout(entries, 2)
    assert tables.results[1][3] == ["a, common (1 of 2 runs)", "mean", "32", "64", "250 of 1,000", "3e-05", "51.00", "+9.00", ""]
    assert "failed: b, common (0 of 2 runs)" in tables.notes
    assert "| a, common (1 of 2 runs) | 50.00 | 52.00 |" in as_markdown(tables)


def test_sif_of_other_text_has_its_weights_and_component_from_that_text():
    vectors = WordVectorTable("glove", ["a", "b", "c"], np.eye(3, dtype=np.float32))
    fixed = FixedSIF.fitted(vectors, 1.0, ["a", "a", "a b"])
    # frequencies 3/4 and 1/4, weights 1 / (1 + p); the component is the first singular vector of the three embeddings
    embeddings = np.array([[4 / 7, 0, 0], [4 / 7, 0, 0], [2 / 7, 2 / 5, 0]])
    component = np.linalg.svd(embeddings)[2][0]
    expected = np.array([0, 2 / 5, 1 / 2]) - (np.array([0, 2 / 5, 1 / 2]) @ component) * component
    np.testing.assert_allclose(fixed.encode(["b c"])[0], expected, atol=1e-6)
