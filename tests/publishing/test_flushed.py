"""Flushes of a server: its report on them, and what that proves."""

from __future__ import annotations

import secrets

import pytest

from ampsq.base.errors import ServerUnsuitable, Unavailable
from ampsq.protocol.reads.server import Server
from ampsq.protocol.request import Pause
from ampsq.publishing.flush_watch import PERIOD, FlushWatch


class Told:
    """Drives a `FlushWatch` by hand: time is ours, and so is what the server says."""

    def __init__(self, *, pauses_for_saving=False):
        self.now, self.run = 100.0, secrets.token_hex(20)
        self.flushed = FlushWatch("i", pauses_for_saving=pauses_for_saving, clock=lambda: self.now)

    def look(self, at, *, flushing=0, saving=0, status="ok", forks=0, shown=None, note=b""):
        """`until`, after a look at this second; `shown` is the server's clock, `note` what a coordinator noted."""
        self.now = 100.0 + at
        reply = (
            f"# Persistence\r\naof_pending_bio_fsync:{flushing}\r\nrdb_bgsave_in_progress:0\r\n"
            f"aof_rewrite_in_progress:{saving}\r\naof_last_write_status:{status}\r\n# Stats\r\ntotal_forks:{forks}\r\n"
        )
        if shown is not None:
            reply += f"# Server\r\nrun_id:{self.run}\r\nserver_time_usec:{int(shown * 1e6)}\r\n"
        flow = self.flushed.read_info("channel")
        try:
            post = flow.send(None)
            flow.send(None)
            post = flow.send(post.call.read(reply.encode()))
            # The note is read only at the first looks.
            assert shown is not None
            flow.send(None)
            flow.send(post.call.read(note))
        except StopIteration as end:
            return end.value - 100.0 if end.value else None
        raise AssertionError("a look is one question, and one for the note")


LATE = PERIOD + 0.01


def test_what_was_answered_before_a_calm_look_is_flushed_after_the_period_and_one_more_look():
    told = Told()
    assert told.look(0) is None
    assert told.look(1) is None
    # This one makes sure that the flush that was due has begun
    assert told.look(LATE) is None
    assert told.look(LATE + 0.1) == 0
    assert told.look(1 + LATE) == 0
    assert told.look(1 + LATE + 0.1) == 1


def test_a_flush_that_is_under_way_proves_nothing():
    told = Told()
    told.look(0, flushing=1)
    told.look(LATE)
    assert told.look(LATE + 0.1) is None


def test_a_flush_that_began_in_between_is_waited_for():
    told = Told()
    told.look(0)
    told.look(LATE)
    assert told.look(LATE + 0.1, flushing=1) is None
    assert told.look(LATE + 0.2) == 0


@pytest.mark.parametrize("change", [{"forks": 1}, {"status": "err"}])
def test_a_fork_or_a_failed_write_makes_it_begin_anew(change):
    told = Told()
    told.look(0)
    told.look(1, **change)
    told.look(LATE, forks=change.get("forks", 0))
    assert told.look(LATE + 0.1, forks=change.get("forks", 0)) is None
    assert told.look(1 + 2 * LATE, forks=change.get("forks", 0)) is None
    assert told.look(1 + 2 * LATE + 0.1, forks=change.get("forks", 0)) >= 1


def test_a_server_whose_clock_is_set_back_flushes_when_it_is_where_it_was():
    told = Told()
    told.look(0, shown=1_000)
    told.look(1, shown=1_001)
    assert told.look(2, shown=972) is None
    # For 30 s it shows less than 1,002
    assert told.look(30, shown=1_000) is None
    assert told.look(32 + LATE, shown=1_002 + LATE) is None
    assert told.look(32 + LATE + 0.1, shown=1_002 + LATE + 0.1) == 30


@pytest.mark.parametrize("run", ["its own", "another"])
def test_what_a_coordinator_saw_of_a_clock_before_the_first_look_counts_for_that_server_alone(run):
    told = Told()
    noted = f"{told.run if run == 'its own' else 'another'} everysec no 1030000".encode()
    told.look(0, shown=1_000, note=noted)
    told.look(LATE, shown=1_000 + LATE)
    assert told.look(LATE + 0.1, shown=1_000 + LATE + 0.1) == (None if run == "its own" else 0)
    told.look(30 + LATE, shown=1_030 + LATE)
    assert told.look(30 + LATE + 0.1, shown=1_030 + LATE + 0.1) >= LATE


def test_a_note_that_comes_behind_the_first_look_counts():
    told = Told()
    told.look(0, shown=1_000)
    told.look(1, shown=1_001, note=f"{told.run} everysec no 1030000".encode())
    told.look(LATE, shown=1_000 + LATE)
    assert told.look(LATE + 0.1, shown=1_000 + LATE + 0.1) is None


@pytest.mark.parametrize("pauses", [False, True])
def test_a_server_that_does_not_flush_while_it_saves_is_not_trusted_then(pauses):
    told = Told(pauses_for_saving=pauses)
    told.look(0, saving=1)
    told.look(LATE, saving=1)
    assert told.look(LATE + 0.1, saving=1) == (None if pauses else 0)


def test_a_broken_connection_makes_it_begin_anew():
    told = Told()
    told.look(0)
    told.look(LATE)
    told.now += 1
    flow = told.flushed.read_info("channel")
    flow.send(None)
    with pytest.raises(Unavailable):
        flow.throw(Unavailable("the server is gone"))
    assert told.look(LATE + 2) is None


def test_waiting_looks_until_it_is_so_or_gives_up():
    told = Told()

    def answers(flow, seconds):
        try:
            step = flow.send(None)
            while True:
                if isinstance(step, Pause):
                    told.now += step.seconds
                    step = flow.send(None)
                elif hasattr(step, "call"):
                    call = step.call
                    flow.send(None)
                    step = flow.send(call.read(b"aof_last_write_status:ok\r\n"))
                assert told.now < 100 + seconds
        except StopIteration as end:
            return end.value

    assert answers(told.flushed.wait("channel", 100.0, 100.5), 1) is False
    assert answers(told.flushed.wait("channel", 100.0, 110.0), 2) is True
    assert answers(told.flushed.wait("channel", told.flushed.until, 0.0), 2) is True


@pytest.mark.parametrize(
    ("appends", "appendfsync", "text"), [(False, "everysec", "appendonly yes"), (True, "no", "everysec or always")]
)
def test_a_server_that_never_flushes_is_refused(appends, appendfsync, text):
    server = Server("valkey", "9.1", 1, False, appends, appendfsync, False, (), "i")
    with pytest.raises(ServerUnsuitable, match=text):
        FlushWatch.watch(server, "it")


def test_a_server_that_flushes_before_it_answers_need_not_be_watched():
    assert FlushWatch.watch(Server("valkey", "9.1", 1, True, True, "always", False, (), "i"), "it") is None
