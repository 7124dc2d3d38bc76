"""Waiting for entries of logs of which a server tells by itself, and which primary of a cluster serves an instance."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from observing import eventually

from ampsq.coordinator.cluster_nodes import ClusterNodes
from ampsq.coordinator.instance_duties import InstanceDuties
from ampsq.coordinator.loop_state import InstanceInLoop
from ampsq.coordinator.server_watch import ServerWatch
from ampsq.coordinator.tracked_entries import TrackedEntries
from ampsq.protocol.calls.duties import InstanceNews, NewsReply, WatchedInstance
from ampsq.protocol.reads.streams import log_of
from ampsq.transport.discovery import addresses_of, slot_of
from ampsq.transport.route import Route
from ampsq.transport.server_wait import ServerWait
from ampsq.transport.store import Store
from ampsq.transport.tracked_keys import TrackedKeys

LOGS = {name: {log_of("orders").key(name): "0-0"} for name in ("one", "two")}


@pytest.fixture
def wait():
    """Wait for entries: ``wait(url, logs)`` gives that, and those that were found."""
    with contextlib.ExitStack() as stack:

        def begin(url, logs):
            found = []
            waiting = TrackedEntries(lambda: logs, found.append, lambda name: Route(url, name))
            stack.callback(waiting.close)
            waiting.want()
            return waiting, found

        yield begin


def test_an_entry_is_told_once_and_others_go_on_to_be_waited_for(own, plain, wait):
    waiting, found = wait(own.url, LOGS)
    eventually(lambda: waiting.covered == {"one", "two"})
    plain.xadd(log_of("orders").key("one"), {"b": b"{}"})
    eventually(lambda: found == [{"one"}])
    assert waiting.covered == {"two"}
    # And again, once somebody wants that
    waiting.want()
    eventually(lambda: waiting.covered == {"one", "two"})
    plain.xadd(log_of("orders").key("one"), {"b": b"{}"})
    eventually(lambda: found == [{"one"}, {"one"}])


def test_one_without_logs_is_waited_for_and_one_where_something_happens_is_not(own, wait):
    waiting, _ = wait(own.url, {**LOGS, "none": {}})
    eventually(lambda: waiting.covered == {"one", "two", "none"})
    waiting.uncover("one")
    assert waiting.covered == {"two", "none"}


def test_nothing_is_waited_for_where_the_server_is_lost_and_where_it_forgets_keys_they_are_told(own, plain, wait):
    waiting, found = wait(own.url, LOGS)
    eventually(lambda: waiting.covered == {"one", "two"})
    # A server that remembers no more keys than that tells of those that it forgets
    plain.config_set("tracking-table-max-keys", 1)
    eventually(lambda: any(found), within=10.0)
    plain.config_set("tracking-table-max-keys", 1000)
    waiting.want()
    eventually(lambda: waiting.covered == {"one", "two"})
    # When the connection is lost
    plain.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually(lambda: not waiting.covered)


def test_who_may_not_have_keys_tracked_waits_for_nothing(own, plain, wait, caplog):
    plain.execute_command("ACL", "SETUSER", "care", "on", "nopass", "~*", "&*", "+@all", "-client|tracking")
    with caplog.at_level(logging.WARNING):
        waiting, _ = wait(f"unix://care:x@{own.socket}", LOGS)
        eventually(lambda: waiting._keys is not None and waiting._keys.is_refused)
        eventually(lambda: not waiting._asked)
    assert not waiting.covered
    assert "the rules of its user are those of an older release" in caplog.text


def test_after_a_fault_all_are_asked_about_again(own, wait, monkeypatch, caplog):
    read, faults = TrackedKeys.wait, [RuntimeError("a fault")]

    def wait_or_fail(keys, seconds):
        news = read(keys, seconds)
        if news and faults:
            raise faults.pop()
        return news

    monkeypatch.setattr(TrackedKeys, "wait", wait_or_fail)
    waiting, _ = wait(own.url, LOGS)
    # Given that the answers to what was asked were not taken in
    eventually(lambda: "waiting for entries failed" in caplog.text)
    # When somebody wants them again
    waiting.want()
    eventually(lambda: waiting.covered == {"one", "two"})


def test_a_cluster_is_looked_at_where_an_instance_is_elsewhere_though_another_one_is_lost(own):
    moved, rounds = [], []
    with contextlib.closing(Store(own.url, "")) as store:
        servers = ServerWait(logging.getLogger("test"))
        watch = ServerWatch(store, servers, rounds.append, moved=lambda: moved.append(True))
        watch.close()
        assert watch.join(time.monotonic() + 10)
        part = [InstanceInLoop(duties_of(name), 1) for name in ("one", "two")]
        news = [InstanceNews(None, frozenset({what}), {}) for what in ("refused", "lost")]
        moved.clear()
        watch._take_in(part, NewsReply(0.0, dict(zip(("one", "two"), news, strict=True))), set(), is_moved=False)
        assert moved == [True]


def duties_of(name):
    """Duties of an instance that want nothing."""
    duties = create_autospec(InstanceDuties, instance=True)
    duties.store, duties.watched, duties.wanted_at = SimpleNamespace(instance=name), WatchedInstance(name), math.inf
    return duties


def test_an_instance_is_at_the_primary_that_serves_its_slot_and_nowhere_where_none_does():
    nodes = ClusterNodes(ServerWait(logging.getLogger("test")), "cluster://n1,n2")
    slot = slot_of("one")
    nodes.runs = [(0, slot - 1, "redis://a"), (slot, slot, "redis://b"), (slot + 2, 16383, "redis://c")]
    assert nodes.primary_of("one") == "redis://b"
    nodes.runs = [(0, slot - 1, "redis://a"), (slot + 1, 16383, "redis://c")]
    assert nodes.primary_of("one") == ""
    nodes.runs = []
    assert nodes.primary_of("one") == ""
    nodes.close()


def test_the_addresses_of_a_cluster_have_its_credentials():
    assert addresses_of("cluster://u:p@n1:7000,n2") == ["redis://u:p@n1:7000/", "redis://u:p@n2:6379/"]
    assert addresses_of("redis://h:1") == ["redis://h:1"]
