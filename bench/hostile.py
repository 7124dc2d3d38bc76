"""Time for which one call holds the server over bodies made to be slow: the longest, by type, shape, size and use."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, Unpack

from ampsq.base.errors import MissingKey, UnreadBody
from ampsq.base.message_types import load_msgpack
from ampsq.bench.replies import info
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue, Topic
from ampsq.protocol.calls.publish import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.base.message_types import MessageTypeName
    from ampsq.client.client import Client
    from ampsq.transport.store import Connection

__all__ = ["Hostile", "LongestCall", "hostile_bodies"]

_MB: Final = 2**20
#: Bytes of a body, and how many are published in one call.
_SIZES: Final[dict[str, tuple[int, int]]] = {
    "1 MB in 4 KB": (4_000, 250),
    "32 KB": (32_700, 1),
    "1 MB": (_MB - 100, 1),
    "10 MB": (10 * _MB, 1),
}
_LARGEST: Final = 10 * _MB
#: Integers divided with a rest are read exactly, so that a body is read in both ways.
_FILTER: Final = "/1 / 2 = 7"
_ROUNDS: Final = 3


class LongestCall(TypedDict):
    """The longest call of one use of bodies of one size, and what it was over."""

    longest_call_ms: float
    of: str


class _Use(NamedTuple):
    """One use of bodies: what it needs, and what is measured."""

    prepare: Callable[[Client, MessageTypeName, list[bytes]], object]
    run: Callable[[Client, list[bytes]], object]


class Hostile(Stage):
    """The measurement, on one server; see `Stage`.

    What is given is processor time of the server's main thread, as the server tells it (`used_cpu_user_main_thread` and
    its like) before and after each call of the client. It is no more than the time that passed in a call, by the
    server's log of slow calls: the lesser of the two is given, and of several rounds the least.
    """

    def run(self) -> dict[str, dict[str, LongestCall]]:
        """Measure: of each size and use the longest call, ms, and what it was over."""
        sizes = dict(list(_SIZES.items())[:3]) if self.settings.rounds < _ROUNDS else _SIZES
        out: dict[str, dict[str, LongestCall]] = {size: {} for size in sizes}
        for size, (length, count) in sizes.items():
            for kind, shape, body in hostile_bodies(length):
                self.progress(f"hostile: {size}, {kind}, {shape}")
                for use, longest in self._uses(kind, [body] * count).items():
                    known = out[size].get(use)
                    if known is None or longest >= known["longest_call_ms"]:
                        out[size][use] = {"longest_call_ms": longest, "of": f"{kind}, {shape}"}
        return out

    def _uses(self, kind: MessageTypeName, bodies: list[bytes]) -> dict[str, float]:
        return {name: min(self._measure(use, kind, bodies) for _ in range(_ROUNDS)) for name, use in _USES.items()}

    def _measure(self, use: _Use, kind: MessageTypeName, bodies: list[bytes]) -> float:
        client = self.client()
        use.prepare(client, kind, bodies)
        with self.timed_calls() as times, self._each_call(client) as spent:
            use.run(client, bodies)
        self.remove(client)
        return round(min(times["longest_call_ms"], 1000 * max(spent)), 2)

    @contextlib.contextmanager
    def _each_call(self, client: Client) -> Iterator[list[float]]:
        """Gives a list of the seconds that the server worked in each call that is waited for."""
        pool, spent = client._store._connections, [0.0]  # noqa: SLF001  (no option asks for it)
        # Each request: what is refused as too much to read is sent again in parts.
        take = pool.take

        def measured(key: str) -> _Measured:
            return _Measured(take(key), self._worked, spent)

        vars(pool)["take"] = measured
        try:
            yield spent
        finally:
            del vars(pool)["take"]

    def _worked(self) -> float:
        """Seconds that the server's main thread has worked."""
        used = info(self.redis, "cpu")
        user, system = "used_cpu_user", "used_cpu_sys"
        if f"{user}_main_thread" in used:
            user, system = f"{user}_main_thread", f"{system}_main_thread"
        return float(used[user]) + float(used[system])


class _Measured:
    """A connection, taken for one request; when it is given back, what the server worked is noted."""

    def __init__(self, connection: Connection, worked: Callable[[], float], spent: list[float]) -> None:
        self._connection, self._worked, self._spent = connection, worked, spent
        self._began = worked()

    def release(self) -> None:
        self._connection.release()
        self._spent.append(self._worked() - self._began)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


def _publish(client: Client, bodies: list[bytes]) -> None:
    # What is refused has been looked at.
    with contextlib.suppress(MissingKey, UnreadBody):
        client._store.call(publish("orders", bodies, [], "", 0))  # noqa: SLF001  (in one call, which is measured)


class _Elements(TypedDict, total=False):
    """Expressions of a queue."""

    filter: str
    priority: str
    barrier_expression: str


def _with_queue(**elements: Unpack[_Elements]) -> Callable[[Client, MessageTypeName, list[bytes]], None]:
    def prepare(client: Client, kind: MessageTypeName, _: list[bytes]) -> None:
        client.apply(
            Topic(name="orders", message_type=kind),
            Queue(name="work", underlying_topic="orders", message_type=kind, **elements),
        )
        # Somebody is free, so that the publish itself judges.
        client.subscribe("work", max_backlog=10)

    return prepare


def _with_waiting(client: Client, kind: MessageTypeName, bodies: list[bytes]) -> None:
    client.apply(
        Topic(name="orders", message_type=kind),
        Queue(name="work", underlying_topic="orders", message_type=kind, lease_period="60s"),
    )
    _publish(client, bodies)


