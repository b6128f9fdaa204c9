"""Write and check provenance marks: the sources of a file, and the number of its format.

Every file that the package keeps and reads again has the same mark, the entry `provenance` of its JSON description::

    {"file": "search index", "format": 1, "sources": {"corpus": {"name": "a.txt", "sha256": "9f86d0..."}, "normalize": false}}

A source is content, with its name and SHA-256, or a setting. Content is compared by its SHA-256 only, because files are renamed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb import files
from jax_sentemb.errors import DataError, Message, ModelFileError, Setting, UserError

KEY = "provenance"


class Source(NamedTuple):
    """Content that a file was made from."""

    name: str
    sha256: str


class FileType(NamedTuple):
    """A type of file that the package writes and reads again."""

    name: str
    format: int  # rises with each change of what the file contains
    remedy: Message  # what the user can do about a file that cannot be used
    error: type[UserError] = DataError


# Entries of the cache are silently made again, so these types have no remedy.
CONVERTED_TEXT = FileType("text", 2, ())
TEXT_INDEX = FileType("index", 2, ())
LINE_NUMBERS = FileType("lines", 2, ())
DIGEST = FileType("sha256", 1, ())
VOCABULARY = FileType("vocabulary", 1, ())
TOKENS = FileType("tokens", 7, ())
PACKED_ROWS = FileType("packed", 3, ())

VECTORS = FileType("vectors", 3, ("encode the corpus into a new directory or file",))
SEARCH_INDEX = FileType("search index", 2, ("delete it, or give another ", Setting("--index")))
RUN = FileType("run", 1, ("give another ", Setting("--workdir")), ModelFileError)
SWEEP = FileType("sweep", 2, ("give another ", Setting("--workdir")), ModelFileError)
DOWNLOAD = FileType("download", 1, ("jax-sentemb evaluate --fetch loads it again",))
EXPORT = FileType("export", 1, ("export the model again with this version",), ModelFileError)
WORD_MODEL = FileType("word model", 1, ("export the model again with this version",), ModelFileError)
CHECKPOINT = FileType("checkpoint", 1, ("give the old input or setting, or another ", Setting("--workdir")), ModelFileError)


def mark(file_type: FileType, sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mark of a file of this type that is made from `sources`."""
    values = {name: value._asdict() if isinstance(value, Source) else value for name, value in sources.items()}
    return {"file": file_type.name, "format": file_type.format, "sources": json.loads(json.dumps(values))}


def fingerprint(file_type: FileType, sources: Mapping[str, Any]) -> str:
    """Return the SHA-256 of type, format and sources, without the names of content."""
    content = mark(file_type, sources)
    return files.fingerprint({**content, "sources": {name: _identity(value) for name, value in content["sources"].items()}})


def check(
    where: str | Path | Setting,
    content: Any,
    file_type: FileType,
    sources: Mapping[str, Any] | None = None,
    error: type[UserError] | None = None,
    remedy: Message = (),
) -> dict[str, Any]:
    """Return the recorded sources of a file, after comparing its mark.

    Args:
        where: The name of the file, or the setting that names it, for the message.
        content: The JSON value that contains the mark.
        file_type: What the file must be.
        sources: The sources that it must have been made from; other recorded sources are not compared.
        error: Raised instead of the error of `file_type`.
        remedy: Advice instead of that of `file_type`.

    Raises:
        UserError: The mark is missing, or has another type, format or source. The message names both sources.
    """
    if problem := difference(content, file_type, sources or {}):
        subject = where if isinstance(where, Setting) else str(where)
        raise (error or file_type.error)(subject, f" {problem}; ", *(remedy or file_type.remedy))
    return content[KEY]["sources"]


def difference(content: Any, file_type: FileType, sources: Mapping[str, Any]) -> str:
    """Return how the mark of a file differs from the expected one, "" if it does not differ."""
    recorded = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(recorded, dict) or not isinstance(recorded.get("sources"), dict):
        return "does not record its sources"
    if recorded.get("file") != file_type.name:
        return f"is a file of type {files.quote(recorded.get('file'))}, not {file_type.name!r}"
    if recorded.get("format") != file_type.format:
        return f"has format {files.quote(recorded.get('format'))}, this version reads format {file_type.format}"
    for name, expected in mark(file_type, sources)["sources"].items():
        actual = recorded["sources"].get(name)
        if _identity(actual) != _identity(expected):
            return f"was made {_describe(name, actual)}, not {_describe(name, expected)}"
    return ""


def is_marked(content: Any, file_type: FileType) -> bool:
    """Return whether JSON content has the mark of a file of this type, in any format."""
    recorded = content.get(KEY) if isinstance(content, dict) else None
    return isinstance(recorded, dict) and recorded.get("file") == file_type.name


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"name", "sha256"}


def _identity(value: Any) -> Any:
    return ["sha256", value["sha256"]] if _is_content(value) else value


def _describe(name: str, value: Any) -> str:
    """Return "from corpus a.txt (SHA-256 9f86d081884c)" or "with normalize=False"."""
    if _is_content(value):
        return f"from {name} {_text(value['name'])} (SHA-256 {_text(value['sha256'])[:12]})"
    return f"without {name}" if value is None else f"with {name}={files.quote(value)}"


def _text(value: Any) -> str:
    """Return a value from a file, which may be hostile, as text for a message."""
    return value[:200] if isinstance(value, str) else files.quote(value)
