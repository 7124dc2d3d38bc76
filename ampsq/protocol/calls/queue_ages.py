"""The ages of the messages of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.protocol.calls.queue_latencies import Latencies, parse_latencies
from ampsq.protocol.request import Call, script_call

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ages", "measure_ages"]


@dataclass(frozen=True, slots=True)
class Ages:
    """The ages of a queue's oldest messages, in seconds; None where there is none.

    Attributes:
        message: the oldest message that may be delivered, since it was recorded here. Of a queue with priorities: of
            the next hundred, and the oldest of the least priority.
        leased: the oldest leased message, since it was recorded here.
        lease: the oldest lease, since it was made or last extended; None where leases never lapse. Of more than a
            thousand leases both are of a thousand, by chance.
        deferred: not an age: what other instances told of messages of the queue's topics that are not here yet.
        proxied: not an age: whether this instance may act for owners out of reach.
        latencies: not an age: what some of its messages took since the queue was defined; None: nothing was measured.
    """

    message: float | None
    leased: float | None
    lease: float | None
    deferred: int
    proxied: bool
    latencies: Latencies | None = None

    @classmethod
    def merged(cls, parts: Sequence[Ages]) -> Ages:
        """Return those of a queue of all partitions, of those of each: the oldest of any."""

        def oldest(field: str) -> float | None:
            return max((age for part in parts if (age := getattr(part, field)) is not None), default=None)

        measured = [part.latencies for part in parts if part.latencies is not None]
        return cls(
            oldest("message"), oldest("leased"), oldest("lease"), sum(part.deferred for part in parts),
            any(part.proxied for part in parts), Latencies.merged(measured) if measured else None,
        )  # fmt: skip

    @property
    def behind(self) -> float:
        """The oldest message that is not settled; 0 where there is none: AMPS's ``seconds_behind``."""
        return max(self.message or 0.0, self.leased or 0.0)


def measure_ages(queue: str) -> Call[Ages]:
    """Read how old the oldest of a queue's messages and leases are."""

    def read(reply: tuple[bytes, bytes, bytes, bytes, int, int, bytes]) -> Ages:
        now, *moments = (int(value) if value else None for value in reply[:4])
        message, leased, lease = (None if ms is None else max((now or 0) - ms, 0) / 1000 for ms in moments)
        latencies = parse_latencies(reply[6].decode())[1] if reply[6] else None
        return Ages(message, leased, lease, reply[4], bool(reply[5]), latencies)

    return script_call("measure_ages", ["", queue], read, repeatable=True)
