"""A request to stop: made by whoever, noticed at once, and nothing wakes who waits for it meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from observing import eventually

from ampsq.base.shutdown import StopRequest

WAITING = """
import signal, sys
from ampsq.base.shutdown import StopRequest

stopping = StopRequest()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
# A signal that stops nobody
signal.signal(signal.SIGUSR1, lambda *_: None)
print("waiting", flush=True)
stopping.wait()
print("stopped", flush=True)
"""


@pytest.fixture
def waiting():
    """A process whose main thread waits to be stopped by SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        yield process
        process.kill()


def wakeups(process):
    """Return how often the main thread of a process has left the processor by itself."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_a_signal_stops_who_waits_at_once(waiting):
    began = time.monotonic()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.stdout.readline() == "stopped\n"
    assert time.monotonic() - began < 0.5


def test_who_waits_is_woken_by_nothing_else(waiting):
    eventually(lambda: "S (sleeping)" in Path(f"/proc/{waiting.pid}/status").read_text())
    before = wakeups(waiting)
    time.sleep(2.5)  # a look each second would show
    assert wakeups(waiting) == before


def test_signals_that_stop_nobody_are_handled_and_the_wait_goes_on(waiting):
    for _ in range(100):
        waiting.send_signal(signal.SIGUSR1)
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGTERM)
    assert waiting.stdout.readline() == "stopped\n"


@pytest.mark.parametrize("waits_in", ["main", "thread"])
def test_another_thread_stops_who_waits(waits_in):
    request = StopRequest()
    if waits_in == "main":
        stopping = threading.Timer(0.2, request.set)
        stopping.start()
        began = time.monotonic()
        assert request.wait(30)
        assert time.monotonic() - began < 5
        stopping.join()
        return
    found = []
    threads = [threading.Thread(target=lambda: found.append(request.wait(30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    request.set()
    for thread in threads:
        thread.join(5)
    assert found == [True] * 3
    assert request.wait()


def test_a_wait_ends_with_its_time():
    request = StopRequest()
    assert not request.wait(0.05)
    assert not request.wait(0)
    assert not request.is_set()


def test_whoever_else_learns_of_signals_goes_on_doing_so():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        former = signal.signal(signal.SIGUSR1, lambda *_: request.set())
        try:
            request = StopRequest()
            sending = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            sending.start()
            assert request.wait(10)
            sending.join()
            assert ours.recv(1) == bytes([signal.SIGUSR1])
            assert signal.set_wakeup_fd(-1) == theirs.fileno()
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGUSR1, former)
