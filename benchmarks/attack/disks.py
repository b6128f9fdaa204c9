"""Attack files that are written: full disks, no inodes, read-only folders, kills at random times, planted links, hostile cells."""

import contextlib
import csv
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from commands import case, corpus, distill, done, encode, fresh, model, refused, run, start, train, trained

LIMITS = {"a full disk": "size=64k", "no inodes": "nr_inodes=2", "a read-only disk": "ro"}


@contextlib.contextmanager
def disk(options: str) -> Iterator[Path]:
    """Mount a small file system in memory, which needs the rights to mount, and yield its folder."""
    folder = fresh("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def written(output: Path) -> dict[str, list[str]]:
    """Return the commands that write to `output`, by name."""
    text, source = corpus(4000), str(model())
    return {
        "train": train(output, "--config.eval.data=", steps=2),
        "encode to a file": encode(Path(source), text, output.with_suffix(".npy")),
        "encode to shards": encode(Path(source), text, output),
        "distill": distill(Path(source), text, output),
        "postprocess": ["postprocess", "--model", source, "--corpus", str(text), "--remove", "1", "--output", str(output)],
        "export": ["export", "--workdir", str(trained()), "--output", str(output)],
        "plots": ["plots", "run", "--workdir", str(trained()), "--output", str(output)],
    }


for limit, options in LIMITS.items():
    for command in ("train", "encode to a file", "encode to shards", "distill", "postprocess", "export"):

        @case(19, f"{command} on {limit}")
        def limited(limit=limit, options=options, command=command):
            with disk(options) as folder:
                refused(2 if "read" in limit else 7, *written(folder / "out")[command], named=str(folder))
                assert not (folder / "out.npy").exists(), "vectors were published"


@case(19, "report on a full disk, and again with space")
def full_report():
    with disk("size=1m") as folder:
        workdir = Path(shutil.copytree(trained(), folder / "run", ignore=shutil.ignore_patterns("export", "best", "checkpoints")))
        (workdir / "report.html").unlink()
        filler = folder / "filler"
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(1 << 20))
        refused(7, "report", "--workdir", str(workdir), named="report.html")
        filler.unlink()
        done("report", "--workdir", str(workdir))


def killed(command: list[str], seconds: list[float]) -> None:
    """Run a command that is killed after each of these times, then to the end."""
    for pause in seconds:
        process = start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        process.kill()
        process.wait()
    done(*command)


@case(20, "kills at random times of distill")
def killed_distill():
    text, source = corpus(20_000), model()
    done(*distill(source, text, text.parent / "whole", "--epochs", "1"))
    killed(distill(source, text, text.parent / "table", "--epochs", "1"), [random.uniform(1, 12) for _ in range(5)])
    tables = [(text.parent / name / "model.safetensors").read_bytes() for name in ("whole", "table")]
    assert tables[0] == tables[1], "another table"
    assert not list(text.parent.glob(".table*")), "something is left"


@case(20, "kills at random times of a sweep")
def killed_sweep():
    sweep, tables = ["--config.sweep=train.seed=1,2", "--config.eval.data=grammar"], []
    for name in ("whole", "killed"):
        workdir = fresh("run") / name
        command = train(workdir, *sweep, steps=20)
        killed(command, [random.uniform(3, 25) for _ in range(4)] if name == "killed" else [])
        tables.append((workdir / "sweep.csv").read_bytes())
    assert tables[0] == tables[1], "other scores"


@case(20, "kills at random times inside train(), also while it compiles")
def killed_train():
    weights = []
    for name in ("whole", "killed"):
        workdir = fresh("run") / name
        script = f"""
import jax_sentemb
lines = open({str(corpus())!r}).read().splitlines()
jax_sentemb.train(lines, recipe="simcse:tiny", workdir={str(workdir)!r}, max_steps=30, save_steps=10, eval__data="")
"""
        for pause in [random.uniform(2, 15) for _ in range(5)] if name == "killed" else []:
            process = start(script, python=("-c",), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(pause)
            process.kill()
            process.wait()
        code, _, err = run(script, python=("-c",))
        assert code == 0, err[-200:]
        weights.append((workdir / "export" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1], "other weights"


@case(21, "links planted under the names of temporary files")
def planted():
    workdir = Path(shutil.copytree(trained(), fresh("run") / "run"))
    victim = workdir.parent / "victim"
    victim.write_text("precious")
    for name in ("report.html", "sweep.csv", "run.json", "config.json", "model.json", "scores.json", "x.npy", "x.npy.json"):
        (workdir / f"{name}.partial").symlink_to(victim)
    done("report", "--workdir", str(workdir))
    done(*encode(model(), corpus(), workdir / "x.npy"))
    assert victim.read_text() == "precious", "the target was overwritten"
    assert not (workdir / "report.html").is_symlink(), "the link was published"


@case(21, "four reports at once")
def four_reports():
    workdir = Path(shutil.copytree(trained(), fresh("run") / "run"))
    processes = [start("report", "--workdir", str(workdir)) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert not list(workdir.glob("*.partial")), "something is left"


@case(22, "cells of a sweep that are formulas, names with HTML and control characters")
def hostile_cells():
    folder = fresh("run")
    (folder / "=cmd()<script>\x1b[31m.txt").write_text(corpus().read_text())
    workdir = folder / "<script>alert(1)<script>"
    text = f"--config.sweep=data.files={folder}/=cmd()<script>\x1b[31m.txt data.subset_seed=1,2"
    code, out, err = run(*train(workdir, text, "--config.eval.data=grammar", steps=2))
    assert "\x1b" not in out + err, "control characters reach the terminal"
    if code == 0:
        with (workdir / "sweep.csv").open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not any(cell.startswith(("=", "@", "\t")) for cell in cells), "a formula"
        assert "<script" not in (workdir / "report.html").read_text() + (workdir / "sweep.md").read_text(), "HTML of a name"
        assert str(folder) not in (workdir / "report.html").read_text(), "an absolute path"
