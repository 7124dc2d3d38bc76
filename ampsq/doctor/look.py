"""The facts that are judged, read in one go, and what a judgement is."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ampsq.administration.figures import read_figures
from ampsq.connections.server import configuration, information
from ampsq.definitions.action_parts import Do, On
from ampsq.errors import AmpsqError
from ampsq.flow import command
from ampsq.schema import FIELDS, key
from ampsq.topics.retention import read_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.typing import EncodableT

    from ampsq.administration.figures import Figures
    from ampsq.connections.channels import Channel
    from ampsq.flow import Flow

__all__ = ["LETTERS", "RECENT", "Finding", "Glance", "Look", "dead_letter_topics", "glance", "life_sign", "look"]

#: Round trips that are timed.
_PINGS: Final = 5
#: Entries of the timetable that are read, those that are due first.
_TIMETABLE: Final = 100
#: Milliseconds for which a dead letter counts as a new one, and most of them that are counted for each topic.
RECENT: Final = 3_600_000
LETTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says of one thing.

    Attributes:
        check: what was looked at, as in ``persistence``; docs/cli.md lists all.
        subject: whose: ``server``, ``coordinator``, or a kind and a name, as in ``queue work``.
        well: nothing is to be done.
        text: how it stands.
        why: why it matters; empty where all is well.
        mend: the command that mends it, or shows more; empty where all is well.
    """

    check: str
    subject: str
    well: bool
    text: str
    why: str = ""
    mend: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Glance:
    """What is looked at twice, since it tells something by what becomes of it.

    Attributes:
        sign: the life sign of coordinators, another one a moment later if one is at work.
        figures: queues, links and actions.
    """

    sign: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Look:
    """An instance and its server at one moment.

    Attributes:
        now: the server's clock, ms.
        ahead: how far that is before the clock of this machine, ms; half a round trip is taken into account.
        latency: how long a round trip took, the median of five, ms.
        clock: the time of the last message, ms by the server's clock when it was recorded; 0: none.
        server: what ``INFO`` says.
        settings: of the server's, those that matter; empty where nobody may ask.
        seen: what is looked at twice.
        late: what is due and since when, ms: `<kind> <name> ...` of the timetable.
        keepers: view, `link <destination>`, `action:<action>` -> until when a coordinator has promised to keep it, ms.
        topics: as of `Client.topics`.
        letters: topic of dead letters -> how many of the last hour it has, `LETTERS` at most.
    """

    now: int
    ahead: float
    latency: float
    clock: int
    server: Mapping[str, str]
    settings: Mapping[str, str]
    seen: Glance
    late: Mapping[str, int]
    keepers: Mapping[str, int]
    topics: Mapping[str, Mapping[str, Any]]
    letters: Mapping[str, int]


def life_sign(instance: str) -> Flow[str]:
    """Read the life sign of coordinators; empty where none was ever at work."""
    asked = ["HGET", key(instance, "instance"), FIELDS["attended"]]
    sign: str = yield command(asked, lambda reply: (reply or b"").decode())
    return sign


def glance(instance: str, channel: Channel) -> Flow[Glance]:
    """Read what is looked at twice; arguments as of `look`."""
    sign = yield from life_sign(instance)
    return Glance(sign, (yield from read_figures(instance, channel)))


def look(instance: str, origin: str, channel: Channel) -> Flow[Look]:
    """Read all facts; nothing is changed.

    Args:
        instance: its name.
        origin: as bookmarks have it.
        channel: for calls on their way together, of the store that runs this.
    """
    now, ahead, latency = yield from _timed()
    server = yield information()
    try:
        settings: Mapping[str, str] = yield configuration()
    except AmpsqError:
        # Hosted servers do not let everybody ask.
        settings = {}
    clock = yield command(["GET", key(instance, "clock")], lambda reply: int(reply.split(b"-")[0]) if reply else 0)
    asked: list[EncodableT] = [
        "ZRANGE",
        key(instance, "due"),
        "-inf",
        now,
        "BYSCORE",
        "LIMIT",
        0,
        _TIMETABLE,
        "WITHSCORES",
    ]
    late = yield command(asked, lambda reply: {member: int(float(at)) for member, at in _pairs(reply)})
    keepers = yield command(
        ["HGETALL", key(instance, "keepers")],
        lambda reply: {name: int(text.split(" ")[-1]) for name, text in _pairs(reply)},
    )
    seen = yield from glance(instance, channel)
    letters = {}
    for topic in dead_letter_topics(seen.figures):
        asked = ["XRANGE", key(instance, "log", topic), now - RECENT, "+", "COUNT", LETTERS]
        letters[topic] = yield command(asked, len)
    topics = yield from read_topics(instance, origin)
    return Look(now, ahead, latency, clock, server, settings, seen, late, keepers, topics, letters)


def dead_letter_topics(figures: Figures) -> list[str]:
    """The topics to which actions publish what queues give up."""
    return sorted(
        {
            step.topic
            for action in figures.actions.values()
            if any(isinstance(trigger, On.expire) for trigger in action.definition.on)
            for step in action.definition.do
            if isinstance(step, Do.publish) and "{{" not in step.topic
        }
    )


def _timed() -> Flow[tuple[int, float, float]]:
    """The server's clock, how far it is before ours, and what a round trip takes; all ms."""
    rounds = []
    for _ in range(_PINGS):
        began, ours = time.perf_counter(), time.time()
        now = yield command(["TIME"], lambda reply: int(reply[0]) * 1000 + int(reply[1]) / 1000)
        took = (time.perf_counter() - began) * 1000
        rounds.append((took, now, now - (ours * 1000 + took / 2)))
    rounds.sort()
    # The shortest round trip says most about the clock.
    return int(max(now for _, now, _ in rounds)), rounds[0][2], rounds[_PINGS // 2][0]


def _pairs(reply: list[bytes]) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in zip(reply[::2], reply[1::2], strict=True)]
