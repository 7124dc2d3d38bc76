"""Recording by a gateway: once however often it is said, where it was asked to be, and as far as its users may."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from gateway_scene import Asking, define, hashed, refusal

from ampsq import Client, Instance, Queue, Topic

CLERKS = f"""
  - {{user: clerk, name: positions, rights: [read, write], write_filter: "/owner = 'clerk'"}}
users:
  - {{name: clerk, secret: "{hashed("ledger")}"}}
"""
FILTER = """, write_filter: "/owner = 'clerk'\""""


def data_of(client, topic="orders"):
    with client.subscribe_topic(topic, bookmark="[epoch:now)") as messages:
        return [message.data for message in messages]


def records(client):
    return {message.key: message.data for message in client.sow("positions")}


@pytest.mark.parametrize("key", ["a-key", ("till-4", 7)])
def test_a_message_that_is_sent_again_is_recorded_once_and_answered_with_its_bookmark(audit, client, key):
    first = audit.once("/v1/publish", key, topic="orders", data={"id": 1}).json()
    again = audit.once("/v1/publish", key, topic="orders", data={"id": 1}).json()

    assert first["duplicate"] is False
    assert again == {**first, "duplicate": True}
    assert data_of(client) == [{"id": 1}]


def test_of_a_batch_that_is_sent_again_only_what_is_missing_is_recorded(audit, client):
    half = [{"data": n} for n in range(150)]
    first = audit.once("/v1/publish_many", ("p", 1), topic="orders", messages=half).json()
    whole = [{"data": n} for n in range(300)]

    again = audit.once("/v1/publish_many", ("p", 1), topic="orders", messages=whole).json()

    assert (first["duplicates"], again["duplicates"]) == (0, 150)
    assert again["bookmarks"][:150] == first["bookmarks"]
    assert data_of(client) == list(range(300))


def test_a_key_says_nothing_without_partitions_and_is_a_text(audit, client):
    for given in ({"data": 1, "key": "alice"}, {"data": 2, "key": None}, {"data": 3, "key": ""}):
        assert audit.post("/v1/publish", topic="orders", **given).status_code == 200
    many = [{"data": 4, "key": "bob"}, {"data": 5}]
    assert audit.post("/v1/publish_many", topic="orders", messages=many, key="alice").status_code == 200
    for path, given in (("publish", {"data": 6, "key": 7}), ("publish_many", {"messages": [{"data": 6, "key": []}]})):
        assert refusal(audit.post(f"/v1/{path}", topic="orders", **given)) == (400, "DefinitionError")
    assert data_of(client) == [1, 2, 3, 4, 5]


def test_users_do_not_share_keys_and_publishers(serving, client):
    gateway = serving()
    audit, till = Asking(gateway, "audit"), Asking(gateway, "till")

    for key in ("same", ("p", 1)):
        for user in (audit, till):
            answer = user.once("/v1/publish", key, topic="orders", data={"till": 4})
            assert answer.json()["duplicate"] is False
    assert len(data_of(client)) == 4


@pytest.mark.parametrize(
    "headers",
    [
        {"ampsq-publisher": "p"},
        {"ampsq-sequence": "1"},
        {"idempotency-key": "k", "ampsq-publisher": "p", "ampsq-sequence": "1"},
        {"ampsq-publisher": "a b", "ampsq-sequence": "1"},
        {"ampsq-publisher": "p", "ampsq-sequence": "0"},
        {"ampsq-publisher": "p", "ampsq-sequence": "9" * 17},
        {"ampsq-publisher": "p", "ampsq-sequence": "-1"},
        {"idempotency-key": "a b"},
        {"idempotency-key": "k" * 256},
    ],
)
def test_headers_of_a_guarantee_that_are_wrong_are_refused(audit, client, headers, monkeypatch):
    monkeypatch.setattr(audit, "headers", headers)
    assert refusal(audit.post("/v1/publish", topic="orders", data=1)) == (400, "DefinitionError")
    assert data_of(client) == []


def test_a_message_has_headers_a_life_and_a_time_when_it_is_due(audit, client):
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    audit.post("/v1/publish", topic="orders", data=1, headers={"a": "b"}, expiration="2h", at=later)

    assert client.admin.queue_stats("work").scheduled in {0, 1}
    with client.subscribe_topic("orders", bookmark="epoch") as messages:
        assert messages.get("30s").headers == {"a": "b"}
    for wrong in ("soon", "2026-05-01T09:00:00", 7):
        assert refusal(audit.post("/v1/publish", topic="orders", data=1, at=wrong)) == (400, "DefinitionError")


