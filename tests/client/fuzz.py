"""Hostile calls of all that the public package has: wrong types, extremes, broken texts; each refusal must teach.

python tests/client/fuzz.py --calls 20000 --seed 1
python tests/client/fuzz.py --call 1:4711

A seed and a number are one call. A call may succeed. If it is refused, then with an `AmpsqError` of ours that is not
`ScriptBug`, or with a `TypeError` or `ValueError` whose text names an argument.
"""
# Long: one campaign: what is thrown at every public call, and what each may answer.

# ruff: noqa: E402, S311, T201  (imports behind a path; chance is what is wanted; a command prints)

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import inspect
import logging
import math
import random
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

# As a program it finds what pytest finds for tests.
sys.path[:0] = [str(Path(__file__).parents[1])]

import ampsq
from ampsq import Action, AsyncClient, Client, MemoryBookmarkStore, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import AmpsqError, ScriptBug
from ampsq.topics.subscription_spec import ReplayOptions

__all__ = ["Fuzz", "Unclear"]

#: Methods that would end the scene, or wait for what never comes.
_LEFT_OUT = frozenset({"close", "begin_incarnation", "recover_without", "run", "add_connection_state_listener"})
#: Seconds for which a call may wait.
_LONGEST = 10.0
#: Calls between two in which what is needed is defined anew.
_ANEW = 50
#: Definitions and values that anybody makes.
_MADE = (
    "Action AddressSetting Bookmark ConflatedTopic Destination GroupLocalQueue Instance LocalQueue Queue "
    "ReplicatedTopic Topic Transport View Worker"
)
#: What no refusal may say: words of the interpreter, of the server's scripts, of our inside.
_INSIDE = re.compile(
    r"user_script|object has no attribute|'NoneType' object|(generator|coroutine) raised|not subscriptable|not iterable"
)
#: Where we call a function of the caller, such as `progress`: what that raises is the caller's.
_CALLS_OF_THE_CALLER = {("redrive.py", "_tell")}


class Unclear(Exception):
    """A call was refused in words that do not teach."""


class _Late(BaseException):
    """A call did not end in time."""


def _stop(_number, _frame):
    raise _Late


