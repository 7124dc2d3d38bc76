"""The base of all definitions: checked whole when made, unchangeable, with teaching errors."""

from __future__ import annotations

import functools
import json
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from ampsq.base.errors import DefinitionError
from ampsq.base.suggestions import nearest
from ampsq.base.values import NAME_ALLOWED, parse_name, shown
from ampsq.definitions.elements import reading_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic_core import ErrorDetails

    from ampsq.base.errors import AmpsqError

__all__ = ["CheckedModel", "Definition", "Fault", "Lines", "Loaded", "Name", "report"]

#: Element -> its line in a file.
Lines = dict[str, int]
Name = Annotated[str, BeforeValidator(parse_name)]
_Kind = TypeVar("_Kind", bound="Definition")
#: Definitions that are kept as they were read.
_KEPT: Final = 4_096
#: What checks a kind is built when the first of that kind is made, by one thread.
_BUILDING: Final = threading.RLock()


class Fault(NamedTuple):
    """One thing that is wrong with a definition.

    Attributes:
        element: the element to change, as the user spelled it.
        text: what is wrong with it and what is allowed.
    """

    element: str
    text: str


class CheckedModel(BaseModel):
    """The common base of definitions and their parts: checked whole, unchangeable, hashable.

    Raises:
        DefinitionError: the elements are wrong; the text lists every fault.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    #: Words that people try for an element -> what they are told.
    meant: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, /, **elements: Any) -> None:
        faults = self._fill(self, elements)
        if faults:
            raise DefinitionError(report(self.title(elements), faults))

    @classmethod
    def faults(cls, elements: Mapping[str, Any]) -> list[Fault]:
        """List what is wrong with these elements; an empty list means that they make a definition."""
        return cls._fill(cls.__new__(cls), elements)

    def elements(self) -> dict[str, Any]:
        """The name and what differs from the defaults, as JSON values: intervals as text, tuples as lists."""
        values = self.model_dump(mode="json")
        fixed = {element: field.default for element, field in type(self).model_fields.items()}
        defaults = {**fixed, **self._derived(values)}
        return {k: v for k, v in values.items() if k == "name" or getattr(self, k) != defaults[k]}

    def public_elements(self) -> dict[str, Any]:
        """The same, as they may be shown: without passwords."""
        return self.elements()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """Make a definition that differs in some elements, checked like any other.

        Args:
            update: element -> value; None goes back to the default.
            deep: without meaning, since nothing in a definition can change.

        Raises:
            DefinitionError: the result is wrong; the text lists every fault.
        """
        return type(self)(**{**self.elements(), **(update or {})})

    @classmethod
    def title(cls, elements: Mapping[str, Any]) -> str:  # noqa: ARG003
        """Name the trigger in an error text."""
        return cls.__name__

    @classmethod
    def _fill(cls, instance: Self, elements: Mapping[str, Any]) -> list[Fault]:
        """Give a new instance its elements, or say what is wrong with them."""
        if not cls.__pydantic_complete__:
            with _BUILDING:
                cls.model_rebuild()
        given = cls._completed(elements)
        conflicts = list(cls._conflicts(given))
        try:
            BaseModel.__init__(instance, **given)
        except ValidationError as refusal:
            return [_fault(cls, detail) for detail in refusal.errors(include_url=False)] + conflicts
        return conflicts

    @classmethod
    def _completed(cls, elements: Mapping[str, Any]) -> dict[str, Any]:
        """The elements that were given, and those that follow from them."""
        given = {element: value for element, value in elements.items() if value is not None}
        return {**cls._derived(given), **given}

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """The defaults that follow from other elements, which are not checked yet."""
        return {}

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:  # noqa: ARG003
        """Yield faults between elements, each of which is checked elsewhere."""
        return iter(())


class Definition(CheckedModel):
    """The common base of all definitions: they have a name and are stored as compact JSON.

    Attributes:
        name: under which it is defined, once of its kind.

    Raises:
        DefinitionError: the elements do not make a definition; the text lists every fault.
    """

    name: Name

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Its expressions were parsed when it was made, and are not parsed again.

        Raises:
            DefinitionError: the text is not a JSON object, or its elements do not make a definition.
        """
        found: Self = _read(cls, text)
        return found

    @classmethod
    def _stored(cls, elements: dict[str, Any]) -> Self:
        """Make what was stored of the elements that were."""
        return cls(**elements)

    @property
    def titled(self) -> str:
        """The definition's name in an error text."""
        return self.title({"name": self.name})

    def to_json(self) -> str:
        """Write the name and what differs from the defaults, sorted and without spaces.

        Equal definitions give equal texts.
        """
        return json.dumps(self.elements(), sort_keys=True, separators=(",", ":"))

    def changes_from(self, old: Self) -> dict[str, tuple[Any, Any]]:
        """Return the differences from another definition: element -> its value there and here, as JSON values."""
        here, there = self.model_dump(mode="json"), old.model_dump(mode="json")
        return {element: (there[element], value) for element, value in here.items() if there[element] != value}

    @classmethod
    def title(cls, elements: Mapping[str, Any]) -> str:
        """Name a definition, which may have no name, in an error text."""
        name = cls._completed(elements).get("name")
        return f"{cls.__name__} without a name" if name is None else f"{cls.__name__} {shown(name)}"


