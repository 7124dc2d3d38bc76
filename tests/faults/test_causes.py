"""Causes for which a server cannot be used: each is an exception of its own, with the address, without the password."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field

import pytest
import redis
from network import free_port
from observing import eventually

from ampsq import AsyncClient, Client
from ampsq.base import errors
from ampsq.base.errors import NotPermitted, OtherIncarnation, PrimaryUnknown, StillLoading, StillUpgrading, Unavailable
from ampsq.protocol.request import command
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.errors import translate_connect_error
from ampsq.transport.route import Route

pytestmark = pytest.mark.slow

SECRET = "do-not-print-me"  # noqa: S105 - it is looked for in texts


@pytest.fixture
def certificate(tmp_path):
    """A certificate of one's own for localhost, and its key."""
    program = shutil.which("openssl")
    if program is None:
        reason = "no openssl on the PATH"
        pytest.fail(reason) if os.environ.get("AMPSQ_FORBID_SKIPS") == "1" else pytest.skip(reason)
    subprocess.run(
        [
            *(program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return tmp_path / "certificate.pem"


@pytest.fixture
def encrypted(start_node, certificate):
    """A server that speaks TLS on one port and plain text on another; gives the port of TLS and the certificate."""
    port = free_port()
    options = [
        *("--tls-port", str(port), "--tls-cert-file", str(certificate)),
        *("--tls-key-file", str(certificate.with_name("key.pem")), "--tls-auth-clients", "no"),
    ]
    start_node(options=options)
    return port, certificate


@pytest.fixture
def silent_port():
    """A port where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def other_protocol():
    """A port where somebody speaks another protocol."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(4096)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)


@dataclass
class Case:
    """A fault, at an address, with its exception and words of the text."""

    url: str
    error: str
    words: list[str] = field(default_factory=list)


def nobody_listens(_):
    return Case(f"redis://user:{SECRET}@127.0.0.1:{free_port()}", "ConnectionRefused", ["refused", "start the server"])


def no_socket(request):
    return Case(f"unix://{request.getfixturevalue('tmp_path')}/nothing", "ConnectionRefused", ["No such file"])


def no_such_host(_):
    return Case(f"redis://:{SECRET}@no-such-host.invalid:6379", "NameNotResolved", ["name of the host"])


def password_missing(request):
    node = request.getfixturevalue("start_node")(options=["--requirepass", SECRET], password=SECRET)
    return Case(node.url, "AuthenticationFailed", ["redis://USER:PASSWORD@HOST"])


def password_wrong(request):
    node = request.getfixturevalue("start_node")(options=["--requirepass", "right"], password="right")  # noqa: S106
    return Case(f"redis://:{SECRET}@{node.address}", "AuthenticationFailed", ["invalid username-password"])


def password_not_wanted(request):
    node = request.getfixturevalue("start_node")()
    return Case(f"redis://nobody:{SECRET}@{node.address}", "AuthenticationFailed", [])


def tls_where_none_is_spoken(request):
    node = request.getfixturevalue("start_node")()
    return Case(f"rediss://:{SECRET}@{node.address}", "NoAnswer", ["it does not speak TLS"])


def certificate_of_nobody(request):
    port, _ = request.getfixturevalue("encrypted")
    return Case(f"rediss://localhost:{port}", "TlsFailed", ["certificate", "ssl_ca_certs"])


def plain_text_where_tls_is_spoken(request):
    port, _ = request.getfixturevalue("encrypted")
    return Case(f"redis://localhost:{port}", "Unavailable", ["rediss://"])


def a_replica(request):
    start = request.getfixturevalue("start_node")
    first, second = start(), start()
    second.follow(first)
    return Case(second.url, "NotAPrimary", [f"replica of 127.0.0.1:{first.port}", "name the primary"])


def a_sentinel(request):
    node = request.getfixturevalue("start_node")(sentinel=True)
    return Case(node.url, "NotAPrimary", ["this is a Sentinel: write sentinel://"])


def sentinels_that_do_not_live(_):
    url = f"sentinel://user:{SECRET}@127.0.0.1:{free_port()}/main?sentinel_password={SECRET}"
    return Case(url, "PrimaryUnknown", ["name no primary 'main'", "refused"])


def no_cluster(request):
    node = request.getfixturevalue("start_node")()
    return Case(f"cluster://{node.address}", "PrimaryUnknown", ["write redis:// instead of cluster://"])


def a_cluster_without_slots(request):
    node = request.getfixturevalue("start_node")(options=["--cluster-enabled", "yes"])
    return Case(f"cluster://{node.address}", "PrimaryUnknown", ["no node serves slot"])


def a_hung_server(request):
    return Case(f"redis://127.0.0.1:{request.getfixturevalue('silent_port')}", "NoAnswer", ["nothing came in time"])


def another_protocol(request):
    return Case(f"redis://127.0.0.1:{request.getfixturevalue('other_protocol')}", "Unavailable", ["Protocol error"])


def a_database_that_is_not_there(request):
    node = request.getfixturevalue("start_node")()
    return Case(f"{node.url}/99", "Unavailable", ["DB index is out of range"])


def too_many_clients(request):
    node = request.getfixturevalue("start_node")()
    node.ask("CONFIG", "SET", "maxclients", "1")
    holder = request.getfixturevalue("hold")
    holder(node)
    # Its reason may be lost: it ends the connection without reading what was sent
    return Case(node.url, "Unavailable")


@pytest.fixture
def hold():
    """Keep a connection to a node open."""
    with contextlib.ExitStack() as stack:
        yield lambda node: stack.enter_context(socket.create_connection(("127.0.0.1", node.port)))


CASES = [
    nobody_listens,
    no_socket,
    no_such_host,
    password_missing,
    password_wrong,
    password_not_wanted,
    tls_where_none_is_spoken,
    certificate_of_nobody,
    plain_text_where_tls_is_spoken,
    a_replica,
    a_sentinel,
    sentinels_that_do_not_live,
    no_cluster,
    a_cluster_without_slots,
    a_hung_server,
    another_protocol,
    a_database_that_is_not_there,
    too_many_clients,
]
#: What waiting does not change is told at once.
AT_ONCE = {"AuthenticationFailed", "TlsFailed"}


async def enter(client):
    async with client:
        pass


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_cause_is_named(request, instance, case):
    # Given a server that cannot be used
    given = case(request)
    retry_timeout = "60s" if given.error in AT_ONCE else "300ms"
    # When a client of either kind connects
    for connect in (
        lambda: Client(given.url, instance=instance, retry_timeout=retry_timeout, heartbeat="300ms"),
        lambda: asyncio.run(
            enter(AsyncClient(given.url, instance=instance, retry_timeout=retry_timeout, heartbeat="300ms"))
        ),
    ):
        started = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            connect()
        # Then the exception is the cause's, names the address and what to do, tells no password, and comes in time
        text = str(raised.value)
        assert type(raised.value).__name__ == given.error, text
        assert type(raised.value) is getattr(errors, given.error)
        assert SECRET not in text
        assert given.url.rpartition("@")[2].rpartition("/")[2].partition("?")[0] in text
        assert [word for word in given.words if word not in text] == [], text
        assert not raised.value.may_have_run
        assert time.monotonic() - started < 20


def test_every_cause_has_a_case():
    named = {cls.__name__ for cls in Unavailable.__subclasses__()}

    shown = {"ConnectionRefused", "NameNotResolved", "AuthenticationFailed", "TlsFailed", "NotAPrimary", "NoAnswer"}
    # These have tests of their own: here, among those of failing over, and of upgrades
    assert named == shown | {each.__name__ for each in (PrimaryUnknown, StillLoading, OtherIncarnation, StillUpgrading)}


def test_a_trusted_certificate_is_enough(encrypted, instance):
    port, certificate = encrypted
    with Client(f"rediss://localhost:{port}?ssl_ca_certs={certificate}", instance=instance) as client:
        assert client.publish("orders", 1)


def test_a_server_that_loads_its_data_is_waited_for(start_node, instance):
    # Given a server that needs a while for its data
    node = start_node(
        options=[
            "--key-load-delay",
            "20000",
            "--loading-process-events-interval-bytes",
            "1024",
            "--rdbcompression",
            "no",
        ]
    )
    for number in range(200):
        node.ask("SET", f"key-{number}", "x" * 100)
    node.ask("SAVE")
    node.kill()
    node.start()
    # When somebody has little patience, then it is told why; who has more is served in the end
    with pytest.raises(StillLoading, match="still loads its data"):
        Client(node.url, instance=instance, retry_timeout="200ms")
    with Client(node.url, instance=instance, retry_timeout="60s") as client:
        assert client.publish("orders", 1)


def test_of_several_addresses_each_is_told(start_node, instance):
    # Given a list in which each address has a fault of its own
    locked = start_node(options=["--requirepass", "right"], password="right")  # noqa: S106
    dead = f"redis://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable) as raised:
        Client([dead, f"redis://:{SECRET}@{locked.address}"], instance=instance, retry_timeout="300ms")
    # Then all are told, as the cause that waiting does not change
    assert type(raised.value) is errors.AuthenticationFailed
    text = str(raised.value)
    assert dead.removeprefix("redis://") in text
    assert locked.address in text
    assert "(1)" in text
    assert "(2)" in text
    assert SECRET not in text


def test_a_user_who_may_not_is_told_what_he_may_not(start_node, instance):
    node = start_node()
    node.ask("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "&*", "+@all", "-evalsha", "-eval")
    with pytest.raises(NotPermitted, match="evalsha") as raised:
        Client(f"redis://reader:{SECRET}@{node.address}", instance=instance)
    assert SECRET not in str(raised.value)
    # Rights that are not needed may be missing
    node.ask("ACL", "SETUSER", "writer", "on", f">{SECRET}", "~*", "&*", "+@all", "-role", "-config")
    with Client(f"redis://writer:{SECRET}@{node.address}", instance=instance) as client:
        assert client.publish("orders", 1)
    eventually(lambda: node.ask("PING") == "PONG")


def test_an_event_loop_does_not_wait_for_sentinels_that_hang(instance):
    async def scenario(port):
        longest = 0.0

        async def look_at_clock():
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.01)  # between two looks
                longest = max(longest, time.monotonic() - before)

        route = Route(f"sentinel://127.0.0.1:{port}/primary", instance, heartbeat=1.0)
        store = AsyncStore(route, instance, retry_timeout=0)
        clock = asyncio.create_task(look_at_clock())
        calls = [store.call(command(["PING"], bool)) for _ in range(3)]
        # When several tasks look for the primary at once
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(failure, PrimaryUnknown) for failure in failures)
        clock.cancel()
        await store.close()
        return longest

    # Given a Sentinel that takes connections and never answers
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as hanging:
        # Then all others go on meanwhile
        assert asyncio.run(scenario(hanging.getsockname()[1])) < 0.7


def test_the_causes_of_an_error_that_is_among_its_own_causes_have_an_end():
    first, second = redis.ConnectionError("first"), redis.ConnectionError("second")
    first.__cause__, second.__context__ = second, first

    assert isinstance(translate_connect_error(first, "redis://host"), Unavailable)
