"""Hooks for mkdocs: the generated page of settings, and links between the documentation and files of the repository."""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINKED = (
    "LICENSE",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "configs/*.py",
    "experiments/**/*.*",
    "benchmarks/*.*",
    "jax_sentemb/**/*.py",
)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|/)[^)#\s]+")


def settings() -> str:
    """Markdown page of all settings: name, default and meaning, read from the source of the dataclasses."""
    page = [
        "# Settings\n",
        "Every field of the configuration dataclasses with its default. A recipe in `configs/` overrides some of them;",
        "`--config FILE --help` prints its values. On the command line: `--config.data.batch_size=128`.\n",
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
    """Heading, docstring and table of fields for each dataclass in `prefixes`; `other` is the prefix of the remaining ones."""
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
            comment = lines[(item.end_lineno or item.lineno) - 1].partition("  # ")[2] or _comment_above(lines, item.lineno)
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
    """Adds the page of settings and the files of the repository that pages link to."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "settings.md", content=settings()))
    for name in linked_files():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def linked_files() -> list[str]:
    """Paths of the files outside docs/ that the site contains, relative to the repository."""
    found = (path for pattern in LINKED for path in sorted(ROOT.glob(pattern)))
    return [path.relative_to(ROOT).as_posix() for path in found if path.is_file() and "__pycache__" not in path.parts]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrites relative links: the site holds the pages of docs/ and the linked files of the repository in one root."""
    site_path = page.file.src_uri
    source = site_path if site_path in linked_files() else f"docs/{site_path}"

    def relocated(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[0]))
        return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(site_path) or ".")

    return LINK.sub(relocated, markdown)
