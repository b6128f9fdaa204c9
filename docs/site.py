"""What mkdocs cannot do by itself: the page of all settings, and links from the documentation into the repository."""

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINKED = ("configs/*.py", "experiments/**/*.*", "benchmarks/*.*", "jax_sentemb/**/*.py")
INTO_REPOSITORY = re.compile(r"\]\(((?:\.\./)*)\.\./(configs|experiments|benchmarks|jax_sentemb)\b")


def settings() -> str:
    """The page of every setting: name, default and meaning, read from the source of the dataclasses."""
    page = [
        "# Settings\n",
        "Every field of the dataclasses, with its default; a recipe in `configs/` sets some of them otherwise, and",
        "`--config FILE --help` prints what holds there. On the command line: `--config.data.batch_size=128`.\n",
    ]
    source = (ROOT / "jax_sentemb/config.py").read_text(encoding="utf-8")
    sections = {"Config": "", "Data": "data.", "Encoder": "encoder.", "Words": "encoder.", "Optimizer": "optimizer."}
    sections |= {"Evaluation": "eval.", "Train": "train."}
    page += _tables(source, sections)
    parts = {"AttentionMI": "method.ami.", "Momentum": "method.momentum.", "Convolution": "method.convolution."}
    for file in (*sorted((ROOT / "jax_sentemb/methods").glob("*.py")), ROOT / "jax_sentemb/models/cnn.py"):
        page += _tables(file.read_text(encoding="utf-8"), parts, "method.")
    return "\n".join(page)


def _tables(source: str, prefixes: dict[str, str], other: str | None = None) -> list[str]:
    """A heading, the docstring and a table for each dataclass of `prefixes`, and for each other one if they have a prefix."""
    lines, page = source.splitlines(), []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or not any("dataclass" in ast.unparse(item) for item in node.decorator_list):
            continue
        prefix = prefixes.get(node.name, other)
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        if prefix is None or not fields:
            continue
        page += [f"\n## {node.name}\n", ast.get_docstring(node) or "", "\n| setting | default | |\n|---|---|---|"]
        for item in fields:
            default, limits = _default_and_limits(item.value)
            comment = lines[item.end_lineno - 1].partition("  # ")[2] or _comment_above(lines, item.lineno)
            text = "; ".join(filter(None, (comment.replace("|", chr(92) + "|").rstrip("."), limits)))
            page.append(f"| `{prefix}{ast.unparse(item.target)}` | {default} | {text} |")
    return page


def _default_and_limits(value: ast.expr | None) -> tuple[str, str]:
    """Default and limits of a field as text: of `64`, of `setting(64, least=2)`, of `field(default_factory=Data)`."""
    if value is None:
        return "to be given", ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "setting":
        limits = {keyword.arg: ast.literal_eval(keyword.value) for keyword in value.keywords}
        words = [f"at least {limits['least']}"] if "least" in limits else []
        words += [f"below {limits['below']}"] if "below" in limits else []
        words += ["one of " + ", ".join(f"`{choice!r}`" for choice in limits["choices"])] if "choices" in limits else []
        return f"`{ast.unparse(value.args[0])}`", " and ".join(words)
    factory = re.fullmatch(r"field\(default_factory=(\w+)\)", ast.unparse(value))
    return (f"see {factory[1]}" if factory else f"`{ast.unparse(value)}`"), ""


def _comment_above(lines: list[str], number: int) -> str:
    """The comment line above line `number` (from 1), "" if there is none."""
    above = lines[number - 2].strip()
    return above.removeprefix("# ") if above.startswith("# ") else ""


def on_files(files: Any, config: Any) -> Any:
    """The page of settings, and the files of the repository that pages link to."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "settings.md", content=settings()))
    for pattern in LINKED:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """In the site the repository's files lie beside the pages, not above them."""
    return INTO_REPOSITORY.sub(r"](\1\2", markdown)
