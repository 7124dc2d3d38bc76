"""The words of a message's history: why it ended, and what else is known of each event."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import count_text, interval_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["event_details", "reasons_text"]

#: Reason of the journal -> what it says.
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "forced_expire": "somebody expired it",
        "max_deliveries": "max_deliveries was reached",
        "max_cancels": "max_cancels was reached",
        "time_limit": "its life was over",
        "ring": "something entered a full ring",
        "redriven": "it was redriven",
        "retention": "its topic's retention gave it up",
    }
)


def reasons_text(reasons: Iterable[str]) -> str:
    """Say why a message ended, as a half sentence."""
    return " and ".join(_REASONS.get(reason, reason.replace("_", " ")) for reason in reasons)


def event_details(
    details: Mapping[str, object], moment: Callable[[int], str] = time_text, short: Callable[[str], str] = str
) -> str:
    """Say what is known of an event beside when, where and by whom, for people.

    Args:
        details: those of an event of a history.
        moment: writes a time, ms since 1970.
        short: cuts a text of a stranger.
    """
    texts: Mapping[str, Callable[[object], str]] = {
        "topic": lambda value: f"to topic {value}",
        "foreign": lambda _: "written without ampsq",
        "bytes": lambda value: size_text(_number(value)),
        "headers": lambda value: _headers(value, short),
        "sequence": lambda value: f"sequence {_number(value):,}",
        "expiration": lambda value: f"lives for {interval_text(_number(value))}",
        "due": lambda value: f"for {moment(_number(value))}",
        "addressed": lambda value: f"for the queue {value} alone",
        "from": lambda value: f"from {value}",
        "path": lambda value: _path(value, details.get("from")),
        "reason": lambda value: f"because {reasons_text(str(value).split(','))}",
        "consumer_reason": lambda value: f"reason given: {value}",
        "deliveries": lambda value: "1 delivery" if value == 1 else f"{_number(value):,} deliveries",
        "cancels": lambda value: count_text(_number(value), "cancel"),
        "to": lambda value: f"to instance {value}",
        "epoch": lambda value: f"its owner's change number {_number(value):,}",
        "instance": lambda value: f"at instance {value}",
        "client": lambda value: f"client {value}",
        "delivery": lambda value: f"delivery {value}",
        "until": lambda value: f"leased until {moment(_number(value))}",
    }
    return ", ".join(filter(None, (texts[name](value) for name, value in details.items() if name in texts)))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _headers(value: object, short: Callable[[str], str]) -> str:
    given = value.items() if isinstance(value, dict) else ()
    texts = (f"{short(str(name))}={short(str(one))}" for name, one in given)
    return f"with headers {', '.join(texts)}" if given else ""


def _path(value: object, first: object) -> str:
    """Name the instances that it passed, where they are more than the one that it came from."""
    hops = [str(hop) for hop in value] if isinstance(value, list) else []
    return f"by way of {', '.join(hops)}" if hops != [str(first)] else ""
