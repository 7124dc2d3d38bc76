"""docs/first-worker.md, followed as a reader follows it: its files in an empty folder, its commands in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from observing import eventually
from programs import Called, Shell

from ampsq import Client
from ampsq.server.embedded import acquire

PAGE = (Path(__file__).parents[2] / "docs" / "first-worker.md").read_text()


@pytest.fixture
def shop(tmp_path):
    """A folder with the files of the page."""
    for name, text in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(shop, *arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=shop,
        env={**os.environ, "AMPSQ_URL": "", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_tests_of_the_page_pass(shop):
    done = run(shop, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_worker_of_the_page_handles_fails_and_is_sent_back_what_was_mended(shop, tmp_path):
    (command,) = re.findall(r"^ampsq worker (.*)$", PAGE, re.MULTILINE)

    with acquire(tmp_path / "d") as server, Client(server.url) as client:
        worker = subprocess.Popen(
            [sys.executable, "-m", "ampsq.cli", "worker", *command.split()],
            cwd=shop,
            env={**os.environ, "AMPSQ_URL": server.url},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: "orders-failed" in client.admin.queues(), within=120.0)
            published = run(shop, "shop.py", AMPSQ_URL=server.url)
            eventually(lambda: client.admin.queue_stats("orders-failed").depth == 2, within=120.0)
            first = worker.stdout.readline()
            said = Shell(Called(shop, server.url))(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[0])
            second = worker.stdout.readline()
        finally:
            worker.terminate()
            worker.communicate(timeout=60)

    assert (published.returncode, published.stderr) == (0, "")
    assert (first, second) == ("order 1: 5.00\n", "order 3: 2.00\n")
    assert "max_deliveries" in said
    assert worker.returncode == 0
