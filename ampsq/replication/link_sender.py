"""Work of a link at its destination: pages applied in their order, one call ahead of what is read."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.log_positions import parse_id
from ampsq.protocol.calls import replication as links
from ampsq.replication.selection import runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.calls.replication import Applied, EntryRun, JournalRow, Now
    from ampsq.protocol.request import Call
    from ampsq.replication.selection import EntrySelector, SourceEntryCopy
    from ampsq.transport.store import Store

__all__ = ["LinkPage", "LinkSender", "RoundResult"]

#: Entries that one `apply` takes, and bytes of them.
_BATCH: Final = 500
_BYTES: Final = 1_000_000
#: Entries of journals that one call takes.
_ROWS: Final = 32


class LinkPage(NamedTuple):
    """The result of one read: entries in the source's order, reports on queues, and the places behind both.

    With `is_all`, nothing was left when it was read. `runs`: the entries as they are applied, where that is known.
    """

    entries: list[SourceEntryCopy]
    journal_rows: dict[str, list[JournalRow]]
    places: dict[str, str]
    is_all: bool = False
    runs: Sequence[EntryRun] = ()


class RoundResult(NamedTuple):
    """The work of one round.

    Attributes:
        messages: copies recorded.
        journal_rows: entries of journals followed.
        bytes: of what was sent, copies that were there before among it.
        places: of each page that is applied whole, the source's places behind it.
        has_all: a page is applied behind which there was nothing more.
    """

    messages: int
    journal_rows: int
    bytes: int
    places: list[dict[str, str]]
    has_all: bool = False


class _Batch(NamedTuple):
    """One call; `page` and what it claims where it is its page's last one. A page of nothing has no call."""

    call: Call[Applied] | None
    size: int
    page: LinkPage | None = None
    claims: Mapping[str, str] = {}


