"""The gateway, asked over real sockets: what it serves, to whom, and how it ends."""

from __future__ import annotations

import base64
import json
import re
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from gateway_scene import RULES, Asking, define, refusal
from jsonschema import Draft202012Validator
from observing import eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ampsq import Client
from ampsq.base.errors import DefinitionError
from ampsq.files.config import load
from ampsq.gateway import read_rules
from ampsq.gateway.openapi import document
from ampsq.gateway.users import Secret

BEYOND = "1 = 1) OR (1 = 1"


@pytest.fixture
def client(valkey, instance):
    with Client(valkey.url, instance=instance) as client:
        define(client)
        yield client


# -- publishing


def test_messages_are_published_as_clients_publish_them(audit, client):
    one = audit.post("/v1/publish", topic="orders", data={"id": 1}, headers={"a": "b"})
    many = audit.post("/v1/publish_many", topic="orders", messages=[{"data": 2}, {"base64": "AP8="}], expiration="1h")

    assert (one.status_code, many.status_code) == (200, 200)
    with client.subscribe_topic("orders", bookmark="[epoch:now)") as messages:
        found = list(messages)
    assert [message.data for message in found] == [{"id": 1}, 2, b"\x00\xff"]
    assert found[0].headers == {"a": "b"}
    assert [str(message.bookmark) for message in found] == [one.json()["bookmark"], *many.json()["bookmarks"]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "orders"}, "a message has data, or base64"),
        ({"topic": "a b", "data": 1}, "is no name"),
        ({"topic": "orders", "data": 1, "priority": 1}, "allowed are at, base64, data"),
        ({"topic": "orders", "base64": "?"}, "allowed: bytes in base64"),
        ({"topic": "orders", "data": 1, "delay": "soon"}, "soon"),
        ({"topic": "orders", "data": 1, "headers": {"a": 1}}, "a dict of texts"),
    ],
)
def test_what_is_wrong_with_a_message_is_told(audit, client, given, said):
    answer = audit.post("/v1/publish", **given)

    assert refusal(answer)[0] == 400
    assert said in answer.json()["text"]
    assert client.admin.topics()["orders"].messages == 0


def test_what_is_too_large_too_deep_or_no_json_is_refused(serving, client):
    audit = Asking(serving("gateway: {max_request_size: 2kb}\n"), "audit")

    def send(content, **headers):
        sent = {"content-type": "application/json", **headers}
        return httpx.post(audit.base + "/v1/publish", content=content, headers=sent, auth=audit.auth)

    assert refusal(send(b'{"data": "' + b"x" * 3000))[1] == "TooLarge"
    assert refusal(send(b"[" * 1000)) == (400, "DefinitionError")
    assert refusal(send(b"{")) == (400, "DefinitionError")
    assert refusal(send(b"{}", **{"content-type": "text/plain"})) == (415, "NotJson")
    assert client.admin.topics()["orders"].messages == 0


# -- who may what


def test_who_is_not_known_gets_nothing(gateway):
    wrong = [
        {},
        {"auth": ("desk", "wrong")},
        {"auth": ("nobody", "tea")},
        {"headers": {"authorization": "Bearer tea"}},
        {"headers": {"authorization": "Basic ???"}},
        {"headers": {"authorization": "Digest x"}},
    ]
    for options in wrong:
        answer = httpx.get(gateway.address + "/v1/sow", params={"name": "work"}, **options)
        assert refusal(answer) == (401, "NotAuthenticated")
        assert "Basic" in answer.headers["www-authenticate"]
    with pytest.raises(InvalidStatus) as refused:
        connect(gateway.address.replace("http", "ws") + "/v1/subscribe?queue=work")
    assert refused.value.response.status_code == 401


