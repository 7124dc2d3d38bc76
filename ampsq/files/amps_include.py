"""A configuration of AMPS with the files that it includes, and the environment's values put in."""

from __future__ import annotations

import os
import re
from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.files.environment import substitute
from ampsq.files.file_faults import read_file
from ampsq.files.xml_elements import parse_xml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.files.file_faults import Faults
    from ampsq.files.xml_elements import Element

__all__ = ["INCLUDE", "with_included"]

INCLUDE: Final = "Include"
"""The element that stands for those of a file."""

#: What a file has before its elements, which can stand only at its beginning.
_HEAD: Final = re.compile(r"\A\s*<\?xml[^>]*\?>")


def with_included(root: Element, path: Path | None, faults: Faults) -> Element:
    """Put the elements of each ``Include`` in its place, and the environment's values into all texts.

    An element for which that fails stays as it is, with its fault: whether that matters depends on what it is.

    Args:
        root: of the file; it is changed.
        path: of the file. None: it is none, and what it includes is looked for from the current folder.
        faults: where the order of the files is noted.
    """
    around = () if path is None else (path.resolve(),)
    folder = Path() if path is None else path.parent
    of_amps = {"AMPS_CONFIG_DIRECTORY": str(folder.resolve()), "AMPS_CONFIG_PATH": str(folder.resolve())}
    _Files(faults, ChainMap(of_amps, dict(os.environ))).open(root, folder, around)
    return root


class _Files:
    """Reads what is included."""

    def __init__(self, faults: Faults, variables: Mapping[str, str]) -> None:
        self._faults = faults
        self._variables = variables

    def open(self, element: Element, folder: Path, around: tuple[Path, ...]) -> None:
        """Put variables and included files into an element and those within it.

        Args:
            element: where.
            folder: of its file.
            around: the files that it is in.
        """
        self._faults.follow(element.source)
        children: list[Element] = []
        for child in element.children:
            if child.tag == INCLUDE:
                children += self._included(child, element, folder, around)
            else:
                self.open(child, folder, around)
                children.append(child)
        element.children = children
        try:
            element.text = substitute(element.text, self._variables)
        except DefinitionError as reason:
            element.fault = str(reason)

    def _included(self, include: Element, parent: Element, folder: Path, around: tuple[Path, ...]) -> list[Element]:
        try:
            path = folder / substitute(include.text.strip(), self._variables)
            # A file may have several elements, or one like that which it is included in.
            root = parse_xml(f"<{parent.tag}>{_text(path, around)}</{parent.tag}>", str(path))
        except DefinitionError as reason:
            include.fault = str(reason)
            return [include]
        alone = root.children[0] if len(root.children) == 1 else root
        found = alone if alone.tag == parent.tag else root
        self.open(found, path.parent, (*around, path.resolve()))
        return found.children


def _text(path: Path, around: tuple[Path, ...]) -> str:
    if path.resolve() in around:
        raise DefinitionError(f"{path} is a file that this one is included by; allowed: others")
    try:
        return _HEAD.sub("", read_file(path).lstrip("\ufeff"))
    except FileNotFoundError:
        raise DefinitionError(f"{path}: no such file; allowed: a path from the file's own folder") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise DefinitionError(f"{path} cannot be read as a UTF-8 text file: {reason}") from None
