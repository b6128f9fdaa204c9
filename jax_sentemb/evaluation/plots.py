"""Thin module for one release: this is jax_sentemb.cli.plots now."""

import sys

from jax_sentemb._moved import command, moved

if __name__ == "__main__":
    sys.exit(command("evaluation.plots", "plots"))
moved(__name__, "jax_sentemb.cli.plots", "jax_sentemb.reporting.plots")
