"""Compute the SHA-256 of input files and folders. The cache keeps it for large files, so a run need not read them twice."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jax_sentemb.data import text_file
from jax_sentemb.data.cache import cache_folder, cached, read_about
from jax_sentemb.data.text_file import check_unchanged, identity_of, sha256_of
from jax_sentemb.provenance import DIGEST


def file_digest(path: Path, cache: Path | None = None) -> str:
    """Return the SHA-256 of a file.

    A file of text_file.LARGE bytes or more is hashed once. It is identified by device, inode, size and times of change. No program
    can set the last of these (ctime).
    """
    if path.stat().st_size < text_file.LARGE:
        return sha256_of(path)
    identity = identity_of([path])

    def write(folder: Path) -> dict[str, Any]:
        digest = sha256_of(path)
        check_unchanged([path], identity)
        return {"sha256": digest}

    return read_about(cached(cache or cache_folder(), DIGEST, {"file": identity}, write))["sha256"]


def folder_digest(folder: Path, patterns: Iterable[str], skipped: Iterable[str] = ()) -> str:
    """Return the SHA-256 of the names and contents of the files below a folder that match `patterns`."""
    files = {file for pattern in patterns for file in folder.rglob(pattern) if file.is_file() and file.name not in skipped}
    lines = (f"{file_digest(file)}  {file.relative_to(folder).as_posix()}\n" for file in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
