"""explain: what one look at a message tells, and that it changes nothing."""

from __future__ import annotations

import pytest
from world import came_back, ref

from ampsq.base.errors import UnknownQueue
from ampsq.expressions import parse

FIRST, SECOND, THIRD = ref("1000-0"), ref("1000-1"), ref("1000-2")
#: Commands that no message, subscription or lease more makes more of, with room for the bounded parts.
BOUND = 1_500


def explain(world, asked=""):
    """Name -> value, or the list of values where it came several times; nothing may change."""
    world.mark()
    flat = world.run("explain", world.now, "work", asked)
    assert world.changes() == {}
    facts = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        facts.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in facts.items()}


def told(world, asked, *names):
    facts = explain(world, asked)
    return [facts.get(name) for name in names]


def filter_id(text):
    return parse(text, "filter").id


def test_an_unread_message(world):
    world.queue("work", "orders")
    world.publish("orders", "1", "2", "3")

    assert explain(world, THIRD) == {
        "now": "1000", "definition": "{}", "delayed": "0", "scheduled": "0", "filtered": "0", "leased": "0",
        "ready": "0", "sorted": "0", "held": "0", "subscriptions": "0", "unread": "3", "ref": THIRD, "where": "waiting",
        "name": f"{THIRD} orders~i.one~1000-2", "last": "1000-2", "recorded": "1", "json": "1",
        "filter": "none 1 0 0 -1 ", "before": "2",
    }  # fmt: skip


def test_without_a_message_the_facts_are_the_queue_s(world):
    world.queue("work", "orders")

    assert told(world, "", "ref", "where", "unread", "leased") == [None, None, "0", "0"]


