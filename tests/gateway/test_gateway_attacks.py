"""Attackers who ask nothing, take nothing, guess, or ask for too much: their answers, and that nobody else notices."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import tempfile
from urllib.parse import urlsplit

import httpx
import pytest
from gateway_scene import Asking, client_of_kind, define, refusal
from observing import eventually
from websockets.exceptions import ConnectionClosed

from ampsq import Client
from ampsq.gateway.failed_logins import Failures
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

#: Seconds that everything has on a crowded machine.
WITHIN = 30


client = client_of_kind


class Line:
    """A bare connection, which does nothing by itself."""

    def __init__(self, asking, *, buffer=None):
        self.address = urlsplit(asking.base)
        self.token = base64.b64encode(":".join(asking.auth).encode()).decode()
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(WITHIN)
        self.socket.connect((self.address.hostname, self.address.port))

    def say(self, head, *headers, body=b""):
        lines = [f"{head} HTTP/1.1", f"Host: {self.address.netloc}", f"Authorization: Basic {self.token}", *headers]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return self

    def upgrade(self, path):
        self.say(
            f"GET {path}",
            *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
            f"Sec-WebSocket-Key: {'A' * 22}==",
        )
        assert self.socket.recv(12) == b"HTTP/1.1 101"
        return self

    def frame(self, opcode, payload=b"", *, last=True):
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else bytes([0xFF]) + struct.pack("!Q", size)
        self.socket.sendall(bytes([(0x80 if last else 0) | opcode]) + length + bytes(4) + payload)

    def rest(self):
        """All that comes until it is closed."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(65536):
                found += part
        return found


@pytest.fixture
def line():
    with contextlib.ExitStack() as stack:

        def open_line(asking, **options):
            made = Line(asking, **options)
            stack.callback(made.socket.close)
            return made

        yield open_line


def connections(gateway):
    return len(gateway._server.server_state.connections)


# -- who does not go on


def test_who_sends_no_request_or_a_part_of_one_is_cut(serving, line):
    gateway = serving("gateway: {request_timeout: 300ms, send_timeout: 100ms}\n")
    audit = Asking(gateway, "audit")
    lines = [line(audit) for _ in range(3)]
    lines[1].socket.sendall(b"POST /v1/publish HTTP/1.1\r\nhost: x\r\n")
    lines[2].say("GET /healthz")
    assert b"200 OK" in lines[2].socket.recv(1000)
    lines[2].socket.sendall(b"GET /healthz HTTP/1.1\r\n")

    assert lines[0].rest() == b""
    eventually(lambda: connections(gateway) == 0, WITHIN)


def test_a_body_that_does_not_come_is_not_waited_for(serving, line, client):
    audit = Asking(serving("gateway: {request_timeout: 300ms, send_timeout: 100ms}\n"), "audit")
    slow = line(audit).say("POST /v1/publish", "content-type: application/json", "content-length: 100", body=b"{")

    assert b"504 Gateway Timeout" in slow.rest()
    assert client.admin.topics()["orders"].messages == 0


def test_a_body_that_is_too_large_is_refused_before_it_comes(gateway, line, audit):
    told = line(audit).say(
        "POST /v1/publish", "content-type: application/json", "content-length: 99999999999", "expect: 100-continue"
    )
    assert told.socket.recv(100).startswith(b"HTTP/1.1 413")
    chunks = line(Asking(gateway, "audit")).say(
        "POST /v1/publish", "content-type: application/json", "transfer-encoding: chunked"
    )
    with contextlib.suppress(ConnectionError):
        for _ in range(40):
            chunks.socket.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
    chunks.rest()
    eventually(lambda: connections(gateway) <= 1, WITHIN)


