"""The commands in the READMEs of the studies run as they are written, on tiny data, a tiny encoder and one or two steps."""

import csv
import lzma
import runpy
import shutil
import sys

import numpy as np
import pytest
from test_study_commands import ALL
from tiny_models import tiny_model

from jax_sentemb.cli.train import parse
from jax_sentemb.data import synthetic
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.recipes import read_config
from jax_sentemb.training.run import run
from jax_sentemb.training.sweep import parse as parse_sweep
from jax_sentemb.training.sweep import variants
from tests.pages import ROOT

COMMANDS = [parameter.values[0] for parameter in ALL]
TRAININGS = [words[3:] for words in COMMANDS if words[1:3] == ["-m", "jax_sentemb.main"]]
ENCODERS = ("bert-mini", "experiments/pretraining/mini-2", "runs/cross_nli/pretrain/export")
NLI = ("snli-dev", "snli-test", "snli_counterfactual", "mnli-train_sample", "mnli-test_sample")
STUDIES = ("arguments_sbert", "length_grouping/study.py", "micse_low_shot/study.py:mini_2", "simcse_family/study.py:methods")


def write(path, lines):
    """Write lines, compressed if the name ends with .xz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def pairs_of(count, seed):
    return list(zip(*synthetic.graded_pairs(count, seed), strict=True))


def write_data(folder):
    """Write a tiny substitute of the data of experiments/data.md."""
    lines = synthetic.sentences(150, 1)
    for name in ("wiki_sentences", "ordered_wiki", "ordered_novels", "news_1b_heldout", "wiki1m_for_simcse_head"):
        write(folder / f"corpora/{name}.txt.xz", [*lines[:80], "", *lines[80:]] if name.startswith("ordered") else lines)
    labels = ("entailment", "neutral", "contradiction")
    for number, name in enumerate(NLI):
        rows = [f"{a}\t{b}\t{labels[row % 3]}" for row, (a, b, _) in enumerate(pairs_of(12, number))]
        write(folder / f"corpora/nli_{name}.tsv.xz", ["sentence1\tsentence2\tlabel", *rows])
    captions = ["\t".join(lines[first : first + 5]) for first in range(0, 50, 5)]
    write(folder / "corpora/captions_multi30k.tsv.xz", ["\t".join(f"caption{number}" for number in range(1, 6)), *captions])
    kinds = ("NS", "SS", "HS", "DTORCD")
    topics = [f"{a}\t{b}\t{kinds[row % 4]}\t{'AB'[row % 2]}" for row, (a, b, _) in enumerate(pairs_of(120, 7))]
    write(folder / "afs/UKP_ASPECT.tsv", ["sentence1\tsentence2\tlabel\ttopic", *topics])
    raw = ["STS12", "STS14", "STS15", *(f"{name}-{part}" for name in ("SICK", "STSBenchmark") for part in ("train", "dev", "test"))]
    for seed, name in enumerate(raw):
        rows = [f"{a}\t{b}\t{gold}\tx" for a, b, gold in pairs_of(16, seed)]
        write(folder / f"sts_raw/{name}.tsv", ["sentence1\tsentence2\tscore\tsubset", *rows])
    write_senteval(folder / "senteval/downstream")


def write_senteval(folder):
    from jax_sentemb.evaluation.catalog import SETS

    for seed, year in enumerate((12, 14, 15)):
        for first, gold in SETS[f"STS{year}"].spec.files.values():
            pairs = pairs_of(8, seed)
            write(folder.parent / first, [f"{a}\t{b}" for a, b, _ in pairs])
            write(folder.parent / gold, [value for _, _, value in pairs])
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for seed, (benchmark, sick) in enumerate((("train", "train"), ("dev", "trial"), ("test", "test_annotated"))):
        pairs = pairs_of(16, 20 + seed)
        write(folder / f"STS/STSBenchmark/sts-{benchmark}.csv", [f"g\tf\t2017\t1\t{gold}\t{a}\t{b}" for a, b, gold in pairs])
        write(folder / f"SICK/SICK_{sick}.txt", [header, *(f"1\t{a}\t{b}\t{gold}\tNEUTRAL" for a, b, gold in pairs)])
    lines = synthetic.sentences(40, 5)
    for name in ("MR/rt-polarity.pos", "MR/rt-polarity.neg", "CR/custrev.pos", "CR/custrev.neg"):
        write(folder / name, lines)
    for name in ("TREC/train_5500.label", "TREC/TREC_10.label"):
        write(folder / name, [f"NUM:dist {line}" for line in lines])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A fresh copy of experiments/ and configs/, with tiny data in DIR and tiny encoders in the places of the READMEs."""
    root = tmp_path_factory.mktemp("studies")
    for name in ("experiments", "configs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("mini-2", "__pycache__", "*.png"))
    write_data(root / "DIR")
    for name in ENCODERS:
        write_export(root / name, tiny_model(synthetic.sentences(150, 1), 200, layers=2))
    words = sorted({word for line in synthetic.sentences(150, 1) for word in line.split()})
    vectors = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float16)
    np.savez(root / "glove.6B.50d.npz", words=np.array([word.encode() for word in words]), vectors=vectors)
    for name in ("captions.txt", "fourth.txt"):
        write(root / name, synthetic.sentences(60, 2))
    write(root / "nli.tsv", [f"{a}\t{b}\tneutral" for a, b, _ in pairs_of(30, 4)])
    return root


