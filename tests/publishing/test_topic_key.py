"""The key that a topic's `partition_by` gives a message, and the partition of it, which never changes."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from decimal import Decimal

import pytest

from ampsq import Topic
from ampsq.base.errors import DefinitionError
from ampsq.base.partitions import partition_of_key, partition_of_text
from ampsq.publishing.topic_key import TopicKey


@dataclasses.dataclass
class Order:
    customer: str


#: What is published -> the text of its key by ``/customer``, and its partition of 64. Stable for ever.
VECTORS = [
    ({"customer": "customer-17"}, b"customer-17", 31),
    ({"customer": "M\u00fcller"}, "M\u00fcller".encode(), 5),
    ({"customer": 17}, b"17", 2),
    ({"customer": 17.0}, b"17", 2),
    ({"customer": "17"}, b"17", 2),
    ({"customer": 0}, b"0", 33),
    ({"customer": -1.5}, b"-1.5", 23),
    ({"customer": True}, b"1", 55),
    ({"customer": 2**60}, b"1152921504606846976", 40),
]


def key_of(data, *paths, **elements):
    return TopicKey.of(Topic(name="orders", partition_by=paths or ("/customer",), **elements)).text(data)


@pytest.mark.parametrize(("data", "text", "partition"), VECTORS)
def test_a_message_has_this_key_and_this_partition_for_ever(data, text, partition):
    assert key_of(data) == text
    # The same of the body as it is recorded, and of the key as a caller says it.
    assert key_of(json.dumps(data).encode()) == text
    assert partition_of_text(text, 64) == partition_of_key(text.decode(), 64) == partition


@pytest.mark.parametrize(
    "data",
    [{}, {"customer": None}, {"customer": ""}, {"customer": {}}, {"customer": ["a", "b"]}, [], 17, b"no JSON", b"\xff"],
)
def test_a_message_without_one_value_has_no_key(data):
    assert key_of(data) is None


def test_what_json_says_otherwise_than_python_is_read_as_it_is_recorded():
    assert key_of({"customer": date(2026, 11, 27)}) == b"2026-11-27"
    assert key_of({"customer": Decimal("1.50")}) == b"1.50"
    assert key_of(Order("c")) == b"c"
    with pytest.raises(DefinitionError, match="cannot be published"):
        key_of({"customer": "\udc80"})
    # What somebody else wrote may be half a character.
    assert key_of(b'{"customer": "\\ud800"}') is None


def test_parts_of_a_key_are_joined_so_that_no_two_keys_are_alike():
    assert key_of({"a": {"b": 1}, "c": "x"}, "/a/b", "/c") == b"1|x"
    assert key_of({"a": {"b": "1|x"}, "c": ""}, "/a/b", "/c") is None
    assert key_of({"a": {"b": "1|x"}, "c": "y\\"}, "/a/b", "/c") == b"1\\|x|y\\\\"
    assert key_of({"a": [{"b": "first"}, {"b": "second"}]}, "/a[1]/b") == b"second"


def test_bodies_of_other_types_have_keys_too():
    assert key_of({"customer": "c"}, message_type="nvfix") == b"c"
    assert key_of(b"customer=c\x01customer=d\x01", message_type="nvfix") is None
    assert key_of({"55": "IBM"}, "/55", message_type="fix") == b"IBM"
    assert key_of({"customer": "c"}, message_type="msgpack") == b"c"


def test_a_topic_that_says_nothing_gives_no_key():
    assert TopicKey.of(Topic(name="orders")).text({"customer": "c"}) is None