def test_what_a_user_is_not_entitled_to_is_refused_whether_it_is_there_or_not(desk, till, client):
    assert refusal(desk.post("/v1/publish", topic="orders", data={"till": 4})) == (403, "NotEntitled")
    assert refusal(till.get("/v1/sow", name="work")) == (403, "NotEntitled")
    assert refusal(till.get("/v1/sow", name="not-there")) == (403, "NotEntitled")
    assert refusal(till.get("/v1/events", topic="orders")) == (403, "NotEntitled")
    for parameters in ({"queue": "work"}, {"topic": "orders"}):
        with till.open("/v1/subscribe", **parameters) as socket:
            assert socket.get()["error"] == "NotEntitled"
    assert client.admin.topics()["orders"].messages == 0


def test_a_write_filter_takes_its_messages_and_no_others(till, client):
    till.publish("orders", {"till": 4, "id": 1})

    assert refusal(till.post("/v1/publish", topic="orders", data={"till": 5})) == (403, "NotEntitled")
    assert refusal(till.post("/v1/publish", topic="orders", base64=base64.b64encode(b'{"till":4}').decode()))[0] == 403
    mixed = [{"data": {"till": 4}}, {"data": {"till": 5}}]
    assert refusal(till.post("/v1/publish_many", topic="orders", messages=mixed)) == (403, "NotEntitled")

    assert client.admin.topics()["orders"].messages == 1


def test_a_read_filter_is_added_to_whatever_is_asked_for(audit, desk):
    audit.publish("orders", {"region": "EU", "id": 1}, {"region": "US", "id": 2}, {"region": "EU", "id": 3})

    def ids(**parameters):
        return [each["data"]["id"] for each in desk.get("/v1/sow", name="work", **parameters).json()["messages"]]

    assert ids() == [1, 3]
    assert ids(filter="/id > 1") == [3]
    assert ids(filter="/id = 2 OR /id = 3") == [3]
    assert refusal(desk.get("/v1/sow", name="work", filter=BEYOND)) == (400, "ExpressionError")
    with desk.open("/v1/subscribe", topic="orders", bookmark="epoch", filter="/id >= 1") as socket:
        assert [socket.get()["data"]["id"] for _ in range(2)] == [1, 3]
    with desk.open("/v1/subscribe", queue="work", max_backlog=5, filter=BEYOND) as socket:
        assert socket.get()["error"] == "ExpressionError"
    with desk.open("/v1/subscribe", queue="work", max_backlog=5) as socket:
        assert socket.get() == {"type": "subscribed", "max_backlog": 5}
        assert [socket.get()["data"]["id"] for _ in range(2)] == [1, 3]


def test_what_leaves_a_view_by_its_filter_does_not_show_what_may_not_be_read(audit, desk):
    audit.publish("positions", {"symbol": "IBM", "qty": 5}, {"symbol": "AAPL", "qty": 1})

    with desk.open("/v1/sow_and_subscribe", topic="positions", oof="true") as socket:
        assert socket.get()["data"] == {"symbol": "IBM", "qty": 5}
        audit.publish("positions", {"symbol": "IBM", "qty": 0})
        left = socket.get()
    assert (left["type"], left["reason"], left["key"]) == ("oof", "match", "IBM")
    assert left.keys().isdisjoint({"data", "base64", "headers"})


def test_a_page_of_another_origin_is_refused(gateway, audit):
    theirs = {"origin": "https://elsewhere.example"}

    answer = httpx.get(audit.base + "/v1/sow", params={"name": "work"}, auth=audit.auth, headers=theirs)
    mine = httpx.get(audit.base + "/v1/sow", params={"name": "work"}, auth=audit.auth, headers={"origin": audit.base})
    two = [("origin", theirs["origin"]), ("origin", audit.base)]
    both = httpx.get(audit.base + "/v1/sow", params={"name": "work"}, auth=audit.auth, headers=two)

    assert (answer.status_code, mine.status_code, both.status_code) == (403, 200, 403)
    with pytest.raises(InvalidStatus):
        connect(gateway.address.replace("http", "ws") + "/v1/subscribe?queue=work", additional_headers=theirs)


