"""Judgement of a run: its faults, the allowed losses and their number, and whether enough happened at all."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ampsq.protocol.schema import key

__all__ = [
    "PROMISED",
    "Answered",
    "Evidence",
    "Fault",
    "Published",
    "Verdict",
    "judge",
    "read_log",
    "read_published",
    "read_store",
]

#: Seconds before a loss of power, or of a primary, whose answers may be gone: as docs/promises.md has it.
PROMISED = 2.0
#: What a run has to have, for each second of it.
_MESSAGES, _FAULTS = 15.0, 0.2
#: Kinds of faults that hit, at least; for each ten seconds one, no more than that.
_KINDS = 6
_EXAMPLES = 3


class Fault(NamedTuple):
    """A fault that was done, and whether it touched anything."""

    name: str
    hit: bool


class Answered(NamedTuple):
    """The time of an answer that a message is recorded, and whether that was a promise for good."""

    at: float
    for_good: bool


@dataclass
class Published:
    """The reports of one publisher on its messages.

    Attributes:
        name: its.
        answered: body -> what it was answered; of a publisher with a store, that the store took it.
        unknown: bodies of which nobody knows: the reply was lost, or the process died meanwhile.
        refused: bodies that were certainly not recorded.
        stored: bodies that are still in the store.
        is_ordered: whether its messages are recorded in their order.
    """

    name: str
    answered: dict[str, Answered] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    is_ordered: bool = False


@dataclass
class Evidence:
    """All that a run left behind.

    Attributes:
        published: of each publisher.
        logs: instance -> bodies in its log, in order.
        handled: body -> how often a handler had it.
        findings: what `check` found, what ended by itself, what was refused for good: each a sentence.
        waiting: instance -> messages that are not settled.
    """

    published: list[Published]
    logs: dict[str, list[str]]
    handled: Counter
    findings: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)


@dataclass
class Verdict:
    """The judgement of a run.

    Attributes:
        wrong: each a sentence; none: all is well.
        allowed: what happened and may happen -> how often.
        messages: recorded.
        faults: name -> how often it hit.
        in_vain: faults that hit nothing.
        oldest: why answers were lost -> seconds from the oldest of them to what took it.
    """

    wrong: list[str] = field(default_factory=list)
    allowed: Counter = field(default_factory=Counter)
    messages: int = 0
    faults: Counter = field(default_factory=Counter)
    in_vain: int = 0
    oldest: dict[str, float] = field(default_factory=dict)

    def blame(self, what, bodies):
        """Say that something is wrong with messages, if there are any."""
        bodies = sorted(bodies)
        if bodies:
            more = ", ..." if len(bodies) > _EXAMPLES else ""
            self.wrong.append(f"{len(bodies)} {what}: {', '.join(bodies[:_EXAMPLES])}{more}")


def read_published(name, records, stored=(), *, is_ordered=False):
    """Turn the records of a publisher's processes into what it says of its messages."""
    out = Published(name, stored=set(stored), is_ordered=is_ordered)
    meant = set()
    for each in records:
        if each["what"] == "means":
            meant |= {f"{name} {number}" for number in range(each["first"], each["last"] + 1)}
        elif each["what"] == "took":
            for number in range(each["first"], each["last"] + 1):
                out.answered[f"{name} {number}"] = Answered(each["at"], for_good=True)
        elif each["what"] == "answered":
            # Through a gateway it waited until the message was on both disks.
            out.answered[f"{name} {each['number']}"] = Answered(each["at"], for_good=not name.startswith("plain"))
        elif each["what"] == "refused":
            out.refused.add(f"{name} {each['number']}")
    # What was begun and has no end is unknown: the process was killed, or it says so itself.
    out.unknown = meant - out.answered.keys() - out.refused
    return out


def read_log(plain, instance):
    """The bodies in an instance's log, past ampsq with a plain command."""
    return [json.loads(fields[b"b"]) for _, fields in plain.xrange(key(instance, "log", "orders"))]


