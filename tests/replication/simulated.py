"""Parts of the simulation: instances on real servers that lose what was not flushed, calls that are lost, shapes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.definitions.queue import Queue
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import COMPILED, key
from ampsq.replication.selection import Peer
from ampsq.transport.store import Store

TOPIC, QUEUE = "orders", "work"
LEASE = 2_000
#: Scripts whose calls may come again at any time, late.
_REPEATED = frozenset(
    {"apply_log", "apply_journal", "claim_messages", "grant_messages", "offer_messages", "relay_requests"}
)


def decoded(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    return [decoded(part) for part in reply] if isinstance(reply, list) else reply


class LossyStore(Store):
    """A store of links: one of its next calls, or the answer to it, is lost when somebody says so.

    Attributes:
        past: calls that were done, and that may come again.
    """

    def __init__(self, url, instance):
        super().__init__(url, instance, retry_timeout=2.0)
        self.past, self._left, self._runs = [], None, True

    def lose(self, after, *, runs):
        """Lose the call behind the next `after` ones, before it runs or with `runs` after it did."""
        self._left, self._runs = after, runs

    def lose_nothing(self):
        self._left = None

    def pipeline(self):
        return LossyPipeline(self)

    def call(self, call):
        is_lost = self._left == 0
        self._left = self._left - 1 if self._left else None
        if is_lost and not self._runs:
            raise Unavailable("the request was lost")
        reply = super().call(call)
        if call.script is not None and call.script.name in _REPEATED:
            self.past = [*self.past[-40:], call]
        if is_lost:
            raise Unavailable("the answer was lost")
        return reply


class LossyPipeline:
    """Calls ahead on a `LossyStore`: each runs when it is posted, and what became of it is heard later."""

    def __init__(self, store):
        self._store, self._outcomes = store, []

    def post(self, call):
        try:
            reply = self._store.call(call)
            self._outcomes.append(lambda: reply)
        except AmpsqError as error:
            self._outcomes.append(partial(_raise, error))

    def collect(self):
        return self._outcomes.pop(0)()

    def close(self):
        self._outcomes = []


def _raise(error):
    raise error


class FlushGate:
    """As `ampsq.replication.durability_gate.DurabilityGate`, with the flushes of the simulation for the server's."""

    def __init__(self, instance):
        self._instance, self._pages, self._crashes = instance, [], instance.crashes

    @property
    def is_empty(self):
        return not self._pages

    def put(self, page):
        self._pages.append((self._instance.flushes, page))

    def take(self, *, is_idle):  # noqa: ARG002  (nothing to wait for: time is the simulation's)
        instance = self._instance
        if self._pages and instance.crashes > self._crashes:
            self._pages = []
            raise Unavailable("the server was another one, which may have lost what was read")
        durable = [page for mark, page in self._pages if instance.always or instance.flushes > mark]
        del self._pages[: len(durable)]
        return durable

    def close(self):
        self._pages = []


class OpenGate(FlushGate):
    """Lets everything through: what a link without this guard would do."""

    def take(self, *, is_idle):  # noqa: ARG002
        pages, self._pages = self._pages, []
        return [page for _, page in pages]


