"""settle: what holders report of messages, renewing their leases, and when that goes."""

from __future__ import annotations

import pytest
from settling import ACKED, FIRST, SECOND, STALE, UNKNOWN, journaled
from world import came_back

REPORTS = ":q:work:progress"


def report(world, message, said="0.4 page 40 of 100", token=None):
    token = message.token if token is None else token
    return world.run("settle", world.now, "extended", -1, "", message.queue, 1, message.ref, token, said)


def explained(world, place=FIRST):
    flat = world.run("explain", world.now, "work", place)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_report_is_kept_and_renews_the_lease(world, leased):
    message = leased()
    world.now = 3_000

    assert report(world, message) == []

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"1 {world.subscription} 1 8000 5000"},
        ":q:work": {"progress": "1"},
        REPORTS: {FIRST: "1 3000 0.4 page 40 of 100"},
    }
    assert explained(world)["progress"] == "3000 0.4 page 40 of 100"


def test_the_last_report_counts(world, leased):
    message = leased()
    report(world, message)
    world.mark()
    world.now = 1_500

    report(world, message, "1")

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"1 {world.subscription} 1 6500 5000"},
        REPORTS: {FIRST: "1 1500 1"},
    }


def test_a_report_makes_no_lease_shorter_and_renews_by_the_length_that_it_has(world, leased):
    message = leased()
    world.settle("extended", [message], period=60_000)
    world.now = 11_000
    world.mark()

    report(world, message)

    assert world.changes()[":q:work:leases"] == {FIRST: f"1 {world.subscription} 1 71000 60000"}


def test_a_lease_that_never_lapses_stays_so(world, leased):
    message = leased(lease=0)
    world.now = 3_000

    assert report(world, message) == []

    assert world.changes() == {":q:work": {"progress": "1"}, REPORTS: {FIRST: "1 3000 0.4 page 40 of 100"}}


@pytest.mark.parametrize(
    ("place", "token", "code"), [(FIRST, "9", STALE), (SECOND, "1", STALE), ("junk", "1", UNKNOWN)]
)
def test_a_foreign_token_is_refused_and_changes_nothing(world, leased, place, token, code):
    message = leased()
    report(world, message)
    world.mark()

    assert report(world, message._replace(ref=place), "0.9", token) == [place, code]

    assert world.changes() == {}


def test_a_late_report_is_refused_and_changes_nothing(world, leased):
    message = leased()
    world.settle("acknowledged", [message], by=world.subscription)
    world.mark()

    assert report(world, message) == [FIRST, ACKED]

    assert world.changes() == {}


def test_a_report_of_a_lease_before_is_refused_and_changes_nothing(world, leased):
    message = leased()
    world.now = 6_000
    world.sweep_all()
    (again,) = world.take(world.subscription)
    report(world, again, "0.2")
    world.mark()

    assert report(world, message, "0.9") == [FIRST, STALE]

    assert world.changes() == {}


@pytest.mark.parametrize("by", ["", "holder"])
def test_an_acknowledgement_takes_the_report_along(world, leased, by):
    message = leased()
    report(world, message)

    world.settle("acknowledged", [message], by=by and world.subscription)

    assert REPORTS not in world.state()
    assert "progress" not in world.state()[":q:work"]
    assert (
        journaled("acknowledged", FIRST, **({"by": world.subscription} if by else {}))
        in world.state()[":q:work:journal"]
    )


@pytest.mark.parametrize("verb", ["cancelled", "expired", "given_back"])
def test_whatever_ends_the_lease_takes_the_report_along(world, leased, verb):
    message = leased()
    report(world, message)

    assert world.settle(verb, [message], period=3_000) == {}

    assert REPORTS not in world.state()
    assert "progress" not in world.state()[":q:work"]


def test_a_lapse_takes_the_report_along_and_the_next_delivery_has_none(world, leased):
    message = leased()
    report(world, message)
    world.now = 6_000

    world.sweep_all()

    assert REPORTS not in world.state()
    assert world.state()[":q:work:attempts"] == {FIRST: f"1 0 lapsed {came_back((6_000, 'lapsed'))}"}
    assert world.holders("work") == {FIRST: world.subscription}
    assert "progress" not in explained(world)


def test_a_subscription_that_ends_takes_its_reports_along(world, leased):
    message = leased()
    report(world, message)

    world.unsubscribe(world.subscription, held=[message])
    world.sweep_all()

    assert REPORTS not in world.state()


def test_of_several_reports_one_goes_and_the_others_stay(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=2)
    world.publish("orders", "one", "two")
    first, second = world.take(subscription, 2)
    report(world, first, "0.1")
    report(world, second, "0.2")
    world.mark()

    world.settle("acknowledged", [first], by=subscription)

    assert world.changes()[REPORTS] == {FIRST: None}
    assert world.state()[":q:work"]["progress"] == "1"


def test_what_a_release_before_left_behind_is_not_shown_and_does_not_grow(world, leased):
    message = leased()
    # Given reports of leases that a client ended which does not know of reports
    left = {f"d2000a{number}/orders": f"{number + 7} 1000 0.5" for number in range(3)}
    world.store.redis.hset(world.key(REPORTS), mapping=left | {FIRST: "77 1000 0.5"})
    world.store.redis.hset(world.key(":q:work"), "progress", 1)
    assert "progress" not in explained(world)

    report(world, message)

    assert world.state()[REPORTS] == {FIRST: "1 1000 0.4 page 40 of 100"}


def test_a_removed_queue_leaves_no_report(world, leased):
    message = leased()
    report(world, message)
    world.unsubscribe(world.subscription, held=[message])
    # Given one that was left behind
    world.store.redis.hset(world.key(REPORTS), FIRST, "77 1000 0.5")

    world.run("remove_queue", world.version(), "work")

    assert REPORTS not in world.state()
