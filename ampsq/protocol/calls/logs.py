"""The call that measures the logs of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.request import Call, script_call

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LogFigures", "measure_logs"]


class LogFigures(NamedTuple):
    """A log in figures.

    Attributes:
        length: entries that it has.
        added: entries that were ever added to it.
        bytes: its memory, about.
        first: ID of its first entry; "" of an empty log.
        first_source: where the message of that entry was published, ``<origin>~<id>``; "" of one published here.
        last: ID of its last entry.
        last_source: where that message was published.
    """

    length: int
    added: int
    bytes: int
    first: str
    first_source: str
    last: str
    last_source: str


def measure_logs(topics: Sequence[str]) -> Call[list[LogFigures]]:
    """Measure the log of each topic, in the order given; one without a log has zeros. No body is sent."""

    def read(reply: list[tuple[int, int, int, bytes, bytes, bytes, bytes]]) -> list[LogFigures]:
        return [_read(*each) for each in reply]

    return script_call("measure_logs", topics, read, repeatable=True)


def _read(length: int, added: int, size: int, *texts: bytes) -> LogFigures:
    first, first_source, last, last_source = (text.decode() for text in texts)
    return LogFigures(length, added, size, first, first_source, last, last_source)
