"""No file that a command writes names a folder of this machine."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program

ROOT = Path(__file__).parents[1]
WORDS = ["a", "man", "dog", "runs", "plays", "eats", "the", "grass", "guitar", "tall", "small", "two", "women", "dance"]
SECRET = "somebody-s-home"  # a folder on the way to every input and output


def run(*arguments):
    return program(main, ["jax-sentemb", *map(str, arguments)])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder of all inputs and outputs, after every command that writes files."""
    home = tmp_path_factory.mktemp("published") / SECRET
    (home / "eval" / "downstream" / "AFS").mkdir(parents=True)
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(300)]
    (home / "a.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shutil.copy(home / "a.txt", home / "b.txt")
    pairs = zip(lines[::2], lines[1::2], range(150), strict=True)
    (home / "dev.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"{one}\t{other}\t{n % 6}\n" for one, other, n in pairs)
    )
    for topic in ("DP", "GC", "GM"):
        (home / "eval" / "downstream" / "AFS" / f"ArgPairs_{topic}.csv").write_text("damaged\n")
    sts = home / "eval" / "downstream" / "STS" / "STS12-en-test"
    sts.mkdir(parents=True)
    (sts / "STS.input.all.txt").write_text(
        "".join(f"{one}\t{other}\n" for one, other in zip(lines[:60], lines[60:120], strict=True))
    )
    (sts / "STS.gs.all.txt").write_text("".join(f"{n % 6}\n" for n in range(60)))
    more = (f"--config={ROOT}/configs/simcse.py:tiny", "--config.train.max_steps=1", f"--config.eval.dev={home}/dev.tsv")
    assert run("train", *more, f"--config.data.files={home}/a.txt", f"--workdir={home}/run", f"--config.eval.data={home}/eval") == 0
    inputs = f"data.files={home}/a.txt|{home}/b.txt|{home}/missing.txt"
    assert run("train", *more, f"--config.sweep={inputs}", f"--workdir={home}/sweep") == 3
    model, text = ("--model", home / "run"), ("--corpus", home / "a.txt")
    for command in (
        ("report", "--workdir", home / "run"),
        ("report", "--workdir", home / "sweep"),
        ("export", "--workdir", home / "run", "--output", home / "exported"),
        ("encode", *model, "--input", home / "a.txt", "--output", home / "vectors"),
        ("encode", *model, "--input", home / "a.txt", "--output", home / "v.npy"),
        ("distill", *model, *text, "--width", 4, "--epochs", 1, "--output", home / "static"),
        ("postprocess", *model, *text, "--remove", 1, "--output", home / "whitened"),
    ):
        assert run(*command) == 0, command
    evaluated = ("--data", home / "eval", "--tasks", "STS12,arguments", "--output", home / "results")
    assert run("evaluate", *model, "--model", home / "static", "--ensemble", *evaluated) == 3  # the arguments are damaged
    return home


def test_no_file_names_a_folder_of_this_machine(home):
    inputs = {home / name for name in ("a.txt", "b.txt", "dev.tsv")}
    files = [file for file in home.rglob("*") if file.is_file() and file not in inputs and home / "eval" not in file.parents]
    names = (
        "README.md report.html sweep.csv sweep.md sweep.json tables.md run.json config.json metrics.jsonl vectors.json v.npy.json"
    )
    assert {*names.split(), "jax_sentemb.json", "model.json", "scores.json", "manifest.json"} <= {file.name for file in files}
    private = "commit_success.txt"  # of Orbax, in checkpoints
    named = [str(file.relative_to(home)) for file in files if SECRET.encode() in file.read_bytes() and file.name != private]
    assert named == []
    assert [str(file.relative_to(home)) for file in home.rglob("*") if SECRET in file.name] == []
    assert [str(file.relative_to(home)) for file in files if str(ROOT).encode() in file.read_bytes()] == []


def test_two_files_of_the_same_name_stay_two_rows_of_a_sweep(home):
    table = (home / "sweep" / "sweep.md").read_text()
    assert len([line for line in table.splitlines() if line.startswith("| data.files=")]) == 3
