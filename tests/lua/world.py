"""Language of script tests: a few verbs over the raw scripts, and the differences that one call makes.

Time is always given, so nothing here waits. `World.changes` compares every key and field of the instance with
what was there before: a key, field or entry that a test does not name must not have changed.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from lease_runs import expanded, without_runs

from ampsq.base.bookmarks import ref_of
from ampsq.expressions import parse
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import LEASES_ANCHOR, POLICY

#: The version of the catalog that a world begins with: ahead of the clock, so that each change is the next number.
_VERSION = 10**15
FAIRNESS = {"proportional": (1, 0), "round-robin": (0, 1), "fast": (0, 0)}


def version_after(changes):
    """The version of a world's catalog after as many changes."""
    return str(_VERSION + changes)


class Delivered(NamedTuple):
    queue: str
    token: str
    delivery: int
    deadline: int
    kind: str
    ref: str
    fields: dict
    body: str


def decoded(reply):
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "surrogateescape")
    return [decoded(part) for part in reply] if isinstance(reply, list) else reply


def ref(stream_id, topic="orders"):
    return ref_of(topic, stream_id)


def came_back(*returns):
    """Return the text of a message's returns: (ms, cause), from the first subscription or the one named."""
    items = [(*item, "s00000001") if len(item) < 3 else item for item in returns]
    return ";".join(f"{ms},{cause},{name},c/{int(name[1:])}" for ms, cause, name in items)


def read_element(head, body):
    first, _, rest = head.partition("\n")
    queue, token, delivery, deadline, kind, place = first.split(" ")
    texts = []
    while rest:
        length, _, rest = rest.partition(":")
        texts.append(rest[: int(length)])
        rest = rest[int(length) :]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    return Delivered(queue, token, int(delivery), int(deadline), kind, place, fields, body)


def wished(text):
    """Name and tree of a filter."""
    if text is None:
        return "none", ""
    expression = parse(text, "filter")
    return expression.id, expression.json


def difference(old, new):
    """Return only the differences: single fields of hashes and sorted sets (None: gone), a stream's new entries."""
    if isinstance(new, dict) and isinstance(old, dict | None):
        old = old or {}
        gone = {name: None for name in old if name not in new}
        return {name: value for name, value in new.items() if old.get(name) != value} | gone
    if isinstance(new, list) and isinstance(old, list | None) and new[: len(old or [])] == (old or []):
        return new[len(old or []) :]
    return new


