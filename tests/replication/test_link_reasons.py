"""A link that is not connected says why, whatever state it is in, and what to do about it."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest
from observing import eventually
from sites import shared, to

from ampsq import Client
from ampsq.base.errors import Unavailable
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.schema import key
from ampsq.replication import link_ends, link_runner
from ampsq.replication.link_runner import LinkRunner
from ampsq.transport.store import Store


def links(client, direction="out"):
    return [link for link in client.admin.replication().links if link.direction == direction]


def link_of(client, direction="out"):
    (link,) = links(client, direction)
    return link


def in_state(client, state, part, direction="out"):
    """Wait until its only link is in a state, and its reason has something in it; gives the reason."""

    def found():
        link = link_of(client, direction)
        return link.reason if link.state == state and part in (link.reason or "") else None

    return eventually(found, 30)


def has_said(client, field, **facts):
    """Let a link have said something else, or earlier."""
    redis, stored = client._store.redis, key(client.instance, "links")
    said = json.loads(redis.hget(stored, field) or b"{}")
    redis.hset(stored, field, json.dumps(said | facts))


def older(client, field, by=60_000):
    said = json.loads(client._store.redis.hget(key(client.instance, "links"), field))
    has_said(client, field, at=said["at"] - by)


@pytest.fixture
def runner(world):
    """Run a link as a coordinator does, in a thread: ``runner(short, destination)``."""
    stops = []

    def run(short, destination):
        stopping = threading.Event()
        made = LinkRunner(world.url(short), world.name(short), destination, stopping)
        thread = threading.Thread(target=made.run)
        thread.start()
        stops.append((stopping, thread))
        return made

    yield run
    for stopping, thread in stops:
        stopping.set()
        thread.join()


# -- silent


def test_a_link_that_no_coordinator_has_run_says_so(world):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)

    link = link_of(a)

    assert link.state == "silent"
    assert link.reason == (
        f"no coordinator runs this link, nor has one since it was defined: start one for {a.instance} (ampsq "
        "coordinator, or ampsq up); where one runs, its log says what keeps it"
    )


def test_a_link_whose_coordinator_ended_says_what_it_said_last(world):
    a = world.site("a", *shared(), to(world, "b", addresses=["unix:///tmp/nobody-is-here#b"]))
    in_state(a, "waiting", "nobody listens there")
    world.leave("a")
    older(a, "out to-b")

    link = link_of(a)

    assert link.state == "silent"
    assert link.reason.startswith(f"no coordinator runs this link: start one for {a.instance} (ampsq coordinator, or")
    assert "the last word, 1m" in link.reason
    assert "was waiting (unix:///tmp/nobody-is-here#b: " in link.reason
    assert "nobody listens there" in link.reason


def test_a_link_that_was_connected_and_went_silent_has_a_reason(world):
    a = world.site("a", *shared(), to(world, "b"))
    b = world.site("b", *shared(), to(world, "a"), coordinated=False)
    eventually(lambda: link_of(a).state == "connected", 30)
    assert link_of(a).reason is None
    assert link_of(b, "in").reason is None
    world.leave("a")
    older(a, "out to-b")
    older(b, f"in {a.instance}")

    assert "the last word, 1m" in link_of(a).reason
    assert link_of(a).reason.endswith("ago, was connected")
    incoming = link_of(b, "in")
    assert incoming.state == "silent"
    assert incoming.reason.startswith(
        f"the coordinator of {a.instance} runs this link, and has ended or does not reach this server"
    )


def test_a_destination_without_address_says_that_the_other_side_makes_the_link(world):
    a = world.site("a", *shared(), to(world, "b", name=world.name("b"), addresses=[]))

    link = link_of(a)

    assert link.state == "silent"
    assert link.reason.startswith(
        "the destination has no address, so that the other side makes this link with its destination to "
        f"{a.instance}, and it has not come yet"
    )
    # And once it came, and comes no more
    world.site("b", *shared(), to(world, "a"))
    eventually(lambda: link_of(a).state == "connected", 30)
    world.leave("b")
    older(a, f"out {world.name('b')}")
    assert "it does not come any more" in link_of(a).reason
    assert link_of(a).reason.endswith("ago, was connected")


# -- waiting


def test_a_coordinator_that_has_just_begun_says_whom_it_asks(world, runner, monkeypatch):
    # Given another side whose answer takes its time
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)
    asked, go_on = threading.Event(), threading.Event()
    read_peer = link_runner.read_peer

    def slow(store):
        if store.instance != a.instance:
            asked.set()
            go_on.wait(60)
        return read_peer(store)

    monkeypatch.setattr(link_runner, "read_peer", slow)
    world.site("b", *shared(), to(world, "a"), coordinated=False)
    runner("a", to(world, "b"))
    assert asked.wait(30)
    # Then it says whom it asks, before there is an answer
    link = link_of(a)
    go_on.set()
    assert (link.state, link.reason) == (
        "waiting",
        f"its coordinator asks {world.address('b')} which instance is there",
    )
    eventually(lambda: link_of(a).state == "connected", 30)


def test_a_link_that_compares_what_is_there_says_so(world, runner, monkeypatch):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)
    b = world.site("b", *shared(), to(world, "a"), coordinated=False)
    opening, go_on = threading.Event(), threading.Event()
    make = link_runner.LinkDirections

    def slow(*arguments):
        opening.set()
        go_on.wait(60)
        return make(*arguments)

    monkeypatch.setattr(link_runner, "LinkDirections", slow)
    runner("a", to(world, "b"))
    assert opening.wait(30)
    link = link_of(a)
    go_on.set()
    assert (link.state, link.reason) == ("waiting", f"{b.instance} answers, and is asked what it has")
    eventually(lambda: link_of(a).state == "connected", 30)


def test_a_link_that_another_coordinator_holds_without_a_word_says_so(world, runner):
    # Given a coordinator that holds the link, and never says how it goes
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)
    with contextlib.closing(Store(world.url("a"), a.instance)) as store:
        assert store.call(duty_calls.hold_view("link to-b", "somebody", 60_000))
    # When another one wants to run it
    runner("a", to(world, "b"))
    # Then the link says that
    reason = in_state(a, "waiting", "another coordinator holds this link")
    assert reason == link_runner._HELD


def test_a_link_that_another_coordinator_runs_is_left_to_what_that_one_says(world, runner):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)
    with contextlib.closing(Store(world.url("a"), a.instance)) as store:
        assert store.call(duty_calls.hold_view("link to-b", "somebody", 60_000))
        now = int(a._store.redis.time()[0]) * 1000
        has_said(a, "out to-b", destination="to-b", source=a.instance, state="refused", reason="as it is", at=now)
        made = runner("a", to(world, "b"))
        asked = threading.Event()
        made._note_held, original = (lambda *given: (original(*given), asked.set())), made._note_held
        assert asked.wait(30)
    assert (link_of(a).state, link_of(a).reason) == ("refused", "as it is")


def test_a_fault_of_a_coordinator_s_own_is_told(world, runner, monkeypatch):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)
    world.site("b", *shared(), to(world, "a"), coordinated=False)

    def fail(*_):
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr(link_ends, "validate", fail)
    runner("a", to(world, "b"))
    reason = in_state(a, "waiting", "its coordinator failed")
    assert reason.endswith("its log has all of ZeroDivisionError('by accident')")


def test_why_it_waits_stays_while_it_tries_again(world, runner):
    # Given a link that nobody answers, and that tries again soon
    here = ["unix:///tmp/nobody-is-here#b"]
    a = world.site("a", *shared(), to(world, "b", addresses=here, reconnect_timeout="100ms"), coordinated=False)
    runner("a", to(world, "b", addresses=here, reconnect_timeout="100ms"))
    reason = in_state(a, "waiting", "nobody listens there")
    # Then its reason is the same all the time
    assert {link_of(a).reason for _ in range(100)} == {reason}


def test_a_word_that_could_not_be_left_is_left_by_the_next_attempt(world, runner, monkeypatch):
    # Given a link that fails, and cannot say so at first
    here = ["unix:///tmp/nobody-is-here#b"]
    a = world.site("a", *shared(), to(world, "b", addresses=here, reconnect_timeout="100ms"), coordinated=False)
    note, lost = link_runner.note_state, []

    def failing(store, state):
        if "nobody listens" in state.reason and len(lost) < 3:
            lost.append(state.reason)
            raise Unavailable("not now")
        note(store, state)

    monkeypatch.setattr(link_runner, "note_state", failing)
    runner("a", to(world, "b", addresses=here, reconnect_timeout="100ms"))
    assert "nobody listens there" in in_state(a, "waiting", "nobody listens there")
    assert len(lost) == 3


# -- refused


@pytest.mark.parametrize(
    ("sent", "back", "part"),
    [
        (["orders", "work"], ["orders"], "'work': is sent to"),
        (["orders"], ["orders", "work"], "came, and its own destination is refused: "),
    ],
)
def test_what_does_not_fit_is_told_where_the_other_side_makes_the_link(world, sent, back, part):
    # Given a destination without address, where one of both directions does not fit
    a = world.site("a", *shared(), to(world, "b", name=world.name("b"), addresses=[], topics=sent))
    b = world.site("b", *shared(), to(world, "a", topics=back))
    # Then both sides say why there is no link
    assert "'work'" in in_state(a, "refused", part)
    assert "'work'" in in_state(b, "refused", "'work'")


def test_each_link_that_is_not_connected_has_a_reason_in_each_of_its_lives(world):
    # Given a link that is defined, run, connected, lost and left
    a = world.site("a", *shared(), to(world, "b", reconnect_timeout="200ms"), coordinated=False)
    seen = []
    watching = threading.Event()
    with Client(world.url("a"), instance=a.instance) as looking:

        def look():
            while not watching.wait(0.02):
                seen.extend((link.state, link.reason) for link in links(looking))

        watcher = threading.Thread(target=look)
        watcher.start()
        eventually(lambda: seen)
        world.coordinate("a")
        in_state(a, "waiting", world.name("b"))
        world.site("b", *shared(), to(world, "a"))
        eventually(lambda: any(state == "connected" for state, _ in seen), 30)
        world.leave("b")
        world.leave("a")
        older(a, "out to-b")
        in_state(a, "silent", "the last word")
        eventually(lambda: seen[-1][0] == "silent")
        watching.set()
        watcher.join()
    # Then whoever looked at any time was told why
    assert {state for state, _ in seen} == {"silent", "waiting", "connected"}
    assert all((reason is None) == (state == "connected") for state, reason in seen)