def test_who_does_not_take_its_answer_is_cut(serving, line, client):
    gateway = serving("gateway: {send_timeout: 200ms}\n")
    client.publish_many("orders", [b"x" * 1_000_000] * 20)
    audit = Asking(gateway, "audit")
    slow = [
        line(audit, buffer=4096).say("GET /v1/sow?name=work"),
        line(audit, buffer=4096).say("GET /v1/events?topic=orders&bookmark=epoch"),
        line(audit, buffer=4096).upgrade("/v1/subscribe?topic=orders&bookmark=epoch"),
        line(audit, buffer=4096).upgrade("/v1/subscribe?queue=work&max_backlog=10"),
    ]

    eventually(lambda: connections(gateway) == 0, WITHIN)
    eventually(lambda: len(gateway._served.desk.streams) == 0, WITHIN)
    eventually(lambda: client.admin.queue_stats("work").leased == 0, WITHIN)
    assert len(slow) == 4


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_what_a_subscriber_held_that_does_not_answer_is_back(serving, line, client):
    client.publish_many("orders", [1, 2, 3])
    audit = Asking(serving("gateway: {heartbeat: 300ms}\n"), "audit")
    line(audit).upgrade("/v1/subscribe?queue=work&max_backlog=3")

    eventually(lambda: client.admin.queue_stats("work").delivered == 3, WITHIN)
    eventually(lambda: client.admin.queue_stats("work").subscriptions == 0, WITHIN)
    eventually(lambda: client.admin.queue_stats("work").leased == 0, WITHIN)


def test_who_answers_pings_stays(serving, client):
    audit = Asking(serving("gateway: {heartbeat: 5s}\n"), "audit")
    with audit.open("/v1/subscribe", queue="work") as mine:
        assert mine.get(WITHIN)["type"] == "subscribed"
        with pytest.raises(TimeoutError):
            mine.get(6)
        client.publish("orders", 1)
        assert mine.get(WITHIN)["data"] == 1


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(gateway, audit, line):
    held = line(audit).say("GET /healthz")
    assert held.socket.recv(12) == b"HTTP/1.1 200"

    (made,) = gateway._server.server_state.connections
    assert made.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_goes_in_the_middle_of_a_body_is_no_failure_of_the_gateway(gateway, audit, line, caplog):
    gone = line(audit).say("POST /v1/publish", "content-type: application/json", "content-length: 9", body=b"{")
    eventually(lambda: gateway._served.desk._asking["audit"] == 1, WITHIN)
    gone.socket.close()

    eventually(lambda: not gateway._served.desk._asking, WITHIN)
    eventually(lambda: connections(gateway) == 0, WITHIN)
    assert [each.message for each in caplog.records if each.name == "ampsq.gateway"] == []


def test_who_still_waits_when_a_gateway_ends_is_told(gateway, audit, line):
    body = json.dumps({"topic": "orders", "data": 1, "persisted": "replicas=1"}).encode()
    waiting = line(audit).say(
        "POST /v1/publish", "content-type: application/json", f"content-length: {len(body)}", body=body
    )
    eventually(lambda: gateway._served.desk._asking["audit"] == 1, WITHIN)

    gateway.stop()

    told = waiting.rest()
    assert told.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in told
    assert b'"error":"Closed"' in told


# -- who asks for too much


def test_more_subscriptions_than_a_pool_has_connections_by_default_do_not_look_like_a_lost_server(
    serving, client, caplog
):
    audit = Asking(serving("gateway: {max_streams: 200}\n"), "audit")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(audit.open("/v1/subscribe", queue="work")) for _ in range(120)]
        assert {each.get(WITHIN)["type"] for each in opened} == {"subscribed"}
        client.publish_many("orders", range(120))
        assert sorted(each.get(WITHIN)["data"] for each in opened) == list(range(120))
    # What comes too late on a machine that does other work is nothing that a pool refused
    lost = [each.message for each in caplog.records if "lost" in each.message]
    assert not [each for each in lost if "nothing came in time" not in each]


def test_there_are_no_more_connections_than_are_allowed_of_either_kind(serving, line):
    gateway = serving("gateway: {max_connections: 3}\n")
    audit = Asking(gateway, "audit")
    for _ in range(3):
        line(audit).upgrade("/v1/subscribe?topic=orders")
    upgrade = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'A' * 22}==",
    )

    assert b"503 Service Unavailable" in line(audit).say("GET /v1/subscribe?topic=orders", *upgrade).rest()
    assert b"503 Service Unavailable" in line(audit).say("GET /healthz").rest()
    assert len(gateway._served.desk.streams) == 3


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_user_has_no_more_requests_and_bytes_at_once_than_are_allowed(serving, line):
    gateway = serving("gateway: {max_requests: 2, max_pending_size: 1kb}\n")
    audit, till = Asking(gateway, "audit"), Asking(gateway, "till")
    large = {"topic": "orders", "data": "x" * 2000}
    assert refusal(audit.post("/v1/publish", **large)) == (429, "TooMuchAtOnce")

    for _ in range(2):
        line(audit).say("POST /v1/publish", "content-type: application/json", "content-length: 9")

    def refused():
        answer = audit.post("/v1/publish", topic="orders", data=1)
        return answer.status_code != 200 and refusal(answer)[1]

    assert eventually(refused, WITHIN) == "TooManyRequests"
    assert till.post("/v1/publish", topic="orders", data={"till": 4}).status_code == 200


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_frames_that_are_too_large_or_too_many_end_a_subscription_and_no_other(gateway, audit, line):
    with audit.open("/v1/subscribe", queue="work") as other:
        other.get()
        large = line(audit).upgrade("/v1/subscribe?queue=work")
        large.frame(1, b"x" * 100_000)
        many = line(audit).upgrade("/v1/subscribe?queue=work")
        many.frame(1, last=False)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                many.frame(0, last=False)

        for each in (large, many):
            assert struct.pack("!H", 1009) in each.rest()
        eventually(lambda: len(gateway._served.desk.streams) == 1, WITHIN)
        audit.publish("orders", 1)
        assert other.get(WITHIN)["data"] == 1


