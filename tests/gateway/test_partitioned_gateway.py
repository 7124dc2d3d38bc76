"""A gateway of an instance with partitions: what it serves is of all of them, and each thing is done once."""

from __future__ import annotations

import json

import httpx
import pytest
from gateway_scene import Asking, define, refusal, serve
from observing import eventually

from ampsq import Client, Topic
from ampsq.base.bookmarks import Bookmark
from ampsq.base.partitions import partition_of_key

TOTAL = 4
#: Seconds that everything has on a crowded machine.
WITHIN = 30


@pytest.fixture
def client(valkey, instance):
    """A client of all partitions of the test's instance."""
    with Client(valkey.url, instance=instance, partitions=TOTAL) as client:
        define(client)
        yield client


def key_of(number, *others):
    """A key of a partition, unlike others."""
    return next(
        key for key in map("k{}".format, range(1_000)) if partition_of_key(key, TOTAL) == number and key not in others
    )


def partition_of(client, bookmark):
    return client.partitions.index(Bookmark.parse(bookmark).origin.rpartition(".")[0])


def data_of(client, topic="orders"):
    with client.subscribe_topic(topic, bookmark="[epoch:now)") as messages:
        return [message.data for message in messages]


def ids(client, topic="orders"):
    return sorted(each["id"] for each in data_of(client, topic))


# -- publishing


def test_a_message_goes_to_the_partition_of_its_key_its_topic_s_or_its_group(audit, client):
    client.apply(Topic(name="sales", partition_by="/shop"))
    key = key_of(3)
    for given in (
        {"topic": "orders", "data": {"shop": "x"}, "key": key},
        {"topic": "sales", "data": {"shop": key}},
        {"topic": "sales", "base64": "e30=", "key": key},
        {"topic": "orders", "data": 1, "group": key},
        {"topic": "positions", "data": {"symbol": key}},
        {"topic": "orders", "data": 1, "group": key_of(1), "key": key},
    ):
        assert partition_of(client, audit.post("/v1/publish", **given).json()["bookmark"]) == 3, given
    # Without any, in turn; null is none.
    turns = [audit.post("/v1/publish", topic="orders", data=1, key=None, group="").json() for _ in range(TOTAL)]
    assert {partition_of(client, each["bookmark"]) for each in turns} == set(range(TOTAL))


def test_messages_of_a_request_go_to_several_partitions_and_are_answered_in_their_order(audit, client):
    messages = [{"data": {"id": n}, "key": f"k{n % 7}"} for n in range(250)]
    answer = audit.post("/v1/publish_many", topic="orders", messages=messages).json()
    assert [partition_of(client, each) for each in answer["bookmarks"]] == [
        partition_of_key(each["key"], TOTAL) for each in messages
    ]
    rows = data_of(client)
    for number in range(7):
        assert [row["id"] for row in rows if row["id"] % 7 == number] == list(range(number, 250, 7))
    # A key beside them is that of those without one of their own.
    both = [{"data": {"id": 1_000}}, {"data": {"id": 1_001}, "key": key_of(1)}]
    answer = audit.post("/v1/publish_many", topic="orders", messages=both, key=key_of(2)).json()
    assert [partition_of(client, each) for each in answer["bookmarks"]] == [2, 1]
    # Without any, they stay together.
    answer = audit.post("/v1/publish_many", topic="orders", messages=[{"data": {"id": n}} for n in range(150)]).json()
    assert len({partition_of(client, each) for each in answer["bookmarks"]}) == 1
    assert audit.post("/v1/publish_many", topic="orders", messages=[]).json() == {"bookmarks": []}


@pytest.mark.parametrize("once", ["a-key", ("till-4", 7)])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_message_that_is_sent_again_is_recorded_once_whichever_gateway_gets_it(serving, client, once, keyed):
    given = {"topic": "orders", "data": {"id": 1}} | ({"key": "alice"} if keyed else {})
    answers = [Asking(serving(), "audit").once("/v1/publish", once, **given).json() for _ in range(3)]
    assert [each["duplicate"] for each in answers] == [False, True, True]
    assert len({each["bookmark"] for each in answers}) == 1
    assert ids(client) == [1]


