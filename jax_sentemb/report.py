"""Thin module for one release: this is jax_sentemb.cli.report now."""

import sys

from jax_sentemb._moved import command, moved

if __name__ == "__main__":
    sys.exit(command("report", "report"))
moved(__name__, "jax_sentemb.cli.report", "jax_sentemb.reporting.html_report")
