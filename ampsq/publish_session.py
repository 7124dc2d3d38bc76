"""One session of a guaranteed publisher: two connections, from a logon to the first failure.

On the first, calls are sent ahead in their order; a gap is refused by the server, so whatever fails, all behind it
fails too and is sent again by the next session. The second one waits for what is persisted, so that publishing does
not: it writes, once the calls are answered, and the server holds its answer back until that write is where it must be.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ampsq import publish_calls, record_calls
from ampsq.errors import AmpsqError
from ampsq.flow import command
from ampsq.persisted import WAIT_MS
from ampsq.schema import BATCH, BYTES
from ampsq.server import examine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.flow import Call
    from ampsq.persisted import Persisted
    from ampsq.publish_store import Entry, PublishStore
    from ampsq.store import Store

__all__ = ["Identity", "PublishSession", "Refused", "Run"]

#: Calls that are sent before the first one's reply is read.
_AHEAD: Final = 4
#: What a kind of entry becomes: publisher, session, sequence and arguments to a call.
_CALLS: Final[Mapping[str, Callable[[str, int, int, Sequence[Any]], Call[Any]]]] = {
    "publish": publish_calls.publish_logged_on,
    "sow_delete": record_calls.sow_delete_logged_on,
}


class Identity(NamedTuple):
    """Who publishes: the publisher's name and the client's."""

    publisher: str
    client: str


class Run(NamedTuple):
    """Entries that follow each other and travel in one call.

    Attributes:
        entry: all of them as one.
        call: what is sent.
    """

    entry: Entry
    call: Call[Any]


class Refused(AmpsqError):
    """The server refused a run; `error` says why, and nothing behind it was done."""

    def __init__(self, entry: Entry, error: AmpsqError) -> None:
        super().__init__(str(error))
        self.entry, self.error = entry, error


class PublishSession:
    """Opened by `log_on`, used by one thread that sends and one that confirms; each has its own connection.

    Args:
        store: opens the connections.
        kept: what is to be sent.
        level: what persisted means.

    Attributes:
        number: given by the server; a later logon ends this one.
        sent: the last sequence that was sent.
        answered: the last one that the server recorded.
        lacking: why the last wait for persistence was not over; empty when it was.
    """

    def __init__(self, store: Store, identity: Identity, kept: PublishStore, level: Persisted) -> None:
        self._store, self._identity, self._kept, self._level = store, identity, kept, level
        self._sending, self._confirming = store.pinned(), store.pinned()
        self._in_flight: deque[Run] = deque()
        self._wait: list[str | int] | None = None
        self.number = self.sent = self.answered = 0
        self.lacking = ""

    def log_on(self, first: int, answered: int | None) -> publish_calls.LoggedOn:
        """Begin: learn what the server can prove and has recorded.

        Args:
            first: the least sequence that is going to be sent.
            answered: the last sequence that a former session of this client was told is recorded; None without one.

        Raises:
            ServerUnsuitable: this server cannot reach the level. NameInUse: another client took the name meanwhile.
            Unavailable: there is no server.
        """
        # A server that still loads its data answers INFO, and wrongly: PING is refused.
        self._sending.ask(command(["PING"], bool))
        self._wait = self._level.wait(self._store.run(examine()))
        self._sending.load("logon", *_CALLS)
        if self._wait:
            self._confirming.load("confirm")
        # On the connection that sends: what it writes here is behind everything that an earlier session recorded.
        found = self._sending.ask(publish_calls.logon(*self._identity, first, answered))
        self.number = found.session
        self.sent = self.answered = max(first - 1, min(found.last, self._kept.last))
        return found

    @property
    def in_flight(self) -> int:
        """Calls that are sent and not answered."""
        return len(self._in_flight)

    def fill(self, single_until: int) -> None:
        """Send what is there, as far as calls may be in flight; up to `single_until` one message a call."""
        while len(self._in_flight) < _AHEAD and self._kept.last > self.sent:
            run = self._next_run(single_until)
            if run is None:
                return
            self._sending.post(run.call)
            self._in_flight.append(run)
            self.sent = run.entry.last

    def collect(self) -> None:
        """Read the reply of the earliest call.

        Raises:
            Refused: the server refused it. Unavailable: nobody knows what became of it.
        """
        run = self._in_flight.popleft()
        try:
            self._sending.collect()
        except ConnectionError:
            raise
        except AmpsqError as error:
            raise Refused(run.entry, error) from error
        self.answered = run.entry.last

    def _next_run(self, single_until: int) -> Run | None:
        entries = self._kept.read(self.sent, BATCH)
        if not entries:
            return None
        first = entries[0].part(self.sent + 1, entries[0].last)
        if first.sequence <= single_until:
            return self._run(first.part(first.sequence, first.sequence))
        arguments, last, size = list(first.arguments), first.last, first.size
        for entry in entries[1:]:
            size += entry.size
            if (
                first.kind != "publish"
                or (entry.kind, entry.arguments[:2]) != (first.kind, first.arguments[:2])
                or entry.last - first.sequence >= BATCH
                or size > BYTES
            ):
                break
            arguments += entry.arguments[2:]
            last = entry.last
        return self._run(first._replace(number=last - first.sequence + 1, arguments=arguments))

    def _run(self, entry: Entry) -> Run:
        call = _CALLS[entry.kind](self._identity.publisher, self.number, entry.sequence, entry.arguments)
        return Run(entry, call)

    def is_persisted(self, sequence: int) -> bool:
        """Wait about a second until all up to an answered sequence is persisted; whether it is.

        Raises:
            Rejected: the server does not have it any more, or another client logged on. Unavailable: no answer.
        """
        if self._wait is None:
            return True
        self._confirming.ask(publish_calls.confirm(self._identity.publisher, self.number, sequence))
        reply = self._confirming.ask(command(self._wait, lambda reply: reply, blocks=WAIT_MS / 1000))
        reached = self._level.is_reached(reply)
        self.lacking = "" if reached else self._level.lacking(reply)
        return reached

    def log_off(self) -> None:
        """End the session in order, so that anybody may use the name."""
        self._store.call(publish_calls.logoff(self._identity.publisher, self.number))

    def stop_sending(self) -> None:
        """Close the connection that sends; by its thread."""
        self._sending.close()

    def stop_confirming(self) -> None:
        """Close the connection that confirms; by its thread."""
        self._confirming.close()