def asked_as(gateway, audit, host):
    """Return the answers under a name of a host, whose page asks: a query, the probes, and a WebSocket."""
    theirs = {"host": host, "origin": f"http://{host}"}
    paths = ("/v1/sow?name=work", "/openapi.json", "/healthz", "/readyz")
    answers = [httpx.get(audit.base + path, auth=audit.auth, headers=theirs).status_code for path in paths]
    token = {"authorization": "Bearer " + ":".join(audit.auth), "origin": theirs["origin"]}
    to = urlsplit(gateway.address)
    try:
        with connect(
            f"ws://{host}/v1/subscribe?queue=work",
            additional_headers=token,
            sock=socket.create_connection((to.hostname, to.port)),
        ):
            return [*answers, 101]
    except InvalidStatus as refused:
        return [*answers, refused.response.status_code]


def test_a_name_that_was_made_to_point_here_is_no_host_of_the_gateway(gateway, audit):
    port = urlsplit(gateway.address).port
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example"):
        assert asked_as(gateway, audit, host) == [421, 421, 200, 200, 403], host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert asked_as(gateway, audit, host) == [200, 200, 200, 200, 101], host


def test_the_hosts_of_a_gateway_are_those_that_it_was_given_and_where_it_listens(serving):
    named = serving(hosts=("Queues.example",))
    assert asked_as(named, Asking(named, "audit"), "queues.example:8443") == [200, 200, 200, 200, 101]
    assert asked_as(named, Asking(named, "audit"), "others.example") == [421, 421, 200, 200, 403]
    name = socket.gethostname()
    bound = serving(where=f"{name}:0")
    assert asked_as(bound, Asking(bound, "audit"), name) == [200, 200, 200, 200, 101]


# -- queues


def test_a_queue_is_pushed_leased_and_settled_within_the_backlog(audit, client):
    audit.publish("orders", 1, 2, 3, 4)

    with audit.open("/v1/subscribe", queue="work", max_backlog=3) as socket:
        socket.get()
        first, second, third = (socket.get() for _ in range(3))
        assert [each["data"] for each in (first, second, third)] == [1, 2, 3]
        assert first["delivery"] == 1
        # The backlog is full: the fourth comes when there is room.
        with pytest.raises(TimeoutError):
            socket.get(timeout=0.2)
        socket.say(do="ack", id=first["id"])
        answers = [socket.get(), socket.get()]
        assert {"type": "settled", "do": "ack", "id": first["id"]} in answers
        assert 4 in [each.get("data") for each in answers]
        assert socket.ask(do="extend", id=second["id"], period="1h")["type"] == "settled"
        assert socket.ask(do="expire", id=second["id"])["type"] == "settled"
        assert socket.ask(do="cancel", id=third["id"], delay="1h")["type"] == "settled"
        assert "held by nobody here" in socket.ask(do="ack", id=first["id"])["text"]
        assert "allowed is" in socket.ask(do="drop", id=1)["text"]
        stats = client.admin.queue_stats("work")
        assert (stats.acknowledged, stats.expired, stats.delayed, stats.leased) == (1, 1, 1, 1)


def test_what_is_cancelled_or_expired_may_say_why(audit, client):
    audit.publish("orders", 1, 2)
    cancelled, expired = (message.bookmark for message in client.sow("work"))

    with audit.open("/v1/subscribe", queue="work", max_backlog=2) as socket:
        socket.get()
        first, second = socket.get(), socket.get()
        # What is no reason is refused, and the lease stays
        assert "one line" in socket.ask(do="cancel", id=first["id"], reason=7)["text"]
        assert "one line" in socket.ask(do="expire", id=second["id"], reason="a\nb")["text"]
        assert socket.ask(do="cancel", id=first["id"], delay="1h", reason="not now")["type"] == "settled"
        assert socket.ask(do="expire", id=second["id"], reason="no such flight")["type"] == "settled"

    said = [client.admin.history(bookmark).events[-1].details["consumer_reason"] for bookmark in (cancelled, expired)]
    assert said == ["not now", "no such flight"]


def test_what_a_subscriber_held_is_back_when_it_goes(audit, client):
    audit.publish("orders", 1, 2)

    with audit.open("/v1/subscribe", queue="work", max_backlog=1) as socket:
        socket.get()
        assert socket.get()["data"] == 1
        assert client.admin.queue_stats("work").leased == 1

    eventually(lambda: client.admin.queue_stats("work").leased == 0)
    assert client.admin.queue_stats("work").depth == 2


