"""The figures as Prometheus reads them: names by its conventions, one sample a queue, link or action.

`FAMILIES` and `HISTOGRAMS` are the list of all of them; docs/console.md has it as a table.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ampsq.base.histogram import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from ampsq.base.histogram import Histogram
    from ampsq.console.observer import Reading
    from ampsq.operations.actions import ActionState
    from ampsq.operations.figures import QueueFigures
    from ampsq.operations.group_counting import GroupFigures
    from ampsq.protocol.calls.queue_latencies import Latencies
    from ampsq.replication.report import LinkStatus

__all__ = ["FAMILIES", "HISTOGRAMS", "Family", "HistogramFamily", "exposition"]

#: Values of the labels, and the number; None: no sample.
Sample: TypeAlias = "tuple[list[str], float | None]"


class Family(NamedTuple):
    """One metric.

    Attributes:
        name: without the ``_total`` that counters have.
        of: ``queue``, ``link``, ``action`` or ``instance``: what it has one sample for.
        kind: ``gauge`` or ``counter``.
        text: what it says.
        samples: takes them from the figures of one instance.
    """

    name: str
    of: str
    kind: str
    text: str
    samples: Callable[[Reading], Iterator[Sample]]

    @property
    def exposed(self) -> str:
        """The name as queries have it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class HistogramFamily(NamedTuple):
    """One histogram of each queue.

    Attributes:
        name: without ``_bucket``, ``_count`` and ``_sum``.
        text: what it says.
        read: takes it from what was measured.
    """

    name: str
    text: str
    read: Callable[[Latencies], Histogram]


def _stat(name: str) -> Callable[[QueueFigures], float | None]:
    return lambda queue: getattr(queue.stats, name)


def _shared(read: Callable[[QueueFigures], float | None]) -> Callable[[QueueFigures], float | None]:
    """Of queues that several instances may share alone."""
    return lambda queue: read(queue) if queue.definition.owner else None


def _queue_gauge(name: str, text: str, read: Callable[[QueueFigures], float | None]) -> Family:
    return _queue(name, "gauge", text, read)


def _queue_counter(name: str, text: str, read: Callable[[QueueFigures], float | None] | None = None) -> Family:
    return _queue(name, "counter", text, read or _stat(name))


def _queue(name: str, kind: str, text: str, read: Callable[[QueueFigures], float | None]) -> Family:
    def samples(reading: Reading) -> Iterator[Sample]:
        figures = reading.figures
        return (([figures.instance, each], read(queue)) for each, queue in figures.queues.items())

    return Family(f"ampsq_queue_{name}", "queue", kind, text, samples)


def _groups(name: str, text: str, read: Callable[[GroupFigures], float | None]) -> Family:
    """Of queues with groups alone: numbers of groups, never a sample of a single one."""
    return _queue_gauge(name, text, lambda queue: read(queue.groups) if queue.groups else None)


def _inactive(queue: QueueFigures) -> float | None:
    return queue.stats.waiting if queue.definition.target_queue_depth else None


def _link(name: str, kind: str, text: str, read: Callable[[LinkStatus], float | None]) -> Family:
    def samples(reading: Reading) -> Iterator[Sample]:
        figures = reading.figures
        return ((_link_labels(figures.instance, link), read(link)) for link in figures.links)

    return Family(f"ampsq_link_{name}", "link", kind, text, samples)


def _action(name: str, kind: str, text: str, read: Callable[[ActionState], float | None]) -> Family:
    def samples(reading: Reading) -> Iterator[Sample]:
        figures = reading.figures
        return (([figures.instance, each], read(action)) for each, action in figures.actions.items())

    return Family(f"ampsq_action_{name}", "action", kind, text, samples)


def _reading(name: str, text: str, read: Callable[[Reading], float | None]) -> Family:
    def samples(reading: Reading) -> Iterator[Sample]:
        yield [reading.figures.instance], read(reading)

    return Family(f"ampsq_reading_{name}", "instance", "gauge", text, samples)


def _incoming(link: LinkStatus) -> bool:
    return link.direction == "in"


