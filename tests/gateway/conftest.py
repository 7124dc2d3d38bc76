"""Gateways on the test's instance, and who asks them."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from gateway_scene import Asking
from gateway_scene import serve as serve_gateway


@pytest.fixture
def serving_on():
    """Start gateways with further rules on the instance of a client; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(client, rules="", **options):
            gateway = serve_gateway(client.url, client.instance, rules, **options)
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