@pytest.mark.parametrize("keyed", [False, True])
def test_of_a_batch_that_is_sent_again_only_what_is_missing_is_recorded_in_each_partition(audit, client, keyed):
    messages = [{"data": {"id": n}} | ({"key": f"k{n % 11}"} if keyed else {}) for n in range(300)]
    first = audit.once("/v1/publish_many", ("p", 1), topic="orders", messages=messages[:150]).json()
    again = audit.once("/v1/publish_many", ("p", 1), topic="orders", messages=messages).json()

    assert (first["duplicates"], again["duplicates"]) == (0, 150)
    assert again["bookmarks"][:150] == first["bookmarks"]
    # One by one they have the same numbers as together.
    for n in (0, 149, 150, 299):
        assert audit.once("/v1/publish", ("p", n + 1), topic="orders", **messages[n]).json() == {
            "bookmark": again["bookmarks"][n],
            "duplicate": True,
        }
    assert audit.once("/v1/publish", ("p", 301), topic="orders", data={"id": 300}).json()["duplicate"] is False
    assert ids(client) == list(range(301))


def test_a_request_under_a_key_is_recorded_once_in_each_partition(audit, client):
    messages = [{"data": {"id": n}, "key": f"k{n % 11}"} for n in range(300)]
    first, again = (audit.once("/v1/publish_many", "day-7", topic="orders", messages=messages).json() for _ in "12")
    assert (first["duplicates"], again["duplicates"]) == (0, 300)
    assert again["bookmarks"] == first["bookmarks"]
    assert ids(client) == list(range(300))


def test_what_is_refused_names_the_message_by_its_number_in_the_request_and_says_what_is_recorded(audit, client):
    client.apply(Topic(name="states", key="/id", partition_by="/region"))
    good = [{"data": {"id": n, "region": f"r{n % 5}"}} for n in range(20)]
    one = partition_of_key("r1", TOTAL)
    there = sum(partition_of_key(f"r{n % 5}", TOTAL) != one for n in range(20))
    answer = audit.post("/v1/publish_many", topic="states", messages=[*good, {"data": {"region": "r1"}}])
    assert refusal(answer) == (409, "MissingKey")
    # Counted from 0.
    assert "message 20" in answer.json()["text"]
    assert f"{there} messages of this request are recorded, in all partitions together" in answer.json()["text"]
    assert len(client.sow("states")) == there


def test_what_is_wrong_is_refused_before_anything_is_recorded(audit, client):
    for key in (7, 1.5, True, ["k"], {"k": 1}):
        answer = audit.post("/v1/publish", topic="orders", data=1, key=key)
        assert refusal(answer) == (400, "DefinitionError"), key
        assert "key: " in answer.json()["text"]
        answer = audit.post("/v1/publish_many", topic="orders", messages=[{"data": 1}, {"data": 1, "key": key}])
        assert refusal(answer) == (400, "DefinitionError"), key
    answer = audit.post("/v1/publish_many", topic="orders", messages=[{"data": 1, "group": "g"}])
    assert "allowed: data or base64, and key" in answer.json()["text"]
    client.apply(Topic(name="flat", message_type="fix"))
    nested = [{"data": {"1": "a"}, "key": key_of(0)}, {"data": {"1": {"2": 3}}, "key": key_of(1)}]
    assert audit.post("/v1/publish_many", topic="flat", messages=nested).status_code == 400
    assert [topic.messages for topic in client.admin.topics().values()] == [0] * 3
    assert client.admin.topics().keys() == {"flat", "orders", "positions"}
    # Any text is a key: what it says goes nowhere but into a sum.
    for key in ("", "\0", "\ud800", "a" * 1_000_000, "{x}", "~,|"):
        # Half a character, too, which JSON can say.
        sent = {"content": json.dumps({"topic": "orders", "data": 1, "key": key}), "auth": audit.auth}
        answer = httpx.post(audit.base + "/v1/publish", headers={"content-type": "application/json"}, **sent)
        assert answer.status_code == 200


