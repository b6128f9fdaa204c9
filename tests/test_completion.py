"""What a shell is told when a user presses the tabulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jax_sentemb.__main__ import main

ROOT = Path(__file__).parents[1]


def completions(line):
    """What a shell gets for a command line, with the descriptor 8 that it reads."""
    environment = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    command = f"exec 8>&1 9>&2; exec {sys.executable} -m jax_sentemb 1>/dev/null 2>&1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("jax-sentemb re", {"recipes", "report"}),
        ("jax-sentemb mine --top", {"--top-k"}),
        ("jax-sentemb train --config quick", {"quickstart", "quick_thoughts"}),
        ("jax-sentemb train --work", {"--workdir"}),
        ("jax-sentemb train --config micse --config.method.ami.w", {"--config.method.ami.weight"}),
    ],
)
def test_commands_options_and_recipes_are_completed(line, found):
    assert set(completions(line)) == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_the_shell(shell, capsys):
    assert main(["jax-sentemb", "completion", shell]) == 0
    assert "jax-sentemb" in capsys.readouterr().out