class _Odd:
    """An object whose texts cannot be made."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _nested(depth: int) -> list[object]:
    made: list[object] = []
    for _ in range(depth):
        made = [made]
    return made


def _circle() -> dict[str, object]:
    made: dict[str, object] = {}
    made["self"] = made
    return made


HOSTILE = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    -(2**70),
    10**400,
    0.0,
    -0.5,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    Decimal("NaN"),
    Decimal("1e999"),
    1j,
    "",
    " ",
    "\0",
    "\n",
    "a\0b",
    "x" * 300,
    "x" * 100_000,
    "ü",
    "漢字",
    "😀",
    "\ud800",
    "\udc80abc",
    "a\ud800",
    b"",
    b"\0\xff",
    b"orders",
    bytearray(b"orders"),
    memoryview(b"x"),
    [],
    [1],
    [None],
    ["orders"],
    [[]],
    (),
    ("a", "b"),
    set(),
    {1},
    frozenset({"a"}),
    {},
    {"a": 1},
    {1: 2},
    {None: None},
    {"a": {"b": []}},
    object(),
    object,
    print,
    len,
    Exception("x"),
    ...,
    NotImplemented,
    range(5),
    iter([1]),
    (x for x in "ab"),
    datetime(2020, 1, 1),  # noqa: DTZ001  (without a zone)
    datetime(1, 1, 1, tzinfo=UTC),
    datetime.max,  # noqa: DTZ901  (the same)
    timedelta(0),
    timedelta(-1),
    timedelta.max,
    "orders",
    "work",
    "^or.*",
    ".*",
    "(",
    "[",
    "a|b",
    "a,b",
    "a b",
    "*",
    "~",
    "@",
    "orders~x~1-1",
    "1-1",
    "0",
    "most_recent",
    "epoch",
    "now",
    "99999999999999999999-1",
    "~~~",
    "a~b~c",
    "1|2|3",
    "till|5",
    "2020-01-01",
    "[now,epoch]",
    "5m",
    "-5m",
    "1e9d",
    "999999999999999d",
    "5 parsecs",
    "10MB",
    "-1kb",
    "1k",
    "nan",
    "inf",
    "/id",
    "/id = 1",
    "/id = ",
    "((((",
    "/a/b/c",
    "/id = " * 1000,
    "(" * 5000,
    "NOT " * 3000 + "1",
    "1=1",
    "'",
    '"',
    "--help",
    "../../etc/passwd",
    "http://x",
    "redis://",
    "redis://nobody.invalid:1#c",
    "%s%n",
    "${HOME}",
    "{}",
    "{",
    "[1,2",
    "null",
    "true",
    "NaN",
)
#: What the parameters usually get, by name; of the others hostile values only.
USUAL = {
    "topic": ("orders", "prices", "fresh"),
    "queue": ("work",),
    "name": ("orders", "work"),
    "data": ({"id": 1}, b"x", [1]),
    "bodies": ([{"id": 1}],),
    "headers": ({"a": "b"},),
    "filter": ("/id = 1", None),
    "max_backlog": (1, 10),
    "bookmark": ("epoch", "now"),
    "options": ("",),
    "timeout": ("10ms", 0.01),
    "sub_id": ("s1",),
    "definitions": (),
    "underlying_topic": ("orders",),
    "key": ("/id",),
    "delay": ("1s",),
    "reason": ("why",),
    "period": ("1s",),
    "on_message": (print,),
    "bookmark_store": (MemoryBookmarkStore(),),
    "destination": ("b",),
    "action": ("act",),
    "url": ("redis://127.0.0.1:1",),
}


class Fuzz:
    """Calls that a seed chooses, of clients of one server.

    Args:
        url: of the server.
        instance: the instance's name.
        seed: what is chosen.
    """

    def __init__(self, url: str, instance: str, seed: int) -> None:
        self._url, self._instance, self._seed = url, instance, seed
        self.unclear: list[str] = []
        self.outcomes: Counter[str] = Counter()

    def run(self, numbers) -> None:
        """Make the calls of these numbers, and note those that are refused without teaching."""
        asyncio.run(self._run(list(numbers)))

    async def _run(self, numbers) -> None:
        options = {"instance": self._instance, "retry_timeout": "1s"}
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            # Stores are files of any name.
            stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
            warnings.simplefilter("ignore")
            client = stack.enter_context(Client(self._url, **options))
            self._define(client)
            async with AsyncClient(self._url, **options) as other:
                for number in numbers:
                    await self._one(number, client, other)

    def _define(self, client: Client) -> None:
        client.apply(
            Topic(name="orders"), Topic(name="prices", key="/id"), Queue(name="work", underlying_topic="orders"),
            Action.dead_letter("work", "dead"),
        )  # fmt: skip

    async def _one(self, number: int, client: Client, other: AsyncClient) -> None:
        chance = random.Random(f"{self._seed}:{number}")
        if number % _ANEW == 0:
            self._define(client)
        with contextlib.ExitStack() as stack:
            await self._call(number, chance, *self._chosen(chance, client, other, stack))

    async def _call(self, number: int, chance: random.Random, about: str, call) -> None:
        names = _parameters(call)
        given = self._arguments(chance, call, names)
        asked = f"{self._seed}:{number} {about}({', '.join(f'{k}={_text(v)}' for k, v in given.items())})"
        if "timeout" in names and given.get("timeout") in (None, math.inf, "5m", 1, True, 2**31):
            # Otherwise it waits as long as it was asked to.
            given["timeout"] = "10ms"
        signal.signal(signal.SIGALRM, _stop)
        signal.setitimer(signal.ITIMER_REAL, _LONGEST)
        try:
            await self._made(call, given)
            self.outcomes["done"] += 1
        except _Late:
            self.outcomes["late"] += 1
            self.unclear.append(f"{asked}\n    it did not end within {_LONGEST:g} s")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is judged)
            self.outcomes[type(error).__name__] += 1
            others = [each for kind in ("options", "elements", "unknown") for each in given.get(kind) or ()]
            why = judged(error, {*names, *others})
            if why:
                self.unclear.append(f"{asked}\n    {why}\n    {_where(error)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _chosen(self, chance, client, other, stack):
        kinds = "client", "admin", "async", "async admin", "made", "message", "subscription", "publisher"
        kind = chance.choice(kinds)
        if kind == "made":
            name = chance.choice(_MADE.split())
            return name, getattr(ampsq, name)
        targets = {"client": client, "admin": client.admin, "async": other, "async admin": other.admin}
        if kind in targets:
            target = targets[kind]
            name = chance.choice(_public(target))
            return f"{type(target).__name__}.{name}", getattr(target, name)
        if kind == "publisher":
            store = MemoryPublishStore() if chance.random() < 0.5 else None
            publisher = stack.enter_context(client.publisher("till", store=store))
            target = chance.choice((publisher, publisher, publisher.publish("orders", {"id": 1})))
            name = chance.choice(_public(target))
            return f"{type(target).__name__}.{name}", getattr(target, name)
        client.publish("orders", {"id": 1})
        messages = stack.enter_context(client.subscribe("work", max_backlog=1))
        target = (messages.get(0.2) if kind == "message" else None) or messages
        name = chance.choice(_public(target))
        return f"{type(target).__name__}.{name}", getattr(target, name)

    def _arguments(self, chance, call, names):
        given = {}
        for name, parameter in names.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                given[name] = [self._value(chance, "") for _ in range(chance.choice((0, 1, 1, 2)))]
            elif parameter.kind is parameter.VAR_KEYWORD:
                if chance.random() < 0.5:
                    replay = ReplayOptions.__annotations__ if "subscribe" in call.__name__ else ()
                    fields = [*getattr(call, "model_fields", {}), *replay, "topics", "dead_letter"]
                    given[name] = {
                        each: self._value(chance, each) for each in chance.sample(fields, min(2, len(fields)))
                    }
            elif parameter.default is parameter.empty or chance.random() < 0.35:
                given[name] = self._value(chance, name)
        return given

    @staticmethod
    def _value(chance, name):
        usual = USUAL.get(name, ())
        if usual and chance.random() < 0.55:
            return chance.choice(usual)
        special = chance.random()
        if special < 0.01:
            return _nested(chance.choice((10, 1_000, 100_000)))
        if special < 0.02:
            return _circle()
        return _Odd() if special < 0.03 else chance.choice(HOSTILE)

    @staticmethod
    async def _made(call, given):
        signature = _signature(call)
        ordered, named = [], {}
        for name, parameter in signature.parameters.items():
            if name not in given:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                ordered += given[name]
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= given[name]
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                ordered.append(given[name])
            else:
                named[name] = given[name]
        if ordered:
            positional = [
                n for n, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD and n in named
            ]
            ordered = [named.pop(name) for name in positional] + ordered
        result = call(*ordered, **named)
        if inspect.isawaitable(result):
            result = await asyncio.wait_for(result, 30)
        if hasattr(result, "close"):
            closed = result.close()
            if inspect.isawaitable(closed):
                await closed


def _public(target):
    return [
        name
        for name in dir(type(target))
        if not name.startswith("_") and name not in _LEFT_OUT and callable(getattr(type(target), name, None))
    ]


def _parameters(call):
    return dict(_signature(call).parameters)


def _signature(call):
    # A named tuple of one text has no signature of its own.
    return inspect.signature(_bookmark) if call is ampsq.Bookmark else inspect.signature(call)


def _bookmark(bookmark):
    return ampsq.Bookmark(bookmark)


def _text(value):
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  (objects without a text are among the arguments)
        return f"<{type(value).__name__}: {error}>"
    return text if len(text) < 120 else f"{text[:100]}... ({len(text)} characters)"


def _where(error) -> str:
    """The last lines of ours that it came through."""
    lines = [each for each in traceback.extract_tb(error.__traceback__) if "/tests/" not in each.filename]
    return " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(lines[-4:]))


def judged(error, names) -> str:
    """Say what is wrong with a refusal; "" of one that teaches."""
    text = f"{type(error).__name__}: {error}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if (Path(last.filename).name, last.name) in _CALLS_OF_THE_CALLER:
        return ""
    if isinstance(error, ScriptBug):
        return text[:600]
    if _INSIDE.search(text):
        return text[:600]
    if isinstance(error, AmpsqError):
        return ""
    if isinstance(error, (TypeError, ValueError)) and any(name in str(error) for name in names):
        return ""
    return text[:600]


def main() -> int:
    """Run by command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--call", help="one of them, as in 1:4711")
    given = parser.parse_args()
    seed, numbers = given.seed, range(given.calls)
    if given.call:
        seed, number = map(int, given.call.split(":"))
        numbers = [number]
    logging.disable(logging.CRITICAL)
    spec = importlib.util.spec_from_file_location("fixtures", Path(__file__).parents[1] / "conftest.py")
    fixtures = importlib.util.module_from_spec(spec)
    sys.modules["fixtures"] = fixtures
    spec.loader.exec_module(fixtures)
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        server = fixtures.launch("valkey", Path(folder, "valkey"))
        try:
            fuzz = Fuzz(server.url, "fuzz", seed)
            fuzz.run(numbers)
        finally:
            server.end()
    print("\n".join(fuzz.unclear))
    print(f"{sum(fuzz.outcomes.values())} calls, {len(fuzz.unclear)} refused without teaching: {dict(fuzz.outcomes)}")
    return 1 if fuzz.unclear else 0


if __name__ == "__main__":
    sys.exit(main())