def shortened(config):
    """Return a config with one step, and the first value and two variants of what varies."""
    if config.pretrain is not None:
        config.pretrain = shortened(config.pretrain)
    config.train.max_steps, config.eval.eval_steps, config.eval.diagnostic_sentences = 1, 1, 16
    config.data.batch_size, config.data.max_seq_length, config.data.subset, config.eval.report_sentences = 4, 16, 0, 0
    config.variants = dict(list(config.variants.items())[:2])
    if config.variants or config.sweep:
        first = {name: values[0] for name, values in parse_sweep(config.sweep).items() if name not in ("data.subset", "variant")}
        config.sweep = " ".join(f"{name}={value}" for name, value in first.items()).replace("=all", "=0")
    return config


def script(name, arguments, workplace, monkeypatch):
    """Run a script of the copy as `python NAME ARGUMENTS`."""
    path = workplace / name
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    for module in ("run", "data", "study_data", "checkpoints"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_path(str(path), run_name="__main__")


def arguments_of(name):
    """Return the arguments of the first command of a README with a script."""
    return next(words[2:] for words in COMMANDS if words[1] == name)


def train(part):
    """Run the first training whose recipe has this in its name; return its work directory."""
    words = next(words for words in TRAININGS if part in words[words.index("--config") + 1])
    config, workdir, _ = parse(["main", *words])
    assert run(shortened(config), workdir) == 0
    return workdir


@pytest.mark.parametrize(("stage", "weights"), [("bert_mini", {10.0}), ("mini_2", {10.0, 0.1}), ("long", {10.0})])
def test_the_weight_of_ami_is_that_of_the_study(stage, weights):
    config = read_config(f"{ROOT}/experiments/micse_low_shot/study.py:{stage}")
    config.data.files = "corpus.txt"
    assert {run_config.method.ami.weight for _, run_config in variants(config) if run_config.method.ami} == weights


def test_the_captions_are_written_without_training(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    script("experiments/pretraining/captions.py", ["--data", "DIR", "--output", "written.txt"], workplace, monkeypatch)
    captions = (workplace / "written.txt").read_text().splitlines()
    left_out = int(capsys.readouterr().out.split()[1])
    assert len(captions) == 5 * (10 - left_out)


@pytest.mark.parametrize("part", STUDIES)
def test_a_training_runs_without_a_warning_of_orbax(part, workplace, monkeypatch, capfd):
    monkeypatch.chdir(workplace)
    assert list(train(part).rglob("scores.json"))
    assert "orbax" not in "".join(capfd.readouterr()).lower()


def test_the_tables_of_a_study_follow_from_its_runs(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    runs = str(train("simcse_family/study.py:methods"))  # does nothing if they are there
    script("experiments/checkpoints.py", [runs, "--data", "DIR", "--output", "methods.csv"], workplace, monkeypatch)
    with (workplace / "methods.csv").open() as file:
        assert [row["checkpoint"] for row in csv.DictReader(file)] == ["dev", "last"] * 2
    script("experiments/curves.py", [runs, "--output", "curve.csv"], workplace, monkeypatch)
    assert (workplace / "curve.csv").is_file()
    assert "| AMI | last |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("experiments/is_bert/prepare.py", ["nli_captions.txt"]),
        ("experiments/stronger/texts.py", ["texts/wiki.txt", "texts/mix.txt", "texts/held_out.txt"]),
        ("experiments/probing_rebuilt/build.py", ["probing/probing/sentence_length.txt", "probing/probing/bigram_shift.txt"]),
    ],
)
def test_a_text_is_prepared(name, outputs, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    script(name, arguments_of(name), workplace, monkeypatch)
    for output in outputs:
        assert (workplace / output).read_text(encoding="utf-8").count("\n") > 5


def test_search_in_arguments_runs(workplace, monkeypatch, capsys):
    import jax_sentemb

    monkeypatch.chdir(workplace)
    train = jax_sentemb.train
    short = {"max_steps": 1, "eval_steps": 1, "batch_size": 8}
    monkeypatch.setattr(jax_sentemb, "train", lambda *given, **settings: train(*given, **settings | short))
    script("experiments/arguments/run.py", arguments_of("experiments/arguments/run.py"), workplace, monkeypatch)
    table = capsys.readouterr().out
    assert "| [CLS] after |" in table
    assert "| tf-idf of Wikipedia |" in table
