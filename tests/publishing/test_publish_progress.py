"""Progress of a guaranteed publisher: when there is something to confirm at once, and when a wait is over."""

from __future__ import annotations

import threading

import pytest

from ampsq import MemoryPublishStore
from ampsq.publishing.progress import ANYTHING, PublishProgress
from ampsq.publishing.settlements import Settlements

#: Heads of two delivered messages of a queue: the token is their difference.
FIRST, SECOND = ([b"work", token, b"", b"", b"", b"ref"] for token in (b"1", b"2"))


@pytest.fixture
def kept():
    store = MemoryPublishStore(messages=100)
    store.open("test", "till-1")
    store.keep(10, "publish", [b"orders", b"", *[b"1"] * 10])
    return store


@pytest.fixture
def progress(kept):
    return PublishProgress(kept, Settlements(kept, lambda: None))


def is_urgent(progress, target):
    with progress.changed, progress.hurrying(lambda: target):
        return progress.is_urgent


def test_nothing_is_urgent_while_nobody_waits(progress):
    progress.answered = 9
    assert progress.has_answers
    assert not progress.is_urgent


def test_who_waits_for_messages_is_in_a_hurry_once_all_are_answered(progress):
    target = progress.everything()
    progress.answered = 9
    assert not is_urgent(progress, target)
    progress.answered = 10
    assert is_urgent(progress, target)
    assert not progress.is_urgent


def test_who_waits_for_room_is_in_a_hurry_whatever_was_answered(progress):
    progress.answered = 1
    assert is_urgent(progress, ANYTHING)


def test_what_one_waits_for_does_not_hold_up_another(progress):
    everything = progress.everything()
    progress.answered = 5
    with progress.changed, progress.hurrying(lambda: everything):
        assert not progress.is_urgent
        assert is_urgent(progress, everything._replace(sequence=5))


def test_a_store_that_is_half_full_is_urgent(progress, kept):
    kept.keep(41, "publish", [b"orders", b"", *[b"1"] * 41])
    assert progress.is_urgent


def test_who_waits_for_acknowledgements_waits_until_they_are_answered_and_for_no_later_ones(progress):
    progress.answered = progress.persisted = 10
    settlements = progress.settlements
    settlements.keep("ack", [FIRST], None, "c")
    # Given somebody who waits for the first
    target = progress.everything()
    assert not is_urgent(progress, target)
    # When a later one is on its way, and the first is answered
    settlements.keep("ack", [SECOND], None, "c")
    settlements.answered([FIRST])
    # Then it is to be confirmed, and the wait ends with that
    assert is_urgent(progress, target)
    assert progress.left_of(target) == 1
    settlements.forget(list(settlements.answered_queues()))
    assert progress.left_of(target) == 0
    assert progress.wait(lambda: target, lambda: False, 0)
    assert not progress.wait(progress.everything, lambda: False, 0)


def test_a_wait_is_over_when_it_is_persisted_or_when_nothing_more_will_be(progress):
    is_over, found = threading.Event(), []

    def wait():
        found.append(progress.wait(progress.everything, is_over.is_set, 60))

    for end in (lambda: setattr(progress, "persisted", 10), is_over.set):
        progress.persisted = 0
        waiting = threading.Thread(target=wait)
        waiting.start()
        with progress.changed:
            end()
            progress.changed.notify_all()
        waiting.join()
    assert found == [True, True]
