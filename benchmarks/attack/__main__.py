"""Attack the commands and the library from outside: `python benchmarks/attack [CLASS ...]` prints a table of results.

tests/README.md has the table. Classes run in the order of their numbers. Numbers on the command line select some of them. Every
command runs in its own process with a time limit. "Refused" means that it ends with the expected exit code and one line without a
traceback. The exit code of this script is 1 if an attack succeeded.
"""

import os
import platform
import resource
import shutil
import sys
import time

import bombs  # noqa: F401 (all of these fill CASES)
import containers  # noqa: F401
import derived  # noqa: F401
import disks  # noqa: F401
import distillation  # noqa: F401
import duplicates  # noqa: F401
import faults  # noqa: F401
import host  # noqa: F401
import hostile  # noqa: F401
import long_texts  # noqa: F401
import many_files  # noqa: F401
import outcomes  # noqa: F401
import side_files  # noqa: F401
import threads  # noqa: F401
from classes import CLASSES
from commands import CASES, WORK


def processor_seconds() -> float:
    """Return the processor seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv: list[str]) -> int:
    chosen = set(map(int, argv[1:])) or set(CLASSES)
    start, load = time.time(), os.getloadavg()[0]
    results: dict[int, list[tuple[str, str, float]]] = {}
    for number, name, attack in sorted(CASES, key=lambda case: case[0]):
        if number not in chosen:
            continue
        begin, used, problem = time.monotonic(), processor_seconds(), ""
        try:
            attack()
        except Exception as error:
            problem = " ".join(f"{type(error).__name__}: {error}".removeprefix("AssertionError: ").split())[:200]
        used = processor_seconds() - used
        results.setdefault(number, []).append((name, problem, used))
        wall = time.monotonic() - begin
        print(f"{number:>2}  {name}: {problem or 'held'} ({wall:.0f} s, processor {used:.0f} s)", file=sys.stderr, flush=True)
    print("| class | what is tried | tried | held | failed | processor seconds |\n|---|---|---|---|---|---|")
    for number, cases in results.items():
        failed = [name for name, problem, _ in cases if problem]
        title, tries = CLASSES[number]
        held, seconds = len(cases) - len(failed), sum(used for _, _, used in cases)
        row = (f"{number}. {title}", tries, len(cases), held, "; ".join(failed) or "-", f"{seconds:.0f}")
        print("| " + " | ".join(map(str, row)) + " |")
    problems = [problem for cases in results.values() for _, problem, _ in cases]
    date, machine = time.strftime("%Y-%m-%d", time.gmtime(start)), f"{platform.machine()} with {os.cpu_count()} cores"
    held, minutes = f"{problems.count('')} of {len(problems)} held", (time.time() - start) / 60
    print(
        f"\n{held}. {date}, {machine}, load {load:.0f} at the start and {os.getloadavg()[0]:.0f} at the end; "
        f"{minutes:.0f} minutes, {processor_seconds():.0f} processor seconds"
    )
    return int(any(problems))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
