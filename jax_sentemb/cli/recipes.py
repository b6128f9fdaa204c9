"""Run `jax-sentemb recipes [NAME]`: list the recipes, or print the file of one recipe."""

import sys

from jax_sentemb.cli.program import EXIT_CODES, Parser, start
from jax_sentemb.errors import plain
from jax_sentemb.recipes import FOLDER, description, find, names, read_config
from jax_sentemb.system.terminal import table

EPILOG = f"""\
examples:
  jax-sentemb recipes
  jax-sentemb recipes micse
  jax-sentemb train --config micse --help

{EXIT_CODES}"""


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb recipes",
        description="List the recipes: what each trains, and what it needs. `train --config NAME` runs one.",
        epilog=EPILOG,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the file of this recipe")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    options = parser().parse_args(argv[1:])
    if options.name:
        text = find(options.name)[0].read_text(encoding="utf-8")
        print(plain(text) if sys.stdout.isatty() else text, end="")
    else:
        print(table(("recipe", "trains", "needs"), recipe_rows(), text_columns=(0, 1, 2)))
    return 0


def recipe_rows() -> list[tuple[str, str, str]]:
    """Return the name of each recipe, the first sentence of its docstring, and what a user has to give."""
    from jax_sentemb.cli.recipe_needs import needs  # it loads JAX

    rows = []
    for name in names():
        file = str(FOLDER / f"{name}.py")
        summary = description(file).partition("\n")[0].removesuffix(".")
        rows.append((name, summary, ", ".join(needs(read_config(file))) or "nothing"))
    return rows


if __name__ == "__main__":
    start(main)
