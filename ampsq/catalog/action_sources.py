"""Sources of an action: the streams that its triggers read, and the names under which it keeps its places there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError
from ampsq.catalog.followed_streams import followed_streams, track_name
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.definitions.queue import Queue, View
from ampsq.expressions import parse, parse_projection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.catalog.followed_streams import SourceKind
    from ampsq.definitions.action_parts import Trigger
    from ampsq.protocol.calls.catalog import Catalog

__all__ = [
    "HEARD",
    "LINKED",
    "TIMEOUT",
    "ActionSource",
    "follow_orders",
    "follows_client_events",
    "keys_of",
    "records_deliveries",
    "sources_of",
]

#: Triggers on what becomes of the link to a destination.
LINKED: Final = (
    *(On.connect_replication, On.disconnect_replication, On.downgrade_replication, On.upgrade_replication),
)
#: Triggers that follow the instance's happenings.
HEARD: Final = (On.subscribe, On.unsubscribe, On.connect, On.disconnect, On.event, *LINKED)
#: The source of what matched its condition for its time, of all such triggers of an action.
TIMEOUT: Final = "timeout"


class ActionSource(NamedTuple):
    """One stream that an action follows.

    Attributes:
        name: under which its place there is kept: ``<kind> <name>``, and the pattern behind it if there is one.
        kind: what stream it is.
        of: of which queue or topic; empty for those of the instance.
        trigger: what follows it; of time-outs, the first one.
    """

    name: str
    kind: SourceKind
    of: str
    trigger: Trigger


def sources_of(action: Action, catalog: Catalog) -> list[ActionSource]:
    """The streams that an action follows now; there are more when a pattern matches more."""
    found: list[ActionSource] = []
    for trigger in action.on:
        if isinstance(trigger, On.timeout):
            if all(source.kind != "overdue" for source in found):
                found.append(ActionSource(TIMEOUT, "overdue", "", trigger))
        else:
            found += (ActionSource(*stream, trigger) for stream in followed_streams(trigger, catalog))
    return found


def follows_client_events(actions: Iterable[Action]) -> bool:
    """Return whether any of these actions follows clients that come and go, or raised events."""
    return any(isinstance(trigger, HEARD) for action in actions for trigger in action.on)


def records_deliveries(queue: Queue, actions: Iterable[Action]) -> bool:
    """Return whether a queue's deliveries are recorded: its definition asks for that, or an action follows them."""
    followed = (trigger for action in actions for trigger in action.on if isinstance(trigger, On.deliver))
    return queue.record_deliveries or any(trigger.follows(queue.name) for trigger in followed)


def follow_orders(action: Action, former: Action | None, catalog: Catalog) -> list[tuple[str, str, str]]:
    """Return the orders for the script `define_action`, so that an action follows its new sources from now on.

    Args:
        action: as it is to be.
        former: as it was.
        catalog: with the action as it is to be.
    """
    out: list[tuple[str, str, str]] = []
    here = {source.name for source in sources_of(action, catalog)}
    left = [each for each in sources_of(former, catalog) if each.kind != "overdue"] if former else []
    out += [("leave", source.name, "") for source in left if source.name not in here]
    timed, timed_before = _timed(action), _timed(former)
    if timed != timed_before:
        out += [("forget", track_name(trigger.topic), "") for trigger in timed_before]
    out += [("begin", track_name(trigger.topic), f"log {trigger.topic}") for trigger in timed]
    for source in sources_of(action, catalog):
        if source.kind == "clock":
            out.append(("wait", source.name, ""))
        elif source.kind != "overdue":
            out.append(("follow", source.name, f"{source.kind} {source.of}"))
    actions = [Action.from_json(text) for text in catalog.actions.values()]
    for name, text in catalog.queues.items():
        if any(isinstance(t, On.deliver) and t.follows(name) for each in (action, former) if each for t in each.on):
            out.append(("record" if records_deliveries(Queue.from_json(text), actions) else "ignore", name, ""))
    return out


def _timed(action: Action | None) -> list[On.timeout]:
    return [trigger for trigger in action.on if isinstance(trigger, On.timeout)] if action else []


def keys_of(trigger: On.timeout, views: Mapping[str, str], queues: Mapping[str, str]) -> tuple[str, ...]:
    """The identifiers that make messages of a topic versions of one.

    Raises:
        DefinitionError: the topic keeps no state that can be timed; the text says why and what is allowed.
    """
    where = f"on: timeout: topic: {trigger.topic!r}"
    if trigger.topic in queues:
        raise DefinitionError(
            f"{where} is a queue, whose messages are leased and settled, not kept by key; allowed: a view, or a topic "
            "that is no queue, with the identifiers of its key"
        )
    if trigger.topic not in views:
        if not trigger.key:
            raise DefinitionError(
                f"{where} is a topic, which keeps a state only by a key; allowed: key, the identifiers that make "
                "messages versions of one, as in key: [/id]"
            )
        return trigger.key
    view = View.from_json(views[trigger.topic])
    if trigger.key:
        raise DefinitionError(f"{where} is a view, whose key is its grouping; allowed: no key")
    paths = {projection.expression.tree: projection.path for projection in map(parse_projection, view.projection)}
    keys = []
    for text in view.grouping:
        path = paths.get(parse(text, "filter").tree)
        if path is None:
            raise DefinitionError(
                f"{where} is a view whose rows do not have its grouping's {text}; allowed: a view with {text} in its "
                "projection"
            )
        keys.append("[/" + "/".join(path) + "]")
    return tuple(keys)
