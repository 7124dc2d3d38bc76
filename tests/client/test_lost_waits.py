"""Waits for several servers at once whose connections are lost: nothing of a lost one stays where it was waited on.

What redis-py closes by itself has no number any more; a new connection may get the number that it had.
"""

from __future__ import annotations

import contextlib
import socket

import pytest

from ampsq import AmpsqError
from ampsq.protocol.request import command
from ampsq.transport.blocking_reads import BlockingReads
from ampsq.transport.shard_channels import ShardChannels
from ampsq.transport.tracked_keys import TrackedKeys


def reads(store):
    made = BlockingReads()

    def begin(number):
        made.begin(number, store, lambda: command(["BLPOP", "nothing", 30], lambda _: 0, blocks=30.0))

    return made, begin, lambda: [each.connection.raw for each in made._reads.values()]


def channels(store):
    made = ShardChannels()
    return (
        made,
        lambda number: made.begin(number, store, f"{{{store.instance}}}:c{number}"),
        lambda: [each.connection.raw for each in made._links.values()],
    )


def keys(store):
    made = TrackedKeys()
    return (
        made,
        lambda number: made.ask(number, store.route, [f"{{{store.instance}}}:k{number}"]),
        lambda: [each.raw for each in made._links.values()],
    )


@pytest.mark.parametrize("kind", [reads, channels, keys])
def test_a_lost_connection_is_waited_on_no_more_and_the_next_one_is(store, kind):
    waits, begin, raws = kind(store)
    try:
        begin(1)
        for number in range(2, 6):
            # Given connections that broke: one half is noticed by what is asked next, the other half by who waits
            for raw in raws():
                raw._sock.shutdown(socket.SHUT_RDWR)
            if number % 2:
                with contextlib.suppress(AmpsqError):
                    begin(number)
            waits.wait(0.1)
            begin(number + 100)
        # Then those that are there are waited on, and what awakes
        assert len(waits._selector.get_map()) == 1 + len(raws())
        assert all(each._sock is not None for each in raws())
    finally:
        waits.close()
