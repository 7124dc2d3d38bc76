"""A YAML file and the files that it includes as trees of nodes, with the environment's values put in.

A node knows its place: the mark at its beginning has the file's name and the line.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.files.environment import ENVIRONMENT_ALLOWED, substitute
from ampsq.files.file_faults import Faults, FilePosition, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml

__all__ = [
    "INCLUDE",
    "File",
    "Node",
    "comment_hint",
    "is_filled",
    "key_of",
    "merge",
    "place_of",
    "read_files",
    "value_of",
]

#: A node of PyYAML; its type hints leave out `id`.
Node = Any
#: The key at the top of a file that names others.
INCLUDE: Final = "include"

_INCLUDE_ALLOWED: Final = "a path, a pattern as in conf.d/*.yaml, or a list of such, from the file's own folder"
_NULL: Final = "tag:yaml.org,2002:null"
#: Of a value whose variable is missing.
_UNFILLED: Final = "tag:ampsq,unfilled"
#: An element whose value begins with #.
_COMMENT: Final = re.compile(r"(\w+)\s*:\s+(#[A-Za-z0-9_/*#.-]*)")
#: Lines before a fault in which such an element is looked for.
_LOOKED_BACK: Final = 3


class File(NamedTuple):
    """A file that was read: its root, None where it has nothing, and what made it, which can merge mappings."""

    root: Node
    loader: yaml.SafeLoader
    text: str
    source: str


def read_files(text: str, path: Path | None, faults: Faults) -> list[File]:
    """Read a file and what it includes, each once: what is included before what includes it.

    Args:
        text: of the file.
        path: of the file; None: it is none, and what it includes is looked for from the current folder.
        faults: where it is noted what is wrong, but for what is no YAML.

    Raises:
        DefinitionError: one of them is not YAML, or PyYAML is missing.
    """
    if path is None:
        return list(_Files(faults).read(text, "<text>", Path(), ()))
    return list(_Files(faults).read(text, str(path), path.parent, (path.resolve(),)))


class _Files:
    """Reads files, and remembers which."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._read: set[Path] = set()

    def read(self, text: str, source: str, folder: Path, around: tuple[Path, ...]) -> Iterator[File]:
        """A file with what it includes; `around` are those that it is within."""
        self._faults.follow(source)
        file = _parsed(text, source)
        if file.root is not None:
            self._fill(file, set())
            for place, pattern in self._included(file.root):
                yield from self._include(place, pattern, folder, around)
        yield file

    def _included(self, root: Node) -> Iterator[tuple[FilePosition, str]]:
        for key, value in root.value if root.id == "mapping" else ():
            if key_of(key) != INCLUDE:
                continue
            given = value_of(value)
            for item in value.value if isinstance(given, list) else [value]:
                path = value_of(item)
                if isinstance(path, str) and path:
                    yield place_of(item), path
                elif path is not None:
                    self._faults.add(place_of(item), f"{INCLUDE}: {shown(path)}: allowed: {_INCLUDE_ALLOWED}")

    def _include(self, place: FilePosition, pattern: str, folder: Path, around: tuple[Path, ...]) -> Iterator[File]:
        paths = [Path(pattern)]
        if glob.has_magic(pattern):
            # That of Path knows no absolute patterns.
            found = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
            paths = [Path(each) for each in sorted(found)]
            if not paths:
                self._faults.add(place, f"{INCLUDE}: {shown(pattern)} matches no file; allowed: {_INCLUDE_ALLOWED}")
        for path in (folder / each for each in paths):
            known = path.resolve()
            if known in around:
                text = f"{INCLUDE}: {path} is a file that this one is included by; allowed: others"
                self._faults.add(place, text)
            elif known not in self._read:
                self._read.add(known)
                yield from self._one(place, path, (*around, known))

    def _one(self, place: FilePosition, path: Path, around: tuple[Path, ...]) -> Iterator[File]:
        try:
            text = read_file(path)
        except FileNotFoundError:
            self._faults.add(place, f"{INCLUDE}: {path}: no such file; allowed: {_INCLUDE_ALLOWED}")
        except (OSError, UnicodeDecodeError) as reason:
            self._faults.add(place, f"{INCLUDE}: {path} cannot be read as a UTF-8 text file: {reason}")
        else:
            yield from self.read(text, str(path), path.parent, around)

    def _fill(self, file: File, seen: set[int], node: Node = None) -> None:
        """Put the environment's values into all values of a file."""
        node = file.root if node is None else node
        if id(node) in seen:
            return
        seen.add(id(node))
        if node.id != "scalar":
            for part in node.value:
                self._fill(file, seen, part[1] if node.id == "mapping" else part)
        elif "${" in node.value:
            try:
                node.value = substitute(node.value, os.environ)
            except DefinitionError as reason:
                self._faults.add(_line_with(file.text, node, str(reason)), str(reason))
                # So that it is told once.
                node.tag = _UNFILLED
            else:
                # What is nothing but an empty variable is as good as nothing behind a colon.
                node.tag = _NULL if not node.value and node.style is None else node.tag