def test_a_leased_message_in_an_inbox_and_picked_up(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", filter="/n = 1")
    world.publish("orders", '{"n": 1}')
    names = ("where", "lease", "unseen", "client", "tree", "silent", "before")

    known = ["leased", f"{subscription} 1 6000", "1", "c/1", parse("/n = 1", "filter").json, "0", None]
    assert told(world, FIRST, *names) == known
    world.take(subscription)
    known[2] = "0"
    assert told(world, FIRST, *names) == known
    world.now = 11_001
    known[5] = "1"
    assert told(world, FIRST, *names) == known
    world.store.redis.delete(world.key(f":s:{subscription}"))
    assert told(world, FIRST, *names) == [*known[:3], None, None, *known[5:]]


@pytest.mark.parametrize("body", ["x" * 20_000, "small"])
def test_any_kind_of_element_is_found_in_an_inbox(world, body):
    world.queue("work", "orders")
    world.subscribe("work", asked=5)
    world.xadd("orders", "5-0", "h", '{"a":"b"}', "b", body, "p", "somebody")
    world.xadd("orders", "6-0", "price", body)
    world.run("scan_foreign_entries", world.now, "orders", "")

    assert [told(world, ref(place), "where", "unseen") for place in ("5-0", "6-0")] == [["leased", "1"]] * 2


def test_the_subscriptions_and_what_they_filter(world):
    world.queue("work", "orders", "returns")
    world.queue("other", "returns")
    full = world.subscribe("work", "other", filter="/n > 0")
    world.publish("orders", '{"n": 1}', '{"n": 2}')
    free = world.subscribe("work", asked=3, filter="/n > 1")
    barriers_only = world.subscribe("work", asked=0)
    world.now = 11_001

    facts = explain(world, SECOND)

    above_0, above_1 = filter_id("/n > 0"), filter_id("/n > 1")
    assert facts["subscription"] == [
        f"{full} 1 1 2 1 1 {above_0} c/1", f"{free} 0 3 1 1 1 {above_1} c/2", f"{barriers_only} 0 0 1 1 1 none c/3",
    ]  # fmt: skip
    assert sorted(facts["filter"]) == sorted(
        [
            "none 1 0 0 -1 ",
            f"{above_0} 1 0 0 -1 {parse('/n > 0', 'filter').json}",
            f"{above_1} 1 1 0 -1 {parse('/n > 1', 'filter').json}",
        ]
    )
    assert facts["holder"] == f"{full} 1 c/1"


def test_what_is_not_json_matches_no_filter(world):
    world.queue("work", "orders", entry="1 = 1")
    world.subscribe("work", filter="1 = 1")
    world.publish("orders", "{")

    assert told(world, FIRST, "where", "json", "enters") == ["settled", "0", "0"]


def test_the_place_by_a_large_priority(world):
    world.queue("work", "orders", priority="/p")
    first, second = 2**64 - 1, 2**64 - 2
    world.publish("orders", f'{{"p": {second}}}', f'{{"p": {first}}}', '{"p": null}')
    world.run("sweep", world.now)
    world.sweep_all()
    world.store.redis.zadd(world.key(":due"), {"dispatch work": 0})
    world.sweep_all()

    found = [told(world, place, "where", "before", "priority") for place in (FIRST, SECOND, THIRD)]

    assert found == [
        ["sorted", "1", "-1.844674407370955e+19 #001"],
        ["sorted", "0", "-1.844674407370955e+19 #000"],
        ["sorted", "2", "1 "],
    ]
    assert told(world, "", "ref") == [SECOND]


def test_a_delayed_message_and_its_attempts(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.publish("orders", "1")
    world.settle("cancelled", world.take(subscription), period=700)

    assert told(world, FIRST, "where", "due", "attempts", "delayed") == [
        "delayed", "1700", f"1 1 cancelled {came_back((1_000, 'cancelled'))}", "1",
    ]  # fmt: skip


def test_the_first_unread_barrier_before_a_message(world):
    world.queue("work", "orders", "returns", barrier="/end = 1")
    world.publish("returns", "1", '{"end": 1}')
    world.publish("orders", '{"end": 1}', "2")

    names = ("where", "barrier", "barrier_before", "before", "is_barrier")
    assert told(world, ref("1000-3"), *names) == ["waiting", ref("1000-1", "returns"), "1", "3", "0"]
    assert told(world, ref("1000-1", "returns"), *names) == ["waiting", None, None, "1", "1"]


def test_the_head_is_found_behind_what_is_settled_ahead(world):
    world.queue("work", "orders", entry="/n > 0")
    world.publish("orders", '{"n": 1}', '{"n": 0}', '{"n": 1}')
    world.settle("acknowledged", {"work": [(FIRST, "")]})

    assert told(world, "", "ref", "before", "enters") == [THIRD, "0", "1"]
    assert told(world, FIRST, "where", "ahead") == ["settled", "acknowledged"]


@pytest.mark.parametrize(
    ("place", "known"),
    [
        (ref("1000-0", "nowhere"), ["", None]),
        (ref("9000-0"), ["waiting", None]),
        (ref("1-0"), ["settled", None]),
    ],
)
def test_what_the_queue_does_not_have(world, place, known):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.publish("orders", "1")
    world.take(subscription)

    assert told(world, place, "where", "recorded") == known


def test_an_unknown_queue_is_refused(world):
    with pytest.raises(UnknownQueue):
        world.run("explain", world.now, "work", "")


def commands(world):
    return sum(each["calls"] for each in world.store.redis.info("commandstats").values())


@pytest.mark.parametrize("bodies", [100, 20_000])
def test_a_look_is_bounded_however_much_there_is(world, bodies):
    # Given a queue with thousands of subscriptions, leases, topics and messages that it has not read
    world.queue("work", *(f"t{number}" for number in range(150)), room=3_000, entry="/n > 0")
    for number in range(300):
        world.subscribe("work", filter=f"/n > {number % 30}", asked=0)
    holder = world.subscribe("work", asked=2_000)
    for _ in range(4):
        world.publish("t0", *['{"n": 1}'] * 500)
    while world.take(holder, 500):
        pass
    for number in range(150):
        world.publish(f"t{number}", *['{"n": 0, "text": "' + "x" * bodies + '"}'] * 20)
    last = world.publish("t149", '{"n": 1}')[2]
    # When it is looked at, then few commands are run
    for asked in (ref(last, "t149"), ""):
        before = commands(world)
        flat = world.run("explain", world.now, "work", asked)
        assert commands(world) - before < BOUND
        names = flat[::2]
        assert names.count("at_least") == 1
        assert names.count("subscription") == 100
        assert names.count("filter") == 31
        assert names.count("holder") <= 1