class World:
    """One instance, its scripts, and a clock that stands at `now` until a test moves it."""

    def __init__(self, store, snapshot):
        self.store, self._snapshot, self.now = store, snapshot, 1_000
        self.run("open", self.now, "i", "one")
        self.store.redis.hset(self.key(":instance"), "catalog", _VERSION)
        self.before, self.requests = {}, 0
        # Whether messages are taken in runs.
        self.runs = True
        self._seen = None

    def key(self, suffix):
        return "{" + self.store.instance + "}" + suffix

    def run(self, name, *arguments):
        return decoded(self.store.call(script_call(name, list(arguments), lambda reply: reply)))

    def version(self):
        return decoded(self.store.redis.hget(self.key(":instance"), "catalog"))

    @contextlib.contextmanager
    def unchanged(self):
        """Read what is stored once for all within, where nothing is written and nobody changes what `state` gave."""
        former, self._seen = self._seen, self.state()
        try:
            yield
        finally:
            self._seen = former

    def state(self):
        """Every key; journals without their IDs, which are the server's time; leases spelled out, no anchor."""
        if self._seen is not None:
            return self._seen
        state = {}
        for suffix, value in self._snapshot(self.store).items():
            kept = value
            if suffix.endswith(":journal"):
                kept = [fields for _, fields in value]
            elif suffix.endswith(":leases"):
                kept = {name: lease for name, lease in value.items() if name != LEASES_ANCHOR}
            if kept:
                state[suffix] = kept
        return without_runs(state)

    def mark(self):
        """Remember the state, for `changes`."""
        self.before = self.state()

    def changes(self):
        """Suffix -> what differs since `mark`; None for a key that is gone."""
        after = self.state()
        found = {
            suffix: difference(self.before.get(suffix), value)
            for suffix, value in after.items()
            if self.before.get(suffix) != value
        }
        return found | {suffix: None for suffix in self.before if suffix not in after}

    def queue(
        self,
        name,
        *topics,
        subscriptions=(),
        target=None,
        pattern=False,
        entry="",
        priority="",
        barrier="",
        policy=None,
        ring="",
        recorded=0,
        owner="",
        domain="",
        deferral="",
        grouping="",
        rated="",
        **numbers,
    ):
        """One topic alone, unless there are several, or a pattern that may match more later."""
        compiled = self.compiled(**numbers) + (f" {topics[0]}" if len(topics) == 1 and not pattern else "")
        trees = [parse(text, "query").json if text else "" for text in (entry, priority, barrier)]
        texts = (
            compiled,
            self.policy(**policy) if policy else "",
            *trees,
            ring,
            recorded,
            owner,
            domain,
            deferral,
            grouping,
            rated,
        )
        head = (self.now, self.version(), name, "{}", target or topics[0], *texts)
        return self.run("define_queue", *head, len(topics), *topics, *subscriptions)

    @staticmethod
    def policy(**numbers):
        """The numbers that differ from the defaults of `schema.POLICY`."""
        return " ".join(str(value) for value in (POLICY | numbers).values())

    @staticmethod
    def compiled(
        *, lease=0, backlog=0, deliveries=0, cancels=0, fairness="proportional", once=0, strict=0, room=1000, depth=0
    ):
        numbers = (lease, backlog, deliveries, cancels, *FAIRNESS[fairness], once, strict, room, depth)
        return " ".join(map(str, numbers))

    def follow_expired(self, action, queue):
        """An action that follows what expires in a queue."""
        order = ("follow", f"expire {queue}", f"journal {queue}")
        return self.run("define_action", self.now, self.version(), action, "{}", 0, *order)

    def topic(self, name, *queues):
        return self.run("define_topic", self.now, self.version(), name, "{}", 0, "", "", *queues)

    def keyed(self, name, *paths, queues=(), life=0, format=""):  # noqa: A002
        """A topic with a key; of another type than JSON by its word."""
        key = "\n".join(f"{parse(path, 'filter').json}\t{path}" for path in paths or ("/id",))
        return self.run("define_topic", self.now, self.version(), name, "{}", life, key, format, *queues)

    def publish(self, topic, *bodies, publisher="", sequence="", expiration=None, due=None, delta=False):
        """`expiration` and `due` as the script takes them, the same for each body."""
        columns = {"m" if delta else "b": bodies}
        if expiration is not None:
            columns["e"] = [expiration] * len(bodies)
        if due is not None:
            columns["d"] = [due] * len(bodies)
        values = [value for row in zip(*columns.values(), strict=True) for value in row]
        return self.run("publish", self.now, topic, publisher, sequence, "".join(columns), *values)

    def records(self, topic, filter=None, keys=()):  # noqa: A002
        """Key -> ID and body, as queries find them."""
        found, after = {}, ""
        while True:
            after, *flat = self.run("browse_records", self.now, topic, wished(filter)[1], after, *keys)
            for i in range(0, len(flat), 3):
                fields = dict(zip(flat[i + 2][::2], flat[i + 2][1::2], strict=True))
                found[flat[i]] = (flat[i + 1], fields.get("b"))
            if not after:
                return found

    def delete(self, topic, how, *values, publisher="", sequence="", filter=None):  # noqa: A002
        """Return how many were deleted, all steps together; `filter`: of keys."""
        after, number, tree = "", 0, wished(values[0] if how == "filter" else filter)[1]
        while True:
            given = () if how == "filter" else values
            after, count, _ = self.run("sow_delete", self.now, topic, publisher, sequence, tree, after, how, *given)
            number += count
            if not after:
                return number

    def xadd(self, topic, stream_id, *fields):
        """Somebody else's entry."""
        return decoded(self.store.redis.execute_command("XADD", self.key(f":log:{topic}"), stream_id, *fields))

    def subscribe(self, *queues, asked=1, filter=None, pattern="", version="", retry_timeout=10_000, client=None):  # noqa: A002
        """A new one, unless a client asks again."""
        self.requests += 1
        client = client or f"c/{self.requests}"
        return self.run(
            "subscribe", self.now, version, client, asked, *wished(filter), pattern, retry_timeout, *queues
        )[0]

    def replace(self, subscription, *queues, asked=1, filter=None, pattern="", version=""):  # noqa: A002
        self.requests += 1
        wish = (self.requests, asked, *wished(filter), pattern, *queues)
        return self.run("replace_subscription", self.now, version, subscription, *wish)[:2]

    def groups(self, items):
        """{queue: [(ref, token), ...]}, or messages themselves, as the scripts take them."""
        if not isinstance(items, dict):
            grouped = {}
            for message in items:
                grouped.setdefault(message.queue, []).append((message.ref, message.token))
            items = grouped
        out = []
        for queue, pairs in items.items():
            out += [queue, len(pairs), *(place for place, _ in pairs), *(token for _, token in pairs)]
        return out

    def take_whole(self, subscription, wanted=1, acks=()):
        asked = f"{wanted} run" if self.runs else wanted
        elements, refused, _ = self.run("take", self.now, subscription, asked, *self.groups(acks))
        elements = expanded(elements)
        messages = [read_element(elements[i], elements[i + 1]) for i in range(0, len(elements), 2)]
        return messages, dict(zip(refused[::2], refused[1::2], strict=True))

    def take(self, subscription, wanted=1, acks=()):
        messages, refused = self.take_whole(subscription, wanted, acks)
        assert refused == {}
        return messages

    def settle(self, verb, items, period=0, by=""):
        refused = self.run("settle", self.now, verb, period, by, *self.groups(items))
        return dict(zip(refused[::2], refused[1::2], strict=True))

    def unsubscribe(self, subscription, held=()):
        return self.run("unsubscribe", self.now, subscription, *self.groups(held))

    def sweep(self):
        return self.run("sweep", self.now)

    def sweep_all(self):
        for _ in range(100):
            more, wait = self.sweep()
            if not more:
                return wait
        raise AssertionError("the sweep never ends")

    def inbox(self, subscription):
        texts = decoded(self.store.redis.lrange(self.key(f":s:{subscription}:inbox"), 0, -1))
        return [read_element(texts[i], texts[i + 1]) for i in range(0, len(texts), 2)]

    def holders(self, queue):
        """Return the leases: ref -> subscription."""
        leases = self.state().get(f":q:{queue}:leases", {})
        return {place: lease.split(" ")[1] for place, lease in leases.items()}
