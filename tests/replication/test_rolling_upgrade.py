"""A replicated pair is upgraded, one instance after the other, while the release before still runs the other one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections import Counter

import pytest
from data.format4 import release
from data.format4.upgraded import upgrade
from observing import eventually

from ampsq import Client
from ampsq.coordinator import Coordinator
from ampsq.protocol.calls.links import read_link_state
from ampsq.protocol.schema import key

pytestmark = [
    pytest.mark.slow,
    pytest.mark.default_user(reason="runs another release, which has rules of its own for its users"),
]

ALWAYS = ["--appendfsync", "always"]
#: An instance in the hands of the release before: its client and its coordinator, told what to do line by line.
FORMER = """
import json, sys, threading
from ampsq import Client, Destination, Queue, Topic
from ampsq.coordinator import Coordinator

url, name, other = {values!r}
client = Client(url, instance=name, publisher="till-" + name)
client.apply(
    Topic(name="orders"),
    Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5),
    Destination(name="other", sync_type="async", topics=["orders", "work"], addresses=[other]),
)
coordinator = Coordinator(url, [name])
thread = threading.Thread(target=coordinator.run)
thread.start()

def publish(first, count):
    for number in range(first, first + count):
        client.publish("orders", {{"id": number}})

def consume(count):
    done = []
    with client.subscribe("work", max_backlog=5) as messages:
        for _ in range(count):
            message = messages.get(60)
            message.ack(wait=True)
            done.append(message.data["id"])
    return done

def leave():
    coordinator.stop()
    thread.join()

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    what, arguments = json.loads(line)
    try:
        answer = {{"publish": publish, "consume": consume, "leave": leave}}[what](*arguments)
    except Exception as error:
        answer = type(error).__name__
    print(json.dumps(answer), flush=True)
"""


class Former:
    """An instance as the release before runs it."""

    def __init__(self, stack, folder, url, name, other):
        program = release.arguments(folder, FORMER.format(values=(url, name, other)))
        self._process = stack.enter_context(
            subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self._process.kill)
        assert self._answer() == "ready"

    def _answer(self):
        return json.loads(self._process.stdout.readline())

    def ask(self, what, *arguments):
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()


class Current:
    """The same as this release runs it."""

    def __init__(self, stack, url, name):
        self.client = stack.enter_context(Client(url, instance=name))
        self._publisher = stack.enter_context(self.client.publisher(f"till-{name}"))
        coordinator = Coordinator(url, [name])
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(coordinator.stop)

    def publish(self, first, count):
        for number in range(first, first + count):
            self._publisher.publish("orders", {"id": number})
        self._publisher.flush(60)

    def consume(self, count):
        done = []
        with self.client.subscribe("work", max_backlog=5) as messages:
            for _ in range(count):
                message = messages.get(60)
                message.ack(wait=True)
                done.append(message.data["id"])
        return done

    def ask(self, what, *arguments):
        return getattr(self, what)(*arguments)


class Pair:
    """Two instances that replicate to each other, each of the release before until it is upgraded."""

    def __init__(self, stack, start, prefix, folder):
        self._stack, self._published, self.done = stack, 0, Counter()
        self.servers = {each: start("valkey", appendonly=True, options=ALWAYS) for each in "ab"}
        self.names = {each: f"{prefix}-{each}" for each in "ab"}
        self.plain = {each: stack.enter_context(contextlib.closing(self.servers[each].client())) for each in "ab"}
        release.unpack(folder)
        self.ends = {
            each: Former(
                *(stack, folder, self.servers[each].url, self.names[each]),
                f"{self.servers[other].url}#{self.names[other]}",
            )
            for each, other in ("ab", "ba")
        }

    def upgrade(self, each):
        """Upgrade an instance, while a client of the release before is still there; gives what that is told."""
        former = self.ends[each]
        former.ask("leave")
        upgrade(self.servers[each].url, self.names[each])
        told = former.ask("consume", 1)
        self.ends[each] = Current(self._stack, self.servers[each].url, self.names[each])
        return told

    def publish(self, each, count):
        assert self.ends[each].ask("publish", self._published, count) is None
        self._published += count

    def consume(self, each, count):
        self.done.update(self.ends[each].ask("consume", count))

    def ids(self, each):
        """The numbers in the log of an instance, in order."""
        entries = self.plain[each].xrange(key(self.names[each], "log", "orders"))
        return sorted(json.loads(fields[b"b"])["id"] for _, fields in entries)

    def link_from(self, each):
        """Return the last report of the link to the other one."""
        reported = self.plain[each].hget(key(self.names[each], "links"), "out other")
        return json.loads(reported)


@pytest.fixture
def pair(start_server, instance, tmp_path):
    with contextlib.ExitStack() as stack:
        yield Pair(stack, start_server, instance, tmp_path / "former")


def test_a_replicated_pair_is_upgraded_one_after_the_other_and_nothing_is_lost_or_doubled(pair):
    pair.publish("a", 30)
    pair.publish("b", 30)
    eventually(lambda: pair.ids("a") == pair.ids("b") == list(range(60)), 60)
    pair.consume("a", 10)
    pair.consume("b", 10)

    assert pair.upgrade("a") == "FormatMismatch"
    # Each goes on with what it owns.
    pair.publish("a", 20)
    pair.publish("b", 20)
    pair.consume("a", 10)
    pair.consume("b", 10)
    # The links between the two releases wait, and say why; so does the one that the release before runs.
    reason = "stored in format 4, and this ampsq reads 5: `ampsq upgrade`"
    eventually(lambda: reason in pair.link_from("a")["reason"], 60)
    eventually(lambda: "incompatible version of ampsq" in pair.link_from("b")["reason"], 60)
    assert {pair.link_from(each)["state"] for each in "ab"} == {"waiting"}
    assert pair.ids("a") == [*range(60), *range(60, 80)]
    assert pair.ids("b") == [*range(60), *range(80, 100)]

    assert pair.upgrade("b") == "FormatMismatch"
    pair.publish("a", 10)
    pair.publish("b", 10)
    eventually(lambda: pair.ids("a") == pair.ids("b") == list(range(120)), 60)
    pair.consume("a", 80)

    assert sorted(pair.done.elements()) == list(range(120))
    for each in "ab":
        client = pair.ends[each].client
        eventually(lambda client=client: client.admin.queue_stats("work").acknowledged == 120, 60)
        assert [found.differences for found in client.admin.check() if not found.clean] == []
        # Each publisher went on with its numbers.
        assert {found.name: found.sequence for found in client.admin.publishers()} == {
            f"till-{pair.names['a']}": 60,
            f"till-{pair.names['b']}": 60,
        }
        state = eventually(
            lambda client=client: (
                (found := client._store.call(read_link_state(client.instance, "other"))).state == "connected" and found
            ),
            60,
        )
        assert not state.reason
