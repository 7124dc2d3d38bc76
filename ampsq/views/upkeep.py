"""Keeping a view's rows in step with what they are made of: the available messages of a queue, or topics' logs.

A `Follower` first walks over everything and then looks at what changed. From a queue it hears in two ways: new
messages are in the topics' logs, and of every other change the queue's `events` tell which message it concerns. Each
time the message's state *now* is what counts, so that it does not matter in which order the two are read, or how often.
The coordinator follows for views, and a client for its aggregated subscriptions. All of it is flows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.name_patterns import parse_topic_or_pattern
from ampsq.base.values import check_text
from ampsq.definitions.queue import View
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.definitions import read_queue, read_view
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.server import server_run
from ampsq.protocol.reads.streams import find_news
from ampsq.protocol.reads.views import kept_until, read_rows, view_state
from ampsq.queues.browse import sow_queue
from ampsq.queues.query import select
from ampsq.views.rows import Rows, group_of, key_of
from ampsq.views.sources import RecordedMessages, ViewSource, WaitingMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.context import InstanceContext
    from ampsq.protocol.reads.streams import Stream
    from ampsq.queues.query import Query, QueryResult
    from ampsq.views.rows import Group

__all__ = [
    "Follower",
    "RowChange",
    "aggregated",
    "check_view",
    "fingerprint",
    "follow",
    "is_over_queue",
    "next_rows",
    "sow",
]

#: Seconds between two looks for a restarted server and for new topics.
_CHECK: Final = 1.0
#: Seconds for which changes are gathered before they are told.
_CONFLATE: Final = 0.1
#: The name of the view that an aggregated subscription is to its client.
_NAMELESS: Final = "aggregate"


class RowChange(NamedTuple):
    """A row that changed.

    Attributes:
        key: its group, as JSON.
        text: the row as it is now, as JSON; of a group whose last message is gone, the row of no messages; empty for
            a group that the view's grouping cannot make.
        gone: whether the group's last message is gone.
        group: where `Rows` has it; None where that does not know it.
    """

    key: str
    text: bytes
    gone: bool = False
    group: Group | None = None


class Follower:
    """One view's rows, and how to keep them in step.

    Args:
        context: where the view is.
        view: its definition.
        catalog: what is defined, as it was read last.
        given: rows that are known outside already, by their keys: only what differs from them is a change.
        clock: seconds by which it paces itself, which never go back.

    Attributes:
        view: its definition.
        complete: whether everything was read; before that there are no changes.

    Raises:
        DefinitionError: the view cannot be kept; see `check_view`.
    """

    def __init__(
        self,
        context: InstanceContext,
        view: View,
        catalog: Catalog,
        given: Mapping[str, bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_view(catalog, view)
        self.view, self._instance, self._clock = view, context.instance, clock
        name = view.underlying_topic[0]
        self._rows = Rows(view)
        self._source: ViewSource = (
            WaitingMessages(context, name, view, catalog.message_type(name), clock)
            if is_over_queue(catalog, view)
            else RecordedMessages(
                context, view, {name: catalog.message_type(name) for name in catalog.topics if view.feeds_from(name)}
            )
        )
        self._given = dict(given or {})
        self._changed: dict[Group, None] = {}
        self._gone: set[str] = set()
        self._started = self._compared = False
        self._checked_at = float("-inf")
        self._run_id, self._version = "", catalog.version
        self.complete = False

    async def step(self, wait: float = 0.0) -> bool:
        """Do one bounded piece of the work; True when there is more to do at once.

        Args:
            wait: seconds to wait for news, if there are none.
        """
        if self._clock() - self._checked_at >= _CHECK:
            await self._check()
        if not self._started:
            await self._source.start()
            self._started = True
        if not self.complete:
            self.complete = not (await self._source.read_all(self._rows))
            return True
        news = await self._news(min(wait, self._source.overdue()))
        if self._source.overdue() <= 0:
            self._started = self.complete = False
            return True
        if not news:
            return False
        await self._source.read_news(self._rows, news)
        return True

    @property
    def rest(self) -> float:
        """Seconds until `step` is wanted though nothing happens."""
        return max(min(self._checked_at + _CHECK - self._clock(), self._source.overdue()), 0.0)

    @property
    def left_out(self) -> int:
        """Number of messages that are more than expressions read, so that they are in no row."""
        return self._rows.left_out

    async def _check(self) -> None:
        """Begin anew on a server that started anew, since it may have lost what it had said; find new topics."""
        run_id = (await server_run()).id
        version = await catalog_version(self._instance) or 0
        if self._run_id not in ("", run_id):
            self._rows = Rows(self.view)
            self._started = self.complete = self._compared = False
        if self._version != version:
            await self._source.refresh()
        await self._source.renew()
        self._run_id, self._version, self._checked_at = run_id, version, self._clock()

    async def _news(self, wait: float) -> list[Stream]:
        """The streams that have something unread."""
        streams = self._source.streams()
        return await find_news(self._instance, streams, wait) if streams else []

    def changes(self, most: int | None = None) -> list[RowChange]:
        """The rows that differ from what was given; `accept` them, or they come again.

        Args:
            most: look at this many rows at most. While some that changed before were not looked at or not accepted,
                later changes wait, so that no row comes twice in one turn; `is_told` says when all were.
        """
        if not self.complete:
            return []
        if not self._compared:
            self._changed.update(dict.fromkeys(self._rows.groups()))
            self._gone, self._compared = set(self._given), True
        if not self._changed:
            self._changed.update(dict.fromkeys(self._rows.take_changed()))
        changes = []
        for group in list(itertools.islice(self._changed, most)):
            change = self._change(group)
            self._gone.discard(change.key)
            known = self._given.get(change.key)
            if known is None if change.gone else known == change.text:
                del self._changed[group]
            else:
                changes.append(change)
        if not self._changed:
            changes += [self._vanished(name, group_of(name)) for name in itertools.islice(self._gone, most)]
        return changes

    def _change(self, group: Group) -> RowChange:
        row = self._rows.row(group)
        if row is None:
            return self._vanished(key_of(group), group)._replace(group=group)
        return RowChange(key_of(group), _as_text(row), group=group)

    def _vanished(self, name: str, group: Group) -> RowChange:
        row = self._rows.row_of_nothing(group, self._instance)
        return RowChange(name, b"" if row is None else _as_text(row), gone=True)

    @property
    def is_told(self) -> bool:
        """Return whether all that had changed at the beginning of the turn was looked at and accepted."""
        return self.complete and self._compared and not self._changed and not self._gone

    def go_on_from(self, former: Follower) -> None:
        """Tell only what differs from what another one told, at another instance; nothing was read yet."""
        self._given = dict(former._given)

    def accept(self, changes: Iterable[RowChange]) -> None:
        """Note that these changes were dealt with."""
        for change in changes:
            if change.gone:
                self._given.pop(change.key, None)
                self._gone.discard(change.key)
            else:
                self._given[change.key] = change.text
            if change.group is not None:
                del self._changed[change.group]


def is_over_queue(catalog: Catalog, view: View) -> bool:
    """Return whether a view is made of the available messages of a queue, not of topics."""
    return len(view.underlying_topic) == 1 and view.underlying_topic[0] in catalog.queues


def check_view(catalog: Catalog, view: View, title: str | None = None) -> None:
    """Refuse a view that cannot be kept.

    Args:
        catalog: what is defined.
        view: its definition.
        title: what the text calls it; default by its name.

    Raises:
        DefinitionError: it is over another view.
    """
    title = title or f"View {view.name!r}: underlying_topic"
    for name in view.underlying_topic:
        if name in catalog.views:
            raise DefinitionError(
                f"{title}: {name!r} is a view, whose topic has every version of its rows; allowed: a queue, or topics "
                "that are no views"
            )


def aggregated(
    name: str,
    projection: Sequence[str],
    grouping: Sequence[str] = (),
    filter: str | None = None,  # noqa: A002
) -> View:
    """The view of an aggregated subscription, which nobody but its client keeps and which has no topic.

    Raises:
        DefinitionError: an argument is wrong; the text lists every fault.
    """
    topic = parse_topic_or_pattern(name)
    try:
        view = View(name=_NAMELESS, underlying_topic="none", projection=projection, grouping=grouping, filter=filter)
    except DefinitionError as fault:
        # It has no name to anybody.
        text = str(fault).removeprefix(f"View {_NAMELESS!r}").removeprefix(": ").lstrip()
        raise DefinitionError(f"aggregate of {name!r}: {text}") from None
    # A view must not feed itself; this one, without a topic, cannot, whatever its name: that is not checked again.
    return BaseModel.model_copy(view, update={"underlying_topic": (topic,)})


async def follow(context: InstanceContext, view: View) -> Follower:
    """A follower of a view over what exists.

    Raises:
        UnknownQueue: there is neither a queue nor a topic of that name. DefinitionError: it cannot be followed.
    """
    catalog = await catalog_calls.catalog()
    check_view(catalog, view, f"aggregate of {view.underlying_topic[0]!r}")
    known = any(name in catalog.queues or name in catalog.topics for name in view.underlying_topic)
    if not known and not view.is_pattern:
        raise UnknownQueue(queue=view.underlying_topic[0])
    return Follower(context, view, catalog)


async def next_rows(follower: Follower, wait: float) -> list[dict[str, object]]:
    """The rows that changed, as they are now; all of them the first time; empty when none did within `wait` seconds.

    A group that vanished has the row of no messages. Within those seconds everything may not have been read yet; the
    next call goes on.
    """
    deadline = time.monotonic() + wait
    more = await follower.step(wait)
    # What changes all the time is told about ten times a second.
    tell_at = min(time.monotonic() + _CONFLATE, deadline)
    while more and time.monotonic() < (tell_at if follower.complete else deadline):
        more = await follower.step()
    changes = follower.changes()
    follower.accept(changes)
    return [json.loads(change.text) for change in changes if change.text]


def fingerprint(view: View) -> str:
    """Return the mark of stored rows of this definition."""
    return hashlib.sha1(view.to_json().encode(), usedforsecurity=False).hexdigest()


async def sow(context: InstanceContext, name: str, query: Query) -> QueryResult:
    """Query the available messages of a queue or the rows of a view.

    Rows are those that the coordinator keeps; where it keeps none, they are computed, by a walk over everything.

    Raises:
        UnknownQueue: there is neither a queue nor a view of that name. DefinitionError: it is no name.
    """
    check_text("name of a queue or view", name)
    queue = await read_queue(context.instance, name)
    if queue is not None:
        return await sow_queue(context, queue, query)
    view = await read_view(context.instance, name)
    if view is None:
        raise UnknownQueue(queue=name)
    if await _is_kept(context.instance, view):
        rows = await read_rows(context.instance, name)
    else:
        rows = await _computed_rows(context, view)
    return select(query, rows.items(), name)


async def _is_kept(instance: str, view: View) -> bool:
    """Return whether somebody keeps the rows of this definition, and has all of them."""
    state = await view_state(instance, view.name)
    until = await kept_until(instance, view.name)
    return state == fingerprint(view) and until > await server_time()


async def _computed_rows(context: InstanceContext, view: View) -> dict[str, bytes]:
    catalog = await catalog_calls.catalog()
    follower = Follower(context, view, catalog)
    while not follower.complete:
        await follower.step()
    return {change.key: change.text for change in sorted(follower.changes())}


def _as_text(row: dict[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
