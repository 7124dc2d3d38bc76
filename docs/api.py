"""The pages of the Python API, made of signatures and docstrings; docs/reference.py writes them.

`PAGES` says what is on which page. A docstring is read as this project writes them: text, then ``Args``,
``Attributes``, ``Returns`` and ``Raises``. mkdocstrings was tried: of ``Raises`` it takes one error a line and leaves
out what is free text, and it makes HTML alone, where these pages are read in the repository, too.
"""

# ruff: noqa: INP001  (a program beside the pages)

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from types import EllipsisType, MemberDescriptorType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import ampsq
from ampsq.base import errors
from ampsq.base.values import Interval
from ampsq.definitions.definition import CheckedModel, Definition
from ampsq.definitions.queue import Queue
from ampsq.files.config import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic.fields import FieldInfo

#: A line of a signature is not longer.
_WIDTH: Final = 100
_SECTIONS: Final = ("Args", "Attributes", "Returns", "Raises")
#: What parts of ampsq call of each other, which is public and nothing for users.
_INTERNAL: Final = {
    *("Redriven.of", "SowMessage.of", "RecordChange.of", "MessageType.of_definition"),
    *("Topic.stored", "ConflatedTopic.filter_with", "Queue.domain", "Queue.feeds_from", "GroupLocalQueue.domain"),
    *("AddressSetting.matches", "View.feeds_from", "Definition.title"),
    *("Destination.topic_for", "Destination.leads_to", "Destination.passes", "ReplicatedTopic.matches"),
}
#: What users make themselves; everything else is made by a call that gives it.
_MADE_BY_USERS: Final = {
    *("Client", "AsyncClient", "Worker", "AsyncWorker", "App", "Hooks", "FilePublishStore", "MemoryPublishStore"),
    *("MemoryBookmarkStore", "RedisBookmarkStore", "SqliteBookmarkStore"),
}
#: Names that are not exported by `ampsq`, and belong to what is: signatures name them.
BESIDE: Final = {
    "BookmarkStore": "ampsq.topics.bookmark_store",
    "BookmarkUpdate": "ampsq.topics.bookmark_store",
    "PublishStore": "ampsq.publishing.memory_store",
    "Receipts": "ampsq.publishing.receipts",
    "Refusal": "ampsq.queues.redrive",
    "ReplayOptions": "ampsq.topics.subscription_spec",
    "Return": "ampsq.queues.dead_letters",
    "SubscriptionName": "ampsq.topics.bookmark_store",
    "ensure_java": "ampsq.spark",
    "prepare_environment": "ampsq.spark",
    "publish": "ampsq.spark",
}
#: Names of types in signatures that are no classes.
ALIASES: Final = {
    "AppendFsync": "ampsq.server.location",
    "Command": "ampsq.records.change",
    "Id": "ampsq.base.log_positions",
    "MessageTypeName": "ampsq.base.message_types",
    "NotFound": "ampsq.topics.replay",
    "Outcome": "ampsq.catalog.definition_checks",
    "Place": "ampsq.base.log_positions",
    "OnInvalid": "ampsq.client.handler_rules",
    "ExpiryReason": "ampsq.base.values",
}
_USES: Final = {
    "__enter__": "`with`",
    "__iter__": "`for`",
    "__aenter__": "`async with`",
    "__aiter__": "`async for`",
    "__await__": "`await`",
    "__len__": "`len()`",
    "__getitem__": "`[...]`",
}


@dataclass(frozen=True)
class Page:
    """One page: its file's name, its title, its first lines, and what is on it: names, or a class's methods."""

    slug: str
    title: str
    intro: str
    names: tuple[str, ...]


def _of_clients(*methods: str) -> tuple[str, ...]:
    return tuple(f"{client}.{method}" for method in methods for client in ("Client", "AsyncClient"))


