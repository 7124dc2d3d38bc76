"""A short run of `partition_moves`, and that it notices what must not be."""

from __future__ import annotations

import contextlib

import pytest
from cluster_moves import Harness
from partition_moves import Published, judge, run
from test_cluster_moves import crowd

from ampsq.base.errors import Unavailable

ONE, TWO, THREE = (("till", "k", number) for number in (1, 2, 3))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "seed"), [("valkey", 1), ("redis", 2)])
def test_nothing_is_lost_and_keys_stay_in_order_while_slots_are_moved_and_processes_killed(
    kind, seed, tmp_path_factory
):
    before = crowd()
    with contextlib.closing(Harness(kind, tmp_path_factory.mktemp("c"))) as harness:
        row = run(harness, seed, lambda: max(before, crowd()))
    assert not row["wrong"], row
    assert row["faults"].count("move") >= 2
    assert ("primary" in row["faults"]) == (seed == 2)


def judged(recorded, *, killed=False, handled=None, stored=(), answered=(), unknown=(), raised=()):
    published = Published(set(stored), set(answered), set(unknown), list(raised))
    return judge(published, recorded, set(recorded if handled is None else handled), killed=killed)


def test_what_is_lost_doubled_or_made_up_is_wrong():
    assert judged([ONE, TWO], stored=[ONE], answered=[TWO]) == []
    assert judged([ONE, ONE], stored=[ONE]) == [f"1 messages are recorded more than once: [{ONE}]"]
    assert judged([], stored=[ONE], killed=True) == [f"1 messages of a store are LOST: [{ONE}]"]
    assert judged([], answered=[ONE]) == [f"1 answered messages are LOST: [{ONE}]"]
    # A primary that is lost may take what its replica does not have yet, but for those who wait for that.
    assert judged([], answered=[ONE], handled=[ONE], killed=True) == []
    assert judged([THREE]) == [f"1 messages are recorded that nobody published: [{THREE}]"]


def test_keys_out_of_order_and_messages_that_nobody_handled_are_wrong():
    other = ("till", "j", 1)
    assert judged([TWO, other, THREE], stored=[TWO, THREE, other]) == []
    assert judged([TWO, ONE], stored=[ONE, TWO]) == ["1 of key k by till is recorded behind 2"]
    assert judged([ONE, TWO], stored=[ONE, TWO], handled=[TWO]) == [f"1 messages were not handled: [{ONE}]"]
    assert judged([ONE], stored=[ONE], handled=[ONE, TWO]) == [
        f"1 messages were handled that are not recorded: [{TWO}]"
    ]


def test_what_is_raised_is_allowed_only_where_a_primary_was_lost_and_a_call_may_have_run():
    unknown, refused = Unavailable("lost"), Unavailable("refused")
    unknown.may_have_run = True
    assert judged([], raised=[unknown], killed=True) == []
    assert judged([], raised=[unknown]) == ["raised: Unavailable('lost')"]
    refused.may_have_run = False
    assert judged([], raised=[refused], killed=True) == ["raised: Unavailable('refused')"]
