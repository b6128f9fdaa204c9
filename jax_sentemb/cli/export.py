"""Run `jax-sentemb export --workdir runs/micse [--step best|last|N] [--output DIR]`: export a checkpoint of a run."""

from jax_sentemb.cli.program import EXIT_CODES, Parser, start
from jax_sentemb.files import user_path


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb export",
        description="Export a checkpoint for transformers and sentence-transformers.",
        epilog=f"example:\n  jax-sentemb export --workdir runs/micse --step 500 --output models/micse-500\n\n{EXIT_CODES}",
    )
    parser.add_argument("--workdir", type=user_path, required=True, help="work directory of a run")
    parser.add_argument("--step", default="best", help="best (default), last or a number; best is last if no step was selected")
    parser.add_argument("--output", type=user_path, help="directory to write (default: WORKDIR/export)")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    from jax_sentemb.formats.run_dir import read_checkpoint, read_metadata
    from jax_sentemb.inference.export import export_run

    metadata = read_metadata(options.workdir)
    params, step = read_checkpoint(options.workdir, options.step)
    export_run(options.output or options.workdir / "export", metadata, params, options.workdir, step)
    return 0


if __name__ == "__main__":
    start(main)
