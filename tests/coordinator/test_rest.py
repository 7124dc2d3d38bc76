"""A server where nothing happens: one question a look says so, nothing is written, and what happens is found."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time

import pytest
from observing import eventually

from ampsq import Client, Queue, Topic
from ampsq.base.errors import Unavailable
from ampsq.coordinator import Coordinator, server_watch
from ampsq.coordinator.membership import Membership
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import STALE, CoordinatorEntry, list_coordinator, read_coordinators
from ampsq.protocol.reads.server import count_keys
from ampsq.protocol.schema import COORDINATORS, key
from ampsq.transport.repeated_question import RepeatedQuestion
from ampsq.transport.store import Store
from ampsq.transport.wakeups import Wakeups

WAITING = """
import sys, time
from ampsq import Client
with Client(sys.argv[1], instance="one") as client, client.subscribe("work"):
    print("waits", flush=True)
    time.sleep(120)  # it is killed
"""


@pytest.fixture
def store(own):
    with contextlib.closing(Store(own.url, "")) as store:
        yield store


@pytest.fixture
def begin(own):
    """Begin with a coordinator in a thread: ``begin()``; gives it."""
    with contextlib.ExitStack() as stack:

        def begun():
            coordinator = Coordinator(own.url)
            thread = threading.Thread(target=coordinator.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(coordinator.stop)
            return coordinator

        yield begun


@pytest.fixture
def watch(own, begin, monkeypatch):
    """The watch of a coordinator whose server rests, with an instance and a queue."""
    monkeypatch.setattr(server_watch, "_QUIET_AFTER", 0.5)
    with Client(own.url, instance="one") as client:
        client.apply(Topic(name="orders"), Queue(name="work", underlying_topic="orders", lease_period="60s"))
    coordinator = begin()
    (watch,) = eventually(lambda: set(coordinator._watches.values()))
    eventually(lambda: rests(watch), within=30.0)
    return watch


def rests(watch):
    """Return whether the last look found nothing to do but to ask."""
    return watch._rest is not None and watch._look_number > watch._rest.until - server_watch._SURE


def calls(plain, *names):
    stats = plain.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names)


def test_nothing_is_written_for_seconds_and_each_look_asks_once(plain, watch):
    # Given a server at rest that has just been given a sign of life
    before = calls(plain, "hset")
    eventually(lambda: calls(plain, "hset") > before, within=15.0)
    eventually(lambda: rests(watch))
    # When some looks are made
    written, looks, asked = calls(plain, "hset"), watch._look_number, calls(plain, "hkeys")
    eventually(lambda: watch._look_number >= looks + 4)
    # Then each has asked, and nothing is written
    assert calls(plain, "hset") == written
    assert calls(plain, "hkeys") - asked >= 4


def test_a_killed_client_is_noticed_while_the_server_rests(own, plain, watch):
    # Given a subscription of another process, at a server at rest
    with subprocess.Popen([sys.executable, "-c", WAITING, own.url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        eventually(lambda: rests(watch) and watch._rest.channels, within=30.0)
        # When it is killed
        process.kill()
        began = time.monotonic()
        # Then its subscription ends: the next look notices it, and another one 0.3 s later
        eventually(lambda: not plain.zcard(key("one", "subscriptions")), within=10.0)
        assert time.monotonic() - began < 2.5


def test_a_new_instance_is_found_while_the_server_rests(own, watch):
    with Client(own.url, instance="two"):
        pass
    eventually(lambda: "two" in watch.names, within=5.0)


def test_a_changed_setting_of_flushing_is_found_while_the_server_rests(plain, watch):
    eventually(lambda: watch._flushing is not None)
    plain.config_set("appendfsync", "always")
    eventually(lambda: watch._flushing.appendfsync == "always", within=5.0)


def test_what_a_script_tells_ends_the_rest_at_once(own, watch):
    with Client(own.url, instance="one") as client:
        client.apply(Topic(name="late"))
        eventually(lambda: watch._rest is None, within=2.0)


# -- one that is alone


def test_one_that_is_alone_gives_a_sign_of_life_seldom_and_counts_as_alive(store):
    membership = Membership(())
    membership.meet(store)
    (first,) = store.call(read_coordinators())
    membership.meet(store)
    (second,) = store.call(read_coordinators())
    assert first.seen == second.seen
    assert first.is_alive(first.seen + STALE + 1_000)
    assert not first.is_alive(first.seen + STALE + first.quiet)


def test_one_that_was_alone_gives_a_sign_as_soon_as_another_one_comes(store):
    alone = Membership(())
    alone.meet(store)
    other = Membership(())
    other.meet(store)
    # Given that each sees the other one
    alone.meet(store)
    assert alone.owes_sign
    assert alone.is_among_others
    assert other.is_among_others
    # Then the next time it says that it is there, and from then on each time
    alone.meet(store)
    assert not alone.owes_sign
    said = {each.id: each for each in store.call(read_coordinators())}
    assert said[alone.id].quiet == 0


def test_a_new_one_waits_for_the_sign_of_one_that_was_alone_as_long_as_for_others(store):
    # Given one that knew of nobody, and died since it gave its last sign of life, not long ago
    now = store.call(server_time())
    store.call(list_coordinator(CoordinatorEntry("quiet", "host", 1, 0, now - STALE - 1_000, quiet=6_000)))
    store.call(list_coordinator(CoordinatorEntry("dead", "host", 1, 0, now - STALE - 1_000)))
    # When another one comes
    began = time.monotonic()
    membership = Membership(())
    membership.meet(store)
    # Then it counts for a moment, in which it would give a sign; one that knew of others does not
    assert {each.id for each in membership._alive} == {membership.id, "quiet"}

    def is_alone():
        membership.meet(store)
        return not membership.is_among_others

    eventually(is_alone, within=5.0)
    assert STALE / 1000 - 0.1 < time.monotonic() - began < 3.0


def test_two_that_come_share_instances_though_the_first_one_was_at_rest(own, begin, watch):
    with Client(own.url, instance="two"), Client(own.url, instance="three"):
        pass
    eventually(lambda: set(watch.names) == {"one", "two", "three"})
    eventually(lambda: rests(watch), within=30.0)
    began = time.monotonic()
    other = begin()
    shares = eventually(
        lambda: (
            (found := {name for name, _ in other.rounds}) | set(watch.names) == {"one", "two", "three"}
            and not found & set(watch.names)
            and (found, set(watch.names))
        ),
        within=10.0,
    )
    assert shares
    assert time.monotonic() - began < 5.0


# -- the question


def test_a_question_says_whether_all_is_as_it_was(store, plain):
    question = RepeatedQuestion()
    question.put(store, [count_keys(), read_coordinators()])
    # The first answer has nothing to be compared with
    assert question.ask(store) is None
    assert question.ask(store) == pytest.approx(time.time(), abs=60)
    # A new key, and a longer answer
    plain.set("new", 1)
    assert question.ask(store) is None
    assert question.ask(store) is not None
    plain.hset(COORDINATORS, "other", "x" * 200_000)
    assert question.ask(store) is None
    assert question.ask(store) is not None
    # A shorter one
    plain.hdel(COORDINATORS, "other")
    assert question.ask(store) is None
    assert question.ask(store) is not None
    question.close()
    assert question.ask(store) is None


def test_a_question_that_is_refused_has_an_answer_too(own, plain):
    plain.execute_command("ACL", "SETUSER", "few", "on", "nopass", "~*", "&*", "+@all", "-dbsize")
    with contextlib.closing(Store(f"unix://few:x@{own.socket}", "")) as store:
        question = RepeatedQuestion()
        question.put(store, [count_keys()])
        assert question.ask(store) is None
        assert question.ask(store) is not None
        question.close()


def test_a_question_whose_connection_is_ended_is_put_anew(store, plain):
    question = RepeatedQuestion()
    question.put(store, [count_keys()])
    question.ask(store)
    plain.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert question.ask(store) is None
    question.put(store, [count_keys()])
    assert question.ask(store) is None
    assert question.ask(store) is not None
    question.close()


def test_scripts_wake_it_again_where_it_could_not_listen_at_once(own, watch, plain, monkeypatch):
    # Given a server that is away for as long as the connection is opened anew
    opened, failed = Wakeups.open, []

    def open_at_the_second(self, instances):
        if not failed:
            failed.append(True)
            raise Unavailable("away")
        opened(self, instances)

    monkeypatch.setattr(Wakeups, "open", open_at_the_second)
    # When the connection is lost
    plain.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    eventually(lambda: failed, within=10.0)
    # Then a later look opens it
    eventually(lambda: watch._wakeups.is_open, within=10.0)
    eventually(lambda: rests(watch), within=30.0)
    with Client(own.url, instance="one") as client:
        client.apply(Topic(name="late"))
        eventually(lambda: watch._rest is None, within=2.0)
