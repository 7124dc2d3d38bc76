"""compose.yaml: a file that an engine takes, whose commands do what they are there for, here without containers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import redis
import yaml

import ampsq

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
STACK = ROOT / "examples" / "stack"
#: As the services reach each other; here they have sockets.
INSTANCES = ("nyc", "lon")


def interpolated(text):
    """The file as an engine reads it where the environment has nothing."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text.replace("$$", "$"))


FILE = yaml.safe_load(interpolated(TEXT))
SERVICES = FILE["services"]


def test_the_file_is_one_that_an_engine_takes():
    checker = Path(sys.executable).with_name("check-jsonschema")
    if not checker.exists():
        assert "AMPSQ_FORBID_SKIPS" not in os.environ, "check-jsonschema is part of the extra `dev`"
        pytest.skip("check-jsonschema is not installed: pip install 'ampsq[dev]'")

    command = [checker, "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"\$\{\w+[^:\w]", TEXT), "each setting of the environment has a default"


def test_what_is_reached_from_outside_is_on_the_loopback_alone():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_image_has_all_that_the_package_is_made_of():
    # Given the folders that the package is made of
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    folders = {folder.partition("/")[0] for folder in built.values()}

    # Then each is copied before it is installed, and what runs is nobody's root
    inline = SERVICES["nyc-worker"]["build"]["dockerfile_inline"]
    copied = re.findall(r"^COPY (\w+) ", inline, re.MULTILINE)
    assert folders <= set(copied)
    assert all((ROOT / name).is_dir() for name in copied)
    assert re.search(r"^USER 1000:1000$", inline, re.MULTILINE)
    stages = set(re.findall(r" AS (\S+)$", inline, re.MULTILINE))
    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= stages


def test_services_wait_for_services_that_there_are_and_files_exist():
    for service in SERVICES.values():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in FILE["volumes"]
    scraped = yaml.safe_load((STACK / "prometheus.yaml").read_text())["scrape_configs"]
    targets = {target for job in scraped for each in job["static_configs"] for target in each["targets"]}
    assert {target.partition(":")[0] for target in targets} - {"localhost"} <= set(SERVICES)


@pytest.fixture
def stack(start_server):
    """Servers with the options of the file, and a way to run a service's command."""
    servers = {}
    for name in INSTANCES:
        program, *options = SERVICES[f"{name}-server"]["command"]
        assert program == "valkey-server"
        servers[name] = start_server("valkey", options=options)
    addresses = {f"AMPSQ_{name.upper()}_URL": server.url for name, server in servers.items()}
    with contextlib.ExitStack() as ended:

        def start(service):
            asked = SERVICES[service]
            mine = {name: text for name, text in asked["environment"].items() if text is not None}
            url = servers[mine["AMPSQ_INSTANCE"]].url
            # A port of its own for whoever runs the tests
            command = [part.replace("0.0.0.0:8080", "127.0.0.1:0") for part in asked["command"]]
            assert command.pop(0) == "ampsq"
            process = ended.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "ampsq.cli", *command],
                    cwd=ROOT / "examples",
                    env={**os.environ, **mine, **addresses, "AMPSQ_URL": url, "PYTHONUNBUFFERED": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            ended.callback(process.terminate)
            return process

        start.urls = {name: server.url for name, server in servers.items()}
        yield start


def test_the_servers_have_what_a_cluster_wants_should_one_be_made_of_them(stack):
    for url in stack.urls.values():
        with contextlib.closing(redis.Redis.from_url(url, decode_responses=True)) as plain:
            found = plain.config_get("cluster-require-full-coverage", "cluster-node-timeout")
        assert found == {"cluster-require-full-coverage": "no", "cluster-node-timeout": "5000"}


def check_health(service, address):
    """The health check of a service, at the address where it is here."""
    _, *command = SERVICES[service]["healthcheck"]["test"]
    command = [part.replace("http://127.0.0.1:8080", address.partition("/?")[0]) for part in command]
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=90)


@pytest.mark.slow
def test_a_message_published_at_one_instance_is_handled_at_the_other_whose_worker_is_free(stack):
    # Given both instances, set up, with coordinators that are ready
    for name in INSTANCES:
        assert stack(f"{name}-setup").wait(30) == 0
    for name in INSTANCES:
        said = stack(f"{name}-coordinator").stdout.readline().split()
        assert said[0] == "console"
        check_health(f"{name}-coordinator", said[1])

    # When orders are published at nyc, and only lon has a worker
    worker = stack("lon-worker")
    with ampsq.Client(stack.urls["nyc"], instance="nyc") as nyc:
        for number in range(5):
            nyc.publish("orders", {"id": number, "price": 2, "qty": 3})
        nyc.publish("orders", {"id": 9})

        # Then it handles each once; threads print a line and its end apart
        handled = ""
        while handled.count("\n") < 5:
            handled += worker.stdout.read(1)
        assert sorted(re.findall(r"order (\d): 6\.00", handled)) == list("01234")
        # And what is no order is a dead letter, at the instance that gave it up
        with ampsq.Client(stack.urls["lon"], instance="lon") as lon, lon.subscribe("failed") as failed:
            letter = failed.get(20)
            assert letter.data["message"] == {"id": 9}
            letter.ack()
