"""report: who is told to go to disk, and who to go, by pools, shares and ages; dead readers leave nothing."""

from __future__ import annotations

import json

import pytest

from ampsq import Transport

NOTHING = ["", "", 0, 0]


@pytest.fixture
def limits(world):
    """Define transports."""

    def define(*transports):
        for each in transports:
            world.run("define_transport", world.version(), each.name, each.to_json(), each.limits)
        world.mark()

    return define


@pytest.fixture
def report(world):
    def send(reader, behind=0, *, state="online", spooled=0, oldest=0, transport="*", at=None):
        now = world.now if at is None else at
        return world.run("report_reader", now, reader, transport, state, behind, spooled, oldest, 15_000, "c", "{}")

    return send


def left_of(world):
    """Return the keys that are kept of readers."""
    return {key for key in world.state() if key.split(":")[1] in {"readers", "reporting", "pools", "uses"}}


def test_what_a_reader_uses_is_kept_and_goes_with_it(world, limits, report):
    limits(Transport(name="*", message_memory_limit="1MB"))
    # When a reader reports
    assert report("a", 1000) == NOTHING
    # Then its pool and the time until which it counts are known
    assert world.changes() == {
        ":readers": {"a": "* * online 1000 0 0\n{}"},
        ":reporting": {"a": world.now + 15_000},
        ":pools": {"memory *": "1000"},
        ":uses:memory *": {"a": 1000},
    }
    # When it reports again, also with the same, then that counts once
    report("a", 400)
    report("a", 400)
    assert world.state()[":pools"] == {"memory *": "400"}
    # When it ends, then nothing is left
    assert report("a", state="") == NOTHING
    assert not left_of(world)


def test_of_too_much_memory_the_reader_that_uses_most_is_offlined(world, limits, report):
    limits(Transport(name="*", message_memory_limit="1MB"))
    # Given three readers whose uses are too much together
    assert report("a", 500_000) == NOTHING
    assert report("b", 400_000) == NOTHING
    # When the pool is exceeded, then only who uses most is told
    assert report("c", 200_000) == NOTHING
    assert report("b", 400_000) == NOTHING
    assert report("a", 500_000) == ["offline", "message_memory_limit", 1_100_000, 1_048_576]
    # And its use is of the disk at once, so that nobody goes after it
    assert world.state()[":pools"] == {"memory *": "600000", "disk *": "500000"}
    assert report("b", 400_000) == NOTHING
    assert report("a", 100_000, state="offline", spooled=400_000) == NOTHING
    # When it is online again, the disk is free
    assert report("a", 10) == NOTHING
    assert world.state()[":pools"] == {"memory *": "600010"}


def test_of_too_much_disk_the_reader_that_uses_most_is_disconnected(world, limits, report):
    limits(Transport(name="*", message_disk_limit="1MB"))
    assert report("a", 0, state="offline", spooled=700_000) == NOTHING
    assert report("b", 100_000, state="offline", spooled=500_000) == NOTHING
    # When the one that uses most reports, then it is told, and uses nothing any more
    told = report("a", 0, state="offline", spooled=700_000)
    assert told == ["disconnect", "message_disk_limit", 1_300_000, 1_048_576]
    assert world.state()[":uses:disk *"] == {"b": 600_000}
    assert world.state()[":pools"] == {"disk *": "600000"}
    # And so again, if the answer was lost
    assert report("a", 0, state="offline", spooled=700_000) == told


@pytest.mark.parametrize(
    ("state", "behind", "spooled", "told"),
    [
        ("online", 200_000, 0, ["offline", "client_max_capacity", 200_000, 104_857]),
        ("durable", 200_000, 0, ["disconnect", "client_max_capacity", 200_000, 104_857]),
        ("offline", 100_000, 120_000, ["disconnect", "client_max_capacity", 220_000, 209_715]),
        ("online", 100_000, 0, NOTHING),
        ("replaying", 900_000, 0, NOTHING),
    ],
)
def test_one_reader_may_use_its_share(limits, report, state, behind, spooled, told):  # noqa: PLR0917
    limits(Transport(name="*", message_memory_limit="1MB", message_disk_limit="2MB", client_max_capacity="10%"))
    assert report("a", behind, state=state, spooled=spooled) == told


