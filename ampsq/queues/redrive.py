"""Putting dead letters back: a walk over a queue of letters, whose messages go to the queues that gave them up.

Each letter is put back by one script, which records its message for one queue alone and settles the letter in the same
step. So nothing can come between the two, whoever dies when, and a letter that is settled is never put back again.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypedDict

from ampsq.base.errors import DefinitionError, NotLeaseHolder, Rejected, UnknownMessage, UnknownQueue
from ampsq.base.values import check_text, shown
from ampsq.definitions.stored import read_stored_queue
from ampsq.expressions import Document, parse
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.encoding import encode_headers
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.journals import REDRIVEN, read_journal_back
from ampsq.protocol.reads.message_names import find_bookmarks
from ampsq.protocol.request import Pause
from ampsq.queues.browse import Walker
from ampsq.queues.dead_letters import (
    NOT_THERE,
    DeadLetter,
    NotADeadLetter,
    dead_letter_filter,
    read_available,
)
from ampsq.queues.query import SowMessage, parse_query_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.definitions.stored import StoredQueue
    from ampsq.expressions import Expression
    from ampsq.protocol.calls.browse import Browsed
    from ampsq.protocol.context import InstanceContext
    from ampsq.protocol.reads.message_names import LocatedMessage

__all__ = [
    "REDRIVEN_FROM",
    "RedriveProgress",
    "RedriveRequest",
    "RedriveWishes",
    "Redriven",
    "Refusal",
    "parse_rate",
    "redrive",
]

#: The header of a message that was put back: the bookmark of its letter.
REDRIVEN_FROM: Final = "ampsq-redriven-from"

#: Letters of one call: what one costs the server, with the push of what it records, is about 15 us.
_BATCH: Final = 150
#: Letters that wait for their batch, over all queues that they go to.
_WAITING: Final = 2_000
#: Refusals that a result keeps.
_KEPT: Final = 1_000
#: Seconds of one pause, after which whoever watches is told, and may stop it.
_STEP: Final = 0.1
#: Entries of a journal that are read at once.
_PAGE: Final = 100
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?:\s*/\s*(s|m|h))?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_RATE_ALLOWED: Final = "letters a second, as in 100, '100/s', '30/m' or '500/h', more than 0"
_REFUSED: Final = {
    NotLeaseHolder.code: "a subscription holds it",
    UnknownMessage.code: "the queue has no such letter",
}


class Refusal(NamedTuple):
    """A letter that could not be put back: its bookmark in the queue of letters, and why."""

    bookmark: Bookmark
    reason: str


class RedriveProgress(NamedTuple):
    """The progress of a redrive.

    Attributes:
        done: letters put back.
        refused: those that could not be.
        total: those that were there when it began.
    """

    done: int
    refused: int
    total: int


class Redriven(int):
    """The number of letters put back, or of a dry run the number that would be.

    Attributes:
        targets: the queues that they went to, and how many each.
        refused: how many could not be put back.
        refusals: which and why; the first thousand.
    """

    targets: dict[str, int]
    refused: int
    refusals: list[Refusal]

    @classmethod
    def of(cls, targets: Counter[str], refused: int, refusals: Iterable[Refusal]) -> Self:
        """Make it of what was put back where, and what was not."""
        made = cls(targets.total())
        made.targets, made.refused, made.refusals = dict(sorted(targets.items())), refused, list(refusals)
        return made

    def __repr__(self) -> str:
        return f"<Redriven {int(self)}, refused {self.refused}, targets {self.targets}>"


class RedriveWishes(TypedDict):
    """The wishes of a `RedriveRequest` beside bookmarks."""

    filter: str | None
    source: str | None
    reason: str | None
    to: str | None
    dry_run: bool
    rate: float | str | None
    progress: Callable[[RedriveProgress], object] | None
    edit: Callable[[DeadLetter], object] | None


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """The dead letters that are to be put back; see `Admin.redrive`, which has the same arguments.

    Attributes:
        by: who does it, unlike in every other order: the journal has it.
    """

    queue: str
    by: str
    filter: str | None = None
    bookmarks: Sequence[Bookmark | str] | None = None
    source: str | None = None
    reason: str | None = None
    to: str | None = None
    dry_run: bool = False
    rate: float | str | None = None
    progress: Callable[[RedriveProgress], object] | None = None
    edit: Callable[[DeadLetter], object] | None = None

    @property
    def selective(self) -> bool:
        """Return whether not simply all letters are meant."""
        return not (self.filter is None and self.source is None and self.reason is None)


def parse_rate(rate: object) -> float | None:
    """Read a limit.

    Args:
        rate: letters a second, or a text as ``100/s``, ``30/m``, ``500/h``; None: no limit.

    Raises:
        DefinitionError: it is none of these.
    """
    if rate is None:
        return None
    number = -1.0
    if isinstance(rate, str) and (found := _RATE.fullmatch(rate.strip())):
        number = float(found[1]) / _SECONDS[found[2] or "s"]
    elif isinstance(rate, int | float) and not isinstance(rate, bool):
        number = float(rate)
    if not 0 < number < math.inf:
        raise DefinitionError(f"rate={shown(rate)} is no rate; allowed: {_RATE_ALLOWED}")
    return number


class _Pace:
    """The times when the next letters may go: evenly, by the clock, so that a late batch makes no later one early.

    Attributes:
        batch: letters at once: those of a tenth of a second, so that the pace is smooth.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = time.monotonic()
        self.batch = _BATCH if rate is None else max(1, min(_BATCH, int(rate * _STEP)))

    def left(self) -> float:
        """Seconds until the next letters may go."""
        return 0.0 if self._rate is None else self._due - time.monotonic()

    def spend(self, number: int) -> None:
        """So many have gone. Time that a slow server took is not caught up with a burst."""
        if self._rate is not None:
            self._due = max(self._due, time.monotonic() - _STEP) + number / self._rate


