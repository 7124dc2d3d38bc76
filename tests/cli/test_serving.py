"""--console and --log-format: what services serve beside what they do, and how they say it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from urllib.parse import urlsplit


def asked(address, path):
    line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=90)
    with contextlib.closing(line):
        line.request("GET", path)
        return line.getresponse().read().decode()


def test_a_coordinator_serves_its_console_and_logs_json(process):
    with process.client():
        pass
    instance = process.environment["AMPSQ_INSTANCE"]
    started = process.start("coordinator", "--console", "--log-format", "json")

    said = started.stdout.readline()

    name, address = said.split()
    assert name == "console"
    assert urlsplit(address).hostname == "127.0.0.1"
    assert asked(address, "/readyz") == "ok\n"
    assert f'ampsq_up{{ampsq_instance="{instance}"}} 1.0' in asked(address, "/metrics")
    done = process.end(started)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert [line["message"] for line in lines if line["logger"] == "ampsq.coordinator"][-1] == "coordinator stopped"
    assert set(lines[0]) == {"time", "level", "logger", "process", "thread", "message"}
    # Whoever reads logs shall not be let in.
    assert urlsplit(address).query.partition("=")[2] not in done.err


def test_up_serves_a_console_of_the_server_that_it_starts(alone):
    started = alone.start("up", "--json", "--console", "127.0.0.1:0", "--console-read-only")
    said = json.loads(started.stdout.readline())

    assert asked(said["console"], "/healthz") == "ok\n"
    assert alone.end(started).code == 0


def test_where_a_console_cannot_be_is_said(process):
    assert "allowed are HOST:PORT" in process("coordinator", "--console", "a:b", code=1).err
    assert "go with --console" in process("coordinator", "--console-read-only", code=2).err
    process.environment |= {"AMPSQ_CONSOLE_TOKEN": "short"}
    assert "allowed: 16 or more" in process("coordinator", "--console", code=1).err


def test_nothing_of_the_console_is_imported_where_it_is_not_asked_for():
    code = (
        "import sys; import ampsq.cli.coordinator, ampsq.cli.up, ampsq.coordinator, ampsq.cli.main;"
        "print([n for n in sys.modules if n.split('.')[0] in ('starlette', 'uvicorn', 'jinja2', 'prometheus_client')"
        " or n.startswith('ampsq.console')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)

    assert done.stdout == "[]\n"
