"""`world`: an opened instance on each server, in the words of world.py."""

from __future__ import annotations

import pytest
from world import World


@pytest.fixture
def world(store, snapshot):
    return World(store, snapshot)
