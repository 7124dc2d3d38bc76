"""The duty that keeps views, a round at a time."""

from __future__ import annotations

import contextlib

import pytest

from ampsq.coordinator import views as keeping
from ampsq.protocol.reads import views as view_reads
from ampsq.protocol.schema import key
from ampsq.transport.store import Store


@pytest.fixture
def is_kept(redis, instance):
    """Return a function that tells whether a coordinator keeps a view and has all of its rows."""
    return lambda name="totals": redis.hexists(key(instance, "view", name), view_reads.STATE)


@pytest.fixture
def view_duty(valkey, instance, redis):
    """The duty of views of one coordinator, on a store of its own; whoever kept views before keeps them no more."""
    with contextlib.ExitStack() as stack:

        def begin():
            redis.delete(key(instance, "keepers"))
            store = stack.enter_context(contextlib.closing(Store(valkey.url, instance, retry_timeout=0.5)))
            views_duty = keeping.Views()
            return store, lambda: views_duty.run_once(store)

        yield begin
