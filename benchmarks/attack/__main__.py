"""Attacks on the commands from outside, in 29 classes: python benchmarks/attack [CLASS ...] prints a table of held and failed.

Every command runs in its own process with a time limit. "Refused" means the expected exit code and one line without a traceback.
The exit code is 1 if an attack succeeded.
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
import faults  # noqa: F401
import host  # noqa: F401
import hostile  # noqa: F401
import many_files  # noqa: F401
import outcomes  # noqa: F401
import side_files  # noqa: F401
import threads  # noqa: F401
from commands import CASES, WORK

TITLES = {
    1: "output that closes", 2: "text edited while it is tokenised", 3: "damaged caches", 4: "damaged shards of vectors",
    5: "metrics.jsonl and kill -9", 6: "names that are not UTF-8", 7: "signals", 8: "text that shrinks while it is read",
    9: "process 0 of two is killed", 10: "two writers, full disk", 11: "fork, pickle", 12: "devices, terminals, odd text",
    13: "hostile model directories", 14: "evaluation data, few diagnostic sentences",
    15: "threads", 16: "the state of the host process", 17: "pickles", 18: "many calls in one process",
    19: "full disk, no inodes, read-only disk", 20: "kills in distill, sweep and train()", 21: "planted links, writers at once",
    22: "hostile cells and names", 23: "long text, equal rows, results of no use",
    24: "files that were made from something else", 25: "runs with another corpus or start under the same name",
    26: "wrong values of every key beside the weights", 27: "containers, tensors and odd values in every public function",
    28: "bombs of every reader", 29: "100,000 files",
}  # fmt: skip


def processor() -> float:
    """Processor seconds of all child processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv: list[str]) -> int:
    chosen = set(map(int, argv[1:])) or set(TITLES)
    start, load = time.time(), os.getloadavg()[0]
    results: dict[int, list[tuple[str, str, float]]] = {}
    for number, name, attack in sorted(CASES, key=lambda case: case[0]):
        if number not in chosen:
            continue
        begin, used, problem = time.monotonic(), processor(), ""
        try:
            attack()
        except Exception as error:
            problem = " ".join(f"{type(error).__name__}: {error}".removeprefix("AssertionError: ").split())[:200]
        used = processor() - used
        results.setdefault(number, []).append((name, problem, used))
        wall = time.monotonic() - begin
        print(f"{number:>2}  {name}: {problem or 'held'} ({wall:.0f} s, processor {used:.0f} s)", file=sys.stderr, flush=True)
    print("| class | attacks | held | failed | processor seconds |\n|---|---|---|---|---|")
    for number, found in results.items():
        failed = [name for name, problem, _ in found if problem]
        seconds = sum(used for _, _, used in found)
        held = len(found) - len(failed)
        print(f"| {number}. {TITLES[number]} | {len(found)} | {held} | {'; '.join(failed) or '-'} | {seconds:.0f} |")
    problems = [problem for found in results.values() for _, problem, _ in found]
    date, machine = time.strftime("%Y-%m-%d", time.gmtime(start)), f"{platform.machine()} with {os.cpu_count()} cores"
    print(
        f"\n{problems.count('')} of {len(problems)} held. {date}, {machine}, load {load:.0f} at the start and "
        f"{os.getloadavg()[0]:.0f} at the end; {(time.time() - start) / 60:.0f} minutes, {processor():.0f} processor seconds"
    )
    return int(any(problems))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