@pytest.mark.parametrize(
    "said",
    [
        "", "{", "[]", "7", "null", '"ack"', "[" * 30_000, '{"do": []}', '{"do": "ack"}', '{"do": "ack", "id": []}',
        '{"do": "ack", "id": 1e999}', '{"do": "ack", "id": NaN}', '{"do": "extend", "id": 1}',
        '{"do": "extend", "id": 1, "period": {}}', '{"do": "cancel", "id": 9, "delay": "soon"}', b"\x00\xff",
        '{"do": "\\ud800", "id": 1}', '{"do": "ack", "id": ' + "9" * 5_000 + "}",
    ],
)  # fmt: skip
def test_what_a_subscriber_says_wrong_is_answered_and_it_goes_on(audit, said):
    audit.publish("orders", 1)
    with audit.open("/v1/subscribe", queue="work") as mine:
        assert [mine.get()["type"] for _ in range(2)] == ["subscribed", "message"]

        mine.socket.send(said)

        assert mine.get(WITHIN)["error"] in {"DefinitionError", "ValueError"}
        assert mine.ask(do="ack", id=1)["type"] == "settled"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000, b'{"topic": "orders", "data": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"topic": "orders", "data": NaN}', b'{"topic": "orders", "data": 1e999}', b'\xff{"topic": "orders"}',
        b'{"topic": "orders", "data": "\\ud800"}', b'{"topic": "orders", "data": ' + b"9" * 10_000 + b"}",
        b'{"topic": "orders", "data": 1, "headers": {"a": "\\ud800"}}', b'{"topic": ["orders"], "data": 1}',
        b'{"topic": "orders\\u0000", "data": 1}', b'{"topic": "orders", "data": 1, "expiration": {}}',
        b'{"topic": "orders", "data": 1, "delay": -1}', b'{"topic": "orders", "data": 1, "delay": 1e308}',
        b'{"topic": "orders", "data": 1, "at": "9999-12-31T23:59:59+00:00x"}', b"", b"null",
        b'{"topic": "orders", "data": 1, "persisted": ["fsync"]}',
    ],
)  # fmt: skip
def test_bodies_that_nobody_means_well_by_are_refused(audit, client, body):
    sent = {"content-type": "application/json"}

    answer = httpx.post(audit.base + "/v1/publish", content=body, headers=sent, auth=audit.auth, timeout=WITHIN)

    assert refusal(answer) in {(400, "DefinitionError"), (400, "ExpressionError")}
    assert client.admin.topics()["orders"].messages == 0


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_half_a_character_that_others_wrote_is_told_as_json_can(audit, client):
    plain = client._store.redis
    plain.xadd(key(client.instance, "log", "orders"), {"b": b"1", "h": b'{"a": "\\ud800"}'})
    plain.xadd(key(client.instance, "log", "positions"), {"b": b'{"symbol": "\\ud800\xff"}'})

    assert audit.get("/v1/sow", name="positions").status_code in {200, 400}
    with audit.open("/v1/subscribe", topic="orders", bookmark="epoch") as mine:
        assert mine.get(WITHIN)["headers"] == {"a": "\ud800"}