PAGES: Final = (
    Page(
        "connect",
        "Connect and define",
        "A client is a connection to one instance. What it publishes and subscribes to has pages of its own; "
        "more: [connections](../connections.md), [configuration](../configuration.md).",
        (
            *("Client", "AsyncClient", *_of_clients("apply", "close")),
            *_of_clients("add_connection_state_listener", "remove_connection_state_listener"),
            *("ConnectionEvent", "ConnectionState", "Server"),
        ),
    ),
    Page(
        "publish",
        "Publish",
        "More: [publishing](../publishing.md), [message types](../message-types.md).",
        (
            *_of_clients("publish", "publish_many", "delta_publish", "publisher"),
            *("Publisher", "AsyncPublisher", "Receipt", "AsyncReceipt", "Receipts"),
            *("DeletionReceipt", "AsyncDeletionReceipt", "FailedWrite", "PersistedAck"),
            *("FilePublishStore", "MemoryPublishStore", "PublishStore", "StoreEntry"),
        ),
    ),
    Page(
        "queues",
        "Subscribe to queues",
        "More: [queues](../queues.md), [expressions](../expressions.md).",
        (
            *_of_clients("subscribe", "ack"),
            *("Subscription", "AsyncSubscription", "Subscribing", "Message", "AsyncMessage"),
        ),
    ),
    Page(
        "topics",
        "Topics",
        "More: [replay](../replay.md), [slow clients](../slow-clients.md).",
        (
            *_of_clients("subscribe_topic"),
            *("ReplayOptions", "TopicSubscription", "AsyncTopicSubscription", "TopicMessage", "AsyncTopicMessage"),
            *("RedisBookmarkStore", "SqliteBookmarkStore", "MemoryBookmarkStore", "BookmarkStore", "BookmarkUpdate"),
            *("SubscriptionName", "StoredPosition"),
        ),
    ),
    Page(
        "sow",
        "The state of the world",
        "The records of topics with a key, the rows of views, and what is in queues. More: [sow](../sow.md).",
        (
            *_of_clients("sow", "sow_and_subscribe", "aggregate", "sow_delete"),
            *("SowMessage", "RecordChange", "RecordSubscription", "AsyncRecordSubscription"),
            *("RowSubscription", "AsyncRowSubscription"),
        ),
    ),
    Page(
        "administration",
        "Administration",
        "What operators call, on `client.admin`. What the calls give is under "
        "[figures and results](figures.md); the same from a shell: [commands](../cli.md).",
        ("Admin", "AsyncAdmin"),
    ),
    Page(
        "definitions",
        "Definitions",
        "The elements of each section of a [configuration file](../configuration.md), with the names that the Python "
        "classes have, too: there they are arguments by keyword. "
        "[`Action`](actions.md#action), [`Instance`](replication.md#instance) and "
        "[`Destination`](replication.md#destination) have pages of their own.",
        (
            *("Topic", "ConflatedTopic", "Queue", "LocalQueue", "GroupLocalQueue", "AddressSetting"),
            *("View", "Transport", "Definition", "Fault"),
        ),
    ),
    Page(
        "actions",
        "Actions",
        "More: [actions](../actions.md).",
        ("Action", "On", "If", "Do", "ActionState", "FailedEvent"),
    ),
    Page(
        "replication",
        "Replication",
        "The calls are those of [`Admin`](administration.md#admin). More: [replication](../replication.md).",
        (
            *("Instance", "Destination", "ReplicatedTopic", "ReplicationReport", "LinkStatus", "QueueOwnership"),
            *("SyncState", "Recovery"),
        ),
    ),
    Page(
        "workers",
        "Workers",
        "More: [workers](../workers.md). From a shell: [`ampsq worker`](../cli.md).",
        ("Worker", "AsyncWorker", "App", "Hooks", "Reject", "InvalidMessage", "HandlerTimeLimit"),
    ),
    Page(
        "spark",
        "Spark",
        'Reading and writing need no import: `spark.read.format("ampsq")`. All options: [Spark](../spark.md).',
        ("publish", "prepare_environment", "ensure_java"),
    ),
    Page(
        "errors",
        "Errors",
        "All are classes of `ampsq.base.errors`, below [`AmpsqError`](#ampsqerror). Codes are the first word of what a "
        "script refuses with, `AMPSQ_<CODE>`, and never change; texts may.",
        ("AmpsqError",),
    ),
    Page(
        "figures",
        "Figures and results",
        "What calls give, most of them those of [`Admin`](administration.md#admin).",
        (
            *(
                "Planned",
                "DeadLetter",
                "Return",
                "Redriven",
                "Refusal",
                "RedriveProgress",
                "Explanation",
                "History",
                "HistoryEvent",
            ),
            *("QueueState", "QueueStats", "TopicState", "Trimmed", "ReaderState", "PublisherState"),
            *(
                "GroupState",
                "QueueGroups",
                "QueueLatencies",
                "LatencyPercentiles",
                "CheckReport",
                "StateDifference",
                "Rebuilt",
                "Bookmark",
                "Interval",
                "MessageType",
            ),
        ),
    ),
)
#: Where a name is: name -> page.
HOMES: Final = {name: page for page in PAGES for name in page.names}
ERRORS: Final = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.AmpsqError)
}


