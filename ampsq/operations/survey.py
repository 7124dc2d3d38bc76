"""An instance as a live view shows it: the figures of all queues, and more of those that are shown.

Read again and again, so that a reading is two round trips however many queues there are: the calls of each are all sent
before their first reply is read. Links take a few more.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import AmpsqError
from ampsq.base.partitions import request_of_all
from ampsq.operations.latencies import QueueLatencies, join_buckets
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_ages import Ages, measure_ages
from ampsq.protocol.calls.queue_latencies import read_latencies
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.subscribers import (
    count_subscriptions,
    holder_reports,
    subscription_facts,
    subscription_names,
)
from ampsq.protocol.request import Collect, Post
from ampsq.queues.returns import read_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.queue_stats import QueueCounts
    from ampsq.protocol.reads.subscribers import StoredSubscription
    from ampsq.protocol.request import Call
    from ampsq.queues.returns import HolderReport
    from ampsq.replication.report import LinkStatus
    from ampsq.transport.pipeline import Pipeline

__all__ = [
    "OVER",
    "REPORTS",
    "SUBSCRIPTIONS",
    "QueuesRead",
    "Survey",
    "SurveyedReport",
    "SurveyedSubscription",
    "Surveyor",
    "closed_on_failure",
    "merge_by_name",
]

T = TypeVar("T")
#: Subscriptions that are read of an instance, however many it has.
SUBSCRIPTIONS: Final = 500
#: The range of time whose latencies are read.
OVER: Final = "15m"
#: Progress reports that are read of a queue, about.
REPORTS: Final = 50


@dataclass(frozen=True, slots=True)
class SurveyedSubscription:
    """A subscription to queues.

    Attributes:
        subscription: its name.
        client: whose it is.
        queues: their names.
        max_backlog: unacknowledged messages at most.
        leased: messages that it holds.
    """

    subscription: str
    client: str
    queues: tuple[str, ...]
    max_backlog: int
    leased: int


@dataclass(frozen=True, slots=True)
class SurveyedReport:
    """The last report of the holder of a message on its progress.

    Attributes:
        queue: the queue.
        topic: the message's topic.
        id: its ID in the log of this instance.
        report: what it said, and when.
    """

    queue: str
    topic: str
    id: str
    report: HolderReport


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts read of an instance.

    Attributes:
        at: when, ms by the server's clock.
        queues: the figures of all.
        ages: of those that were asked for.
        latencies: how long their messages took in the last 15 minutes, of those that have delivered any.
        subscriptions: those to queues, `SUBSCRIPTIONS` at most.
        number: how many there are.
        links: to other instances and from them.
        reports: of holders of messages, in the queues that were asked for, about `REPORTS` of each at most.
    """

    at: int
    queues: Mapping[str, QueueStats]
    ages: Mapping[str, Ages]
    latencies: Mapping[str, QueueLatencies]
    subscriptions: Sequence[SurveyedSubscription]
    number: int
    links: Sequence[LinkStatus]
    reports: Sequence[SurveyedReport]

    @classmethod
    def merged(cls, parts: Sequence[Survey]) -> Survey:
        """Return that of all partitions, of those of each; a subscription to all of them counts once.

        Counts are sums, the oldest message is that of any partition, and the time is that of the first one.
        """
        if len(parts) == 1:
            return parts[0]
        took = merge_by_name([part.latencies for part in parts], QueueLatencies.merged)
        subscriptions = _merge_subscriptions([each for part in parts for each in part.subscriptions])
        doubles = sum(len(part.subscriptions) for part in parts) - len(subscriptions)
        return cls(
            parts[0].at, merge_by_name([part.queues for part in parts], QueueStats.merged),
            merge_by_name([part.ages for part in parts], Ages.merged), took, subscriptions,
            sum(part.number for part in parts) - doubles, [each for part in parts for each in part.links],
            [each for part in parts for each in part.reports],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueuesRead:
    """The first half of a survey.

    Attributes:
        at: when, ms by the server's clock.
        queues: the figures of all.
        version: of what is defined.
        catalog: what is defined, as it is known here.
        names: of subscriptions.
        number: how many subscriptions there are.
    """

    at: int
    queues: Mapping[str, QueueStats]
    version: int | None
    catalog: Catalog
    names: Sequence[str]
    number: int


def merge_by_name(parts: Sequence[Mapping[str, T]], merged: Callable[[Sequence[T]], T]) -> dict[str, T]:
    """Put together what several partitions have by the same names.

    Args:
        parts: of each partition.
        merged: makes one of all that have a name.
    """
    found: dict[str, list[T]] = {}
    for part in parts:
        for name, each in part.items():
            found.setdefault(name, []).append(each)
    return {name: merged(all_of_it) for name, all_of_it in found.items()}


def _merge_subscriptions(parts: Sequence[SurveyedSubscription]) -> list[SurveyedSubscription]:
    """Put together the registrations of a subscription in all partitions; those of one instance stay as they are."""
    found: dict[str, SurveyedSubscription] = {}
    for part in parts:
        name = request_of_all(part.client) or part.subscription
        before = found.get(name)
        found[name] = part if before is None else replace(before, leased=before.leased + part.leased)
    return list(found.values())


class Surveyor:
    """Reads one instance, and remembers what is defined there until that changes.

    Args:
        instance: its name.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._catalog: Catalog | None = None

    async def read(self, pipeline: Pipeline, chosen: Callable[[Mapping[str, QueueStats]], Iterable[str]]) -> Survey:
        """Read everything once.

        Args:
            pipeline: for calls on their way together, of the store that runs this.
            chosen: says of which queues the ages of their messages are wanted, by the figures of all.
        """
        read = await self.read_queues(pipeline)
        return await self.read_rest(pipeline, read, chosen(read.queues))

    async def read_queues(self, pipeline: Pipeline) -> QueuesRead:
        """Read the first half, the figures of all queues; `read_rest` reads the other one."""
        if self._catalog is None:
            self._catalog = await catalog_calls.catalog()
        catalog = self._catalog
        version, at, names, number, figures = await self._read_figures(pipeline, catalog.queues)
        queues = {name: QueueStats(name, each) for name, each in zip(catalog.queues, figures, strict=True)}
        return QueuesRead(at, queues, version, catalog, names, number)

    async def read_rest(self, pipeline: Pipeline, read: QueuesRead, chosen: Iterable[str]) -> Survey:
        """Read the other half.

        Args:
            pipeline: for calls on their way together, of the store that runs this.
            read: the first half.
            chosen: queues of which the ages of their messages are wanted.
        """
        catalog, queues, at = read.catalog, read.queues, read.at
        wanted = [name for name in chosen if name in queues]
        delivered = [queues[name] for name in wanted if queues[name].delivered]
        ages, found, latencies, reports = await self._read_more(pipeline, at, wanted, delivered, read.names)
        links = (await _read_links(self._instance, catalog)) if catalog.destinations else ()
        if read.version != catalog.version:
            self._catalog = None
        # One that is None ended between the two round trips.
        there = [
            SurveyedSubscription(each.name, each.client, each.queues, each.max_backlog, each.leased)
            for each in found
            if each is not None
        ]
        by_name = dict(zip(wanted, ages, strict=True))
        return Survey(at, queues, by_name, latencies, there, read.number, links, reports)

    async def _read_figures(
        self, pipeline: Pipeline, queues: Iterable[str]
    ) -> tuple[int | None, int, list[str], int, list[QueueCounts]]:
        """The catalog's version, the time, subscriptions and how many there are, and the figures of queues."""
        with closed_on_failure(pipeline):
            version, at = await _sent(pipeline, catalog_version(self._instance)), await _sent(pipeline, server_time())
            names = await _sent(pipeline, subscription_names(self._instance, SUBSCRIPTIONS))
            number = await _sent(pipeline, count_subscriptions(self._instance))
            figures = [await _sent(pipeline, stats_calls.stats(queue)) for queue in queues]
            return (
                await _reply(pipeline, version),
                await _reply(pipeline, at),
                await _reply(pipeline, names),
                await _reply(pipeline, number),
                [await _reply(pipeline, each) for each in figures],
            )

    async def _read_more(
        self,
        pipeline: Pipeline,
        now: int,
        queues: Iterable[str],
        delivered: Sequence[QueueStats],
        subscriptions: Iterable[str],
    ) -> tuple[list[Ages], list[StoredSubscription | None], dict[str, QueueLatencies], list[SurveyedReport]]:
        """The ages of queues, latencies and reports of those that delivered, and what is known of subscriptions."""
        with closed_on_failure(pipeline):
            ages = [await _sent(pipeline, measure_ages(queue)) for queue in queues]
            facts = [await _sent(pipeline, subscription_facts(self._instance, name)) for name in subscriptions]
            took = [
                (each.name, await _sent(pipeline, read_latencies(self._instance, each.name, OVER, now)))
                for each in delivered
            ]
            told = [
                (each.name, await _sent(pipeline, holder_reports(self._instance, each.name, REPORTS)))
                for each in delivered
                if each.leased
            ]
            return (
                [await _reply(pipeline, each) for each in ages],
                [await _reply(pipeline, each) for each in facts],
                {name: join_buckets(name, OVER, await _reply(pipeline, each)) for name, each in took},
                [
                    SurveyedReport(name, *parse_ref(ref), read_report(report))
                    for name, each in told
                    for ref, report in (await _reply(pipeline, each)).items()
                ],
            )


async def _read_links(instance: str, catalog: Catalog) -> Sequence[LinkStatus]:
    # Late: few instances have links, and reading them takes long to import.
    from ampsq.replication.report import read_links  # noqa: PLC0415

    return await read_links(instance, catalog)


@contextlib.contextmanager
def closed_on_failure(pipeline: Pipeline) -> Iterator[None]:
    """Close a pipeline when a call of it fails, so that no reply is taken for that of a later call."""
    try:
        yield
    except AmpsqError:
        pipeline.close()
        raise


async def _sent(pipeline: Pipeline, call: Call[T]) -> Call[T]:
    """Send a call; its reply is read later, in the order of the calls."""
    await Post(pipeline, call)
    return call


async def _reply(pipeline: Pipeline, _call: Call[T]) -> T:
    """The reply of the earliest call whose reply was not read, which is this one."""
    reply: T = await Collect(pipeline)
    return reply
