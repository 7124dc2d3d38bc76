"""World of the soak: two instances that share a queue, their servers and a replica, and every kind of queue."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from soak_probe import ENVIRONMENT

from ampsq import Action, Client, Destination, Do, On, Queue, Topic, View
from ampsq.protocol import scripts

__all__ = [
    "CONSUMED",
    "ORDERS",
    "QUEUES",
    "SYMBOLS",
    "TOPICS",
    "Child",
    "Host",
    "body_of",
    "define",
    "is_alert",
    "is_barrier",
]

HERE = Path(__file__).parent
SYMBOLS = ("IBM", "AAPL", "MSFT", "ORCL")
#: The publishers of `sales`.
ORDERS = ("plain", "guaranteed", "tasks", "kept")
#: Topic -> its publishers, as the bodies name them.
TOPICS = {"sales": ORDERS, "errands": ("here", "there"), "spark-rows": ("spark",)}


def is_barrier(by, number):
    """Return whether a publisher's message of a number is a barrier of the queue `days`."""
    return by == "tasks" and number % 25 == 24


def is_alert(number):
    """Return whether an order is told to the webhook."""
    return number % 20 == 7


def is_rejected(number):
    """Return whether the workers of `main` give an order up for good."""
    return number % 25 == 13


def symbol_of(number):
    return SYMBOLS[number % 4]


def body_of(by, number):
    """The body of a publisher's message of that number, which says by itself who consumes it."""
    body = {"by": by, "n": number, "p": number * 7 % 11, "s": symbol_of(number), "text": "x" * (20 + number % 60)}
    if is_barrier(by, number):
        body["barrier"] = 1
    if is_alert(number):
        body["alert"] = 1
    return body


#: Queue -> its topic, and which messages it is to deliver; of the queues whose consumers write down what they had.
CONSUMED = {
    "main": ("sales", lambda _by, _number: True),
    "ranked": ("sales", lambda _by, _number: True),
    "chosen": ("sales", lambda _by, number: symbol_of(number) in SYMBOLS[:2]),
    "days": ("sales", lambda by, number: not is_barrier(by, number)),
    "cli": ("sales", lambda _by, _number: True),
    "shared": ("errands", lambda _by, _number: True),
    "spark": ("spark-rows", lambda _by, _number: True),
}
#: Other queues than these are those of the dump.
QUEUES = {*CONSUMED, "ring", "quick", "changes", "letters", "view"}


def define(here, there, hook):
    """Define all that the soak needs at both instances.

    Args:
        here: one of the hosts.
        there: the other one.
        hook: the address that alerts are posted to.
    """
    kept = {"retention_age": "0s"}
    over = {"underlying_topic": "sales", "lease_period": "20s", "max_per_subscription_backlog": 50}
    shared = Queue(name="shared", underlying_topic="errands", lease_period="20s", max_per_subscription_backlog=50)
    with Client(here.url, instance=here.name) as client:
        client.apply(
            *(Topic(name=name, **kept) for name in ("sales", "errands", "letters", "spark-rows", "per-symbol")),
            Topic(name="shelves", key="/id", **kept),
            # What is kept for ever lets a rewrite of the append-only file take its time.
            Topic(name="archive"),
            Queue(name="main", **over),
            Queue(name="ranked", priority="/p", **over),
            Queue(name="chosen", filter="/s = 'IBM' OR /s = 'AAPL'", **over),
            Queue(name="days", barrier_expression="/barrier IS NOT NULL", **over),
            Queue(name="cli", **over),
            Queue(name="ring", ring_size=50, **over),
            Queue(name="quick", expiration="2s", **over),
            Queue(name="changes", underlying_topic="shelves", max_per_subscription_backlog=50),
            Queue(name="spark", underlying_topic="spark-rows", max_per_subscription_backlog=50),
            Queue(name="letters", underlying_topic="letters", max_per_subscription_backlog=50),
            View(
                name="per-symbol",
                underlying_topic="quick",
                projection=["/s", "/p", "COUNT(*) AS /orders"],
                grouping=["/s", "/p"],
            ),
            Queue(name="view", underlying_topic="per-symbol", max_per_subscription_backlog=50),
            Action.dead_letter("main", "letters"),
            Action(
                name="alerts",
                on=On.publish(topic="sales", filter="/alert = 1"),
                do=Do.webhook(url=hook),
            ),
            shared,
        )
    with Client(there.url, instance=there.name) as client:
        client.apply(Topic(name="errands", **kept), shared)
    for one, other in ((here, there), (there, here)):
        with Client(one.url, instance=one.name) as client:
            client.apply(
                Destination(
                    name="other",
                    sync_type="sync",
                    topics=["errands", "shared"],
                    addresses=[f"{other.url}#{other.name}"],
                )
            )


def launcher():
    """Return the launcher by which the tests start servers."""
    spec = importlib.util.spec_from_file_location("conftest_of_tests", HERE.parent / "conftest.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Host:
    """A server of the soak, across its deaths.

    Args:
        launch: starts servers.
        folder: where its data is.
        name: of its instance.
        kind: which program.
        options: how it is started.
    """

    def __init__(self, launch, folder, name, kind, *options):
        self._launch, self._folder, self.name, self.kind = launch, folder, name, kind
        self.port = free_port()
        self._options = ("--port", self.port, "--bind", "127.0.0.1", *options)
        self.server = None
        self.start()

    @property
    def url(self):
        return self.server.url

    @property
    def pid(self):
        return self.server.process.pid

    def start(self):
        """Start the server with all scripts: those that somebody needs later would count as growth of its heap."""
        self.server = self._launch(self.kind, self._folder, appendonly=True, options=self._options)
        with self.redis() as redis:
            for name in scripts.names():
                redis.script_load(scripts.script(name).source)

    def kill(self):
        """Kill the server at once; says whether it was alive."""
        is_alive = self.server.process.poll() is None
        self.server.process.kill()
        self.server.process.wait()
        return is_alive

    def redis(self):
        return contextlib.closing(self.server.client())

    def ask(self, section):
        with self.redis() as redis:
            return redis.info(section)

    def end(self):
        self.server.end()


class Child:
    """A process of the soak that may be killed and started again.

    Args:
        folder: of the run.
        name: of the process, in its files.
        command: behind the program that measures it.
    """

    def __init__(self, folder, name, *command):
        self._folder, self.name, self._command = folder, name, command
        self.process, self.starts = None, 0
        self.told = folder / "probe" / name

    def _environment(self):
        # What is imported is compiled once, also where others keep nothing: who was killed imports all of it again.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return kept | (ENVIRONMENT if self.is_steady else {}) | {"SOAK_FOLDER": str(self._folder)}

    @property
    def is_steady(self):
        """Return whether nobody kills it, so that what it uses can be compared over the whole run."""
        return "steady" in self.name

    @property
    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        self.starts += 1
        with (self._folder / "said" / self.name).open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "soak_probe.py"), str(self.told), *self._command],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=HERE,
                env=self._environment(),
            )  # fmt: skip

    def kill(self):
        """Kill the process at once; says whether it was alive."""
        is_alive = self.is_alive
        self.process.kill()
        self.process.wait()
        return is_alive

    def measures(self):
        """All that it told of itself, oldest first."""
        return [json.loads(line) for line in self.told.read_text().splitlines()] if self.told.exists() else []

    def end(self):
        if self.is_alive:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Hook(ThreadingHTTPServer):
    """The receiver of the webhook's calls; `calls` has their bodies."""

    def __init__(self):
        self.calls = []
        super().__init__(("127.0.0.1", 0), _Answer)
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/alerts"

    def end(self):
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.calls.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass
