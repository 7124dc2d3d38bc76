"""``ampsq queues``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ampsq.base.formatting import count_text, duration_text
from ampsq.cli.formatting import element_text
from ampsq.cli.listing import listing_options, print_records
from ampsq.cli.names import names
from ampsq.cli.output import labelled, note, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.cli.options import CommandSettings
    from ampsq.client.client import Client
    from ampsq.definitions.queue import Queue
    from ampsq.operations.latencies import LatencyPercentiles, QueueLatencies
    from ampsq.protocol.calls.queue_stats import QueueStats

__all__ = ["queue_names", "queues"]

_EPILOG = """\b
depth = waiting + ready + held + leased + delayed + scheduled, that is, all messages that are not settled:
  waiting    recorded, and not yet read by the queue; if that has a filter, also messages that it passes over
  ready      read and waiting: came back, or has its place by priority and filters
  held       a barrier that waits, and messages read behind it
  leased     delivered, and not acknowledged
  delayed    comes back later
  scheduled  was published for later
Not a part of it: remote, messages that another instance owns (ampsq replication says which).
With NAME also how long messages took: delivery, from publishing to the first delivery; handling, from a delivery to
the acknowledgement.
The other figures count since the queue was defined. The list has scheduled, evicted, remote, transferred_in and
transferred_out where a queue has some.

\b
Examples:
  ampsq queues
  ampsq queues work
  ampsq queues --json | jq -c '{name, depth}'
  ampsq queues --watch
  ampsq queues -o csv > queues.csv
"""

_COLUMNS: Final = (
    "name", "depth", "waiting", "ready", "held", "leased", "delayed", "subscriptions", "delivered", "acknowledged",
    "expired",
)  # fmt: skip
#: What JSON, YAML and CSV have of each.
_FIELDS: Final = (
    "name", "depth", "waiting", "ready", "held", "leased", "delayed", "subscriptions", "delivered", "acknowledged",
    "expired", "evicted", "filtered", "missing", "remote", "returned", "scheduled", "topics", "transferred_in",
    "transferred_out",
)  # fmt: skip
#: Columns of what few queues have, where one has some.
_RARE: Final = ("scheduled", "evicted", "remote", "transferred_in", "transferred_out")
_SPARE: Final = ("held", "delayed", "ready", "leased")
_SHORT: Final = {
    "subscriptions": "subs", "acknowledged": "acked", "scheduled": "sched", "evicted": "evict", "delayed": "delay",
    "transferred_in": "in", "transferred_out": "out",
}  # fmt: skip


@click.command(epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=names("queues"))
@listing_options(_FIELDS)
def queues(settings: CommandSettings, name: str | None) -> None:
    """List the queues with their figures, or show one.

    With NAME: that queue's definition, without the elements at their defaults; the elements that it has from address
    settings; all its figures; and how long messages took in the last 15 minutes, as percentiles of those that their
    clients measured, about one in a hundred.
    """
    if name is not None:
        _show_one(settings, name)
        return
    with settings.client(merged=True) as client:
        stats = [client.admin.queue_stats(queue) for queue in queue_names(client)]
    if print_records(settings, map(_ordered, stats)):
        return
    if stats:
        columns = [*_COLUMNS, *(rare for rare in _RARE if any(getattr(figures, rare) for figures in stats))]
        table(columns, [[getattr(figures, column) for column in columns] for figures in stats], _SHORT, _SPARE)
    else:
        note("no queues yet; ampsq apply FILE defines them (ampsq apply --help shows a file)")


def queue_names(client: Client) -> list[str]:
    """Read the names of all queues, without their definitions, which take longer to read than the rest."""
    from ampsq.protocol.reads.definitions import definition_names

    if client.partitions:
        return list(client.admin.queues())
    return sorted(client._store.call(definition_names(client.instance, "queues")))  # noqa: SLF001  (it has no call for it)


def _show_one(settings: CommandSettings, name: str) -> None:
    from ampsq.definitions.address_setting import settled_for

    with settings.client(merged=True) as client:
        stats, latencies = client.admin.queue_stats(name), client.admin.queue_latencies(name)
        queue, address_settings = client.admin.queues()[name], client.admin.address_settings().values()
    _show(settings, queue, settled_for(queue, address_settings).changes_from(queue), stats, latencies)


def _ordered(stats: QueueStats) -> dict[str, object]:
    """The figures, the important ones first."""
    figures = stats.as_dict()
    return {field: figures[field] for field in _FIELDS}


def _show(
    settings: CommandSettings,
    queue: Queue,
    changes: Mapping[str, tuple[object, object]],
    stats: QueueStats,
    latencies: QueueLatencies,
) -> None:
    figures = _ordered(stats)
    took = latencies.as_dict()
    given = {element: value for element, (_, value) in changes.items()}
    whole = queue.model_dump(mode="json")
    told = {**figures, "latencies": {name: took[name] for name in ("over", "delivery", "handling")}}
    if print_records(settings, [{"name": stats.name, "definition": whole, "from_address_settings": given, **told}]):
        return
    # Where it gets its messages is told always; of the other elements, those that differ from their defaults.
    elements = {"name": queue.name, "underlying_topic": queue.underlying_topic, **queue.elements()}
    definition = [(element, element_text(element, value)) for element, value in elements.items()]
    definition += [(element, f"{element_text(element, value)} (address settings)") for element, value in given.items()]
    counts = [(figure, figures[figure]) for figure in (*_COLUMNS[1:], *_RARE, "returned", "filtered", "missing")]
    counts += [(f"unread of {topic}", unread) for topic, unread in stats.topics.items()]
    counts += [("delivery", _percentiles(latencies.delivery))]
    counts += [("handling", _percentiles(latencies.handling))]
    width = max(len(label) for label, _ in (*definition, *counts))
    labelled([(f"{label:{width}}", value) for label, value in definition])
    print()
    labelled([(f"{label:{width}}", value) for label, value in counts])


def _percentiles(took: LatencyPercentiles) -> str:
    if not took.samples:
        return "nothing measured in the last 15 minutes"
    parts = (f"{name} {duration_text(getattr(took, name))}" for name in ("p50", "p95", "p99"))
    return f"{', '.join(parts)} ({count_text(took.samples, 'message')} measured in the last 15 minutes)"
