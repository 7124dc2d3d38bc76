"""Flows and asyncio's coroutines have one type: these tests keep them apart, and show what a mistake says."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from functools import cache
from pathlib import Path

import pytest
from cases import for_each
from sources import statements, tree_of

import ampsq
from ampsq.base.errors import DefinitionError
from ampsq.protocol.request import Call, ForeignStep, Pause
from ampsq.topics.bookmark_store import BookmarkStore, MemoryBookmarkStore
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.store import Store

ROOT = Path(ampsq.__file__).parents[1]
#: What only asyncio's own code imports or says.
EVENT_LOOPS = {"asyncio", "anyio", "starlette", "uvicorn", "websockets"}
#: Modules of asyncio's own that import no event loop: the gateway's orders, and a user's handler that is awaited.
AWAITED_BY_ASYNCIO = {"ampsq/gateway/publish.py", "ampsq/queues/handlers.py"}


@cache
def parsed():
    paths = [path for room in ("ampsq", "cli", "spark", "bench") for path in (ROOT / room).rglob("*.py")]
    return {str(path.relative_to(ROOT)): tree_of(path) for path in sorted(paths)}


@cache
def modules():
    """Path -> tree, of all modules that define coroutines."""
    return {path: tree for path, tree in parsed().items() if has_coroutine(tree)}


def imported(tree):
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def has_coroutine(tree):
    return any(isinstance(node, ast.AsyncFunctionDef) for node in statements(tree))


def name_of(function):
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def awaited(tree):
    """Every call that is awaited: its line, the name that is called, the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            yield node.lineno, name_of(node.value.func), node.value


def parts(path):
    """The classes and functions of a module, each with whether it is asyncio's own.

    A module that imports an event loop is asyncio's as a whole, and so is, in any module, a class called Async... or
    derived from one.
    """
    tree = modules()[path]
    whole = bool(EVENT_LOOPS & set(imported(tree))) or path in AWAITED_BY_ASYNCIO
    for node in tree.body:
        names = [node.name, *map(name_of, node.bases)] if isinstance(node, ast.ClassDef) else []
        yield node, whole or any(name.startswith(("Async", "_Async")) for name in names)


def functions_that_return(types):
    return {
        node.name
        for tree in parsed().values()
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns).startswith(types)
    }


@cache
def coroutines(*, of_asyncio):
    """The names of all coroutine functions of one kind; functions that return a call for a flow count among flows."""
    returned = set() if of_asyncio else functions_that_return(("Call[", "Flow["))
    return returned | {
        node.name
        for path in modules()
        for part, is_of_asyncio in parts(path)
        if is_of_asyncio is of_asyncio
        for node in statements(part)
        if isinstance(node, ast.AsyncFunctionDef)
    }


def calls(path, *, of_asyncio):
    """Yield what the parts of one kind await in a module: where, the name that is called, and the call."""
    for part, is_of_asyncio in parts(path):
        if is_of_asyncio is of_asyncio:
            yield from ((f"{path}:{line}: {name}", name, call) for line, name, call in awaited(part))


def test_there_are_parts_of_both_kinds():
    kinds = [kind for path in modules() for part, kind in parts(path) if has_coroutine(part)]

    assert kinds.count(False) > 100
    assert kinds.count(True) > 30


@for_each("path", modules)
def test_a_flow_awaits_nothing_of_asyncio(path):
    foreign = coroutines(of_asyncio=True) - coroutines(of_asyncio=False)

    assert [where for where, name, _ in calls(path, of_asyncio=False) if name in foreign] == []


@for_each("path", modules)
def test_asyncio_awaits_a_flow_through_a_runner_only(path):
    flows = coroutines(of_asyncio=False) - coroutines(of_asyncio=True)

    mixed = [
        where
        for where, name, call in calls(path, of_asyncio=True)
        if name in flows or "_session." in ast.unparse(call.func)
    ]
    assert mixed == []


async def awaits_asyncio():
    await asyncio.get_running_loop().create_future()


async def awaits_nonsense():
    with contextlib.suppress(ZeroDivisionError):
        await Nonsense()


class Nonsense:
    def __await__(self):
        yield 5


def test_a_flow_that_awaits_asyncio_says_so(valkey, instance):
    async def run():
        store = AsyncStore(valkey.url, instance)
        try:
            await store.run(awaits_asyncio())
        finally:
            await store.close()

    with pytest.raises(ForeignStep, match=r"a flow awaited Future.*allowed: Call, Post, Collect, Pause"):
        asyncio.run(run())


def test_a_flow_that_awaits_something_else_says_so_where_it_was_awaited(valkey, instance):
    with (
        contextlib.closing(Store(valkey.url, instance)) as store,
        pytest.raises(ForeignStep, match="awaited int") as refusal,
    ):
        store.run(awaits_nonsense())

    assert "awaits_nonsense" in [entry.name for entry in refusal.traceback]


@pytest.mark.parametrize("step", [Pause(0.0), Call(None, ["PING"], bool)])
def test_an_event_loop_that_awaits_a_flow_says_how_it_is_run(step):
    async def flow():
        return await step

    with pytest.raises(TypeError, match=r"awaited by an event loop; write `await store.run\(flow\)`"):
        asyncio.run(flow())


class StoreOfAUser(MemoryBookmarkStore):
    """A store as a user writes one: its methods are coroutines that await calls, or nothing at all."""

    async def load(self, name):
        await Pause(0.0)
        return await super().load(name)


def test_a_bookmark_store_of_a_users_is_written_with_async_def(valkey, instance):
    with ampsq.Client(valkey.url, instance=instance) as client:
        store = StoreOfAUser()
        for number in (1, 2):
            client.publish("orders", {"n": number})
            with client.subscribe_topic("orders", sub_id="mine", bookmark_store=store) as messages:
                found = []
                while (message := messages.get(timeout=0.2)) is not None:
                    found.append(message.data["n"])
                    message.ack()
            assert found == [number]


def test_a_bookmark_store_with_generators_is_refused_where_it_is_defined():
    with pytest.raises(DefinitionError, match=r"Old\.load is a generator; allowed: `async def load`"):

        class Old(MemoryBookmarkStore):
            def load(self, name):
                yield name

    assert issubclass(StoreOfAUser, BookmarkStore)