class Docs(NamedTuple):
    """A docstring: its text, and its sections as items (name -> text; without a name: ``""``)."""

    text: str
    sections: dict[str, list[tuple[str, str]]]


def read_docstring(docstring: str | None) -> Docs:
    """Take a docstring apart."""
    text, sections, section = "", dict[str, list[tuple[str, str]]](), ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        if line.removesuffix(":") in _SECTIONS and line.endswith(":"):
            section = line.removesuffix(":")
            sections[section] = []
            continue
        if section and line and not line.startswith(" "):
            # Text after the sections belongs to the text.
            section = ""
        if not section:
            text += line + "\n"
            continue
        items = sections[section]
        found = re.match(r"    (\*{0,2}\w+(?:, \w+)*): (.*)", line)
        if found is not None and section != "Returns":
            items.append((found[1].lstrip("*"), found[2]))
        elif items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}".strip())
        else:
            items.append(("", line.strip()))
    return Docs(re.sub(r"\n{3,}", "\n\n", text).strip(), sections)


def anchor(heading: str) -> str:
    """Return what both MkDocs and GitHub make of a heading."""
    return re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")


class Writer:
    """Writes one page: every name that has a place in the reference becomes a link to it."""

    def __init__(self, page: Page, targets: dict[str, str]) -> None:
        self._page, self._targets = page, targets
        self._owner, self._described_now, self._arguments = "", "", frozenset[str]()

    def page(self) -> str:
        """The whole page."""
        parts = [f"# {self._page.title}\n\n{self._page.intro}\n"]
        parts.extend(self._entry(name) for name in self._page.names)
        if self._page.slug == "errors":
            parts.append(self._all_errors())
        if self._page.slug == "figures":
            parts.append(_all_aliases())
        return "\n".join(parts)

    def _entry(self, name: str) -> str:
        if "." in name:
            owner, _, method = name.partition(".")
            return self._method(owner, method, level=2)
        found = exported(name)
        if not isinstance(found, type):
            return self._function(name, found)
        if issubclass(found, BaseModel):
            return self._definition(name, found)
        return self._class(name, found)

    # -- text

    def _links(self, text: str) -> str:
        text = text.replace("``", "`")
        text = re.sub(r"(?<![\w/])docs/([\w-]+)\.md", r"[\1](../\1.md)", text)
        return re.sub(r"`([\w.]+)`", self._link, text)

    def _link(self, found: re.Match[str]) -> str:
        name = found[1].removeprefix("ampsq.base.errors.")
        for whole in (f"{self._owner}.{name}", name):
            is_here = whole in (self._owner, self._described_now)
            if whole in self._targets and name not in self._arguments and not is_here:
                slug, _, rest = self._targets[whole].partition("#")
                return f"[`{found[1]}`]({'' if slug == f'{self._page.slug}.md' else slug}#{rest})"
        return found[0]

    def _cell(self, text: str) -> str:
        return self._links(" ".join(text.split())).replace("|", "\\|")

    def _rest(self, docs: Docs) -> str:
        """The sections of a docstring, but for the attributes."""
        text = ""
        for section in ("Args", "Returns", "Raises"):
            items = docs.sections.get(section)
            if not items:
                continue
            text += f"\n**{section}**\n\n"
            if section == "Raises":
                for names, meaning in (each for name, said in items for each in _raised(name, said)):
                    marked = ", ".join(self._links(f"`{name}`") for name in names.split(", ")) if names else ""
                    text += f"- {marked}{': ' if marked else ''}{self._links(meaning)}\n"
            elif section == "Returns":
                text += "\n".join(self._links(said) for _, said in items) + "\n"
            else:
                for names, said in items:
                    if names == "unknown" and names not in self._arguments:
                        # `**unknown` is there to be refused.
                        continue
                    marked = ", ".join(f"`{name}`" for name in names.split(", ")) if names else ""
                    text += f"- {marked}{': ' if marked else ''}{self._links(said)}\n"
        return text

    # -- functions

    def _method(self, owner: str, name: str, *, level: int) -> str:
        found = inspect.getattr_static(exported(owner), name)
        function = getattr(found, "__func__", found)
        self._owner = owner
        return self._described(f"{owner}.{name}", function, level)

    def _function(self, name: str, function: Any) -> str:
        self._owner = ""
        return self._described(name, function, 2, f"from {BESIDE[name]} import {name}\n\n")

    def _described(self, name: str, function: Any, level: int, above: str = "") -> str:
        docs = read_docstring(function.__doc__)
        self._described_now = name
        self._arguments = frozenset(
            name for name, each in inspect.signature(function).parameters.items() if each.annotation != "Never"
        )
        awaited = "await " if inspect.iscoroutinefunction(function) else ""
        text = f"{'#' * level} {name}\n\n```python\n{above}{awaited}{signature(name, function)}\n```\n\n"
        text += f"{self._links(docs.text)}\n{self._rest(docs)}"
        self._described_now, self._arguments = "", frozenset()
        return text

    # -- classes

    def _class(self, name: str, kind: type) -> str:
        self._owner = name
        docs = read_docstring(kind.__doc__)
        module = BESIDE.get(name, "ampsq")
        text = f"## {name}\n\n```python\nfrom {module} import {name}\n"
        if name in _MADE_BY_USERS:
            is_bare = kind.__init__ is object.__init__
            text += f"\n{name}()\n" if is_bare else f"\n{signature(name, kind.__init__)}\n"
        text += f"```\n\n{self._links(docs.text)}\n"
        uses = [word for dunder, word in _USES.items() if _has(kind, dunder)]
        if uses:
            text += f"\nCan be used with {', '.join(uses)}.\n"
        if name in _MADE_BY_USERS:
            text += self._rest(docs)
        rows = list(self._attributes(kind, docs))
        if rows:
            text += "\n| attribute | type | meaning |\n|---|---|---|\n" + "".join(rows)
        for method in methods(name, kind):
            text += "\n" + self._method(name, method, level=3)
        if name in ("On", "If", "Do"):
            for word, part in vars(kind).items():
                if isinstance(part, type):
                    text += "\n" + self._elements(f"{name}.{word}", part, level=3)
        return text

    def _attributes(self, kind: type, docs: Docs) -> Iterator[str]:
        said = {one: text for names, text in docs.sections.get("Attributes", ()) for one in names.split(", ")}
        types = _annotations(kind)
        if issubclass(kind, enum.Enum):
            said = _comments(kind)
            types = {each.name: repr(each.value) for each in kind}
        for attribute, text in said.items():
            yield self._row(attribute, types.get(attribute, ""), text)
        for attribute in dir(kind):
            found = inspect.getattr_static(kind, attribute)
            if attribute in said or attribute.startswith("_") or is_internal(kind.__name__, attribute):
                continue
            if isinstance(found, property) and found.fget is not None and found.__doc__:
                given = inspect.signature(found.fget).return_annotation
                yield self._row(attribute, given if isinstance(given, str) else "", found.__doc__)
            elif isinstance(found, MemberDescriptorType) and attribute in _comments(kind):
                yield self._row(attribute, "", _comments(kind)[attribute])

    def _row(self, name: str, kind: str, text: str) -> str:
        typed = self._links(f"`{kind}`").replace("|", "\\|") if kind else ""
        return f"| `{name}` | {typed} | {self._cell(read_docstring(text).text)} |\n"

    def _definition(self, name: str, kind: type[BaseModel]) -> str:
        text = self._elements(name, kind, level=2, is_exported=True)
        for method in methods(name, kind):
            text += "\n" + self._method(name, method, level=3)
        return text

    def _elements(self, name: str, kind: type[BaseModel], *, level: int, is_exported: bool = False) -> str:
        self._owner = name
        docs = read_docstring(kind.__doc__)
        text = f"{'#' * level} {name}\n\n"
        if is_exported:
            text += f"```python\nfrom ampsq import {name}\n```\n\n"
        text += f"{self._links(docs.text)}\n"
        section = next((section for section, model in SECTIONS.items() if model is kind), None)
        if section is not None:
            text += f"\nIn a file: `{section}`.\n"
        said: dict[str, str] = {}
        for base in reversed(kind.__mro__):
            if isinstance(base, type) and issubclass(base, BaseModel):
                said |= dict(read_docstring(base.__doc__).sections.get("Attributes", ()))
        inherited = Queue.model_fields if kind is not Queue and issubclass(kind, Queue) else {}
        fields = {element: field for element, field in kind.model_fields.items() if element not in inherited}
        if fields:
            text += "\n| element | type | default | meaning |\n|---|---|---|---|\n"
        # An element that files and arguments call otherwise than the model, as `match` of an address setting.
        renamed = dict(
            zip(
                [element for element in fields if element not in said],
                [element for element in said if element not in kind.model_fields],
                strict=False,
            )
        )
        for field_name, field in fields.items():
            element = renamed.get(field_name, field_name)
            typed = type_text(field.annotation).replace("|", "\\|")
            text += f"| `{element}` | `{typed}` | {_default(field)} | {self._cell(said.get(element, ''))} |\n"
        return text

    def _all_errors(self) -> str:
        """One row an error: its code, its class, what it means."""
        self._owner = ""
        text = "## All errors\n\n| error | is a | code | means |\n|---|---|---|---|\n"
        for each in all_errors(errors.AmpsqError):
            code: Any = each.__dict__.get("code") or ""
            shown = f"`{code}`" if isinstance(code, str) and code else ""
            name = f'<a id="{anchor(each.__name__)}"></a>`{each.__name__}`'
            meaning = self._cell(read_docstring(each.__doc__).text)
            text += f"| {name} | `{each.__bases__[0].__name__}` | {shown} | {meaning} |\n"
        return text


