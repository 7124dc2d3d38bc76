"""The state of the world of a topic with a key: what publish, sow_delete, sweep and catch_up make of its records."""

from __future__ import annotations

import pytest
from record_texts import record

from ampsq.base.errors import DeltaNotJson, MissingKey, NoRecords, RecordsBehind, TooMuchToRead


def test_a_publish_keeps_the_last_message_of_each_key(world):
    world.keyed("orders")
    world.mark()

    world.publish("orders", '{"id": 1, "v": 1}', '{"id": "a"}', '{"id": 1, "v": 2}')

    assert world.changes() == {
        ":log:orders": [
            ("1000-0", {"b": '{"id": 1, "v": 1}'}),
            ("1000-1", {"b": '{"id": "a"}'}),
            ("1000-2", {"b": '{"id": 1, "v": 2}'}),
        ],
        ":clock": "1000-2",
        ":records:orders": {"1": record("1000-2", '{"id": 1, "v": 2}'), "a": record("1000-1", '{"id": "a"}')},
        ":sow:orders": {"read_to": "1000-2", "keyless": "0"},
    }


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"id": 7}', "7"), ('{"id": 7.0}', "7"), ('{"id": "7"}', "7"), ('{"id": 0}', "0"), ('{"id": -3}', "-3"),
        ('{"id": 7.25}', "7.25"), ('{"id": 9007199254740993}', "9007199254740993"), ('{"id": true}', "1"),
        ('{"id": "a|b"}', "a|b"),
    ],
)  # fmt: skip
def test_a_key_is_what_its_value_is_written_as(world, body, key):
    world.keyed("orders")

    world.publish("orders", body)

    assert list(world.records("orders")) == [key]


def test_a_key_of_several_parts_keeps_them_apart(world):
    world.keyed("orders", "/a", "/b/c")

    world.publish("orders", '{"a": "x|", "b": {"c": "y"}}', '{"a": "x", "b": {"c": "|y"}}')

    assert set(world.records("orders")) == {"x\\||y", "x|\\|y"}


@pytest.mark.parametrize("body", ['{"no": 1}', '{"id": null}', '{"id": ""}', '{"id": {}}', '{"id": [1, 2]}', "no", "7"])
def test_a_message_without_one_value_for_its_key_is_refused_and_changes_nothing(world, body):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}')
    world.mark()

    with pytest.raises(MissingKey) as refusal:
        world.publish("orders", '{"id": 2}', body)

    assert refusal.value.detail == {"topic": "orders", "key": "/id", "message": 1}
    assert world.changes() == {}


HEAVY = [f'{{"id": {i}, "l": [{"[1]," * 1_000}1]}}' for i in range(40)]


def too_much(world, call, *arguments, **more):
    """A call that is refused as too much to read and changes nothing; gives how many it may have."""
    world.mark()
    with pytest.raises(TooMuchToRead) as refusal:
        call(*arguments, **more)
    assert world.changes() == {}
    assert refusal.value.detail["topic"] == "orders"
    return refusal.value.detail["read"]


@pytest.mark.parametrize("named", [{}, {"publisher": "p", "sequence": 1}])
def test_a_call_with_too_much_to_read_is_refused_and_changes_nothing_and_what_it_says_is_taken(world, named):
    world.keyed("orders", queues=())
    world.queue("work", "orders")
    world.subscribe("work", asked=10)
    world.publish("orders", HEAVY[0])

    read = too_much(world, world.publish, "orders", *HEAVY, **named)

    assert 5 < read < 20
    assert too_much(world, world.publish, "orders", *HEAVY[: read + 1], **named) == read
    assert world.publish("orders", *HEAVY[:read], **named)[3] == read
    assert set(world.records("orders")) == {str(i) for i in range(read)}


def test_what_is_read_counts_over_all_of_a_call_and_one_message_is_never_too_much(world):
    world.keyed("orders")
    large = f'{{"id": 1, "l": [{"1," * 25_000}1]}}'
    assert world.publish("orders", large)[3] == 1
    assert world.publish("orders", '{"id": 2}', large)[3] == 2
    assert too_much(world, world.publish, "orders", large, '{"id": 2}') == 1
    assert too_much(world, world.delete, "orders", "data", *HEAVY) > 5
    assert world.delete("orders", "data", large) == 1


