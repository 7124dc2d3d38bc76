"""Waiting for entries of logs of which a server tells by itself, and which primary of a cluster serves an instance."""

from __future__ import annotations

import contextlib
import logging

import pytest
from observing import eventually

from ampsq.coordinator.cluster_nodes import ClusterNodes
from ampsq.coordinator.tracked_entries import TrackedEntries
from ampsq.protocol.reads.streams import log_of
from ampsq.transport.discovery import addresses_of, slot_of
from ampsq.transport.route import Route
from ampsq.transport.server_wait import ServerWait

LOGS = {name: {log_of("orders").key(name): "0-0"} for name in ("one", "two")}


@pytest.fixture
def own(start_server):
    return start_server("valkey", appendonly=True)


@pytest.fixture
def plain(own):
    with contextlib.closing(own.client()) as client:
        yield client


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