class _Unfit(Exception):
    """A letter that cannot be put back; the text says why."""


class _Sent(NamedTuple):
    """A letter as the script takes it: its place, its message's body, headers and group; and its name."""

    ref: bytes
    body: bytes
    headers: bytes
    group: bytes
    bookmark: Bookmark


class _Redrive:
    """One order under way."""

    def __init__(self, context: InstanceContext, order: RedriveRequest, queues: dict[str, StoredQueue]) -> None:
        self._context, self._order, self._queues = context, order, queues
        self._pace = _Pace(parse_rate(order.rate))
        # (topic, queue) -> letters that go there.
        self._waiting: dict[tuple[str, str], list[_Sent]] = {}
        self._sizes: Counter[tuple[str, str]] = Counter()
        self._filters: dict[str, Expression] = {}
        self._targets: Counter[str] = Counter()
        self._refusals: list[Refusal] = []
        self._refused = self._total = self._began = 0

    @property
    def result(self) -> Redriven:
        return Redriven.of(self._targets, self._refused, self._refusals)

    async def run(self) -> None:
        self._began = await server_time()
        if self._order.bookmarks is not None:
            named = await find_bookmarks(self._context.origin, self._order.bookmarks)
            self._total = len(named)
            await self._by_name(named)
        else:
            await self._walk()
        while self._waiting:
            await self._send(next(iter(self._waiting)))
        self._tell()

    async def _by_name(self, named: list[LocatedMessage]) -> None:
        for at in range(0, len(named), BATCH):
            some = named[at : at + BATCH]
            looked = await read_available(self._order.queue, [each.ref.encode() for each in some])
            for each, found in zip(some, looked, strict=True):
                if found is None:
                    self._refuse(each.bookmark, NOT_THERE if each.id else f"it is not here: {each.absence}")
                else:
                    await self._take(found)

    async def _walk(self) -> None:
        text = dead_letter_filter(self._order.filter, self._order.source, self._order.reason)
        wanted = parse_query_filter(text) if text is not None else None
        if self._order.progress is not None:
            self._total = await self._count(wanted)
        walker = Walker(self._context, self._order.queue, wanted)
        page: list[Browsed] | None = await walker.page()
        while page is not None:
            for found in page:
                await self._take(found)
            self._tell()
            page = await walker.page()

    async def _count(self, wanted: Expression | None) -> int:
        walker, number = Walker(self._context, self._order.queue, wanted), 0
        page: list[Browsed] | None = await walker.page()
        while page is not None:
            number += len(page)
            self._tell()
            page = await walker.page()
        return number

    async def _take(self, found: Browsed) -> None:
        """Put one letter with those that go the same way, and send them when they are enough."""
        try:
            way, sent = self._addressed(found)
        except (NotADeadLetter, _Unfit) as reason:
            self._refuse(self._context.bookmark(found), str(reason))
            return
        if sent is None:
            return
        if self._order.dry_run:
            self._targets[way[1]] += 1
            return
        group = self._waiting.setdefault(way, [])
        if group and self._sizes[way] + len(sent.body) > BYTES:
            await self._send(way)
            group = self._waiting.setdefault(way, [])
        group.append(sent)
        self._sizes[way] += len(sent.body) + len(sent.headers) + len(sent.group)
        if len(group) >= self._pace.batch:
            await self._send(way)
        elif sum(map(len, self._waiting.values())) >= _WAITING or self._sizes.total() >= 8 * BYTES:
            await self._send(max(self._sizes, key=lambda each: self._sizes[each]))

    def _addressed(self, found: Browsed) -> tuple[tuple[str, str], _Sent | None]:
        """The topic and the queue that a letter's message goes to, and what goes; None where the editor leaves it."""
        try:
            letter = DeadLetter(SowMessage.of(found, self._context.origin), self._began)
            headers = encode_headers({**letter.headers, REDRIVEN_FROM: letter.bookmark})
        except NotADeadLetter:
            raise
        except (ValueError, TypeError):
            raise _Unfit("its headers are no JSON object of texts") from None
        way = self._way(letter)
        body = letter.raw
        if self._order.edit is not None:
            try:
                edited = self._order.edit(letter)
                if edited is None:
                    return way, None
                body = self._queues[way[1]].type.encode(edited)
            except Exception as error:
                raise _Unfit(f"edit: {error or type(error).__name__}") from error
        self._check_filter(way[1], way[0], body)
        return way, _Sent(found.ref, body, headers, letter.raw_group, letter.bookmark)

    def _way(self, letter: DeadLetter) -> tuple[str, str]:
        name = self._order.to or letter.queue
        queue = self._queues.get(name)
        if queue is None:
            raise _Unfit(f"the queue {name!r} is gone")
        if name == self._order.queue:
            raise _Unfit("it was given up by this queue itself")
        if queue.feeds_from(letter.topic):
            return letter.topic, name
        if self._order.to is None:
            raise _Unfit(f"the topic {letter.topic!r} does not feed the queue {name!r} any more")
        return queue.default_publish_target, name

    def _check_filter(self, name: str, topic: str, body: bytes) -> None:
        """A message that its queue would not let in would be lost."""
        text = self._queues[name].filter
        if text is None:
            return
        if name not in self._filters:
            self._filters[name] = parse(text, "filter")
        document = Document(
            body,
            topic=topic,
            origin=self._context.origin,
            instance=self._context.instance,
            message_type=self._queues[name].type,
        )
        if not self._filters[name].matches(document):
            raise _Unfit(f"the filter of the queue {name!r} does not let it in")

    async def _send(self, way: tuple[str, str]) -> None:
        letters = self._waiting.pop(way)
        del self._sizes[way]
        while (left := self._pace.left()) > 0:
            await Pause(min(left, _STEP))
            self._tell()
        topic, target = way
        call = calls.redrive(self._order.queue, topic, target, self._order.by, [sent[:4] for sent in letters])
        try:
            number, refused = await call
        except Rejected as error:
            for sent in letters:
                self._refuse(sent.bookmark, str(error))
            return
        known = dict(refused)
        if call.repeated and known:
            # An earlier request was answered to nobody: what it put back is settled now.
            for ref in await self._put_back(known):
                del known[ref]
                number += 1
        self._targets[target] += number
        self._pace.spend(number)
        for sent in letters if known else ():
            code = known.get(sent.ref)
            if code in _REFUSED:
                self._refuse(sent.bookmark, _REFUSED[code])
            elif code is not None and self._order.bookmarks is not None:
                self._refuse(sent.bookmark, NOT_THERE)
        self._tell()

    async def _put_back(self, refs: dict[bytes, str]) -> list[bytes]:
        """Return the letters of some that this order itself put back: one journal entry has them all."""
        last: str | None = None
        while True:
            entries = await read_journal_back(self._context.instance, self._order.queue, last, self._began, _PAGE)
            for entry in entries:
                found = [ref for ref in entry.refs if ref in refs]
                if found and entry.by == self._order.by and entry.reason == REDRIVEN:
                    return found
            if len(entries) < _PAGE:
                return []
            last = entries[-1].id

    def _refuse(self, bookmark: Bookmark, reason: str) -> None:
        self._refused += 1
        if len(self._refusals) < _KEPT:
            self._refusals.append(Refusal(bookmark, reason))

    def _tell(self) -> None:
        if self._order.progress is not None:
            self._order.progress(RedriveProgress(self._targets.total(), self._refused, self._total))


async def redrive(context: InstanceContext, order: RedriveRequest) -> Redriven:
    """Put letters back; see `Admin.redrive`.

    Raises:
        DefinitionError: an argument is wrong. UnknownQueue: there is no such queue.
        ServerFull: the server's memory is full; what was put back until then is. Unavailable: no answer; the same.
    """
    if order.bookmarks is not None and order.selective:
        raise DefinitionError("bookmarks say which letters; filter, source and reason too: give one of them")
    if order.to == order.queue:
        raise DefinitionError(f"to={order.to!r} is the queue of the letters itself; allowed: another queue")
    for argument, function in (("progress", order.progress), ("edit", order.edit)):
        if function is not None and not callable(function):
            raise DefinitionError(f"{argument}={shown(function)}: allowed is a function")
    for argument, name in (("queue", order.queue), ("to", order.to)):
        if name is not None:
            check_text(argument, name)
    catalog = await catalog_calls.catalog()
    queues = {name: read_stored_queue(text) for name, text in catalog.queues.items()}
    for name in (order.queue, order.to):
        if name is not None and name not in queues:
            raise UnknownQueue(queue=name)
    under_way = _Redrive(context, order, queues)
    await under_way.run()
    return under_way.result
