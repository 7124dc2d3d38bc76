"""Faults of a file and the files that it includes, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Faults", "FilePosition", "read_file"]

#: Characters that a file may have; a device as /dev/zero never ends.
_LARGEST: Final = 64 * 2**20


def read_file(path: Path) -> str:
    """Read a file of definitions.

    Raises:
        OSError: it cannot be read, or is larger than any such file. UnicodeDecodeError: it is no text.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise OSError("it is larger than 64MB, as no file of definitions is")
    return text


class FilePosition(NamedTuple):
    """A place in a file.

    Attributes:
        source: what error texts call the file.
        line: from 1.
    """

    source: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


class Faults:
    """The faults of a file and of what it includes."""

    def __init__(self) -> None:
        self._found: list[tuple[FilePosition, str]] = []
        self._sources: dict[str, int] = {}

    def add(self, place: FilePosition, text: str) -> None:
        """Note one."""
        self._found.append((place, text))

    def follow(self, source: str) -> None:
        """Say which file comes next in what is told."""
        self._sources.setdefault(source, len(self._sources))

    def refuse(self) -> None:
        """Refuse the whole, if anything is wrong.

        Raises:
            DefinitionError: a line for each fault, in the order of the files and their lines.
        """
        if self._found:
            order = self._sources
            in_order = sorted(self._found, key=lambda each: (order.get(each[0].source, 0), each[0].line, each[1]))
            raise DefinitionError("\n".join(f"{place}: {text}" for place, text in in_order))
