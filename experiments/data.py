"""Checks the data of the studies: `python experiments/data.py --data DIR [--study NAME]`; `--table` rewrites data.md.

experiments/data.toml has a row for each file or folder: its path below DIR, where to get it, its licence, lines and SHA-256, and
the studies that read it. It also has the texts that are made from them, with the command that prepares each. The check prints what
is there, what is missing or different, and where to get it. Models and word vectors have options of their own in the commands; they
are listed with their sources.
"""

import argparse
import hashlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "data.md"
CONTENT: dict[str, list[dict[str, Any]]] = tomllib.loads((HERE / "data.toml").read_text(encoding="utf-8"))
SETS, TEXTS, MODELS = CONTENT["set"], CONTENT["text"], CONTENT["model"]

BERT = """\
python -c "from transformers import AutoModelForMaskedLM, AutoTokenizer
for kind in AutoModelForMaskedLM, AutoTokenizer:
    kind.from_pretrained('google/bert_uncased_L-4_H-256_A-4').save_pretrained('bert-mini')"
"""
GLOVE = """\
python -c "import numpy as np
from jax_sentemb.data.word_vectors import read_word_vectors
table = read_word_vectors('glove.6B.50d.txt')
np.savez('glove.6B.50d.npz', words=np.array([word.encode() for word in table.words]), vectors=table.vectors.astype(np.float16))"
"""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file; of a folder, that of the lines "SHA-256  relative path" of its files in order."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        listing = "".join(f"{digest(file)}  {file.relative_to(path).as_posix()}\n" for file in files)
        return hashlib.sha256(listing.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state(row: dict[str, Any], folder: Path) -> str:
    """Return "there", "missing" or "different"."""
    path = folder / row["path"]
    if not path.exists():
        return "missing"
    return "there" if digest(path) == row["sha256"] else "different"


def check(folder: Path, study: str = "") -> int:
    """Print the state of each set and the source of missing ones; return 1 if a set differs from the table."""
    code = 0
    for row in SETS:
        if study and study not in row["studies"]:
            continue
        found = state(row, folder)
        print(f"{found:<10} {row['path']}")
        if found != "there":
            code = 1
            print(f"{'':<10} get it from: {row['source']} ({row['licence']})")
    for row in TEXTS:
        if not study or study in row["studies"]:
            print(f"{'by command':<10} {row['name']}: {row['prepare']}")
    for row in MODELS:
        if not study or study in row["studies"]:
            print(f"{'by option':<10} {row['name']}: {row['source']} ({row['licence']})")
    return code


def linked(source: str) -> str:
    """Return a source with its links."""
    if "(GitHub)" in source:
        return re.sub(r"\b([\w-]+/[\w.-]+)", r"[\1](https://github.com/\1)", source)
    return re.sub(r"(https://\S+)", r"<\1>", source)


def table() -> str:
    """Return data.md."""
    rows = [
        f"| `{row['path']}` | {row['about']} | {row['lines']:,} | {linked(row['source'])} | {row['licence']} | "
        f"`{row['sha256'][:16]}` | {', '.join(row['studies'])} |"
        for row in SETS
    ]
    texts = [
        f"| {', '.join(f'`{name}`' for name in row['name'].split(', '))} | {row['about']} | "
        f"{', '.join(f'`{name}`' for name in row['from'])} | {', '.join(row['studies'])} |"
        for row in TEXTS
    ]
    models = [
        f"| {row['name']} | {row['about']} | {linked(row['source'])} | {row['licence']} | {', '.join(row['studies'])} |"
        for row in MODELS
    ]
    return "\n".join([
        "# Data of the studies",
        "",
        "This page lists the data of the studies and their sources. Put them into one folder with these",
        "paths. This command lists present and missing files, and where to get them:",
        "",
        "```",
        "python experiments/data.py --data DIR --study is_bert",
        "```",
        "",
        "[data.toml](data.toml) has the complete SHA-256 sums. The sum of a folder is that of the list of its",
        "files with their sums.",
        "",
        "| path | content | lines | source | licence | SHA-256 | studies |",
        "|---|---|--:|---|---|---|---|",
        *rows,
        "",
        "The text of Wikipedia and novels, the samples of MultiNLI and the folder `senteval` were collected",
        "before these studies. The scripts are not in this repository. Other selections from the same sources",
        "have other sums. Scores then differ a little.",
        "",
        "## Texts made from these files",
        "",
        "| name in the commands | content | made from | studies |",
        "|---|---|---|---|",
        *texts,
        "",
        "These commands make them. `DIR` is the folder above:",
        "",
        "```",
        *(row["prepare"] for row in TEXTS),
        "```",
        "",
        "## Models and word vectors",
        "",
        "The commands take these by an option of their own.",
        "",
        "| name in the commands | content | source | licence | studies |",
        "|---|---|---|---|---|",
        *models,
        "",
        "### bert-mini",
        "",
        "The BERT of the studies is not published. Its shape is that of",
        "`google/bert_uncased_L-4_H-256_A-4`, its weights are others. With other weights all scores differ.",
        "Its continuation, `experiments/pretraining/mini-2`, is in this repository.",
        "",
        "The commands read safetensors. transformers with PyTorch writes them from the model of the hub:",
        "",
        "```",
        *BERT.splitlines(),
        "```",
        "",
        "### GloVe",
        "",
        "`glove.6B.50d.txt` of the zip file can replace `glove.6B.50d.npz` in every command. The studies read",
        "a `.npz` in half precision, which loads faster. This command makes it:",
        "",
        "```",
        *GLOVE.splitlines(),
        "```",
        "",
        "For the 100,000 most frequent words of [multiview](multiview/README.md) and",
        "[conssent](conssent/README.md), cut the file first: `head -100000 glove.6B.50d.txt`.",
        "",
    ])  # fmt: skip


def main() -> int:
    """Check, or rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder")
    parser.add_argument("--study", default="", choices=["", *sorted({name for row in SETS for name in row["studies"]})])
    parser.add_argument("--table", action="store_true", help="write data.md")
    options = parser.parse_args()
    if options.table:
        PAGE.write_text(table(), encoding="utf-8")
        return 0
    if options.data is None:
        parser.error("give --data DIR, or --table")
    return check(options.data, options.study)


if __name__ == "__main__":
    sys.exit(main())