def test_changes_of_a_large_record_count_with_what_they_are_merged_into(world):
    world.keyed("orders")
    world.publish("orders", f'{{"id": 1, "x": "{"y" * 20_000}"}}')
    changes = [f'{{"id": 1, "n": {n}}}' for n in range(10)]
    read = too_much(world, world.publish, "orders", *changes, delta=True)
    assert 1 <= read < 5
    assert world.publish("orders", *changes[:read], delta=True)[3] == read


def test_records_follow_what_costs_much_to_read_in_steps(world):
    world.topic("orders")
    world.publish("orders", *HEAVY)
    world.keyed("orders")
    steps = 1
    while world.run("catch_up_records", "orders")[0]:
        steps += 1
    assert steps >= 3
    assert len(world.records("orders")) == len(HEAVY)


def test_a_delta_is_merged_into_the_record_and_the_whole_message_logged_and_queued(world):
    world.keyed("orders", queues=())
    world.queue("work", "orders")
    worker = world.subscribe("work", asked=10)
    world.publish("orders", '{ "id": 1, "n": 12345678901234567890.10, "o": {"x": 1.0} }')
    world.mark()

    world.publish("orders", '{"id":1, "o": {"y": 2}, "z": null}', delta=True)

    merged = '{ "id": 1, "n": 12345678901234567890.10, "o": {"x": 1.0,"y": 2},"z": null }'
    changes = world.changes()
    assert changes[":log:orders"] == [("1000-1", {"b": merged})]
    assert changes[":records:orders"] == {"1": record("1000-1", merged)}
    assert [message.body for message in world.take(worker, 10)][-1] == merged


def test_deltas_of_one_call_build_on_each_other(world):
    world.keyed("orders")

    world.publish("orders", '{"id": 1, "a": 1}', '{"id": 1, "b": 2}', '{"id": 2}', delta=True)

    assert world.records("orders") == {"1": ("1000-1", '{"id": 1, "a": 1,"b": 2}'), "2": ("1000-2", '{"id": 2}')}


def test_a_delta_to_a_topic_without_a_key_is_a_publish(world):
    world.topic("orders")
    world.mark()

    world.publish("orders", "any", delta=True)

    assert world.changes() == {":log:orders": [("1000-0", {"b": "any"})], ":clock": "1000-0"}


def test_a_message_gets_the_life_of_its_topic_before_it_is_logged(world):
    world.keyed("orders", life=500)
    world.mark()

    world.publish("orders", '{"id": 1}')
    world.publish("orders", '{"id": 2}', expiration=100)

    assert world.changes() == {
        ":log:orders": [("1000-0", {"b": '{"id": 1}', "e": "500"}), ("1000-1", {"b": '{"id": 2}', "e": "100"})],
        ":clock": "1000-1",
        ":records:orders": {
            "1": record("1000-0", '{"id": 1}', 1500, "1:e3:500"),
            "2": record("1000-1", '{"id": 2}', 1100, "1:e3:100"),
        },
        ":sow:orders": {"read_to": "1000-1", "keyless": "0"},
        ":ends:orders": {"1": 1500.0, "2": 1100.0},
        ":expirations:orders": {"1000-0": 1500.0, "1000-1": 1100.0},
        ":due": {"records orders": 1100.0, "expirations orders": 1100.0},
    }


