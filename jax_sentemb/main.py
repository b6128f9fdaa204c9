"""Run `jax-sentemb train`, as `python -m jax_sentemb.main --config RECIPE ...`."""

from jax_sentemb.cli.program import start
from jax_sentemb.cli.train import main

if __name__ == "__main__":
    start(main)