#: All metrics beside the `_info` ones.
FAMILIES: Final[Sequence[Family]] = (
    _queue_gauge("depth", "Messages that are not settled.", _stat("depth")),
    _queue_gauge("waiting", "Recorded, and not yet read by the queue.", _stat("waiting")),
    _queue_gauge("ready", "Read and waiting to be delivered by this instance.", _stat("ready")),
    _queue_gauge("held", "A barrier that waits, and messages read behind it.", _stat("held")),
    _queue_gauge("leased", "Delivered and not acknowledged.", _stat("leased")),
    _queue_gauge("delayed", "Come back later.", _stat("delayed")),
    _queue_gauge("scheduled", "Were published for later.", _stat("scheduled")),
    _queue_gauge("inactive", "Beyond the target queue depth.", _inactive),
    _queue_gauge("subscriptions", "Subscriptions of the queue.", _stat("subscriptions")),
    _queue_gauge("paused", "1 while it is paused and delivers nothing.", lambda q: int(q.definition.paused)),
    _queue_gauge("max_backlog", "Most messages that may be leased together.", lambda q: q.definition.max_backlog),
    _queue_gauge("target_queue_depth", "Messages kept active.", lambda q: q.definition.target_queue_depth),
    _queue_gauge(
        "oldest_message_age_seconds", "Age of the oldest message that may be delivered.", lambda q: q.ages.message or 0
    ),
    _queue_gauge(
        "oldest_lease_age_seconds", "Age of the oldest lease that may lapse, since it was made or last extended.",
        lambda q: q.ages.lease or 0,
    ),
    _queue_gauge("seconds_behind", "Age of the oldest message that is not settled.", lambda q: q.behind),
    _queue_gauge("owned_here", "Read, waiting, and owned by this instance.", _shared(_stat("ready"))),
    _queue_gauge("owned_elsewhere", "Read, and owned by another instance.", _shared(_stat("remote"))),
    _queue_gauge(
        "deferred", "Reports on messages of the queue's topics that have not arrived yet.",
        _shared(lambda q: q.ages.deferred),
    ),
    _queue_gauge(
        "proxied_transfer", "1 while this instance may act for owners out of reach.",
        _shared(lambda q: int(q.ages.proxied)),
    ),
    _groups(
        "groups", "Groups with messages that are leased or have their place, or that stand still.", lambda g: g.number
    ),
    _groups("groups_leased", "Groups of which something is leased.", lambda g: g.leased),
    _groups("groups_on_hold", "Groups that failed messages hold.", lambda g: g.on_hold),
    _groups("groups_stopped", "Groups that stand still since a message was given up.", lambda g: g.stopped),
    _groups("groups_paused", "Groups that somebody paused.", lambda g: g.paused),
    _groups(
        "groups_oldest_message_age_seconds",
        "Age of the oldest message that has its place, whether its group goes on or not.",
        lambda g: g.oldest,
    ),
    _groups("groups_age_seconds", "How long ago the counting of groups began.", lambda g: g.age),
    _queue_counter("delivered", "Deliveries."),
    _queue_counter("acknowledged", "Acknowledged messages."),
    _queue_counter("expired", "Messages that expired, for whatever reason."),
    _queue_counter("evicted", "Messages that a full ring gave up."),
    _queue_counter("returned", "Deliveries that came back: cancelled, lapsed, or their holder was gone."),
    _queue_counter("filtered", "Messages that the queue's filter kept out."),
    _queue_counter("missing", "Messages that were gone from their log before they were settled."),
    _queue_counter("transferred_in", "Messages that became this instance's.", _shared(_stat("transferred_in"))),
    _queue_counter("transferred_out", "Messages that became another's.", _shared(_stat("transferred_out"))),
    _link("connected", "gauge", "1 while it is connected.", lambda link: int(link.state == "connected")),
    _link(
        "refused", "gauge", "1 while the other side does not fit and the link does not run.",
        lambda link: int(link.state == "refused"),
    ),
    _link("sync", "gauge", "1 while publishers wait for it.", lambda link: int(link.acknowledgement == "sync")),
    _link(
        "downgraded", "gauge", "1 while it is configured as sync and not waited for: unsafe to fail over to.",
        lambda link: int(link.acknowledgement == "downgraded"),
    ),
    _link("messages_behind", "gauge", "Messages and journal entries that it lacks, at most.", lambda link: link.behind),
    _link("seconds_behind", "gauge", "Age of the oldest of them.", lambda link: link.seconds_behind),
    _link("connected_seconds", "gauge", "For how long it has been connected.", lambda link: link.connected_for),
    _link(
        "disconnected_seconds", "gauge", "Since when the connection was lost last.",
        lambda link: None if _incoming(link) else link.disconnected_ago,
    ),
    _link("messages_per_second", "gauge", "Copies over the last second.", lambda link: link.messages_per_second),
    _link("bytes_per_second", "gauge", "Bytes sent over the last second.", lambda link: link.bytes_per_second),
    _link("messages", "counter", "Copies since it was connected.", lambda link: link.messages),
    _link("bytes", "counter", "Bytes sent since it was connected.", lambda link: link.bytes),
    _link("disconnects", "counter", "How often the connection was lost.", lambda link: link.disconnects),
    _action("waiting", "gauge", "Entries of its sources that it has not looked at yet.", lambda action: action.waiting),
    _action("failed", "gauge", "Events that failed and are tried again.", lambda action: action.failed),
    _action("done", "counter", "Events on which it acted to the end.", lambda action: action.done),
    _reading("seconds", "How long these figures took to read.", lambda r: r.took),
    _reading("age_seconds", "How long ago these figures were read.", lambda r: r.age),
)  # fmt: skip

#: Histograms, of queues of which something was measured.
HISTOGRAMS: Final[Sequence[HistogramFamily]] = (
    HistogramFamily(
        "ampsq_queue_delivery_seconds",
        "From publishing to the first delivery to an application, of one message in a hundred.",
        lambda latencies: latencies.delivery,
    ),
    HistogramFamily(
        "ampsq_queue_handling_seconds", "From a delivery to the acknowledgement, of one message in a hundred.",
        lambda latencies: latencies.handling,
    ),
)  # fmt: skip
_ENDS: Final = [*map(str, BOUNDS), "+Inf"]

