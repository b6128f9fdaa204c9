"""python -m jax_sentemb.main --config configs/X.py [--workdir DIR] [--config.section.field=value ...]"""

import sys

from jax_sentemb.cli.config_flags import parse
from jax_sentemb.cli.program import program

USAGE = """\
Train a sentence encoder without labels, score it, and export it for sentence-transformers.

  python -m jax_sentemb.main --config configs/micse.py --workdir runs/micse \\
      --config.data.files=corpus.txt --config.encoder.weights=path/to/bert

  --config FILE               a recipe: one of configs/*.py; FILE:tiny is a run of seconds on generated sentences
  --config.SECTION.FIELD=V    change a setting; the file's settings are shown by --config FILE --help
  --workdir DIR               checkpoints, log, scores and export go here (default: runs/NAME of the config);
                              the same command again continues an interrupted run
  --distributed               one of several processes that find each other: TPU pods, SLURM, MPI (docs/pods.md);
                              elsewhere --coordinator HOST:PORT --processes N --process I
  --debug                     show a traceback with an error
  --help                      this text

Exit codes: 0 done, 2 usage or configuration, 3 data, 4 model file or checkpoint, 5 numerics (NaN, collapse),
6 work directory busy, 7 disk or memory full, 75 stopped by a signal after saving: run the command again.
"""


def main(argv: list[str]) -> int:
    """Exit code of a run with the command line `argv` (program name first)."""
    config, workdir, how = parse(argv, USAGE)
    from jax_sentemb.parallel import Join, join  # after parsing: --help and mistakes answer without loading JAX's compiler

    join(Join(**how))
    from jax_sentemb.training.run import run

    return run(config, workdir)


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
