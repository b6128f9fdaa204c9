"""Ctrl-C ends every command without a traceback, whenever it comes and however often."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# `slow` is how the command spends its time; the exit waits for a thread and then for a library's callback, as JAX's does.
PROGRAM = """
import atexit, sys, threading, time
from pathlib import Path
from jax_sentemb.cli.program import start

class Finalized:
    def __del__(self):
        time.sleep(60)

def main(argv):
    try:
        print("ready", flush=True)
        {slow}
    finally:
        Path(argv[1]).write_text("cleaned up")
        time.sleep({cleaning})
    return 0

atexit.register(time.sleep, {exiting})
threading.Thread(target=time.sleep, args=({exiting},)).start()
start(main)
"""

# Python does not notice a signal that arrives right before a call of sleep, so each sleep is short.
WAITING = "for _ in range(600): time.sleep(0.1)"


def interrupted(tmp_path, slow, times, cleaning=0, exiting=0, wait=0.0):
    """Exit code of a command that gets SIGINT several times after it is ready, and whether it cleaned up."""
    mark, text = tmp_path / "mark", PROGRAM.format(slow=slow, cleaning=cleaning, exiting=exiting)
    default = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    command = [sys.executable, "-c", text, mark]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **default) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            time.sleep(wait)
            for _ in range(times):
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert said == ""
    return process.returncode, mark.exists()


def test_the_first_interrupt_cleans_up(tmp_path):
    assert interrupted(tmp_path, WAITING, 1) == (130, True)


@pytest.mark.parametrize(("cleaning", "exiting"), [(60, 0), (0, 60)])
def test_a_second_interrupt_ends_cleaning_up_and_the_exit(tmp_path, cleaning, exiting):
    code, _ = interrupted(tmp_path, WAITING, 2, cleaning, exiting)
    assert code in (130, -signal.SIGINT)  # which a shell reports as 130


def test_an_interrupt_while_a_finished_command_exits_is_quiet(tmp_path):
    assert interrupted(tmp_path, "pass", 1, exiting=60, wait=1)[0] == 130


def test_an_interrupt_that_a_finalizer_swallows_still_ends_the_command(tmp_path):
    assert interrupted(tmp_path, "Finalized()", 1)[0] == 130


def test_an_interrupt_that_c_code_replaces_by_another_exception_is_quiet(tmp_path):
    """A C extension that Ctrl-C hits while it imports a module raises ImportError instead of KeyboardInterrupt."""
    slow = "exec('try: time.sleep(60)\\nexcept KeyboardInterrupt: raise ImportError from None')"
    assert interrupted(tmp_path, slow, 1) == (130, True)


def test_an_ignored_interrupt_stays_ignored(tmp_path):
    code = "import signal; from jax_sentemb.cli import interrupts as i; i.end_at_once(); i.clean_up_first(); signal.raise_signal(2)"
    ignored = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, **ignored).returncode == 0


def test_interrupts_at_any_time_of_a_command_give_no_traceback(tmp_path):
    """From the first line of the console script to the exit; before that, Python itself prints a traceback."""
    code = "from jax_sentemb.__main__ import run; print(flush=True); run()"
    (tmp_path / "corpus.txt").write_text("one\ntwo\n")
    default = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    for number in range(6):
        command = [sys.executable, "-c", code, "check", tmp_path / "corpus.txt"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **default) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(0.05 + 0.1 * number)
            for _ in range(3):
                process.send_signal(signal.SIGINT)
                time.sleep(0.01)
            _, said = process.communicate(timeout=30)
        assert "Traceback" not in said
        assert process.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.parametrize(
    "error", ["Exception('No space left on device (os error 28)')", "ValueError('x: No space left on device')"]
)
def test_a_foreign_error_for_a_full_disk_is_one_line(error):
    code = f"""
import sys
from jax_sentemb.cli.program import start
def main(argv):
    raise {error}
start(main)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert os.strerror(28) in done.stderr


HOOK = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
SCRIPT = "import sys\nfrom jax_sentemb.__main__ import run\nsys.exit(run())\n"  # as an installer writes it


@pytest.mark.parametrize("module", ["jax_sentemb.cli", "jax_sentemb.cli.program", "jax_sentemb.errors", "filelock"])
@pytest.mark.parametrize(
    "command", [("-m", "jax_sentemb.main"), ("-m", "jax_sentemb"), ("-m", "jax_sentemb.cli.search"), ("jax-sentemb",)]
)
def test_an_interrupt_while_modules_are_imported_is_silent(command, module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "jax-sentemb").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "INTERRUPTED_AT": module}
    done = subprocess.run(
        [sys.executable, *command, "search", "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_program_that_imports_the_package_keeps_its_handler(tmp_path):
    code = "import signal, jax_sentemb; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    for name, arguments in (("script.py", ("-m", "jax_sentemb.main")), ("other-jax-sentemb", ())):
        (tmp_path / name).write_text(code)
        done = subprocess.run(
            [sys.executable, name, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.stdout == "True\n", done.stderr
