"""Instances where nothing happens: they rest long, and what happens there is noticed as soon as elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from observing import eventually

from ampsq import Client, Queue, Topic
from ampsq.coordinator import Coordinator, server_watch
from ampsq.coordinator.entry_wait import EntryWait
from ampsq.coordinator.log_search import LogSearch
from ampsq.protocol.keepalive import LONGEST_HEARTBEAT, SESSION_TIMEOUT
from ampsq.protocol.limits import LONG_REST_HORIZON
from ampsq.protocol.reads.streams import log_of
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

NAMES = ("one", "two", "three")


@pytest.fixture
def resting(own, plain, monkeypatch):
    """A coordinator of three instances with a queue, all of which rest long; the turn of one that does never comes."""
    monkeypatch.setattr(server_watch, "_QUIET_AFTER", 0.5)
    # What is noticed of one that rests long, somebody tells.
    monkeypatch.setattr(server_watch, "_TURNS", 10**9)
    # One of the first looks had each of them.
    monkeypatch.setattr(server_watch.InstanceInLoop, "turn", property(lambda _: -1, lambda *_: None), raising=False)
    for name in NAMES:
        with Client(own.url, instance=name) as client:
            client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders", lease_period="3s"))
    coordinator = Coordinator(own.url)
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        eventually(lambda: all_rest(plain))
        yield coordinator
    finally:
        coordinator.stop()
        thread.join()


def all_rest(plain):
    return all((plain.hget(key(name, "instance"), "resting") or b"") in (b"3", b"4") for name in NAMES)


def since(began):
    return time.monotonic() - began


def test_between_two_turns_nothing_is_due_that_nobody_told_and_no_subscription_that_lives_ends():
    round_of_turns = server_watch._TURNS * server_watch._LOOK * 1000
    assert round_of_turns + 3_000 < LONG_REST_HORIZON < SESSION_TIMEOUT - LONGEST_HEARTBEAT


@pytest.mark.usefixtures("resting")
def test_an_entry_of_others_is_delivered_within_a_second(own, plain):
    with Client(own.url, instance="one") as client, client.subscribe("work") as messages:
        # Given a subscription that waits at an instance that rests long again
        got = []
        reading = threading.Thread(target=lambda: got.append(messages.get(20)))
        reading.start()
        # What subscribing wakes is over by then; after it the instance rests long again.
        time.sleep(0.5)
        eventually(lambda: all_rest(plain))
        # When a plain XADD writes an entry
        began = time.monotonic()
        plain.xadd(log_of("orders").key("one"), {"b": b"{}"})
        # Then it is pushed, long before the subscription looks for itself, or the instance has its turn
        reading.join()
        assert got[0] is not None
        assert since(began) < 3.0


@pytest.mark.usefixtures("resting")
def test_a_lease_that_ends_before_the_next_look_wakes(own, plain):
    with Client(own.url, instance="two") as client, client.subscribe("work", max_backlog=1) as messages:
        # Given a subscription at an instance that rests long again
        assert messages.get(0.5) is None
        eventually(lambda: all_rest(plain))
        # When a message is leased to it and the lease ends
        client.publish("orders", {})
        lapsing = messages.get(10)
        # Then it comes again
        again = messages.get(20)
        late = time.time() - lapsing.lease_until.timestamp()
        again.ack(wait=True)
    assert late < 2.0


def test_each_look_counts_who_listens_though_it_is_no_instances_turn(plain, resting):
    # Given instances that rest long, whose turn never comes
    (watch,) = set(resting._watches.values())
    # When nothing happens for some looks
    looks, counts = watch._look_number, watch._listeners._looks
    eventually(lambda: watch._look_number >= looks + 5)
    # Then each has counted: a client that is gone is to be noticed by the next look
    assert all_rest(plain)
    assert watch._listeners._looks >= counts + 4


def test_a_new_definition_is_followed(own, resting):
    # Given an instance that rests long
    with Client(own.url, instance="three") as client:
        # When a queue is defined
        client.apply(Topic(name="late"), Queue(name="later", underlying_topic="late"))
    # Then the coordinator knows it, and looks at the new log, too
    (watch,) = set(resting._watches.values())
    duties = watch._instances["three"].duties
    eventually(lambda: log_of("late").key("three") in duties.watched.streams, within=10.0)


def test_what_ends_waiting_is_looked_at_each_time(own):
    # Given a wait for entries of one instance, whose user may not read streams
    with contextlib.closing(own.client()) as plain:
        plain.execute_command("ACL", "SETUSER", "care", "on", "nopass", "~*", "&*", "+@all", "-xread")
    logs = {"one": {log_of("orders").key("one"): "0-0"}}
    asked = threading.Event()

    def wanted():
        asked.set()
        return logs

    waiting = EntryWait(Store(f"unix://care:x@{own.socket}", "one"), wanted, lambda _: None)
    waiting.want()
    assert asked.wait(10)
    # Then no instance counts as waited for
    eventually(lambda: not waiting.covered)
    waiting.close()
    eventually(lambda: not waiting._thread.is_alive())


def test_who_waits_is_told_of_the_instance_whose_log_goes_on(own, plain):
    logs = {name: {log_of("orders").key(name): "0-0"} for name in NAMES}
    found: list[set[str]] = []
    waiting = EntryWait(Store(own.url, "one"), lambda: {} if found else logs, found.append)
    waiting.want()
    eventually(lambda: waiting.covered == set(NAMES))
    plain.xadd(log_of("orders").key("two"), {"b": b"{}"})
    eventually(lambda: found == [{"two"}])
    eventually(lambda: not waiting.covered)
    waiting.close()
    eventually(lambda: not waiting._thread.is_alive())


def test_the_end_does_not_wait_for_a_read_that_goes_on(own):
    logs = {"one": {log_of("orders").key("one"): "0-0"}}
    waiting = EntryWait(Store(own.url, "one"), lambda: logs, lambda _: None)
    waiting.want()
    eventually(lambda: own_blocked(own) == 1)
    began = time.monotonic()
    waiting.close()
    waiting._thread.join(5)
    assert not waiting._thread.is_alive()
    assert since(began) < 5


def own_blocked(own):
    with contextlib.closing(own.client()) as plain:
        return plain.info("clients")["blocked_clients"]


# -- logs that nobody defined


def test_a_log_is_searched_for_at_once_where_the_number_of_keys_changes(own, plain):
    store, found = Store(own.url, "one"), []
    search = LogSearch(store, found.extend)

    def look():
        keys = plain.dbsize()
        asked = search.begin()
        search.go_on(store.call(asked[0]) if asked else None, keys)
        return bool(asked)

    # Given a search that has seen all keys
    plain.mset({f"other:{number}": 1 for number in range(1_500)})
    while look() or search._cursor != "0":
        pass
    assert found == []
    # When a log comes
    plain.xadd(log_of("orders").key("one"), {"b": b"{}"})
    # Then the next look finds it, and another one as another key has gone, a few looks later
    look()
    assert ("one", "orders") in found
    while look() or search._cursor != "0":
        pass
    plain.delete("other:1")
    plain.xadd(log_of("late").key("one"), {"b": b"{}"})
    for _ in range(12):
        look()
    assert ("one", "late") in found
    store.close()


def test_a_server_at_rest_is_searched_at_one_look_of_five(own):
    store = Store(own.url, "one")
    search = LogSearch(store, lambda _: None)
    asked = []
    for _ in range(20):
        calls = search.begin()
        asked.append(bool(calls))
        search.go_on(store.call(calls[0]) if calls else None, 0)
    store.close()
    assert sum(asked[5:]) == 3
