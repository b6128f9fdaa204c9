"""Manifests of checkpoint steps: manifest.json has the SHA-256 of every file; a step without it is not valid. Without JAX.

Orbax keeps no checksum of array data: a flipped bit in it restores without an error.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import replacing, say, sha256

NAME = "manifest.json"
UNFINISHED = "unfinished"  # names the step whose save has begun; removed when it has its manifest
LEFT = ("*.orbax-checkpoint-tmp*", "*.deleted")  # what a killed run leaves
Warn = Callable[[str], None]


class Damaged(Exception):
    """A step that does not count, with the file and what is wrong with it."""


def write(folder: Path, content: dict[str, Any]) -> None:
    """Hash every file of a step and write its manifest, which makes it valid. `verify` returns `content`."""
    files = {name: [file.stat().st_size, sha256(file)] for name, file in _files(folder).items()}
    with replacing(folder / NAME) as partial:
        partial.write_text(_text({**content, "files": files}), encoding="utf-8")


def verify(folder: Path) -> dict[str, Any]:
    """The content of a step's manifest; Damaged if a file is missing, foreign, a link, or has another size or hash."""
    if not folder.resolve().is_relative_to(folder.parent.resolve()):
        raise Damaged(f"{folder} is a link that leads out of the work directory")
    file = folder / NAME
    try:
        text = file.read_bytes()
        content = json.loads(text)["content"]
        intact = _text(content).encode() == text
    except FileNotFoundError:
        raise Damaged(f"{folder} has no {NAME}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise Damaged(f"{file} is damaged")
    found = _files(folder)
    if different := sorted(found.keys() ^ content["files"].keys()):
        raise Damaged(f"{folder / different[0]} {'is foreign' if different[0] in found else 'is missing'}")
    for name, (size, digest) in content["files"].items():
        if found[name].is_symlink():
            raise Damaged(f"{found[name]} is a link")
        with contextlib.suppress(OSError, ModelFileError):
            if found[name].stat().st_size == size and sha256(found[name]) == digest:
                continue
        raise Damaged(f"{found[name]} is damaged: its content is not what was written")
    return content


def steps(folder: Path, warn: Warn) -> list[int]:
    """The numbers of the steps in a folder, newest first, whether they count or not; a warning for what is none."""
    found, foreign = [], []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isascii() and entry.name.isdigit() and str(int(entry.name)) == entry.name and entry.is_dir():
            found.append(int(entry.name))
        elif not (entry.name.startswith((UNFINISHED, "corrupt-")) or any(entry.match(pattern) for pattern in LEFT)):
            foreign.append(entry.name)
    if foreign:
        warn(f"{folder}: not a step of a run, left alone: {', '.join(sorted(foreign)[:5])}")
    return sorted(found, reverse=True)


def newest(folder: Path, warn: Warn = say) -> tuple[int, dict[str, Any]] | None:
    """The newest step that counts, with its manifest; None without steps, ModelFileError if none counts. Changes nothing."""
    problems = []
    for step in steps(folder, warn):
        try:
            return step, verify(folder / str(step))
        except Damaged as problem:
            problems.append(f"{problem}")
            warn(f"{problem}: the step before it is tried")
    if problems or list(folder.glob("corrupt-*")):
        raise ModelFileError(f"{folder}: no step is intact{f' ({problems[0]})' if problems else ''}; {_NONE_LEFT}")
    return None


_NONE_LEFT = "delete that folder to start anew, or give another --workdir"


def recover(folder: Path, warn: Warn) -> tuple[int, dict[str, Any]] | None:
    """`newest` for the run that owns the folder: what a killed run left is deleted, a damaged step moved to corrupt-<step>."""
    clear(folder)
    marker = folder / UNFINISHED
    begun = marker.read_text(encoding="utf-8") if marker.exists() else ""
    for step in steps(folder, warn):
        try:
            content = verify(folder / str(step))
        except Damaged as problem:
            if str(step) == begun and not (folder / begun / NAME).exists():
                warn(f"{folder}: the save of step {step} was interrupted: it does not count")
                remove(folder / begun)
                continue
            if (folder / str(step)).is_symlink():
                warn(f"{problem}: left alone")
                continue
            aside = folder / f"corrupt-{step}"
            shutil.rmtree(aside, ignore_errors=True)
            (folder / str(step)).rename(aside)
            warn(f"{problem}: moved to {aside.name}, the step before it is tried")
        else:
            marker.unlink(missing_ok=True)
            return step, content
    marker.unlink(missing_ok=True)
    return newest(folder, lambda text: None)


def clear(folder: Path) -> None:
    """Delete what a killed run or a failed save left."""
    for pattern in LEFT:
        for left in folder.glob(pattern):
            shutil.rmtree(left)


def remove(step: Path) -> None:
    """Delete a step so that a crash leaves all of it or none."""
    shutil.rmtree(set_aside(step), ignore_errors=True)


def set_aside(step: Path) -> Path:
    """Renames a step, if it is there, so that it is a step no more; returns the new path."""
    gone = step.with_name(f"{step.name}.deleted")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        step.rename(gone)
    return gone


def _files(folder: Path) -> dict[str, Path]:
    found = (Path(root) / name for root, folders, names in os.walk(folder) for name in (*names, *_links(root, folders)))
    files = {file.relative_to(folder).as_posix(): file for file in found}
    files.pop(NAME, None)
    return files


def _links(root: str, folders: list[str]) -> list[str]:
    return [name for name in folders if os.path.islink(os.path.join(root, name))]


def _text(content: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({"content": content, "sha256": digest}, indent=1, sort_keys=True) + "\n"
