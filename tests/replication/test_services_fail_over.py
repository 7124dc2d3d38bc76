"""Workers and commands with several instances: they go on at the next one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading

import pytest
from observing import eventually

from ampsq import Worker

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "ampsq.cli"]


@contextlib.contextmanager
def running(worker):
    """Run a worker in a thread."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def run(*arguments):
    """Run a command to its end, and give what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AMPSQ_")}
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=90, check=False, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_workers_and_commands_go_on_at_the_other_instance(homes):
    url = f"{homes.address('a')},{homes.address('b')}"
    plain, awaited = [], []

    async def handle(message):
        awaited.append(message.data)

    workers = [
        Worker(lambda message: plain.append(message.data), "work", client=homes.client(heartbeat="1s")),
        Worker(handle, "work", client=homes.client(heartbeat="1s")),
    ]
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.enter_context(running(worker))
        homes.admins["a"].publish_many("orders", [1, 2, 3, 4])
        eventually(lambda: sorted(plain + awaited) == [1, 2, 3, 4], 30)
        # What was acknowledged is known at both before one of them is lost.
        eventually(lambda: homes.admins["b"].admin.queue_stats("work").acknowledged == 4, 30)
        homes.kill("a")
        run("publish", "orders", "5", "--url", url, "--failover", "warn")
        homes.admins["b"].publish_many("orders", [6, 7, 8])
        printed = run("subscribe-topic", "orders", "--bookmark", "epoch", "--count", "8", "--json", "--url", url)

        eventually(lambda: sorted(plain + awaited) == [*range(1, 9)], 30)
        assert sorted(json.loads(line)["data"] for line in printed.splitlines()) == [*range(1, 9)]
