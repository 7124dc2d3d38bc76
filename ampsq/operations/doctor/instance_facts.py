"""The facts about an instance that are judged, read in one go, and what a judgement is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import ref_of
from ampsq.definitions.stored_action import read_stored_action
from ampsq.operations.figures import read_figures
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.duties import due_until, duty_keepers
from ampsq.protocol.reads.instance import is_attended
from ampsq.protocol.reads.streams import latest_ids, log_of
from ampsq.protocol.reads.subscriptions import most_asked
from ampsq.protocol.request import Collect, Post
from ampsq.topics.topic_state import read_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.operations.figures import InstanceFigures
    from ampsq.topics.topic_state import TopicState
    from ampsq.transport.pipeline import Pipeline

__all__ = [
    "LETTERS",
    "RECENT",
    "DeadLetterCounts",
    "Finding",
    "InstanceFacts",
    "RepeatedFacts",
    "dead_letter_topics",
    "read_instance_facts",
    "read_repeated_facts",
]

#: Entries of the timetable that are read, those that are due first.
_TIMETABLE: Final = 100
#: Milliseconds for which a dead letter counts as a new one, and most of them that are counted for each topic.
RECENT: Final = 3_600_000
LETTERS: Final = 100
#: Where a message is that nobody has to see to any more, or never was.
_DONE: Final = ("settled", "")


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one rule about one thing.

    Attributes:
        check: what was looked at, as in ``persistence``; docs/cli.md lists all.
        subject: whose: ``server``, ``coordinator``, or a kind and a name, as in ``queue work``.
        well: nothing is to be done.
        text: how it stands.
        why: why it matters; empty where all is well.
        mend: the command that mends it, or shows more; empty where all is well.
        partitions: the numbers of the partitions that have it, of an instance with partitions; () of the whole.
    """

    check: str
    subject: str
    well: bool
    text: str
    why: str = ""
    mend: str = ""
    partitions: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {**asdict(self), "partitions": list(self.partitions)}


@dataclass(frozen=True, slots=True)
class RepeatedFacts:
    """The facts that are read twice, since they tell something by what becomes of them.

    Attributes:
        is_attended: whether a coordinator is at work.
        figures: queues, links and actions.
    """

    is_attended: bool
    figures: InstanceFigures


class DeadLetterCounts(NamedTuple):
    """The dead letters of the last hour in one topic.

    Attributes:
        number: how many there are, `LETTERS` at most.
        waiting: queue over the topic -> how many of them are not settled there; empty where no queue is.
    """

    number: int
    waiting: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """An instance at one moment.

    Attributes:
        now: the server's clock, ms.
        seen: what is looked at twice.
        late: what is due and since when, ms: `<kind> <name> ...` of the timetable.
        keepers: view, `link <destination>`, `action:<action>` -> until when a coordinator has promised to keep it, ms.
        topics: as of `Admin.topics`.
        dead_letters: topic of dead letters -> those of the last hour.
        asked: queue -> the largest backlog that a subscription asks for, of queues that let one hold one message, and
            where others wait.
    """

    now: int
    seen: RepeatedFacts
    late: Mapping[str, int]
    keepers: Mapping[str, int]
    topics: Mapping[str, TopicState]
    dead_letters: Mapping[str, DeadLetterCounts]
    asked: Mapping[str, int] = field(default_factory=dict)


async def read_repeated_facts(instance: str, pipeline: Pipeline) -> RepeatedFacts:
    """Read what is looked at twice; arguments as of `read_instance_facts`."""
    attended = await is_attended(instance)
    return RepeatedFacts(attended, (await read_figures(instance, pipeline)))


async def read_instance_facts(instance: str, origin: str, pipeline: Pipeline) -> InstanceFacts:
    """Read all facts; nothing is changed.

    Args:
        instance: its name.
        origin: as bookmarks have it.
        pipeline: for calls on their way together, of the store that runs this.
    """
    now = await server_time()
    late = await due_until(instance, now, _TIMETABLE)
    keepers = await duty_keepers(instance)
    seen = await read_repeated_facts(instance, pipeline)
    letters = {}
    for topic in dead_letter_topics(seen.figures):
        letters[topic] = await _count_dead_letters(instance, topic, now, seen.figures, pipeline)
    topics = await read_topics(instance, origin)
    backlogs = {}
    for name, queue in seen.figures.queues.items():
        stats = queue.stats
        if queue.stored.max_per_subscription_backlog == 1 and stats.subscriptions and stats.waiting + stats.ready:
            backlogs[name] = await most_asked(instance, name)
    return InstanceFacts(now, seen, late, keepers, topics, letters, backlogs)


async def _count_dead_letters(
    instance: str, topic: str, now: int, figures: InstanceFigures, pipeline: Pipeline
) -> DeadLetterCounts:
    """Look where the latest letters of a topic are in the queues over it."""
    ids = await latest_ids(instance, log_of(topic), now - RECENT, LETTERS)
    waiting = {}
    for queue in (name for name, each in figures.queues.items() if topic in each.stats.topics):
        waiting[queue] = 0
        for stream_id in ids:
            await Post(pipeline, browse_calls.explain(queue, ref_of(topic, stream_id)))
        for _ in ids:
            told: list[tuple[str, str]] = await Collect(pipeline)
            facts = dict(told)
            waiting[queue] += facts.get("where", "") not in _DONE
    return DeadLetterCounts(len(ids), waiting)


def dead_letter_topics(figures: InstanceFigures) -> list[str]:
    """The topics to which actions publish what queues give up."""
    actions = [read_stored_action(state.text) for state in figures.actions.values()]
    return sorted(
        {
            topic
            for action in actions
            if any(trigger.word == "expire" for trigger in action.on)
            for topic in action.published
            if "{{" not in topic
        }
    )