def test_names_that_are_refused_leave_nothing_behind_in_the_gateway(audit, client, gateway):
    router = gateway._served.desk.client._router
    for topic in ("one", "two"):
        audit.post("/v1/publish", topic=topic, data=1, expiration="no interval")
        assert audit.post("/v1/delta_publish", topic=topic, data=1, key=7).status_code == 400
        assert audit.post("/v1/publish_many", topic=topic, messages=[]).status_code == 200
        sent = {"content": f'{{"topic": "{topic}", "data": NaN}}', "auth": audit.auth}
        answer = httpx.post(audit.base + "/v1/publish", headers={"content-type": "application/json"}, **sent)
        assert answer.status_code == 400
    assert not router._asked & {"one", "two"}
    # What is there is asked for once.
    audit.publish("orders", 1, 2, 3)
    assert "orders" in router._topic_keys
    assert client.admin.topics().keys() == {"orders", "positions"}


def test_what_is_wanted_persisted_is_so_in_each_partition(start_server, instance):
    server = start_server(appendonly=True)
    with Client(server.url, instance=instance, partitions=TOTAL) as client:
        define(client)
        gateway = serve(server.url, instance, partitions=TOTAL)
        try:
            audit = Asking(gateway, "audit")
            messages = [{"data": {"id": n}, "key": f"k{n}"} for n in range(20)]
            for level in ("memory", "fsync"):
                given = {"topic": "orders", "messages": messages, "persisted": level}
                assert len(audit.post("/v1/publish_many", **given).json()["bookmarks"]) == 20
            audit.publish("positions", {"symbol": "IBM", "qty": 2})
            assert audit.post("/v1/sow_delete", topic="positions", keys=["IBM"], persisted="fsync").json() == {
                "deleted": 1
            }
            assert len(data_of(client)) == 40
        finally:
            gateway.stop()


# -- records


def test_records_of_all_partitions_are_queried_changed_and_deleted_as_far_as_users_may(audit, desk, till, client):
    for n in range(20):
        till.publish("positions", {"symbol": f"s{n:02}", "qty": n % 4})
    found = audit.get("/v1/sow", name="positions", order_by="/symbol DESC", top_n=3).json()["messages"]
    assert [each["key"] for each in found] == ["s19", "s18", "s17"]
    # A read filter holds in each partition.
    assert {each["data"]["qty"] for each in desk.get("/v1/sow", name="positions").json()["messages"]} == {2, 3}

    assert till.post("/v1/delta_publish", topic="positions", data={"symbol": "s05", "side": "buy"}).status_code == 200
    (changed,) = audit.get("/v1/sow", name="positions", filter="/symbol = 's05'").json()["messages"]
    assert changed["data"] == {"symbol": "s05", "qty": 1, "side": "buy"}
    first = audit.once("/v1/sow_delete", "gone", topic="positions", filter="/qty = 3").json()
    again = audit.once("/v1/sow_delete", "gone", topic="positions", filter="/qty = 3").json()
    assert (first, again) == ({"deleted": 5, "duplicate": False}, {"deleted": 0, "duplicate": True})
    assert audit.post("/v1/sow_delete", topic="positions", keys=[f"s{n:02}" for n in range(10)]).json() == {
        "deleted": 8
    }
    assert len(client.sow("positions")) == 7


def test_a_change_that_does_not_say_the_partition_is_refused_and_takes_a_key(audit, client):
    client.apply(Topic(name="states", key="/id", partition_by="/region"))
    audit.publish("states", {"id": 1, "region": "east"})
    refused = audit.post("/v1/delta_publish", topic="states", data={"id": 1, "qty": 2})
    assert refusal(refused) == (400, "DefinitionError")
    assert audit.post("/v1/delta_publish", topic="states", data={"id": 1, "qty": 2}, key="east").status_code == 200
    (record,) = client.sow("states")
    assert record.data == {"id": 1, "region": "east", "qty": 2}