def read_store(path, name):
    """The bodies that a publisher's file still holds, past ampsq."""
    if not Path(path).exists():
        return set()
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        held = [row[0] for row in file.execute("SELECT arguments FROM entries")]
    return {found.decode() for each in held for found in re.findall(rb'"(%s \d+)"' % name.encode(), each)}


def judge(evidence, faults, seconds, excuse):
    """Judge a run.

    Args:
        evidence: what it left behind.
        faults: what was done to it.
        seconds: how long.
        excuse: asked why a plain answer of a moment may be gone, and how many seconds it was old; None if it may not.
    """
    verdict = Verdict(
        messages=len(set().union(*evidence.logs.values())),
        faults=Counter(fault.name for fault in faults if fault.hit),
        in_vain=sum(not fault.hit for fault in faults),
    )
    verdict.wrong += evidence.findings
    _judge_amounts(verdict, seconds)
    excusable = {}
    for instance, log in evidence.logs.items():
        found = Counter(log)
        verdict.blame(f"recorded more than once at {instance}", (body for body, times in found.items() if times > 1))
        for published in evidence.published:
            _judge_publisher(verdict, instance, found.keys(), published, excuse, excusable)
            _judge_order(verdict, instance, log, published)
    known = {body for each in evidence.published for body in (*each.answered, *each.unknown, *each.refused)}
    recorded = set().union(*evidence.logs.values())
    verdict.blame("recorded that nobody published", recorded - known)
    if len({frozenset(log) for log in evidence.logs.values()}) > 1:
        verdict.blame("not at every instance", recorded - set.intersection(*map(set, evidence.logs.values())))
    for instance, number in evidence.waiting.items():
        if number:
            verdict.wrong.append(f"{number} never settled at {instance}")
    verdict.blame("settled and handled by nobody", recorded - evidence.handled.keys())
    for why, age in excusable.values():
        verdict.allowed[f"answered without a guarantee, {why}"] += 1
        verdict.oldest[why] = max(verdict.oldest.get(why, 0.0), age)
    again = sum(times - 1 for times in evidence.handled.values() if times > 1)
    verdict.allowed["handled again"] += again
    verdict.allowed["outcome unknown to a publisher that was killed, or whose reply was lost"] += sum(
        len(each.unknown) for each in evidence.published
    )
    return verdict


def _judge_amounts(verdict, seconds):
    """A run in which little happened shows nothing."""
    hit, kinds = sum(verdict.faults.values()), len(verdict.faults)
    for what, found, least in (
        ("messages", verdict.messages, seconds * _MESSAGES),
        ("faults that hit", hit, seconds * _FAULTS),
        ("kinds of faults that hit", kinds, min(_KINDS, seconds / 10)),
    ):
        if found < least:
            verdict.wrong.append(f"an empty run: {found} {what} in {seconds:g} s, and {least:g} are the least")


def _judge_publisher(verdict, instance, found, published, excuse, excusable):  # noqa: PLR0917
    missing = published.answered.keys() - found
    late = missing & published.stored
    lost = set()
    for body in missing - late:
        answer = published.answered[body]
        if not answer.for_good and (found_excuse := excuse(answer.at)):
            # One that is lost is lost at both.
            excusable[body] = found_excuse
        else:
            lost.add(body)
    verdict.blame(f"of {published.name} not at {instance}, but still in the publisher's store, too late", late)
    verdict.blame(f"of {published.name} LOST at {instance}", lost)
    verdict.blame(f"of {published.name} recorded at {instance}, though refused", published.refused & found)


def _judge_order(verdict, instance, log, published):
    if not published.is_ordered:
        return
    # A call without a guarantee whose reply did not come may still be on its way when the next ones are done.
    late = published.unknown if published.name.startswith("plain") else set()
    theirs = (body.rpartition(" ") for body in log if body not in late)
    numbers = [int(number) for name, _, number in theirs if name == published.name]
    after = [f"{published.name} {later}" for earlier, later in itertools.pairwise(numbers) if later < earlier]
    verdict.blame(f"of {published.name} out of order at {instance}", after)
