"""Time contenders in turns, each in its own process, so that a drift of the machine's speed affects all of them."""

import multiprocessing
import time
from collections.abc import Callable, Sequence

PAUSE = 0.3  # seconds between turns, in which the threads of the previous contender stop spinning


def interleave(
    make: Callable[[str], Callable[[], object]], names: Sequence[str], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return the seconds of a step of each contender in each round.

    `make` must be importable, so that a process can call it. It builds the step of a name; the first two steps are not timed.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, {}
    for name in names:
        pipes[name], child_pipe = context.Pipe()
        processes[name] = context.Process(target=_contend, args=(make, name, steps, child_pipe), daemon=True)
        processes[name].start()
        child_pipe.close()  # so that recv ends if the process does
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
