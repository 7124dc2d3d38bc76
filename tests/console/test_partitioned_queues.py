"""Pages of queues of an instance with partitions: sums over all of them, and what each partition has."""

from __future__ import annotations

import json

import pytest

from ampsq import Client, Queue

WHOLE = "many.parts"


def told(asked, path):
    answer = asked.page(path, accept="application/json")
    return answer.status, json.loads(answer.text)


@pytest.fixture
def partitioned(serve, valkey, client):
    """A console, a client of an instance with four partitions, and its name; of ten messages two are leased."""
    whole = f"{client.instance}-{WHOLE}"
    with Client(valkey.url, partitions=4, instance=whole) as all_of_them:
        all_of_them.apply(
            Queue(name="work", underlying_topic="orders"), Queue(name="idle/one", underlying_topic="none")
        )
        all_of_them.publish_many("orders", range(10), key=str)
        with all_of_them.subscribe("work", max_backlog=2) as messages:
            messages.get(timeout="10s")
            messages.get(timeout="10s")
            yield serve(valkey.url, [client.instance, *all_of_them.partitions]), all_of_them, whole


def test_queues_are_listed_with_the_sums_of_all_partitions(partitioned):
    asked, _, whole = partitioned

    status, found = told(asked, f"/p/{whole}/queues?sort=depth")
    page = asked.page(f"/p/{whole}/queues?q=WORK").text

    assert (status, found["number"], found["total"], found["missing"]) == (200, 2, 4, [])
    work, idle = found["queues"]
    assert (work["name"], work["depth"], work["leased"], work["delivered"]) == ("work", 10, 2, 2)
    assert (idle["name"], idle["depth"], idle["oldest"]) == ("idle/one", 0, None)
    assert f'href="/p/{whole}/queues/work"' in page
    assert "1 of 2 queues" in page
    assert "idle/one" not in page


def test_a_queue_has_its_sums_and_a_row_that_leads_to_each_partition(partitioned):
    asked, all_of_them, whole = partitioned

    _, found = told(asked, f"/p/{whole}/queues/work")
    page = asked.page(f"/p/{whole}/queues/work").text

    depths = [each.admin.queue_stats("work").depth for each in all_of_them.clients]
    assert (found["queue"]["depth"], found["queue"]["leased"]) == (10, 2)
    assert [each["instance"] for each in found["partitions"]] == list(all_of_them.partitions)
    assert [each["queue"]["depth"] for each in found["partitions"]] == depths
    assert found["queue"]["oldest"] == max(each["queue"]["oldest"] or 0 for each in found["partitions"])
    for number, instance in enumerate(all_of_them.partitions):
        assert f'href="/i/{instance}/queues/work">{number}: {instance}</a>' in page
    assert told(asked, f"/p/{whole}/queues/idle/one")[1]["queue"]["depth"] == 0


def test_the_overview_leads_there(partitioned):
    asked, _, whole = partitioned

    page = asked.page("/").text

    assert f'<a href="/p/{whole}/queues">{whole} in 4 partitions</a>' in page
    assert f'<a href="/p/{whole}/queues/work">work</a>' in page


def test_a_partition_that_cannot_be_read_is_named_and_in_no_sum(serve, valkey, client):
    # Given figures of all partitions, and one whose keys are gone since
    whole = f"{client.instance}-{WHOLE}"
    with Client(valkey.url, partitions=4, instance=whole) as all_of_them:
        all_of_them.apply(Queue(name="work", underlying_topic="orders"))
        all_of_them.publish_many("orders", range(10), key=str)
        lost = all_of_them.partitions[1]
        depths = [each.admin.queue_stats("work").depth for each in all_of_them.clients]
    asked = serve(valkey.url, [client.instance, *all_of_them.partitions])
    told(asked, f"/p/{whole}/queues")
    redis = client._store.redis
    redis.delete(*redis.scan_iter(f"{{{lost}}}*", count=1000))

    # When somebody looks
    asked.anew()
    status, found = told(asked, f"/p/{whole}/queues")
    page = asked.page(f"/p/{whole}/queues/work").text

    # Then the others are shown
    assert (status, [(each["number"], each["instance"]) for each in found["missing"]]) == (200, [(1, lost)])
    assert "has no keys of this instance" in found["missing"][0]["reason"]
    assert {each["name"]: each["depth"] for each in found["queues"]} == {"work": sum(depths) - depths[1]}
    assert "1 of 4 partitions cannot be read, and are in none of these figures" in page


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/p/{whole}/queues/worc", 404, "'worc' is no queue"),
        ("/p/nowhere/queues", 400, "no instance 'nowhere' with partitions is shown here"),
        ("/p/{plain}/queues", 400, "with partitions is shown here; no such instance; did you mean"),
        ("/p/%3Cscript%3E/queues", 400, "no instance '<script>' with partitions"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(partitioned, client, path, status, sentence):
    asked, _, whole = partitioned
    address = path.format(whole=whole, plain=client.instance)

    told_status, found = told(asked, address)

    assert (told_status, sentence in found["error"]) == (status, True), found
    assert "<script>" not in asked.page(address).text.replace("<script src", "")
