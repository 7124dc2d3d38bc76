"""Messages of one `publish_many`, cut into batches of one partition each."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from ampsq import Topic
from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import ServerFull, Unavailable
from ampsq.base.partitions import partition_of_key
from ampsq.publishing import partitioned_batches
from ampsq.publishing.deduplication import DeduplicationWindow
from ampsq.publishing.partitioned_batches import PartitionChoice, PartitionedBatches
from ampsq.publishing.topic_key import UNSAID, TopicKey


def batches_of(total=4, size=3, topic_key=UNSAID, *, id_of=None, **options):
    window = DeduplicationWindow.of_many(id_of, None)
    return PartitionedBatches(PartitionChoice(total), size, topic_key, window=window, **options)


def decoded(batch):
    return [json.loads(body) for body in batch.bodies]


def test_messages_without_a_name_go_to_the_partitions_in_turn_by_whole_batches():
    cut = list(batches_of().cut(range(14)))

    assert [(each.partition, decoded(each)) for each in cut] == [
        (0, [0, 1, 2]),
        (1, [3, 4, 5]),
        (2, [6, 7, 8]),
        (3, [9, 10, 11]),
        (0, [12, 13]),
    ]
    assert list(cut[4].places) == [12, 13]


@pytest.mark.parametrize(
    ("messages", "total", "in_a_row"),
    [
        # As many for each as there are, in equal rounds of at most eight.
        (64, 64, [1]),
        (64, 8, [8]),
        (128, 64, [2]),
        (80, 8, [5]),
        (64, 4, [8]),
        (36, 4, [4, 4, 4, 4, 4, 4, 4, 4, 4]),
        (5, 4, [1]),
    ],
)
def test_batches_in_a_row_go_to_one_partition_where_all_get_as_many(messages, total, in_a_row):
    cut = [each.partition for each in batches_of(total=total, size=1).cut(range(messages))]

    rows = [len(list(some)) for _, some in itertools.groupby(cut)]
    assert set(rows) == set(in_a_row)
    counts = Counter(cut)
    assert max(counts.values()) - min(counts[number] for number in range(total)) <= max(in_a_row)


def test_of_an_unknown_number_of_batches_a_partition_gets_as_many_in_a_row_as_each_has_had():
    cut = [each.partition for each in batches_of(size=1).cut(iter([0] * 1000))]
    # A list iterator tells its length; a generator does not.
    unknown = [each.partition for each in batches_of(size=1).cut(0 for _ in range(1000))]

    assert [len(list(some)) for _, some in itertools.groupby(cut)] == [7] * 142 + [6]
    rows = [len(list(some)) for _, some in itertools.groupby(unknown)]
    assert rows[:8] == [1, 1, 1, 1, 1, 1, 1, 1]
    assert max(rows) == 8
    for end in range(0, 1000, 50):
        counts = Counter(unknown[:end])
        assert max(counts.values(), default=0) - min(counts[number] for number in range(4)) <= 8


def test_large_batches_do_not_wait_for_one_server():
    cut = list(batches_of(size=2).cut([b"x" * 150_000] * 64))

    assert [each.partition for each in cut] == [0, 1, 2, 3] * 8
    assert {each.size for each in cut} == {300_000}


def test_each_key_is_in_one_partition_in_order_and_batches_are_full():
    messages = [(f"k{number % 7}", number) for number in range(1000)]

    cut = list(batches_of(size=50, key=lambda message: message[0]).cut(iter(messages)))

    by_key = {}
    for batch in cut:
        assert len(batch.bodies) <= 50
        for key, number in decoded(batch):
            assert batch.partition == partition_of_key(key, 4)
            by_key.setdefault(key, []).append(number)
    assert by_key == {f"k{key}": list(range(key, 1000, 7)) for key in range(7)}
    # Each partition has one batch that is not full, its last one, at most.
    for partition in range(4):
        assert all(len(each.bodies) == 50 for each in [each for each in cut if each.partition == partition][:-1])
    assert sorted(place for batch in cut for place in batch.places) == list(range(1000))


def test_the_group_chooses_where_no_key_does_and_the_deduplication_id_where_neither_does():
    by_key = list(batches_of(key=str, name="g", id_of=lambda _: "i").cut([17]))
    by_group = list(batches_of(name="g", id_of=lambda _: "i").cut([17]))
    by_id = list(batches_of(id_of=lambda _: "i").cut([17]))

    assert [by_key[0].partition, by_group[0].partition, by_id[0].partition] == [
        partition_of_key("17", 4),
        partition_of_key("g", 4),
        partition_of_key("i", 4),
    ]


def test_the_topic_chooses_where_no_key_does_and_what_lacks_its_value_goes_by_the_next_rule():
    by_topic = TopicKey.of(Topic(name="orders", partition_by="/customer"))

    keyed = list(
        batches_of(topic_key=by_topic, key=lambda message: message["till"]).cut([{"customer": "c", "till": "t"}])
    )
    of_topic = list(batches_of(topic_key=by_topic, name="g", id_of=lambda _: "i").cut([{"customer": "c"}]))
    lacking = list(batches_of(topic_key=by_topic, name="g", id_of=lambda _: "i").cut([{"customer": None}]))
    in_turn = list(batches_of(topic_key=by_topic).cut([{}, {}, {}]))

    assert [found[0].partition for found in (keyed, of_topic, lacking)] == [
        partition_of_key("t", 4),
        partition_of_key("c", 4),
        partition_of_key("g", 4),
    ]
    assert [each.partition for each in in_turn] == [0, 1, 2]


def test_each_batch_has_the_ids_of_its_messages_and_a_function_that_makes_them_is_called_once_a_message():
    called = []

    def id_of(message):
        called.append(message)
        return None if message % 3 == 0 else f"i{message}"

    for batch in batches_of(size=5, key=lambda message: str(message % 7), id_of=id_of).cut(range(40)):
        give = batch.id_of
        assert [give(None) for _ in batch.bodies] == [None if each % 3 == 0 else f"i{each}" for each in decoded(batch)]
    assert called == list(range(40))


def test_what_is_gathered_is_sent_where_messages_are_long_in_coming(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(partitioned_batches.time, "monotonic", lambda: now[0])

    def slowly():
        for number in range(4):
            yield f"{number}"
            now[0] += 0.03

    cut = batches_of(total=1000, key=str).cut(slowly())

    # The first one is sent when the third one has come, 60 ms behind it, not at the end.
    assert next(cut).bodies == [b'"0"']
    assert now[0] == pytest.approx(0.06)


def test_the_time_that_sending_takes_cuts_no_batch(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(partitioned_batches.time, "monotonic", lambda: now[0])
    cut = []
    for batch in batches_of(total=4, size=10, key=str).cut(range(400)):
        cut.append(batch)
        now[0] += 1.0

    assert sum(len(each.bodies) < 10 for each in cut) <= 4


def test_no_more_is_gathered_than_may_be_held(monkeypatch):
    monkeypatch.setattr(partitioned_batches, "_HELD", 20)
    seen, sent = [0], 0

    def counted():
        for number in range(200):
            seen[0] += 1
            yield number

    for batch in batches_of(total=1000, size=100, key=str).cut(counted()):
        assert seen[0] - sent <= 20
        sent += len(batch.bodies)
    assert sent == 200


def test_no_more_bytes_are_gathered_than_may_be_held_and_the_largest_batch_goes_first(monkeypatch):
    monkeypatch.setattr(partitioned_batches, "_HELD_BYTES", 1_000)
    held = 0

    def bodies():
        nonlocal held
        for number in range(100):
            held += 90 + number
            assert held < 1_000 + 190
            yield b"x" * (90 + number)

    for batch in batches_of(total=1000, size=100, key=lambda body: str(len(body) % 5)).cut(bodies()):
        assert batch.size == sum(map(len, batch.bodies))
        held -= batch.size
    assert held == 0


def test_a_batch_in_turn_is_no_larger_than_a_call():
    cut = list(batches_of(size=500).cut([b"x" * 400_000] * 6))

    assert [(each.partition, len(each.bodies)) for each in cut] == [(0, 3), (1, 3)]


def test_an_error_tells_which_messages_are_recorded_wherever_they_are():
    batches = batches_of(size=2)

    def publish():
        for batch in batches.cut(range(6)):
            with batches.sending(batch):
                if batch.partition == 2:
                    raise ServerFull("full")
                batches.note(batch, [Bookmark(f"t~p.{batch.partition}~{place}-0") for place in batch.places])

    with pytest.raises(ServerFull, match="4 messages of this publish_many are recorded") as raised, batches.telling():
        publish()
    assert [str(each) for each in raised.value.published] == ["t~p.0~0-0", "t~p.0~1-0", "t~p.1~2-0", "t~p.1~3-0"]


@pytest.mark.parametrize(("before", "may_have_run"), [(0, False), (1, True)])
def test_an_error_may_have_run_where_a_batch_is_recorded_or_its_own_may_be(before, may_have_run):
    batches = batches_of(size=1)
    lost = Unavailable("away")
    lost.may_have_run = False

    def publish():
        for number, batch in enumerate(batches.cut(range(2))):
            with batches.sending(batch):
                if number == before:
                    raise lost
                batches.note(batch, [Bookmark("t~p.0~1-0")])

    with pytest.raises(Unavailable) as raised, batches.telling():
        publish()
    assert raised.value.may_have_run is may_have_run
