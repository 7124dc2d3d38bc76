"""Messages that were given up, as dead letters."""

from __future__ import annotations

import pytest
from letters import define, give_up

pytest.register_assert_rewrite("scenes_gone", "scenes_held", "scenes_waiting")


@pytest.fixture
def died(client, start_coordinator):
    """Give messages up: ``died([bodies])``; gives their letters."""
    define(client)
    start_coordinator()

    def died(bodies, **options):
        give_up(client, bodies, coordinate=True, **options)
        return client.admin.dead_letters("dead")

    return died
