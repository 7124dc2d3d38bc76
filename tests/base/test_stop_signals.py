"""Signals that ask a program to stop: the first one, what repeats it at once, and a later one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from ampsq.base import shutdown

PROGRAM = """
import asyncio, sys, time
from ampsq import AsyncWorker, Client, Queue, Worker

def handle(message):
    print("begun", flush=True)
    time.sleep(float(message.data))  # the handler's work, in seconds
    print("ended", flush=True)

async def handle_later(message):
    print("begun", flush=True)
    await asyncio.sleep(float(message.data))  # the handler's work, in seconds
    print("ended", flush=True)

with Client(sys.argv[2], instance=sys.argv[3]) as client:
    client.apply(Queue(name="work"))
    client.publish("work", sys.argv[4])
if sys.argv[1] == "Worker":
    Worker(handle, "work", url=sys.argv[2], instance=sys.argv[3]).run(signals=True)
else:
    asyncio.run(AsyncWorker(handle_later, "work", url=sys.argv[2], instance=sys.argv[3]).run(signals=True))
print("stopped", flush=True)
"""


@pytest.fixture(params=["Worker", "AsyncWorker"])
def working(request, valkey, instance):
    """A program whose handler works: ``working(seconds)``."""
    processes = []

    def start(seconds):
        arguments = [sys.executable, "-c", PROGRAM, request.param, valkey.url, instance, str(seconds)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_twice_at_once_lets_handlers_end(working, number):
    # As timeout(1) sends it, to the process and to its group.
    process = working(0.5)

    process.send_signal(number)
    time.sleep(0.05)  # two that nobody has taken yet are one
    process.send_signal(number)

    assert process.communicate(timeout=30)[0].split() == ["ended", "stopped"]
    assert process.returncode == 0


def test_a_second_signal_later_ends_the_process(working):
    process = working(60)

    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2 * shutdown._SAME)
    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == -signal.SIGTERM