_QUEUE_INFO: Final = ("topic", "message_type", "semantics", "kind")
#: `instance` alone is the label that Prometheus gives to whom it asks.
_INSTANCE: Final = "ampsq_instance"
_LINK_LABELS: Final = (_INSTANCE, "destination", "direction", "peer")
#: `whole` is the instance that has the partitions.
_PARTITION_INFO: Final = (_INSTANCE, "whole", "partition", "partitions")
_LINK_INFO: Final = ("group", "address", "pass_through", "acknowledgement", "state")
_LABELS: Final[Mapping[str, Sequence[str]]] = {
    "queue": (_INSTANCE, "queue"),
    "link": _LINK_LABELS,
    "action": (_INSTANCE, "action"),
    "instance": (_INSTANCE,),
}


class _Collector:
    """Gives what was read to the library that writes it."""

    def __init__(
        self, readings: Sequence[Reading], reachable: Mapping[str, bool], rounds: Mapping[tuple[str, str], float]
    ) -> None:
        self._readings, self._reachable, self._rounds = readings, reachable, rounds

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            made = _family(family.name, family.kind, family.text, _LABELS[family.of])
            for reading in self._readings:
                for labels, value in family.samples(reading):
                    if value is not None:
                        made.add_metric(labels, value)
            yield made
        yield from _info(self._readings)
        up = _family("ampsq_up", "gauge", "1 if the instance's figures could be read.", (_INSTANCE,))
        for instance, is_up in self._reachable.items():
            up.add_metric([instance], int(is_up))
        yield up
        name, text = (
            "ampsq_coordinator_duty_age_seconds",
            "For how long a duty of this coordinator has had something to do.",
        )
        ages = _family(name, "gauge", text, (_INSTANCE, "duty"))
        for (instance, duty), age in self._rounds.items():
            ages.add_metric([instance, duty], age)
        yield ages


def _family(name: str, kind: str, text: str, labels: Iterable[str]) -> GaugeMetricFamily | CounterMetricFamily:
    made = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
    return made(name, text, labels=tuple(labels))


def _write_histograms(readings: Sequence[Reading]) -> Iterator[str]:
    """Write all histograms: 46,000 lines for 1,000 queues, for which the library takes half a second.

    Names of instances and queues have no character that the format would have escaped.
    """
    for name, text, read in HISTOGRAMS:
        yield f"# HELP {name} {text}\n# TYPE {name} histogram\n"
        for reading in readings:
            figures = reading.figures
            for queue, each in figures.queues.items():
                if each.ages.latencies is None:
                    continue
                histogram = read(each.ages.latencies)
                labels = f'{_INSTANCE}="{figures.instance}",queue="{queue}"'
                begin = f'{name}_bucket{{{labels},le="'
                rows = zip(_ENDS, accumulate(histogram.counts), strict=True)
                yield begin + f"\n{begin}".join([f'{end}"}} {number}' for end, number in rows])
                yield f"\n{name}_count{{{labels}}} {histogram.count}\n{name}_sum{{{labels}}} {histogram.sum!r}\n"


def _link_labels(instance: str, link: LinkStatus) -> list[str]:
    return [instance, link.destination, link.direction, link.instance or ""]


def _info(readings: Sequence[Reading]) -> Iterator[Metric]:
    """Yield what is no number: as labels of a sample that is always 1."""
    queues = _family("ampsq_queue_info", "gauge", "What a queue is.", (*_LABELS["queue"], *_QUEUE_INFO))
    links = _family("ampsq_link_info", "gauge", "What a link is, and its state.", (*_LINK_LABELS, *_LINK_INFO))
    for reading in readings:
        figures = reading.figures
        for name, queue in figures.queues.items():
            definition = queue.definition
            facts = [definition.underlying_topic, definition.message_type, definition.semantics]
            queues.add_metric([figures.instance, name, *facts, type(definition).__name__], 1)
        for link in figures.links:
            facts = [link.group or "", link.address or "", " ".join(link.pass_through), link.acknowledgement]
            links.add_metric([*_link_labels(figures.instance, link), *facts, link.state], 1)
    yield queues
    yield links
    partitions = _family("ampsq_partition_info", "gauge", "Which partition an instance is.", _PARTITION_INFO)
    for reading in readings:
        if reading.partition is not None:
            name, number, total, instance = reading.partition
            partitions.add_metric([instance, name, str(number), str(total)], 1)
    yield partitions


def exposition(
    readings: Sequence[Reading], reachable: Mapping[str, bool], rounds: Mapping[tuple[str, str], float]
) -> bytes:
    """Write everything in the text format.

    Args:
        readings: of the instances that answered.
        reachable: instance -> whether it did.
        rounds: instance and duty -> seconds by which it is late, of the coordinator in this process.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(readings, reachable, rounds))
    return generate_latest(registry) + "".join(_write_histograms(readings)).encode()
