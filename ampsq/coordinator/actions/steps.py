"""The conditions of an action, and its steps but publishing: each for one event."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, Final

from ampsq.base.message_types import JSON
from ampsq.base.name_patterns import pattern_of
from ampsq.base.values import is_name
from ampsq.coordinator.actions.webhooks import StepFailed
from ampsq.definitions.action_parts import Do, If
from ampsq.definitions.queue import Topic
from ampsq.expressions import Document, parse
from ampsq.expressions.values import first, text_of
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.context import InstanceContext
from ampsq.queues.browse import ack_matching
from ampsq.queues.query import Query
from ampsq.records.deletion import delete_matching
from ampsq.records.query import sow_records
from ampsq.replication.downgrade import downgrade_late, upgrade_prompt
from ampsq.views.upkeep import sow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.coordinator.actions.event import ActionEvent
    from ampsq.coordinator.actions.webhooks import OutsidePermissions
    from ampsq.definitions.action_parts import ActionStep, Part
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.transport.store import Store

__all__ = ["Performer"]

_log = logging.getLogger("ampsq.actions")
_PERCENT: Final = 100
#: The text that is the message's own body.
_DATA: Final = "{{AMPS_DATA}}"
#: A filter that everything matches.
_ALL: Final = "1 = 1"


class Performer:
    """Looks at conditions and makes steps.

    Args:
        store: where the instance is.
        name: the action's.
        catalog: what is defined.
        origin: the instance's.
        powers: what may be done outside.
    """

    def __init__(self, store: Store, name: str, catalog: Catalog, origin: str, powers: OutsidePermissions) -> None:
        self._store, self._name, self._catalog, self._powers = store, name, catalog, powers
        self._context = InstanceContext(store.instance, origin)

    def holds(self, event: ActionEvent, conditions: Iterable[Part]) -> bool:
        """Return whether all conditions are true of an event."""
        return all(self._holds(event, condition) for condition in conditions)

    def _holds(self, event: ActionEvent, condition: Part) -> bool:
        if isinstance(condition, If.file_system_usage):
            usage = shutil.disk_usage(event.text(condition.path))
            return usage.used * _PERCENT > condition.greater_than * usage.total
        if isinstance(condition, If.condition):
            return parse(_utf8(event.text(condition.condition)), "query").matches(
                self._document(event, event.variables.get("AMPS_DATA", b""), published=True)
            )
        raise StepFailed(f"{condition.word}: this version does not know this condition")

    def _document(self, event: ActionEvent, body: bytes, *, published: bool) -> Document:
        """Return the document that expressions read of a text: JSON, unless it is the event's own message."""
        topic = event.variables.get("AMPS_TOPIC", b"").decode(errors="replace")
        found = self._catalog.message_type(topic) if published else JSON
        return Document(body, origin=self._context.origin, instance=self._context.instance, message_type=found)

    def perform(self, step: ActionStep, event: ActionEvent, place: str, sequence: int) -> None:
        """Make one step that is no publish.

        Args:
            step: what to do.
            event: for which event; its variables may change.
            place: of increments: what their sequence is of.
            sequence: the number of this one there.
        """
        match step:
            case Do.extract():
                self._extract(step, event)
            case Do.translate():
                self._translate(step, event)
            case Do.query():
                event.variables[step.capture_data] = self._found(step, event)
            case Do.increment():
                counted = action_calls.count(self._name, place, sequence, event.text(step.key))
                event.variables[step.value] = self._store.call(counted)
            case _:
                self._affect(step, event)

    def _affect(self, step: ActionStep, event: ActionEvent) -> None:
        """Make a step whose effect is outside of the event: at least once."""
        match step:
            case Do.delete():
                self._delete(step, event)
            case Do.event():
                client = event.variables.get("AMPS_CLIENT_NAME", b"").decode(errors="replace")
                self._store.call(action_calls.emit_event("event", client, step.event, event.text(step.data)))
            case Do.echo():
                _log.info("%s: %s", self._name, event.text(step.message).decode(errors="backslashreplace"))
            case Do.downgrade_replication():
                self._store.run(downgrade_late(self._store.instance, int(step.age), int(step.grace_period)))
            case Do.upgrade_replication():
                self._store.run(upgrade_prompt(self._store.instance, int(step.age), int(step.grace_period)))
            case Do.execute():
                self._powers.execute(step, event.variables)
            case Do.webhook():
                self._powers.webhook(step, event.variables)
            case _:
                raise StepFailed(f"{step.word}: this version does not know this step")

    def _delete(self, step: Do.delete, event: ActionEvent) -> None:
        filter_ = None if step.filter is None else _utf8(event.text(step.filter))
        keyed = self._keyed()
        for name in self._named(step.topic, {*self._catalog.queues, *keyed}):
            if name not in keyed:
                self._store.run(ack_matching(self._context, name, filter_))
            else:
                self._store.run(delete_matching(name, parse(filter_ or _ALL, "query")))

    def _keyed(self) -> dict[str, Topic]:
        """Topics with records; where a queue has the same name, that is meant."""
        topics = {name: Topic.stored(name, text) for name, text in self._catalog.topics.items()}
        return {name: topic for name, topic in topics.items() if topic.key and name not in self._catalog.queues}

    @staticmethod
    def _named(topic: str, names: Iterable[str]) -> list[str]:
        return [topic] if is_name(topic) else sorted(name for name in names if pattern_of(topic).search(name))

    def _extract(self, step: Do.extract, event: ActionEvent) -> None:
        document = self._document(event, event.text(step.data), published=step.data == _DATA)
        for item in step.value:
            name, _, text = item.partition("=")
            value = first(parse(text, "query").value(document))
            event.variables[name.strip()] = b"" if value is None else text_of(value)

    @staticmethod
    def _translate(step: Do.translate, event: ActionEvent) -> None:
        given = event.text(step.data)
        pairs = dict(case.partition("=")[::2] for case in reversed(step.case))
        found = pairs.get(_utf8(given))
        if found is not None:
            event.variables[step.value] = event.text(found)
        else:
            event.variables[step.value] = given if step.default is None else event.text(step.default)

    def _found(self, step: Do.query, event: ActionEvent) -> bytes:
        """The body of the first message, row or record that a query finds, else its default."""
        filter_ = _utf8(event.text(step.filter)) if step.filter is not None else None
        keyed, query = self._keyed(), Query(filter_, list(step.order_by), 1)
        for name in self._named(step.topic, {*self._catalog.queues, *self._catalog.views, *keyed}):
            flow = sow_records(self._context, keyed[name], query) if name in keyed else sow(self._context, name, query)
            found = self._store.run(flow).messages()
            if found:
                return found[0].raw
        return event.text(step.default_data)


def _utf8(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
