"""A view's elements: its topics, what its rows are grouped by, and what a row may have."""

from __future__ import annotations

import pickle

import pytest
from refusing import refusal

from ampsq.definitions.queue import (
    View,
)

VIEW = {
    "name": "by-symbol",
    "underlying_topic": "work",
    "projection": ["/symbol", "SUM(/price * /qty) AS /value", "COUNT(*) AS /numbers/orders"],
    "grouping": ["/symbol"],
}


def view_refusal(**changed):
    return refusal(View, **{**VIEW, **changed})


# --- views ---------------------------------------------------------------------------------------------


def test_a_view_keeps_its_texts_and_has_one_row_by_default():
    view = View(name="all", underlying_topic="orders", projection=["COUNT(*) AS /orders"])
    assert view.model_dump() == {
        "name": "all",
        "underlying_topic": ("orders",),
        "filter": None,
        "projection": ("COUNT(*) AS /orders",),
        "grouping": (),
    }


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"underlying_topic": ["orders", "trades"], "filter": "/qty > 0"},
        {"underlying_topic": "^(orders|trades)$"},
        {"projection": ["COUNT(*) AS /n"], "grouping": []},
    ],
)
def test_a_view_comes_back_from_its_json(changed):
    view = View(**{**VIEW, **changed})
    assert View.from_json(view.to_json()) == view == pickle.loads(pickle.dumps(view))  # noqa: S301 - our own bytes
    assert view.model_copy(update={"filter": "/a = 1"}).filter == "/a = 1"


def test_a_views_topics_are_one_or_several_names_or_a_pattern():
    several = View(**{**VIEW, "underlying_topic": ("trades", "orders", "trades")})
    assert several.underlying_topic == ("orders", "trades")
    assert not several.is_pattern
    assert [topic for topic in ("order", "orders", "orders2", "trades", "by-symbol") if several.feeds_from(topic)] == [
        "orders",
        "trades",
    ]
    pattern = View(**{**VIEW, "underlying_topic": "^orders"})
    assert pattern.underlying_topic == ("^orders",)
    assert pattern.is_pattern
    assert pattern.feeds_from("orders2")
    assert not pattern.feeds_from("late-orders")


@pytest.mark.parametrize("topics", [["orders", "^trades"], ["a b", "c"]])
def test_a_pattern_stands_alone(topics):
    assert "is not a name, and a regular expression stands alone; allowed: " in view_refusal(underlying_topic=topics)


@pytest.mark.parametrize("topics", [[], (), 5, {"a": 1}])
def test_a_view_has_topics(topics):
    text = view_refusal(underlying_topic=topics)
    assert text.startswith(
        f"View 'by-symbol': underlying_topic: {topics!r} names no topic; allowed: the name of a topic"
    )


@pytest.mark.parametrize("topics", ["by-symbol", ["orders", "by-symbol"], "symbol$"])
def test_a_view_is_not_made_of_its_own_rows(topics):
    text = view_refusal(underlying_topic=topics)
    assert text.startswith(
        f"View 'by-symbol': underlying_topic: {topics!r} feeds the view from 'by-symbol', the topic of"
    )


def test_a_view_lists_all_that_it_misses():
    title, *faults = refusal(View).split("\n  - ")
    assert title == "View without a name has 3 faults:"
    assert [fault.split(";")[0] for fault in faults] == [
        "name: missing",
        "underlying_topic: missing",
        "projection: missing",
    ]


@pytest.mark.parametrize("element", ["projection", "grouping"])
@pytest.mark.parametrize("value", ["/symbol", 5, ["/symbol", None], {"/symbol": 1}])
def test_a_list_of_texts_is_nothing_else(element, value):
    text = view_refusal(**{element: value})
    assert text.startswith(f"View 'by-symbol': {element}: {value!r} is not a list of texts; allowed: a list of ")


