"""The pages of the documentation and their blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "docs/settings.md"  # by docs/settings.py from docstrings and comments
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page != SETTINGS)]
LISTED = [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("tests/*.md"), *ROOT.glob("experiments/*/*.md")]


def blocks(page, kinds):
    """(kind, text) of the fenced blocks of a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [(kind, text) for kind, text in found if kind in kinds]
