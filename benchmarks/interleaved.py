"""Contenders that take turns, each in a process of its own, so that a drift of the machine's speed meets all of them."""

import multiprocessing
import time
from collections.abc import Callable, Sequence

PAUSE = 0.3  # seconds between turns, in which the threads of the contender before stop spinning


def interleave(
    make: Callable[[str], Callable[[], object]], names: Sequence[str], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Seconds of a step of each contender in each round.

    `make` (importable, so that a process can call it) builds the step of a name; the first two steps are not timed.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, {}
    for name in names:
        pipes[name], theirs = context.Pipe()
        processes[name] = context.Process(target=_contend, args=(make, name, steps, theirs), daemon=True)
        processes[name].start()
        theirs.close()  # so that recv ends if the process does
        try:
            pipes[name].recv()
        except EOFError:
            raise SystemExit(f"{name} ended before its first step: its error is above") from None
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, pipe in pipes.items():
            time.sleep(PAUSE)
            pipe.send(True)
            times[name].append(pipe.recv())
    for name, pipe in pipes.items():
        pipe.send(False)
        processes[name].join()
    return times


def _contend(make, name, steps, pipe):
    step = make(name)
    for _ in range(2):
        step()
    pipe.send("ready")
    while pipe.recv():
        start = time.perf_counter()
        for _ in range(steps):
            step()
        pipe.send((time.perf_counter() - start) / steps)
