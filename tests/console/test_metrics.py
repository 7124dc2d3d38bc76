"""Metrics of /metrics: each number is the true one, and the examples ask for metrics that exist."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from observing import eventually

from ampsq import Action, Client, Destination, LocalQueue, Queue, Topic
from ampsq.base.histogram import BOUNDS
from ampsq.console.metrics import FAMILIES, HISTOGRAMS
from ampsq.operations import group_counting
from ampsq.operations.group_counting import GroupCounter
from ampsq.protocol.calls.subscriptions import heartbeat
from ampsq.protocol.schema import key

ROOT = Path(__file__).resolve().parents[2]


def of_queue(metrics, name):
    """Metric -> value, of one queue."""
    found = {}
    for metric, samples in metrics.items():
        for labels, value in samples.items():
            if dict(labels).get("queue") == name and not metric.endswith("_info"):
                found[metric.removeprefix("ampsq_queue_")] = value
    return found


def seconds_since(client, bookmark):
    seconds, microseconds = client._store.redis.time()
    return seconds + microseconds / 1e6 - int(bookmark.id.partition("-")[0]) / 1000


def test_each_number_of_a_queue_is_that_of_its_state(client, asked):
    client.apply(
        Topic(name="orders"),
        LocalQueue(
            name="work", underlying_topic="orders", lease_period="30s", max_per_subscription_backlog=10,
            max_backlog=7, target_queue_depth=1000, max_deliveries=9,
        ),
        LocalQueue(name="idle", underlying_topic="nothing"),
    )  # fmt: skip
    bookmarks = [client.publish("orders", {"id": number}) for number in range(10)]
    client.publish("orders", {"id": 10}, delay="1h")
    with client.subscribe("work", max_backlog=4):
        for option, bookmark in zip(("ack", "expire", "cancel"), bookmarks, strict=False):
            client.ack("work", [bookmark], option)
        before = seconds_since(client, bookmarks[2])
        found = of_queue(asked.anew().metrics(), "work")
        after = seconds_since(client, bookmarks[2])
        stats = client.admin.queue_stats("work")

    ages = {name: found.pop(name) for name in list(found) if name.endswith(("_seconds", "_behind"))}
    assert found == {
        "depth": 9, "waiting": 4, "ready": 0, "held": 0, "leased": 4, "delayed": 0, "scheduled": 1, "inactive": 4,
        "subscriptions": 1, "paused": 0, "max_backlog": 7, "target_queue_depth": 1000,
        "delivered_total": stats.delivered, "acknowledged_total": 1, "expired_total": 1, "evicted_total": 0,
        "returned_total": 1, "filtered_total": 0, "missing_total": 0,
    }  # fmt: skip
    assert stats.delivered >= 6
    # Message 2 is leased again, message 6 waits; ages count in milliseconds.
    assert before - 0.002 <= ages["seconds_behind"] <= after
    assert 0 < ages["oldest_message_age_seconds"] <= ages["seconds_behind"]
    assert 0 <= ages["oldest_lease_age_seconds"] <= ages["seconds_behind"]
    assert of_queue(asked.anew().metrics(), "idle")["depth"] == 0


def test_how_long_messages_took_is_a_histogram_of_those_that_were_measured(client, asked):
    # given
    client.apply(Queue(name="work", underlying_topic="orders"), Queue(name="idle", underlying_topic="orders"))
    client._store.call(heartbeat(30_000, [], "work|3500000 3 2 12 1|250000 7 1"))
    # when
    metrics = asked.anew().metrics()
    # then
    of_work = (("ampsq_instance", client.instance), ("queue", "work"))
    buckets = metrics["ampsq_queue_delivery_seconds_bucket"]
    by_end = {dict(labels)["le"]: number for labels, number in buckets.items() if dict(labels)["queue"] == "work"}
    ends = [*map(str, BOUNDS), "+Inf"]
    assert set(by_end) == set(ends)
    assert [by_end[each] for each in ends] == [0] * 3 + [2] * 9 + [3] * 9
    assert metrics["ampsq_queue_delivery_seconds_count"] == {of_work: 3}
    assert metrics["ampsq_queue_delivery_seconds_sum"] == {of_work: 3.5}
    assert metrics["ampsq_queue_handling_seconds_count"] == {of_work: 1}
    assert metrics["ampsq_queue_handling_seconds_sum"] == {of_work: 0.25}


def test_what_a_client_measured_is_in_the_histogram(client, asked):
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", {"id": 1})
    with client.subscribe("work") as work:
        work.get("30s").ack()
    metrics = asked.anew().metrics()
    for name in ("delivery", "handling"):
        assert list(metrics[f"ampsq_queue_{name}_seconds_count"].values()) == [1]


def test_groups_are_counted_and_none_has_a_sample_of_its_own(client, asked):
    # given: of four groups one is in flight, one on hold, one stopped, and one paused
    client.apply(
        LocalQueue(
            name="work", underlying_topic="orders", group_by="/g", on_group_failure="stop", redelivery_delay="1h",
            max_per_subscription_backlog=9,
        ),
        LocalQueue(name="plain", underlying_topic="orders"),
    )  # fmt: skip
    first = client.publish("orders", {"g": "flying"})
    client.publish_many("orders", [{"g": group} for group in ("held", "stopped", "held", "stopped")])
    client.admin.pause_group("work", "paused")
    client.publish("orders", {"g": "paused"})
    with client.subscribe("work", max_backlog=9) as messages:
        got = {message.group: message for message in (messages.get("30s") for _ in range(3))}
        got["held"].cancel()
        got["stopped"].expire()
        messages.flush()
        # when
        before = seconds_since(client, first)
        metrics = asked.anew().metrics()
        found = of_queue(metrics, "work")
    # then
    names = ("groups", "groups_leased", "groups_on_hold", "groups_stopped", "groups_paused")
    assert [found[name] for name in names] == [4, 1, 1, 1, 1]
    assert 0 < found["groups_oldest_message_age_seconds"] <= before + 30
    # What no group lets go counts as behind, too.
    assert found["seconds_behind"] >= found["groups_oldest_message_age_seconds"]
    assert 0 <= found["groups_age_seconds"] < 60
    assert not any(name.startswith("groups") for name in of_queue(metrics, "plain"))
    assert all(len(metrics[f"ampsq_queue_{name}"]) == 1 for name in names)


def test_a_group_that_stands_still_counts_in_how_far_its_queue_is_behind(client, asked):
    client.apply(LocalQueue(name="work", underlying_topic="orders", group_by="/g"))
    client.admin.pause_group("work", "a")
    first = client.publish("orders", {"g": "a"})
    time.sleep(0.05)  # what goes is younger by that
    client.publish_many("orders", [{"g": "b"}, {"g": "c"}])
    with client.subscribe("work") as messages:
        assert messages.get("30s").group == "b"
        age = seconds_since(client, first)
        found = of_queue(asked.anew().metrics(), "work")
    assert found["groups_oldest_message_age_seconds"] >= age - 0.002
    assert found["seconds_behind"] >= age - 0.002


def test_of_very_many_groups_a_reading_counts_a_part_and_the_next_one_goes_on(client, monkeypatch):
    monkeypatch.setattr(group_counting, "_READING", 100)
    monkeypatch.setattr(group_counting, "_PAGE", 20)
    client.apply(LocalQueue(name="work", underlying_topic="orders", group_by="/g", group_choice="round_robin"))
    client.publish_many("orders", [{"g": f"g{n}"} for n in range(300)])
    counter, store = GroupCounter(), client._store
    with client.subscribe("work") as messages, store.pipeline() as pipeline:
        assert messages.get("30s")
        eventually(lambda: client.admin.queue_stats("work").ready == 299)
        found = [store.run(counter.count(["work"], pipeline))["work"] for _ in range(5)]
        assert [each.number for each in found] == [300] * 5
        # Not even the second one has come to the end.
        assert [each.leased for each in found[:2]] == [None, None]
        assert (found[-1].leased, found[-1].stopped) == (1, 0)
        assert found[-1].oldest > 0
        assert store.run(counter.count([], pipeline)) == {}
        assert store.run(counter.count(["gone", "work"], pipeline)).keys() == {"work"}


def test_a_shared_queue_says_who_owns_its_messages(client, asked):
    client.apply(Topic(name="orders"), Queue(name="shared", underlying_topic="orders"))
    client.publish("orders", {"id": 1})
    redis, instance = client._store.redis, client.instance
    client.admin.enable_proxied_transfer("shared")
    redis.zadd(key(instance, "remote", "shared"), {"m1700000000000a1/orders": 0, "m1700000000001a1/orders": 0})
    redis.hset(key(instance, "queue", "shared"), mapping={"transferred_in": 5, "transferred_out": 6})
    redis.hset(key(instance, "deferred", "orders"), "shared x~1-1", "2 acknowledged")

    found = of_queue(asked.anew().metrics(), "shared")

    assert {name: found[name] for name in ("owned_here", "owned_elsewhere", "deferred", "proxied_transfer")} == {
        "owned_here": 0, "owned_elsewhere": 2, "deferred": 1, "proxied_transfer": 1,
    }  # fmt: skip
    assert (found["transferred_in_total"], found["transferred_out_total"]) == (5, 6)


def test_each_number_of_a_link_is_what_it_said_and_what_it_lacks(client, asked):
    client.apply(
        Topic(name="orders"),
        Destination(name="nyc-2", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders"]),
    )
    redis, instance = client._store.redis, client.instance
    bookmark = client.publish("orders", {"id": 0})
    client.publish_many("orders", range(6))
    seconds, microseconds = redis.time()
    now = seconds * 1000 + microseconds // 1000
    said = {
        "state": "connected", "at": now, "since": now - 5_000, "instance": "nyc-2", "group": "NYC", "messages": 11,
        "bytes": 222, "messages_per_second": 3, "bytes_per_second": 33, "losses": 4, "lost_at": now - 60_000,
        "address": "redis://nyc-2:6379",
    }  # fmt: skip
    redis.hset(key(instance, "links"), "out nyc-2", json.dumps(said))

    metrics = asked.anew().metrics()

    def value(name):
        ((labels, number),) = metrics[f"ampsq_link_{name}"].items()
        assert dict(labels)["destination"] == "nyc-2"
        return number

    names = ("connected", "refused", "sync", "downgraded", "messages_behind", "messages_total", "bytes_total")
    assert [value(name) for name in names] == [1, 0, 1, 0, 7, 11, 222]
    assert [value(name) for name in ("messages_per_second", "bytes_per_second", "disconnects_total")] == [3, 33, 4]
    assert 5 <= value("connected_seconds") < 60 <= value("disconnected_seconds") < 120
    assert 0 < value("seconds_behind") <= seconds_since(client, bookmark)
    ((facts, _),) = metrics["ampsq_link_info"].items()
    assert {"state": "connected", "group": "NYC", "peer": "nyc-2"}.items() <= dict(facts).items()
    client.admin.downgrade_replication("nyc-2")
    eventually(lambda: list(asked.anew().metrics()["ampsq_link_downgraded"].values()) == [1])
    assert list(asked.anew().metrics()["ampsq_link_sync"].values()) == [0]


def test_actions_instances_and_duties_are_there(client, serve, valkey):
    client.apply(
        Topic(name="orders"), Queue(name="work", underlying_topic="orders"), Action.dead_letter("work", "dead")
    )
    redis = client._store.redis
    (name,) = client.admin.actions()
    redis.hset(key(client.instance, "action", name), "done", 12)
    redis.hset(key(client.instance, "failed", name), "3", "1 {}")
    asked = serve(valkey.url, [client.instance], lambda: {(client.instance, "sweep"): 0.25})

    metrics = asked.anew().metrics()

    (label,) = metrics["ampsq_action_done_total"]
    assert dict(label) == {"action": name, "ampsq_instance": client.instance}
    assert [list(metrics[f"ampsq_action_{each}"].values()) for each in ("done_total", "failed", "waiting")] == [
        [12], [1], [0],
    ]  # fmt: skip
    assert list(metrics["ampsq_up"].values()) == [1]
    assert metrics["ampsq_coordinator_duty_age_seconds"] == {
        (("ampsq_instance", client.instance), ("duty", "sweep")): 0.25
    }


def test_partitions_say_which_instance_they_are_of(client, serve, valkey):
    whole = f"{client.instance}-w"
    with Client(valkey.url, partitions=2, instance=whole) as both:
        both.apply(Queue(name="work", underlying_topic="orders"))
        for number in range(10):
            both.publish("orders", number, key=str(number))
        names = both.partitions
        depths = [each.admin.queue_stats("work").depth for each in both.clients]

    metrics = serve(valkey.url, [client.instance, *names]).anew().metrics()

    # Then the labels join the samples of each partition with its number and the whole; an instance without has none
    said = [dict(labels) for labels in metrics["ampsq_partition_info"]]
    assert said == [
        {"ampsq_instance": name, "whole": whole, "partition": str(number), "partitions": "2"}
        for number, name in enumerate(names)
    ]
    found = {dict(labels)["ampsq_instance"]: value for labels, value in metrics["ampsq_queue_depth"].items()}
    assert [found[each["ampsq_instance"]] for each in said] == depths


def test_a_thousand_queues_are_read_once_for_all_who_ask_and_briefly(client, serve, valkey, define_many):
    define_many(client, 1000)
    redis = client._store.redis
    redis.config_resetstat()
    asked = serve(valkey.url, [client.instance])

    first = asked.metrics()
    calls = redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    second = asked("/metrics")

    assert len(first["ampsq_queue_depth"]) == 1000
    # Two calls a queue, and a few of presence and sweeping; nothing for whoever asks again at once.
    assert calls < 2_000 + 200
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] < calls + 200
    assert second.status == 200
    # On average, since the server may be made to wait in the middle of any single one.
    assert redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"] < 2_000


def test_every_query_of_the_dashboard_asks_for_metrics_that_exist():
    dashboard = json.loads((ROOT / "examples" / "grafana" / "ampsq.json").read_text())
    names = {family.exposed for family in FAMILIES} | {"ampsq_up", "ampsq_coordinator_duty_age_seconds"}
    histograms = {f"{family.name}_bucket" for family in HISTOGRAMS}
    names |= histograms

    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]

    assert len(queries) > 20
    for query in queries:
        # `ampsq_instance` is a label.
        asked = set(re.findall(r"\bampsq_\w+", query)) - {"ampsq_instance"}
        assert asked, query
        assert asked <= names, query
        # Of a histogram's buckets percentiles are taken, by their ends
        assert (asked <= histograms) == ("histogram_quantile(" in query), query
        assert ("histogram_quantile(" in query) == ("sum by (le) (rate(" in query), query
    assert histograms == {name for name in histograms if any(name in query for query in queries)}


@pytest.mark.parametrize("family", [*FAMILIES, *HISTOGRAMS], ids=lambda family: family.name)
def test_every_metric_keeps_to_the_conventions(family):
    assert re.fullmatch(r"ampsq_(queue|link|action|reading)_[a-z_]+", family.name)
    assert family.text.endswith(".")
    assert not family.name.endswith("_total")


def test_the_page_has_each_metric_and_what_it_says():
    page = (ROOT / "docs" / "console.md").read_text()

    assert [line for line in page.splitlines() if line.startswith("| `ampsq_")] == [
        *(f"| `{family.exposed}` | {family.kind} | {family.text} |" for family in FAMILIES),
        *(f"| `{family.name}` | histogram | {family.text} |" for family in HISTOGRAMS),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("elements", [{}, {"group_by": "/g"}], ids=["plain", "with groups"])
def test_metrics_of_a_thousand_queues_take_less_than_0_3_seconds_and_say_how_old_they_are(
    client, asked, define_many, elements
):
    # given: messages of each were measured
    define_many(client, 1000, **elements)
    histogram = "123456789 " + " ".join(f"{number} 12345" for number in range(len(BOUNDS) + 1))
    names = sorted(client.admin.queues())
    client._store.call(heartbeat(30_000, [], "\n".join(f"{name}|{histogram}|{histogram}" for name in names)))
    assert asked("/metrics").status == 200
    # when: of the processor, since the machine may do something else
    taken = []
    for _ in range(3):
        asked.anew()
        before = time.process_time()
        text = asked("/metrics").text
        taken.append(time.process_time() - before)
    # then
    assert text.count("ampsq_queue_depth{") == 1000
    assert text.count("ampsq_queue_delivery_seconds_count{") == 1000
    assert text.count("ampsq_queue_groups_stopped{") == (1000 if elements else 0)
    assert min(taken) < 0.3
    (age,) = asked.metrics()["ampsq_reading_age_seconds"].values()
    assert 0 <= age < 60
