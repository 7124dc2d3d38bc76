"""A gateway on a real server, and clients that ask it over real sockets."""

from __future__ import annotations

import json

import httpx
from websockets.sync.client import connect

from ampsq.gateway import Gateway, read_rules
from ampsq.gateway.users import Secret, _scrypt

#: Little work, so that tests are quick; what is tested of the hash is not its cost.
WORK = (4, 8, 1)
SECRETS = {"desk": "tea", "till": "cash", "audit": "ink", "stranger": "none"}


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


class Asking:
    """A gateway, and one user of it."""

    def __init__(self, gateway, user):
        self.gateway, self.user = gateway, user
        self.auth = (user, SECRETS[user])
        self.base = gateway.address

    def get(self, path, **parameters):
        return httpx.get(self.base + path, params=parameters, auth=self.auth, timeout=10)

    def post(self, path, **given):
        return httpx.post(self.base + path, json=given, auth=self.auth, timeout=10)

    def publish(self, topic, *messages):
        for message in messages:
            answer = self.post("/v1/publish", topic=topic, data=message)
            assert answer.status_code == 200, answer.text

    def open(self, path, **parameters):
        address = httpx.URL(self.base.replace("http", "ws", 1) + path, params=parameters)
        bearer = {"authorization": f"Bearer {self.auth[0]}:{self.auth[1]}"}
        return Socket(connect(str(address), additional_headers=bearer, open_timeout=10, close_timeout=5))


class Socket:
    """A WebSocket that speaks JSON."""

    def __init__(self, socket):
        self.socket = socket

    def get(self, timeout=5):
        return json.loads(self.socket.recv(timeout))

    def say(self, **order):
        self.socket.send(json.dumps(order))

    def ask(self, **order):
        self.say(**order)
        return self.get()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def serve(url, instance, rules="", **options):
    gateway = Gateway(url, instance, read_rules(RULES + rules), **options)
    gateway.start()
    return gateway
