"""Run `jax-sentemb report --workdir runs/micse`: write report.html from the files of a work directory."""

from jax_sentemb.cli.program import EXIT_CODES, Parser, start
from jax_sentemb.errors import plain
from jax_sentemb.files import user_path


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb report",
        description="Write report.html from the files of a work directory.",
        epilog=f"example:\n  jax-sentemb report --workdir runs/micse\n\n{EXIT_CODES}",
    )
    parser.add_argument("--workdir", type=user_path, required=True, help="work directory of a run or of a sweep")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first), print the name of the file, and return the exit code."""
    workdir = parser().parse_args(argv[1:]).workdir
    from jax_sentemb.reporting.html_report import write_report

    print(plain(f"written: {write_report(workdir)}"))
    return 0


if __name__ == "__main__":
    start(main)
