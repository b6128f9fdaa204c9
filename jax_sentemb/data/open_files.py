"""Open text files as they are read, so that the number of open files does not grow with the corpus."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.data.text_file import TextFile, changed_error, state_of

MAX_OPEN = 64  # files that are open at once; a corpus of at most so many files can be read even after they are deleted


class OpenFiles:
    """Text files by number, which are opened when they are read. Threads may share an instance.

    A file that has to be opened again must have its original content. Its time of change may differ. A pickled copy opens the files
    again.
    """

    def __init__(self, paths: Sequence[Path], digests: Sequence[str]) -> None:
        """Open the files if there are at most MAX_OPEN. `digests` are their SHA-256."""
        self.paths, self._digests = paths, digests
        self._states: list[tuple[int, ...]] = [state_of(path.stat()) for path in paths]
        self._open_all()

    def _open_all(self) -> None:
        self._files: OrderedDict[int, TextFile] = OrderedDict()
        self._lock = threading.Lock()
        self._read: set[int] = set()  # files that were read since `watch`
        for number in range(len(self.paths) if len(self.paths) <= MAX_OPEN else 0):
            self[number]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_files", "_lock", "_read")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open_all()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> TextFile:
        """Return an open file; raise DataError if its content has changed."""
        with self._lock:
            self._read.add(number)
            file = self._files.get(number)
            if file is None:
                file = self._files[number] = self._open(number)
                if len(self._files) > MAX_OPEN:
                    self._files.popitem(last=False)  # it is closed when no thread reads it any more
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
        """Return the number of bytes of all files."""
        return sum(size for size, *_ in self._states)

    def size_of(self, number: int) -> int:
        """Return the number of bytes of a file."""
        return self._states[number][0]

    def watch(self) -> None:
        """Start to record which files are read, for `are_unchanged`."""
        with self._lock:
            self._read = set()

    def are_unchanged(self) -> bool:
        """Return whether the files that were read since `watch` are unchanged; raise DataError if the content of one changed."""
        unchanged = True
        for number in sorted(self._read):
            file = self[number]
            if file.state() != self._states[number]:
                file.check(self._digests[number])
                self._states[number] = file.state()
                unchanged = False
        return unchanged