def all_errors(root: type[errors.AmpsqError]) -> list[type[errors.AmpsqError]]:
    """The classes below one, in the order of their definition."""
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [each for child in children for each in (child, *all_errors(child))]


def _all_aliases() -> str:
    text = "## Types\n\nNames in signatures that are no classes.\n\n| name | is |\n|---|---|\n"
    for name, module in ALIASES.items():
        kind = getattr(import_module(module), name)
        shown = kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else type_text(kind)
        piped = str(shown).replace("|", "\\|")
        text += f"| `{name}` | `{piped}` |\n"
    return text


def exported(name: str) -> Any:
    """Return the object that a name of the reference means."""
    return getattr(import_module(BESIDE[name]) if name in BESIDE else ampsq, name)


def methods(name: str, kind: type) -> list[str]:
    """The public methods that are described with their class, in the order of their definition, bases last."""
    stores = [exported(each) for each in ("PublishStore", "BookmarkStore") if each != name]
    found: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.split(".")[0] != "ampsq" or base in stores:
            continue
        if issubclass(kind, CheckedModel) and base is not kind and name != "Definition":
            # What all definitions have is described with `Definition`.
            continue
        # Looking at a model may build what checks it, which is another attribute.
        for attribute, member in list(vars(base).items()):
            function = getattr(member, "__func__", member)
            is_base_s = name != "Definition" and hasattr(Definition, attribute) and issubclass(kind, CheckedModel)
            is_stores = is_base_s or any(hasattr(store, attribute) and issubclass(kind, store) for store in stores)
            if (
                inspect.isfunction(function)
                and function.__doc__
                and not (attribute.startswith("_") or is_stores or is_internal(name, attribute))
                and f"{name}.{attribute}" not in HOMES
            ):
                found[attribute] = None
    return list(found)


