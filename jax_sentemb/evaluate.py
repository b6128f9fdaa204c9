"""Thin module for one release: this is jax_sentemb.cli.evaluate now."""

import sys

from jax_sentemb._moved import command, moved

if __name__ == "__main__":
    sys.exit(command("evaluate", "evaluate"))
moved(__name__, "jax_sentemb.cli.evaluate")
