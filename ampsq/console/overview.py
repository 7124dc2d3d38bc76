"""The overview: each instance with how it stands, what is wrong with it, and where to look further."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ampsq.base.errors import AmpsqError
from ampsq.console.charts import rates
from ampsq.console.queue_list import asked_number
from ampsq.operations.doctor.partition_findings import find_skew, merge_findings
from ampsq.protocol.reads.coordinators import owners_of_instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.base.partitions import Partition
    from ampsq.console.examiner import Examiner
    from ampsq.console.observer import Observer
    from ampsq.operations.doctor import Finding
    from ampsq.operations.figures import InstanceFigures
    from ampsq.protocol.reads.coordinators import CoordinatorEntry
    from ampsq.replication.report import LinkStatus

__all__ = [
    "InstanceOverview",
    "Overview",
    "OverviewFault",
    "OverviewLink",
    "PartitionOverview",
    "letter_queues",
    "read_overview",
]

#: Instances on one page.
PAGE: Final = 25
_SERVER: Final = "server"
#: Kind of a subject -> the page about it, below the instance's; `{}` is its name. The others have none of their own.
_PAGES: Final = {
    "queue": "queues/{}", "action": "actions/{}", "destination": "replication", "link": "replication",
    "queues": "queues",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OverviewFault:
    """A fault of one thing.

    Attributes:
        check, subject, text, why, mend: as of `Finding`.
        page: the address of the page about it; "" where there is none.
    """

    check: str
    subject: str
    text: str
    why: str
    mend: str
    page: str = ""


@dataclass(frozen=True, slots=True)
class OverviewLink:
    """One direction of a link.

    Attributes:
        direction: ``to`` or ``from``.
        peer: the instance at the other end, or the destination's name while there is none.
        state: as of `LinkStatus`, or ``downgraded``.
        reason: why it is not connected; "" where it is.
        behind: messages and journal entries that it lacks; None of an incoming link.
    """

    direction: str
    peer: str
    state: str
    reason: str
    behind: int | None


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """State of one partition of an instance.

    Attributes:
        number: from 0.
        name: by which it is an instance of its own, with pages of its own.
        unreachable, health, per_second_in, per_second_out, depth, oldest: as of `InstanceOverview`.
        faults: how many things are wrong with it.
        is_hot: whether it has many more messages than the others, as `ampsq doctor` judges it.
    """

    number: int
    name: str
    unreachable: str
    health: str
    per_second_in: float | None
    per_second_out: float | None
    depth: int
    oldest: float | None
    faults: int
    is_hot: bool


@dataclass(frozen=True, slots=True)
class InstanceOverview:
    """State of one instance, or of one with partitions: of these the sums, and the oldest message of any.

    Attributes:
        name: its name.
        unreachable: why its figures could not be read; "" where they could.
        health: ``well``, ``wrong``, ``unreachable``, or ``unknown`` until it is examined.
        faults: what is wrong.
        checks: how many things were found to be well.
        per_second_in, per_second_out: messages, over the last ten seconds; None while that is not known.
        queues: how many it has.
        depth: messages that are not settled, of all queues.
        oldest: seconds for which the oldest of them has been there, and in which queue; None where there is none.
        dead_letters: those that wait.
        links: its links, both directions.
        coordinators: those that care for it, as `host:process`.
        partitions: those that were seen, with the most messages first; none of an instance without.
        total: how many partitions it has.
    """

    name: str
    unreachable: str = ""
    health: str = "unknown"
    faults: tuple[OverviewFault, ...] = ()
    checks: int = 0
    per_second_in: float | None = None
    per_second_out: float | None = None
    queues: int = 0
    depth: int = 0
    oldest: float | None = None
    oldest_queue: str = ""
    dead_letters: int = 0
    links: tuple[OverviewLink, ...] = ()
    coordinators: tuple[str, ...] = ()
    partitions: tuple[PartitionOverview, ...] = ()
    total: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it.

    Attributes:
        server: what is wrong with the server.
        is_examined: whether the server was looked at.
        instances: those of this page; those with something wrong first, then by name.
        number: of instances on all pages.
        wrong: how many of all have something wrong, or could not be reached.
        page: its number, from 1.
        pages: how many there are.
    """

    server: tuple[OverviewFault, ...]
    is_examined: bool
    instances: tuple[InstanceOverview, ...]
    number: int
    wrong: int
    page: int
    pages: int

    def as_dict(self) -> dict[str, object]:
        """Return the same as plain values, for JSON."""
        return asdict(self)


