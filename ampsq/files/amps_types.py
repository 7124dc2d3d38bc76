"""Message types of a configuration of AMPS: ampsq's own, AMPS's others, and those that the file itself defines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from ampsq.base.message_types import MessageTypeName

if TYPE_CHECKING:
    from ampsq.files.xml_elements import Element

__all__ = ["OPAQUE", "FileTypes", "KnownType"]

OPAQUE: Final = "binary"
"""The message type whose bodies nothing reads."""

_OURS: Final[tuple[str, ...]] = get_args(MessageTypeName)
#: What AMPS loads besides, or has modules for.
_OTHERS: Final = ("xml", "bson", "bflat", "protobuf", "struct")
_COMPOSITE: Final = "composite"


class KnownType(NamedTuple):
    """The meaning of a file's message type here.

    Attributes:
        name: one of ampsq's.
        separator: what parts its fields, as AMPS writes it; None: the default.
        is_opaque: whether AMPS can read such bodies, and ampsq cannot.
    """

    name: str
    separator: str | None = None
    is_opaque: bool = False


class FileTypes:
    """The message types that a file may name.

    Args:
        root: of the file; what is acted on of its ``MessageTypes`` is marked.
    """

    def __init__(self, root: Element) -> None:
        self._defined: dict[str, KnownType] = {}
        for section in root.children:
            if section.tag == "MessageTypes":
                section.is_read = True
                for element in section.children:
                    if element.tag == "MessageType":
                        self._define(element)

    def _define(self, element: Element) -> None:
        element.is_read = True
        given = {child.tag: child for child in element.children if child.tag in ("Name", "Module", "FieldSeparator")}
        name = given["Name"].text.strip() if "Name" in given else ""
        module = given["Module"].text.strip() if "Module" in given else name
        separator = given.get("FieldSeparator")
        for child in given.values():
            child.is_read = True
        if module in ("nvfix", "fix"):
            self._defined[name] = KnownType(module, separator.text.strip() if separator is not None else None)
        else:
            if separator is not None:
                separator.is_read = False
            self._defined[name] = KnownType(module) if module in _OURS else KnownType(OPAQUE, is_opaque=True)

    def find(self, name: str) -> KnownType | None:
        """Return the type that a name stands for; None: the name is unknown."""
        if name in self._defined:
            return self._defined[name]
        if name in _OURS:
            return KnownType(name)
        if name in _OTHERS or name.startswith(_COMPOSITE):
            return KnownType(OPAQUE, is_opaque=True)
        return None