def is_internal(name: str, attribute: str) -> bool:
    """Say whether an attribute of a class is nothing for users."""
    return f"{name}.{attribute}" in _INTERNAL


def signature(name: str, function: Any) -> str:
    """Return a call as one writes it, with types and defaults, on one line or a line each."""
    given = inspect.signature(function)
    parts, is_after_star = [], False
    for each in given.parameters.values():
        if each.name in ("self", "cls") or each.annotation == "Never":
            continue
        if each.kind is each.KEYWORD_ONLY and not is_after_star:
            parts.append("*")
            is_after_star = True
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        is_after_star = is_after_star or mark == "*"
        typed = f": {each.annotation}" if each.annotation is not each.empty else ""
        default = "" if each.default is each.empty else f" = {_shown(each.default)}"
        parts.append(f"{mark}{each.name}{typed}{default}")
    result = given.return_annotation
    arrow = "" if result in (given.empty, "None") or function.__name__ == "__init__" else f" -> {result}"
    line = f"{name}({', '.join(parts)}){arrow}"
    return line if len(line) <= _WIDTH else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def type_text(kind: Any) -> str:
    """Return the type of an element as one writes it, without what checks it."""
    if kind is type(None):
        return "None"
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(type_text(each) for each in arguments)
    if origin is Literal:
        return " | ".join(map(_shown, arguments))
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if each is ... else type_text(each) for each in arguments)}]"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None or value == ():
        return ""
    return f"`{_shown(value.text if isinstance(value, Interval) else value)}`"


def _shown(value: Any) -> str:
    if isinstance(value, EllipsisType):
        return "..."
    return '"' + value + '"' if type(value) is str else repr(value)


