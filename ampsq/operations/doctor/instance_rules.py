"""Rules about an instance: its coordinator, views, queues, dead letters, links, logs and actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.formatting import count_text, span_text
from ampsq.base.values import is_name
from ampsq.operations.doctor.instance_facts import LETTERS, Finding, dead_letter_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.operations.doctor.instance_facts import InstanceFacts, RepeatedFacts
    from ampsq.operations.figures import QueueFigures
    from ampsq.replication.report import LinkStatus
    from ampsq.topics.topic_state import TopicState

__all__ = ["RULES"]

#: Seconds for which a message may wait where nobody is subscribed, and a link may lack the same one.
_LONG: Final = 60.0
#: Messages that a worker of one handler asks for: one that it handles, and the next one.
_PREFETCH: Final = 2
#: Milliseconds by which a lapsed lease may be late, and anything that is due where a coordinator is at work.
_LATE: Final = 2_000
_NEEDED: Final = "so lapsed leases, delays, expirations, dead letters, views and actions wait"
_START: Final = "ampsq coordinator"


def coordinator(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Check that a coordinator runs, and does in time what is due."""
    oldest = max((now.now - at for at in now.late.values()), default=0)
    if not now.seen.is_attended:
        text = "no coordinator is at work"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=_START)
        return
    if oldest > _LATE:
        text = f"what is due waits for {span_text(oldest)}, and a coordinator is at work"
        mend = "ampsq coordinator    # a second one; and look at the server's load: redis-cli --stat"
        yield Finding("coordinator", "coordinator", well=False, text=text, why=_NEEDED, mend=mend)
    else:
        yield Finding("coordinator", "coordinator", well=True, text="at work, and nothing that is due waits for it")