class LinkSender:
    """Applies pages at a destination. While a call runs there, the next page is read and prepared here.

    Args:
        destination: a store on it.
        carried: who both are, and which entries pass.
        digest_of: of a topic and an origin the digest of the filters up to the destination.
        clock: gives the time that scripts are called with.

    Attributes:
        refill: topics whose filter was widened, and the source's ID up to which they are sent again.
        is_waiting: what comes next was not applied, and is sent again.
        is_held: so it is because it names a message that another link has to bring first.
    """

    def __init__(
        self,
        destination: Store,
        carried: EntrySelector,
        digest_of: Callable[[str, str], str],
        clock: Callable[[], Now],
    ) -> None:
        self._destination, self._carried, self._digest_of, self._clock = destination, carried, digest_of, clock
        self._pipeline = destination.pipeline()
        self.refill: dict[str, Id] = {}
        self.close()

    def close(self) -> None:
        """Forget what is not applied: it is read again."""
        self._pipeline.close()
        self._reached: dict[str, bytes] = {}
        # Those that are not applied whole, and the calls that are to come for them.
        self._pages: deque[LinkPage] = deque()
        self._batches: deque[_Batch] = deque()
        self._running: _Batch | None = None
        self.is_waiting = self.is_held = False

    def begin(self, received: Mapping[str, tuple[str, str]]) -> None:
        """Go on behind what the destination has, as `received` gives it."""
        self._reached = {stream: stream_id.encode() for stream, (stream_id, _) in received.items()}

    @property
    def is_empty(self) -> bool:
        """Return whether everything is applied."""
        return not self._pages

    def put(self, pages: Iterable[LinkPage]) -> None:
        """Take pages that are durable at the source."""
        for page in pages:
            self._pages.append(page)
            if not self.is_waiting:
                self._prepare(page)

    def advance(self, *, is_more: bool) -> RoundResult:
        """Apply what was put; where there is more to be read meanwhile, the last call goes on running."""
        if self.is_waiting:
            # The same again: what is there by now is passed over.
            self.is_waiting = False
            received = self._destination.call(links.read_received(self._destination.instance))
            self.begin(received)
            for page in self._pages:
                self._prepare(page)
        sent = RoundResult(0, 0, 0, [])
        while self._batches or (self._running and not is_more):
            if self._running:
                sent = self._finish(self._running, sent)
            if not self._running and self._batches:
                self._running = self._batches.popleft()
                if self._running.call:
                    self._pipeline.post(self._running.call)
        return sent

    def _finish(self, batch: _Batch, sent: RoundResult) -> RoundResult:
        self._running = None
        messages, told, size, places, has_all = sent
        if batch.call:
            applied: Applied = self._pipeline.collect()  # type: ignore[assignment]  # the reply to its call
            messages, size = messages + applied.recorded, size + batch.size
            if applied.waits or applied.goes_on:
                self.is_waiting, self.is_held = True, applied.waits
                self._batches.clear()
                return RoundResult(messages, told, size, places, has_all)
        if batch.page:
            page = self._pages.popleft()
            for topic in [topic for topic, end in self.refill.items() if _place(page, topic) >= end]:
                del self.refill[topic]
            claims, number = self._follow(page.journal_rows)
            places.append({**batch.claims, **claims, **page.places})
            told, has_all = told + number, has_all or page.is_all
        return RoundResult(messages, told, size, places, has_all)

    # --- copies

    def _prepare(self, page: LinkPage) -> None:
        runs = page.runs or runs_of(self._carried, page.entries, self._digest_of)
        claims: dict[str, str] = {}
        for run in runs:
            claims[f"log {run.topic}@{run.origin}"] = run.upto.decode()
            claims[f"filter {run.topic}@{run.origin}"] = run.filter
        last: _Batch | None = None
        for refill, size, batch in _batches(self._begun(runs), set(self.refill)):
            if last:
                self._batches.append(last)
            last = _Batch(links.apply(batch, refill=refill, now=self._clock()), size)
        self._batches.append((last or _Batch(None, 0))._replace(page=page, claims=claims))

    def _begun(self, runs: Iterable[EntryRun]) -> Iterable[EntryRun]:
        """The runs, each with the ID behind which it begins: where the last one of its origin ended."""
        for run in runs:
            stream = f"log {run.topic}@{run.origin}"
            start = b"0-0" if run.topic in self.refill else self._reached.get(stream, b"0-0")
            # What is sent again lies before what is there.
            self._reached[stream] = max(run.upto, start, key=parse_id)
            yield replace(run, start=start)

    # --- what journals tell

    def _follow(self, told: Mapping[str, Sequence[JournalRow]]) -> tuple[dict[str, str], int]:
        """Gives what is claimed with it, and how many entries that were."""
        claims: dict[str, str] = {}
        number = 0
        for queue, rows in told.items():
            routed = [(row, self._carried.path_of(row.path.decode())) for row in rows if self._is_told(row)]
            for first in range(0, len(routed), _ROWS):
                rows_now = routed[first : first + _ROWS]
                self._destination.call(
                    links.apply_journal(queue, self._starts(queue, rows_now), rows_now, now=self._clock())
                )
            for row, _ in routed:
                stream = f"journal {queue}@{row.origin}"
                claims[stream] = max(claims.get(stream, "0-0"), _place_of(row).decode(), key=parse_id)
            number += len(routed)
        return claims, number

    def _starts(self, queue: str, rows: Sequence[tuple[JournalRow, str]]) -> str:
        """Behind which ID the rows of each origin begin: where its last ones ended."""
        starts: dict[str, str] = {}
        for row, _ in rows:
            stream = f"journal {queue}@{row.origin}"
            starts.setdefault(row.origin, self._reached.get(stream, b"0-0").decode())
            self._reached[stream] = max(self._reached.get(stream, b"0-0"), _place_of(row), key=parse_id)
        return " ".join(f"{origin} {start}" for origin, start in starts.items())

    def _is_told(self, row: JournalRow) -> bool:
        return self._carried.is_routed(row.origin, row.path.decode())


def _place_of(row: JournalRow) -> bytes:
    """Return its ID in the journal that it was first written to."""
    return row.source.partition(b"~")[2]


def _place(page: LinkPage, topic: str) -> Id:
    return parse_id(page.places.get(f"log {topic}", "0-0"))


def _batches(runs: Iterable[EntryRun], refilled: set[str]) -> Iterable[tuple[bool, int, list[EntryRun]]]:
    """Runs in calls of a bounded size, with that; those of topics whose filter was widened in calls of their own."""
    batch: list[EntryRun] = []
    entries = size = 0
    refill = False
    for run in runs:
        for weight, part in _parts(run):
            is_other = batch and refill != (run.topic in refilled)
            if batch and (is_other or entries + len(part.entries) > _BATCH or size + weight > _BYTES):
                yield refill, size, batch
                batch, entries, size = [], 0, 0
            refill = run.topic in refilled
            batch.append(part)
            entries, size = entries + len(part.entries), size + weight
    if batch:
        yield refill, size, batch


def _parts(run: EntryRun) -> Iterable[tuple[int, EntryRun]]:
    """A run in parts of a call's size, with that: each is complete up to its last entry, the last one as the run is."""
    size, first, start = 0, 0, run.start
    for number, (_, values) in enumerate(run.entries):
        weight = len(values[0]) if len(values) == 1 else sum(map(len, values))
        if number > first and (number - first >= _BATCH or size + weight > _BYTES):
            last = run.entries[number - 1][0]
            yield size, replace(run, start=start, upto=last, entries=run.entries[first:number])
            size, first, start = 0, number, last
        size += weight
    yield size, replace(run, start=start, entries=run.entries[first:]) if first else run