def test_a_record_whose_life_is_over_is_not_seen_and_its_end_is_told_in_the_log(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', '{"id": 2}', expiration=100)
    world.publish("orders", '{"id": 2}')
    world.now = 1_100

    assert list(world.records("orders")) == ["2"]
    world.mark()
    world.sweep_all()

    changes = world.changes()
    assert changes[":log:orders"] == [("1100-0", {"b": "", "q": "~", "o": "expired", "k": "1"})]
    assert changes[":records:orders"] == {"1": None}
    assert changes[":ends:orders"] is None
    assert changes[":sow:orders"] == {"read_to": "1100-0"}


def test_a_later_message_without_an_end_keeps_the_record(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', expiration=100)
    world.publish("orders", '{"id": 1, "v": 2}')
    world.now = 5_000
    world.sweep_all()

    assert world.records("orders") == {"1": ("1000-1", '{"id": 1, "v": 2}')}


def test_a_delta_does_not_build_on_what_is_over(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1, "a": 1}', expiration=100)
    world.now = 1_100

    world.publish("orders", '{"id": 1, "b": 1}', delta=True)

    assert world.records("orders") == {"1": ("1100-0", '{"id": 1, "b": 1}')}


@pytest.mark.parametrize("name", ["catch_up_records", "browse_records", "sow_delete"])
def test_a_topic_without_a_key_has_no_records(world, name):
    world.topic("orders")
    world.mark()
    arguments = {"catch_up_records": (), "browse_records": ("", ""), "sow_delete": ("", "", "", "", "keys", "1")}[name]

    with pytest.raises(NoRecords):
        world.run(name, *([] if name == "catch_up_records" else [world.now]), "orders", *arguments)

    assert world.changes() == {}


def test_what_somebody_else_wrote_comes_first(world):
    world.keyed("orders")
    world.xadd("orders", "900-0", "id", "1", "v", "x")
    world.publish("orders", '{"id": 2}')
    with pytest.raises(RecordsBehind):
        world.publish("orders", '{"id": 1, "w": 1}', delta=True)
    with pytest.raises(RecordsBehind):
        world.delete("orders", "keys", "1")

    world.sweep_all()

    assert world.records("orders") == {"1": ("900-0", None), "2": ("1000-0", '{"id": 2}')}
    world.publish("orders", '{"id": 1, "w": 1}', delta=True)
    assert world.records("orders")["1"] == ("1000-1", '{"id":1,"v":"x","w": 1}')


def test_a_noticed_entry_enters_by_the_timetable(world):
    world.keyed("orders")
    world.xadd("orders", "900-0", "id", "1")
    world.mark()

    world.run("scan_foreign_entries", world.now, "orders", "")

    assert world.changes() == {":clock": "900-0", ":due": {"records orders": 1000.0}}
    world.run("sweep", world.now)
    assert world.records("orders") == {"1": ("900-0", None)}


def test_entries_without_the_key_are_counted_and_messages_for_one_queue_are_passed_over(world):
    world.keyed("orders")
    world.xadd("orders", "900-0", "no", "1")
    world.xadd("orders", "901-0", "b", '{"id": 1}', "q", "work")
    world.xadd("orders", "902-0", "b", '{"id": 2}')
    world.mark()

    assert world.run("catch_up_records", "orders") == [0, "902-0"]

    assert world.changes() == {
        ":records:orders": {"2": record("902-0", '{"id": 2}')},
        ":sow:orders": {"read_to": "902-0", "keyless": "1"},
    }


def test_a_key_of_a_topic_with_a_log_makes_records_of_it_in_bounded_steps(world):
    world.topic("orders")
    for first in range(0, 2_000, 100):
        world.publish("orders", *(f'{{"id": {i % 700}, "v": {i}}}' for i in range(first, first + 100)))
    world.keyed("orders")

    steps = 0
    while world.run("catch_up_records", "orders")[0]:
        steps += 1

    assert steps >= 3
    found = world.records("orders")
    assert {key: body for key, (_, body) in found.items()} == {
        str(i % 700): f'{{"id": {i % 700}, "v": {i}}}' for i in range(1_300, 2_000)
    }


def test_another_key_makes_the_records_anew_and_no_key_ends_them(world):
    world.keyed("orders", "/a")
    world.publish("orders", '{"a": 1, "b": 1}', '{"a": 2, "b": 1}')
    world.keyed("orders", "/b")
    world.sweep_all()
    assert world.records("orders") == {"1": ("1000-1", '{"a": 2, "b": 1}')}

    world.topic("orders")

    assert [suffix for suffix in world.state() if suffix.startswith((":sow", ":records", ":ends"))] == []
    world.publish("orders", "no JSON")


def test_the_same_key_again_keeps_the_records(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}')
    world.mark()

    world.keyed("orders", life=100)

    assert world.changes()[":sow:orders"] == {"life": "100"}
    assert ":records:orders" not in world.changes()


def test_records_are_made_of_ends_in_the_log_too(world):
    world.keyed("orders")
    world.publish("orders", '{"id": 1}', '{"id": 2}', expiration=100)
    world.publish("orders", '{"id": 3}')
    world.delete("orders", "keys", "2")
    world.now = 1_200
    world.sweep_all()
    world.publish("orders", '{"id": 2, "v": 2}')
    before = world.records("orders")
    world.topic("orders")
    world.keyed("orders")

    world.sweep_all()

    assert world.records("orders") == before == {"2": ("1200-1", '{"id": 2, "v": 2}'), "3": ("1000-2", '{"id": 3}')}


def test_ends_of_records_never_reach_a_queue(world):
    world.keyed("orders")
    world.queue("work", "orders")
    worker = world.subscribe("work", asked=100)
    world.publish("orders", '{"id": 1}', '{"id": 1, "v": 2}')
    world.delete("orders", "keys", "1")
    world.publish("orders", '{"id": 1, "v": 3}')

    bodies = [message.body for message in world.take(worker, 100)]

    assert bodies == ['{"id": 1}', '{"id": 1, "v": 2}', '{"id": 1, "v": 3}']


# --- other message types than JSON -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "bodies", "found"),
    [
        ("fix1", ["55=IBM\x0144=9\x01", "55=MS\x0144=12\x01", "55=IBM\x0144=11\x01"], {"IBM": 2, "MS": 1}),
        ("nvfix124", ["55=IBM|44=9", "55=7.0|44=12|", "55=7|44=11"], {"7": 2, "7.0": 1}),
        (
            "msgpack",
            [b"\x82\xa255\xa3IBM\xa244\x09", b"\x82\xa255\x07\xa244\x0c", b"\x82\xa255\xc4\x01x\xa244\x0b"],
            {"7": 1, "x": 2},
        ),
    ],
)
def test_keys_and_filters_of_records_read_a_body_by_its_format(world, format, bodies, found):  # noqa: A002
    world.keyed("orders", "/55", format=format)

    world.publish("orders", *bodies)

    records = world.records("orders", "/44 > 10")
    assert {key: stream_id for key, (stream_id, _) in records.items()} == {
        key: f"1000-{number}" for key, number in found.items()
    }
    assert world.delete("orders", "data", bodies[1]) == 1
    assert world.delete("orders", "filter", "/44 > 10") == 1


@pytest.mark.parametrize("body", ['{"55": "IBM"}', "55=", "44=9", "55=A|55=B", "55"])
def test_a_body_that_is_not_of_its_format_has_no_key(world, body):
    world.keyed("orders", "/55", format="fix124")
    world.mark()

    with pytest.raises(MissingKey):
        world.publish("orders", body)

    assert world.changes() == {}


def test_what_somebody_else_wrote_enters_records_of_any_format(world):
    world.keyed("orders", "/55", format="fix124")
    world.xadd("orders", "900-0", "55", "IBM")
    world.xadd("orders", "901-0", "b", "55=MS|44=9")

    world.run("catch_up_records", "orders")

    assert set(world.records("orders")) == {"IBM", "MS"}


def test_a_change_is_merged_into_json_only(world):
    world.keyed("orders", "/55", format="fix124")
    world.publish("orders", "55=IBM|44=9")
    world.mark()

    with pytest.raises(DeltaNotJson) as refusal:
        world.publish("orders", "55=IBM|44=8", delta=True)

    assert refusal.value.detail == {"topic": "orders"}
    assert world.changes() == {}


def test_records_of_another_format_are_made_anew(world):
    world.keyed("orders", "/55", format="fix124")
    world.mark()

    world.keyed("orders", "/55")

    assert world.changes()[":sow:orders"]["format"] == ""


# --- publishers that are logged on -----------------------------------------------------------------------
