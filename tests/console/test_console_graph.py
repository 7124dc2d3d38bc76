"""The replication graph: who is drawn, and what is said of whom."""

from __future__ import annotations

from ampsq.console.charts import links_drawn
from ampsq.replication.report import LinkStatus, QueueOwnership, ReplicationReport


def link(instance, direction="out"):
    return LinkStatus(
        instance, direction, instance, "G", None, "connected", "async", (), 1.0, 0, 0.0, 0, 0, 0, 0, 0, None, None
    )


def queue(name, owned, owners):
    return QueueOwnership(name, "origin", owned, sum(owners.values()), owners, None, 0.0, 0, 0, 0, False, ("b",))


def drawn(*queues):
    nodes, lines, _ = links_drawn(ReplicationReport("a", "A", (link("b"), link("b", "in"), link("c.d")), queues))
    return {node.name: (node.detail, node.owns, node.owned) for node in nodes}, lines


def test_each_instance_says_what_it_owns_by_queue():
    # given: owners with their incarnations, and one that is an instance's name with a point
    queues = [queue("work", 3, {"b.t6w1xka": 40, "c.d": 2}), queue("audit", 0, {"b.t6w1xka": 1_000})]
    # when
    nodes, lines = drawn(*queues)
    # then
    assert nodes == {
        "a": ("group A", "owns 3", "a owns work 3"),
        "b": ("group G", "owns 1,040", "b owns work 40, audit 1,000"),
        "c.d": ("group G", "owns 2", "c.d owns work 2"),
    }
    assert len(lines) == 3


def test_an_owner_without_a_link_is_drawn_without_a_line():
    nodes, lines = drawn(queue("work", 0, {"far.t6w1xka": 7}))
    assert nodes["far"] == ("no link", "owns 7", "far owns work 7")
    assert len(lines) == 3


def test_where_nothing_is_shared_nobody_is_said_to_own_anything():
    nodes, _ = drawn()
    assert {owns for _, owns, _ in nodes.values()} == {""}
