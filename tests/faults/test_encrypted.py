"""TLS with a certificate of the client's own (mTLS): clients, links and gateways, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import threading

import httpx
import pytest
from network import Heard, free_port
from observing import eventually
from websockets.sync.client import connect

from ampsq import AsyncClient, Client, Destination, Queue, Topic
from ampsq.base.errors import TlsFailed, Unavailable
from ampsq.coordinator import Coordinator
from ampsq.gateway import Gateway, read_rules
from ampsq.gateway.server import Tls
from ampsq.gateway.users import Secret
from ampsq.protocol.schema import key


class Authority:
    """An authority and what it signed: files ending in ``.pem``, and in ``.key`` those with their keys."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self._openssl("req", "-x509", *self._new("ca"), "-days", "2", "-subj", "/CN=authority")
        for name in ("server", "client"):
            extension = folder / f"{name}.ext"
            extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            self._openssl("req", *self._new(name, ".csr"), "-subj", f"/CN={name}")
            self._openssl(
                *("x509", "-req", "-in", self.path(f"{name}.csr"), "-out", self.path(f"{name}.pem"), "-days", "2"),
                *("-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-set_serial", "7"),
                *("-extfile", str(extension)),
            )

    def _new(self, name, ending=".pem"):
        keys = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        return (*keys, "-keyout", self.path(f"{name}.key"), "-out", self.path(name + ending))

    def _openssl(self, *arguments):
        subprocess.run([self.program, *arguments], check=True, capture_output=True)

    def path(self, name):
        return str(self.folder / name)

    @property
    def options(self):
        """Of an address, for a client that shows a certificate."""
        files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
        return "&".join(f"{name}={self.path(file)}" for name, file in files.items())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    program = shutil.which("openssl")
    if program is None:
        reason = "no openssl on the PATH"
        pytest.fail(reason) if os.environ.get("AMPSQ_FORBID_SKIPS") == "1" else pytest.skip(reason)
    return Authority(program, tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secured(start_node, authority):
    """The address of a server that lets in who shows a certificate alone."""
    port = free_port()
    files = {"--tls-cert-file": "server.pem", "--tls-key-file": "server.key", "--tls-ca-cert-file": "ca.pem"}
    options = ["--tls-port", str(port), "--tls-auth-clients", "yes"]
    start_node(options=[*options, *(word for name, file in files.items() for word in (name, authority.path(file)))])
    return f"rediss://localhost:{port}"


def test_a_client_shows_its_certificate_on_every_connection(secured, authority, instance):
    url = f"{secured}?{authority.options}"

    with Client(url, instance=instance) as client:
        client.publish("orders", {"id": 1})
        with client.subscribe_topic("orders", bookmark="epoch") as messages:
            assert messages.get(timeout="30s").data == {"id": 1}

    async def awaited():
        async with AsyncClient(url, instance=instance) as client:
            return await client.publish("orders", {"id": 2})

    assert asyncio.run(awaited()) is not None


@pytest.mark.slow
def test_clients_that_share_a_connection_with_tls_show_life_on_it_while_others_come_and_go(
    secured, authority, instance
):
    url, heard = f"{secured}?{authority.options}", Heard()
    with Client(url, instance=instance, heartbeat="2s") as client, contextlib.ExitStack() as stack:
        client.apply(Queue(name="work", underlying_topic="orders"))
        messages = client.subscribe("work")
        client.add_connection_state_listener(heard)
        store = client._store
        subscriptions = key(instance, "subscriptions")

        def come_and_go():
            for _ in range(20):
                with Client(url, instance=instance, heartbeat="2s") as other:
                    other.subscribe("work")

        threads = [threading.Thread(target=come_and_go) for _ in range(3)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        # Given signs of life that are sent beside what they ask and are answered
        for _ in range(2):
            before = store.redis.zscore(subscriptions, messages.id)
            eventually(lambda: store.redis.zscore(subscriptions, messages.id) > before, within=15.0)  # noqa: B023
        # Then the connection is there, one for all
        for thread in threads:
            thread.join()
        eventually(lambda: [int(each["ssub"]) for each in store.redis.client_list() if int(each["ssub"])] == [1])
        assert "disconnected" not in heard.states


def test_a_client_without_a_certificate_is_told_how_to_show_one(secured, authority, instance):
    # The server ends the handshake or, a moment later, the connection.
    with pytest.raises(Unavailable, match="ssl_certfile"):
        Client(f"{secured}?ssl_ca_certs={authority.path('ca.pem')}", instance=instance, retry_timeout=0)


def test_a_server_whose_authority_is_not_named_is_not_trusted(secured, instance):
    with pytest.raises(TlsFailed, match="ssl_ca_certs"):
        Client(secured, instance=instance, retry_timeout=0)


def test_a_link_shows_a_certificate_too(secured, authority, valkey, instance):
    far = f"{instance}-far"
    address = f"{secured}?{authority.options}#{far}"
    with (
        Client(f"{secured}?{authority.options}", instance=far) as there,
        Client(valkey.url, instance=instance) as here,
        contextlib.ExitStack() as running,
    ):
        there.apply(Topic(name="orders"))
        carried = {"name": "orders", "exclude_validation": ["replicate"]}
        here.apply(
            Topic(name="orders"),
            Destination(name="far", sync_type="async", topics=[carried], addresses=[address]),
        )
        coordinator = Coordinator(valkey.url, [instance])
        thread = threading.Thread(target=coordinator.run)
        thread.start()
        running.callback(thread.join)
        running.callback(coordinator.stop)

        here.publish("orders", {"id": 1})

        eventually(lambda: there.admin.topics()["orders"].messages == 1, within=25.0)


def test_a_gateway_speaks_tls_and_lets_in_who_shows_a_certificate(valkey, authority, instance):
    rules = read_rules(
        f"users: [{{name: till, secret: '{Secret.of('tea')}'}}]\n"
        "entitlements: [{user: till, name: orders, rights: [read, write]}]"
    )
    tls = Tls(authority.path("server.pem"), authority.path("server.key"), authority.path("ca.pem"))
    trusting = ssl.create_default_context(cafile=authority.path("ca.pem"))
    with Client(valkey.url, instance=instance):
        gateway = Gateway(valkey.url, instance, rules, tls=tls)
    gateway.start()
    try:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{gateway.address}/healthz", verify=trusting)
        trusting.load_cert_chain(authority.path("client.pem"), authority.path("client.key"))
        sent = httpx.post(
            f"{gateway.address}/v1/publish", json={"topic": "orders", "data": 1}, auth=("till", "tea"), verify=trusting
        )
        assert sent.status_code == 200
        where = gateway.address.replace("https", "wss") + "/v1/subscribe?topic=orders&bookmark=epoch"
        with connect(where, ssl=trusting, additional_headers={"authorization": "Bearer till:tea"}) as socket:
            assert '"data":1' in socket.recv(5)
    finally:
        gateway.stop()
