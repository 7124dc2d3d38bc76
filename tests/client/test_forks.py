"""A process that was forked from one with a client: what that has open is refused there, and nothing of it is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ampsq import Client, Queue

#: Opens one of each, forks, and lets the child use them; then the parent goes on.
PROGRAM = """
import json, os, sys
import ampsq
from ampsq.base.errors import AmpsqError

def tried(*calls):
    answers = []
    for call in calls:
        try:
            answers.append(call())
        except AmpsqError as error:
            answers.append([type(error).__name__, str(error)])
    return answers

where = dict(instance=sys.argv[2], **json.loads(sys.argv[3]))
client = ampsq.Client(sys.argv[1], **where)
plain = client.publisher("plain")
kept = client.publisher("kept", store=ampsq.MemoryPublishStore())
plain.publish("orders", {"by": "parent", "n": 0})
messages = client.subscribe("work", max_backlog=5)
held = messages.get("5s")
topic = client.subscribe_topic("orders", bookmark="epoch")
topic.get("5s")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    made = tried(
        lambda: plain.publish("orders", {"by": "child"}),
        lambda: kept.publish("orders", {"by": "child"}),
        lambda: kept.flush("1s"),
        lambda: messages.get("1s"),
        lambda: [message.data for message in messages],
        lambda: held.ack(),
        lambda: topic.get("1s"),
        lambda: [message.data for message in topic],
        lambda: client.subscribe("work"),
        lambda: client.subscribe_topic("orders"),
    )
    closing = tried(plain.close, kept.close, messages.close, topic.close, client.close)
    with ampsq.Client(sys.argv[1], **where) as own:
        own.publish("orders", {"by": "own"})
    os.write(writer, json.dumps([made, closing]).encode())
    os._exit(0)
os.close(writer)
said = json.loads(os.read(reader, 65536))
os.waitpid(child, 0)
for n in range(1, 4):
    plain.publish("orders", {"by": "parent", "n": n})
    kept.publish("orders", {"by": "kept", "n": n})
kept.flush("10s")
held.ack(wait=True)
taken = []
while len(taken) < 7 and (message := messages.get("5s")) is not None:
    taken.append(message.data)
    message.ack(wait=True)
client.close()
print(json.dumps([os.getpid(), said, taken]))
"""


@pytest.mark.parametrize("of_it", [{}, {"partitions": 2}], ids=["instance", "partitions"])
def test_what_a_parent_has_open_is_refused_in_its_child_and_nothing_of_it_is_lost(valkey, instance, of_it):
    with Client(valkey.url, instance=instance, **of_it) as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=5))

    words = [sys.executable, "-c", PROGRAM, valkey.url, instance, json.dumps(of_it)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    parent, (refused, closing), taken = json.loads(done.stdout)
    whose = ["publisher"] * 3 + ["subscription"] * 5 + ["client"] * 2
    for what, (kind, text) in zip(whose, refused, strict=True):
        assert kind == "Closed"
        assert text.startswith(f"this {what} belongs to process {parent}, from which this one, ")
    # Closing is nothing to wait for, and ends nothing of the parent's.
    assert closing == [None] * 5
    by_whom = {by: [each.get("n") for each in taken if each["by"] == by] for by in ("parent", "kept", "own")}
    assert by_whom == {"parent": [1, 2, 3], "kept": [1, 2, 3], "own": [None]}
