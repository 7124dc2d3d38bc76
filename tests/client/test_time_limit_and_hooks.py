"""Handlers that run longer than they may lose their messages, and hooks see what handlers do."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading

import pytest
from observing import eventually
from test_typed_handlers import KINDS, Trade, define, start
from test_worker import AWAITED

from ampsq import Action, HandlerTimeLimit, Hooks, InvalidMessage, Queue, Reject, Worker
from ampsq.base.errors import DefinitionError

__all__ = ["start"]

LIMIT = "300ms"


def reasons(client, queue="dead"):
    return [letter.consumer_reason for letter in client.admin.dead_letters(queue)]


def define_with_dead_letters(client, **elements):
    define(client, **elements)
    client.apply(Queue(name="dead"), Action.dead_letter("work", "dead"))


# --- the time limit


@pytest.mark.parametrize("kind", AWAITED)
def test_a_coroutine_that_takes_too_long_is_cancelled_and_its_message_comes_again(
    client, start, start_coordinator, kind
):
    # Given a handler that takes for ever, and notes that it was cancelled
    start_coordinator()
    define_with_dead_letters(client, max_deliveries=2)
    begun, cancelled = [], []

    async def handle(message):
        begun.append(message.delivery)
        try:
            await asyncio.sleep(600)  # beyond its time limit
        except asyncio.CancelledError:
            cancelled.append(message.delivery)
            raise

    running = start(handle, kind, time_limit=LIMIT)
    client.publish("work", 1)
    # Then it was tried as often as the queue says, and the dead letter says why it is one
    eventually(lambda: reasons(client))
    assert begun == cancelled == [1, 2]
    assert reasons(client) == ["handler_time_limit"]
    assert running.worker.failed == 2


@pytest.mark.parametrize("kind", AWAITED)
def test_a_time_out_of_the_handler_s_own_is_its_own_error(client, start, start_coordinator, kind):
    start_coordinator()
    define_with_dead_letters(client, max_deliveries=1)

    async def handle(_):
        raise TimeoutError("the bank")

    start(handle, kind, time_limit="30s")
    client.publish("work", 1)
    eventually(lambda: reasons(client))
    assert reasons(client) == ["TimeoutError: the bank"]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_thread_that_takes_too_long_loses_its_message_and_is_reported(
    client, start, start_coordinator, caplog, concurrency
):
    # Given a handler that does not end, and a lease that would be renewed for ever
    start_coordinator()
    define_with_dead_letters(client, max_deliveries=1, lease_period="1h")
    go_on = threading.Event()
    try:
        running = start(lambda _: go_on.wait(100), time_limit=LIMIT, concurrency=concurrency, stop_timeout="20s")
        client.publish("work", 1)
        # Then its message is given up while the handler still runs
        eventually(lambda: reasons(client) == ["handler_time_limit"])
        eventually(lambda: running.worker.failed == 1)
        assert [each for each in caplog.records if "runs longer than its time limit of 0.3 s" in each.getMessage()]
        # And nobody waits for it at the stop
        assert running.stop() < 15
    finally:
        go_on.set()


def test_what_a_thread_does_after_its_time_limit_counts_no_more(client, start, caplog):
    define(client, max_deliveries=1)
    go_on, ended = threading.Event(), threading.Event()

    def handle(_):
        go_on.wait(100)
        ended.set()

    running = start(handle, time_limit=LIMIT)
    client.publish("work", 1)
    eventually(lambda: client.admin.queue_stats("work").expired == 1)
    go_on.set()
    assert ended.wait(30)
    # Its slot is free again, and the message was counted once
    client.publish("work", 2)
    eventually(lambda: running.worker.processed == 1)
    assert (running.worker.processed, running.worker.failed) == (1, 1)
    assert [each for each in caplog.records if "has ended, after its time limit" in each.getMessage()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_within_its_limit_is_not_touched(client, start, kind):
    define(client)
    client.publish_many("work", range(50))

    async def awaited(_):
        await asyncio.sleep(0)

    running = start(awaited if kind != "thread" else lambda _: None, kind, time_limit="60s", concurrency=3)
    eventually(lambda: client.admin.queue_stats("work").acknowledged == 50)
    assert running.worker.failed == 0


# --- hooks


def handler_of(kind):
    """A handler that does what its message says."""

    def handle(trade: Trade):
        if trade.symbol == "fails":
            raise ValueError("no")
        if trade.symbol == "rejects":
            raise Reject("never")

    async def awaited(trade: Trade):
        handle(trade)

    return handle if kind == "thread" else awaited


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_see_what_a_handler_does_in_their_order_and_the_other_way_round(client, start, kind):
    define(client, max_deliveries=1)
    seen = []

    def hooks(name):
        return Hooks(
            before=lambda message: seen.append((name, "before", message.data["symbol"])),
            after=lambda message: seen.append((name, "after", message.settled)),
            failed=lambda _, error: seen.append((name, "failed", type(error))),
        )

    start(handler_of(kind), kind, hooks=[hooks(1), hooks(2)])
    for data, kind_of_error in [
        (Trade("IBM", 1), None),
        (Trade("fails", 1), ValueError),
        (Trade("rejects", 1), Reject),
        ({"symbol": "bad", "qty": "x"}, InvalidMessage),
    ]:
        seen.clear()
        client.publish("work", data)
        eventually(lambda: len(seen) == 4)
        symbol = data["symbol"] if isinstance(data, dict) else data.symbol
        end = ("after", False) if kind_of_error is None else ("failed", kind_of_error)
        assert seen == [(1, "before", symbol), (2, "before", symbol), (2, *end), (1, *end)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_hook_raises_is_logged_and_changes_nothing(client, journal, start, caplog, kind):
    define(client)

    def broken(*_):
        raise RuntimeError("no metrics today")

    start(handler_of(kind), kind, hooks=Hooks(before=broken, after=broken))
    bookmark = client.publish("work", Trade("IBM", 1))
    eventually(lambda: client.admin.queue_stats("work").depth == 0)
    assert journal.entries("work") == [("acknowledged", "", bookmark)]
    assert len([each for each in caplog.records if each.exc_info and "the hook" in each.getMessage()]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_hook_sets_in_the_context_is_seen_by_the_handler_and_ends_with_the_message(client, start, kind):
    define(client)
    number = contextvars.ContextVar("number", default=0)
    seen = []

    def handle(_):
        seen.append(number.get())

    async def awaited(message):
        handle(message)

    start(handle if kind == "thread" else awaited, kind, hooks=Hooks(before=lambda _: number.set(number.get() + 1)))
    client.publish_many("work", range(5))
    eventually(lambda: len(seen) == 5)
    assert seen == [1] * 5


@pytest.mark.parametrize("kind", AWAITED)
def test_hooks_of_a_coroutine_function_may_be_coroutine_functions(client, start, kind):
    define(client)
    seen = []

    async def before(message):
        await asyncio.sleep(0)
        seen.append(message.delivery)

    start(handler_of(kind), kind, hooks=Hooks(before=before))
    client.publish("work", Trade("IBM", 1))
    eventually(lambda: seen == [1])


def test_a_hook_that_nobody_would_await_is_refused():
    async def before(_):
        pass

    with pytest.raises(DefinitionError, match=r"before=.* is a coroutine function, which nobody awaits"):
        Worker(print, "work", hooks=Hooks(before=before))


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_sees_that_a_handler_took_too_long(client, start, caplog, kind):
    caplog.set_level(logging.CRITICAL, logger="ampsq.worker")
    define(client, max_deliveries=1)
    seen, go_on = [], threading.Event()

    async def awaited(_):
        await asyncio.sleep(600)  # beyond its time limit

    try:
        start(
            awaited if kind != "thread" else lambda _: go_on.wait(100),
            kind,
            time_limit=LIMIT,
            hooks=Hooks(after=lambda _: seen.append(None), failed=lambda _, error: seen.append(error)),
        )
        client.publish("work", 1)
        eventually(lambda: client.admin.queue_stats("work").expired == 1)
    finally:
        go_on.set()
    assert [type(each) for each in seen] == [HandlerTimeLimit]


@pytest.mark.parametrize("hooks", [3, "print", print, [print], None])
def test_hooks_that_are_none_are_explained(hooks):
    with pytest.raises(
        DefinitionError, match=r"allowed are ampsq\.Hooks\(before=\.\.\., after=\.\.\., failed=\.\.\.\)"
    ):
        Worker(print, "work", hooks=hooks)
