"""Pages of a link: entries that were published at the source are sent as they were read, many at a time."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys

import pytest

from ampsq import Client, Topic
from ampsq.base.message_types import JSON
from ampsq.expressions import parse
from ampsq.protocol.calls import replication as links
from ampsq.protocol.reads.streams import log_of
from ampsq.protocol.schema import key
from ampsq.replication import link as linking
from ampsq.replication.selection import EntrySelector, Peer, published_runs, runs_of, split_entry
from ampsq.transport.store import Store

SOURCE, DESTINATION = Peer("a", "a.one", "ga"), Peer("b", "b.one", "gb")


def selector(source=SOURCE, filters=None):
    return EntrySelector(source, DESTINATION, lambda _: True, filters or {}, lambda _: JSON)


def entries(seed):
    """Entries of a log, of a few forms."""
    dice = random.Random(seed)  # noqa: S311  (a test's dice)
    forms = [(b"b",), (b"b",), (b"b", b"h"), (b"b", b"e", b"k")]
    found, ms, sequence = [], 1_000, 0
    for _ in range(dice.randrange(1, 60)):
        ms, sequence = (ms, sequence + 1) if dice.random() < 0.7 else (ms + dice.randrange(1, 9), 0)
        names = dice.choice(forms)
        flat = [text for name in names for text in (name, b"%d" % dice.randrange(100))]
        found.append((b"%d-%d" % (ms, sequence), flat))
    return found


def shown(runs):
    """Return what the destination is sent."""
    return [run.arguments() for run in runs]


@pytest.mark.parametrize("seed", range(30))
def test_what_was_published_at_the_source_is_sent_as_entry_by_entry(seed):
    rows, chosen = entries(seed), selector()
    singly = [split_entry("orders", stream_id, flat, SOURCE) for stream_id, flat in rows]
    found = published_runs(chosen, "orders", rows, lambda *_: "-")
    assert shown(found) == shown(runs_of(chosen, singly, lambda *_: "-"))


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([(b"1-0", [b"b", b"{}", b"s", b"c.one~1-0", b"v", b"c.one/gc"])], selector()),
        # Somebody else's entry has fields of these names, and the next one is a copy
        (
            [
                (b"1-0", [b"b", b"{}", b"s", b"x", b"v", b"y"]),
                (b"2-0", [b"b", b"{}", b"s", b"c.one~1-0", b"v", b"c.one/gc"]),
            ],
            selector(),
        ),
        ([(b"1-0", [b"b", b"{}"])], selector(filters={"orders": parse("/n = 1", "filter")})),
        ([(b"1-0", [b"b", b"{}"])], selector(SOURCE._replace(former=(((5, 0), "a.zero"),)))),
        ([(b"1-0", [])], selector()),
    ],
    ids=["a copy", "a copy behind one that looks like it", "a filter", "a former incarnation", "no fields"],
)
def test_what_is_to_be_looked_at_one_by_one_is_no_run(rows, chosen):
    assert published_runs(chosen, "orders", rows, lambda *_: "-") is None


def test_a_link_that_is_behind_reads_many_small_entries_at_once_and_few_large_ones(fabric, monkeypatch):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    fabric.link(a, b, "orders", queues=())
    (link,) = fabric.links.values()
    asked, read = [], linking.read_streams

    def noted(instance, streams, count):
        asked.append(count)
        return read(instance, streams, count)

    def run():
        for _ in range(100):
            if link.step().is_idle:
                return

    monkeypatch.setattr(linking, "read_streams", noted)
    # When there are more small entries than one read gives
    numbers = [str(number) for number in range(2_300)]
    for first in range(0, len(numbers), 100):
        a.publish("orders", *numbers[first : first + 100])
    run()
    # Then reads ask for more as soon as something was applied, and all come in their order
    assert asked[:4] == [500, 500, 500, 2_000]
    assert [row[0] for row in b.log("orders")] == numbers
    # When they are large
    asked.clear()
    for _ in range(6):
        a.publish("orders", *["x" * 1_000] * 100)
    run()
    assert set(asked) == {500}
    assert len(b.log("orders")) == 2_900


def reference(pairs):
    """Runs of IDs that follow each other there and here, as the key `copies` has them: how many, and the first copy."""
    runs = []
    for there, here in pairs:
        if runs:
            (ms, number), count, (own_ms, own) = runs[-1]
            if there == (ms, number + count) and here == (own_ms, own + count):
                runs[-1][1] += 1
                continue
        runs.append([there, 1, here])
    return [f"{count} {own_ms}-{own}" for _, count, (own_ms, own) in runs]


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_noted_by_runs_wherever_these_end(valkey, instance, seed):
    dice = random.Random(seed)  # noqa: S311  (a test's dice)
    there, ms, number = [], 1_000, 0
    for _ in range(300):
        chance = dice.random()
        ms, number = (ms, number + 1) if chance < 0.8 else (ms, number + 3) if chance < 0.9 else (ms + 1, 0)
        there.append((ms, number))
    ids = [b"%d-%d" % each for each in there]
    with Client(valkey.url, instance=instance) as client, contextlib.closing(Store(valkey.url, instance)) as store:
        client.apply(Topic(name="orders"))
        run = links.EntryRun(
            "orders", "other.one", "-", "other.one/g", b"0-0", ids[-1], [b"b"], [(each, [b"{}"]) for each in ids]
        )
        assert store.call(links.apply([run])).recorded == 300
        rows = store.redis.xrange(log_of("orders").key(instance))
        here = [tuple(map(int, row[0].split(b"-"))) for row in rows]
        assert [dict(fields) for _, fields in rows[:1]] == [
            {b"b": b"{}", b"s": b"other.one~" + ids[0], b"v": b"other.one/g"}
        ]
        members = store.redis.zrange(key(instance, "copies", "orders", "other.one"), 0, -1)
        assert [member.decode().partition(" ")[2] for member in members] == reference(zip(there, here, strict=True))
        # Sent once more, nothing is recorded
        assert store.call(links.apply([run])).recorded == 0


def test_a_coordinator_looks_for_garbage_seldom():
    program = (
        "import gc, sys; from ampsq.coordinator import __main__ as program\n"
        "class Stub:\n"
        "    def __init__(self, *_): pass\n"
        "    def run(self): print(gc.get_threshold()[0] >= 10_000 and gc.get_freeze_count() > 0)\n"
        "program.Coordinator = Stub; sys.argv = ['x', '--url', 'redis://127.0.0.1:1']; program.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
