"""The definition of an instance itself: its group, what people call it, which topics it takes and their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from ampsq.base.errors import DefinitionError
from ampsq.base.values import NAME_ALLOWED, is_name, shown
from ampsq.definitions.definition import Definition, Name
from ampsq.definitions.elements import ExpressionLimit  # noqa: TC001  (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ITSELF", "Instance"]

#: The name of whatever instance the definition is applied to.
ITSELF: Final = "*"
_LONGEST_LABEL: Final = 255


def _name(value: object) -> str:
    if not isinstance(value, str) or not (value == ITSELF or is_name(value)):
        raise DefinitionError(f"{shown(value)} is no instance's name; allowed: {NAME_ALLOWED}")
    return value


def _label(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > _LONGEST_LABEL or not text.isprintable():
        raise DefinitionError(
            f"{shown(value)} is no label; allowed: a text of up to {_LONGEST_LABEL} characters, on a line"
        )
    return text


InstanceName = Annotated[str, BeforeValidator(_name)]
Label = Annotated[str, BeforeValidator(_label)]


class Instance(Definition):
    """An instance itself: to others that it replicates with, and to those who publish there.

    Attributes:
        name: the instance that this may be applied to alone, so that a file meant for another one is refused; it cannot
            be changed. Default: whichever it is applied to.
        group: the instances that are equivalent to this one have the same: a link checks it (`Destination.group`), and
            what arrived from a group is passed on by it (`Destination.pass_through`). Default: the instance's name.
        label: what people call the instance, in any words; nothing depends on it. Default: none.
        expression_limit: bytes of the largest body that expressions read, of topics that give none
            (`Topic.expression_limit`); 32KB or more. Default: 1MB.
        topics: those that messages may be published to. ``any`` (default): a first publish to a name makes a topic.
            ``defined``: those that are there, since a definition names them or they were used before; a first publish
            to another name is refused (docs/configuration.md). A file has it under ``instance``, since at its top
            ``topics`` are definitions.
    """

    name: InstanceName
    group: Name | None = None
    label: Label | None = None
    expression_limit: ExpressionLimit | None = None
    topics: Literal["any", "defined"] = "any"

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str = ITSELF,
            group: str | None = None,
            label: str | None = None,
            expression_limit: int | str | None = None,
            topics: Literal["any", "defined"] | None = None,
        ) -> None: ...

    @classmethod
    def title(cls, elements: Mapping[str, Any]) -> str:
        """Name the trigger in an error text."""
        return cls.__name__ if elements.get("name", ITSELF) == ITSELF else super().title(elements)

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        return {"name": ITSELF}