def test_no_header_of_an_answer_has_what_was_asked_and_no_path_leads_elsewhere(audit):
    for text in ("a\r\nset-cookie: a=b", "orders%0d%0aset-cookie:%20a=b"):
        answers = [
            audit.get("/v1/sow", name=text),
            audit.get("/v1/events", topic="orders", bookmark=text),
            httpx.get(f"{audit.base}/v1/sow?name={text.encode().hex()}&x=%0d%0a", auth=audit.auth),
        ]
        for answer in answers:
            assert answer.status_code == 400
            assert "set-cookie" not in answer.headers
    for path in ("/v1%2Fsow%3Fname=work", "/v1/sow/..%2f..%2fhealthz", "/v1/sow/", "//v1/sow", "/v1/%73ow"):
        bare = httpx.get(audit.base + path, follow_redirects=False)
        assert bare.status_code in {307, 401, 404}


# -- who guesses


def test_who_guesses_is_let_try_again_later_and_who_is_known_is_let_in(desk):
    assert desk.get("/v1/sow", name="work").status_code == 200
    guesses = [httpx.get(desk.base + "/v1/sow", auth=("desk", f"guess {i}"), timeout=WITHIN) for i in range(12)]

    assert [refusal(answer) for answer in guesses[:9]] == [(401, "NotAuthenticated")] * 9
    assert refusal(guesses[-1]) == (429, "TooManyFailures")
    assert 1 <= int(guesses[-1].headers["retry-after"]) <= 6
    assert desk.get("/v1/sow", name="work").status_code == 200


def test_failures_are_counted_by_network_and_forgotten_in_time():
    now = [0.0]
    failures = Failures(lambda: now[0])

    assert [failures.spend("10.0.0.1") for _ in range(10)] == [0.0] * 10
    assert failures.spend("10.0.0.1") == 6.0
    assert failures.spend("10.0.0.2") == 0.0
    now[0] = 6.0
    assert [failures.spend("10.0.0.1"), failures.spend("10.0.0.1")] == [0.0, 6.0]
    for i in range(10):
        assert failures.spend(f"2001:db8::{i}") == 0.0
    assert failures.spend("2001:db8::ffff") == 6.0
    for _ in range(100):
        assert failures.spend("here") == 0.0
        failures.give_back("here")
    for i in range(20_000):
        failures.spend(f"10.1.{i // 256}.{i % 256}")
    assert len(failures) == 10_000


# -- a server that comes back


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_subscribers_go_on_when_the_server_is_back(kind, start_server, instance, serving_on, short_path):
    server = start_server(kind, appendonly=True, data_dir=short_path)
    with Client(server.url, instance=instance) as client:
        define(client)
        audit = Asking(serving_on(client), "audit")
        with (
            audit.open("/v1/subscribe", queue="work", max_backlog=2) as queue,
            audit.open("/v1/subscribe", topic="orders") as topic,
        ):
            assert queue.get(WITHIN)["type"] == "subscribed"
            audit.once("/v1/publish", ("p", 1), topic="orders", data=1)
            first = queue.get(WITHIN)
            assert topic.get(WITHIN)["data"] == 1

            server.process.kill()
            server.process.wait()
            start_server(kind, appendonly=True, data_dir=short_path)

            answer = audit.once("/v1/publish", ("p", 2), topic="orders", data=2)
            assert answer.json()["duplicate"] is False
            assert queue.get(WITHIN)["data"] == 2
            assert topic.get(WITHIN)["data"] == 2
            assert queue.ask(do="ack", id=first["id"])["type"] in {"settled", "error"}
    with pytest.raises(ConnectionClosed):
        queue.get(1)


def test_what_the_gateway_does_not_have_is_refused_as_json_that_says_what_it_has(audit):
    missing, method = httpx.get(f"{audit.base}/v2/publish"), httpx.get(f"{audit.base}/v1/publish")
    assert (missing.status_code, missing.json()["error"]) == (404, "UnknownAddress")
    assert "'/v2/publish' is no address of the gateway; /openapi.json" in missing.json()["text"]
    assert (method.status_code, method.json()["error"], method.headers["allow"]) == (405, "UnknownMethod", "POST")
    assert "GET '/v1/publish': allowed is POST" in method.json()["text"]


def test_a_page_of_another_origin_and_another_host_are_refused_as_json(audit):
    theirs = httpx.get(f"{audit.base}/openapi.json", headers={"origin": "http://evil.example"})
    host = httpx.get(f"{audit.base}/openapi.json", headers={"host": "evil.example"})
    assert (theirs.status_code, theirs.json()["error"]) == (403, "OtherOrigin")
    assert (host.status_code, host.json()["error"]) == (421, "OtherHost")
    assert "--host" in host.json()["text"]
