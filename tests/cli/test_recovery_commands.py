"""history, check and the benchmark of rebuilding."""

from __future__ import annotations

from ampsq.bench.rebuild import Rebuild
from ampsq.bench.setup import BenchSettings
from ampsq.protocol.schema import key


def damage(defined):
    """Lose a message: gives its bookmark."""
    first, _ = defined.publish({"n": 1}, {"n": 2})
    with defined.client() as client:
        client.ack("work", [first])
        store = client._store
        store.redis.delete(key(client.instance, "journal", "work"))
    return first


def test_a_clean_queue(defined):
    defined.publish(1, 2)
    done = defined("check", "work")
    assert done.out.startswith("work: clean; 2 messages, 0 settled, ")
    assert {found["queue"]: found["clean"] for found in defined("check", "--json").json} == {
        "work": True, "other": True,
    }  # fmt: skip


def test_a_difference_is_named_mended_and_gone(defined):
    first = damage(defined)
    done = defined("check", "work", code=1)
    assert done.out.splitlines()[1:] == [
        (
            "  ahead_unsettled: 1 messages are marked as settled before the queue read them, and the journal has no "
            "such entry"
        ),
        f"    {first}",
    ]
    (found,) = defined("check", "work", "--json", code=1).json
    assert (found["differences"][0]["name"], found["differences"][0]["bookmarks"]) == ("ahead_unsettled", [first])
    done = defined("check", "work", "--repair")
    assert done.out.startswith("work: mended; ")
    assert "; the marks were removed; the queue reads these messages in their turn" in done.out
    assert "clean" in defined("check", "work").out


def test_a_queue_is_rebuilt_on_demand(defined):
    defined.publish(1, 2)
    done = defined("check", "work", "--rebuild")
    assert done.out.splitlines()[0] == "work: rebuilt from 2 messages, 0 settled"
    assert "names of the queues" in defined("check", "--rebuild", code=2).err
    assert "nobody" in defined("check", "nobody", code=1).err


def test_a_message_s_life_as_a_table_and_as_json(defined):
    first, second = defined.publish({"n": 1}, {"n": 2})
    defined("ack", "work", first)
    out = defined("history", first).out
    assert out.splitlines()[0] == first
    head, published, acknowledged = (line.split() for line in out.splitlines()[2:5])
    assert head == ["when", "queue", "what", "by", "details"]
    assert "published" in published
    assert acknowledged[1:3] == ["work", "acknowledged"]
    assert "work: settled. The message was acknowledged at" in out
    (told,) = defined("history", second, "--json").json
    assert list(told) == ["bookmark", "recorded", "events", "queues"]
    assert told["queues"][0]["state"] == "waiting"
    assert "not a bookmark" in defined("history", "nonsense", code=1).err


def test_a_message_that_no_queue_reads_and_one_that_never_was(defined):
    (bookmark,) = defined.publish(1, topic="nowhere")
    assert "No queue reads its topic." in defined("history", bookmark).out
    missing = bookmark.rpartition("~")[0] + "~1-1"
    done = defined("history", missing, code=1)
    assert "The log does not have this message" in done.out
    assert f"nothing is known of a message {missing}; the log of 'nowhere' has {bookmark} to {bookmark}" in done.err
    strange = bookmark.replace("nowhere", "nowhare")
    assert "topic 'nowhare': no such topic; did you mean 'nowhere'?" in defined("history", strange, code=1).err


def test_figures_of_a_history_have_their_units(defined):
    with defined.client() as client:
        bookmark = client.publish("orders", {"n": 1}, expiration="1h30m")
    out = defined("history", bookmark).out
    assert "to topic orders, 7B, lives for 1h30m" in out
    assert defined("history", bookmark, "--json").json[0]["events"][0]["details"]["expiration"] == 5_400_000


def test_the_benchmark_of_rebuilding_prints_every_figure(served):
    figures = Rebuild(served.url, BenchSettings(backlog=2_000), lambda _: None).run()
    assert figures["right"]
    assert figures["messages"] == 2_000
    for row in (figures["check"], figures["rebuild"]):
        assert list(row) == ["per_second", "seconds", "longest_call_ms", "p999_call_ms", "calls_over_10_ms"]