def test_a_message_is_in_the_group_that_its_publisher_names_and_the_subscriber_is_told(audit, client):
    client.apply(
        Queue(
            name="grouped",
            underlying_topic="calls",
            lease_period="1h",
            group_concurrency=1,
            group_affinity="30s",
            max_per_subscription_backlog=4,
        )
    )
    audit.post("/v1/publish", topic="calls", data=1, group="alice")
    audit.post("/v1/publish_many", topic="calls", messages=[{"data": 2}, {"data": 3}], group="alice")
    audit.post("/v1/publish", topic="calls", data=4)

    with audit.open("/v1/subscribe", queue="grouped", max_backlog=4) as socket:
        socket.get()
        first, other = socket.get(), socket.get()
        assert (first["data"], first["group"], first["group_begins"]) == (1, "alice", True)
        assert other["data"] == 4
        assert "group" not in other
        socket.say(do="ack", id=first["id"])
        following = next(each for each in (socket.get(), socket.get()) if each["type"] == "message")
        assert (following["data"], following["group"], following.get("group_begins")) == (2, "alice", None)
    for wrong in (7, "a\0b", "x" * 256):
        assert refusal(audit.post("/v1/publish", topic="calls", data=1, group=wrong)) == (400, "DefinitionError")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'{"data": 1}', "topic is missing"),
        (b'{"topic": "orders", "data": 1, "till": 4}', "unknown element 'till'; allowed are"),
        (b"[1]", "[1] was sent; allowed is an object with"),
        (b'{"topic": "orders", "data": ' + b"9" * 5_000 + b"}", "a number of more than 4,300 digits"),
        (b'{"topic": "orders", "data": \xff}', "no JSON"),
    ],
)
def test_what_was_sent_and_is_no_message_is_told(audit, sent, text):
    answer = httpx.post(
        audit.base + "/v1/publish", content=sent, auth=audit.auth, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert text in answer.json()["text"]


def test_a_change_is_merged_into_the_record_of_its_key(audit, client):
    audit.publish("positions", {"symbol": "IBM", "qty": 1, "px": 2})
    change = {"topic": "positions", "data": {"symbol": "IBM", "qty": 5}}

    first = audit.once("/v1/delta_publish", "k", **change).json()
    again = audit.once("/v1/delta_publish", "k", **change).json()

    assert again == {**first, "duplicate": True}
    assert records(client) == {"IBM": {"symbol": "IBM", "qty": 5, "px": 2}}


def test_records_are_deleted_by_key_and_by_filter_once(audit, client):
    for symbol in ("A", "B", "C", "D"):
        client.publish("positions", {"symbol": symbol, "qty": 1})

    assert audit.post("/v1/sow_delete", topic="positions", keys=["A", "none"]).json() == {"deleted": 1}
    assert audit.once("/v1/sow_delete", "k", topic="positions", filter="/symbol = 'B'").json()["deleted"] == 1
    client.publish("positions", {"symbol": "B", "qty": 2})
    again = audit.once("/v1/sow_delete", "k", topic="positions", filter="/symbol = 'B'").json()
    assert again == {"deleted": 0, "duplicate": True}
    assert set(records(client)) == {"B", "C", "D"}
    for wrong in (
        {},
        {"keys": []},
        {"keys": ["A"], "filter": "/a"},
        {"filter": " "},
        {"keys": [{}]},
        {"filter": "/a >"},
    ):
        assert refusal(audit.post("/v1/sow_delete", topic="positions", **wrong))[0] == 400
    assert refusal(audit.post("/v1/sow_delete", topic="orders", keys=["A"]))[1] == "NoRecords"


def test_who_writes_with_a_filter_deletes_and_changes_its_own_records_alone(serving, client):
    clerk = Asking(serving(CLERKS), "clerk")
    for symbol, owner in (("A", "clerk"), ("B", "other"), ("C", "clerk")):
        client.publish("positions", {"symbol": symbol, "owner": owner})

    assert clerk.post("/v1/sow_delete", topic="positions", keys=["A", "B"]).json() == {"deleted": 1}
    assert clerk.post("/v1/sow_delete", topic="positions", filter="1 = 1 OR 1 = 1").json() == {"deleted": 1}
    beyond = clerk.post("/v1/sow_delete", topic="positions", filter="1 = 1) OR (1 = 1")
    assert refusal(beyond) == (400, "ExpressionError")
    assert refusal(clerk.post("/v1/delta_publish", topic="positions", data={"symbol": "B"})) == (403, "NotEntitled")
    assert refusal(clerk.post("/v1/sow_delete", topic="orders", keys=["A"])) == (403, "NotEntitled")
    assert records(client) == {"B": {"symbol": "B", "owner": "other"}}


# -- persisted


@pytest.fixture(params=["valkey", "redis"])
def lasting(request, start_server, instance):
    """A client of an instance on a server that writes a file, flushed each second."""
    with Client(start_server(request.param, appendonly=True).url, instance=instance) as client:
        define(client)
        yield client


@pytest.mark.default_user(reason="no coordinator notes how the server flushes")
def test_what_is_to_be_on_the_disk_is_answered_when_it_is(lasting, serving_on):
    audit = Asking(serving_on(lasting), "audit")

    answers = [
        audit.once("/v1/publish", "k", topic="orders", data=1, persisted="fsync"),
        audit.once("/v1/publish", "k", topic="orders", data=1, persisted="fsync"),
        audit.post("/v1/publish_many", topic="orders", messages=[{"data": 2}], persisted="memory"),
        audit.post("/v1/sow_delete", topic="positions", keys=["A"], persisted="fsync"),
    ]

    assert [answer.status_code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    assert data_of(lasting) == [1, 2]


def test_a_level_that_a_server_cannot_reach_is_refused_before_anything_is_recorded(audit, client):
    answer = audit.post("/v1/publish", topic="orders", data=1, persisted="fsync")

    assert refusal(answer) == (409, "ServerUnsuitable")
    assert refusal(audit.post("/v1/publish", topic="orders", data=1, persisted="paper")) == (400, "DefinitionError")
    assert data_of(client) == []


def test_what_is_not_persisted_in_time_is_told_with_how_to_ask_again(serving, client):
    audit = Asking(serving("gateway: {request_timeout: 1s}\n"), "audit")

    answer = audit.once("/v1/publish", "k", topic="orders", data=1, persisted="replicas=1")

    assert refusal(answer) == (504, "NotPersisted")
    assert "0 of 1 replicas have it" in answer.json()["text"]
    assert audit.once("/v1/publish", "k", topic="orders", data=1).json()["duplicate"] is True
    assert data_of(client) == [1]


def test_bytes_match_no_filter_of_who_changes_records(serving, client):
    clerk = Asking(serving(CLERKS), "clerk")
    body = base64.b64encode(b'{"symbol": "A", "owner": "clerk"}').decode()

    assert refusal(clerk.post("/v1/publish", topic="positions", base64=body)) == (403, "NotEntitled")
    assert records(client) == {}


def test_a_topic_that_nobody_defined_is_refused_with_the_names_that_the_user_may_write_to(serving, client):
    client.apply(Instance(topics="defined"), Topic(name="ledger-eu"), Topic(name="ledger-us"))
    gateway = serving(CLERKS.replace("name: positions", 'name: "^ledger-(eu|uk)$"').replace(FILTER, ""))
    clerk, audit = Asking(gateway, "clerk"), Asking(gateway, "audit")
    sentence = (
        "'ledger-uk' is not defined, and this instance takes messages for defined topics alone "
        "(Instance(topics='defined')); did you mean {}? "
        "To define it: client.apply(Topic(name='ledger-uk')), or `ampsq apply FILE`"
    )

    for user, meant in ((audit, "'ledger-eu' or 'ledger-us'"), (clerk, "'ledger-eu'")):
        one = user.post("/v1/publish", topic="ledger-uk", data={"id": 1})
        many = user.once("/v1/publish_many", ("p", 1), topic="ledger-uk", messages=[{"data": 1}, {"data": 2}])
        for answer in (one, many):
            assert refusal(answer) == (404, "TopicNotDefined")
            assert answer.json()["text"] == sentence.format(meant)
    assert "ledger-uk" not in client.admin.topics()
    client.apply(Topic(name="ledger-uk"))
    assert clerk.once("/v1/publish_many", ("p", 1), topic="ledger-uk", messages=[{"data": 1}]).status_code == 200


@pytest.mark.parametrize("key", [None, ("p", 1)])
def test_a_batch_that_is_too_much_to_read_at_once_is_recorded_in_parts_in_its_order(audit, client, key):
    client.apply(Topic(name="prices"))
    audit.once("/v1/publish_many", ("first", 1), topic="prices", messages=[{"data": {"id": -1}}])
    # The gateway has asked for the topic's type, and does not know of its key.
    client.apply(Topic(name="prices", key="/id"))
    messages = [{"data": {"id": n, "l": [[1]] * 1_000}} for n in range(60)]
    ask = audit.once if key else lambda path, _, **body: audit.post(path, **body)
    answer = ask("/v1/publish_many", key, topic="prices", messages=messages).json()
    assert len(set(answer["bookmarks"])) == 60
    assert [row["id"] for row in data_of(client, "prices")] == list(range(-1, 60))
