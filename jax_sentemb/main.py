"""python -m jax_sentemb.main --config RECIPE ...: the same as `jax-sentemb train`."""

from jax_sentemb.cli.program import start
from jax_sentemb.cli.train import main

if __name__ == "__main__":
    start(main)
