"""Results of reading a configuration of AMPS: its definitions, its faults, and the elements without effect here."""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.values import NAME_ALLOWED, is_name
from ampsq.definitions.definition import Loaded
from ampsq.definitions.queue import Queue
from ampsq.files.amps_elements import names_in, why_not
from ampsq.files.amps_include import INCLUDE
from ampsq.files.amps_names import safe_name
from ampsq.files.file_faults import FilePosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.definitions.definition import Definition, Lines
    from ampsq.files.file_faults import Faults
    from ampsq.files.xml_elements import Element

__all__ = ["ROOT", "Collector"]

_log = logging.getLogger("ampsq")
ROOT: Final = "AMPSConfig"
"""The element around a whole configuration."""

#: What there is one more of for each time that it is given.
_MORE: Final = ("key", "pass_through", "addresses", "underlying_topic")
#: Elements that hold others of one kind, which are the values.
_HOLDERS: Final = {"Projection": "Field", "Grouping": "Field"}
#: Elements that are names here and free texts in AMPS.
_NAMES: Final = ("group", "initial_owner", "group_local_queue_domain")


class Collector:
    """Makes definitions of elements, marks what it acted on, and tells the rest.

    Args:
        faults: where it is noted what is wrong.

    Attributes:
        found: the definitions so far.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.found: list[Definition] = []
        self._lines: dict[tuple[str, str], Lines] = {}
        self._sources: dict[tuple[str, str], str] = {}
        self._warnings: list[tuple[FilePosition, str]] = []

    def finish(self, root: Element, kinds: Sequence[type[Definition]]) -> Loaded:
        """Tell everything that is not acted on, and give what was found.

        Args:
            root: of the file.
            kinds: in which order definitions come.

        Raises:
            DefinitionError: something is wrong: a line for each fault.
        """
        self._tell_unfilled(root)
        self._faults.refuse()
        warnings = [*self._unread(root, root.tag, set()), *self._warnings]
        for place, text in sorted(warnings, key=lambda each: (each[0].source != root.source, *each)):
            _log.warning("%s: %s", place, text)
        in_order = sorted(self.found, key=lambda definition: kinds.index(type(definition)))
        loaded = Loaded(in_order, root.source, self._lines)
        loaded.sources = self._sources
        return loaded

    def elements(
        self, element: Element, names: Mapping[str, str], kind: type[Definition] | None = None
    ) -> dict[str, Any]:
        """Read what an element says, by the names of a definition's elements.

        Args:
            element: is marked, with what is read of it.
            names: of those within it -> of the definition's.
            kind: of the definition, where it has not all of them.
        """
        element.is_read = True
        found: dict[str, Any] = {}
        for child in element.children:
            name = names.get(child.tag)
            if name is None or (kind is not None and name not in kind.model_fields):
                continue
            child.is_read = True
            if child.tag in _HOLDERS:
                found.setdefault(name, []).extend(self._held(child))
            elif name in _MORE and name in found:
                found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), child.text.strip()]
            elif name in found:
                self.refuse(child, f"{element.tag}/{child.tag}: given twice; allowed: once")
            else:
                found[name] = child.text.strip()
        for name in _NAMES:
            self.make_name(found, name, element)
        return found

    @staticmethod
    def _held(element: Element) -> Iterator[str]:
        for child in element.children:
            if child.tag == _HOLDERS[element.tag]:
                child.is_read = True
                yield " ".join(child.text.split())

    def make_name(self, elements: dict[str, Any], name: str, element: Element) -> None:
        """Make a name of a free text, and tell it."""
        text = elements.get(name)
        if not isinstance(text, str) or is_name(text) or not safe_name(text):
            return
        child = next(each for each in element.children if names_in(element.tag).get(each.tag) == name)
        if not child.fault:
            elements[name] = safe_name(text)
            told = f"{element.tag}/{child.tag}: {text!r} is {elements[name]!r} here; a name has {NAME_ALLOWED}"
            self.warn(child, told)

    def warn(self, element: Element, text: str) -> None:
        """Note what is told at an element's place."""
        self._warnings.append((FilePosition(element.source, element.line), text))

    def refuse(self, element: Element, text: str) -> None:
        """Note what is wrong at an element's place."""
        self._faults.add(FilePosition(element.source, element.line), text)

    def add(self, kind: type[Definition], elements: dict[str, Any], element: Element) -> None:
        """Make a definition of what an element says, or note what is wrong with that."""
        if self._is_unfilled(element):
            return
        known = names_in(element.tag)
        lines = {known[child.tag]: child.line for child in reversed(element.children) if child.tag in known}
        faults = kind.faults(elements)
        for fault in faults:
            line = lines.get(fault.element.partition("[")[0], element.line)
            self._faults.add(
                FilePosition(element.source, line), f"{kind.title(elements)}: {fault.element}: {fault.text}"
            )
        if faults:
            return
        made = kind(**elements)
        # Queues of all kinds have one space of names.
        same = [each for each in self.found if each.name == made.name and _is_alike(kind, each)]
        if same:
            self.refuse(element, f"{kind.title(elements)}: defined twice; allowed: once in a file")
        self._lines[kind.__name__, made.name] = {**lines, "": element.line}
        self._sources[kind.__name__, made.name] = element.source
        self.found.append(made)

    def leave_out(self, element: Element, cause: Element, text: str) -> None:
        """Tell once that nothing of an element is acted on, which is as good as acting on it."""
        self.warn(cause, text)
        for one in (element, *element.walk()):
            one.is_read, one.fault = True, ""

    @staticmethod
    def _is_unfilled(element: Element) -> bool:
        """Return whether something that a definition is made of is not known; another finding names it."""
        within = element.children if element.tag == ROOT else element.walk()
        return any(child.fault and (child.is_read or child.tag == INCLUDE) for child in within)

    def _tell_unfilled(self, element: Element) -> None:
        """Refuse what is acted on and has a fault; what is not acted on is told alone."""
        for child in (element, *element.walk()):
            for part in child.children:
                if part.fault and (part.is_read or (part.tag == INCLUDE and child.is_read)):
                    self._faults.add(FilePosition(part.source, part.line), f"{part.tag}: {part.fault}")
                elif part.fault:
                    self.warn(part, f"{child.tag}/{part.tag}: {part.fault}; nothing depends on it here")

    def _unread(self, element: Element, path: str, told: set[str]) -> Iterator[tuple[FilePosition, str]]:
        """Yield the elements that are not acted on, each kind once, at its first place."""
        for child in element.children:
            below = f"{path}/{child.tag}"
            if child.is_read:
                yield from self._unread(child, below, told)
            elif below not in told:
                told.add(below)
                reason = why_not(below) or _likeness(element.tag, child.tag)
                text = f"{element.tag}/{child.tag} is not acted on" + (f"; {reason}" if reason else "")
                if child.fault and child.tag == INCLUDE:
                    continue
                yield FilePosition(child.source, child.line), text


def _likeness(around: str, tag: str) -> str:
    """Suggest an element that somebody may have meant by an unknown one."""
    close = difflib.get_close_matches(tag, names_in(around), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _is_alike(kind: type[Definition], other: Definition) -> bool:
    """Return whether the two have one space of names."""
    return isinstance(other, Queue) if issubclass(kind, Queue) else type(other) is kind