@pytest.mark.parametrize("state", ["online", "durable", "offline"])
def test_who_does_not_take_a_message_for_too_long_is_disconnected(limits, report, state):
    limits(Transport(name="*", client_message_age_limit="30s"))
    assert report("a", 1, state=state, oldest=100_000, at=130_000) == NOTHING
    assert report("a", 1, state=state, oldest=100_000, at=130_001) == [
        "disconnect",
        "client_message_age_limit",
        30_001,
        30_000,
    ]
    # Who replays reads what is old
    assert report("b", 1, state="replaying", oldest=100_000, at=130_001) == NOTHING


def test_a_transport_has_the_limits_that_it_does_not_give_of_the_instance(world, limits, report):
    # Given the example of AMPS's chapter: one memory for all, and less patience for one transport
    limits(
        Transport(name="*", message_memory_limit="10MB", client_message_age_limit="30s"),
        Transport(name="low", client_message_age_limit="15s", client_max_capacity="10%"),
    )
    report("a", 1_000, transport="regular")
    report("b", 1_000, transport="low")
    assert world.state()[":pools"] == {"memory *": "2000"}
    assert report("a", 2_000_000, transport="regular") == NOTHING
    assert report("b", 2_000_000, transport="low")[:2] == ["offline", "client_max_capacity"]
    assert report("c", 0, transport="low", oldest=1, at=15_002)[:2] == ["disconnect", "client_message_age_limit"]
    assert report("d", 0, transport="regular", oldest=1, at=15_002) == NOTHING


def test_a_transport_that_gives_a_limit_has_a_pool_of_its_own(world, limits, report):
    limits(Transport(name="*", message_memory_limit="1MB"), Transport(name="vip", message_memory_limit="100MB"))
    report("a", 1_000_000)
    assert report("b", 50_000_000, transport="vip") == NOTHING
    assert world.state()[":pools"] == {"memory *": "1000000", "memory vip": "50000000"}
    # When it has none any more, its readers use the instance's
    limits(Transport(name="vip"))
    assert report("b", 50_000_000, transport="vip")[:2] == ["offline", "message_memory_limit"]
    assert "memory vip" not in world.state()[":pools"]


def test_a_reader_that_is_not_heard_of_leaves_nothing(world, limits, report):
    limits(Transport(name="*", message_memory_limit="1MB"))
    for name in "abc":
        report(name, 1000, at=1_000)
    # When another reports after their time
    report("d", 5, at=17_000)
    # Then only that one is left
    assert world.state()[":pools"] == {"memory *": "5"}
    assert world.state()[":readers"].keys() == {"d"}


def test_without_limits_nobody_is_told_anything(report):
    assert report("a", 2**50, oldest=1, at=10**12) == NOTHING


def test_actions_are_told_why_somebody_was_disconnected(world, limits, report):
    limits(Transport(name="*", client_message_age_limit="30s"))
    world.store.redis.hset(world.key(":instance"), "heard", 1)
    report("a", 1, oldest=1, at=40_000)
    ((_, fields),) = world.state()[":happenings"]
    assert fields == {"what": "disconnect", "client": "c", "data": "client_message_age_limit"}
    assert json.loads(world.state()[":readers"]["a"].partition("\n")[2]) == {}


def test_how_far_logs_go_on_is_told_of_each_place(world):
    # Given logs, one of which was trimmed, and one that was never written
    add = world.store.redis.xadd
    for log, ids in (("a", (1, 2, 3)), ("b", (4, 5, 6))):
        for number in ids:
            add(world.key(f":log:{log}"), {"b": "x" * 9 * number}, id=f"{number}-0")
    world.store.redis.xtrim(world.key(":log:a"), maxlen=2, approximate=False)
    world.store.redis.hset(world.key(":retention"), "removed a", "1-0")
    world.store.redis.xdel(world.key(":log:b"), "4-0")
    world.mark()
    # Then each is told with what was ever added, its last ID, what comes next, how large that is, and what was removed
    assert world.run("measure_lag", "a", "2-0", "b", "6-0", "c", "0-0", "b", "0-1") == [
        [3, "3-0", "3-0", 28, "1-0"],
        [3, "6-0", "", 0, "4-0"],
        [0, "0-0", "", 0, "0-0"],
        [3, "6-0", "5-0", 51, "4-0"],
    ]
    assert world.changes() == {}
