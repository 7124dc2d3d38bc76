"""XML files as trees of elements, each with its place; what could expand is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from xml.parsers import expat  # what could expand is refused below

from ampsq.base.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Element", "is_xml", "parse_xml"]

#: Namespaces of Artemis's own elements; without one they are taken for its own, too.
_NAMESPACES: Final = ("", "urn:activemq", "urn:activemq:core")

#: Elements within each other.
_DEEPEST: Final = 100


@dataclass
class Element:
    """An element of a file.

    Attributes:
        tag: its name without the namespace, or with it where that is not Artemis's.
        line: where it begins.
        source: the file, as error texts call it.
        attributes: by name.
        children: the elements in it.
        text: the characters in it, without those of its children.
        is_read: whether whoever reads the file has acted on it.
        fault: why its text is none, where its variables or its file are missing; told where it is acted on.
    """

    tag: str
    line: int
    source: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""
    is_read: bool = False
    fault: str = ""

    def walk(self) -> Iterator[Element]:
        """All elements within it, whatever their depth, in the order of the file."""
        pending = list(reversed(self.children))
        while pending:
            element = pending.pop()
            yield element
            pending += reversed(element.children)


def is_xml(text: str) -> bool:
    """Say whether a file is XML rather than YAML."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


class _Builder:
    """Makes elements of what the parser reports."""

    def __init__(self, parser: expat.XMLParserType, source: str) -> None:
        self._parser, self._source = parser, source
        self._open = [Element("", 0)]
        parser.StartElementHandler = self._start
        parser.EndElementHandler = lambda _: self._open.pop()
        parser.CharacterDataHandler = self._data
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = self._refuse

    @property
    def root(self) -> Element:
        return self._open[0].children[0]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > _DEEPEST:
            raise DefinitionError(
                f"{self._source}:{self._parser.CurrentLineNumber}: more than {_DEEPEST} elements within each other; no "
                "configuration has so many"
            )
        namespace, _, tag = name.rpartition(" ")
        element = Element(
            tag if namespace in _NAMESPACES else f"{{{namespace}}}{tag}", self._parser.CurrentLineNumber, self._source
        )
        element.attributes = {key.rpartition(" ")[2]: value for key, value in attributes.items() if " " not in key}
        self._open[-1].children.append(element)
        self._open.append(element)

    def _data(self, data: str) -> None:
        self._open[-1].text += data

    def _refuse(self, *_: object) -> None:
        """Entities may grow without end, or name other files."""
        line = self._parser.CurrentLineNumber
        raise DefinitionError(f"{self._source}:{line}: a document type is not read; allowed: a file without <!DOCTYPE>")


def parse_xml(text: str, source: str) -> Element:
    """Read the text of a file; gives its root.

    Raises:
        DefinitionError: it is not XML, or has a document type.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    builder = _Builder(parser, source)
    try:
        parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except expat.ExpatError as reason:
        raise DefinitionError(f"{source}:{reason.lineno}: not XML: {expat.ErrorString(reason.code)}") from None
    return builder.root
