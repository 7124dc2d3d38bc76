"""Connections of a store after each outcome, with threads and with asyncio: fake connections show it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque

import pytest
import redis

from ampsq.base.errors import NoAnswer, Rejected, ServerFull, Unavailable
from ampsq.protocol.request import command, script_call
from ampsq.publishing.sending import Sender
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.attempts import Attempts
from ampsq.transport.route import Route
from ampsq.transport.store import Store


class FakePool:
    """A pool of one connection, whose outcomes are known before."""

    def __init__(self, store, outcomes):
        self.server, self.outcomes = store.route.find(), deque(outcomes)
        self.sent, self.dropped, self.released = [], 0, 0

    def take(self, _key):
        return self

    def send(self, call, *, whole):
        self.sent.append((call, whole))

    def read(self, _blocks):
        outcome = self.outcomes.popleft()
        outcome = outcome() if callable(outcome) else outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def drop(self):
        self.dropped += 1

    def release(self):
        self.released += 1


class AsyncFakePool(FakePool):
    async def take(self, _key):
        return super().take(_key)

    async def send(self, call, *, whole):
        super().send(call, whole=whole)

    async def read(self, blocks):
        return super().read(blocks)

    async def drop(self):
        super().drop()

    async def release(self):
        super().release()


class Called:
    """A store of one kind on a `FakePool`, and how a call is made with it."""

    def __init__(self, kind, pools):
        self.kind, self.pools = kind, pools

    def __call__(self, call, *outcomes, **options):
        store = self.kind("redis://127.0.0.1:1", "here", **options)
        pool = store._connections = self.pools(store, outcomes)

        async def main():
            result = store.call(call)
            return await result if inspect.isawaitable(result) else result

        try:
            return asyncio.run(main()), pool
        except BaseException as error:  # noqa: BLE001  (also an interrupt is an outcome)
            return error, pool


@pytest.fixture(params=[(Store, FakePool), (AsyncStore, AsyncFakePool)], ids=["threads", "asyncio"])
def called(request):
    return Called(*request.param)


READ = command(["GET", "x"], bytes)


def write():
    return script_call("publish", [], bytes)


def test_an_answered_call_gives_its_connection_back(called):
    reply, pool = called(READ, b"1")

    assert reply == b"1"
    assert (pool.dropped, pool.released) == (0, 1)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError, ZeroDivisionError])
def test_a_reply_that_nobody_read_takes_its_connection_with_it(called, kind):
    error, pool = called(READ, kind())

    assert isinstance(error, kind)
    assert (pool.dropped, pool.released, len(pool.sent)) == (1, 1, 1)


def test_a_refusal_was_read_so_that_its_connection_stays(called):
    error, pool = called(write(), redis.ResponseError('AMPSQ_UNKNOWN_QUEUE {"queue": "work"}'))

    assert isinstance(error, Rejected)
    assert (pool.dropped, pool.released) == (0, 1)
    error, pool = called(write(), redis.OutOfMemoryError("OOM"))
    assert isinstance(error, ServerFull)
    assert (pool.dropped, pool.released) == (0, 1)


def test_a_script_that_the_server_does_not_know_is_sent_with_its_text(called):
    reply, pool = called(write(), redis.exceptions.NoScriptError("none"), redis.exceptions.NoScriptError("none"), b"1")

    assert reply == b"1"
    assert [whole for _, whole in pool.sent] == [False, True, True]
    assert (pool.dropped, pool.released) == (0, 3)


def test_a_lost_reply_is_asked_for_again_only_where_a_second_run_is_harmless(called):
    reply, pool = called(READ, redis.ConnectionError("gone"), b"1")
    assert reply == b"1"
    assert (pool.dropped, pool.released) == (1, 2)

    error, pool = called(write(), redis.ConnectionError("gone"), b"1")
    assert isinstance(error, Unavailable)
    assert error.may_have_run
    assert (pool.dropped, pool.released, len(pool.sent)) == (1, 1, 1)


def test_the_time_for_which_a_call_is_repeated_begins_with_its_first_attempt(called):
    def late():
        time.sleep(0.15)  # how late it fails
        return redis.TimeoutError("nothing came")

    error, pool = called(READ, late, b"1", retry_timeout=0.1)
    assert isinstance(error, NoAnswer)
    assert len(pool.sent) == 1

    reply, pool = called(READ, late, b"1", retry_timeout=10.0)
    assert reply == b"1"
    assert len(pool.sent) == 2


@pytest.mark.parametrize("error", [redis.exceptions.TryAgainError("x"), redis.exceptions.AskError("5 127.0.0.1:2")])
def test_a_call_looks_often_whether_its_slot_has_been_moved(error):
    def pauses(raised):
        attempts = Attempts(READ, Route("redis://127.0.0.1:1", "here"), 60.0, time.monotonic())
        return [attempts.after(raised, None) for _ in range(12)]

    assert max(pauses(error)) <= 0.05
    assert max(pauses(redis.ConnectionError("gone"))) > 0.4


def test_a_publisher_s_session_begins_again_soon_after_its_slot_has_been_moved():
    def lost(cause):
        error = Unavailable("lost")
        error.__cause__ = cause
        return error

    sender = Sender(None, None)
    moving, broke = lost(redis.exceptions.AskError("5 127.0.0.1:2")), lost(redis.ConnectionError("gone"))
    # When attempts find that it is being moved, however many there are
    during = [sender._after(error) for error in [moving, lost(moving)] * 10]
    # Then each is short, and lengthens none of those that come later
    assert max(during) <= 0.05
    assert sender._after(broke) <= 0.05
    # And after many other failures, where waits are long, one during a move is short
    longest = [sender._after(broke) for _ in range(9)][-1]
    assert longest > 0.4
    assert sender._after(moving) <= 0.05


def test_what_can_bring_the_server_back_is_called_before_a_call_is_repeated(called):
    revived = []

    reply, _ = called(READ, redis.ConnectionError("gone"), b"1", revive=lambda: revived.append(1))

    assert reply == b"1"
    assert revived == [1]
