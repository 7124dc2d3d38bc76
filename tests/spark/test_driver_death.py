"""A stream whose driver is killed, Java and all, in the middle: started again, it goes on, and each row counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ampsq import Topic
from ampsq.protocol.schema import key

_PROGRAM = Path(__file__).with_name("dying_driver.py")
_ROWS = 2_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def start(options, tmp_path):
    """Start the program in a process group of its own, which is ended with the test."""
    started = []

    def run(protocol):
        arguments = [options["url"], options["instance"], str(tmp_path / "checkpoint"), protocol]
        started.append(
            subprocess.Popen(
                [sys.executable, str(_PROGRAM), *arguments],
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_each_row_is_copied_once(client, start):
    client.apply(Topic(name="copies"))
    client.publish_many("orders", [b"%d" % number for number in range(_ROWS)])
    log = key(client.instance, "log", "copies")
    with client.subscribe_topic("copies", bookmark="epoch") as copies:
        first = start("staged")
        for _ in range(_ROWS // 4):
            assert copies.get("120s") is not None, f"the stream is not on its way; its program's end: {first.poll()}"
        assert first.poll() is None, "it ended before it was killed"
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert client._store.redis.xlen(log) < _ROWS

    assert start("staged").wait(200) == 0

    copied = Counter(int(fields[b"b"]) for _, fields in client._store.redis.xrange(log))
    assert copied == Counter(range(_ROWS))