def test_records_are_followed_in_all_partitions(audit, till):
    till.publish("positions", *({"symbol": f"s{n}", "qty": n} for n in range(8)))
    with audit.open("/v1/sow_and_subscribe", topic="positions", filter="/qty > 3", oof="true") as socket:
        assert sorted(socket.get(WITHIN)["key"] for _ in range(4)) == ["s4", "s5", "s6", "s7"]
        for n in range(4, 8):
            till.publish("positions", {"symbol": f"s{n}", "qty": 0})
        told = [socket.get(WITHIN) for _ in range(4)]
        assert {(each["type"], each["key"]) for each in told} == {("oof", f"s{n}") for n in range(4, 8)}


# -- queues


def test_a_queue_is_that_of_all_partitions_with_one_backlog_over_them(audit, client):
    client.publish_many("orders", [{"id": n, "region": "EU"} for n in range(30)], key=lambda each: f"k{each['id']}")
    seen = []
    with audit.open("/v1/subscribe", queue="work", max_backlog=6) as socket:
        assert socket.get(WITHIN) == {"type": "subscribed", "max_backlog": 6}
        held = [socket.get(WITHIN) for _ in range(6)]
        with pytest.raises(TimeoutError):
            socket.get(0.5)
        assert client.admin.queue_stats("work").leased == 6
        # Acknowledgements of several partitions are done in one go, each answered; a wrong one among them, too.
        for order in [*({"do": "ack", "id": each["id"]} for each in held[:4]), {"do": "ack", "id": 99}]:
            socket.say(**order)
        answers, more = [], []
        while len(answers) < 5 or len(more) < 4:
            told = socket.get(WITHIN)
            (more if told["type"] == "message" else answers).append(told)
        assert [each["type"] for each in answers] == ["settled"] * 4 + ["error"]
        assert len({partition_of(client, each["bookmark"]) for each in held + more}) > 1
        seen = held[:4] + more
        assert socket.ask(do="extend", id=more[0]["id"], period="1m")["type"] == "settled"
        for each in more:
            socket.say(do="expire" if each is more[0] else "ack", id=each["id"])
        while len(seen) < 28:
            told = socket.get(WITHIN)
            if told["type"] == "message":
                seen.append(told)
                socket.say(do="ack", id=told["id"])
        eventually(lambda: client.admin.queue_stats("work").depth <= 2, within=WITHIN)
    # What it held is back.
    eventually(lambda: client.admin.queue_stats("work").leased == 0, within=WITHIN)
    assert len({each["bookmark"] for each in seen}) == 28
    with client.subscribe("work", max_backlog=5) as subscription:
        left = [subscription.get(WITHIN) for _ in range(2)]
        assert {each.data["id"] for each in left} == set(range(30)) - {each["data"]["id"] for each in seen}


def test_a_message_at_a_time_comes_from_whichever_partition_has_one(desk, client, monkeypatch):
    # The next one comes when the last one is acknowledged, and not when somebody looks whether it was.
    monkeypatch.setattr("ampsq.client.async_partitioned_subscription.FULL", 2.0 * WITHIN)
    for n in range(12):
        client.publish("orders", {"id": n, "region": "EU" if n % 3 else "US"}, key=f"k{n}")
    got = []
    with desk.open("/v1/subscribe", queue="work") as socket:
        socket.get(WITHIN)
        while len(got) < 8:
            told = socket.get(WITHIN)
            got.append(told["data"]["id"])
            assert socket.ask(do="ack", id=told["id"])["type"] == "settled"
    assert sorted(got) == [n for n in range(12) if n % 3]


# -- topics


def publish_each(audit, numbers):
    messages = [{"data": {"id": n}, "key": f"k{n}"} for n in numbers]
    assert audit.post("/v1/publish_many", topic="orders", messages=messages).status_code == 200


