"""One queue as a live view shows it: figures, how long messages take, who subscribes, why the next one waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import parse_ref
from ampsq.base.errors import UnknownQueue
from ampsq.catalog.suggestions import with_suggestions
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import On
from ampsq.definitions.queue import Queue
from ampsq.operations.groups import QueueGroups, read_groups
from ampsq.operations.latencies import QueueLatencies, read_latencies
from ampsq.operations.subscribers import merge_subscribers, read_subscribers
from ampsq.operations.survey import OVER, REPORTS, SurveyedReport, closed_on_failure, merge_by_name
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_ages import Ages, measure_ages
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.subscribers import holder_reports
from ampsq.queues.explain import explain
from ampsq.queues.returns import read_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.operations.groups import GroupState
    from ampsq.operations.subscribers import Subscriber
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.queues.explain import Explanation, InstanceIdentity
    from ampsq.transport.pipeline import Pipeline

__all__ = ["QueueSurvey", "QueueSurveyor"]

#: Groups that are read of a queue.
_GROUPS: Final = 50


@dataclass(frozen=True, slots=True)
class QueueSurvey:
    """The facts read of a queue.

    Attributes:
        at: when, ms by the server's clock.
        stats: its figures.
        ages: how old what is in it is.
        latencies: how long its messages took in the last 15 minutes.
        next: why its next message is where it is.
        subscribers: its subscriptions, a hundred at most, those that hold most first.
        reports: of holders of its messages, about `REPORTS` at most.
        groups: those that stand still first, then those with the most messages that wait; none where it has no groups.
        dead_letters: queue over a topic to which an action publishes what this one expires -> messages in it.
    """

    at: int
    stats: QueueStats
    ages: Ages
    latencies: QueueLatencies
    next: Explanation
    subscribers: Sequence[Subscriber]
    reports: Sequence[SurveyedReport]
    groups: Sequence[GroupState]
    dead_letters: Mapping[str, int]

    @classmethod
    def merged(cls, parts: Sequence[QueueSurvey]) -> QueueSurvey:
        """Return that of a queue of all partitions, of those of each.

        Counts are sums, the time is that of the first partition, and the next message is that of the partition whose
        oldest message is the oldest.
        """
        if len(parts) == 1:
            return parts[0]
        oldest = max(parts, key=lambda part: part.ages.message or 0.0)
        groups = QueueGroups.merged([QueueGroups(list(part.groups), 0, is_all=True) for part in parts], _GROUPS)
        return cls(
            parts[0].at, QueueStats.merged([part.stats for part in parts]), Ages.merged([part.ages for part in parts]),
            QueueLatencies.merged([part.latencies for part in parts]), oldest.next,
            merge_subscribers([each for part in parts for each in part.subscribers]),
            [each for part in parts for each in part.reports], groups.groups,
            merge_by_name([part.dead_letters for part in parts], sum),
        )  # fmt: skip


class QueueSurveyor:
    """Reads one queue, and remembers what is defined beside it until that changes.

    Args:
        place: the instance.
        queue: the queue's name.
    """

    def __init__(self, place: InstanceIdentity, queue: str) -> None:
        self._place, self._queue = place, queue
        self._version = -1
        self._is_grouped = False
        self._letter_queues: Sequence[str] = ()

    @with_suggestions("queue")
    async def read(self, pipeline: Pipeline) -> QueueSurvey:
        """Read everything once, in about ten short calls.

        Args:
            pipeline: for calls on their way together, of the store that runs this.

        Raises:
            UnknownQueue: there is no such queue, or no longer; the text says which ones there are.
        """
        instance, queue = self._place.instance, self._queue
        version, at = await catalog_version(instance), await server_time()
        stats = QueueStats(queue, await stats_calls.stats(queue))
        if version != self._version:
            self._remember(await catalog_calls.catalog())
        ages = await measure_ages(queue)
        reports = await holder_reports(instance, queue, REPORTS) if stats.leased else {}
        with closed_on_failure(pipeline):
            subscribers = await read_subscribers(instance, queue, pipeline)
        groups = (await read_groups(queue, _GROUPS)).groups if self._is_grouped else ()
        letters = {}
        for name in self._letter_queues:
            letters[name] = QueueStats(name, await stats_calls.stats(name)).depth
        return QueueSurvey(
            at, stats, ages, await read_latencies(instance, queue, OVER), await explain(self._place, queue),
            subscribers, [SurveyedReport(queue, *parse_ref(ref), read_report(text)) for ref, text in reports.items()],
            groups, letters,
        )  # fmt: skip

    def _remember(self, catalog: Catalog) -> None:
        if self._queue not in catalog.queues:
            raise UnknownQueue(queue=self._queue)
        self._is_grouped = Queue.from_json(catalog.queues[self._queue]).is_grouped
        queues = {name: Queue.from_json(text) for name, text in catalog.queues.items()} if catalog.actions else {}
        actions = [Action.from_json(text) for text in catalog.actions.values()]
        topics = {topic for action in actions if _expires(action, self._queue) for topic in action.topics}
        self._letter_queues = sorted(name for name, each in queues.items() if any(map(each.feeds_from, topics)))
        self._version = catalog.version


def _expires(action: Action, queue: str) -> bool:
    """Return whether an action acts on what a queue expires."""
    return any(isinstance(trigger, On.expire) and trigger.topic == queue for trigger in action.on)
