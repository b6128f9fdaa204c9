"""Mutation trial: each bug of mutants.toml is made in a copy of the tree, and the tests named beside it have to fail.

`make mutants`, or `python tests/mutants.py --only simcse --jobs 2`; `--stale` lists mutants whose old text is gone, `--list`
all of them. Exit code 1 where fewer than 95 % are killed, where a mutant cannot be made, or where a test fails without one.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
COPIED = ("jax_sentemb", "tests", "configs", "experiments", "pyproject.toml")
# What a test process imports but no mutant changes: imported once, before processes are forked.
PRELOADED = ["jax", "flax.linen", "optax", "orbax.checkpoint", "scipy.stats"]
SURVIVORS = 0.05  # the largest share of mutants that may survive
PASSED, FAILED, CRASHED, TIMEOUT = 0, 1, 70, -1  # pytest's exit codes, and ours


class Mutant(NamedTuple):
    file: str  # below jax_sentemb
    old: str  # occurs once in the file
    new: str
    tests: tuple[str, ...]  # arguments of pytest
    equivalent: str = ""  # why no test can tell it from the original, where that is so

    @property
    def name(self) -> str:
        return f"{self.file}: {self.old} -> {self.new}"

    def occurrences(self, root: Path) -> int:
        file = root / "jax_sentemb" / self.file
        return file.read_text(encoding="utf-8").count(self.old) if file.is_file() else 0


def read_mutants(table: Path = TABLE) -> list[Mutant]:
    """The mutants of the table; a mutant without tests has those of its file."""
    found = []
    for file, part in tomllib.loads(table.read_text(encoding="utf-8")).items():
        for row in part["mutants"]:
            tests = row.get("tests", part["tests"]).split()
            found.append(Mutant(file, row["old"], row["new"], tuple(map(_pytest_argument, tests)), row.get("equivalent", "")))
    return found


def stale(mutants: list[Mutant], root: Path = ROOT) -> list[str]:
    """A line for each mutant that cannot be made: its old text occurs in its file never or more than once, or a test is missing."""
    lines = []
    for mutant in mutants:
        if (count := mutant.occurrences(root)) != 1:
            lines.append(f"{mutant.file}: the old text occurs {count} times, not once: {mutant.old}")
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if not (root / file).is_file() or (name and f"def {name.partition('[')[0]}(" not in (root / file).read_text("utf-8")):
                lines.append(f"{mutant.file}: there is no test {test}")
    return lines


def _pytest_argument(test: str) -> str:
    module, _, name = test.partition("::")
    return f"tests/test_{module}.py" + (f"::{name}" if name else "")


def _pytest(tree: str, tests: tuple[str, ...], log: str) -> None:
    """Runs in a process of its own: exits with pytest's exit code."""
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    os.environ["PYTHONPATH"] = tree
    sys.dont_write_bytecode = True  # a mutant of the same size and second would be taken for the original
    sys.path[:] = [tree, *(place for place in sys.path if place != str(ROOT))]
    try:
        import pytest

        import jax_sentemb

        assert jax_sentemb.__file__.startswith(tree), jax_sentemb.__file__
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    except BaseException:  # 1 would read as a failed test
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    os._exit(code)


class Trees:
    """Copies of the tree, one for each job, in which tests run with or without a mutant."""

    def __init__(self, folder: Path, jobs: int, limit: float) -> None:
        self._free: Queue[Path] = Queue()
        self._limit = limit
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        for job in range(jobs):
            tree = folder / str(job)
            tree.mkdir()
            for name in COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, tree / name)
            self._free.put(tree)

    def test(self, tests: tuple[str, ...], mutant: Mutant | None = None) -> tuple[int, str, float]:
        """pytest's exit code (or TIMEOUT), the last line that it printed, and seconds."""
        tree = self._free.get()
        file = tree / "jax_sentemb" / mutant.file if mutant else None
        original = file.read_text(encoding="utf-8") if file else ""
        try:
            if file and mutant:
                file.write_text(original.replace(mutant.old, mutant.new), encoding="utf-8")
            log, start = tree / "log.txt", time.monotonic()
            process = self._context.Process(target=_pytest, args=(str(tree), tests, str(log)))  # type: ignore[attr-defined]
            process.start()
            process.join(self._limit)
            if process.exitcode is None:
                process.kill()
                process.join()
                return TIMEOUT, f"no answer in {self._limit:.0f} s", time.monotonic() - start
            lines = [line for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
            failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
            code = CRASHED if process.exitcode == FAILED and not failed else process.exitcode
            return code, (failed or lines[-1:] or [""])[0], time.monotonic() - start
        finally:
            if file:
                file.write_text(original, encoding="utf-8")
            self._free.put(tree)


def run(mutants: list[Mutant], jobs: int, limit: float, baseline: bool) -> bool:
    """Prints a line for each mutant and the share that was killed; True where that is enough."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees = Trees(Path(folder), jobs, limit)
        if baseline:
            files = sorted({test for mutant in mutants for test in mutant.tests})
            unchanged = list(pool.map(lambda file: trees.test((file,)), files))
            broken = [(file, found) for file, found in zip(files, unchanged, strict=True) if found[0] != PASSED]
            for file, (code, says, _) in broken:
                print(f"fails without a mutant ({code}): {file}: {says}", flush=True)
            if broken:
                return False

        def trial(mutant: Mutant) -> str:
            code, says, seconds = trees.test(mutant.tests, mutant)
            verdict = {PASSED: "equivalent" if mutant.equivalent else "SURVIVED", FAILED: "killed", TIMEOUT: "TIMEOUT"}.get(
                code, "BROKEN"
            )
            print(f"{verdict:10} {seconds:5.0f} s  {mutant.name}  [{mutant.equivalent or says}]", flush=True)
            return verdict

        found = Counter(pool.map(trial, mutants))
    tried = len(mutants) - found["equivalent"]
    print(f"{found['killed']} of {tried} killed ({100 * found['killed'] / max(tried, 1):.1f} %); {dict(found)}")
    return found["killed"] >= (1 - SURVIVORS) * tried and not found["BROKEN"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose file or text contains this")
    parser.add_argument("--jobs", type=int, default=1, help="test processes at a time")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the tests of one mutant")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a mutant first")
    parser.add_argument("--stale", action="store_true", help="only list the mutants that cannot be made any more")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    options = parser.parse_args()
    mutants = [mutant for mutant in read_mutants() if options.only in mutant.name]
    if lines := stale(mutants):
        print("\n".join(lines))
        return 1
    if options.list or options.stale:
        print("\n".join(mutant.name for mutant in mutants) if options.list else f"all {len(mutants)} mutants can be made")
        return 0
    os.environ |= {"NPROC": os.environ.get("NPROC", "16"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return 0 if run(mutants, options.jobs, options.limit, not options.no_baseline) else 1


if __name__ == "__main__":
    sys.exit(main())
