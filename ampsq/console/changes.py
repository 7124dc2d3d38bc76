"""Changes that the console offers: each with its fields, its question, and its effect.

A change is a row of `CHANGES`. A page links to its question, which says in words what will happen; only what is sent
from there does it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.formatting import count_text
from ampsq.console.lookups import browse
from ampsq.operations.groups import read_group
from ampsq.protocol.context import InstanceContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampsq.client.client import Client

__all__ = ["CHANGES", "ConsoleChange", "Given", "change_named"]

#: Name -> value of what a change is about.
Given = dict[str, str]
#: Messages that are settled in one call.
_AT_ONCE: Final = 500
#: Digits of the number of an event.
_DIGITS: Final = 18
#: Seconds that one look for messages may take.
_LOOKS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ConsoleChange:
    """One kind of change.

    Attributes:
        name: in addresses.
        title: on the button, and over the question.
        fields: what it is about: of these names, all are needed that `optional` does not have.
        asks: the question, of what is given: what will happen, for people.
        does: does it, and says what it did.
        counts: how many messages it would concern, where that can be said before; None: nothing to count.
        optional: fields that may be left out.
        counted: what is said of the messages that were counted, behind their number.
        says: fields that the question itself has, each with its label; they may be left out.
        is_grave: whether it cannot be undone.
    """

    name: str
    title: str
    fields: tuple[str, ...]
    asks: Callable[[Mapping[str, str]], str]
    does: Callable[[Client, Mapping[str, str]], str]
    counts: Callable[[Client, Mapping[str, str]], int] | None = None
    optional: tuple[str, ...] = ()
    counted: str = "now"
    says: Mapping[str, str] = field(default_factory=dict)
    is_grave: bool = False

    def given(self, form: Mapping[str, str]) -> Given:
        """Return a request's values of the change's fields.

        Raises:
            DefinitionError: something is missing.
        """
        found = {name: form[name].strip() for name in (*self.fields, *self.says) if form.get(name, "").strip()}
        missing = [name for name in self.fields if name not in found and name not in self.optional]
        if missing:
            raise DefinitionError(f"{self.title}: {', '.join(missing)} is missing; it needs {', '.join(self.fields)}")
        return found


def _settle(option: str, did: str) -> Callable[[Client, Mapping[str, str]], str]:
    def does(client: Client, given: Mapping[str, str]) -> str:
        if "bookmark" in given:
            client.ack(given["queue"], [given["bookmark"]], option, reason=given.get("reason"))
            return f"{given['bookmark']} was {did} in {given['queue']}"
        if "filter" not in given:
            raise DefinitionError(f"{did}: which messages? allowed: one of bookmark and filter")
        number = client.ack(given["queue"], option=option, filter=given["filter"], reason=given.get("reason"))
        return f"{_messages(number)} of {given['queue']} {_were(number)} {did}"

    return does


def _matching(option: str) -> Callable[[Client, Mapping[str, str]], int]:
    def counts(client: Client, given: Mapping[str, str]) -> int:
        if "filter" not in given:
            return 1
        return client.ack(given["queue"], option=option, filter=given["filter"], dry_run=True)

    return counts


def _waiting(client: Client, given: Mapping[str, str]) -> int:
    stats = client.admin.queue_stats(given["queue"])
    return stats.waiting + stats.ready + stats.held


def _present(client: Client, given: Mapping[str, str]) -> int:
    return _waiting(client, given) + client.admin.queue_stats(given["queue"]).leased


def _purge(client: Client, given: Mapping[str, str]) -> str:
    queue, reason = given["queue"], given.get("reason")
    rounds = -(-_present(client, given) // _AT_ONCE) + 1
    number = client.ack(queue, option="expire", filter="TRUE_VALUE()", reason=reason)
    # A body that is not JSON matches no filter; what comes meanwhile is not waited for.
    context, store = InstanceContext(client.instance, client.origin), client._store  # noqa: SLF001  (it has no method)
    for _ in range(rounds):
        found = store.run(browse(context, queue, None, _AT_ONCE, _LOOKS))
        rest = [row.message.bookmark for row in (*found.leased, *found.waiting) if row.message.bookmark is not None]
        if not rest:
            break
        number += client.ack(queue, rest, "expire", reason=reason)
    return f"{_messages(number)} of {queue} {_were(number)} expired"


def _redrive(client: Client, given: Mapping[str, str]) -> str:
    done = client.admin.redrive(given["queue"], given.get("filter"), given.get("bookmark"))
    where = "; ".join(f"{number} to {queue}" for queue, number in done.targets.items())
    refused = f"; {done.refused} refused: {done.refusals[0].reason}" if done.refusals else ""
    return f"{int(done)} put back{': ' if where else ''}{where}{refused}"


def _redrivable(client: Client, given: Mapping[str, str]) -> int:
    return int(client.admin.redrive(given["queue"], given.get("filter"), given.get("bookmark"), dry_run=True))


def _downgrade(client: Client, given: Mapping[str, str]) -> str:
    client.admin.downgrade_replication(given["destination"])
    return f"{given['destination']} is not waited for any more: unsafe to fail over to until it is upgraded"


def _upgrade(client: Client, given: Mapping[str, str]) -> str:
    client.admin.upgrade_replication(given["destination"])
    return f"{given['destination']} is waited for again"


def _proxy(client: Client, given: Mapping[str, str]) -> str:
    client.admin.enable_proxied_transfer(given["queue"])
    return f"{given['queue']}: messages of owners out of reach are delivered here"


def _unproxy(client: Client, given: Mapping[str, str]) -> str:
    client.admin.disable_proxied_transfer(given["queue"])
    return f"{given['queue']}: messages change owner only by their owners again"


def _release(client: Client, given: Mapping[str, str]) -> str:
    changed = client.admin.release_group(given["queue"], given["group"])
    became = "goes on" if changed else "was neither held nor stopped, nor bound"
    return f"group {given['group']} of {given['queue']} {became}"


def _pause_group(client: Client, given: Mapping[str, str]) -> str:
    changed = client.admin.pause_group(given["queue"], given["group"])
    return f"group {given['group']} of {given['queue']} {_was(changed=changed)} paused"


def _resume_group(client: Client, given: Mapping[str, str]) -> str:
    changed = client.admin.resume_group(given["queue"], given["group"])
    return f"group {given['group']} of {given['queue']} {_was(changed=changed)} resumed"


def _drop_group(client: Client, given: Mapping[str, str]) -> str:
    number = client.admin.drop_group(given["queue"], given["group"], reason=given.get("reason"))
    return f"{_messages(number)} of group {given['group']} of {given['queue']} {_were(number)} expired"


def _droppable(client: Client, given: Mapping[str, str]) -> int:
    return client.admin.drop_group(given["queue"], given["group"], dry_run=True)


def _grouped(client: Client, given: Mapping[str, str]) -> int:
    store = client._store  # noqa: SLF001  (it has no method)
    found = store.run(read_group(given["queue"], given["group"]))
    return found.waiting if found is not None else 0


def _events(given: Mapping[str, str]) -> list[int] | None:
    if "event" not in given:
        return None
    if not given["event"].isdecimal() or len(given["event"]) > _DIGITS:
        raise DefinitionError(f"event {given['event']!r}: allowed is the number of a failed event")
    return [int(given["event"])]


def _retry(client: Client, given: Mapping[str, str]) -> str:
    number = client.admin.retry_action(given["action"], _events(given))
    return f"{count_text(number, 'failed event')} of {given['action']} {'is' if number == 1 else 'are'} tried again"


def _drop(client: Client, given: Mapping[str, str]) -> str:
    number = client.admin.drop_failed(given["action"], _events(given))
    return f"{count_text(number, 'failed event')} of {given['action']} {_were(number)} dropped"


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _was(*, changed: bool) -> str:
    return "was" if changed else "had been"


def _which(given: Mapping[str, str]) -> str:
    if "bookmark" in given:
        return f"The message {given['bookmark']}"
    return f"Every message that matches {given['filter']}" if "filter" in given else "Every one of them"


_MESSAGE: Final = ("queue", "bookmark", "filter")
_ONE_OF: Final = ("bookmark", "filter")
_REASON: Final = {"reason": "The reason, shown with the message and in its dead letter (one line, may be empty)"}
_ALL: Final = (
    ConsoleChange(
        "cancel", "Cancel", _MESSAGE,
        lambda given: f"{_which(given)} is taken from the subscription that holds it, and is delivered again by "
        f"{given['queue']}. It counts as a cancel.",
        _settle("cancel", "cancelled"), _matching("cancel"), _ONE_OF, says=_REASON,
    ),
    ConsoleChange(
        "expire", "Expire", _MESSAGE,
        lambda given: f"{_which(given)} leaves {given['queue']} as expired, even if it is leased. If the queue has a "
        "dead-letter action, that publishes it.",
        _settle("expire", "expired"), _matching("expire"), _ONE_OF, says=_REASON, is_grave=True,
    ),
    ConsoleChange(
        "redrive", "Redrive", _MESSAGE,
        lambda given: f"{_which(given)} of {given['queue']} goes back to the queue that gave it up, and to no other. "
        "There is no undo.",
        _redrive, _redrivable, _ONE_OF,
    ),
    ConsoleChange(
        "purge", "Purge", ("queue",),
        lambda given: f"Every message of {given['queue']} that waits or is leased leaves it as expired, whoever holds "
        "it. If the queue has a dead-letter action, that publishes each. What is delayed or scheduled stays. There is "
        "no undo.",
        _purge, _present, counted="now, waiting or leased", says=_REASON, is_grave=True,
    ),
    ConsoleChange(
        "pause", "Pause", ("queue",),
        lambda given: f"{given['queue']} delivers nothing more on this instance until it is resumed. What is leased "
        "stays so; messages still enter.",
        lambda client, given: f"{given['queue']} {_was(changed=client.admin.pause_queue(given['queue']))} paused",
        _waiting, counted="now; what waits stays where it is",
    ),
    ConsoleChange(
        "resume", "Resume", ("queue",),
        lambda given: f"{given['queue']} delivers again.",
        lambda client, given: f"{given['queue']} {_was(changed=client.admin.resume_queue(given['queue']))} resumed",
        _waiting, counted="now, which may be delivered at once",
    ),
    ConsoleChange(
        "release-group", "Release", ("queue", "group"),
        lambda given: f"Group {given['group']} of {given['queue']} goes on: what failed, or was given up, holds it no "
        "more, and neither does its rate; it is bound to no subscription. What is leased of it stays leased, and a "
        "failed message keeps its place.",
        _release, _grouped, counted="of it now, which may be delivered",
    ),
    ConsoleChange(
        "pause-group", "Pause", ("queue", "group"),
        lambda given: f"Nothing more of group {given['group']} of {given['queue']} is delivered on this instance until "
        "it is resumed. What is leased of it stays so; messages still enter, and other groups go on.",
        _pause_group, _grouped, counted="of it now; what waits stays where it is",
    ),
    ConsoleChange(
        "resume-group", "Resume", ("queue", "group"),
        lambda given: f"Group {given['group']} of {given['queue']} goes on, unless it is stopped or on hold.",
        _resume_group, _grouped, counted="of it now, which may be delivered",
    ),
    ConsoleChange(
        "drop-group", "Drop", ("queue", "group"),
        lambda given: f"Every message of group {given['group']} of {given['queue']} that waits leaves it as expired, "
        "unread ones and those that wait for their delay, too. If the queue has a dead-letter action, that publishes "
        "each. What is leased or scheduled stays. There is no undo.",
        _drop_group, _droppable, counted="of it now", says=_REASON, is_grave=True,
    ),
    ConsoleChange(
        "downgrade", "Downgrade", ("destination",),
        lambda given: f"Publishers wait for {given['destination']} no more, and what they wait for now is let go. "
        "Until it is upgraded it may lack messages that they were told are persisted: do not fail over to it.",
        _downgrade, is_grave=True,
    ),
    ConsoleChange(
        "upgrade", "Upgrade", ("destination",),
        lambda given: f"Publishers wait for {given['destination']} again, first until it has caught up.",
        _upgrade,
    ),
    ConsoleChange(
        "enable-proxied-transfer", "Enable proxied transfer", ("queue",),
        lambda given: f"This instance delivers messages of {given['queue']} whose owners no link comes from. A message "
        "may be delivered twice. Enable it at one instance alone, and disable it when they are back.",
        _proxy, is_grave=True,
    ),
    ConsoleChange(
        "disable-proxied-transfer", "Disable proxied transfer", ("queue",),
        lambda given: f"Messages of {given['queue']} change owner only by their owners again. What was "
        "taken over stays.",
        _unproxy,
    ),
    ConsoleChange(
        "retry", "Retry", ("action", "event"),
        lambda given: f"Failed events of {given['action']} are tried again at once, from the step that failed.",
        _retry, optional=("event",),
    ),
    ConsoleChange(
        "drop", "Drop", ("action", "event"),
        lambda given: f"Failed events of {given['action']} are forgotten: the rest of their steps is never made.",
        _drop, optional=("event",), is_grave=True,
    ),
)  # fmt: skip
CHANGES: Final[Mapping[str, ConsoleChange]] = {change.name: change for change in _ALL}


def change_named(name: str) -> ConsoleChange:
    """The change of this name.

    Raises:
        DefinitionError: there is none.
    """
    if name not in CHANGES:
        raise DefinitionError(f"no change is named {name!r}; allowed: {', '.join(CHANGES)}")
    return CHANGES[name]
