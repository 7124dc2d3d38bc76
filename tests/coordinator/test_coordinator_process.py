"""The coordinator as a whole: which instances it cares for, how they wait for their server, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time

import observing
import pytest
from observing import eventually

from ampsq import Client
from ampsq.base.errors import Unavailable
from ampsq.coordinator import Coordinator
from ampsq.coordinator.server_watch import ServerWatch
from ampsq.coordinator.sweep import SweepDue
from ampsq.transport.server_wait import ServerWait


@pytest.fixture
def own(start_server):
    """A server of the test's own, on which nobody else has instances; it ends with the test, also where it hangs."""
    server = start_server("valkey", appendonly=True)
    yield server
    with contextlib.suppress(ProcessLookupError):
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
def run():
    """Run a coordinator in a thread: ``run(url)``; gives it, and the thread."""
    started = []

    def begin(url, instances=()):
        coordinator = Coordinator(url, instances)
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        started.append((coordinator, thread))
        return coordinator, thread

    yield begin
    for coordinator, thread in started:
        coordinator.stop()
        thread.join()


def open_instances(server, *names):
    for name in names:
        with Client(server.url, instance=name):
            pass


def is_cared_for(server, *names):
    """Return whether each of the instances is looked after from here on."""
    with contextlib.closing(server.client()) as plain:
        return observing.is_cared_for(plain, *names)


def texts(caplog, part):
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


# -- which instances


def test_instances_are_kept_while_nobody_can_say_which_there_are(own, run, caplog):
    # Given a coordinator of all instances, whose user may no longer ask for them
    open_instances(own, "one", "two")
    with contextlib.closing(own.client()) as plain:
        plain.execute_command("ACL", "SETUSER", "care", "on", "nopass", "~*", "&*", "+@all")
        coordinator, _ = run(f"unix://care:x@{own.socket}")
        assert is_cared_for(own, "one", "two")
        plain.execute_command("ACL", "SETUSER", "care", "-smembers")
        # When it has looked several times
        eventually(lambda: texts(caplog, "cannot look for new instances"), within=20.0)
        time.sleep(2.5)  # two more looks, of which a second line would come
        # Then it still cares for those that it knows, and has said that once
        assert is_cared_for(own, "one", "two")
        assert {instance for instance, _ in coordinator.rounds} == {"one", "two"}
        assert len(texts(caplog, "cannot look for new instances")) == 1
        # And with the right back it finds a new one
        plain.execute_command("ACL", "SETUSER", "care", "+smembers")
        open_instances(own, "three")
        assert is_cared_for(own, "three")


def test_an_instance_that_is_not_there_any_more_is_let_go_of(own, run):
    open_instances(own, "one", "two")
    coordinator, _ = run(own.url)
    assert is_cared_for(own, "one", "two")
    with contextlib.closing(own.client()) as plain:
        plain.srem("ampsq:instances", "two")
    eventually(lambda: {instance for instance, _ in coordinator.rounds} == {"one"}, within=20.0)


# -- looks


def test_a_look_counts_as_far_as_its_user_may_make_it(own, run, caplog, monkeypatch):
    # Given a coordinator whose user may not search for keys, and what it takes in of its looks
    taken, take_in = [], ServerWatch._take_in

    def note(watch, part, reply, unsure, *, is_moved):
        taken.extend(each.duties.store.instance for each in part)
        take_in(watch, part, reply, unsure, is_moved=is_moved)

    monkeypatch.setattr(ServerWatch, "_take_in", note)
    open_instances(own, "one")
    with contextlib.closing(own.client()) as plain:
        plain.execute_command("ACL", "SETUSER", "care", "on", "nopass", "~*", "&*", "+@all", "-scan")
    run(f"unix://care:x@{own.socket}")
    eventually(lambda: texts(caplog, "looking at the instances of a server failed"))
    # When it looks again
    taken.clear()
    # Then what was answered before the refusal counts
    eventually(lambda: "one" in taken)


def test_a_kept_connection_that_somebody_ended_is_made_anew(own, run, caplog):
    # Given a coordinator that has looked
    open_instances(own, "one")
    run(own.url)
    assert is_cared_for(own, "one")
    with contextlib.closing(own.client()) as plain:
        # When its connections are ended while it does nothing
        plain.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        # Then it goes on, and the server was never away
        assert is_cared_for(own, "one")
    assert texts(caplog, "the server is away") == []


# -- a server that is away


