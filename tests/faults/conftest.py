"""Instances, proxies, coordinators and child processes, each ended with its test."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from evidence import Evidence
from proxy import Proxy

from ampsq import Client
from ampsq.coordinator import Coordinator

_numbers = itertools.count(1)


@pytest.fixture
def instance():
    return f"fault-{os.getpid()}-{next(_numbers)}"


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


@contextlib.contextmanager
def _coordinating(url, instance):
    coordinator = Coordinator(url, [instance])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()
        thread.join()


@pytest.fixture
def coordinate(instance):
    """Start a coordinator of the test's instance in a thread: ``coordinate(url)``."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(_coordinating(url, instance))


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