def _raised(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The errors of an item, which may name several, each with what it means; free text has no name."""
    whole = f"{name}: {text}" if name else text
    parts = re.split(r"(?:^|(?<=[.;] ))((?:[A-Z]\w+(?:, )?)+): ", whole)
    yield from ([("", parts[0].strip())] if parts[0] else [])
    yield from ((names, meaning.strip()) for names, meaning in zip(parts[1::2], parts[2::2], strict=True))


def _has(kind: type, dunder: str) -> bool:
    """Return whether a class of this project defines it."""
    given = next((vars(base)[dunder] for base in kind.__mro__ if dunder in vars(base)), None)
    is_ours = getattr(given, "__module__", "").startswith("ampsq.")
    return is_ours and getattr(given, "__annotations__", {}).get("return") != "NoReturn"


def _annotations(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for name, each in vars(base).get("__annotations__", {}).items():
            text = getattr(each, "__forward_arg__", each)
            if isinstance(text, str):
                # Several modules have a `Reason` of their own.
                known = getattr(sys.modules[base.__module__], text, None)
                found[name] = type_text(known) if get_origin(known) is Literal else text
    for base in kind.__mro__:
        if base.__module__.startswith("ampsq."):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                    found.setdefault(node.target.attr, ast.unparse(node.annotation))
    return found


def _comments(kind: type) -> dict[str, str]:
    """Return the comments `#:` on attributes, by attribute."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("ampsq."):
            for comment, name in re.findall(
                r"((?:^ *#: .*\n)+) *(?:self\.)?(\w+)\b", inspect.getsource(base), re.MULTILINE
            ):
                found.setdefault(name, " ".join(re.findall(r"#: (.*)", comment)))
    return found


def targets() -> dict[str, str]:
    """Return the page and anchor of each name of the reference."""
    found: dict[str, str] = {}
    for page in PAGES:
        for name in page.names:
            if "." in name:
                found[name] = f"{page.slug}.md#{anchor(name)}"
                continue
            found[f"ampsq.spark.{name}" if page.slug == "spark" else name] = f"{page.slug}.md#{anchor(name)}"
            kind = exported(name)
            if isinstance(kind, type):
                for method in methods(name, kind):
                    found[f"{name}.{method}"] = f"{page.slug}.md#{anchor(f'{name}.{method}')}"
                if name in ("On", "If", "Do"):
                    for word, part in vars(kind).items():
                        if isinstance(part, type):
                            found[f"{name}.{word}"] = f"{page.slug}.md#{anchor(f'{name}.{word}')}"
    return found | {name: f"errors.md#{anchor(name)}" for name in ERRORS if name not in found}


def first_sentence(name: str) -> str:
    """The first sentence of what a name's docstring says."""
    owner, _, method = name.partition(".")
    found = exported(owner)
    found = inspect.getattr_static(found, method) if method else found
    text = read_docstring(getattr(found, "__func__", found).__doc__).text.split("\n\n")[0]
    line = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
    return re.split(r"(?<=\.)\s(?=[A-Z`])", re.sub(r" \(docs/[\w-]+\.md\)", "", line))[0]


def index() -> str:
    """The first page: every name, one line each."""
    text = (
        "# Reference\n\nThe public Python API, from its docstrings: what is imported from `ampsq`, by what one does. "
        "`AsyncClient` and all that it gives have the names of `Client`, awaited. Beside it: the "
        "[commands](../cli.md), and what [files](../configuration.md) may have.\n"
    )
    for page in PAGES:
        text += f"\n## [{page.title}]({page.slug}.md)\n\n| name | |\n|---|---|\n"
        names = list(page.names)
        if "Admin" in names:
            names[1:1] = [f"Admin.{method}" for method in methods("Admin", ampsq.Admin)]
        for name in names:
            text += f"| [`{name}`]({page.slug}.md#{anchor(name)}) | {first_sentence(name)} |\n"
    return text


def pages() -> dict[str, str]:
    """All pages: file's name -> text."""
    where = targets()
    return {"index.md": index(), **{f"{page.slug}.md": Writer(page, where).page() for page in PAGES}}


def as_text(written: Iterable[str]) -> str:
    """Return pages as one text without links, for who has nothing else."""
    text = "\n".join(written)
    text = re.sub(r'<a id="[^"]*"></a>', "", text)
    return re.sub(r"(?<!\])\[([^\]\n]*)\]\([^)\s]+\)", r"\1", text)
