"""Calls in flight that are refused before they run: what is sent again, and what is told instead."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque

import pytest
import redis

from ampsq.base.errors import Rejected, Unavailable, UnknownTopic
from ampsq.protocol.request import command, script_call
from ampsq.transport.async_pipeline import AsyncPipeline
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.errors import translate_error
from ampsq.transport.pipeline import PinnedPipeline, Pipeline
from ampsq.transport.route import Route
from ampsq.transport.store import Store

E = redis.exceptions
ASK = "3941 127.0.0.1:17901"


def refusals():
    return [E.MovedError(ASK), E.AskError(ASK), E.TryAgainError("Multiple keys request"), E.NoScriptError("none")]


class Fake:
    """A connection with replies that are known before."""

    def __init__(self, server, replies):
        self.server, self.replies = server, deque(replies)
        self.sent, self.is_dropped, self.is_back = [], False, False

    def send(self, call):
        self.sent.append(call)

    def read(self, _blocks):
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def drop(self):
        self.is_dropped = True

    def release(self):
        self.is_back = True


class AsyncFake(Fake):
    async def send(self, call):
        super().send(call)

    async def read(self, blocks):
        return super().read(blocks)

    async def drop(self):
        super().drop()

    async def release(self):
        super().release()


class FakeStore:
    """Connections to one server, and single calls that are answered with what was asked."""

    made = Fake

    def __init__(self, *replies, alone=None):
        self.route = Route("redis://127.0.0.1:1", "here")
        self.connections = [self.made(self.route.find(), each) for each in replies]
        self.waiting, self.alone, self.answer = deque(self.connections), [], alone or (lambda name: f"alone {name}")

    def take_connection(self):
        taken = self.waiting.popleft()
        if isinstance(taken, Exception):
            raise taken
        return taken

    def call(self, call):
        self.alone.append(name_of(call))
        answer = self.answer(name_of(call))
        if isinstance(answer, Exception):
            raise answer
        return answer


class AsyncFakeStore(FakeStore):
    made = AsyncFake

    async def take_connection(self):
        return super().take_connection()

    async def call(self, call):
        return super().call(call)


def name_of(call):
    return call.arguments[-1]


def write(name):
    return script_call("publish", ["", "orders", "", "", "", "", name], str)


def read(name):
    return command(["GET", name], str)


async def done(result):
    return await result if inspect.isawaitable(result) else result


@pytest.fixture(params=[(Pipeline, FakeStore), (AsyncPipeline, AsyncFakeStore)], ids=["threads", "asyncio"])
def kind(request):
    return request.param


async def post(pipeline, *calls):
    for call in calls:
        await done(pipeline.post(call))


async def collect(pipeline, number):
    return [await done(pipeline.collect()) for _ in range(number)]


@pytest.mark.parametrize("number", range(4))
def test_what_was_refused_is_sent_again_in_order(kind, number):
    make, stores = kind
    store = stores([refusals()[number] for _ in range(3)] + ["two", "three", "four"])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"), write("3"))
        # The first one alone, as patiently as single calls are; the others behind it, then what is new.
        assert await collect(pipeline, 1) == ["alone 1"]
        assert pipeline.open_calls == 2
        await post(pipeline, write("4"))
        assert await collect(pipeline, 3) == ["two", "three", "four"]
        assert pipeline.open_calls == 0
        assert store.alone == ["1"]
        names = [name_of(call) for call in store.connections[0].sent]
        assert names == ["1", "2", "3", "2", "3", "4"]

    asyncio.run(main())


@pytest.mark.parametrize("number", range(4))
def test_where_a_later_call_has_written_nothing_is_sent_again_and_it_may_have_run(kind, number):
    make, stores = kind
    store = stores([refusals()[number], refusals()[number], "three"], ["five"])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"), write("3"))
        with pytest.raises(Unavailable, match="meanwhile it ran what was sent later") as raised:
            await collect(pipeline, 1)
        assert raised.value.may_have_run
        assert store.alone == []
        assert pipeline.open_calls == 0
        # All replies were read: the connection is given back as it is, and the pipeline is usable again.
        assert not store.connections[0].is_dropped
        assert store.connections[0].is_back
        await post(pipeline, write("5"))
        assert await collect(pipeline, 1) == ["five"]

    asyncio.run(main())


def test_later_calls_that_read_or_were_refused_by_their_script_come_again_too(kind):
    make, stores = kind
    unknown = redis.ResponseError('AMPSQ_UNKNOWN_TOPIC {"name":"orders"}')
    full = redis.OutOfMemoryError("command not allowed")
    store = stores([E.AskError(ASK), "old", unknown, full, "new", "three", "four"])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), read("2"), write("3"), write("4"))
        assert await collect(pipeline, 4) == ["alone 1", "new", "three", "four"]

    asyncio.run(main())


def test_what_a_script_says_no_to_when_it_is_sent_again_leaves_the_others(kind):
    make, stores = kind
    store = stores([E.NoScriptError("none"), E.NoScriptError("none"), "two"], alone=lambda _: UnknownTopic(name="x"))

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"))
        with pytest.raises(Rejected):
            await collect(pipeline, 1)
        assert await collect(pipeline, 1) == ["two"]

    asyncio.run(main())


def test_one_that_is_refused_for_too_long_ends_what_waits_behind_it(kind):
    make, stores = kind
    late = translate_error(E.AskError(ASK), None, "redis://127.0.0.1:1")
    store = stores([E.AskError(ASK), E.AskError(ASK)], alone=lambda _: late)

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"))
        with pytest.raises(
            Unavailable, match=r"its slot is being moved to 127\.0\.0\.1:17901; waiting helps"
        ) as raised:
            await collect(pipeline, 1)
        assert not raised.value.may_have_run
        assert pipeline.open_calls == 0

    asyncio.run(main())


def test_a_connection_that_breaks_while_the_others_are_read_leaves_them_in_doubt(kind):
    make, stores = kind
    store = stores([E.AskError(ASK), E.AskError(ASK), redis.ConnectionError("reset")])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"), write("3"))
        with pytest.raises(Unavailable) as raised:
            await collect(pipeline, 1)
        assert raised.value.may_have_run
        assert store.connections[0].is_dropped

    asyncio.run(main())


def test_a_connection_that_a_refusal_ends_leaves_what_is_behind_it_in_doubt(kind):
    make, stores = kind
    store = stores([E.BusyLoadingError("LOADING")], [E.BusyLoadingError("LOADING")])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"))
        with pytest.raises(Unavailable) as raised:
            await collect(pipeline, 1)
        assert raised.value.may_have_run
        await post(pipeline, write("3"))
        with pytest.raises(Unavailable) as raised:
            await collect(pipeline, 1)
        assert not raised.value.may_have_run

    asyncio.run(main())


def test_where_no_connection_can_be_had_since_the_slot_moves_calls_wait_for_it(kind):
    make, stores = kind
    store = stores(["two", "three"])
    moving = Unavailable("not yet")
    moving.__cause__ = E.AskError(ASK)
    store.waiting.extendleft([moving, moving])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"))
        # The third attempt to connect succeeds.
        await post(pipeline, write("3"))
        assert store.alone == []
        assert [name_of(call) for call in store.connections[0].sent] == ["1", "2", "3"]

    asyncio.run(main())


def test_calls_that_found_no_connection_run_when_their_replies_are_wanted(kind):
    make, stores = kind
    store = stores(["two"])
    moving = Unavailable("not yet")
    moving.__cause__ = E.TryAgainError("Multiple keys")
    store.waiting.extendleft([moving, moving, moving])

    async def main():
        pipeline = make(store)
        await post(pipeline, write("1"), write("2"))
        assert await collect(pipeline, 2) == ["alone 1", "two"]

    asyncio.run(main())


def test_a_connection_that_cannot_be_had_for_another_reason_is_told_at_once(kind):
    make, stores = kind
    store = stores()
    store.waiting.append(Unavailable("nobody there"))

    async def main():
        pipeline = make(store)
        with pytest.raises(Unavailable, match="nobody there"):
            await post(pipeline, write("1"))
        assert pipeline.open_calls == 0

    asyncio.run(main())


@pytest.mark.parametrize("number", range(3))
def test_a_pipeline_that_is_not_to_follow_raises_and_knows_the_way(kind, number):
    make, stores = kind
    store = stores([refusals()[number], "two"], ["three"])

    async def main():
        pipeline = make(store, follows=False)
        await post(pipeline, write("1"), write("2"))
        with pytest.raises(Unavailable, match="waiting helps") as raised:
            await collect(pipeline, 1)
        # The second one ran.
        assert raised.value.may_have_run
        assert store.alone == []
        await post(pipeline, write("3"))
        assert await collect(pipeline, 1) == ["three"]

    asyncio.run(main())


def test_a_pipeline_that_is_not_to_follow_tells_that_the_instance_went_elsewhere(kind):
    make, stores = kind
    store = stores(["one"], ["two"])

    async def main():
        pipeline = make(store, follows=False)
        await post(pipeline, read("1"))
        assert await collect(pipeline, 1) == ["one"]
        # Another call of the client was sent on.
        store.route.failed(store.route.current, Unavailable("gone"))
        store.route.find()
        with pytest.raises(Unavailable, match="served elsewhere now"):
            await post(pipeline, read("2"))
        await post(pipeline, read("2"))
        assert await collect(pipeline, 1) == ["two"]

    asyncio.run(main())


@pytest.mark.parametrize("number", range(4))
def test_a_pinned_pipeline_raises_and_makes_no_call_elsewhere(number):
    store = FakeStore([refusals()[number], "two"])
    pipeline = PinnedPipeline(store)
    pipeline.post(write("1"))
    pipeline.post(write("2"))
    with pytest.raises(Unavailable) as raised:
        pipeline.collect()
    assert raised.value.may_have_run
    assert store.alone == []
    with pytest.raises(Unavailable, match="the connection broke"):
        pipeline.post(write("3"))


def test_the_first_refusal_alone_is_certain_not_to_have_run():
    pipeline = PinnedPipeline(FakeStore([E.AskError(ASK)]))
    pipeline.post(write("1"))
    with pytest.raises(Unavailable) as raised:
        pipeline.collect()
    assert not raised.value.may_have_run


@pytest.mark.parametrize("name", ["read_stats", "measure_ages", "browse"])
def test_scripts_that_write_nothing_are_known_by_their_flags(name):
    assert script_call(name, [], str).only_reads
    assert not script_call("take", [], str, repeatable=True).only_reads
    assert command(["GET", "x"], str).only_reads


def test_stores_open_both_kinds_of_pipelines():
    for store, kind_of in (
        (Store("redis://127.0.0.1:1", "x"), Pipeline),
        (AsyncStore("redis://h", "x"), AsyncPipeline),
    ):
        assert isinstance(store.pipeline(), kind_of)
        assert store.pipeline()._calls.follows
        assert not store.pipeline(follows=False)._calls.follows