class Instance:
    """One instance on a server of its own.

    Attributes:
        always: its server flushes before it answers.
        flushes, crashes: how often it was flushed, and crashed.
        skew: ms that its clock is ahead.
    """

    def __init__(self, name, url):
        self.name = name
        self.store, self.lossy = Store(url, name, retry_timeout=2.0), LossyStore(url, name)
        self._pipe = self.store.redis.pipeline(transaction=False)
        self.group = f"g{name}"

    def close(self):
        self.store.close()
        self.lossy.close()

    def begin(self, world, *, always, owner, priority=""):
        """Empty, the first incarnation."""
        self.world, self.always, self.flushes, self.crashes, self.skew = world, always, 0, 0, 0
        self.lossy.past = []
        self.lossy.lose_nothing()
        self._owner, self._priority = owner, priority
        self.define("one")
        self.peer = Peer(self.name, self.origin, self.group)
        self.flush()

    def define(self, incarnation):
        """Empty, with the queue defined."""
        self._pipe.execute_command("FLUSHALL").execute()
        self.origin = self.run("open", self.now, self.name, incarnation)[0]
        self.run("define_topic", self.now, self.version, TOPIC, "{}", 0, "", "")
        values = dict.fromkeys(COMPILED, 0) | {"ratio": 1, "room": 1000, "lease": LEASE}
        compiled = " ".join(str(values[each]) for each in COMPILED) + f" {TOPIC}"
        definition = Queue(name=QUEUE, underlying_topic=TOPIC, lease_period="2s").to_json()
        head = (self.now, self.version, QUEUE, definition, TOPIC, compiled, "", "", self._priority, "", "", 0)
        self.run("define_queue", *head, self._owner, "", "", "", "", 1, TOPIC)

    @property
    def now(self):
        return self.world.now + self.skew

    @property
    def version(self):
        return decoded(self.store.redis.hget(self.key("instance"), "catalog"))

    def key(self, name, *parameters):
        return key(self.name, name, *parameters)

    def run(self, script, *arguments):
        return self.store.call(script_call(script, list(arguments), decoded))

    def ask(self, *commands):
        """Many commands in one go."""
        for command in commands:
            self._pipe.execute_command(*command)
        return self._pipe.execute()

    # --- what survives

    def flush(self):
        """Make all that is there durable."""
        self.flushes += 1
        if not self.always:
            self._durable = self._copy()

    def _copy(self):
        names = self.ask(["KEYS", "*"])[0]
        return list(zip(names, self.ask(*(["DUMP", name] for name in names)), strict=True))

    def back_up(self):
        """Keep what is durable, for `restore`."""
        self._saved = self._copy() if self.always else self._durable

    def restore(self):
        """Have what was kept, and nothing else."""
        self.ask(["FLUSHALL"], *(["RESTORE", name, 0, value] for name, value in self._saved))

    def crash(self):
        """Lose all that was not flushed; connections break."""
        self.crashes += 1
        if not self.always:
            restored = [["RESTORE", name, 0, value] for name, value in self._durable]
            self.ask(["FLUSHALL"], *restored)


@contextlib.contextmanager
def instances(urls):
    """Instances a, b, c, ... one a server."""
    found = {name: Instance(name, url) for name, url in zip("abcdef", urls, strict=False)}
    yield found
    for each in found.values():
        each.close()


def body_of(publisher, number, kind):
    return json.dumps({"p": publisher, "n": number, "k": kind})


def name_of(body):
    """Return a message's name in traces: its publisher and number."""
    found = json.loads(body)
    return f"{found['p']}{found['n']}"


@dataclass(frozen=True)
class Shape:
    """The instances of a scene, and the links between them."""

    instances: str
    links: tuple[str, ...]
    filtered: tuple[str, ...] = ()
    fail_over: bool = True


PAIR = Shape("ab", ("ab", "ba"))
TRIANGLE = Shape("abc", ("ab", "ba", "bc", "cb", "ac", "ca"))
CHAIN = Shape("abc", ("ab", "ba", "bc", "cb"))
FILTERED = Shape("ab", ("ab", "ba"), filtered=("ab",), fail_over=False)
SHAPES = {"pair": PAIR, "triangle": TRIANGLE, "chain": CHAIN, "filtered": FILTERED}


class Taken(NamedTuple):
    """A message that a subscription was given."""

    instance: str
    by: str
    ref: str
    token: str
    name: str


@dataclass
class Guaranteed:
    """A publisher that sends again what is not persisted everywhere, wherever it is logged on."""

    name: str
    at: str
    session: str = ""
    open: list[int] = field(default_factory=list)
    sent: int = 0
    last: int = 0
