"""A gateway on a real server, and clients that ask it over real sockets."""

from __future__ import annotations

import json
from functools import cache

import httpx
import pytest
from jsonschema import Draft202012Validator
from websockets.sync.client import connect

from ampsq import Client, Queue, Topic
from ampsq.gateway import Gateway, read_rules
from ampsq.gateway.asyncapi import frames_document
from ampsq.gateway.openapi import document
from ampsq.gateway.users import Secret, _scrypt

#: Little work, so that tests are quick; what is tested of the hash is not its cost.
WORK = (4, 8, 1)
SECRETS = {"desk": "tea", "till": "cash", "audit": "ink", "stranger": "none", "clerk": "ledger"}


def hashed(text):
    salt = b"salt of a test--"
    return str(Secret(WORK, salt, _scrypt(text, salt, WORK)))


RULES = f"""
users:
  - {{name: desk, secret: "{hashed("tea")}"}}
  - {{name: till, secret: "{hashed("cash")}"}}
  - {{name: audit, secret: "{hashed("ink")}"}}
  - {{name: stranger, secret: "{hashed("none")}"}}
entitlements:
  - {{user: till, name: orders, rights: write, write_filter: /till = 4}}
  - {{user: till, name: positions, rights: [read, write]}}
  - {{user: desk, name: work, rights: read, read_filter: "/region = 'EU'"}}
  - {{user: desk, name: orders, rights: read, read_filter: "/region = 'EU'"}}
  - {{user: desk, name: positions, rights: read, read_filter: /qty > 1}}
  - {{user: audit, name: "^.*$", rights: [read, write]}}
"""


def as_documented(answer):
    """An answer, which is what the OpenAPI document says of it."""
    asked = answer.request
    responses = document()["paths"][asked.url.path][asked.method.lower()]["responses"]
    response = responses.get(str(answer.status_code))
    assert response is not None, f"{asked.url.path} answers {answer.status_code}: not in the document"
    if "$ref" in response:
        response = document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    kind = answer.headers["content-type"].partition(";")[0]
    Draft202012Validator(response["content"][kind]["schema"]).validate(
        answer.json() if kind == "application/json" else answer.text
    )
    return answer


class Asking:
    """A gateway, and one user of it."""

    def __init__(self, gateway, user):
        self.gateway, self.user = gateway, user
        self.auth = (user, SECRETS[user])
        self.base = gateway.address
        self.headers = {}

    def get(self, path, **parameters):
        return as_documented(httpx.get(self.base + path, params=parameters, auth=self.auth, timeout=30))

    def post(self, path, **given):
        sent = {"json": given, "auth": self.auth, "headers": self.headers}
        return as_documented(httpx.post(self.base + path, timeout=30, **sent))

    def once(self, path, key, /, **given):
        """Post it under an idempotency key, or as a number of a publisher."""
        publisher = {"ampsq-publisher": key[0], "ampsq-sequence": str(key[1])} if isinstance(key, tuple) else None
        self.headers = publisher or {"idempotency-key": key}
        try:
            return self.post(path, **given)
        finally:
            self.headers = {}

    def publish(self, topic, *messages):
        for message in messages:
            answer = self.post("/v1/publish", topic=topic, data=message)
            assert answer.status_code == 200, answer.text

    def open(self, path, **parameters):
        address = httpx.URL(self.base.replace("http", "ws", 1) + path, params=parameters)
        bearer = {"authorization": f"Bearer {self.auth[0]}:{self.auth[1]}"}
        made = connect(str(address), additional_headers=bearer, open_timeout=30, close_timeout=30)
        return Socket(made, channel_of(path, parameters))


def channel_of(path, parameters):
    """The name in the AsyncAPI document of what is opened."""
    if path == "/v1/sow_and_subscribe":
        return "records"
    return "queue" if "queue" in parameters else "durable" if "sub_id" in parameters else "topic"


@cache
def frames_of(operation):
    """Return the check of the frames of one operation of the AsyncAPI document."""
    text = frames_document()
    messages = [each["$ref"].rpartition("/")[2] for each in text["operations"][operation]["messages"]]
    return Draft202012Validator(
        {"anyOf": [{"$ref": f"#/components/schemas/{each}"} for each in messages], "components": text["components"]}
    )


class Socket:
    """A WebSocket that speaks JSON, whose frames are all what the AsyncAPI document says."""

    def __init__(self, socket, channel):
        self.socket, self.channel = socket, channel

    def get(self, timeout=30):
        told = json.loads(self.socket.recv(timeout))
        frames_of(f"tell_{self.channel}").validate(told)
        return told

    def say(self, **order):
        self.socket.send(json.dumps(order))

    def ask(self, **order):
        self.say(**order)
        told = self.get()
        # What the document does not have is refused
        assert frames_of(f"order_{self.channel}").is_valid(order) or told["type"] == "error"
        return told

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def serve(url, instance, rules="", **options):
    gateway = Gateway(url, instance, read_rules(RULES + rules), **options)
    gateway.start()
    return gateway


def define(client):
    """Define what the rules are about."""
    client.apply(
        Topic(name="orders"),
        Topic(name="positions", key="/symbol"),
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10),
    )


@pytest.fixture
def client_of_kind(_session_servers, kind, instance):
    """A client as `client` is, on the server that a fixture `kind` names."""
    with Client(_session_servers(kind).url, instance=instance) as client:
        define(client)
        yield client


def refusal(answer):
    assert answer.json().keys() == {"type", "error", "text"}
    return answer.status_code, answer.json()["error"]
