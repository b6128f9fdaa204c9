"""Measures the size of the package for extending.md: `python docs/architecture.py` rewrites the numbers there."""

import argparse
import ast
import functools
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jax_sentemb"
PAGE = ROOT / "docs" / "extending.md"
# Lines are lines of code: docstrings, comments and blank lines are not counted.
MOST_FILES, MOST_LINES = 12, 1800
MOST_OF_A_FILE, MOST_OF_A_FUNCTION, MOST_ARGUMENTS = 300, 60, 7
SILENT = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
EXCEPTION = "`encode` in inference/encoder.py"  # has the arguments of sentence-transformers

# Files on the way from the command to the loss that miCSE differentiates, in the order of the calls (tests/test_architecture.py).
PATH = {
    "cli/program.py": "turns errors into one line and an exit code",
    "cli/train.py": "the command: command line to `Config`, and its run",
    "training/run.py": "takes the work directory, runs `pretrain` first",
    "training/trainer.py": "resumes, trains, evaluates, saves, exports",
    "training/setup.py": "corpus, tokenizer, batches, first weights, evaluation sets",
    "training/loop.py": "a step for each batch; evaluation and saving on the way",
    "training/step.py": "loss, gradients and update of one batch, jitted",
    "methods/simcse.py": "miCSE: what is encoded, and the objective",
    "methods/views.py": "two dropout views of a sentence",
    "methods/attention_mi.py": "attention mutual information of the two views",
    "losses/contrastive.py": "InfoNCE",
}
# Also on the stacks, but read for another question: the fields and limits of the settings, and how batches are made.
BESIDE = ("config.py", "settings.py", "data/batches.py")


@functools.cache
def lines_of_code(file: Path) -> set[int]:
    """Return the numbers of the lines of a file that have code."""
    with file.open("rb") as opened:
        tokens = [token for token in tokenize.tokenize(opened.readline) if token.type not in SILENT]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return code


def lines(file: Path) -> int:
    """Return how many lines of a file have code."""
    return len(lines_of_code(file))


@functools.cache
def functions() -> list[tuple[int, int, str]]:
    """Return (lines of code, arguments without self, name and file) of each function of the package."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        code = lines_of_code(file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                arguments = len(names) - (names[:1] in (["self"], ["cls"]))
                found.append(
                    (
                        sum(node.lineno <= line <= node.end_lineno for line in code),
                        arguments,
                        f"`{node.name}` in {file.relative_to(PACKAGE)}",
                    )
                )
    return found


def modules_of_a_run() -> int:
    """Modules of the package that `python -m jax_sentemb.main` has imported when a run begins."""
    code = (
        "import runpy, sys, jax_sentemb.main, jax_sentemb.training.run\n"
        "runpy.run_path('configs/micse.py')\n"
        "print(sum(name.split('.')[0] == 'jax_sentemb' for name in sys.modules))"
    )
    return int(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def table() -> str:
    """The numbers of the page."""
    sizes = {name: lines(PACKAGE / name) for name in PATH}
    rows = [f"| {name} | {sizes[name]} | {about} |" for name, about in PATH.items()]
    files = list(PACKAGE.rglob("*.py"))
    longest = max(files, key=lines)
    size, _, function = max(functions())
    arguments = max(count for _, count, name in functions() if name != EXCEPTION)
    shown = "\n".join(rows)
    beside = {name: lines(PACKAGE / name) for name in BESIDE}
    listed = ", ".join(f"{name} ({count})" for name, count in beside.items())
    return f"""\
{len(PATH)} files and {sum(sizes.values()):,} lines of code (limits: {MOST_FILES} and {MOST_LINES:,}):

| file | lines | |
|---|---|---|
{shown}

Settings and batches are on the stacks too:
{listed}.
Together these are {len(PATH) + len(BESIDE)} files and {sum(sizes.values()) + sum(beside.values()):,} lines.
Docstrings, comments and blank lines are not counted.

The package has {len(files)} files and {sum(map(lines, files)):,} lines of code. A miCSE run imports
{modules_of_a_run()} of its modules. The limits of its size are tested:

| largest | | size | limit |
|---|---|--:|--:|
| file | {longest.relative_to(PACKAGE)} | {lines(longest)} lines | {MOST_OF_A_FILE} |
| function | {function} | {size} lines | {MOST_OF_A_FUNCTION} |
| number of arguments | | {arguments} | {MOST_ARGUMENTS} |

Only {EXCEPTION} has more arguments: those of sentence-transformers."""


def rewrite(page: str, numbers: str) -> str:
    """The page with `numbers` between its two marks."""
    return re.sub(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", lambda found: numbers + "\n", page, flags=re.DOTALL)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help and a typo write nothing
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
    print(table())
