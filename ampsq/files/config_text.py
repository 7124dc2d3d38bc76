"""Writes definitions as a YAML file that `ampsq.files.config` reads as the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import DefinitionError
from ampsq.definitions.address_setting import AddressSetting
from ampsq.definitions.destination import Destination
from ampsq.definitions.instance import Instance
from ampsq.files.config import AT_THE_TOP, OF_INSTANCE, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.definitions.definition import Definition

__all__ = ["ConfigText", "render_config"]

_SIZES: Final = ("retention_size", "message_memory_limit", "message_disk_limit")
_UNITS: Final = (("GB", 2**30), ("MB", 2**20), ("KB", 2**10))
_NOT_OF_VARIABLES: Final = re.compile(r"[^A-Za-z0-9]+")


class ConfigText(str):
    """The text of a file.

    Attributes:
        variables: those of the environment that stand for addresses with passwords.
    """

    __slots__ = ("variables",)

    variables: tuple[str, ...]


def render_config(definitions: Iterable[Definition], *, secrets: bool = False) -> ConfigText:
    """Write definitions as a file.

    Args:
        definitions: in the order in which they are to stand there.
        secrets: write passwords; else a variable of the environment stands for each address that has one.

    Raises:
        DefinitionError: PyYAML is missing.
    """
    try:
        import yaml  # noqa: PLC0415 - only those who write files need it
    except ImportError:
        raise DefinitionError("writing YAML needs PyYAML: pip install 'ampsq[cli]'") from None
    top: dict[str, Any] = {}
    sections: dict[str, list[dict[str, Any]]] = {}
    variables: list[str] = []
    names = {kind: name for name, kind in SECTIONS.items()}
    for definition in definitions:
        elements = _elements(definition)
        if not secrets and isinstance(definition, Destination):
            _hide(definition, elements, variables)
        default, allowed = AT_THE_TOP.get(type(definition), (None, frozenset[str]()))
        if "name" in allowed or definition.name == default:
            top |= {element: value for element, value in elements.items() if element in allowed and value != default}
            under = {element: value for element, value in elements.items() if element not in allowed}
            if isinstance(definition, Instance) and under:
                top[OF_INSTANCE] = under
        else:
            sections.setdefault(names[type(definition)], []).append(elements)
    parts = [{name: sections[name]} for name in SECTIONS if name in sections]
    texts = [
        yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=10_000)
        for part in ([top] if top else []) + parts
    ]
    text = ConfigText("".join(texts))
    text.variables = tuple(variables)
    return text


def _elements(definition: Definition) -> dict[str, Any]:
    """The elements as a file has them, the name first."""
    elements = definition.elements()
    named = {"name": elements.pop("name"), **elements}
    if isinstance(definition, AddressSetting):
        named = {"match": named.pop("name"), **named}
        # One that says nothing has to name what it takes back.
        named = named if len(named) > 1 else {**named, "default_ring_size": None}
    return {element: _value(element, value) for element, value in named.items()}


def _value(element: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_value(element, item) for item in value]
    if isinstance(value, dict):
        return {name: _value(name, item) for name, item in value.items()}
    return _size(value) if element in _SIZES else value


def _size(size: int) -> str | int:
    """A size in the largest unit that gives a whole number."""
    return next((f"{size // factor}{unit}" for unit, factor in _UNITS if size % factor == 0), size)


def _hide(destination: Destination, elements: dict[str, Any], variables: list[str]) -> None:
    """Put a variable in the place of each address that has a password."""
    for number, address in enumerate(destination.addresses):
        if str(address) != address.text:
            name = _NOT_OF_VARIABLES.sub("_", f"AMPSQ_{destination.name}_{number + 1}").upper()
            elements["addresses"][number] = f"${{{name}}}"
            variables.append(name)
