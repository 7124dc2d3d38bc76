"""A store of the test's instance, for duties that a test runs a round at a time."""

from __future__ import annotations

import pytest


@pytest.fixture
def store(valkey_store):
    return valkey_store
