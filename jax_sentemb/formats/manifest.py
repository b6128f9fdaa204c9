"""Write and check the manifests of checkpoint steps: manifest.json has the SHA-256 of every file, and makes a step valid.

Orbax stores no checksum of array data, so it restores data with a flipped bit without an error. This module does not import JAX.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax_sentemb import provenance
from jax_sentemb.errors import Message, ModelFileError, Setting
from jax_sentemb.files import print_warning, read_limited, replacing, sha256

NAME = "manifest.json"
UNFINISHED = "unfinished"  # a file with the number of the step that is being saved; deleted when the step has its manifest
BEST = "best"  # the folder of the best weights of a run
START = "start"  # the folder of the initial weights of a run with train.average_with_start
DAMAGED = "corrupt-"  # beginning of the name of a folder with a damaged step
LEFTOVERS = ("*.orbax-checkpoint-tmp*", "*.deleted")  # folders that a killed run leaves behind
Warn = Callable[[str], None]


class Damaged(Exception):
    """A step that is not valid; the message names the file and the fault."""


def write(folder: Path, content: dict[str, Any]) -> None:
    """Hash every file of a step and write its manifest, which makes the step valid. `verify` returns `content`."""
    files = {name: [file.stat().st_size, sha256(file)] for name, file in _files(folder).items()}
    with replacing(folder / NAME) as partial:
        partial.write_text(_text({**content, "files": files}), encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """Return the content of the manifest of a step.

    Raises:
        Damaged: The manifest is missing, or it has changed since it was written.
        ModelFileError: The step has a format that this version does not read.
    """
    if not folder.resolve().is_relative_to(folder.parent.resolve()):
        raise Damaged(f"{folder} is a link out of the work directory")
    file, text, content = folder / NAME, b"", {}
    try:
        text = read_limited(file)
        content = json.loads(text)["content"]
    except FileNotFoundError:
        raise Damaged(f"{folder} has no {NAME}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(f"{file} is damaged") from None
    if not isinstance(content, dict) or _text(content).encode() != text:
        raise Damaged(f"{file} is damaged")
    provenance.check(folder, content, provenance.CHECKPOINT, remedy=_OTHER_VERSION)
    return content


_OTHER_VERSION: Message = (
    "continue and export the run with the version of jax_sentemb that wrote it, or give another ",
    Setting("--workdir"),
)


def verify(folder: Path) -> dict[str, Any]:
    """Return the content of the manifest of a step, after comparing every file with it.

    Raises:
        Damaged: The manifest is damaged, or a file is missing, not listed, a link, or has another size or hash.
        ModelFileError: The step has a format that this version does not read.
    """
    content = read(folder)
    files = _files(folder)
    if different := sorted(files.keys() ^ content["files"].keys()):
        raise Damaged(f"{folder / different[0]} {f'is not listed in {NAME}' if different[0] in files else 'is missing'}")
    for name, (size, digest) in content["files"].items():
        if files[name].is_symlink():
            raise Damaged(f"{files[name]} is a link")
        with contextlib.suppress(OSError, ModelFileError):
            if files[name].stat().st_size == size and sha256(files[name]) == digest:
                continue
        raise Damaged(f"{files[name]} is damaged: its size or SHA-256 differs from {NAME}")
    return content


def steps(folder: Path, warn: Warn) -> list[int]:
    """Return the numbers of all steps in a folder, valid or not, newest first. Warn of other entries."""
    numbers, others = [], []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isascii() and entry.name.isdigit() and str(int(entry.name)) == entry.name and entry.is_dir():
            numbers.append(int(entry.name))
        elif not (entry.name.startswith((UNFINISHED, DAMAGED)) or any(entry.match(pattern) for pattern in LEFTOVERS)):
            others.append(entry.name)
    if others:
        warn(f"{folder}: entries that are not steps of a run are ignored: {', '.join(sorted(others)[:5])}")
    return sorted(numbers, reverse=True)


def newest(folder: Path, warn: Warn = print_warning) -> tuple[int, dict[str, Any]] | None:
    """Return the newest valid step and its manifest; None without steps. No file is changed.

    Raises:
        ModelFileError: There are steps, but none is valid.
    """
    problems = []
    for step in steps(folder, warn):
        try:
            return step, verify(folder / str(step))
        except Damaged as problem:
            problems.append(f"{problem}")
            warn(f"{problem}: trying the previous step")
    if problems or list(folder.glob(f"{DAMAGED}*")):
        raise ModelFileError(f"{folder}: no step is intact{f' ({problems[0]})' if problems else ''}; ", *advice(folder))
    return None


def valid(folder: Path, step: int) -> tuple[int, dict[str, Any]] | None:
    """Return a step and its manifest; None if the step is missing or damaged."""
    try:
        return step, verify(folder / str(step))
    except Damaged:
        return None


def advice(folder: Path) -> Message:
    """Return what to do if a folder of checkpoints has no intact step."""
    effect = "export the last weights" if folder.name == BEST else "start from the beginning"
    return f"delete this folder to {effect}, or give another ", Setting("--workdir")


def recover(folder: Path, warn: Warn) -> tuple[int, dict[str, Any]] | None:
    """Return the newest valid step as `newest` does, and clean up the folder for the run that owns it.

    Delete what a killed run left behind, and move damaged steps to corrupt-<step>.
    """
    clear(folder)
    marker = folder / UNFINISHED
    unfinished = marker.read_text(encoding="utf-8") if marker.exists() else ""
    for step in steps(folder, warn):
        try:
            content = verify(folder / str(step))
        except Damaged as problem:
            if str(step) == unfinished and not (folder / unfinished / NAME).exists():
                warn(f"{folder}: the save of step {step} was interrupted, so the step is deleted")
                remove(folder / unfinished)
                continue
            if (folder / str(step)).is_symlink():
                warn(f"{problem}: it is ignored")
                continue
            corrupt = folder / f"{DAMAGED}{step}"
            shutil.rmtree(corrupt, ignore_errors=True)
            (folder / str(step)).rename(corrupt)
            warn(f"{problem}: moved to {corrupt.name}, trying the previous step")
        else:
            marker.unlink(missing_ok=True)
            return step, content
    marker.unlink(missing_ok=True)
    return newest(folder, lambda text: None)


def clear(folder: Path, damaged: bool = False) -> None:
    """Delete folders that a killed run or a failed save left behind, and with `damaged` those of damaged steps."""
    for pattern in (*LEFTOVERS, *([f"{DAMAGED}*"] if damaged else [])):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover)


def remove(step: Path) -> None:
    """Delete a step. A crash leaves a whole step or none."""
    shutil.rmtree(set_aside(step), ignore_errors=True)


def set_aside(step: Path) -> Path:
    """Rename a step, if it exists, so that it no longer counts as a step, and return the new path."""
    renamed = step.with_name(f"{step.name}.deleted")
    shutil.rmtree(renamed, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        step.rename(renamed)
    return renamed


def _files(folder: Path) -> dict[str, Path]:
    """Return every file below a folder, and every link to a folder, by its relative path; without the manifest."""
    paths = (Path(root) / name for root, folders, names in os.walk(folder) for name in (*names, *_links(root, folders)))
    files = {file.relative_to(folder).as_posix(): file for file in paths}
    files.pop(NAME, None)
    return files


def _links(root: str, folders: list[str]) -> list[str]:
    return [name for name in folders if os.path.islink(os.path.join(root, name))]


def _text(content: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({"content": content, "sha256": digest}, indent=1, sort_keys=True) + "\n"