def keepers(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Check that somebody keeps the views: each has one coordinator, which says so every few seconds."""
    # Those of actions and of links have other names; the rules of these tell of them.
    for view in filter(is_name, sorted(now.keepers)):
        subject, away = f"view {view}", now.now - now.keepers[view]
        if not now.seen.is_attended or away > _LATE:
            text = f"no coordinator has kept it up to date for {span_text(max(away, 0))}"
            why = "its rows are old, and queues over it get none"
            yield Finding("views", subject, well=False, text=text, why=why, mend=_START)
        else:
            yield Finding("views", subject, well=True, text="is kept up to date")


def leases(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Leases past their deadlines: a coordinator takes them back in a moment."""
    stuck = {
        member.split(" ")[1]: now.now - at
        for member, at in now.late.items()
        if member.startswith("leases ") and now.now - at > _LATE
    }
    for queue, late in sorted(stuck.items()):
        text = f"leases are held {span_text(late)} past their deadline"
        why = "no other subscription gets their messages"
        yield Finding("leases", f"queue {queue}", well=False, text=text, why=why, mend=_START)
    if not stuck:
        leased = sum(queue.stats.leased for queue in now.seen.figures.queues.values())
        yield Finding("leases", "queues", well=True, text=f"{leased:,} leased, none past its deadline")


def unattended(before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Queues with nobody subscribed in which messages wait or become more."""
    letters, wrong = set(dead_letter_topics(now.seen.figures)), False
    for name, queue in now.seen.figures.queues.items():
        if queue.stats.subscriptions or not queue.stats.depth or letters & set(queue.stats.topics):
            continue
        came = _came(before, name, queue)
        age = queue.ages.message or 0.0
        if came or age > _LONG:
            wrong = True
            more = f", {came:,} more since a moment ago" if came else ""
            text = f"{count_text(queue.stats.depth, 'message')}, the oldest for {span_text(int(age * 1000))}{more}"
            why = "nobody is subscribed, so the queue and its log only grow"
            mend = f"ampsq worker MODULE:FUNCTION --queue {name}"
            yield Finding("consumers", f"queue {name}", well=False, text=text, why=why, mend=mend)
    if not wrong:
        text = f"{count_text(len(now.seen.figures.queues), 'queue')}, none where messages wait and nobody is subscribed"
        yield Finding("consumers", "queues", well=True, text=text)


def _came(before: RepeatedFacts, name: str, queue: QueueFigures) -> int:
    earlier = before.figures.queues.get(name)
    return max(queue.entered - earlier.entered, 0) if earlier is not None else 0


def backlogs(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Queues of which a subscription holds one message, the default, while it asks for more, and others wait."""
    for queue, asked in sorted(now.asked.items()):
        if asked <= _PREFETCH:
            continue
        text = f"a subscription asks for {asked:,} messages and may hold 1, while others wait"
        why = "max_per_subscription_backlog is 1, so a worker handles one message at a time, whatever its concurrency"
        mend = f"ampsq apply FILE    # with max_per_subscription_backlog: {asked} for the queue {queue}"
        yield Finding("backlogs", f"queue {queue}", well=False, text=text, why=why, mend=mend)


def dead_letters(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Find messages that were given up in the last hour and wait; put back or settled ones do not count."""
    for topic, letters in sorted(now.dead_letters.items()):
        subject, why = f"topic {topic}", "no handler has processed these messages"
        if letters.number and not letters.waiting:
            text, show = _many(letters.number), f"ampsq subscribe-topic {topic} --bookmark '[epoch:now)'"
            yield Finding("dead letters", subject, well=False, text=text, why=why, mend=show)
            continue
        kept = sum(now.seen.figures.queues[name].stats.depth for name in letters.waiting)
        queue, number = max(letters.waiting.items(), key=lambda each: each[1], default=("", 0))
        if number:
            text, show = (
                f"{_many(number)}, and {'waits' if number == 1 else 'wait'}",
                f"ampsq dead-letters list {queue}",
            )
            yield Finding("dead letters", subject, well=False, text=text, why=why, mend=show)
        else:
            seen_to = f", {letters.number} were seen to" if letters.number else ""
            text = f"none of the last hour waits{seen_to}; {kept:,} earlier ones wait"
            yield Finding("dead letters", subject, well=True, text=text)


def _many(number: int) -> str:
    if number == 1:
        return "a message was given up in the last hour"
    return f"{f'{LETTERS} or more' if number >= LETTERS else number} messages were given up in the last hour"


def links(before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Links that do not run, stand still, or are not waited for."""
    earlier = {link.destination: link for link in before.figures.links if link.direction == "out"}
    for link in now.seen.figures.links:
        if link.direction == "out":
            yield from _link(link, earlier.get(link.destination))
        elif link.state == "refused":
            text = f"the link from there is refused ({link.reason})"
            why, mend = (
                "what is recorded there does not come here",
                "ampsq replication    # at that instance; it says what to mend",
            )
            yield Finding("links", f"link {link.instance}", well=False, text=text, why=why, mend=mend)


def _link(link: LinkStatus, earlier: LinkStatus | None) -> Iterator[Finding]:
    subject, name, is_well = f"destination {link.destination}", link.destination, True

    def wrong(text: str, why: str, mend: str) -> Finding:
        return Finding("links", subject, well=False, text=text, why=why, mend=mend)

    if link.acknowledgement == "downgraded":
        is_well = False
        why = "what publishers were told is persisted may be missing there: unsafe to fail over to"
        yield wrong("it is downgraded", why, f"ampsq replication upgrade {name}    # once it is caught up")
    missing = f"it lacks {link.behind:,}, the oldest for {span_text(int((link.seconds_behind or 0) * 1000))}"
    if link.state != "connected":
        is_well = False
        mend = "ampsq coordinator" if link.state == "silent" else "ampsq replication"
        yield wrong(
            f"the link is {link.state} ({link.reason}); {missing}",
            "messages stay here alone, and their logs grow",
            mend,
        )
    elif (link.seconds_behind or 0) > _LONG and earlier is not None and link.messages <= earlier.messages:
        is_well = False
        yield wrong(
            f"the link stands still; {missing}", "messages stay here alone, and their logs grow", "ampsq replication"
        )
    if is_well:
        yield Finding(
            "links",
            subject,
            well=True,
            text=f"connected; {missing}" if link.behind else "connected, and has everything",
        )


def logs(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Logs that are kept beyond their retention, since somebody needs a message."""
    pinned = {name: state for name, state in now.topics.items() if state.pinned}
    for name, state in sorted(pinned.items()):
        where = f", where it is {state.state}" if state.state else ""
        text = f"{count_text(state.kept, 'message')} beyond the retention, pinned by {state.pinned_by}{where}"
        why = f"the log grows until {state.pinned} is not needed any more"
        yield Finding("logs", f"topic {name}", well=False, text=text, why=why, mend=_unpin(state))
    if not pinned:
        text = f"{count_text(len(now.topics), 'topic')}, none with messages kept beyond its retention"
        yield Finding("logs", "topics", well=True, text=text)


def first_publishes(_before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Tell that a first publish makes no topic, where the instance says so."""
    if now.seen.figures.defined_only:
        text = f"{count_text(len(now.topics), 'topic')}; a first publish to another name is refused (topics: defined)"
        yield Finding("topics", "instance", well=True, text=text)


def _unpin(topic: TopicState) -> str:
    kind, _, name = (topic.pinned_by or "").partition(" ")
    commands = {
        "queue": f"ampsq explain {name} {topic.pinned}",
        "action": f"ampsq actions failed {name}",
        "destination": f"ampsq replication    # and, if it is gone for good: ampsq replication remove {name}",
    }
    return commands.get(kind, "ampsq topics")


def actions(before: RepeatedFacts, now: InstanceFacts) -> Iterator[Finding]:
    """Actions whose events failed, or that do not move."""
    for name, action in now.seen.figures.actions.items():
        earlier = before.figures.actions.get(name)
        subject = f"action {name}"
        if action.failed:
            text = f"{count_text(action.failed, 'event')} failed and are tried again: {action.error}"
            why = "what it should have done for them is not done"
            yield Finding("actions", subject, well=False, text=text, why=why, mend=f"ampsq actions failed {name}")
        elif action.waiting and earlier is not None and earlier.waiting and earlier.done == action.done:
            text = f"{count_text(action.waiting, 'event')} wait, and none was done since a moment ago"
            yield Finding(
                "actions",
                subject,
                well=False,
                text=text,
                why=action.error or "no coordinator runs it",
                mend="ampsq coordinator",
            )
        else:
            yield Finding("actions", subject, well=True, text=f"{count_text(action.done, 'event')} done, none failed")


#: All rules about an instance, in the order of the report.
RULES: Final[Sequence[Callable[[RepeatedFacts, InstanceFacts], Iterator[Finding]]]] = (
    coordinator, keepers, leases, unattended, backlogs, dead_letters, links, logs, first_publishes,
    actions,
)  # fmt: skip
