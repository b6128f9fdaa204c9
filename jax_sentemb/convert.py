"""Thin module for one release: this is jax_sentemb.cli.export now."""

import sys

from jax_sentemb._moved import command, moved

if __name__ == "__main__":
    sys.exit(command("convert", "export"))
moved(
    __name__, "jax_sentemb.cli.export", "jax_sentemb.formats.run_dir", "jax_sentemb.inference.export", "jax_sentemb.inference.build"
)
