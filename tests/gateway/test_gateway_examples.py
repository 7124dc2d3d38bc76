"""The example of a client and the commands of the page, run against a gateway as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gateway_scene import client_of_kind

ROOT = Path(__file__).parents[2]


client = client_of_kind


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_the_example_sells_and_works_off_what_it_sold(gateway, client):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/gateway_client.py"), gateway.address, "audit", "ink"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *bookmarks, worked = done.stdout.splitlines()
    assert all(bookmark.startswith("orders~") for bookmark in bookmarks)
    assert worked == "[{'item': 'tea'}, {'item': 'ink'}, {'item': 'cash box'}]"
    assert client.admin.topics()["orders"].messages == 3


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_the_commands_of_the_page_do_what_it_says(gateway, client):
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH")
    shell = shutil.which("bash")
    text = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
    commands = re.search(r"## With curl\n.*?```console\n(.*?)```", text, re.DOTALL)[1]
    where = {**os.environ, "GATEWAY": gateway.address, "USER_SECRET": "audit:ink"}
    done = subprocess.run(
        [shell, "-euc", commands], env=where, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [answer.get("duplicate") for answer in answers[:2]] == [False, True]
    assert len(answers[2]["bookmarks"]) == 2
    assert answers[4]["messages"][0]["data"] == {"symbol": "IBM", "qty": 5}
    assert answers[5] == {"deleted": 1}
    assert "event: message" in done.stdout
    assert [message.data for message in client.sow("positions")] == []
