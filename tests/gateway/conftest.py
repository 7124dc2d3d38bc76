"""Gateways on the test's instance, and who asks them."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from gateway_scene import Asking, define
from gateway_scene import serve as serve_gateway

from ampsq import Client


@pytest.fixture
def client(server, instance):
    """A client of the test's instance, in which what the rules are about is defined."""
    with Client(server.url, instance=instance) as client:
        define(client)
        yield client


@pytest.fixture
def kind():
    """The server of most tests whose file has `client_of_kind`; those that depend on it run on both."""
    return "valkey"


@pytest.fixture
def serving_on():
    """Start gateways with further rules on the instance of a client; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(client, rules="", **options):
            gateway = serve_gateway(
                client.url, client.instance, rules, partitions=len(client.partitions) or None, **options
            )
            stack.callback(gateway.stop)
            return gateway

        yield start


@pytest.fixture
def serving(client, serving_on):
    """The same, on that of `client`."""
    return partial(serving_on, client)


@pytest.fixture
def gateway(serving):
    return serving()


@pytest.fixture
def audit(gateway):
    """Return a user who may do everything."""
    return Asking(gateway, "audit")


@pytest.fixture
def desk(gateway):
    """Return a user who may read the orders of EU, the queue over them, and positions of more than one."""
    return Asking(gateway, "desk")


@pytest.fixture
def till(gateway):
    """Return a user who may write its own orders, and write and read positions."""
    return Asking(gateway, "till")
