"""The JSON schema of configuration files, for editors: made of the definitions' own elements and their docstrings.

An editor reads YAML by its rules, and `ampsq.files.config` reads the text: so wherever a text may stand, so may a
number or a truth, and `${NAME}` wherever anything may.
"""

from __future__ import annotations

import re
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from ampsq.base.values import Interval
from ampsq.definitions.action import Action, DeadLetterAction
from ampsq.definitions.action_parts import CONDITIONS, STEPS, TRIGGERS
from ampsq.definitions.address_setting import AddressSetting
from ampsq.definitions.destination import Destination, ReplicatedTopic
from ampsq.definitions.instance import Instance
from ampsq.files.config import AT_THE_TOP, OF_GATEWAY, OF_INSTANCE, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.definitions.action_parts import Part
    from ampsq.definitions.definition import CheckedModel

__all__ = ["schema"]

Schema = dict[str, Any]

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_ELEMENT: Final = re.compile(r"^ +(\w+): (.*?)(?=^ +\w+: |\Z)", re.MULTILINE | re.DOTALL)
_TEXT: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}
_INTERVAL: Final[Schema] = {"type": ["string", "number", "null"], "pattern": r"^ *([0-9.]+ ?[a-z]* ?)+$|\$\{"}
_NUMBER: Final[Schema] = {"type": ["string", "number", "null"], "pattern": r"^ *-?([0-9.]+ ?[A-Za-z%]* ?)+$|\$\{"}
_TRUTH: Final[Schema] = {
    "type": ["boolean", "integer", "string", "null"],
    "pattern": r"^([Tt]rue|[Ff]alse|yes|no|on|off|[01ytfn])$|\$\{",
}
_TEXTS: Final[Schema] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_OF_FILE: Final[Mapping[str, str]] = {
    "url": "The server; --url and AMPSQ_URL count more.",
    "domain": "The group_local_queue_domain of the file's group local queues that give none.",
    "include": "Other files: a path, a pattern, or a list of such, from the folder of this file.",
}
_PARTS: Final[Mapping[str, Mapping[str, type[Part]]]] = {"on": TRIGGERS, "if": CONDITIONS, "do": STEPS}


def schema() -> Schema:
    """The schema of a file, as JSON values."""
    top: Schema = {name: {"description": text, **_TEXTS} for name, text in _OF_FILE.items()}
    for kind, (_, names) in AT_THE_TOP.items():
        top |= {name: value for name, value in _properties(kind).items() if name in names}
    of_instance = [_object(_properties(Instance), []), {"type": "null"}]
    top[OF_INSTANCE] = {"description": _summary(Instance), "anyOf": of_instance}
    top |= {name: {"description": "Read by `ampsq gateway` alone: docs/gateway.md."} for name in OF_GATEWAY}
    sections = {name: _some(_of_kind(kind), _summary(kind), alone=False) for name, kind in SECTIONS.items()}
    return {
        "$schema": _DRAFT,
        "title": "Configuration of ampsq",
        **_object({**top, **sections}, []),
    }


def _some(item: Schema, description: str, *, alone: bool) -> Schema:
    """A list of items; or nothing, or one alone."""
    if not alone:
        return {"description": description, "type": ["array", "null"], "items": item}
    return {"description": description, "anyOf": [item, {"type": "array", "items": item}]}


def _object(properties: Mapping[str, Schema], required: list[str]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        **({"required": required} if required else {}),
    }


def _of_kind(kind: type[CheckedModel]) -> Schema:
    """Return the schema of a definition of a kind in a file."""
    properties = _properties(kind)
    if kind is Action:
        told = _descriptions(kind)
        parts = {
            name: _some(_part(kinds), told["if_" if name == "if" else name], alone=True)
            for name, kinds in _PARTS.items()
        }
        letters = _object({"dead_letter": _object(_properties(DeadLetterAction), ["queue", "topic"])}, ["dead_letter"])
        return {"anyOf": [_object({"name": properties["name"], **parts}, ["name", "on", "do"]), letters]}
    if kind is AddressSetting:
        match = {**_TEXT, "description": _descriptions(kind)["match"]}
        del properties["name"]
        return _object({"match": match, **properties}, ["match"])
    if kind is Destination:
        topic = {"anyOf": [_TEXT, _object(_properties(ReplicatedTopic), ["name"])]}
        properties["topics"] = _some(topic, _descriptions(kind)["topics"], alone=True)
        return _object(properties, ["name", "sync_type", "topics"])
    return _object(properties, ["name"])


def _part(kinds: Mapping[str, type[Part]]) -> Schema:
    """One part of an action: its word, or that with the value of its main element, or with its elements."""
    words = {}
    for word, kind in kinds.items():
        forms = [_object(_properties(kind), []), *([_TEXTS] if kind.main else [{"type": "null"}])]
        words[word] = {"description": _summary(kind), "anyOf": forms}
    # AMPS's names of modules are taken, too.
    modules = {kind.module: words[word] for word, kind in kinds.items() if kind.module.startswith("amps-")}
    named = {**_object({**words, **modules}, []), "minProperties": 1, "maxProperties": 1}
    return {"anyOf": [named, {"enum": [*words, *modules]}]}


def _properties(kind: type[CheckedModel]) -> dict[str, Schema]:
    """Every element, with what its docstring says."""
    told = _descriptions(kind)
    found = {}
    for name, field in kind.model_fields.items():
        description = {"description": told[name]} if name in told else {}
        found[name] = {**_type(field.annotation), **description}
    return found


def _type(annotation: Any) -> Schema:
    """Return the schema of the values of an element of this type."""
    # None means the default, and may always stand.
    kinds = [each for each in get_args(annotation) if each is not NoneType] if NoneType in get_args(annotation) else []
    kind = kinds[0] if kinds else annotation
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return {"anyOf": [{"enum": [*get_args(kind), None]}, {"type": "string", "pattern": r"\$\{"}]}
    if kind is bool:
        return _TRUTH
    if kind is Interval:
        return _INTERVAL
    if kind in (int, float):
        return _NUMBER
    return _TEXT if kind is str else _TEXTS


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0].replace("``", "`")


def _descriptions(kind: type) -> dict[str, str]:
    """Return each element's line in the docstring of the kind, and of those it is made of."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        attributes = (each.__doc__ or "").partition("Attributes:")[2]
        found |= {name: " ".join(text.split()).replace("``", "`") for name, text in _ELEMENT.findall(attributes)}
    return found