@pytest.mark.parametrize("text", ["/a + 1", "symbol", "SUM(/a)", "'a'", "/a AS /b", "/a, /b", "", "TOPIC_NAME()"])
def test_rows_are_grouped_by_identifiers_alone(text):
    assert view_refusal(grouping=["/symbol", text]) == (
        f"View 'by-symbol': grouping[1]: {text!r} is not an identifier; allowed: a list of identifiers, as in "
        "['/symbol'], or none for one row of everything"
    )


def test_an_identifier_groups_once_however_it_is_written():
    assert "grouping[1]: '[/symbol]': given twice" in view_refusal(grouping=["/symbol", "[/symbol]"])


@pytest.mark.parametrize(
    "text",
    [
        "[/symbol]",
        "[/symbol] AS /s",
        "UPPER(/symbol) AS /s",
        "IF(/symbol LIKE '(a|b)+c', SUM(/qty), MAX(/qty)) AS /s",
        "SUM(/qty) / COUNT(*) AS /s",
        "'text' AS /s",
        "AMPS_INSTANCE_NAME() AS /s",
        "MAX(TOPIC_NAME()) AS /s",
    ],
)
def test_a_row_has_what_is_the_same_for_its_messages(text):
    assert View(**{**VIEW, "projection": [text]}).projection == (text,)


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("/qty", "/qty"),
        ("SUM(/qty) / /price AS /s", "/price"),
        ("CONCAT(/symbol, /legs[0]/qty) AS /s", "/legs[0]/qty"),
        ("/symbol/name AS /s", "/symbol/name"),
        ("TOPIC_NAME() AS /s", "TOPIC_NAME()"),
        ("/qty LIKE '(a|b)+c' AS /s", "/qty"),
    ],
)
def test_what_may_differ_between_the_messages_of_a_row_is_refused(text, loose):
    assert view_refusal(projection=["/symbol", text]) == (
        f"View 'by-symbol': projection[1]: {text!r} uses {loose}, which may differ between the messages of one row; "
        f"allowed outside of an aggregate: the grouping's /symbol; inside of one, as in MAX({loose}), anything"
    )


def test_without_grouping_there_are_only_aggregates():
    text = view_refusal(grouping=[], projection=["/symbol"])
    assert "allowed outside of an aggregate: no identifier, since there is no grouping; inside" in text


@pytest.mark.parametrize("second", ["COUNT(*) AS /a", "COUNT(*) AS /a/b", "COUNT(*) AS /a/b/c"])
def test_each_projection_has_a_place_of_its_own(second):
    text = view_refusal(projection=["SUM(/qty) AS /a/b", second])
    assert text.startswith(
        f"View 'by-symbol': projection[1]: {second!r}: the path {second.split()[-1]} is that of 'SUM("
    )


@pytest.mark.parametrize(
    ("element", "text"),
    [("projection", "SUM(/a + [orders]./legs[0]/q) AS /q"), ("grouping", "[orders]./legs[0]/q")],
)
def test_a_view_joins_no_topics(element, text):
    assert view_refusal(underlying_topic=["orders", "trades"], **{element: ["/symbol", text]}) == (
        f"View 'by-symbol': {element}[1]: {text!r} uses [orders]./legs[0]/q, a field of one topic, and a view does not "
        "join topics; allowed: /legs[0]/q, which is read from every message, whatever its topic"
    )


def test_a_view_lists_the_faults_of_every_projection():
    title, *faults = view_refusal(
        name="a b",
        filter="/a >",
        projection=["SUM(/qty)", "SUM(SUM(/qty)) AS /a", "UNIX_TIMESTAMP() AS /t", "/qty"],
    ).split("\n  - ")
    assert title == "View 'a b' has 6 faults:"
    assert [fault.split(" ")[0] for fault in faults] == [
        "name:", "filter:", "projection[0]:", "projection[1]:", "projection[2]:", "projection[3]:",
    ]  # fmt: skip
    assert all("column" in fault for fault in faults[1:5])


def test_a_wrong_grouping_brings_no_faults_that_follow_from_it():
    assert view_refusal(grouping=["symbol"]).startswith("View 'by-symbol': grouping[0]: 'symbol' is not an identifier")
