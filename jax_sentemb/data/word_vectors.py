"""Read files of word vectors: text of GloVe and fastText, and NumPy archives."""

import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.data.npy import check_npy
from jax_sentemb.data.unpacking import COMPRESSED, open_unpacked, too_large, unpacked_limit
from jax_sentemb.errors import ModelFileError, first_line
from jax_sentemb.files import check_regular, quote, user_path

LONGEST = 1 << 20  # bytes of a line; 300 numbers take 3,000
SUFFIXES = (".txt", ".vec", ".npz")
DOWNLOAD_AGAIN = "download or save the file again"


class WordVectorTable(NamedTuple):
    """Words and their vectors. Row i of `vectors` belongs to words[i]."""

    name: str
    words: list[str]
    vectors: Float[np.ndarray, "words width"]  # float32


def is_word_vectors(path: str | Path) -> bool:
    """Return whether a file has the name of a word-vector file: .txt, .vec or .npz, the first two also with .gz or .xz."""
    path = Path(path)
    return path.with_suffix("").suffix in SUFFIXES[:2] if path.suffix in COMPRESSED else path.suffix in SUFFIXES


def read_word_vectors(path: str | Path, keep: set[str] | None = None) -> WordVectorTable:
    """Read the vectors of a file. If a word occurs twice, its first vector is used.

    Text has a word and its numbers on each line, with or without fastText's first line (count and width). A .npz archive has
    `words` (UTF-8 bytes or text) and `vectors` [words, E]. Memory grows with the words that are read.

    Args:
        path: The file.
        keep: The words to read, by default all.

    Raises:
        ModelFileError: The file is missing or damaged. The message names the line.
    """
    path = user_path(path)
    check_regular(path)
    try:
        table = dict(_archive(path, keep) if path.suffix == ".npz" else _lines(path, keep))
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file; give a file of word vectors (.txt, .vec or .npz)") from None
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path} is damaged: {error}; {DOWNLOAD_AGAIN}") from None
    if not table:
        raise ModelFileError(f"{path} has no vector" + (" for any word of the text" if keep else "s") + "; give another file")
    matrix = np.stack(list(table.values()))
    if not np.isfinite(matrix).all():
        row = int((~np.isfinite(matrix)).any(axis=1).argmax())
        raise ModelFileError(
            f"{path}: the vector of {list(table)[row]!r} is not finite (NaN or Inf); remove the word, or {DOWNLOAD_AGAIN}"
        )
    return WordVectorTable(_name(path), list(table), matrix)


def _lines(path: Path, keep: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    seen: set[str] = set()
    width = 0
    with _opened(path) as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
            if len(raw) == LONGEST:
                raise ModelFileError(
                    f"{path}:{number}: the line has {LONGEST:,} bytes or more, expected a word and its numbers; {DOWNLOAD_AGAIN}"
                )
            line = raw.decode("utf-8", errors="replace").rstrip("\r\n ")
            if number == 1 and re.fullmatch("[0-9]{1,18} [0-9]{1,9}", line):
                width = int(line.split(" ")[1])
                continue
            if not line:
                continue
            width = width or len(line.split(" ")) - 1
            # Split from the right, because some words of GloVe 840B contain spaces.
            word, *numbers = line.rsplit(" ", width)
            if len(numbers) != width or not width:
                raise ModelFileError(
                    f"{path}:{number}: expected a word and {width or 'its'} numbers; correct the line, or {DOWNLOAD_AGAIN}"
                )
            if word in seen or (keep is not None and word not in keep):
                continue
            seen.add(word)
            try:
                yield word, np.array(numbers, np.float32)
            except ValueError:
                raise ModelFileError(
                    f"{path}:{number}: a value of {word[:30]!r} is not a number; correct the line, or {DOWNLOAD_AGAIN}"
                ) from None


def _archive(path: Path, keep: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            _check_sizes(path, archive.zip)
            words, vectors = archive["words"], archive["vectors"]
    except KeyError as error:
        raise ModelFileError(f"{path}: {str(error.args[0])[:80]}; expected the arrays words and vectors") from None
    except (OSError, ModelFileError):
        raise
    except Exception as error:  # NumPy parses headers as Python literals, which raises half a dozen kinds of exceptions
        raise ModelFileError(f"{path} is damaged: {first_line(error, 100)}; {DOWNLOAD_AGAIN}") from None
    if words.ndim != 1 or vectors.ndim != 2 or not vectors.shape[1] or len(words) != len(vectors) or words.dtype.kind not in "SU":
        raise ModelFileError(
            f"{path}: words {list(words.shape)} and vectors {list(vectors.shape)} do not match; save a row for each word"
        )
    seen: set[str] = set()
    for word, vector in zip(words, vectors, strict=True):  # one at a time, since a list of all words may take 50 times the memory
        text = word.decode("utf-8", errors="replace") if isinstance(word, bytes) else str(word)
        if text not in seen and (keep is None or text in keep):
            seen.add(text)
            yield text, vector.astype(np.float32)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with open_unpacked(path, COMPRESSED.get(path.suffix, open), ModelFileError) as file:
        yield file


def _check_sizes(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise ModelFileError for an archive that unpacks to too much, or whose arrays claim other sizes than they have."""
    if sum(entry.file_size for entry in archive.infolist()) > (limit := unpacked_limit(path.stat().st_size)):
        raise too_large(path, limit, ModelFileError)
    for entry in archive.infolist():
        with archive.open(entry) as file:
            try:
                check_npy(file, entry.file_size)
            except ValueError as error:
                raise ModelFileError(f"{path}: {quote(entry.filename)}: {error}; {DOWNLOAD_AGAIN}") from None


def _name(path: Path) -> str:
    for ending in (*COMPRESSED, *SUFFIXES):
        path = path.with_suffix("") if path.suffix == ending else path
    return path.name
