"""Names of partitions, and which of them has a key: they never change, since stored messages are where they say."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import Partition, _endings, asked_partitions, partition_of_key, partitions_of

SLOTS = 16_384
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Instance, how many partitions, which of them -> its name and its slot.
VECTORS = {
    ("shop", 1, 0): ("shop.0-176", 8192),
    ("shop", 2, 0): ("shop.0-nc2", 4096),
    ("shop", 2, 1): ("shop.1-2eo", 12288),
    ("shop", 4, 0): ("shop.0-su5", 2048),
    ("shop", 4, 1): ("shop.1-aat", 6144),
    ("shop", 4, 2): ("shop.2-6e8", 10240),
    ("shop", 4, 3): ("shop.3-57a", 14336),
    ("shop", 64, 0): ("shop.0-jg6", 128),
    ("shop", 64, 63): ("shop.63-5d6", 16256),
    ("a/b.c_d-e", 1000, 777): ("a/b.c_d-e.777-1c6", 12738),
    ("shop", 1024, 1): ("shop.1-3ge", 24),
    ("shop", 1024, 1023): ("shop.1023-jb4", 16376),
}


def slot(partition):
    return key_slot(("{" + partition.instance + "}").encode())


@pytest.mark.parametrize(("asked", "expected"), VECTORS.items())
def test_a_partition_has_this_name_for_ever(asked, expected):
    name, total, number = asked

    partition = partitions_of(name, total)[number]

    assert (partition.instance, slot(partition)) == expected


@pytest.mark.parametrize("name", ["shop", "a/b.c_d-e", "x" * 240])
@pytest.mark.parametrize("total", [1, 2, 3, 5, 64, 100, 256, 1000, 1023, 1024])
def test_each_partition_is_in_its_range_of_slots_in_its_middle_or_the_next_slot_up(name, total):
    partitions = partitions_of(name, total)

    assert [each.number for each in partitions] == list(range(total))
    assert len({each.instance for each in partitions}) == total
    for each in partitions:
        first, behind = each.number * SLOTS // total, (each.number + 1) * SLOTS // total
        assert first + SLOTS // 2 // total <= slot(each) < behind
        assert len(each.instance) <= 255


def test_the_letters_are_the_first_ones_that_lead_to_the_slot():
    partition = partitions_of("shop", 64)[9]
    start = partition.instance[:-3]
    every = (a + b + c for a in LETTERS for b in LETTERS for c in LETTERS)

    assert (
        next(each for each in every if key_slot((start + each).encode()) == slot(partition)) == partition.instance[-3:]
    )


def test_of_eight_neighbouring_slots_some_letters_lead_to_one_wherever_they_are():
    reached = _endings()

    assert len(reached) == 16_287
    # Another beginning permutes slots within such blocks; eight neighbours are in two of them at most.
    assert min(sum(each in reached for each in range(first, first + 8)) for first in range(0, SLOTS, 8)) > 4


@pytest.mark.parametrize(
    ("key", "total", "number"),
    [("", 4, 0), ("customer-17", 4, 3), ("customer-17", 64, 31), ("Müller", 64, 5), ("\N{SNOWMAN}", 1024, 852)],
)
def test_a_key_is_in_this_partition_for_ever(key, total, number):
    assert partition_of_key(key, total) == number


@pytest.mark.parametrize("key", [None, 17, b"17"])
def test_a_key_that_is_no_text_is_refused(key):
    with pytest.raises(DefinitionError, match=r"key=.*allowed is a text"):
        partition_of_key(key, 4)


@pytest.mark.parametrize("total", [0, -1, 1025, True, 2.0, "4"])
def test_a_number_of_partitions_that_is_none_is_refused(total):
    with pytest.raises(DefinitionError, match="allowed is a whole number from 1 to 1,024"):
        partitions_of("shop", total)


@pytest.mark.parametrize(("name", "told"), [("x" * 241, "at most 240 characters"), ("a b", "is not a name")])
def test_a_name_that_leaves_no_room_for_partitions_is_refused(name, told):
    with pytest.raises(DefinitionError, match=told):
        partitions_of(name, 4)


@pytest.mark.parametrize(
    ("url", "beside", "bare", "total"),
    [
        ("redis://h:1/0?partitions=4", None, "redis://h:1/0", 4),
        ("redis://h:1/0?partitions=4&socket_timeout=1", None, "redis://h:1/0?socket_timeout=1", 4),
        ("redis://h:1/0?socket_timeout=1&partitions=4", 4, "redis://h:1/0?socket_timeout=1", 4),
        ("redis://a?x=1&partitions=4&y=2", None, "redis://a?x=1&y=2", 4),
        ("cluster://a,b,c?partitions=64", None, "cluster://a,b,c", 64),
        (["redis://a?partitions=4", "redis://b"], None, ["redis://a", "redis://b"], 4),
        ("redis://a", 4, "redis://a", 4),
        ("redis://a", None, "redis://a", None),
        (None, 4, None, 4),
        (None, None, None, None),
    ],
)
def test_an_address_may_say_how_many_there_are(url, beside, bare, total, monkeypatch):
    monkeypatch.delenv("AMPSQ_URL", raising=False)

    assert asked_partitions(url, beside) == (bare, total)


def test_the_variable_may_say_how_many_there_are(monkeypatch):
    monkeypatch.setenv("AMPSQ_URL", "redis://a?partitions=4")

    assert asked_partitions(None, None) == ("redis://a", 4)
    assert asked_partitions("redis://b", None) == ("redis://b", None)


@pytest.mark.parametrize(
    ("url", "beside", "told"),
    [
        ("redis://a?partitions=4", 8, "4 and 8: an instance has one number"),
        ("redis://a?partitions=", None, "whole number from 1"),
        ("redis://a?partitions=many", None, "whole number from 1"),
        ("redis://a?partitions=2000", None, "whole number from 1"),
    ],
)
def test_an_address_that_says_no_number_or_two_is_refused(url, beside, told):
    with pytest.raises(DefinitionError, match=told):
        asked_partitions(url, beside)


def test_a_partition_is_told_in_words():
    assert str(partitions_of("shop", 4)[2]) == "partition 2 of the 4 of 'shop'"
    assert partitions_of("shop", 4)[2].text == "shop 2 4 1"
    assert Partition.register("shop", 4).is_register
