"""Read the JSON files next to the weights of a model, and report each key that cannot be followed."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ModelFileError, plain
from jax_sentemb.files import check_regular, quote, read_json
from jax_sentemb.side_files.config_keys import Refusal
from jax_sentemb.side_files.keys import KEYS, REFUSED_FILES, UNREAD_FILES, Keys

logger = logging.getLogger("jax_sentemb")
_reported: set[tuple[str, str]] = set()  # files and keys that a warning was logged for


def read_side_file(file: Path, file_type: str, top: type = dict) -> Any:
    """Read a JSON file whose keys are those of KEYS[file_type].

    Raises:
        ModelFileError: The file is damaged, or has a key or a value that would change embeddings and is not supported.
    """
    content = read_json(file, top)
    check_keys(content, file_type, file)
    return content


def check_keys(content: Any, file_type: str, file: Path) -> None:
    """Raise ModelFileError for a refused key or value, and warn once of a key that is on no list of KEYS[file_type]."""
    keys = KEYS[file_type]
    for name, value in _entries(content, keys):
        if (refusal := keys.refusal(name)) is not None:
            _check_value(name, value, refusal, file)
        elif not keys.knows(name):
            warn_once(file, name, f"{file}: the key {quote(name)} is not known to this version and was ignored")


def check_links(folder: Path) -> None:
    """Raise ModelFileError for a folder or a link to nothing in place of a file, which would be read as if it were missing."""
    for file in sorted(file for file in folder.iterdir() if file.suffix in (".json", ".txt", ".safetensors")):
        check_regular(file)
        if file.is_symlink() and not file.exists():
            raise ModelFileError(f"{file} is a link to a missing file; copy or download the model again")


def check_files(folder: Path, has_modules: bool) -> None:
    """Raise ModelFileError for an unsupported file that changes embeddings; warn of files that are not read."""
    for name, reason in REFUSED_FILES.items():
        if (folder / name).exists():
            raise ModelFileError(f"{folder / name}: {reason}; remove the file if the model does not need it")
    for name, (reason, with_modules) in UNREAD_FILES.items():
        if (folder / name).exists() and (with_modules or not has_modules):
            warn_once(folder / name, "", f"{folder / name} was not read: {reason}")


def warn_once(file: Path, key: str, text: str) -> None:
    """Log a warning about a key of a file, once in a process."""
    if (str(file), key) not in _reported:
        _reported.add((str(file), key))
        logger.warning("%s", plain(text))


def _check_value(name: str, value: Any, refusal: Refusal, file: Path) -> None:
    if any(type(value) is type(allowed) and value == allowed for allowed in refusal.allowed):
        return
    allowed = " or ".join(map(repr, refusal.allowed))
    remedy = f"only {allowed} is supported" if refusal.allowed else "remove it if the model does not need it"
    raise ModelFileError(f"{file}: {name}={quote(value)} is not supported ({refusal.reason}); {remedy}")


def _entries(content: Any, keys: Keys, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of each key; keys inside a value only if KEYS has names inside it."""
    for item in content if isinstance(content, list) else [content]:
        if not isinstance(item, Mapping):
            continue
        for key, value in item.items():
            name = f"{prefix}{key}"
            if keys.has_inner(name) and isinstance(value, Mapping | list):
                yield from _entries(value, keys, f"{name}.")
            else:
                yield name, value
