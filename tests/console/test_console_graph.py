"""The replication graph: who is drawn, and what is said of whom."""

from __future__ import annotations

from dataclasses import replace

from cases import for_each

from ampsq.console.replication_graph import draw_links
from ampsq.replication.report import LinkStatus, QueueOwnership, ReplicationReport


def link(instance, direction="out", **others):
    made = LinkStatus(
        instance, direction, instance, "G", None, "connected", "async", (), 1.0, 0, 0.0, 0, 0, 0, 0, 0, None, None
    )
    return replace(made, **others)


def queue(name, owned, owners):
    return QueueOwnership(name, "origin", owned, sum(owners.values()), owners, None, 0.0, 0, 0, 0, False, ("b",))


def drawn(*queues):
    here, peers = draw_links(ReplicationReport("a", "A", (link("b"), link("b", "in"), link("c.d")), queues))
    lines = [line for node in (here, *peers) for line in node.links]
    return {node.name: (node.detail, node.owns, node.owned) for node in (here, *peers)}, lines


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


LINKS = {
    "it has everything": ({}, "good", "async, connected", ""),
    "it is a little late": (
        {"behind": 7, "seconds_behind": 4.0}, "good", "async, connected, 7 behind for 4s", "",
    ),
    "it lags": ({"behind": 7, "seconds_behind": 30.0}, "warn", "async, connected, 7 behind for 30s", ""),
    "it is far behind": (
        {"behind": 1_200, "seconds_behind": 300.0}, "bad", "async, connected, 1,200 behind for 5m", "",
    ),
    "it was lost": (
        {"disconnects": 3, "disconnected_ago": 120.0}, "good", "async, connected",
        "connection lost 3 times, last 2m ago",
    ),
    "it tries again": (
        {"state": "waiting", "disconnects": 1, "disconnected_ago": 1.0}, "warn", "async, waiting",
        "connection lost 1 time, last 1s ago",
    ),
    "it is refused": ({"state": "refused"}, "bad", "async, refused", ""),
    "nobody runs it": ({"state": "silent"}, "bad", "async, silent", ""),
    "nobody waits for it": ({"acknowledgement": "downgraded"}, "bad", "downgraded, connected", ""),
}  # fmt: skip


@for_each("told", LINKS.items(), name=lambda case: case[0])
def test_a_link_says_its_lag_and_its_losses_in_words_and_in_a_colour(told):
    _, (facts, level, text, losses) = told
    _, (peer,) = draw_links(ReplicationReport("a", "A", (link("b", **facts),), ()))
    (found,) = peer.links
    assert (found.level, found.text, found.losses) == (level, text, losses)
