"""Mark the folders of downloaded evaluation sets with their sources and the SHA-256 of their files.

Folders of SentEval have no mark and are not checked.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.files import read_json, sha256, write_json
from jax_sentemb.provenance import DOWNLOAD, KEY, difference, mark

NAME = "download.json"


def write_mark(folder: Path, sources: Mapping[str, Any]) -> None:
    """Write the mark of a folder whose files are complete."""
    files = {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in sorted(folder.iterdir())}
    write_json(folder / NAME, {KEY: mark(DOWNLOAD, sources), "files": files})


def damage(folder: Path, sources: Mapping[str, Any] | None = None) -> str:
    """Return the problem of a downloaded folder, "" if there is none; `sources` are compared if they are given."""
    try:
        content = read_json(folder / NAME)
        if problem := difference(content, DOWNLOAD, sources or {}):
            return f"{folder / NAME} {problem}"
        for name, facts in content["files"].items():
            file = folder / Path(name).name
            if not file.is_file():
                return f"{file} is missing"
            if file.stat().st_size != facts["bytes"] or sha256(file) != facts["sha256"]:
                return f"{file} is damaged: its size or SHA-256 differs from {NAME}"
    except (AttributeError, KeyError, TypeError):
        return f"{folder / NAME} is damaged"
    except ModelFileError as error:
        return str(error)
    return ""


def check_download(folder: Path) -> None:
    """Raise DataError for a downloaded folder that is damaged, incomplete, or of another format."""
    if (folder / NAME).exists() and (problem := damage(folder)):
        raise DataError(f"{problem}; ", *DOWNLOAD.remedy)