def read_overview(observer: Observer, examiner: Examiner, page: str) -> Overview:
    """Read how all instances stand; one that cannot be read is shown with the reason, beside all others.

    Raises:
        Unavailable: the server cannot be reached.
    """
    names = observer.instances()
    carers = _carers(observer, names)
    each_one = [_instance(observer, examiner, name, carers.get(name, ())) for name in names]
    found = _with_partitions_as_one(observer, examiner, each_one)
    examined = [each for name in names if (each := examiner.found(name)) is not None and not each.fault]
    wrong = [one for each in examined for one in each.findings if one.subject == _SERVER and not one.well]
    # Each examination looks at the server, a moment apart: of what several found the last word counts.
    server = {each.check: _fault(each, "") for each in wrong}
    found.sort(key=lambda each: (each.health not in _WRONG, each.name))
    pages = max(-(-len(found) // PAGE), 1)
    at = asked_number(page, pages)
    shown = tuple(found[(at - 1) * PAGE : at * PAGE])
    return Overview(
        tuple(server.values()),
        bool(examined),
        shown,
        len(found),
        sum(each.health in _WRONG for each in found),
        at,
        pages,
    )


_WRONG: Final = ("wrong", "unreachable")


def _carers(observer: Observer, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Tell which coordinators care for which instances."""
    there: Mapping[str, CoordinatorEntry] = {each.id: each for each in observer.coordinators()}
    return {
        name: tuple(
            f"{there[each].host}:{there[each].process}" for each in owners_of_instance(name, list(there.values()))
        )
        for name in names
    }


def _instance(observer: Observer, examiner: Examiner, name: str, carers: tuple[str, ...]) -> InstanceOverview:
    try:
        figures = observer.reading(name).figures
    except AmpsqError as error:
        return InstanceOverview(name, str(error), "unreachable", coordinators=carers)
    found = examiner.found(name)
    own = [each for each in found.findings if each.subject != _SERVER] if found is not None else []
    faults = tuple(_fault(each, name) for each in own if not each.well)
    health = "unknown" if found is None or found.fault else "wrong" if faults else "well"
    each_second = rates(observer.totals(name))
    behind = {queue: each.behind for queue, each in figures.queues.items() if each.stats.depth}
    oldest = max(behind, key=behind.__getitem__, default="")
    return InstanceOverview(
        name, "", health, faults, sum(each.well for each in own), each_second[0] if each_second else None,
        each_second[1] if each_second else None, len(figures.queues),
        sum(each.stats.depth for each in figures.queues.values()), behind.get(oldest), oldest,
        sum(figures.queues[each].stats.depth for each in letter_queues(figures)),
        tuple(map(_link, figures.links)), carers,
    )  # fmt: skip


def _with_partitions_as_one(
    observer: Observer, examiner: Examiner, found: Sequence[InstanceOverview]
) -> list[InstanceOverview]:
    """Put the partitions of an instance together; one that was never reached is not known to be one."""
    wholes: dict[tuple[str, int], list[tuple[Partition, InstanceOverview]]] = {}
    others: list[InstanceOverview] = []
    for each in found:
        partition = observer.partition(each.name)
        if partition is None:
            others.append(each)
        else:
            wholes.setdefault((partition.name, partition.total), []).append((partition, each))
    return [*others, *(_whole(examiner, parts) for parts in wholes.values())]


def _whole(examiner: Examiner, parts: Sequence[tuple[Partition, InstanceOverview]]) -> InstanceOverview:
    whole, total, all_of_it = parts[0][0].name, parts[0][0].total, [each for _, each in parts]
    names = {partition.number: partition.instance for partition, _ in parts}
    there = [(partition, each) for partition, each in parts if not each.unreachable]
    findings = [
        (partition, finding)
        for partition, _ in there
        if (examination := examiner.found(partition.instance)) is not None
        for finding in examination.findings
        if finding.subject != _SERVER
    ]
    hot = find_skew({partition.number: each.depth for partition, each in there})
    faults = [
        OverviewFault("answers", f"partition {partition.number}", each.unreachable, _AWAY, _CHECK)
        for partition, each in parts
        if each.unreachable
    ]
    if hot is not None:
        text = f"{hot.number:,} messages, {hot.number / hot.all:.0%} of all; the median of the other partitions is "
        where = f"/i/{quote(names[hot.where], safe='')}/queues"
        faults.append(
            OverviewFault("skew", f"partition {hot.where}", f"{text}{hot.others:,.0f}", _HOT, "ampsq doctor", where)
        )
    merged = [each for each in merge_findings(findings, total) if not each.well]
    faults += [_fault(each, names[each.partitions[0]]) for each in merged]
    healths = {each.health for each in all_of_it}
    worst = "unreachable" if not there else "wrong" if faults else "unknown" if "unknown" in healths else "well"
    oldest = max(all_of_it, key=lambda each: each.oldest or 0.0)
    rows = [
        PartitionOverview(
            partition.number, each.name, each.unreachable, each.health, each.per_second_in, each.per_second_out,
            each.depth, each.oldest, len(each.faults), hot is not None and hot.where == partition.number,
        )
        for partition, each in sorted(parts, key=lambda part: (-part[1].depth, part[0].number))
    ]  # fmt: skip
    return InstanceOverview(
        whole, "" if there else all_of_it[0].unreachable, worst, tuple(faults), min(each.checks for each in all_of_it),
        _sum(each.per_second_in for each in all_of_it), _sum(each.per_second_out for each in all_of_it),
        max(each.queues for each in all_of_it), sum(each.depth for each in all_of_it), oldest.oldest,
        oldest.oldest_queue, sum(each.dead_letters for each in all_of_it), (),
        tuple(sorted({carer for each in all_of_it for carer in each.coordinators})), tuple(rows), total,
    )  # fmt: skip


_AWAY: Final = "nothing comes from it, and publishers to it get this error; the other partitions go on"
_CHECK: Final = "redis-cli --cluster check HOST:PORT"
_HOT: Final = "one server does what was meant for all"


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def letter_queues(figures: InstanceFigures) -> Iterable[str]:
    """Give the names of the queues over topics that actions publish to."""
    topics = {topic for state in figures.actions.values() for topic in state.definition.topics}
    return [name for name, each in figures.queues.items() if any(map(each.definition.feeds_from, topics))]


def _fault(finding: Finding, instance: str) -> OverviewFault:
    # Of partitions the subject names them behind what it is about.
    subject = finding.subject.rpartition(" in ")[0] if finding.partitions else finding.subject
    kind, _, name = subject.partition(" ")
    page = "dead-letters" if finding.check == "dead letters" else _PAGES.get(kind, "")
    where = f"/i/{quote(instance, safe='')}/{page.format(quote(name, safe=''))}" if instance and page else ""
    return OverviewFault(finding.check, finding.subject, finding.text, finding.why, finding.mend, where)


def _link(link: LinkStatus) -> OverviewLink:
    is_out = link.direction == "out"
    state = "downgraded" if link.acknowledgement == "downgraded" else link.state
    reason = (link.reason or "") if link.state != "connected" else ""
    peer = link.instance or link.destination
    return OverviewLink("to" if is_out else "from", peer, state, reason, link.behind)
