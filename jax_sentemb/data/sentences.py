"""Numbered sentences of text files, read from disk on demand.

Lines end at "\\n" only. One "\\r" before it, and a byte order mark at the start of a file, are removed. Blank lines are skipped.
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
from jax_sentemb.data.cache import cached, mapped, read_about
from jax_sentemb.data.open_files import OpenFiles
from jax_sentemb.data.text_file import BLOCK, changed_error, check_unchanged, follows_blank_line, line_numbers, scan
from jax_sentemb.errors import DataError
from jax_sentemb.provenance import LINE_NUMBERS, TEXT_INDEX

LONGEST = 1 << 28  # bytes of a line
AT_ONCE = 1 << 14  # bytes of a line that are read at once
Read = TypeVar("Read")


class Sentences:
    """The non-blank lines of UTF-8 text files by number, read on demand.

    The index takes 8 bytes a line: in memory, or for text of text_file.LARGE bytes and more in a file of `cache`.

    `report` counts lines, blank lines and bytes. `first_lines` has the number of lines before each file, and of all. `fingerprint`
    is the SHA-256 of the (decompressed, converted) text: of one file what `sha256sum` prints, of several the SHA-256 of their
    digests, one a line. It does not depend on paths and times.

    A pickled copy, for another process, must call `open` before it is read.
    """

    def __init__(self, paths: Iterable[Path], cache: Path, own: bool = False, per_record: Sequence[int] = ()) -> None:
        """Index the files.

        `own`: temporary files of this process, which may be deleted once they are open. `per_record`: for each file, how many lines
        are the texts of one record; by default one.
        """
        self._paths, self._own, self._cache = list(paths), own, cache
        self._per_record = np.array(per_record or [1] * len(self._paths), np.int64)
        self._identity = text_file.identity_of(self._paths)
        if sum(path.stat().st_size for path in self._paths) < text_file.LARGE:
            self._index, starts = None, bytearray()  # of int64; grows in place, so that memory holds the index only once
            scanned = [scan(path, starts.extend) for path in self._paths]
        else:
            # Reading 100 GB at every start, to identify the text by its content, would take minutes. The index is therefore found
            # by what the file system states about the files. No program can set a file's time of change (ctime), so an edit is
            # noticed unless it follows the previous change within one tick of the file system's clock (some milliseconds).
            self._index = cached(cache, TEXT_INDEX, {"files": self._identity}, self._write_index)
            scanned, starts = read_about(self._index)["files"], b""
        self._digests = [digest for _, _, digest in scanned]
        self.open(starts)
        self._first = [0, *itertools.accumulate(sentences for _, sentences, _ in scanned)]
        self.first_lines = [0, *itertools.accumulate(lines for lines, _, _ in scanned)]
        lines, digests = self.first_lines[-1], self._digests
        self.report = {"lines": lines, "blank": lines - len(self), "bytes": self._texts.size}
        several = "".join(f"{digest}\n" for digest in digests)
        self.fingerprint = digests[0] if len(digests) == 1 else hashlib.sha256(several.encode()).hexdigest()

    def _write_index(self, folder: Path) -> dict[str, Any]:
        """Writes starts.bin; returns lines, sentences and SHA-256 of each file."""
        with (folder / "starts.bin").open("wb") as file:
            scanned = [scan(path, file.write) for path in self._paths]
        check_unchanged(self._paths, self._identity)
        return {"files": scanned}

    @property
    def indexed(self) -> bool:
        """Whether the index is a file, so that another process can open a pickled copy."""
        return self._index is not None

    @property
    def opened(self) -> bool:
        """Whether the files are open; False in a copy that was unpickled."""
        return "_texts" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_texts", "_starts", "lines")}

    def open(self, starts: bytes | bytearray = b"") -> None:
        """Opens the files, as an unpickled copy needs; DataError if they changed after they were indexed."""
        self._texts = OpenFiles(self._paths, self._digests)
        self._starts = mapped(self._index / "starts.bin", np.int64) if self._index else np.frombuffer(starts, np.int64)
        check_unchanged(self._paths, self._identity)

    def settled(self, read: Callable[[], Read]) -> Read:
        """The result of `read`, which reads sentences, if the files did not change meanwhile; else DataError.

        The check costs a microsecond for each file that `read` reads. Files that were only touched or moved are hashed again, and
        `read` is called again.
        """
        while True:
            self._texts.watch()
            result = read()
            if self._texts.unchanged():
                return result

    def check_unchanged(self, content: bool = False) -> None:
        """DataError if the files changed after they were indexed. Called before results are stored under their fingerprint.

        `content` also compares the bytes. The times of the file system reveal a change that was undone as well.
        """
        if not self._own:
            check_unchanged(self._paths, self._identity, self._digests if content else [])

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> str:
        """Return sentence `number`, from 0. DataError if the file changed, or for a line of more than LONGEST bytes."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        file = bisect.bisect_right(self._first, number) - 1
        text, start = self._texts[file], int(self._starts[number])
        limit = int(self._starts[number + 1]) if number + 1 < self._first[file + 1] else self._texts.size_of(file)
        line, end, size = bytearray(), -1, AT_ONCE
        while end < 0 and start + len(line) < limit:
            if len(line) >= LONGEST:
                line_number = self.place(number)[1]
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

    def begin_document(self, first: int, last: int) -> Bool[np.ndarray, " sentences"]:
        """Bool [last - first]: whether each sentence is the first of a file or follows a blank line."""
        found = np.zeros(last - first, bool)
        files = range(bisect.bisect_right(self._first, first) - 1, bisect.bisect_left(self._first, last))
        for file in files:
            begin = self._first[file]  # of this file
            start, end = max(begin, first), min(self._first[file + 1], last)
            if start < end:
                seen = int(self._starts[start - 1]) if start > begin else 0  # the text from here on is searched for blank lines
                content = np.frombuffer(self._texts[file].read(seen, int(self._starts[end - 1]) + 1), np.uint8)
                found[start - first : end - first] = follows_blank_line(content, self._starts[start:end] - seen)
                if start == begin:
                    found[start - first] = True
        return found

    @functools.cached_property
    def lines(self) -> Int[np.ndarray, " sentences"]:
        """The line of each sentence, from 0, counted through all files; int64, ascending."""
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

        return mapped(cached(self._cache, LINE_NUMBERS, {"files": self._identity}, write) / "lines.bin", np.int64)

    def rows(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Return the records, from 0 and counted through all files, that have these sentences."""
        first_lines = np.array(self.first_lines)
        lines = self.lines[numbers]
        files = np.searchsorted(first_lines, lines, side="right") - 1
        first_records = np.append(0, np.cumsum(np.diff(first_lines) // self._per_record))
        return first_records[files] + (lines - first_lines[files]) // self._per_record[files]

    def _lines_of_files(self) -> Iterator[Int[np.ndarray, " sentences"]]:
        for file in range(len(self._paths)):
            starts = self._starts[self._first[file] : self._first[file + 1]]
            yield from (self.first_lines[file] + lines for lines in line_numbers(self._texts[file], starts))

    def place(self, number: int) -> tuple[int, int]:
        """Return the position of sentence `number`: the number of its file, from 0, and its line in this file, from 1."""
        line = int(self.lines[number])
        file = bisect.bisect_right(self._first, number) - 1
        return file, 1 + line - self.first_lines[file]
