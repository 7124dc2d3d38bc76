"""Clients of all partitions of a test's instance."""

from __future__ import annotations

import contextlib

import pytest
from partitioned import TOTAL

from ampsq import Client


@pytest.fixture
def connect_partitions(server, instance):
    """Open clients of all partitions of the test's instance; they are closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            Client(server.url, instance=instance, **({"partitions": TOTAL} | options))
        )
