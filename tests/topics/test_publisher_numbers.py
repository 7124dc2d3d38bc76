"""Numbers that a subscription has had of named publishers: passed over is what was had elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampsq import MemoryBookmarkStore, SqliteBookmarkStore
from ampsq.base.log_positions import StoredPosition
from ampsq.protocol.entries import PublisherNumber, number_in
from ampsq.protocol.limits import PUBLISHER_AGE
from ampsq.topics import publisher_numbers
from ampsq.topics.bookmark_store import BookmarkUpdate, SubscriptionName
from ampsq.topics.publisher_numbers import HadNumbers

NOW = 1_763_640_000_000


def sent(number, origin="a.1", publisher="till", topic="orders", recorded=NOW):
    return PublisherNumber(topic, publisher, origin, number, recorded)


def test_a_number_that_was_had_of_one_origin_is_passed_over_of_another():
    had = HadNumbers()
    assert all(had.admit(sent(number)) for number in (1, 2, 3))
    assert [had.admit(sent(number, "b.1")) for number in (2, 3, 4)] == [False, False, True]
    # And of a third, whatever it was had of
    assert [had.admit(sent(number, "c.1")) for number in (1, 4, 5)] == [False, False, True]


def test_a_lower_number_that_comes_later_is_not_passed_over():
    had = HadNumbers()
    assert [had.admit(sent(number)) for number in (1, 2, 3)] == [True] * 3
    # 5 by the publisher, which failed over; then 4 by the link
    assert had.admit(sent(5, "b.1"))
    assert had.admit(sent(4))
    assert not had.admit(sent(4, "b.1"))
    assert not had.admit(sent(5))


def test_publishers_and_topics_do_not_share_numbers():
    had = HadNumbers()
    assert had.admit(sent(1))
    assert had.admit(sent(1, "b.1", publisher="desk"))
    assert had.admit(sent(1, "b.1", topic="trades"))


def test_one_origin_records_no_number_twice_so_that_it_is_another_message():
    had = HadNumbers()
    assert had.admit(sent(1))
    assert had.admit(sent(1, recorded=NOW + 1))


def test_a_number_that_servers_have_forgotten_is_another_message():
    had = HadNumbers()
    assert had.admit(sent(1))
    assert had.admit(sent(2, recorded=NOW + 1_000))
    assert not had.admit(sent(1, "b.1", recorded=NOW + 1_000 + PUBLISHER_AGE - 1))
    assert had.admit(sent(1, "b.1", recorded=NOW + 1_000 + PUBLISHER_AGE))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=200))
def test_of_any_order_each_number_is_admitted_once_but_for_repeats_of_its_own_origin(came):
    had, seen, runs = HadNumbers(), {}, {}
    for origin, number in came:
        message = sent(number, f"{origin}.1")
        is_expected = not any(number in seen.get(other, ()) for other in "abc" if other != origin)
        assert had.admit(message) == is_expected
        if is_expected:
            seen.setdefault(origin, set()).add(number)
    for (_, _, origin, first), (last, _) in had.runs.items():
        runs.setdefault(origin[0], []).append((first, last))
    # What is kept is that, in runs between which there are gaps
    assert {each: {n for first, last in found for n in range(first, last + 1)} for each, found in runs.items()} == seen
    for found in runs.values():
        assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(found))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=100), st.integers(1, 7))
def test_changes_written_down_one_after_the_other_are_all_of_it(came, step):
    had, kept, changed = HadNumbers(), {}, set()
    for place, (origin, number) in enumerate(came):
        changed.update(had.add(sent(number, f"{origin}.1")))
        if place % step == 0:
            for run in changed:
                if (end := had.get(run)) is None:
                    kept.pop(run, None)
                else:
                    kept[run] = end
            changed = set()
    for run in changed:
        if (end := had.get(run)) is None:
            kept.pop(run, None)
        else:
            kept[run] = end
    assert kept == had.runs
    assert HadNumbers(kept.items()).runs == kept


def test_runs_that_overlap_are_one():
    # A store on the server may have written a run, and not yet removed the one that is part of it
    runs = {
        ("orders", "till", "a.1", 1): (9, NOW),
        ("orders", "till", "a.1", 5): (9, NOW - 1),
        ("orders", "till", "a.1", 7): (12, NOW),
    }
    assert HadNumbers(runs.items()).runs == {("orders", "till", "a.1", 1): (12, NOW)}


def test_what_is_noted_is_bounded_and_what_came_last_stays(monkeypatch):
    monkeypatch.setattr(publisher_numbers, "_MOST_RUNS", 100)
    monkeypatch.setattr(publisher_numbers, "_AT_ONCE", 10)
    had, touched = HadNumbers(), set()
    # A publisher whose every other message is of another topic, and many that sent one
    for number in range(1, 1_001, 2):
        touched.update(had.add(sent(number, recorded=NOW + number)))
        touched.update(had.add(sent(1, publisher=f"job/{number}", recorded=NOW + number)))
        assert len(had.runs) <= 100
    assert not had.admit(sent(999, "b.1"))
    assert not had.admit(sent(1, "b.1", publisher="job/999"))
    # What is forgotten comes again rather than being lost, and a store hears what is gone
    assert had.admit(sent(1, "b.1"))
    assert sum(had.get(run) is None for run in touched) > 800


def entry(*fields):
    return [b"b", b"{}", *fields, b"s", b"a.1~1763640000000-5", b"v", b""]


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"h", b"{}"),
        (b"p", b"till"),
        (b"p", b"till", b"n", b"many"),
        (b"p", b"till", b"n", b"-1"),
        (b"p", b"\xff", b"n", b"1"),
        (b"p", b"till", b"n", str(2**64).encode()),
        # Views number their messages at each instance for itself
        (b"p", b"view:totals", b"n", b"1"),
    ],
)
def test_what_has_no_named_publisher_is_known_by_its_bookmark_alone(fields):
    assert number_in("orders", entry(*fields)) is None


def test_an_entry_says_what_its_publisher_knows_it_by():
    assert number_in("orders", entry(b"h", b"{}", b"p", b"till", b"n", b"7", b"a", b"b.1~1-1")) == sent(7)
    foreign = [b"p", b"till", b"n", b"7", b"s", b"a.1~1763640000000-5", b"v", b""]
    assert number_in("orders", foreign) is None


def result_of(flow):
    """Of what a store does without waiting."""
    try:
        flow.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_store_keeps_runs_and_forgets_those_that_are_gone(kind, tmp_path):
    store = MemoryBookmarkStore() if kind == "memory" else SqliteBookmarkStore(tmp_path / "places")
    name = SubscriptionName("one", "audit", 1)
    first = ("orders", "till, the | second", "a.1", 1)
    later = ("orders", "till, the | second", "a.1", 9)
    begun = StoredPosition((0, 0), {"orders": (1, 1)}, had={first: (3, NOW), later: (9, NOW)})
    result_of(store.begin(name, begun))
    assert result_of(store.load(name)) == begun
    result_of(store.save(name, BookmarkUpdate(had={first: (9, NOW)}, gone=(later,))))
    assert result_of(store.load(name)) == replace(begun, had={first: (9, NOW)})
    result_of(store.begin(name, replace(begun, had={})))
    assert result_of(store.load(name)) == replace(begun, had={})


def test_a_file_of_a_former_version_is_gone_on_with(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "places", isolation_level=None)) as former:
        former.executescript(
            """
            CREATE TABLE place (
                instance TEXT NOT NULL, subscription TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL,
                PRIMARY KEY (instance, subscription, topic)) WITHOUT ROWID;
            INSERT INTO place VALUES ('one', 'audit', '', '0-0'), ('one', 'audit', 'orders', '1-1');
            """
        )
    store, name = SqliteBookmarkStore(tmp_path / "places"), SubscriptionName("one", "audit", 1)
    kept = StoredPosition((0, 0), {"orders": (1, 1)})
    assert result_of(store.load(name)) == kept
    run = ("orders", "till", "a.1", 1)
    result_of(store.save(name, BookmarkUpdate(had={run: (9, NOW)})))
    assert result_of(store.load(name)) == replace(kept, had={run: (9, NOW)})
