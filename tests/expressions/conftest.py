"""Expressions evaluated on each server."""

from __future__ import annotations

from contextlib import closing

import pytest
from server_side import ServerSide


@pytest.fixture(scope="module")
def server_side(server):
    """The scripts of a server, which evaluate cases."""
    with closing(server.client()) as client:
        yield ServerSide(client)
