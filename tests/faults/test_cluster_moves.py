"""Short runs of `cluster_moves`, and that it notices what must not be."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest
from cluster_calls import Called, Calls
from cluster_moves import Harness, measure, run, said

from ampsq.base.errors import Unavailable


def crowd():
    """Return how many times as much there is to do as the processors can; 1 at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "seed"), [("valkey", 1), ("redis", 2), ("redis", 3)])
def test_no_call_raises_or_lasts_while_a_slot_is_moved_or_a_primary_is_lost(kind, seed, tmp_path_factory):
    # Given a cluster; who else is busy on the machine shows in its load, before or meanwhile
    before = crowd()
    with contextlib.closing(Harness(kind, tmp_path_factory.mktemp("c"))) as harness:
        # When everything is called on it, and slots are moved, and with the third seed a primary is killed
        row = run(harness, seed, lambda: max(before, crowd()))
    # Then nothing is wrong, and it did what it was to do
    assert not row["wrong"], said(row)
    assert row["moves"] >= 2
    assert row["kills"] == (seed == 3)


@pytest.fixture
def judged():
    """Give the judge what was published and what is recorded: ``judged(recorded, killed=..., ...)``."""

    def judge(recorded, *, killed=False, **published):
        noted = Calls("here", threading.Event())
        noted.recorded = recorded
        for name, value in published.items():
            setattr(noted, name, value)
        return noted.wrong(killed=killed)

    return judge


def test_what_is_lost_doubled_or_made_up_is_wrong(judged):
    assert judged(["a", "b"], answered={"a"}, stored={"b"}) == []
    assert judged(["a", "a"], answered={"a"}) == ["1 messages are recorded more than once: ['a']"]
    assert judged([], stored={"b"}, killed=True) == ["1 messages of a store are LOST: ['b']"]
    assert judged([], answered={"a"}) == ["1 answered messages are LOST: ['a']"]
    assert judged([], answered={"a"}, killed=True) == []
    assert judged(["c"]) == ["1 messages are recorded that nobody published: ['c']"]


def test_what_is_raised_is_allowed_only_where_a_primary_was_lost_and_a_call_may_have_run(judged):
    unknown, refused = Unavailable("lost"), Unavailable("refused")
    refused.may_have_run = False
    assert judged([], raised=[("publish", 0.0, unknown)], killed=True) == []
    assert judged([], raised=[("publish", 0.0, unknown)]) == ["publish raised Unavailable: lost"]
    assert judged([], raised=[("publish", 0.0, refused)], killed=True) == ["publish raised Unavailable: refused"]


def test_a_call_that_takes_too_long_is_wrong_unless_it_was_the_machine():
    calls = [Called("sow", float(number), 0.1) for number in range(10)]
    slow = [*calls, Called("publish", 20.0, 1.5)]

    def found(calls, fault, held_up=0.0):
        return measure(calls, [(fault, 0.0, 30.0)], lambda *_: held_up)[3]

    assert found(calls, "move") == found(slow, "kill") == found(slow, "move", held_up=0.6) == []
    assert found(slow, "move") == ["publish took 1.50 s, 1.50 s of them for a move"]
    assert found([*slow, Called("publish", 40.0, 0.6)], "move") == []
    assert found([*calls, Called("publish", 20.0, 6.5)], "kill")
    assert found([*calls, Called("publisher.flush", 20.0, 6.5)], "kill") == []
    assert found(calls[1:], "move") == ["the run was empty: 9 calls were under way while something was moved or killed"]


def test_a_run_that_called_nothing_is_wrong():
    missing = Calls("here", threading.Event()).missing()
    assert {"publish", "sow", "async publish", "redrive", "Worker.run"} <= set(missing)
