"""Signs of life and how long they are waited for: one must outlast the other, with something to spare."""

from __future__ import annotations

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.protocol.keepalive import LONGEST_HEARTBEAT, RETURN_WITHIN, SESSION_TIMEOUT
from ampsq.queues.heartbeat import LONGEST_PAUSE
from ampsq.transport.route import parse_heartbeat

#: Milliseconds by which a sign of life may be late: its thread is held up, its call is repeated.
LATE = 4_000


def test_a_client_may_lose_two_heartbeats_and_send_the_third_late_before_its_subscriptions_end():
    assert 3 * LONGEST_HEARTBEAT + LATE < SESSION_TIMEOUT


def test_after_a_restart_every_client_has_sent_a_heartbeat_before_absence_counts():
    # It learns of the restart by a heartbeat, and may have begun its longest pause when the server is back.
    assert LONGEST_HEARTBEAT + LONGEST_PAUSE * 1000 + 500 < RETURN_WITHIN * 1000


def test_a_client_cannot_choose_a_longer_heartbeat():
    assert parse_heartbeat(LONGEST_HEARTBEAT / 1000) == LONGEST_HEARTBEAT / 1000
    with pytest.raises(DefinitionError):
        parse_heartbeat(LONGEST_HEARTBEAT / 1000 + 0.1)
