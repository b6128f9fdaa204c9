"""Find what ships with the package: recipes, a small sentence encoder, and sentences to try it with."""

import csv
from pathlib import Path

# Folder in an installed package -> folder in a checkout. setup.py reads this table.
FOLDERS = {
    "configs": "configs",
    "mini_distilled": "experiments/stronger/mini-distilled",
    "sample": "tests/data",
}
MODELS = {"mini-distilled": "mini_distilled"}  # name that users give -> folder


def shipped_folder(name: str) -> Path:
    """Return a folder of FOLDERS: inside the installed package, or in the checkout."""
    package = Path(__file__).parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parent / FOLDERS[name]


def sample_sentences() -> list[str]:
    """Return 500 sentences of 25 articles of the English Wikipedia, in order (CC BY-SA 3.0)."""
    with (shipped_folder("sample") / "wikipedia.tsv").open(newline="", encoding="utf-8") as file:
        return [row["sentence"] for row in csv.DictReader(file, delimiter="\t")]