def until_position(socket, number):
    """Return so many messages, and the position that the gateway sends after them."""
    got, position = [], None
    while len(got) < number or position is None:
        told = socket.get(WITHIN)
        if told["type"] == "position":
            position = told["position"] if len(got) == number else None
        else:
            got.append(told["data"]["id"])
    return got, position


def test_a_topic_is_read_in_all_partitions_and_goes_on_at_a_position(audit):
    with audit.open("/v1/subscribe", topic="orders", bookmark="epoch") as socket:
        publish_each(audit, range(20))
        got, position = until_position(socket, 20)
    assert sorted(got) == list(range(20))
    publish_each(audit, range(20, 40))
    with audit.open("/v1/subscribe", topic="orders", bookmark=position) as socket:
        got, _ = until_position(socket, 20)
    assert sorted(got) == list(range(20, 40))
    with audit.open("/v1/subscribe", topic="orders", bookmark="[epoch:now)") as socket:
        told = [socket.get(WITHIN)["type"] for _ in range(41)]
    assert told == ["message"] * 40 + ["completed"]


def test_events_go_on_behind_the_last_position(audit):
    publish_each(audit, range(20))

    def events(number, last=None):
        headers = {"last-event-id": last} if last else {}
        where = {"topic": "orders", "bookmark": "epoch"}
        got, mark = [], ""
        with httpx.stream(
            "GET", audit.base + "/v1/events", params=where, auth=audit.auth, headers=headers, timeout=WITHIN
        ) as answer:
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    mark = line[4:]
                if line.startswith("data: "):
                    told = json.loads(line[6:])
                    if told["type"] == "message":
                        got.append(told["data"]["id"])
                    elif len(got) == number:
                        assert told == {"type": "position", "position": mark}
                        return got, mark
        raise AssertionError("they ended")

    got, mark = events(20)
    assert sorted(got) == list(range(20))
    publish_each(audit, range(20, 30))
    assert sorted(events(10, mark)[0]) == list(range(20, 30))


def test_a_durable_subscription_goes_on_at_another_gateway(serving):
    first, second = (Asking(serving(), "audit") for _ in range(2))
    publish_each(first, range(10))
    with first.open("/v1/subscribe", topic="orders", sub_id="mine") as socket:
        assert socket.get(WITHIN)["type"] == "subscribed"
        got = [socket.get(WITHIN) for _ in range(10)]
        assert socket.ask(do="ack", id=got[5]["id"], up_to=True)["type"] == "settled"
    with second.open("/v1/subscribe", topic="orders", sub_id="mine") as socket:
        socket.get(WITHIN)
        rest = [socket.get(WITHIN)["data"]["id"] for _ in range(4)]
    assert sorted(rest) == sorted(each["data"]["id"] for each in got[6:])


def test_a_place_that_is_none_of_all_partitions_is_refused_with_what_is(audit, client):
    publish_each(audit, range(8))
    with audit.open("/v1/subscribe", topic="orders", bookmark="epoch") as socket:
        _, position = until_position(socket, 8)
    one, *others = position.split(",")
    elsewhere = ",".join(each.replace(client.instance, "other") for each in (one, *others))
    for bookmark, told in (
        (one, "says nothing of partitions 1, 2, 3"),
        (",".join(others), "says nothing of partition 0"),
        (elsewhere, "which is no partition here"),
        ("p|7", "which names a publisher's message"),
        (f"[{one}:now)", "is of one partition"),
        (",", ""),
        ("x" * 5_000, ""),
    ):
        with audit.open("/v1/subscribe", topic="orders", bookmark=bookmark) as socket:
            answer = socket.get(WITHIN)
            assert (answer["type"], answer["error"]) == ("error", "DefinitionError"), bookmark
            assert told in answer["text"]
        answer = httpx.get(
            audit.base + "/v1/events", params={"topic": "orders", "bookmark": bookmark}, auth=audit.auth, timeout=WITHIN
        )
        assert answer.status_code == 400, bookmark