def test_a_gateway_that_ends_gives_back_what_its_subscribers_hold(serving, client):
    gateway = serving()
    audit = Asking(gateway, "audit")
    audit.publish("orders", 1, 2)
    with audit.open("/v1/subscribe", queue="work", max_backlog=2) as socket:
        assert [socket.get()["type"] for _ in range(3)] == ["subscribed", "message", "message"]

        gateway.stop()

        stats = client.admin.queue_stats("work")
        assert (stats.leased, stats.depth, stats.subscriptions) == (0, 2, 0)
        assert socket.get()["error"] == "Closed"
        with pytest.raises(ConnectionClosed):
            socket.get()


def test_a_topic_is_not_read_without_leases_where_a_queue_was_asked_for(audit):
    with audit.open("/v1/subscribe", queue="orders") as socket:
        assert socket.get()["error"] == "UnknownQueue"


def test_a_queue_is_not_replayed_as_the_topics_behind_it(audit):
    audit.publish("orders", 1)

    with audit.open("/v1/subscribe", topic="work", bookmark="epoch") as socket:
        assert socket.get()["error"] == "UnknownTopic"
    assert refusal(audit.get("/v1/events", topic="work", bookmark="epoch")) == (404, "UnknownTopic")


# -- topics


def test_a_topic_is_replayed_between_bookmarks_and_said_to_be_complete(audit):
    audit.publish("orders", 1, 2)

    with audit.open("/v1/subscribe", topic="orders", bookmark="[epoch:now)") as socket:
        found = [socket.get() for _ in range(3)]

    assert [each.get("data") for each in found] == [1, 2, None]
    assert found[-1] == {"type": "completed", "topic": "orders"}


