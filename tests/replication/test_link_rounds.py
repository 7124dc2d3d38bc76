"""Calls of links to a server in one packet: who is woken when, and what is said of whom."""

from __future__ import annotations

import functools
import logging
import threading
import time
from contextlib import ExitStack

import pytest
from observing import eventually

from ampsq import Topic
from ampsq.protocol.calls.links import LinkState, read_link_state, write_link_state
from ampsq.protocol.reads.instance import catalog_version
from ampsq.protocol.reads.streams import Stream
from ampsq.replication import link_rounds
from ampsq.replication.link_rounds import LinkRounds, NewsWait
from ampsq.transport.server_wait import ServerWait

_LOG = logging.getLogger("ampsq.replication")


class Part:
    """The call of a link at its end: that its state is written."""

    def __init__(self, store, name, *, is_idle=False):
        self.store, self._name, self.is_idle = store, name, is_idle
        self.asked, self.facts, self.failures = 0, [], []

    def calls(self, now):
        self.asked += 1
        return [write_link_state(self.store.instance, LinkState(self._name, self.store.instance, at=now))]

    def take_in(self, facts, replies):
        self.facts.append((facts, replies))

    def fail(self, error):
        self.failures.append(error)


@pytest.fixture
def store(valkey_store):
    return valkey_store


@pytest.fixture
def rounds(store, monkeypatch):
    monkeypatch.setattr(link_rounds, "_QUIET_AFTER", 0.0)
    servers = ServerWait(_LOG)
    yield LinkRounds(servers).of(store)
    servers.close()


until = functools.partial(eventually, within=20.0)


def waiting(wait, topic, found):
    """A thread that waits again and again, as a link does, and notes what `wait` gave where it was news."""

    def work():
        while not found:
            if wait.wait({Stream("log", topic): "0-0"}, 0.2):
                found.append(time.monotonic())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def blocked_readers(store):
    """The connections of the server that wait for entries."""
    return [each["id"] for each in store.redis.client_list() if each["cmd"] == "xread" and "b" in each["flags"]]


def calls_of(store, name):
    return store.redis.info("commandstats")[f"cmdstat_{name}"]["calls"]


def test_of_several_that_wait_together_the_one_is_woken_whose_log_has_grown(client, store, rounds):
    # Given two that wait with others
    client.apply(Topic(name="here"), Topic(name="there"))
    waits, found = [NewsWait(store, rounds) for _ in range(2)], ([], [])
    with rounds.joined(Part(store, "to-b", is_idle=True)):
        threads = [
            waiting(wait, topic, each) for wait, topic, each in zip(waits, ("here", "there"), found, strict=True)
        ]
        until(lambda: all(wait.is_shared for wait in waits))
        until(lambda: len(blocked_readers(store)) == 1)
        # When an entry comes that nobody tells
        began = time.monotonic()
        store.redis.xadd(Stream("log", "here").key(store.instance), {"b": b"{}"})
        threads[0].join(20)
        # Then one is woken at once, and the other one waits
        assert found[0][0] - began < 0.5
        assert not found[1]
        store.redis.xadd(Stream("log", "there").key(store.instance), {"b": b"{}"})
        threads[1].join(20)
        assert found[1]


def test_one_read_goes_on_over_many_rounds(client, store, rounds, monkeypatch):
    monkeypatch.setattr(link_rounds, "_WAIT", 30.0)
    client.apply(Topic(name="here"))
    wait, found, part = NewsWait(store, rounds), [], Part(store, "to-b")
    with rounds.joined(part):
        thread = waiting(wait, "here", found)
        until(lambda: wait.is_shared)
        until(lambda: len(blocked_readers(store)) == 1)
        # Given that it waits with the others alone
        time.sleep(0.3)
        reader, asked, reads = blocked_readers(store), part.asked, calls_of(store, "xread")
        # When two rounds pass
        until(lambda: part.asked >= asked + 2)
        # Then its read is the same one
        assert (blocked_readers(store), calls_of(store, "xread")) == (reader, reads)
        store.redis.xadd(Stream("log", "here").key(store.instance), {"b": b"{}"})
        thread.join(20)
        assert found


def test_who_waits_with_others_asks_by_itself_after_their_connection_was_lost(client, store, rounds):
    client.apply(Topic(name="here"))
    wait, found, part = NewsWait(store, rounds), [], Part(store, "to-b", is_idle=True)
    with rounds.joined(part):
        thread = waiting(wait, "here", found)
        until(lambda: wait.is_shared)
        # By then it asks by itself no more
        time.sleep(0.3)
        until(lambda: len(blocked_readers(store)) == 1)
        # When the connection is cut on which all wait
        store.redis.client_kill_filter(_id=blocked_readers(store)[0])
        # Then nothing is missed
        store.redis.xadd(Stream("log", "here").key(store.instance), {"b": b"{}"})
        thread.join(20)
        assert found


def test_each_round_says_all_in_one_packet_and_reads_what_is_defined_once_an_instance(client, store, rounds):
    client.apply(Topic(name="here"))
    parts = [Part(store, name) for name in ("to-b", "to-c")]
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(rounds.joined(part))
        until(lambda: all(len(part.facts) > 1 for part in parts))
    facts, replies = parts[0].facts[-1]
    assert facts.version == store.call(catalog_version(store.instance))
    assert facts.origin.startswith(f"{store.instance}.")
    assert len(replies) == 1
    assert parts[1].facts[-1][0] is facts
    for name in ("to-b", "to-c"):
        assert store.call(read_link_state(store.instance, name)).at > 0


def test_nothing_is_said_of_a_link_that_has_left(store, client, rounds):
    client.apply(Topic(name="here"))
    stays, leaves = Part(store, "to-b"), Part(store, "to-c")
    with rounds.joined(stays):
        with rounds.joined(leaves):
            until(lambda: leaves.facts)
        store.call(write_link_state(store.instance, LinkState("to-c", store.instance, at=7)))
        rounds_before = len(stays.facts)
        until(lambda: len(stays.facts) > rounds_before + 1)
    assert store.call(read_link_state(store.instance, "to-c")).at == 7


def test_a_link_on_which_nothing_moves_is_asked_every_second_round(store, client, rounds):
    client.apply(Topic(name="here"))
    moves, idle = Part(store, "to-b"), Part(store, "to-c", is_idle=True)
    with rounds.joined(moves), rounds.joined(idle):
        until(lambda: moves.asked >= 4)
    assert 1 <= idle.asked <= moves.asked // 2 + 1


def test_the_thread_ends_with_the_last_link(store, client, rounds):
    client.apply(Topic(name="here"))

    def is_there():
        return any(thread.name == "link-rounds" for thread in threading.enumerate())

    wait = NewsWait(store, rounds)
    part = Part(store, "to-b", is_idle=True)
    with rounds.joined(part):
        thread = waiting(wait, "here", found := [])
        until(lambda: wait.is_shared)
    until(lambda: not is_there(), within=5)
    found.append(0.0)
    wait.wake()
    thread.join(20)
