"""jax-sentemb compare: the runs it makes, its table, and its messages."""

import csv
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jax_sentemb.cli import compare
from jax_sentemb.cli.program import program
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation import model_spec
from jax_sentemb.training import run
from tests.pages import ROOT

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
    tables = [[[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()] for block in page.split("\n\n")]
    budgets, scores, differences = ({row[0]: row[1:] for row in table[2:]} for table in tables[1:6:2])
    trained = ["simcse, published", "other, published", "simcse, common", "other, common"]
    words = [
        "tf-idf of the scored sentences",
        "tf-idf of the corpus",
        "word vectors, mean",
        "word vectors without stop words",
        "SIF as published",
        "SIF fitted on the corpus",
    ]
    assert list(scores) == ["untrained, cls", "untrained, mean", "untrained, first_last", *words, *trained]
    assert list(budgets) == list(differences) == trained
    assert budgets["simcse, published"][:4] == ["2", "cls", "32", "64"]
    assert budgets["simcse, common"][:4] == budgets["other, common"][:4] == ["2", "mean", "24", "8"]
    assert re.fullmatch(r"(\d of )?2", budgets["simcse, common"][4])
    assert re.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", differences["simcse, published"][1])
    assert differences["simcse, common"][-1] == ""
    assert differences["other, common"][-1] == "+0.00 [+0.00, +0.00]"  # they differ only in what the common budget sets
    assert differences["other, published"][-1] != "+0.00 [+0.00, +0.00]"
    assert "Correlation with the gold scores" not in shown.out  # one table at the end, not one for each run
    assert shown.err.count("scores    STS13 ") == 2 * 3 + 2 * 4
    assert "average: mean of STS13, SICKRelatedness-test; missing: STS12" in page
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


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--recipes", "simcse,nothing"], 2, "--recipes nothing: no such file and no recipe of that name"),
        (["--recipes", ","], 2, "--recipes is empty"),
        (["--recipes", "simcse,simcse"], 2, "a recipe is named twice"),
        (["--recipes", "micse_low_shot"], 2, "--recipes micse_low_shot is a study of several runs"),
        (["--recipes", "adapt"], 2, "--recipes adapt improves a model that is already good; name one with --weights"),
        (["--recipes", "is_bert_ssl_ft"], 2, "--recipes is_bert_ssl_ft trains twice"),
        (["--recipes", "cons_sent"], 2, "--recipes cons_sent trains on word vectors"),
        (["--recipes", "cross_encoder_stsb"], 2, "--recipes cross_encoder_stsb does not train sentence embeddings"),
        (["--recipes", "mlm"], 2, "--recipes mlm does not train sentence embeddings"),
        (["--recipes", "sbert_stsb"], 2, "--recipes sbert_stsb has its own data, senteval:STSBenchmark"),
        (["--recipes", "simcse:tiny"], 2, "--recipes simcse has its own data"),
        (["--recipes", "simcse,is_bert", "--readout", "cls"], 2, "--readout cls: is_bert can only be read by mean; use --readout"),
        (["--recipes", "simcse", "--readout", "max"], 2, "--readout max: simcse can only be read by"),
        (["--recipes", "simcse", "--seeds", "0"], 2, "'0' is not a whole number from 1"),
        (["--recipes", "simcse", "--seeds", "501"], 2, "--seeds 501: 1,002 runs, at most 1,000 are possible; lower it"),
        (["--recipes", "simcse", "--config.data.batch_size=8"], 2, "is not a setting of a comparison; use --batch-size"),
        (["--recipes", "simcse", "--config.method.temperature=1"], 2, "differs between recipes; write it into a recipe (.yaml)"),
        (["--recipes", "simcse", "--config.optimizer.lr=1"], 2, "did you mean --config.optimizer.learning_rate?"),
        (["--recipes", "simcse", "--recipe", "x"], 2, "did you mean --recipes?"),
        (["--recipes", "simcse", "--corpus", "absent.txt"], 3, "--corpus absent.txt: no such file"),
        (["--recipes", "simcse", "--data", "absent"], 3, "absent: no such"),
        (["--recipes", "simcse", "--vectors", "absent.json"], 2, "--vectors absent.json: not a file of word vectors"),
        (["--recipes", "simcse", "--vectors", "absent.txt"], 4, "absent.txt: no such file"),
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


def test_the_word_baselines_read_the_text_of_the_runs(folder, tmp_path, monkeypatch):
    def read(sentences):
        raise ConfigError("|".join(sentences))

    monkeypatch.setattr(model_spec, "tf_idf_baselines", read)
    table = write(tmp_path / "corpus.csv", ["title,text", "one,two", "three,four"])
    options = ["--recipes", "simcse", "--column", "title,text", "--config.data.join= / ", "--workdir", str(tmp_path / "work")]
    with pytest.raises(ConfigError, match=r"^one / two\|three / four$"):
        compare.main(["jax-sentemb compare", "--corpus", str(table), "--data", str(folder / "data"), *options])


def test_a_recipe_with_labels_is_refused_before_the_first_run_trains(folder, tmp_path, capsys):
    options = ["--recipes", "simcse,sbert_nli", "--seeds", "1", "--workdir", str(tmp_path), "--steps", "2", *TINY]
    assert program(compare.main, command(folder, *options)) == 3
    assert "variant=sbert_nli:published: " in capsys.readouterr().err
    assert not list(tmp_path.glob("*simcse*/scores.json"))
    assert list(tmp_path.glob("*start*/scores.json"))


@pytest.mark.nightly
def test_a_comparison_that_was_killed_and_stopped_has_the_table_of_an_undisturbed_one(folder, tmp_path):
    """The first training is killed (SIGKILL) while it saves, the second is stopped (SIGTERM), the third command ends."""
    recipe = ["recipe: simcse", "data.batch_size: 8", "data.max_seq_length: 24", "method.pooling: mean", "train.max_steps: 6"]
    options = ["--recipes", str(write(tmp_path / "own.yaml", recipe)), "--seeds", "2", "--steps", "6", "--batch-size", "8"]
    options += ["--max-seq-length", "24", "--config.train.save_steps=2", "--config.train.logging_steps=1", *TINY]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XDG_CACHE_HOME": str(tmp_path)}

    def begin(workdir, *module):
        line = [sys.executable, "-m", *module, "compare", *command(folder, *options)[1:], "--workdir", str(workdir)]
        return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def end(process, code):
        message = process.communicate(timeout=600)[1]
        assert process.returncode == code, message

    straight, disturbed = tmp_path / "straight", tmp_path / "disturbed"
    end(begin(straight, "jax_sentemb"), 0)
    end(begin(disturbed, "tests.die_at", "done:1"), -signal.SIGKILL)
    assert len(list(disturbed.glob("*start*/scores.json"))) == 6
    assert not list(disturbed.glob("*own*/scores.json"))
    process, log = begin(disturbed, "tests.die_at", "slow"), disturbed / "train.seed=1,variant=own_common" / "metrics.jsonl"
    while not (log.exists() and '"step": 2' in log.read_text(encoding="utf-8")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    end(process, 75)
    assert len(list(disturbed.glob("*own*/scores.json"))) == 1
    end(begin(disturbed, "jax_sentemb"), 0)
    for name in ("compare.csv", "compare.md", "sweep.csv"):
        assert (disturbed / name).read_bytes() == (straight / name).read_bytes(), name
    for weights in straight.glob("*own*/export/model.safetensors"):
        assert (disturbed / weights.relative_to(straight)).read_bytes() == weights.read_bytes()