def test_events_of_a_topic_go_on_behind_the_last_one_seen(audit):
    audit.publish("orders", 1, 2)

    def event(**headers):
        where = {"topic": "orders", "bookmark": "epoch"}
        with httpx.stream("GET", audit.base + "/v1/events", params=where, auth=audit.auth, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            text = next(answer.iter_text())
        found = re.match(r"id: (\S+)\nevent: message\ndata: (.*)\n\n", text)
        return found[1], json.loads(found[2])["data"]

    first, data = event()
    assert data == 1
    assert event(**{"Last-Event-ID": first})[1] == 2


# -- bounds


def test_a_user_has_no_more_subscriptions_than_are_allowed(serving):
    audit = Asking(serving("gateway: {max_streams: 1}\n"), "audit")

    with audit.open("/v1/subscribe", topic="orders"):
        eventually(lambda: refusal(audit.get("/v1/events", topic="orders")) == (429, "TooManyStreams"))
        with audit.open("/v1/subscribe", topic="orders") as second:
            assert second.get()["error"] == "TooManyStreams"


def test_a_subscriber_that_takes_nothing_is_closed_and_what_it_held_goes_back(serving, client):
    audit = Asking(serving("gateway: {send_timeout: 200ms}\n"), "audit")
    client.publish_many("orders", [b"x" * 2_000_000] * 10)
    address = urlsplit(audit.base)
    token = base64.b64encode(b":".join(part.encode() for part in audit.auth)).decode()
    with socket.create_connection((address.hostname, address.port)) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(
            f"GET /v1/subscribe?queue=work&max_backlog=10 HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
            f"Authorization: Basic {token}\r\n\r\n".encode()
        )
        assert line.recv(12) == b"HTTP/1.1 101"

        eventually(lambda: client.admin.queue_stats("work").delivered > 0)
        eventually(lambda: client.admin.queue_stats("work").subscriptions == 0)
    assert client.admin.queue_stats("work").depth == 10


# -- the document


def test_the_document_names_exactly_what_is_served(gateway):
    paths = httpx.get(gateway.address + "/openapi.json").json()["paths"]

    served = {}
    for route in gateway._routes():
        methods = getattr(route, "methods", None) or {"GET"}
        served[route.path] = {method.lower() for method in methods - {"HEAD"}}
    assert {path: set(operations) for path, operations in paths.items()} == served


def test_the_document_tells_requests_and_answers_as_they_are(audit):
    paths = document()["paths"]
    sent = {"topic": "positions", "data": {"symbol": "IBM"}, "headers": {"a": "b"}}
    many = {"topic": "positions", "messages": [{"data": {"symbol": "AAPL"}}]}

    def check(schema, value):
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(value)

    for path, given in (("/v1/publish", sent), ("/v1/publish_many", many)):
        operation = paths[path]["post"]
        check(operation["requestBody"]["content"]["application/json"]["schema"], given)
        answer = audit.post(path, **given)
        check(operation["responses"]["200"]["content"]["application/json"]["schema"], answer.json())
    found = audit.get("/v1/sow", name="positions").json()
    assert len(found["messages"]) == 2
    check(paths["/v1/sow"]["get"]["responses"]["200"]["content"]["application/json"]["schema"], found)
    refused = document()["components"]["responses"]["Refused"]["content"]["application/json"]["schema"]
    check(refused, audit.get("/v1/sow", name="a b").json())


# -- the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("users: []", "has no users, so nobody could ask"),
        ("users: [{name: a, secret: hunter2}]", "secret of 'a': it is no hash of a secret"),
        ("users: [{name: a b, secret: x}]", "is not a name"),
        ("entitlements: [{user: a, name: x}]", "rights: []; allowed: read, write"),
        ("entitlements: [{user: a, name: '[', rights: read}]", "a regular expression that matches the whole of a name"),
        ("entitlements: [{user: a, name: x, rights: read, read_filter: '/a >'}]", "read_filter"),
        (
            "entitlements: [{user: a, name: x, rights: read, write_filter: /a}]",
            "write_filter goes with the right write",
        ),
        ("entitlements: [{user: a, name: x, rights: read, color: red}]", "'color' is no element"),
        ("gateway: {max_streams: -1}", "max_streams: '-1' is not a count"),
        ("gateway: {ports: 1}", "'ports' is no element"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_allowed_and_without_secrets(text, said):
    with pytest.raises(DefinitionError, match=re.escape(said)) as refused:
        read_rules(text)
    assert "hunter2" not in str(refused.value)


def test_a_file_of_an_instance_may_have_the_sections_of_its_gateway():
    text = "topics: [{name: orders}]\n" + RULES

    assert [each.name for each in load(text)] == ["orders"]
    assert sorted(read_rules(text).users) == ["audit", "desk", "stranger", "till"]


def test_the_pattern_of_an_entitlement_must_match_the_whole_name():
    rules = read_rules(
        f'users: [{{name: a, secret: "{Secret.of("x")}"}}]\n'
        'entitlements: [{user: a, name: "orders/.*", rights: read}]'
    )

    assert rules.entitlements.to_read("a", "orders/eu", None) is None
    for name in ("orders", "my/orders/eu"):
        with pytest.raises(Exception, match="may not read"):
            rules.entitlements.to_read("a", name, None)


def test_a_name_that_a_user_makes_up_cannot_hold_the_pattern_of_an_entitlement_up():
    rules = read_rules(
        f'users: [{{name: a, secret: "{Secret.of("x")}"}}]\nentitlements: [{{user: a, name: "(o+)+$", rights: read}}]'
    )

    assert rules.entitlements.to_read("a", "ooo", None) is None
    # A pattern that went back would try 2 ** 250 ways
    with pytest.raises(Exception, match="may not read"):
        rules.entitlements.to_read("a", "o" * 250 + "-", None)


def test_a_hash_is_of_its_secret_alone_and_never_twice_the_same():
    one, other = Secret.of("tea"), Secret.of("tea")

    assert str(one) != str(other)
    assert Secret.parse(str(one)) == one
    assert one.is_of("tea")
    assert not one.is_of("Tea")
    assert "tea" not in repr(one) + str(one)
