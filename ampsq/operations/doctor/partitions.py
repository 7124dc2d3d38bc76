"""All partitions of an instance as a whole: what is wrong anywhere, and which partition has more than its share."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError, NotPermitted, Unavailable
from ampsq.base.formatting import count_text
from ampsq.operations.doctor.any_server import open_any_server
from ampsq.operations.doctor.examination import LOOKS, PAUSE, InstanceExamination
from ampsq.operations.doctor.instance_facts import Finding
from ampsq.operations.doctor.partition_findings import MORE, TIMES, find_skew, merge_findings, numbers_text
from ampsq.operations.doctor.server_facts import read_server_facts
from ampsq.operations.doctor.server_rules import SERVER_RULES
from ampsq.protocol.reads.clock import last_given_id
from ampsq.protocol.reads.instance import instance_state
from ampsq.protocol.reads.partitions import definitions_version, read_intent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ampsq.base.partitions import Partition
    from ampsq.operations.doctor.server_facts import ServerFacts
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["examine_partitions"]

#: Partitions that are looked at together.
_AT_ONCE: Final = 16
#: Commands a second, of servers.
_COMMANDS: Final = "instantaneous_ops_per_sec"


def examine_partitions(url: str, partitions: Sequence[Partition], interval: float) -> list[Finding]:
    """Look at all partitions of an instance and at their servers, and judge: what is wrong first.

    A partition whose server is away is a finding, and the others are looked at all the same.

    Args:
        url: addresses, without ``partitions=``.
        partitions: all of them.
        interval: seconds between the two looks.

    Raises:
        Unavailable: no server of any partition answers. DefinitionError: the instance has another number of them.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(min(len(partitions), _AT_ONCE), "doctor"))
        looks = [_PartitionExamination(each) for each in partitions]
        for look in looks:
            stack.callback(look.close)
        found = _look_at_register(url, partitions)
        list(pool.map(lambda look: look.open(url), looks))
        away = [look.failure for look in looks if look.failure is not None]
        if len(away) == len(looks):
            raise away[0]
        servers = _Servers(looks)
        found += servers.findings()
        readable = [look for look in looks if look.server in servers.readable]
        _look_twice(pool, readable, interval)
    found += _placed(looks)
    found += merge_findings(
        [(look.partition, finding) for look in looks for finding in look.findings()], len(partitions)
    )
    found += _definitions(readable, whole=len(readable) == len(looks))
    found += servers.skew()
    found += _skew(readable)
    return sorted(found, key=lambda finding: finding.well)


def _look_twice(pool: ThreadPoolExecutor, looks: Sequence[_PartitionExamination], interval: float) -> None:
    list(pool.map(lambda look: look.run(look.begin), looks))
    time.sleep(interval)
    for number in range(LOOKS):
        if number:
            time.sleep(PAUSE)
        if all(pool.map(lambda look: look.is_attended(), looks)):
            break
    list(pool.map(lambda look: look.run(look.end), looks))