def _with_key(client: Client, kind: MessageTypeName, _: list[bytes]) -> None:
    client.apply(Topic(name="orders", message_type=kind, key="/1"))


def _with_records(client: Client, kind: MessageTypeName, bodies: list[bytes]) -> None:
    client.apply(Topic(name="orders", message_type=kind, key="/1"))
    # What cannot be read is refused, so that a record of it is older than that.
    _publish(client, bodies[:1])


def _subscribe(client: Client, _: list[bytes]) -> None:
    client.subscribe("work", max_backlog=10, filter=_FILTER).get(timeout=0.05)


_USES: Final[dict[str, _Use]] = {
    "publish, filter": _Use(_with_queue(filter=_FILTER), _publish),
    "publish, priority": _Use(_with_queue(priority="/1 / 2"), _publish),
    "publish, barrier": _Use(_with_queue(barrier_expression=_FILTER), _publish),
    "publish, key": _Use(_with_key, _publish),
    "sow of records": _Use(_with_records, lambda client, _: client.sow("orders", _FILTER)),
    "sow of a queue": _Use(_with_waiting, lambda client, _: client.sow("work", _FILTER)),
    "subscribe, filter": _Use(_with_waiting, _subscribe),
    "ack by filter": _Use(_with_waiting, lambda client, _: client.ack("work", filter=_FILTER)),
}


def _filled(head: str, piece: Callable[[int], str], end: str, length: int) -> bytes:
    """Pieces with commas between them, as many as there is room for."""
    parts, size, number = [], len(head) + len(end), 0
    while size + len(part := piece(number)) + 1 <= length:
        parts.append(part)
        size, number = size + len(part) + 1, number + 1
    return (head + ",".join(parts) + end).encode()


def _json_bodies(length: int) -> Iterator[tuple[str, bytes]]:
    def member(piece: Callable[[int], str]) -> bytes:
        return _filled('{"1":1,"a":[', piece, "]}", length)

    yield "names", _filled('{"1":1,', lambda number: f'"{number:x}":1', "}", length)
    yield "one name", _filled('{"1":1,', lambda _: '"":1', "}", length)
    yield "nesting", member(lambda _: "[" * 97 + "]" * 97)
    yield "arrays", member(lambda _: "[]")
    yield "objects", member(lambda _: '{"x":1}')
    yield "numbers", member(lambda _: "1")
    yield "floats", member(lambda _: "1.5")
    yield "long numbers", member(lambda _: "1234567890123456789012345678901")
    yield "digits", b'{"1":1,"a":' + b"1" * (length - 12) + b"}"
    yield "strings", member(lambda number: f'"{number:x}"')
    yield "one string", b'{"1":1,"a":"' + b"x" * (length - 14) + b'"}'
    yield "escapes", b'{"1":1,"a":"' + b"\\\\" * ((length - 14) // 2) + b'"}'
    yield "quotes", b'{"1":1,"a":"' + b'\\"' * ((length - 14) // 2) + b'"}'
    yield "points", b'{"1":1,"a":"' + b"1. " * ((length - 14) // 3) + b'"}'
    yield "spaces", b'{"1":1' + b" " * (length - 7) + b"}"
    rows = json.dumps({"carrier": "AA", "flight": 1234, "origin": "JFK", "dest": "SFO", "delay": 2.25, "note": "ok"})
    yield "rows", _filled('{"1":1,"rows":[', lambda _: rows, "]}", length)


def _packed_bodies(length: int) -> Iterator[tuple[str, bytes]]:
    pack: Callable[[object], bytes] = load_msgpack().packb
    nested: list[object] = []
    for _ in range(96):
        nested = [nested]
    yield "names", pack({"1": 1, **{f"{number:x}": 1 for number in range(length // 7)}})
    yield "nesting", pack({"1": 1, "a": [nested] * (length // 97)})
    yield "arrays", pack({"1": 1, "a": [[]] * (length - 12)})
    yield "digits", pack({"1": 1, "a": [2**63] * (length // 9 - 2)})
    yield "floats", pack({"1": 1, "a": [1.5] * (length // 9 - 2)})
    yield "strings", pack({"1": 1, "a": [f"{number:x}" for number in range(length // 7)]})
    yield "one string", pack({"1": 1, "a": b"\0" * (length - 12)})


def _field_bodies(length: int) -> Iterator[tuple[str, bytes]]:
    yield "names", _fields(length, lambda number: b"%d=1" % (number + 10))
    yield "one name", _fields(length, lambda _: b"2=")
    yield "digits", b"1=1\x012=" + b"1" * (length - 7)
    yield "no field", b"1=1\x01" + b"1" * (length - 4)


def _fields(length: int, piece: Callable[[int], bytes]) -> bytes:
    parts, size, number = [b"1=1"], 4, 0
    while size + len(part := piece(number)) + 1 <= length:
        parts.append(part)
        size, number = size + len(part) + 1, number + 1
    return b"\x01".join(parts)


def hostile_bodies(length: int) -> Iterator[tuple[MessageTypeName, str, bytes]]:
    """Bodies of about a length that cost much to read: message type, shape, body. Field 1 is the number 1 in all."""
    for shape, body in _json_bodies(length):
        yield "json", shape, body
    for shape, body in _packed_bodies(length):
        yield "msgpack", shape, body
    for shape, body in _field_bodies(length):
        yield "nvfix", shape, body
        yield "fix", shape, body
