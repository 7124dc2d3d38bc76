"""A file for messages that a slow consumer has not taken: written at one end, read at the other, nobody else's."""

from __future__ import annotations

import marshal
import tempfile
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.topics.merge import Entry

__all__ = ["Spool"]

#: Bytes after which another file is begun: one that was read to its end gives its space back.
_FILE: Final = 64 * 2**20


class _Page(NamedTuple):
    """The place of a page, and the time when its first message was recorded, ms."""

    file: IO[bytes]
    offset: int
    size: int
    oldest: int


class Spool:
    """Entries in order, on disk; one thread writes, another reads.

    The files have no names: the system removes them at the latest when the process ends, however it does.

    Args:
        folder: where they are; None: the temporary directory.

    Raises:
        OSError: no file can be made there.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._pages: deque[_Page] = deque()
        self._file, self._end = self._new(), 0
        self.size = 0

    def _new(self) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="ampsq-", dir=self._folder)

    @property
    def is_empty(self) -> bool:
        """Return whether everything was read."""
        return not self._pages

    @property
    def oldest(self) -> int:
        """Time when the first unread message was recorded, ms, about: that of its page; 0: there is none."""
        try:
            return self._pages[0].oldest
        except IndexError:
            return 0

    def write(self, entries: Sequence[Entry]) -> None:
        """Add entries, at least one.

        Raises:
            OSError: they could not be written; none of them is there then.
        """
        data = marshal.dumps(list(entries))
        with self._lock:
            if self._end >= _FILE:
                self._file, self._end = self._new(), 0
            self._file.seek(self._end)
            self._file.write(data)
            self._file.flush()
            oldest = int(entries[0][1].partition(b"-")[0])
            self._pages.append(_Page(self._file, self._end, len(data), oldest))
            self._end += len(data)
            self.size += len(data)

    def read(self) -> list[Entry]:
        """The next entries, as many as were written together; none: everything was read."""
        with self._lock:
            if not self._pages:
                return []
            page = self._pages.popleft()
            page.file.seek(page.offset)
            # Of a file that nobody else can open.
            entries: list[Entry] = marshal.loads(page.file.read(page.size))  # noqa: S302
            self.size -= page.size
            if page.file is not self._file and (not self._pages or self._pages[0].file is not page.file):
                page.file.close()
            elif not self._pages:
                self._file.truncate(0)
                self._end = 0
            return entries

    def close(self) -> None:
        """Remove what is there."""
        with self._lock:
            for file in {id(page.file): page.file for page in self._pages}.values():
                file.close()
            self._file.close()
            self._pages.clear()
            self.size = 0
