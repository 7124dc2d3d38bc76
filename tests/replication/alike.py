"""Instances that are alike but for what a test changes, and how they differ."""

from __future__ import annotations

from ampsq import Destination, GroupLocalQueue, Queue, ReplicatedTopic, Topic, View
from ampsq.protocol.calls.catalog import Catalog
from ampsq.replication.validation import validate

GROUPED = GroupLocalQueue(name="work", underlying_topic="orders", initial_owner="A", group_local_queue_domain="US")
WORK = Queue(name="work", underlying_topic="orders")
BOARD = View(name="board", underlying_topic="orders", projection=["/a", "COUNT(*) AS /n"], grouping=["/a"])


def instance(name, *definitions, group=None):
    """Return what an instance has defined; each kind as the catalog keeps it."""
    kinds = {Topic: "topics", Queue: "queues", View: "views", Destination: "destinations"}
    parts = {part: {} for part in ("topics", "queues", "actions", "patterns", "views", "settings", "transports")}
    parts |= {"destinations": {}, "conflated": {}}
    for definition in definitions:
        (part,) = (part for kind, part in kinds.items() if isinstance(definition, kind))
        parts[part][definition.name] = definition.to_json()
        if isinstance(definition, Queue):
            parts["topics"].setdefault(definition.default_publish_target, "{}")
        if isinstance(definition, View):
            parts["topics"].setdefault(definition.name, "{}")
    return Catalog(1, **parts, instance=name, group=group or name)


def to(name, *topics, pass_through=(), exclude=(), **elements):
    """A destination; `exclude` for all of its topics."""
    made = [
        topic if isinstance(topic, ReplicatedTopic) else ReplicatedTopic(name=topic, exclude_validation=exclude)
        for topic in topics
    ]
    return Destination(name=name, sync_type="async", topics=made, pass_through=pass_through, **elements)


def differences(mine, theirs, name=None):
    """Of the link from the one to the other, as (check, topic)."""
    return [(check, topic) for check, topic, _, refuses in validated(mine, theirs, name) if refuses]


def validated(mine, theirs, name=None):
    return validate(mine, theirs, Destination.from_json(mine.destinations[name or theirs.instance]))


def both(*definitions, topics=("orders",), exclude=(), **elements):
    """Two instances that are alike, A and B."""
    return tuple(
        instance(here, *definitions, to(there, *topics, exclude=exclude, **elements))
        for here, there in (("A", "B"), ("B", "A"))
    )


ORDERS = Topic(name="orders")


def with_queues(here, there, *, exclude=(), pass_through=()):
    """A with a queue and B with another one, or none, and what they are over, all sent both ways."""
    names = ["orders", "returns", "work"]
    one = instance("A", ORDERS, here, to("B", *names, exclude=exclude, pass_through=pass_through))
    return one, instance("B", ORDERS, *([there] if there else []), to("A", *names, pass_through=pass_through))
