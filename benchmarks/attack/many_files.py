"""Attack with many files: a corpus of 100,000 files of which 256 may be open, for each command that reads a corpus."""

import resource
import subprocess
import sys
import time
from pathlib import Path

from commands import case, corpus, ended, fresh, model, start, train, watched

FILES = 100_000
MINUTES = 10  # for a command
MEMORY = 2 << 30  # bytes for a command


def many(count: int = FILES) -> Path:
    """Return a folder of files with one sentence each."""
    folder = fresh("many")
    lines = corpus(600).read_text(encoding="utf-8").splitlines()
    for number in range(count):
        if number % 1000 == 0:
            (folder / f"{number // 1000:03d}").mkdir()
        (folder / f"{number // 1000:03d}" / f"{number % 1000}.txt").write_text(
            f"{lines[number % 600]} {number}\n", encoding="utf-8"
        )
    return folder


def few_open() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


@case(29, f"check, encode, search and train with {FILES:,} files where 256 may be open")
def hundred_thousand():
    folder = many()
    files, source = f"{folder}/*/*.txt", str(model())
    training = train(folder.parent / "many-run", f"--config.data.files={files}", "--config.eval.data=", steps=5)
    commands = {
        "check": ["check", files],
        "encode": ["encode", "--model", source, "--input", files, "--output", f"{folder}/vectors"],
        "search": ["search", "--model", source, "--corpus", f"{folder}/vectors", "--corpus-text", files, "--query", "a man"],
        "train": training,
        "the same train again": training,
    }
    for name, command in commands.items():
        begin = time.monotonic()
        process = start(*command, preexec_fn=few_open, processor=60 * MINUTES, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = watched(process, MEMORY)
        assert ended(process)[0] == 0, f"{name}: exit code {process.returncode}, {peak >> 20:,} MB"
        assert time.monotonic() - begin < 60 * MINUTES, f"{name} took {time.monotonic() - begin:.0f} s"
        assert peak < MEMORY, f"{name}: {peak >> 20:,} MB of memory"
        print(f"    {name}: {time.monotonic() - begin:.0f} s, {peak >> 20:,} MB", file=sys.stderr, flush=True)
