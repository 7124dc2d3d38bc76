"""The places that destinations have been sent, and the destinations whose acknowledgement makes a message persisted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.base.log_positions import id_text, parse_id
from ampsq.protocol.replies import last_id, names, streams, text, texts
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from ampsq.base.log_positions import Id
    from ampsq.protocol.replies import RawHash, RawStreams
    from ampsq.protocol.request import Call

__all__ = [
    "SentPositions",
    "await_news",
    "has_sync",
    "news_end",
    "read_destination_names",
    "read_peer",
    "read_sent",
    "read_sync",
]


@dataclass(frozen=True, slots=True)
class SentPositions:
    """Up to where a destination has what it is sent.

    Attributes:
        peer: its origin, as it said; "" where it never did.
        logs: topic, with an ``@`` and an origin of which it has copies there -> the last ID.
    """

    peer: str
    logs: dict[str, Id]


def read_destination_names(instance: str) -> Call[list[str]]:
    """Read the names of an instance's destinations."""
    return command(["HKEYS", key(instance, "destinations")], names)


def read_sent(instance: str, destination: str) -> Call[SentPositions]:
    """Read up to where a destination has an instance's logs."""
    return command(["HGETALL", key(instance, "sent", destination)], _read_sent)


def _read_sent(reply: RawHash) -> SentPositions:
    known = texts(reply)
    logs = {name[4:]: parse_id(place) for name, place in known.items() if name.startswith("log ")}
    return SentPositions(known.get(FIELDS["peer"], ""), logs)


def read_peer(instance: str, destination: str) -> Call[str]:
    """Read the origin of the instance that a destination led to last; "" where it never did."""
    return command(["HGET", key(instance, "sent", destination), FIELDS["peer"]], text)


def read_sync(instance: str) -> Call[dict[str, int | None]]:
    """Read the sync destinations, each with the time, ms, since when it is downgraded; None: it is waited for."""
    return command(
        ["HGETALL", key(instance, "sync")],
        lambda reply: {name: int(since) if since else None for name, since in texts(reply).items()},
    )


def has_sync(instance: str) -> Call[bool]:
    """Ask whether an instance has any sync destination."""
    return command(["EXISTS", key(instance, "sync")], bool)


def news_end(instance: str) -> Call[str]:
    """Read the ID of the last news of sync destinations, behind which `await_news` waits."""
    asked: list[str | int] = ["XREVRANGE", key(instance, "confirmed"), "+", "-", "COUNT", 1]
    return command(asked, lambda reply: id_text(last_id(reply)))


def await_news(instance: str, after: str, period: int) -> Call[str]:
    """Wait `period` ms at most for news of sync destinations behind an ID; gives the last one's, "" where none came."""
    asked: list[str | int] = ["XREAD", "BLOCK", period, "STREAMS", key(instance, "confirmed"), after]
    return command(asked, _last_news, blocks=period / 1000)


def _last_news(reply: RawStreams) -> str:
    entries = next(iter(streams(reply).values()), None)
    return entries[-1][0].decode() if entries else ""
