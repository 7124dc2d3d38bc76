"""Conflation alone: of random messages, keys and times, what goes when, beside a plain model of it."""

from __future__ import annotations

import random

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.expressions import Document
from ampsq.topics.conflation import Conflation, ConflationKey, conflation_asked


def entry(number, body=b"{}"):
    return ("t", b"%d-0" % number, [b"b", body])


def number_of(taken):
    return int(taken[1].partition(b"-")[0])


class Slow:
    """The expected result, looked for among all messages each time."""

    def __init__(self, period):
        self.period, self.waiting = period, []

    def put(self, number, key, now):
        if key is not None:
            for one in self.waiting:
                if one[1] == key:
                    one[0] = number
                    return
        self.waiting.append([number, key, now + (self.period if key is not None else 0)])

    def take(self, now):
        due = sorted(one for one in self.waiting if one[2] <= now)
        if not due:
            return None
        self.waiting.remove(due[0])
        return due[0][0]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("period", [0.0, 1.0])
def test_what_goes_is_the_latest_of_each_key_by_its_place(seed, period):
    # Given messages of few keys, some without one, and somebody who takes them now and then
    draw = random.Random(seed)  # noqa: S311
    conflation, slow, now = Conflation(period), Slow(period), 0.0
    for number in range(1, 300):
        now += draw.choice((0.0, 0.0, 0.3, 1.5))
        key = draw.choice((None, "a", "b", "c", "d"))
        conflation.put(entry(number), key and (key,), now)
        slow.put(number, key, now)
        for _ in range(draw.choice((0, 0, 0, 1, 5))):
            # Then each time the same goes as of the model
            taken = conflation.take(now)
            assert (taken and number_of(taken)) == slow.take(now)
        assert len(conflation) == len(slow.waiting)
    # And at the end everything
    conflation.release()
    rest = [number_of(taken) for taken in iter(lambda: conflation.take(now), None)]
    assert rest == sorted(one[0] for one in slow.waiting)
    assert (len(conflation), conflation.size, conflation.wait(now)) == (0, 0, None)


def test_the_time_runs_from_the_first_change_that_was_not_handed_out():
    conflation = Conflation(1.0)
    conflation.put(entry(1), ("a",), 10.0)
    conflation.put(entry(2), ("a",), 10.9)
    assert conflation.wait(10.9) == pytest.approx(0.1)
    assert conflation.take(10.9) is None
    assert number_of(conflation.take(11.0)) == 2
    # And anew from the next change on
    conflation.put(entry(3), ("a",), 11.1)
    assert conflation.wait(11.1) == pytest.approx(1.0)
    assert conflation.replaced == 1


def test_it_is_full_of_bytes_and_of_keys():
    conflation = Conflation(0.0)
    conflation.put(entry(1, b"x" * 2**26), ("a",), 0.0)
    assert conflation.is_full
    # A later one of the same key takes its place
    conflation.put(entry(2), ("a",), 0.0)
    assert not conflation.is_full
    for number in range(100_000):
        conflation.put(entry(3 + number), (number,), 0.0)
    assert conflation.is_full


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"id": 1, "to": "x"}', (1, b"x")),
        (b'{"id": 1}', None),
        (b'{"id": null, "to": "x"}', None),
        (b'{"id": [1, 2], "to": "x"}', None),
        (b"no json", None),
    ],
)
def test_a_key_is_all_of_its_identifiers_or_none(body, key):
    assert ConflationKey(["/id", "/to"]).of(Document(body)) == key


@pytest.mark.parametrize("wrong", [[], "id", ["/a +"], ["/a > 1"], [3], 3])
def test_what_is_no_key_is_refused(wrong):
    with pytest.raises(DefinitionError, match=r"^conflation_key"):
        ConflationKey(wrong)


@pytest.mark.parametrize("wrong", ["often", "0s", 0, -1, "1 parsec", True])
def test_what_is_no_conflation_is_refused(wrong):
    with pytest.raises(DefinitionError, match="allowed is an interval"):
        conflation_asked(wrong, ["/id"], None, None)


def test_what_does_not_go_together_is_refused():
    assert conflation_asked("none", None, "audit", "10") == (None, None)
    for wrong, reason in [
        ((None, ["/id"], None, None), "conflation_key needs conflation"),
        (("1s", ["/id"], "audit", None), "conflation with sub_id"),
        (("auto", ["/id"], None, 1000), "conflation with rate"),
    ]:
        with pytest.raises(DefinitionError, match=reason):
            conflation_asked(*wrong)