def _line_with(text: str, node: Node, reason: str) -> FilePosition:
    """Return the place of a variable in a value of several lines."""
    first, last = node.start_mark.line, node.end_mark.line
    wanted = reason.partition(":")[0].rstrip("}")
    lines = text.split("\n")[first : last + 1]
    found = next((at for at, line in enumerate(lines) if wanted in line), 0)
    return FilePosition(node.start_mark.name, first + found + 1)


def _parsed(text: str, source: str) -> File:
    try:
        import yaml  # noqa: PLC0415 - only those who read files need it
    except ImportError:
        raise DefinitionError("reading YAML needs PyYAML: pip install 'ampsq[cli]'") from None
    try:
        loader = yaml.SafeLoader(text)
        loader.name = source
        return File(loader.get_single_node(), loader, text, source)
    except (yaml.YAMLError, RecursionError) as reason:
        raise _not_yaml(reason, text, source) from None


def _not_yaml(reason: Any, text: str, source: str) -> DefinitionError:
    """Make an error of what PyYAML says of a file, with its place and what to do."""
    if not hasattr(reason, "problem_mark"):
        return DefinitionError(f"{source}: not YAML: {' '.join(str(reason).split())}")
    mark = reason.problem_mark or reason.context_mark
    problem = " ".join(part for part in (reason.context, reason.problem) if part)
    line = mark.line if mark else 0
    # Within brackets, what a comment has swallowed is missed on a later line.
    hints = (comment_hint(text, at) for at in range(line, max(line - _LOOKED_BACK, -1), -1))
    hint = next(filter(None, hints), "") or _quoting(text, line)
    return DefinitionError(f"{source}:{line + 1}: not YAML: {problem}{hint}")


def comment_hint(text: str, line: int) -> str:
    """Advise on a line, counted from 0, in which a value is a comment for YAML."""
    found = _COMMENT.search("".join(text.split("\n")[line : line + 1]))
    if found is None:
        return ""
    return f"; for YAML a comment begins at the #: put the value in quotes, as in {found[1]}: '{found[2]}'"


def _quoting(text: str, line: int) -> str:
    """Advise on a line with an expression, or a variable in brackets, in which YAML reads something else."""
    found = "".join(text.split("\n")[line : line + 1])
    if "${" in found:
        return f'; within brackets put a variable in quotes, as in {{name: "${{NAME}}"}} ({ENVIRONMENT_ALLOWED})'
    if "/" not in found or not any(mark in found for mark in "'\":[{%@"):
        return ""
    return "; an expression that has such characters: put the whole expression in double quotes, as in \"/a = 'x: y'\""


def merge(file: File, node: Node) -> None:
    """Put into a mapping what its ``<<`` names.

    Raises:
        DefinitionError: that is no mapping.
    """
    import yaml  # noqa: PLC0415 - see `_parsed`

    try:
        file.loader.flatten_mapping(node)
    except (yaml.YAMLError, RecursionError) as reason:
        raise _not_yaml(reason, file.text, file.source) from None


def place_of(node: Node) -> FilePosition:
    """Return the place where a node begins."""
    return FilePosition(node.start_mark.name, int(node.start_mark.line) + 1)


def key_of(node: Node) -> str:
    """A key as a text."""
    return str(node.value) if node.id == "scalar" else str(value_of(node))


def value_of(node: Node, depth: int = 2) -> Any:
    """Return the value in the file: a text, None, or a list of these; of an action also mappings of these.

    Other mappings and deep lists are no element's value; a refusal shows them, cut, since they may be endless.
    """
    if node.id == "scalar":
        return None if node.tag in {_NULL, _UNFILLED} else node.value
    if depth == 0:
        return "..."
    if node.id == "sequence":
        return [value_of(item, depth - 1) for item in node.value]
    return {key_of(key): value_of(value, depth - 1) for key, value in node.value}


def is_filled(node: Node) -> bool:
    """Return whether no variable is missing in a value or in a part of it; one that is was told already."""
    nodes, seen = [node], set()
    while nodes:
        part = nodes.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if part.id == "scalar":
            if part.tag == _UNFILLED:
                return False
        elif part.id == "mapping":
            nodes += [value for _, value in part.value]
        else:
            nodes += part.value
    return True
