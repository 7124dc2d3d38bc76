"""Clients, proxies and child processes, each ended with its test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from evidence import Evidence
from network import Node, Relay
from proxy import Proxy

from ampsq import Client


@pytest.fixture
def connect(instance):
    """Open clients: ``connect(url, ...)``."""
    with contextlib.ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(Client(url, instance=instance, **options))


@pytest.fixture
def evidence_of(instance):
    return lambda client: Evidence(client.url, instance, client.origin)


@pytest.fixture
def proxy(valkey):
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        proxy = Proxy(Path(folder, "p"), valkey.socket)
        with contextlib.closing(proxy):
            yield proxy


@pytest.fixture
def launch_child():
    """Start a Python process: ``launch_child(arguments...)``; it is killed with the test, by its id."""
    children = []

    def launch(*arguments):
        children.append(
            subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        return children[-1]

    yield launch
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def start_node(server_program):
    """Start servers on ports: ``start_node(options=[...], kind="redis", sentinel=False)``; ended with the test."""
    nodes = []
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:

        def start(*, options=(), kind="redis", sentinel=False, password=None):
            nodes.append(
                Node(server_program(kind), Path(folder, str(len(nodes))), options, sentinel=sentinel, password=password)
            )
            return nodes[-1]

        yield start
        for node in nodes:
            if node.process.poll() is None:
                node.kill()


@pytest.fixture
def relay_to():
    """Start relays: ``relay_to(port)``."""
    with contextlib.ExitStack() as stack:
        yield lambda port: stack.enter_context(contextlib.closing(Relay(port)))
