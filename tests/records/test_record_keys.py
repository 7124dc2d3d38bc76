"""The text of a record's key: its parts come out as they went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ampsq.records.query import key_parts, key_texts

parts = st.text(alphabet="a|\\\\\n", max_size=5)


@given(st.lists(parts, min_size=2, max_size=4))
def test_the_parts_of_a_key_come_back_whatever_is_in_them(values):
    (text,) = key_texts([tuple(values)])
    assert key_parts(text, len(values)) == [value.encode() for value in values]


@given(parts)
def test_a_key_of_one_part_is_its_text(value):
    assert key_parts(value.encode(), 1) == [value.encode()] == key_texts([value])
