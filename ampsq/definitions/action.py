"""The definition of an action: when something happens (On), and if (If), do something (Do)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import InstanceOf, PlainSerializer

from ampsq.base.errors import DefinitionError
from ampsq.base.values import ExpiryReason, is_name
from ampsq.definitions.action_parts import (
    CONDITIONS,
    STEPS,
    TRIGGERS,
    ActionStep,
    Do,
    On,
    Part,
    Reasons,
    Trigger,
    read_parts,
)
from ampsq.definitions.action_values import NONE
from ampsq.definitions.definition import Definition, Fault, Name, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Action", "DeadLetterAction"]

_WRITTEN: Final = PlainSerializer(lambda parts: [part.to_elements() for part in parts])
Triggers = Annotated[tuple[InstanceOf[Trigger], ...], _WRITTEN]
Steps = Annotated[tuple[InstanceOf[ActionStep], ...], _WRITTEN]
Conditions = Annotated[tuple[InstanceOf[Part], ...], _WRITTEN]

_PARTS: Final[Mapping[str, Mapping[str, type[Part]]]] = {"on": TRIGGERS, "if_": CONDITIONS, "do": STEPS}
_SPELLED: Final = {"if_": "if"}


class DeadLetterAction(Definition):
    """The short form of the usual action: what a queue gives up is published to a topic.

    Attributes:
        name: of the action. Default: ``dead-letter-<queue>``.
        queue: the queue whose messages expire.
        topic: the topic that they go to.
        reasons: only for these reasons. Default: all.
    """

    queue: Name
    topic: Name
    reasons: Reasons = NONE

    @classmethod
    def title(cls, elements: Mapping[str, Any]) -> str:
        """Name the action in an error text."""
        return super().title(elements).replace(cls.__name__, "Action", 1)

    @classmethod
    def _derived(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        queue = given.get("queue")
        return {"name": f"dead-letter-{queue}"} if isinstance(queue, str) and is_name(queue) else {}

    def action(self) -> Action:
        """The action that it stands for."""
        on = On.expire(topic=self.queue, reason=self.reasons)
        return Action(name=self.name, on=on, do=Do.publish(topic=self.topic))


class Action(Definition):
    """Something that a coordinator does when something happens.

    Attributes:
        name: under which the action keeps its place.
        on: what sets it off, one or several: ``expire``, ``delete``, ``deliver``, ``publish``, ``timeout``,
            ``schedule``, ``subscribe``, ``unsubscribe``, ``connect``, ``disconnect``, ``connect_replication``,
            ``disconnect_replication``, ``downgrade_replication``, ``upgrade_replication``, ``event``.
        if_: on what conditions, all of them: ``condition``, ``file_system_usage``; in files it is ``if``. One that is
            false ends the action quietly. Default: none.
        do: what is done, one after the other: ``publish``, ``query``, ``delete``, ``extract``, ``translate``,
            ``increment``, ``event``, ``echo``, ``downgrade_replication``, ``upgrade_replication``, ``execute``,
            ``webhook``. What fails stops the rest, and is tried again.
    """

    on: Triggers = ()
    if_: Conditions = ()
    do: Steps = ()

    if TYPE_CHECKING:
        # Each part may be given as a mapping, as in files, which a type checker cannot know.
        def __init__(
            self,
            *,
            name: str,
            on: Part | Mapping[str, Any] | str | Sequence[Part | Mapping[str, Any] | str],
            do: Part | Mapping[str, Any] | str | Sequence[Part | Mapping[str, Any] | str],
            if_: Part | Mapping[str, Any] | Sequence[Part | Mapping[str, Any]] = (),
        ) -> None: ...

    @classmethod
    def dead_letter(
        cls,
        queue: str,
        topic: str,
        *,
        name: str | None = None,
        reasons: tuple[ExpiryReason, ...] | list[ExpiryReason] | None = (),
    ) -> Action:
        """Make the action that keeps what a queue gives up: publish each expired message to a topic.

        Args:
            queue: the queue whose messages expire.
            topic: the topic that they go to.
            name: the action's name; default ``dead-letter-<queue>``.
            reasons: only for these reasons; default all.

        Raises:
            DefinitionError: an argument is wrong; the text lists every fault.
        """
        elements: dict[str, Any] = {"queue": queue, "topic": topic, "name": name, "reasons": reasons}
        faults = DeadLetterAction.faults(elements)
        if reasons is not None and not isinstance(reasons, list | tuple):
            faults = [fault for fault in faults if fault.element != "reasons"]
            faults.append(Fault("reasons", f"{reasons!r} is not a list; allowed: a list of names"))
        if faults:
            raise DefinitionError(report(DeadLetterAction.title(elements), faults))
        return DeadLetterAction(**elements).action()

    @property
    def topics(self) -> list[str]:
        """The topics that it publishes to, as far as they do not depend on variables."""
        return [step.topic for step in self.do if isinstance(step, Do.publish) and is_name(step.topic)]

    def elements(self) -> dict[str, Any]:
        """The name and what differs from the defaults, as files have it."""
        return {_SPELLED.get(element, element): value for element, value in super().elements().items()}

    def changes_from(self, old: Self) -> dict[str, tuple[Any, Any]]:
        """Return the differences from another definition: element -> its value there and here, as files have them."""
        return {_SPELLED.get(element, element): change for element, change in super().changes_from(old).items()}

    @classmethod
    def _fill(cls, instance: Self, elements: Mapping[str, Any]) -> list[Fault]:
        given, faults = {}, []
        for spelled, value in elements.items():
            element = "if_" if spelled == "if" else spelled
            given[element] = value
            if element in _PARTS and value is not None:
                parts, wrong = read_parts(_SPELLED.get(element, element), value, _PARTS[element])
                faults += wrong
                # What is wrong is told once: as a fault of its part.
                given[element] = tuple(parts) if parts or not wrong else None
        known = {fault.element.partition("[")[0] for fault in faults}
        found = [
            Fault(_SPELLED.get(element, element), text.replace("if_", _SPELLED["if_"]))
            for element, text in super()._fill(instance, given)
        ]
        return [fault for fault in found if fault.element not in known or fault.element not in ("on", "do")] + faults

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        on, do = given.get("on", ()), given.get("do", ())
        if not on:
            yield Fault("on", f"missing; allowed: one or several of {', '.join(TRIGGERS)}")
        if not do:
            yield Fault("do", f"missing; allowed: one or several of {', '.join(STEPS)}")
        yield from _same(on)
        for number, step in enumerate(do):
            mute = next((trigger.word for trigger in on if not trigger.has_message), None)
            if isinstance(step, Do.publish) and step.data is None and mute is not None:
                yield Fault(f"do[{number}]", f"publish: data: missing; on {mute} there is no message; allowed: a text")
            raised = [trigger.event for trigger in on if isinstance(trigger, On.event)]
            if isinstance(step, Do.event) and step.event in raised:
                yield Fault(f"do[{number}]", f"event: {step.event!r} would set the action off again, without end")


def _same(on: Sequence[Trigger]) -> Iterator[Fault]:
    """Two of the same kind about the same thing would share their place."""
    ids = [trigger.id for trigger in on]
    for number, trigger in enumerate(on):
        if trigger.id in ids[:number]:
            text = f"{trigger.word} of {trigger.about or 'the same'} is there twice; allowed: once, or two actions"
            yield Fault(f"on[{number}]", text)
