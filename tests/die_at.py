"""python -m tests.die_at POINT[:N] train ...: the command, killed when it passes a point of a save for the N-th time.

Points, in the order of a save: write (before Orbax), finalize (Orbax has written), hash, manifest (before the file is
opened), rename (before it has its name), delete (old steps are next), deleting (one is renamed, not deleted), done.
At the point `stopped`, before the save that a signal asks for, the command is not killed: it makes the file `waiting`
in the work directory and waits for another signal. `slow` only makes each step last 0.1 s longer, so that a test can interrupt it.
"""

import contextlib
import functools
import os
import signal
import sys
import time

from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.formats import checkpoint, manifest
from jax_sentemb.training.signals import StopSignal
from jax_sentemb.training.trainer import Trainer


def install(wanted, count):
    """Replace the functions of a save by ones that kill the process at the point `wanted`."""
    left = [count]

    def passing(point):
        if point == wanted:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(owner, name, before=None, after=None):
        real = getattr(owner, name)

        @functools.wraps(real)
        def wrapped(*arguments, **options):
            if before:
                passing(before)
            result = real(*arguments, **options)
            if after:
                passing(after)
            return result

        setattr(owner, name, wrapped)

    class Checkpointer(checkpoint.ocp.AsyncCheckpointer):
        def __init__(self, *arguments, **options):
            finalized = checkpoint.ocp.options.AsyncOptions(post_finalization_callback=lambda: passing("finalize"))
            super().__init__(*arguments, async_options=finalized, **options)

        def save(self, *arguments, **options):
            passing("write")
            return super().save(*arguments, **options)

    checkpoint.ocp.AsyncCheckpointer = Checkpointer
    replacing = manifest.replacing

    @contextlib.contextmanager
    def replacing_slowly(path):
        passing("manifest")
        with replacing(path) as partial:
            yield partial
            passing("rename")

    manifest.replacing = replacing_slowly
    around(manifest, "write", before="hash", after="delete")
    around(manifest, "set_aside", after="deleting")
    in_background = checkpoint.Steps._in_background

    def to_the_end(self, *arguments):
        in_background(self, *arguments)
        if self._error is None:
            passing("done")

    checkpoint.Steps._in_background = to_the_end
    save = Trainer._save

    def waiting(self, *arguments):
        if wanted == "stopped" and self.stop.reached:
            (self.workdir / "waiting").touch()
            time.sleep(100)
        save(self, *arguments)

    Trainer._save = waiting
    at = StopSignal.at

    def slowly(self, step):
        if wanted == "slow":
            time.sleep(0.1)
        return at(self, step)

    StopSignal.at = slowly


if __name__ == "__main__":
    point, _, number = sys.argv[1].partition(":")
    install(point, int(number or 1))
    sys.exit(program(main, ["jax-sentemb", *sys.argv[2:]]))
