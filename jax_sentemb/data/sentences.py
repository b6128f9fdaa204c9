"""Read the sentences of text files by number, from disk on demand.

Only a line feed ends a line. One carriage return before it, and a byte order mark at the start of a file, are removed. Blank lines
are skipped.
"""

import bisect
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from jax_sentemb.data import text_file
from jax_sentemb.data.cache import cached, map_array, read_about
from jax_sentemb.data.open_files import OpenFiles
from jax_sentemb.data.text_file import BLOCK, changed_error, check_unchanged, follows_blank_line, line_numbers, scan
from jax_sentemb.errors import DataError
from jax_sentemb.provenance import LINE_NUMBERS, TEXT_INDEX

LONGEST = 1 << 28  # bytes of a line
FIRST_READ = 1 << 14  # bytes of a line that are read first; most lines are shorter
Read = TypeVar("Read")


class Sentences:
    """The non-blank lines of UTF-8 text files by number, read on demand.

    The index takes 8 bytes for each line. It is in memory, or in a file of `cache` for text of text_file.LARGE bytes or more.

    A pickled copy, for another process, must call `open` before it is read.

    Attributes:
        report: The numbers of lines, blank lines and bytes.
        first_lines: The number of lines before each file, then the number of all lines.
        fingerprint: The SHA-256 of the (decompressed, converted) text. For one file it is the output of `sha256sum`, for several
            the SHA-256 of their digests, one on each line. It does not depend on paths and times.
    """

    def __init__(self, paths: Iterable[Path], cache: Path, temporary: bool = False, per_record: Sequence[int] = ()) -> None:
        """Index the files.

        Args:
            paths: The files.
            cache: The folder of the index of large files.
            temporary: Whether the files belong to this process and may be deleted once they are open.
            per_record: For each file, the number of lines that are the texts of one record; by default 1.
        """
        self._paths, self._temporary, self._cache = list(paths), temporary, cache
        self._per_record = np.array(per_record or [1] * len(self._paths), np.int64)
        self._identity = text_file.identity_of(self._paths)
        if sum(path.stat().st_size for path in self._paths) < text_file.LARGE:
            self._index, starts = None, bytearray()  # int64 numbers; it grows in place, so memory holds the index only once
            scanned = [scan(path, starts.extend) for path in self._paths]
        else:
            # Reading 100 GB at every start, to identify the text by its content, would take minutes. So the index is found by the
            # metadata of the files. No program can set a file's time of change (ctime), so an edit is noticed unless it follows the
            # previous change within one tick of the file system's clock (some milliseconds).
            self._index = cached(cache, TEXT_INDEX, {"files": self._identity}, self._write_index)
            scanned, starts = read_about(self._index)["files"], b""
        self._digests = [digest for _, _, digest in scanned]
        self.open(starts)
        self._first = [0, *itertools.accumulate(sentences for _, sentences, _ in scanned)]
        self.first_lines = [0, *itertools.accumulate(lines for lines, _, _ in scanned)]
        lines, digests = self.first_lines[-1], self._digests
        self.report = {"lines": lines, "blank": lines - len(self), "bytes": self._texts.size}
        joined = "".join(f"{digest}\n" for digest in digests)
        self.fingerprint = digests[0] if len(digests) == 1 else hashlib.sha256(joined.encode()).hexdigest()

    def _write_index(self, folder: Path) -> dict[str, Any]:
        """Write starts.bin and return the lines, sentences and SHA-256 of each file."""
        with (folder / "starts.bin").open("wb") as file:
            scanned = [scan(path, file.write) for path in self._paths]
        check_unchanged(self._paths, self._identity)
        return {"files": scanned}

    @property
    def is_indexed(self) -> bool:
        """Return whether the index is a file, so that another process can open a pickled copy."""
        return self._index is not None

    @property
    def is_open(self) -> bool:
        """Return whether the files are open; False in a copy that was unpickled."""
        return "_texts" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_texts", "_starts", "lines")}

    def open(self, starts: bytes | bytearray = b"") -> None:
        """Open the files, as an unpickled copy needs; raise DataError if they changed after they were indexed."""
        self._texts = OpenFiles(self._paths, self._digests)
        self._starts = map_array(self._index / "starts.bin", np.int64) if self._index else np.frombuffer(starts, np.int64)
        check_unchanged(self._paths, self._identity)

    def read_unchanged(self, read: Callable[[], Read]) -> Read:
        """Return the result of `read`, which reads sentences, after checking that the files did not change meanwhile.

        The check takes a microsecond for each file that `read` reads. Files that were only touched or moved are hashed again, and
        `read` is called again.

        Raises:
            DataError: The content of a file changed.
        """
        while True:
            self._texts.watch()
            result = read()
            if self._texts.are_unchanged():
                return result

    def check_unchanged(self, content: bool = False) -> None:
        """Raise DataError if the files changed after they were indexed, before results are stored under their fingerprint.

        With `content`, the bytes are compared as well. The times of the file system reveal even a change that was undone.
        """
        if not self._temporary:
            check_unchanged(self._paths, self._identity, self._digests if content else [])

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> str:
        """Return sentence `number`, counted from 0; raise DataError if the file changed or the line is too long."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        file = bisect.bisect_right(self._first, number) - 1
        text, start = self._texts[file], int(self._starts[number])
        limit = int(self._starts[number + 1]) if number + 1 < self._first[file + 1] else self._texts.size_of(file)
        line, end, size = bytearray(), -1, FIRST_READ
        while end < 0 and start + len(line) < limit:
            if len(line) >= LONGEST:
                line_number = self.file_and_line(number)[1]
                raise DataError(f"{self._paths[file]} line {line_number} has more than {LONGEST:,} bytes; divide it into lines")
            block = text.read(start + len(line), min(start + len(line) + size, limit))
            end = block.find(b"\n")
            line += block if end < 0 else block[:end]
            size = BLOCK
        try:
            return line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:  # it was UTF-8 when it was indexed
            raise changed_error([self._paths[file]]) from None

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def starts_document(self, first: int, last: int) -> Bool[np.ndarray, " sentences"]:
        """Return whether each of the sentences first .. last - 1 is the first of a file or follows a blank line."""
        starts_document = np.zeros(last - first, bool)
        files = range(bisect.bisect_right(self._first, first) - 1, bisect.bisect_left(self._first, last))
        for file in files:
            begin = self._first[file]  # of this file
            start, end = max(begin, first), min(self._first[file + 1], last)
            if start < end:
                offset = int(self._starts[start - 1]) if start > begin else 0  # the search for blank lines starts here
                content = np.frombuffer(self._texts[file].read(offset, int(self._starts[end - 1]) + 1), np.uint8)
                starts_document[start - first : end - first] = follows_blank_line(content, self._starts[start:end] - offset)
                if start == begin:
                    starts_document[start - first] = True
        return starts_document

    @functools.cached_property
    def lines(self) -> Int[np.ndarray, " sentences"]:
        """Return the line of each sentence, counted from 0 through all files; int64, ascending."""
        if not self.report["blank"]:
            return np.arange(len(self))
        if self._index is None:
            return np.concatenate([*self._lines_of_files(), np.zeros(0, np.int64)])

        def write(folder: Path) -> dict[str, Any]:
            with (folder / "lines.bin").open("wb") as file:
                for lines in self._lines_of_files():
                    file.write(lines.data)
            self.check_unchanged()
            return {}

        return map_array(cached(self._cache, LINE_NUMBERS, {"files": self._identity}, write) / "lines.bin", np.int64)

    def rows(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Return the numbers of the records of these sentences, counted from 0 through all files."""
        first_lines = np.array(self.first_lines)
        lines = self.lines[numbers]
        files = np.searchsorted(first_lines, lines, side="right") - 1
        first_records = np.append(0, np.cumsum(np.diff(first_lines) // self._per_record))
        return first_records[files] + (lines - first_lines[files]) // self._per_record[files]

    def _lines_of_files(self) -> Iterator[Int[np.ndarray, " sentences"]]:
        for file in range(len(self._paths)):
            starts = self._starts[self._first[file] : self._first[file + 1]]
            yield from (self.first_lines[file] + lines for lines in line_numbers(self._texts[file], starts))

    def file_and_line(self, number: int) -> tuple[int, int]:
        """Return the number of the file of sentence `number`, from 0, and its line in this file, from 1."""
        line = int(self.lines[number])
        file = bisect.bisect_right(self._first, number) - 1
        return file, 1 + line - self.first_lines[file]
