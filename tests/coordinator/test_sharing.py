"""Several coordinators share the instances of a server: each has its own, and what one leaves the others take."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from observing import eventually, is_cared_for

from ampsq import Client
from ampsq.coordinator import Coordinator
from ampsq.coordinator.membership import Membership
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.coordinators import (
    CoordinatorEntry,
    list_coordinator,
    owners_of_instance,
    read_coordinators,
)
from ampsq.transport.store import Store

NAMES = [f"i{number}" for number in range(24)]


@pytest.fixture
def instances(own):
    for name in NAMES:
        with Client(own.url, instance=name):
            pass
    return NAMES


@pytest.fixture
def run(own):
    """Run a coordinator in a thread: ``run()``; gives it."""
    with contextlib.ExitStack() as stack:

        def begin(*named, url=own.url):
            coordinator = Coordinator(url, named)
            thread = threading.Thread(target=coordinator.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(coordinator.stop)
            return coordinator

        yield begin


@pytest.fixture
def process(own):
    """A coordinator that is a process of its own, which a test may kill."""
    arguments = [sys.executable, "-m", "ampsq.coordinator", "--url", own.url]
    with subprocess.Popen(arguments, env=dict(os.environ), stderr=subprocess.DEVNULL) as started:
        yield started
        started.kill()


def cared_for(coordinator):
    return {instance for instance, _ in coordinator.rounds}


def shared(*coordinators):
    """Return whether each instance is one coordinator's, and each has some."""
    parts = [cared_for(each) for each in coordinators]
    return all(parts) and sorted(name for part in parts for name in part) == sorted(NAMES)


def test_each_instance_is_one_coordinator_s_and_a_new_one_gets_its_share_within_five_seconds(own, instances, run):
    one, other = run(), run()
    eventually(lambda: shared(one, other))
    began = time.monotonic()
    third = run()
    eventually(lambda: shared(one, other, third))
    assert time.monotonic() - began < 5.0
    with contextlib.closing(own.client()) as plain:
        assert is_cared_for(plain, *instances)


def test_what_one_leaves_the_others_take(own, instances, run):
    one, other = run(), run()
    eventually(lambda: shared(one, other))
    other.stop()
    eventually(lambda: cared_for(one) == set(instances), within=5.0)
    with contextlib.closing(own.client()) as plain:
        assert is_cared_for(plain, *instances)


def test_what_a_killed_one_had_the_others_have_within_three_seconds(instances, run, process):
    one = run()
    eventually(lambda: 0 < len(cared_for(one)) < len(instances))
    process.kill()
    began = time.monotonic()
    eventually(lambda: cared_for(one) == set(instances))
    assert time.monotonic() - began < 3.0


@pytest.mark.usefixtures("own")
def test_one_that_cares_for_named_instances_shares_these_alone(instances, run):
    some, everything = run("i1", "i2"), run()
    eventually(lambda: cared_for(some) | cared_for(everything) == set(instances))
    eventually(lambda: len(cared_for(some)) + len(cared_for(everything)) == len(instances))
    assert cared_for(some) <= {"i1", "i2"}


def test_one_that_may_not_use_the_list_cares_for_all_and_says_so(own, instances, run, caplog):
    with contextlib.closing(own.client()) as plain:
        plain.execute_command("ACL", "SETUSER", "old", "on", "nopass", "~{*", "%R~ampsq:instances", "&*", "+@all")
    one, other = run(), run(url=f"unix://old:x@{own.socket}")
    eventually(lambda: cared_for(one) == cared_for(other) == set(instances))
    assert "may not use the list of coordinators" in caplog.text


def test_the_command_lists_who_has_what(own, instances, run):
    one, other = run(), run()
    eventually(lambda: shared(one, other))

    def listed():
        command = [sys.executable, "-m", "ampsq.cli", "coordinators", "--url", own.url, "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    rows = eventually(
        lambda: (found := listed()) and all(row["cares_for"] == len(row["instances"]) for row in found) and found
    )
    assert sorted(name for row in rows for name in row["instances"]) == sorted(instances)
    assert {row["process"] for row in rows} == {os.getpid()}
    assert all(row["cares_for"] for row in rows)


# -- who has which


def entries(*ids, powers=()):
    return [CoordinatorEntry(name, "host", 1, 0, 0, powers=list(powers)) for name in ids]


def owner(instance, alive):
    (found,) = owners_of_instance(instance, alive)
    return found


def test_each_coordinator_finds_the_same_owner_whatever_the_order():
    alive = entries("a", "b", "c")
    assert [owner(name, alive) for name in NAMES] == [owner(name, alive[::-1]) for name in NAMES]
    assert owners_of_instance("one", []) == set()


def test_where_one_goes_only_its_own_instances_change_hands():
    names = [f"instance-{number}" for number in range(1_000)]
    before = {name: owner(name, entries("a", "b", "c")) for name in names}
    after = {name: owner(name, entries("a", "b")) for name in names}
    assert all(after[name] == owner for name, owner in before.items() if owner != "c")
    shares = [list(before.values()).count(each) for each in "abc"]
    assert min(shares) > 250


def test_who_may_do_less_outside_leaves_the_instance_to_who_may_do_more():
    plain, calling = entries("a", "b"), entries("c", "d", powers=["webhooks https://one.example/"])
    assert {owner(name, [*plain, *calling]) for name in NAMES} == {"c", "d"}
    running = entries("e", powers=["commands"])
    # Where two may do different things, each cares for it: what one may not do, the other one does
    found = owners_of_instance("i1", [*plain, *calling, *running])
    assert "e" in found
    assert len(found) == 2


def test_one_that_died_a_minute_ago_is_taken_out_of_the_list(own):
    # Given one that died, and that gave its last sign of life more than a minute ago
    with contextlib.closing(Store(own.url, "")) as store:
        store.call(list_coordinator(CoordinatorEntry("dead", "host", 1, 0, store.call(server_time()) - 61_000)))
        # When another one has met it twice
        membership = Membership(())
        membership.meet(store)
        membership.meet(store)
        # Then only that one is left
        assert [each.id for each in store.call(read_coordinators())] == [membership.id]
