"""python -m jax_sentemb.main --config RECIPE [--workdir DIR] [--config.section.field=value ...], also `jax-sentemb train`."""

import sys

from jax_sentemb.allocator import keep_freed_memory
from jax_sentemb.cli.config_flags import parse
from jax_sentemb.cli.config_flags import parser as parser
from jax_sentemb.cli.program import program


def main(argv: list[str]) -> int:
    """Exit code of a run with the command line `argv` (program name first)."""
    config, workdir, how = parse(argv)
    keep_freed_memory()
    from jax_sentemb.parallel import Join, join  # after parsing: --help and mistakes answer without loading JAX's compiler

    join(Join(**how))
    from jax_sentemb.training.run import run

    return run(config, workdir)


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
