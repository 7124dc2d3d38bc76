"""A reader whose log is kept for it within limits: beyond them its messages go to a spool, or it is disconnected.

The consumer reads as ever. A thread of its client (`ampsq.topics.reader_reports`) measures and reports; when it is told
to, it reads on in the consumer's place, into the spool, and the consumer reads from that until nothing is left there.
One of the two has the reader at any time, so that each message is met once, in order.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.errors import SlowClient, Unavailable
from ampsq.base.log_positions import FIRST
from ampsq.protocol.calls import readers as reader_calls
from ampsq.protocol.calls.readers import Report
from ampsq.protocol.request import Collect, Pause
from ampsq.topics.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.base.log_positions import Id, LogSpan
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.calls.readers import ReaderOrder
    from ampsq.protocol.request import AnyPipeline, Flow
    from ampsq.topics.merge import Entry
    from ampsq.topics.replay import LogReader

__all__ = ["Consumer", "LimitedReader", "has_limits", "spool_folder"]

_log = logging.getLogger("ampsq")
#: Seconds for which a reader that saw the end of its logs counts as being there.
_RECENT: Final = 1.5
#: Seconds after which it is looked again whether the other one is done with the reader, and of waiting for it in a row.
_SHORT: Final = 0.002
_LOCK_TIMEOUT: Final = 2.0
#: Seconds after which logs are held from a later place on while their messages go to the spool.
_HOLD: Final = 1.0
#: Topics whose logs are measured in one call.
_TOGETHER: Final = 100


class Consumer(Protocol):
    """A receiver for whom a reader reads."""

    def backlog(self) -> tuple[int, int]:
        """Bytes that were read and not handed out, about, and when the earliest was recorded, ms; 0: there are none."""

    def refuse(self) -> None:
        """Hand out nothing more, since it was disconnected."""


def has_limits(transports: dict[str, str]) -> bool:
    """Return whether any of the transports, JSON by name, limits anything."""
    return any(json.loads(text).keys() - {"name", "message_disk_path"} for text in transports.values())


def spool_folder(transports: dict[str, str], transport: str) -> str | None:
    """Return the folder where the clients of a transport spool; None: their temporary directory."""
    found: list[str | None] = [
        json.loads(transports.get(name, "{}")).get("message_disk_path") for name in (transport, "*")
    ]
    return found[0] or found[1]


class LimitedReader:
    """See `LogReader`, whose part it plays.

    Args:
        reader: that reads; it was opened.
        consumer: for whom.
        name: of what is read, for errors.
        id: its name for others.
        is_durable: what is not handled must stay in the log: nothing is spooled.
        on_close: called when it is closed.

    Attributes:
        refusal: why it was disconnected, if it was.
    """

    def __init__(
        self,
        reader: LogReader,
        consumer: Consumer,
        *,
        name: str,
        id: str,  # noqa: A002  (of a subscription)
        is_durable: bool,
        on_close: Callable[[LimitedReader], None],
    ) -> None:
        self._reader, self._consumer, self.name, self.id = reader, consumer, name, id
        self._is_durable, self._on_close = is_durable, on_close
        self.refusal: SlowClient | None = None
        # Whoever reads has it: the consumer, or the thread.
        self._having = threading.Lock()
        self._spool: Spool | None = None
        self._is_live = self._is_stale = self._is_closed = False
        self._reads_now = False
        self._ended = self._held = float("-inf")
        # By topic: entries that were added to its log up to where it was first read.
        self._base: dict[str, int] = {}

    # -- what the consumer needs of a reader

    @property
    def completed(self) -> bool:
        """Return whether all ranges were read to their ends."""
        return self._reader.completed and (self._spool is None or self._spool.is_empty)

    @property
    def missed(self) -> set[str]:
        """See `LogReader`."""
        return self._reader.missed

    @property
    def types(self) -> dict[str, MessageType]:
        """See `LogReader`."""
        return self._reader.types

    @property
    def is_behind(self) -> bool:
        """Return whether there was already more than the last page had."""
        return self._reader.is_behind if self._spool is None else not self._spool.is_empty

    @property
    def is_hold_due(self) -> bool:
        """Return whether it is time to hold the logs again."""
        return self.refusal is None and self._reader.is_hold_due

    @property
    def transports(self) -> dict[str, str]:
        """The transports that are defined."""
        return self._reader.transports

    @property
    def size(self) -> int:
        """Bytes of an entry, about."""
        return self._reader.size

    def places(self) -> dict[str, Id]:
        """See `LogReader`."""
        return self._reader.places()

    @property
    def holds(self) -> bool:
        """See `LogReader`."""
        return self._reader.holds

    @holds.setter
    def holds(self, holds: bool) -> None:
        self._reader.holds = holds

    @property
    def floor(self) -> Id:
        """See `LogReader`."""
        return self._reader.floor

    @property
    def settled(self) -> Id:
        """See `LogReader`."""
        return self._reader.settled

    @property
    def log_keys(self) -> list[str]:
        """See `LogReader.log_keys`."""
        return self._reader.log_keys

    @property
    def is_at_end(self) -> bool:
        """See `LogReader.is_at_end`."""
        return self._reader.is_at_end and (self._spool is None or self._spool.is_empty)

    @property
    def number(self) -> int:
        """See `LogReader`."""
        return self._reader.number

    def spans(self) -> dict[str, list[LogSpan]]:
        """See `LogReader`."""
        return self._reader.spans()

    async def hold(self, pipeline: AnyPipeline) -> None:
        """See `LogReader`."""
        await self._reader.hold(pipeline)

    async def read(self, pipeline: AnyPipeline, wait: float = 0.0) -> list[Entry]:
        """The next entries, of the spool while that has some.

        Raises:
            SlowClient: it was disconnected. And what `LogReader.read` raises.
        """
        if self.refusal is not None:
            raise self.refusal
        if self._spool is not None and (page := self._spool.read()):
            return page
        if not self._having.acquire(blocking=False):
            # The thread reads a page, which may be the next one.
            await Pause(_SHORT)
            return []
        try:
            if self._spool is not None:
                if page := self._spool.read():
                    return page
                self._spool.close()
                self._spool = None
                self._reader.abandon()
            await self._discard(pipeline)
            self._reads_now = True
            entries = await self._reader.read(pipeline, wait)
            if not self._reader.is_behind:
                self._ended = time.monotonic()
            return entries
        finally:
            self._reads_now = False
            self._having.release()

    async def _discard(self, pipeline: AnyPipeline) -> None:
        """Take in the replies of pages that were asked for ahead, and that the thread has read in their place."""
        while self._is_stale and pipeline.open_calls:
            try:
                await Collect(pipeline)
            except Unavailable:
                break
        self._is_stale = False

    async def read_ahead(self, pipeline: AnyPipeline) -> None:
        """See `LogReader`."""
        if self._spool is None and self._having.acquire(blocking=False):
            try:
                # It may have come since.
                if self._spool is None and not self._is_stale:
                    await self._reader.read_ahead(pipeline)
            finally:
                self._having.release()

    async def close(self, pipeline: AnyPipeline) -> None:
        """Let the logs go, remove the spool, and do not count any more."""
        await self._end(self._reader.close(pipeline))

    async def close_keeping_logs(self, pipeline: AnyPipeline) -> None:
        """The same, with the logs held as long as for a reader that died, unless it was disconnected."""
        await self._end((self._reader.close_keeping_logs if self.refusal is None else self._reader.close)(pipeline))

    async def _end(self, letting_go: Flow[None]) -> None:
        self._is_closed = True
        self._on_close(self)
        until = time.monotonic() + _LOCK_TIMEOUT
        while not self._having.acquire(blocking=False) and time.monotonic() < until:
            await Pause(_SHORT)
        self._drop_spool()
        await letting_go
        await reader_calls.leave_report(self.id)

    def desert(self) -> None:
        """End, since the instance is out of reach: what is in the spool is read elsewhere."""
        self._is_closed = True
        self._on_close(self)
        if self._having.acquire(timeout=_LOCK_TIMEOUT):
            self._drop_spool()
            self._having.release()

    @property
    def is_closed(self) -> bool:
        """Return whether it ended, and must not be told of any more."""
        return self._is_closed

    def _drop_spool(self) -> None:
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()

    # -- what the thread does

    @property
    def is_offline(self) -> bool:
        """Return whether its messages go to the spool."""
        return self._spool is not None and self.refusal is None and not self._is_closed

    async def measure(self) -> Report:
        """Find what it uses."""
        waiting, oldest = self._consumer.backlog()
        behind, first = await self._measure_logs()
        spool = self._spool
        spooled = spool.size if spool is not None else 0
        oldest = oldest or (spool.oldest if spool is not None else 0) or first
        state = "online" if self._is_live else "replaying"
        if self._is_live and (spool is not None or self._is_durable):
            state = "offline" if spool is not None else "durable"
        return Report(state, behind + waiting, spooled, oldest)

    async def _measure_logs(self) -> tuple[int, int]:
        """Bytes of the logs behind what was read, about, and when the earliest of them was recorded, ms."""
        is_near = self._reads_now or time.monotonic() < self._ended + _RECENT
        if self._is_live and is_near and self._spool is None and not self._reader.is_behind:
            return 0, 0
        behind, firsts, is_at_end = 0, [], True
        places = list(self._reader.cursors().items())
        for start in range(0, len(places), _TOGETHER):
            some = places[start : start + _TOGETHER]
            lags = await reader_calls.lag([(topic, cursor) for topic, (cursor, _) in some])
            for (topic, (cursor, count)), log in zip(some, lags, strict=True):
                if cursor >= log.last or log.first is None:
                    self._base[topic] = log.added - count
                    continue
                is_at_end = False
                # At least what is known to be there.
                behind += max(log.added - self._base.get(topic, 0) - count, 1) * log.size
                firsts.append(log.first)
        # Who has been at the end once is no replay any more.
        self._is_live = self._is_live or is_at_end
        return behind, min(firsts, default=FIRST)[0]

    def obey(self, order: ReaderOrder, folder: str | None) -> None:
        """Do what it was told.

        Args:
            order: what.
            folder: where a spool goes.
        """
        if order.word == "offline" and self._spool is None:
            self._go_offline(folder)
        elif order.word == "disconnect":
            self._disconnect(SlowClient(self.name, order.reason, order.used, order.limit))

    def _go_offline(self, folder: str | None) -> None:
        try:
            spool = Spool(folder)
        except OSError as error:
            _log.warning("no spool in %s (%s); taking the temporary directory", folder, error)
            spool = Spool()
        if not self._having.acquire(timeout=_LOCK_TIMEOUT):
            # The consumer waits for messages: it is not slow any more.
            spool.close()
            return
        try:
            self._reader.abandon()
            self._is_stale, self._spool = True, spool
        finally:
            self._having.release()
        _log.info("subscription to %r: behind, its messages go to disk", self.name)

    def _disconnect(self, refusal: SlowClient) -> None:
        _log.warning("%s", refusal)
        self.refusal = refusal
        self._consumer.refuse()
        has = self._having.acquire(timeout=_LOCK_TIMEOUT)
        self._drop_spool()
        if has:
            self._having.release()

    async def hold_again(self) -> None:
        """Hold the logs for a consumer that asks for nothing."""
        if self.is_hold_due and self._having.acquire(blocking=False):
            try:
                await self._reader.hold(None)
            finally:
                self._having.release()

    async def release(self) -> None:
        """Of one that was disconnected: let the logs go."""
        await self._reader.close(None)

    async def fill(self, pipeline: AnyPipeline) -> bool:
        """Read a page in the consumer's place, into the spool; gives whether there is more to read at once.

        Args:
            pipeline: of the thread.
        """
        if not self._having.acquire(blocking=False):
            return False
        try:
            spool = self._spool
            if spool is None or self._is_closed or self.refusal is not None:
                return False
            entries = await self._reader.read(pipeline)
            if entries:
                self._write(spool, entries)
            now = time.monotonic()
            if now >= self._held + _HOLD:
                self._held = now
                await self._reader.hold(pipeline)
            return bool(entries) or self._reader.is_behind
        finally:
            self._having.release()

    def _write(self, spool: Spool, entries: list[Entry]) -> None:
        try:
            spool.write(entries)
        except OSError as error:
            _log.warning("subscription to %r: its spool cannot be written: %s", self.name, error)
            self.refusal = SlowClient(self.name, "message_disk_limit", spool.size, spool.size)
            self._consumer.refuse()
