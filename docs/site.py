"""Hooks for mkdocs: generated pages (settings, notebooks), and links between the documentation and files of the repository."""

import dataclasses
import importlib
import inspect
import json
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
    "tests/data/README.md",
    "jax_sentemb/**/*.py",
)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|/)[^)#\s]+")


def settings() -> str:
    """Markdown page of all settings: name, default, meaning and limits, as `--config RECIPE --help` shows them."""
    from jax_sentemb import config

    page = [
        "# Settings\n",
        "This page lists every setting with its default, meaning and limits. On the command line a setting is written",
        "`--config.data.batch_size=128`. A recipe in `configs/` overrides some defaults; `--config RECIPE --help` prints",
        "its values.\n",
    ]
    sections = {"": config.Config, "data.": config.Data, "encoder.": config.Encoder, "optimizer.": config.Optimizer}
    sections |= {"eval.": config.Evaluation, "train.": config.Train}
    for prefix, kind in sections.items():
        page += _table(kind, prefix)
        page += _table(config.Words, prefix) if prefix == "encoder." else []
    parts = {"AttentionMI": "method.ami.", "Momentum": "method.momentum.", "Convolution": "method.convolution."}
    for kind in _method_settings():
        page += _table(kind, parts.get(kind.__name__, "method."))
    return "\n".join(page)


def _method_settings() -> list[type]:
    """The dataclasses of the methods and of their parts, by module."""
    names = [f"jax_sentemb.methods.{path.stem}" for path in sorted((ROOT / "jax_sentemb/methods").glob("[!_]*.py"))]
    found = []
    for module in map(importlib.import_module, [*names, "jax_sentemb.models.cnn"]):
        own = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
        found += [kind for kind in own if dataclasses.is_dataclass(kind) and dataclasses.fields(kind)]
    return found


def _table(kind: Any, prefix: str) -> list[str]:
    """Heading, docstring and table of the fields of a dataclass."""
    from jax_sentemb.settings import field_comments

    page = [f"\n## {kind.__name__}\n", inspect.getdoc(kind) or "", "\n| setting | default | |\n|---|---|---|"]
    for item in dataclasses.fields(kind):
        default = "required" if item.default is dataclasses.MISSING else f"`{item.default!r}`"
        if item.default_factory is not dataclasses.MISSING:
            made = item.default_factory()
            default = f"see {type(made).__name__}" if dataclasses.is_dataclass(made) else f"`{made!r}`"
        text = "; ".join(filter(None, (field_comments(kind).get(item.name), str(item.metadata.get("limits") or ""))))
        page.append(f"| `{prefix}{item.name}` | {default} | {text.replace('|', chr(92) + '|')} |")
    return page


def notebook(path: Path) -> str:
    """Markdown page of a notebook: text, code and the stored results."""
    page = [f"[Download this notebook]({path.name}){{ .md-button download }}\n"]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        page.append(f"```python\n{source}\n```\n" if cell["cell_type"] == "code" else f"{source}\n")
        for data in (output["data"] for output in cell.get("outputs", ()) if "data" in output):
            table = re.sub(
                r"<style.*?</style>| (?:border|class|style)=\"[^\"]*\"| scoped", "", "".join(data.get("text/html", ())), flags=re.S
            )
            page.append(f"{table}\n" if table else f"```text\n{''.join(data['text/plain'])}\n```\n")
    first = next(place for place, text in enumerate(page) if text.startswith("# "))
    title, _, rest = page[first].partition("\n")
    return "\n".join([title, "", page[0], rest, *page[first + 1 :]])


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages and the files of the repository that pages link to."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "settings.md", content=settings()))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook(path)))
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
        if target.startswith("docs/notebooks/") and not site_path.startswith("notebooks/"):
            target = target.replace(".ipynb", ".md")  # its page, which has the file
        return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(site_path) or ".")

    return LINK.sub(relocated, markdown)
