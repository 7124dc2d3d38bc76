"""The dump of format 4, turned into today's format as `ampsq upgrade` does it."""

from __future__ import annotations

import contextlib

from data.format4.load import dumped, instances_of, load

from ampsq.operations.upgrade import upgrade_instance
from ampsq.transport.store import Store

__all__ = ["JOURNALLESS", "load_upgraded", "prepare", "settled", "upgrade"]

#: A queue of the dump without a journal, before `prepare`.
JOURNALLESS = "idle"
_NYC = "{format4-nyc}"
#: An ID far above all of the dump's: the last one of an incarnation whose server's clock was ahead.
_AHEAD = "4102444800000-7"


def upgrade(url, *instances, limit=None):
    """Upgrade instances, one after the other."""
    for instance in instances:
        with contextlib.closing(Store(url, instance)) as store:
            store.run(upgrade_instance(instance, limit=limit))


def load_upgraded(client, url, lines):
    """Load a dump and upgrade its instances."""
    load(client, lines)
    upgrade(url, *instances_of(lines))


def prepare(client, lines):
    """Load a dump, and add what format 4 had and no instance of the dump happens to have."""
    load(client, lines)
    # It had asked for more messages than it had room for.
    client.hset(f"{_NYC}:q:deals-work", "beyond", "1795425000000")
    # It had another incarnation before, and queues that never had a journal.
    client.hset(f"{_NYC}:instance", "former", f"{_AHEAD} format4-nyc.earlier")


def settled(client, lines):
    """Read all keys, as `dumped`; of what an upgrade puts into the timetable the time is left out."""
    known = {(line["key"], member) for line in lines if line["key"].endswith("}:due") for member, _ in line["value"]}
    found = dumped(client, instances_of(lines))
    for line in found:
        if line["key"].endswith("}:due"):
            line["value"] = [
                [member, score if (line["key"], member) in known else "now"] for member, score in line["value"]
            ]
    return found
