"""Measures the size of the package for architecture.md: `python docs/architecture.py` rewrites the numbers there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jax_sentemb"
PAGE = ROOT / "docs" / "architecture.md"
MOST_FILES, MOST_LINES = 12, 2500
MOST_OF_A_FILE, MOST_OF_A_FUNCTION, MOST_ARGUMENTS = 350, 60, 7
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


def lines(file: Path) -> int:
    """Lines of a file."""
    return len(file.read_text(encoding="utf-8").splitlines())


def functions() -> list[tuple[int, int, str]]:
    """(lines, arguments without self, name and file) of each function of the package."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                arguments = len(names) - (names[:1] in (["self"], ["cls"]))
                found.append((node.end_lineno - node.lineno + 1, arguments, f"`{node.name}` in {file.relative_to(PACKAGE)}"))
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
{len(PATH)} files and {sum(sizes.values()):,} lines (limits: {MOST_FILES} and {MOST_LINES:,}):

| file | lines | |
|---|---|---|
{shown}

With the settings and the batches, {listed},
these are {len(PATH) + len(BESIDE)} files and {sum(sizes.values()) + sum(beside.values()):,} lines.

The package has {len(files)} files and {sum(map(lines, files)):,} lines. The largest file is
{longest.relative_to(PACKAGE)} with {lines(longest)} lines, the largest function {function} with {size}.
No function has more than {arguments} arguments, except {EXCEPTION}, which has those of sentence-transformers.
A miCSE run imports {modules_of_a_run()} modules of it."""


def rewrite(page: str, numbers: str) -> str:
    """The page with `numbers` between its two marks."""
    return re.sub(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", lambda found: numbers + "\n", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
    print(table())
