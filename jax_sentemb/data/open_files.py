"""Opens text files as they are read, so that the number of open files does not grow with the corpus."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.data.text_file import TextFile, changed_error, state_of

MOST_OPEN = 64  # files that are open at once; up to so many stay open, and can be read after they are deleted


class OpenFiles:
    """Text files by number, opened when they are read. Threads may share it.

    A file that has to be opened again must be as it was at first: other times of change are accepted if the content is the same.

    A pickled copy opens the files again.
    """

    def __init__(self, paths: Sequence[Path], digests: Sequence[str]) -> None:
        """Open up to MOST_OPEN files. `digests` are their SHA-256."""
        self.paths, self._digests = paths, digests
        self._states: list[tuple[int, ...]] = [state_of(path.stat()) for path in paths]
        self._opened()

    def _opened(self) -> None:
        self._files: OrderedDict[int, TextFile] = OrderedDict()
        self._lock = threading.Lock()
        self._read: set[int] = set()  # files that were read since `watch`
        for number in range(len(self.paths) if len(self.paths) <= MOST_OPEN else 0):
            self[number]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_files", "_lock", "_read")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._opened()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> TextFile:
        """Return an open file. DataError if it is another file than before, or has another content."""
        with self._lock:
            self._read.add(number)
            file = self._files.get(number)
            if file is None:
                file = self._files[number] = self._open(number)
                if len(self._files) > MOST_OPEN:
                    self._files.popitem(last=False)  # closed when no thread reads it any more
            self._files.move_to_end(number)
            return file

    def _open(self, number: int) -> TextFile:
        try:
            file = TextFile(self.paths[number])
        except FileNotFoundError:
            raise changed_error([self.paths[number]]) from None
        if file.state() != self._states[number]:
            file.check(self._digests[number])
            self._states[number] = file.state()
        return file

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(size for size, *_ in self._states)

    def size_of(self, number: int) -> int:
        """Return the bytes of a file."""
        return self._states[number][0]

    def watch(self) -> None:
        """Begin to note which files are read, for `unchanged`."""
        with self._lock:
            self._read = set()

    def unchanged(self) -> bool:
        """Return whether the files that were read since `watch` have not changed. DataError for another content."""
        same = True
        for number in sorted(self._read):
            file = self[number]
            if file.state() != self._states[number]:
                file.check(self._digests[number])
                self._states[number] = file.state()
                same = False
        return same