class Loaded(list[Definition]):
    """The definitions of a file, and where they stand in it.

    Attributes:
        source: what error texts call the file.
        lines: (kind, name) -> element -> line; of the definition itself under "".
        sources: (kind, name) -> the file where it stands, if that is one that `source` includes.
        url: of the server that it is for, if the file says so.
    """

    def __init__(self, definitions: Iterable[Definition], source: str, lines: Mapping[tuple[str, str], Lines]) -> None:
        super().__init__(definitions)
        self.source, self.lines = source, lines
        self.sources: dict[tuple[str, str], str] = {}
        self.url: str | None = None

    def place(self, definition: Definition, element: str = "") -> str:
        """Return the place of a definition, or of one of its elements: ``file:line``; empty if it is in no file."""
        named = (type(definition).__name__, definition.name)
        lines = self.lines.get(named)
        return f"{self.sources.get(named, self.source)}:{lines.get(element, lines[''])}" if lines else ""

    def placed(self, error: AmpsqError) -> str:
        """The text of an error that applying these raised, each line with the place of what it is about."""
        about = error.definition
        if not isinstance(about, Definition) or not self.place(about):
            return str(error)
        title = about.title({"name": about.name})
        texts = []
        for text in str(error).split("\n"):
            told = text if text.startswith(title) else f"{title}: {text}"
            element = told.removeprefix(f"{title}: ").partition(":")[0]
            texts.append(f"{self.place(about, element)}: {told}")
        return "\n".join(texts)


def report(title: str, faults: list[Fault]) -> str:
    """Write the faults of one definition: one on the title's line, several on a line each."""
    lines = [f"{element}: {text}" for element, text in faults]
    if len(lines) == 1:
        return f"{title}: {lines[0]}"
    return "\n  - ".join([f"{title} has {len(lines)} faults:", *lines])


@functools.lru_cache(maxsize=_KEPT)
def _read(kind: type[_Kind], text: str | bytes) -> _Kind:
    """Read a definition; none changes, so those that are looked at again and again are read once."""
    try:
        elements = json.loads(text)
    except ValueError as reason:
        raise DefinitionError(f"{kind.__name__}: {shown(text)} is not JSON: {reason}") from None
    if not isinstance(elements, dict):
        raise DefinitionError(f"{kind.__name__}: {shown(text)} is not a JSON object of elements")
    with reading_stored():
        return kind._stored(elements)  # noqa: SLF001  (this is its class method's)


def _fault(kind: type[CheckedModel], detail: ErrorDetails) -> Fault:
    """Say in our words what pydantic found."""
    element, value = str(detail["loc"][0]), detail["input"]
    match detail["type"]:
        case "missing":
            text = f"missing; allowed: {NAME_ALLOWED}"
        case "extra_forbidden":
            text = kind.meant.get(element) or nearest(element, kind.model_fields)
        case "value_error":
            text = str(detail["ctx"]["error"])
        case "literal_error":
            text = f"{shown(value)} is not known; allowed: {detail['ctx']['expected']}"
        case "bool_parsing" | "bool_type":
            text = f"{shown(value)} is not known; allowed: true or false"
        case "tuple_type":
            text = f"{shown(value)} is not a list; allowed: a list of names"
        case _:
            text = f"{shown(value)}: {detail['msg']}"
    return Fault(element, text)