class _PartitionExamination:
    """The examination of one partition.

    Args:
        partition: the partition.

    Attributes:
        partition: as it was given.
        server: the address of the server that has it; "" where none answers.
        failure: why none does.
        versions: of the definitions, at both looks; of the first partition also what is being defined.
        store: at that server.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition, self.server = partition, ""
        self.failure: Unavailable | None = None
        self.versions: list[tuple[int, str]] = []
        self._stores: list[Store] = []
        self._pipelines: list[Pipeline] = []
        self._examinations: list[InstanceExamination] = []

    def open(self, url: str) -> None:
        """Look for its server."""
        try:
            store = open_any_server(url, self.partition.instance)
        except Unavailable as failure:
            self.failure = failure
            return
        self._stores.append(store)
        self._pipelines.append(store.pipeline())
        self._examinations.append(InstanceExamination(self.partition.instance, self._pipelines[0]))
        self.server = str(store.route.current or store.url)

    @property
    def store(self) -> Store:
        return self._stores[0]

    @property
    def examination(self) -> InstanceExamination:
        return self._examinations[0]

    def run(self, part: Callable[[], None]) -> None:
        """Run a part of it; that its server went away meanwhile is noted."""
        try:
            part()
        except NotPermitted:
            # The examination of the partition has a finding for what this user may not ask.
            return
        except Unavailable as failure:
            self.failure = self.failure or failure

    def begin(self) -> None:
        self.store.run(self.examination.begin())
        self._read_versions()

    def is_attended(self) -> bool:
        return self.store.run(self.examination.is_attended())

    def end(self) -> None:
        self.store.run(self.examination.end())
        self._read_versions()

    def _read_versions(self) -> None:
        instance = self.partition.instance
        intent = self.store.call(read_intent(instance)) if self.partition.number == 0 else ""
        self.versions.append((self.store.call(definitions_version(instance)), intent))

    def findings(self) -> Iterator[Finding]:
        """Give what was found, in words that are those of all partitions."""
        if self.failure is not None:
            why = "nothing comes from it, and publishers to it get this error; the other partitions go on"
            mend = "redis-cli --cluster check HOST:PORT    # which primaries are lost, and who could follow them"
            yield Finding("answers", "server", well=False, text=str(self.failure), why=why, mend=mend)
            return
        instance, whole = self.partition.instance, self.partition.name
        for finding in self.examination.found:
            if finding.check == "instance":
                text, mend = "nobody has opened it yet", "ampsq queues    # whoever opens the instance makes it"
                yield Finding("instance", "instance", well=False, text=text, why="it takes no messages", mend=mend)
                continue
            subject = f"instance {whole}" if finding.subject == f"instance {instance}" else finding.subject
            # These work at all partitions; the others need the name of the one.
            mend = finding.mend
            if mend.startswith(("ampsq upgrade", "ampsq apply")):
                mend = mend.replace(f"--instance {instance}", f"--instance {whole}")
            yield replace(finding, subject=subject, mend=mend)

    def close(self) -> None:
        for pipeline in self._pipelines:
            pipeline.close()
        for store in self._stores:
            store.close()


class _Servers:
    """The servers that have partitions, each looked at once."""

    def __init__(self, looks: Sequence[_PartitionExamination]) -> None:
        self._of: dict[str, list[_PartitionExamination]] = {}
        for look in looks:
            if look.server:
                self._of.setdefault(look.server, []).append(look)
        self._facts = {server: facts for server, own in self._of.items() if (facts := _server_facts(own)) is not None}
        self.readable = {server for server, facts in self._facts.items() if facts.is_readable}

    def findings(self) -> Iterator[Finding]:
        """Give what is wrong with a server, and once what is well with all."""
        well: dict[str, list[Finding]] = {}
        for server, facts in self._facts.items():
            for finding in (finding for rule in SERVER_RULES for finding in rule(facts)):
                subject = "server" if len(self._of) == 1 else f"server {server}"
                if finding.well:
                    well.setdefault(finding.check, []).append(finding)
                else:
                    yield replace(finding, subject=subject)
        for same in well.values():
            texts = {finding.text for finding in same}
            of = f"at {len(same)} of {len(self._of)} servers"
            text = same[0].text if len(self._of) == 1 else f"{of}: {texts.pop()}" if len(texts) == 1 else f"well {of}"
            yield replace(same[0], text=text)

    def skew(self) -> Iterator[Finding]:
        """Find a server that runs many more commands than the others."""
        figures = {server: int(facts.info.get(_COMMANDS) or 0) for server, facts in self._facts.items()}
        hot = find_skew(figures)
        if hot is not None:
            text = f"{hot.number:,} commands a second; the median of the other servers is {hot.others:,.0f}"
            why = "its core is at its end first, while the others have room"
            mend = "redis-cli --cluster rebalance HOST:PORT    # where none of its partitions alone is hot, see above"
            yield Finding("skew", f"server {hot.where}", well=False, text=text, why=why, mend=mend)


def _server_facts(looks: Sequence[_PartitionExamination]) -> ServerFacts | None:
    """Read the facts of the server of these partitions; None where it went away, which they note."""
    first = looks[0]
    try:
        facts = first.store.run(read_server_facts(first.partition.instance))
        latest = facts.clock
        for look in looks[1:]:
            # The examination of the partition has a finding for a right that is missing.
            with contextlib.suppress(NotPermitted):
                latest = max(latest, look.store.call(last_given_id(look.partition.instance))[0])
    except Unavailable as failure:
        for look in looks:
            look.failure = look.failure or failure
        return None
    return replace(facts, clock=latest)


def _look_at_register(url: str, partitions: Sequence[Partition]) -> list[Finding]:
    """Look how many partitions the instance has, by its own name."""
    name, total = partitions[0].name, len(partitions)
    try:
        with contextlib.closing(open_any_server(url, name)) as store:
            state = store.call(instance_state(name))
    except NotPermitted:
        # The partitions say what this user may not ask.
        return []
    except Unavailable as failure:
        why = "no client can open the instance while the number of its partitions cannot be read; those that are go on"
        mend = "redis-cli --cluster check HOST:PORT    # which primaries are lost, and who could follow them"
        return [Finding("answers", f"instance {name}", well=False, text=str(failure), why=why, mend=mend)]
    if state.partitions in (0, total):
        return []
    raise DefinitionError(
        f"instance {name!r} has {state.partitions} partitions, and {total} are asked for: their number never changes; "
        f"allowed: partitions={state.partitions}"
    )


def _placed(looks: Sequence[_PartitionExamination]) -> list[Finding]:
    """Say where the partitions are."""
    servers = Counter(look.server for look in looks if look.failure is None and look.server)
    name, number = looks[0].partition.name, sum(servers.values())
    where = ", ".join(f"{count} at {server}" for server, count in sorted(servers.items()))
    text = f"{number} of {count_text(len(looks), 'partition')} answer{'s' if number == 1 else ''}: {where}"
    # Those that do not are findings of their own.
    return [Finding("partitions", f"instance {name}", well=True, text=text)] if number == len(looks) else []


def _definitions(looks: Sequence[_PartitionExamination], *, whole: bool) -> Iterator[Finding]:
    """Check that all partitions have the same version of what is defined."""
    seen = [look for look in looks if look.failure is None and len(look.versions) == 2]  # noqa: PLR2004  (both looks)
    if not seen or seen[0].partition.number != 0:
        return
    subject, (_, before), (_, now) = f"instance {seen[0].partition.name}", *seen[0].versions
    version, _, unfinished = now.partition(" ")
    late = [look.partition.number for look in seen if look.versions[-1][0] < int(version or 0)]
    if unfinished and now == before:
        lacking = (
            f"{numbers_text(late)} {'lacks' if len(late) == 1 else 'lack'} it" if late else "its end was not noted"
        )
        text = f"version {version} is not in all partitions yet: {lacking}"
        why = "who defined it died meanwhile, or was refused; partitions may differ"
        mend = "ampsq queues    # whoever opens the instance finishes it"
        yield Finding("definitions", subject, well=False, text=text, why=why, mend=mend)
    elif late and not unfinished:
        has = "has" if len(late) == 1 else "have"
        text, mend = f"{numbers_text(late)} {has} an older version than {version}", "ampsq apply FILE"
        yield Finding("definitions", subject, well=False, text=text, why="partitions differ", mend=mend)
    elif whole:
        yield Finding("definitions", subject, well=True, text=f"all partitions have version {version or 0}")


class _Figure(NamedTuple):
    """A figure that each partition has.

    Attributes:
        subject: whose it is, as in ``queue work``.
        what: it counts.
        why: it matters that one partition has more than its share.
    """

    subject: str
    what: str
    why: str


def _skew(looks: Sequence[_PartitionExamination]) -> Iterator[Finding]:
    """Find the partitions that have, or get, many more messages than the others."""
    partitions: dict[int, Partition] = {}
    figures: dict[_Figure, Counter[int]] = {}
    for look in looks:
        if look.failure is None and (found := _figures(look.examination)):
            partitions[look.partition.number] = look.partition
            for figure, number in found.items():
                figures.setdefault(figure, Counter())[look.partition.number] = number
    hot_ones = 0
    for figure, counted in figures.items():
        # Where a topic was never published to, it has none.
        hot = find_skew({number: counted[number] for number in partitions})
        if hot is not None:
            hot_ones += 1
            text = (
                f"{hot.number:,} {figure.what}, {hot.number / hot.all:.0%} of all; the median of the other partitions "
                f"is {hot.others:,.0f}"
            )
            subject = f"{figure.subject} in partition {hot.where} ({partitions[hot.where].instance})"
            name = figure.subject.partition(" ")[2]
            mend = f"ampsq keys --hot {name}    # which keys; in a new instance another partition_by may spread them"
            named = (hot.where,)
            yield Finding("skew", subject, well=False, text=text, why=figure.why, mend=mend, partitions=named)
    if not hot_ones and len(partitions) > 1:
        text = f"no partition has {TIMES:g} times the median of the others, and {MORE:,} messages more"
        yield Finding("skew", "partitions", well=True, text=text)


def _figures(examination: InstanceExamination) -> dict[_Figure, int]:
    """Return what is compared of a partition; nothing where it could not be looked at twice."""
    before, after = examination.before, examination.after
    if before is None or after is None:
        return {}
    kept = "its server keeps and serves more than the others do"
    wait = "they wait for each other, while the other partitions are done"
    work = "one server does what was meant for all"
    found = {}
    for name, topic in after.topics.items():
        found[_Figure(f"topic {name}", "messages in its log", kept)] = topic.messages
    for name, queue in after.seen.figures.queues.items():
        found[_Figure(f"queue {name}", "messages wait", wait)] = queue.stats.depth - queue.stats.leased
        if name in before.figures.queues:
            came = queue.entered - before.figures.queues[name].entered
            found[_Figure(f"queue {name}", "messages came between two looks", work)] = came
    return found
