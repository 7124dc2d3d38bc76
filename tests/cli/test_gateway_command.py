"""gateway: it serves until it is stopped, alone or beside a coordinator."""

from __future__ import annotations

import signal

import httpx
import pytest

from ampsq.gateway.users import Secret

RULES = """
users: [{{name: till, secret: "{secret}"}}]
entitlements: [{{user: till, name: orders, rights: write}}]
"""


@pytest.fixture
def ruled(defined_process):
    (defined_process.folder / "gateway.yaml").write_text(RULES.format(secret=Secret.of("tea")))
    return defined_process


@pytest.mark.parametrize(
    "command",
    [
        ["gateway", "--listen", "127.0.0.1:0", "--config", "gateway.yaml"],
        ["coordinator", "--gateway", "127.0.0.1:0", "--gateway-config", "gateway.yaml"],
    ],
)
def test_a_gateway_serves_until_it_is_stopped(ruled, command):
    process = ruled.start(*command)
    told = process.stdout if command[0] == "gateway" else process.stderr
    address = next(line for line in told if line.startswith("gateway  ")).split()[1]

    answer = httpx.post(f"{address}/v1/publish", json={"topic": "orders", "data": 1}, auth=("till", "tea"), timeout=90)

    assert answer.json()["bookmark"].startswith("orders~")
    assert ruled.end(process, signal.SIGTERM).code == 0
    with ruled.client() as client:
        assert client.admin.topics()["orders"].messages == 1


@pytest.mark.parametrize(
    "command",
    [
        ["gateway", "--listen", "127.0.0.1:0", "--config", "gateway.yaml"],
        ["coordinator", "--gateway", "127.0.0.1:0", "--gateway-config", "gateway.yaml"],
    ],
)
def test_a_hangup_lets_the_file_be_read(ruled, command):
    process = ruled.start(*command)
    told = process.stdout if command[0] == "gateway" else process.stderr
    address = next(line for line in told if line.startswith("gateway  ")).split()[1]
    (ruled.folder / "gateway.yaml").write_text("users: []\n")

    process.send_signal(signal.SIGHUP)

    assert any("the rules of before stay" in line for line in process.stderr)
    assert httpx.get(f"{address}/v1/sow", params={"name": "x"}, auth=("till", "tea"), timeout=90).status_code == 403
    assert ruled.end(process, signal.SIGTERM).code == 0


def test_a_hash_is_printed_of_the_secret_that_is_read(run):
    printed = run("gateway", "--hash", stdin="tea\n").out.strip()

    assert Secret.parse(printed).is_of("tea")
    assert "reads the secret from standard input" in run("gateway", "--hash", code=2).err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["gateway"], "a gateway needs its users"),
        (["coordinator", "--url", "redis://x", "--gateway", ":0"], "a gateway needs its users"),
        (["coordinator", "--url", "redis://x", "--gateway-config", "here"], "go with --gateway HOST:PORT"),
        (["gateway", "--config", "here", "--key", "here"], "TLS needs a certificate and its key"),
    ],
)
def test_options_that_do_not_go_together_are_explained(run, options, said):
    (run.folder / "here").write_text("")

    assert said in run(*options, code=2).err


def test_files_of_tls_that_are_none_are_told_at_once(ruled):
    process = ruled.start(
        "gateway", "--config", "gateway.yaml", "--certificate", "gateway.yaml", "--key", "gateway.yaml"
    )

    _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "Error: TLS of certificate gateway.yaml and key gateway.yaml: " in err
    assert "allowed: files in PEM" in err
    assert "Traceback" not in err


def test_a_file_that_is_wrong_is_told_with_its_line(run):
    (run.folder / "gateway.yaml").write_text("users:\n  - {name: till, secret: tea}\n")

    said = run("gateway", "--config", "gateway.yaml", code=1).err

    assert "gateway.yaml:2: users: secret of 'till': it is no hash" in said
    assert "tea" not in said
