"""The calls of those who publish: messages, and the sessions of publishers with a name.

See `ampsq.protocol.calls.queues`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampsq.base.bookmarks import Bookmark
from ampsq.protocol.request import Call, CallParts, script_call
from ampsq.protocol.scripts import script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

__all__ = [
    "DeliveryOptions",
    "LoggedOn",
    "Published",
    "confirm",
    "logoff",
    "logon",
    "pack_messages",
    "publish",
    "publish_logged_on",
    "publish_once",
]


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Lifetime, due time and group of messages.

    Attributes:
        group: its name, b"" for what queues say.
        expiration: ms, or None.
        delay: ms from when they are recorded on, or None.
        due: ms by the server's clock, or None; `delay` and `due` exclude each other.
    """

    expiration: int | None = None
    delay: int | None = None
    due: int | None = None
    group: bytes = b""

    def columns(self, number: int) -> list[tuple[str, list[bytes]]]:
        """For each letter of a publish, its value for that many messages."""
        columns = []
        if self.expiration is not None:
            columns.append(("e", [b"%d" % self.expiration] * number))
        if self.delay is not None or self.due is not None:
            due = b"+%d" % self.delay if self.delay is not None else b"%d" % (self.due or 0)
            columns.append(("d", [due] * number))
        if self.group:
            columns.append(("g", [self.group] * number))
        return columns


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a batch: duplicates come first (the bookmark of each, or None), then a run of new IDs.

    Attributes:
        rest: where it was made in several calls, what became of the later ones, in order.
    """

    topic: str
    duplicates: list[Bookmark | None]
    first_id: str
    number: int
    rest: tuple[Published, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Published]) -> Published:
        """Join the outcomes of the calls in which a batch was made."""
        flat = [each for part in parts for each in part.parts]
        return replace(flat[0], rest=tuple(flat[1:]))

    @property
    def parts(self) -> list[Published]:
        """The outcome of each call in which the batch was made."""
        return [replace(self, rest=()), *self.rest] if self.rest else [self]


@dataclass(frozen=True, slots=True)
class LoggedOn:
    """A publisher's session, and where the publisher stands.

    Attributes:
        session: its number; a later logon has a higher one.
        last: the sequence recorded last; 0 for none.
        topic, stream_id: where that message is; empty without one.
        reached: up to where all is recorded from the session's first sequence on. Where instances replicate, others may
            have brought what lies beyond.
    """

    session: int
    last: int
    topic: str
    stream_id: str
    reached: int


def _read_published(reply: tuple[bytes, bytes, bytes, int, *tuple[bytes | None, ...]]) -> Published:
    duplicates = [Bookmark(text.decode()) if text else None for text in reply[4:]]
    return Published(reply[0].decode(), duplicates, reply[2].decode(), int(reply[3]))


def publish(
    topic: str,
    bodies: Sequence[bytes],
    headers: Sequence[bytes],
    publisher: str,
    sequence: int,
    *,
    options: DeliveryOptions | None = None,
    delta: bool = False,
) -> Call[Published]:
    """Record messages; without a publisher a repeat would record them twice.

    Args:
        topic: the topic or the queue.
        bodies: one a message.
        headers: empty, or one a body.
        publisher: its name, or "".
        sequence: of the first message.
        options: how long all of them live, when they are due, and their group.
        delta: the bodies are merged into the records of their keys, where the topic has a key.
    """

    def cut(most: int) -> list[Call[Published]]:
        return [
            publish(
                topic,
                bodies[i : i + most],
                headers[i : i + most],
                publisher,
                sequence + i,
                options=options,
                delta=delta,
            )
            for i in range(0, len(bodies), most)
        ]

    shape: str = "m" if delta else "b"
    values = bodies
    if headers or options is not None:
        shape, values = pack_messages(bodies, headers, options, delta=delta)
    arguments: list[EncodableT] = ["", topic, publisher, sequence if publisher else "", shape, *values]
    parts = CallParts(cut, Published.joined) if len(bodies) > 1 else None
    return Call(script("publish"), arguments, _read_published, bool(publisher), parts=parts)


def publish_once(
    topic: str,
    bodies: Sequence[bytes],
    headers: Sequence[bytes],
    ids: Sequence[str],
    window: int,
    *,
    options: DeliveryOptions | None = None,
) -> Call[Published]:
    """Record those messages whose IDs were not published to the topic within their windows.

    Args:
        topic: the topic or the queue.
        bodies: one a message.
        headers: empty, or one a body.
        ids: one a body, "" for none.
        window: for how long the IDs of what is recorded are known, ms.
        options: how long all of them live, when they are due, and their group.
    """

    def cut(most: int) -> list[Call[Published]]:
        return [
            publish_once(topic, bodies[i : i + most], headers[i : i + most], ids[i : i + most], window, options=options)
            for i in range(0, len(bodies), most)
        ]

    shape, values = pack_messages(bodies, headers, options)
    arguments: list[EncodableT] = ["", topic, window, shape, len(bodies), *ids, *values]
    parts = CallParts(cut, Published.joined) if len(bodies) > 1 else None
    return Call(script("publish_once"), arguments, _read_published_once, parts=parts)


def _read_published_once(reply: list[bytes]) -> Published:
    """Read runs of duplicates, each with the run of new IDs behind it."""
    topic, first = reply[0].decode(), reply[1].decode()
    stamp, _, sequence = first.partition("-")
    runs: list[Published] = []
    duplicates: list[Bookmark | None] = []
    recorded = number = 0
    for text in [*reply[2:], None]:
        if text and not number:
            duplicates.append(Bookmark(text.decode()))
        elif text == b"":
            number += 1
        else:
            first_id = f"{stamp}-{int(sequence) + recorded}" if number else ""
            runs.append(Published(topic, duplicates, first_id, number))
            recorded, number = recorded + number, 0
            duplicates = [Bookmark(text.decode())] if text else []
    return Published.joined(runs)


def pack_messages(
    bodies: Sequence[bytes], headers: Sequence[bytes], options: DeliveryOptions | None, *, delta: bool = False
) -> tuple[str, Sequence[bytes]]:
    """The shape and the values of a publish: a letter for each value of a message, and all values in turn."""
    shape, columns = "m" if delta else "b", [bodies]
    for letter, column in (("h", headers), *(options.columns(len(bodies)) if options else ())):
        if column:
            shape += letter
            columns.append(column)
    return shape, bodies if len(columns) == 1 else [value for row in zip(*columns, strict=True) for value in row]


def publish_logged_on(publisher: str, session: int, sequence: int, arguments: Sequence[EncodableT]) -> Call[Published]:
    """Record messages of a publisher that is logged on; `arguments`: topic, shape and values."""
    topic, *rest = arguments
    return script_call(
        "publish", ["", topic, publisher, f"{session} {sequence}", *rest], _read_published, repeatable=True
    )


def logon(publisher: str, client: str, first: int, answered: int | None, former: int = 0) -> Call[LoggedOn]:
    """Open a publisher's session.

    Args:
        publisher: its name.
        client: the client's name.
        first: the least sequence that it will send.
        answered: of a client that was logged on before, the last sequence that it was told is recorded: where another
            client took the name meanwhile, that one keeps it. None: the first time.
        former: the number of its session then.
    """

    def read(reply: list[bytes]) -> LoggedOn:
        stream_id, _, topic = reply[2].decode().partition(" ")
        return LoggedOn(int(reply[0]), int(reply[1]), topic, stream_id, int(reply[3]))

    told = "" if answered is None else answered
    return script_call("logon", ["", publisher, client, first, told, former or ""], read, repeatable=True)


def logoff(publisher: str, session: int) -> Call[bool]:
    """End a publisher's session; False when it was ended before."""
    return script_call("logoff", [publisher, session], bool, repeatable=True)


def confirm(publisher: str, session: int, sequence: int) -> Call[bool]:
    """Write that a session has recorded all up to a sequence, so that the connection can wait for this write."""
    return script_call("confirm_sequence", ["", publisher, session, sequence], bool, repeatable=True)
