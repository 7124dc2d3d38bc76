"""Reasons of consumers: what is one, what is made of an exception, and how returns are read."""

from __future__ import annotations

import pytest

from ampsq.base.errors import DefinitionError
from ampsq.protocol.limits import REASON_LENGTH
from ampsq.queues.returns import checked_reason, failure_text, last_reason, read_returns, shortened_reason


@pytest.mark.parametrize("given", ["no such flight: XX9", "é 飛行機 ✈", "x" * REASON_LENGTH, 'a "b", c; d! 100% %2C'])
def test_one_line_of_text_is_a_reason_as_it_is(given):
    assert checked_reason(given) == given


@pytest.mark.parametrize("given", [None, "", "  "])
def test_nothing_is_no_reason(given):
    assert checked_reason(given) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("two\nlines", "one line"),
        ("a\x00b", "one line"),
        ("a\u2028b", "one line"),
        ("half \ud83d", "one line"),
        (7, "one line"),
        (b"bytes", "one line"),
        ("x" * (REASON_LENGTH + 1), f"{REASON_LENGTH} characters at most"),
    ],
)
def test_what_is_no_line_or_too_long_is_refused_with_what_is_allowed(given, said):
    with pytest.raises(DefinitionError, match=said):
        checked_reason(given)


class Broken(Exception):
    def __str__(self):
        raise RuntimeError("no text either")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such flight: XX9"), "ValueError: no such flight: XX9"),
        (KeyError("id"), "KeyError: 'id'"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("one\n\n  two\tthree\x07"), "ValueError: one two three"),
        (Broken(), "Broken"),
    ],
)
def test_an_exception_is_told_by_type_and_text_in_one_line(error, text):
    assert failure_text(error) == text == checked_reason(failure_text(error))


def test_a_text_that_is_too_long_is_cut():
    cut = shortened_reason("y" * 10_000)
    assert (len(cut), cut[-4:]) == (REASON_LENGTH, "y...")
    assert shortened_reason("half \ud83d") == "half"


def test_returns_are_read_with_the_reasons_that_they_have():
    text = "1000,cancelled,s1,till/4!no%20flight%3A%2C%3B%21%25;2000,lapsed,s2,"
    first, second = read_returns(text)
    assert first == (1000, "cancelled", "s1", "till/4", "no flight:,;!%")
    assert second == (2000, "lapsed", "s2", "", "")
    assert last_reason([first, second]) == "no flight:,;!%"


@pytest.mark.parametrize("text", ["", "-", "x,y", "soon,cancelled,s1,c"])
def test_what_tells_of_no_return_is_none(text):
    assert read_returns(text) == []
    assert last_reason([]) == ""