def test_a_server_that_is_away_is_told_of_once_and_all_instances_go_on_when_it_is_back(own, run, caplog, start_server):
    caplog.set_level(logging.INFO, "ampsq")
    names = [f"i{number}" for number in range(8)]
    open_instances(own, *names)
    run(own.url)
    assert is_cared_for(own, *names)
    own.process.kill()
    own.process.wait()
    eventually(lambda: texts(caplog, "the server is away"), within=20.0)
    time.sleep(1.0)  # some attempts, of which a second line would come
    caplog.clear()
    again = start_server("valkey", appendonly=True, data_dir=own.directory)
    assert is_cared_for(again, *names)
    # What was said since the server was away
    assert texts(caplog, "the server is away") == []
    assert len(texts(caplog, "the server is back")) == 1
    assert texts(caplog, "waits") == []


def test_one_asks_whether_the_server_is_back_however_many_wait(own, caplog):
    # Given many who wait for a server that is not there
    own.process.kill()
    own.process.wait()
    waits, leaving = ServerWait(logging.getLogger("ampsq.coordinator")), threading.Event()
    stores = [waits.store(own.url, f"i{number}", 0.0) for number in range(30)]
    with contextlib.ExitStack() as stack:
        found = []
        for store in stores:
            stack.callback(store.close)
            with pytest.raises(Unavailable):
                SweepDue().run_once(store)
        threads = [threading.Thread(target=lambda s=s: found.append(waits.wait(s, leaving))) for s in stores]
        for thread in threads:
            thread.start()
        eventually(lambda: texts(caplog, "the server is away"), within=20.0)
        # Then there is one thread beside theirs, and one line
        assert [thread.name for thread in threading.enumerate()].count("ampsq-server-wait") == 1
        assert len(texts(caplog, "the server is away")) == 1
        # When it ends, all are let go at once
        began = time.monotonic()
        waits.close()
        for thread in threads:
            thread.join(5.0)
        assert time.monotonic() - began < 2.0
        assert found == [True] * 30


def test_who_comes_when_nobody_waits_any_more_does_not_take_the_server_to_be_there(own):
    own.process.kill()
    own.process.wait()
    waits = ServerWait(logging.getLogger("ampsq.coordinator"))
    waits.close()
    with contextlib.closing(waits.store(own.url, "one", 0.0)) as store:
        assert waits.wait(store, threading.Event()) is True


def test_who_waits_for_a_server_that_answers_is_told_so_at_once(own):
    waits = ServerWait(logging.getLogger("ampsq.coordinator"))
    with contextlib.closing(waits.store(own.url, "one", 0.0)) as store:
        assert waits.wait(store, threading.Event()) is False


def test_who_leaves_does_not_wait_on(own):
    own.process.kill()
    own.process.wait()
    waits, leaving = ServerWait(logging.getLogger("ampsq.coordinator")), threading.Event()
    with contextlib.closing(waits.store(own.url, "one", 0.0)) as store:
        threading.Timer(0.5, leaving.set).start()
        assert waits.wait(store, leaving) is True
    waits.close()


def test_a_duty_that_fails_beside_a_healthy_server_is_told_once_for_all_duties(own, run, caplog, monkeypatch):
    # Given an instance all of whose duties fail in the same way, while the server answers
    open_instances(own, "one")

    def refuse(*_):
        raise Unavailable("the network ate it")

    caplog.set_level(logging.INFO, "ampsq")
    for duty in ("sweep.SweepDue", "lost_clients.LostClients", "foreign_entries.ForeignEntries"):
        monkeypatch.setattr(f"ampsq.coordinator.{duty}.run_once", refuse)
    coordinator, _ = run(own.url, ["one"])
    eventually(lambda: texts(caplog, "the network ate it"), within=20.0)
    time.sleep(1.5)  # some rounds, of which a second line would come
    # Then one line says so, and the other duties are done
    assert len(texts(caplog, "the network ate it")) == 1
    assert coordinator.rounds["one", "links"] < 1.0
    # And when they go on, one line says that
    monkeypatch.undo()
    eventually(lambda: texts(caplog, "one goes on"), within=20.0)
    assert len(texts(caplog, "one goes on")) == 1


# -- the end


@pytest.mark.parametrize("away", [None, signal.SIGKILL, signal.SIGSTOP])
def test_it_ends_in_time(own, run, away):
    names = [f"i{number}" for number in range(8)]
    open_instances(own, *names)
    coordinator, thread = run(own.url)
    assert is_cared_for(own, *names)
    if away is not None:
        own.process.send_signal(away)
        time.sleep(0.3)  # it notices
    coordinator.stop()
    thread.join(5.0)
    assert not thread.is_alive()
