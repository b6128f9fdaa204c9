"""python -m jax_sentemb.main --config RECIPE ...: the same as `jax-sentemb train`."""

import sys

from jax_sentemb.cli.program import program
from jax_sentemb.cli.train import main

if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
