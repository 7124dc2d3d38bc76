from __future__ import annotations

import inspect
import json
import pickle
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampsq.errors import DefinitionError
from ampsq.models import (
    CHANGES,
    Action,
    Bookmark,
    Do,
    Interval,
    On,
    Queue,
    Topic,
    View,
    parse_ref,
    ref_of,
    refused_changes,
)
from ampsq.values import parse_count, parse_size

NAMES = st.from_regex(r"[A-Za-z0-9_./-]{1,255}", fullmatch=True)
UNSIGNED = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 200))


def refusal(make, *args, **elements):
    with pytest.raises(DefinitionError) as caught:
        make(*args, **elements)
    return str(caught.value)


# --- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "orders", "orders.us/new-1_x", "2024", "a" * 255])
def test_a_name_is_made_of_letters_digits_and_four_signs(name):
    assert Topic(name=name).name == name


@pytest.mark.parametrize("name", ["", "a" * 256, "a\n", "é", "a b", *(f"a{c}b" for c in "~@:,|[](){}*$")])
def test_other_names_are_refused_with_what_is_allowed(name):
    assert "is not a name; allowed: 1 to 255 of the characters A-Z a-z 0-9 _ . / -" in refusal(Topic, name=name)


def test_a_name_that_is_no_text_is_refused():
    assert refusal(Topic, name=5).startswith("Topic 5: name: 5 is not a text; allowed:")


def test_a_missing_name_is_refused():
    assert refusal(Queue).startswith("Queue without a name: name: missing; allowed:")


def test_a_long_value_is_cut_in_the_error():
    assert len(refusal(Topic, name="x" * 100_000)) < 1_000


# --- queues: defaults ----------------------------------------------------------------------------------


def test_a_queue_of_a_name_alone_has_the_defaults_of_amps():
    assert Queue(name="work").model_dump(mode="json") == {
        "name": "work",
        "underlying_topic": "work",
        "default_publish_target": "work",
        "filter": None,
        "semantics": "at-least-once",
        "lease_period": None,
        "max_per_subscription_backlog": 1,
        "max_backlog": None,
        "max_deliveries": 0,
        "max_cancels": 0,
        "fairness_model": "proportional",
        "leasing": "sublet",
        "priority": None,
        "barrier_expression": None,
        "expiration": None,
        "expiration_model": "default",
        "redelivery_delay": "0ms",
        "redelivery_delay_multiplier": 1.0,
        "max_redelivery_delay": "0ms",
        "redelivery_collision_avoidance_factor": 0.0,
        "ring_size": None,
        "target_queue_depth": None,
        "recovery_point": "epoch",
        "file_backed_metadata": "disabled",
        "allow_redelivery_after_crash": False,
        "record_deliveries": False,
    }


def test_a_publish_to_a_queue_goes_to_its_literal_topic_by_default():
    assert Queue(name="work", underlying_topic="orders").default_publish_target == "orders"


def test_an_at_most_once_queue_is_served_in_turn_by_default():
    assert Queue(name="work", semantics="at-most-once").fairness_model == "round-robin"


def test_none_means_the_default_in_every_element():
    assert Queue(name="work", **dict.fromkeys(set(Queue.model_fields) - {"name"})) == Queue(name="work")


def test_definitions_are_frozen_hashable_and_picklable():
    queue = Queue(name="work", lease_period="30s")
    with pytest.raises(Exception, match="frozen"):
        queue.max_backlog = 3
    assert {queue: 1}[Queue(name="work", lease_period=30)] == 1
    assert pickle.loads(pickle.dumps(queue)) == queue  # noqa: S301 - our own bytes


# --- queues: underlying topics -------------------------------------------------------------------------


def test_a_queue_is_fed_by_its_one_topic_alone():
    queue = Queue(name="work", underlying_topic="orders.us")
    assert not queue.is_pattern
    assert queue.feeds_from("orders.us")
    assert not any(queue.feeds_from(topic) for topic in ("orders", "orders.us2", "orders-us", "work"))


def test_a_regular_expression_is_searched_for_anywhere_in_a_topic():
    queue = Queue(name="work", underlying_topic="orders-(us|uk)", default_publish_target="orders-us")
    assert queue.is_pattern
    assert queue.feeds_from("orders-us")
    assert queue.feeds_from("late/orders-uk/new")
    assert not queue.feeds_from("orders-fr")


def test_a_regular_expression_needs_a_publish_target():
    text = refusal(Queue, name="work", underlying_topic="^orders")
    assert text.startswith("Queue 'work': default_publish_target: missing; underlying_topic '^orders' is a regular")


@pytest.mark.parametrize("underlying", ["orders", "^orders"])
def test_a_publish_target_that_does_not_feed_the_queue_is_refused(underlying):
    text = refusal(Queue, name="work", underlying_topic=underlying, default_publish_target="trades")
    assert "default_publish_target: 'trades' does not feed the queue; allowed: " in text
    assert repr(underlying) in text


@pytest.mark.parametrize("pattern", ["orders(", "*", "", "[[:alpha:]]", "(?P<a>x)(?P<a>y)"])
def test_what_is_neither_name_nor_regular_expression_is_refused(pattern):
    text = refusal(Queue, name="work", underlying_topic=pattern, default_publish_target="orders")
    assert text.startswith(f"Queue 'work': underlying_topic: {pattern!r}")
    assert "allowed: a name (1 to 255" in text


# --- queues: values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", ["30s", 30, 30.0, timedelta(seconds=30), "0.5m", "30000ms", Interval(30_000)])
def test_a_lease_period_is_kept_in_milliseconds_however_it_is_given(period):
    assert Queue(name="work", lease_period=period).lease_period == 30_000


def test_a_lease_shorter_than_100ms_is_refused():
    assert Queue(name="work", lease_period="100ms").lease_period == 100
    text = refusal(Queue, name="work", lease_period="99ms")
    assert text.startswith("Queue 'work': lease_period: '99ms' is too short; allowed: 100ms or longer")


@pytest.mark.parametrize("element", ["max_per_subscription_backlog", "max_backlog"])
def test_a_backlog_is_one_or_more(element):
    assert getattr(Queue(name="work", **{element: "10k"}), element) == 10_000
    assert f"Queue 'work': {element}: 0 is too small; allowed: a whole number from 1" in refusal(
        Queue, name="work", **{element: 0}
    )


@pytest.mark.parametrize("element", ["max_deliveries", "max_cancels"])
@pytest.mark.parametrize("value", [-1, True, 1.5, "many", [], 10**12])
def test_a_limit_that_is_no_count_is_refused(element, value):
    text = refusal(Queue, name="work", **{element: value})
    assert text.startswith(f"Queue 'work': {element}: {value!r} is not a count; allowed: a whole number from 0")


@pytest.mark.parametrize(
    ("element", "allowed"),
    [
        ("semantics", "'at-least-once' or 'at-most-once'"),
        ("fairness_model", "'fast', 'round-robin' or 'proportional'"),
        ("leasing", "'strict' or 'sublet'"),
        ("allow_redelivery_after_crash", "true or false"),
    ],
)
@pytest.mark.parametrize("value", ["sharing", 7, []])
def test_a_choice_names_what_there_is_to_choose_from(element, allowed, value):
    text = refusal(Queue, name="work", **{element: value})
    assert text == f"Queue 'work': {element}: {value!r} is not known; allowed: {allowed}"


@pytest.mark.parametrize("fairness", ["fast", "proportional"])
def test_an_at_most_once_queue_cannot_be_served_otherwise_than_in_turn(fairness):
    text = refusal(Queue, name="work", semantics="at-most-once", fairness_model=fairness)
    assert text.startswith(f"Queue 'work': fairness_model: {fairness!r} does not go with semantics 'at-most-once'")
    assert text.endswith("allowed: 'round-robin'")


@pytest.mark.parametrize("fairness", ["fast", "round-robin", "proportional"])
def test_an_at_least_once_queue_may_be_served_in_any_way(fairness):
    assert Queue(name="work", fairness_model=fairness).fairness_model == fairness


# --- queues: expressions, and how many messages are active ---------------------------------------------


@pytest.mark.parametrize(
    "elements",
    [
        {"filter": "/country IN ('US', 'UK') AND /qty > 100"},
        {"priority": "/price * /qty"},
        {"priority": "/level"},
        {"barrier_expression": "/type = 'end-of-day'"},
        {"filter": "/a LIKE '^x+'", "barrier_expression": "/b IS NOT NULL"},
        {"filter": "/a = 1", "priority": "IF(/urgent = 1, 10, 0)"},
        {"filter": "/a = 1", "target_queue_depth": 1_000},
    ],
)
def test_an_expression_is_checked_and_stays_as_it_was_written(elements):
    queue = Queue(name="work", **elements)
    assert queue.model_dump(exclude_defaults=True, include=set(elements)) == elements
    assert Queue.from_json(queue.to_json()) == queue
    assert all(json.loads(queue.to_json())[element] == value for element, value in elements.items())


EXPRESSIONS = ["filter", "priority", "barrier_expression"]


@pytest.mark.parametrize("element", EXPRESSIONS)
def test_what_is_no_expression_is_refused_with_its_column_on_one_line(element):
    text = refusal(Queue, name="work", **{element: "/price >\n> 3"})
    assert text.startswith(f"Queue 'work': {element}: '/price >\\n> 3': column 10: ")
    assert "\n" not in text


@pytest.mark.parametrize("element", EXPRESSIONS)
@pytest.mark.parametrize(("text", "column"), [("1 + UNIX_TIMESTAMP()", 5), ("SUM(/qty)", 1), ("/a + LEASE_COUNT()", 6)])
def test_what_has_no_answer_to_keep_is_no_queues_expression(element, text, column):
    assert refusal(Queue, name="work", **{element: text}).startswith(
        f"Queue 'work': {element}: {text!r}: column {column}: "
    )


@pytest.mark.parametrize("element", EXPRESSIONS)
@pytest.mark.parametrize("value", [5, True, ["/a"], {}, b"/a"])
def test_an_expression_that_is_no_text_is_refused_with_an_example(element, value):
    text = refusal(Queue, name="work", **{element: value})
    assert text.startswith(
        f"Queue 'work': {element}: {value!r} is not a text; allowed: an expression over the body, as"
    )


@pytest.mark.parametrize("value", [0, 999, "0.9k"])
def test_a_queue_has_a_thousand_active_messages_or_more(value):
    assert Queue(name="work", target_queue_depth="10k").target_queue_depth == 10_000
    text = refusal(Queue, name="work", target_queue_depth=value)
    assert text.startswith(
        f"Queue 'work': target_queue_depth: {value!r} is too small; allowed: a whole number from 1000"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"priority": "/level"}, {"barrier_expression": "/end = 1"}),
        ({"priority": "/level"}, {"target_queue_depth": 1_000}),
        ({"barrier_expression": "/end = 1"}, {"target_queue_depth": 1_000}),
    ],
)
def test_priorities_barriers_and_a_target_depth_exclude_each_other(one, other):
    (first,), (second,) = one, other
    text = refusal(Queue, name="work", **one, **other)
    assert text.startswith(f"Queue 'work': {second}: does not go with {first}, which ")
    assert text.endswith("; allowed: one of the two")


def test_wrong_expressions_and_combinations_are_listed_together():
    text = refusal(
        Queue, name="work", filter="/a =", priority="/a b", barrier_expression="f(", target_queue_depth=5, leasing="all"
    )
    title, *faults = text.split("\n  - ")
    assert title == "Queue 'work' has 8 faults:"
    assert [fault.split(":")[0] for fault in faults] == [
        "filter", "leasing", "priority", "barrier_expression", "target_queue_depth",
        "barrier_expression", "target_queue_depth", "target_queue_depth",
    ]  # fmt: skip


# --- queues: unknown elements, several faults -----------------------------------------------------------


@pytest.mark.parametrize("wrong", ["lease_perod", "leaseperiod", "lease-period", "LeasePeroid"])
def test_an_unknown_element_is_answered_with_the_nearest_one(wrong):
    text = refusal(Queue, name="work", **{wrong: "30s"})
    assert text == f"Queue 'work': {wrong}: no such element; did you mean 'lease_period'?"


@pytest.mark.parametrize("element", Queue.model_fields)
def test_the_spelling_of_amps_is_answered_with_ours(element):
    camel = "".join(part.capitalize() for part in element.split("_"))
    assert f"{camel}: no such element; it is written {element!r} here" in refusal(Queue, **{camel: "x"})


def test_an_element_like_no_other_is_answered_with_all_of_them():
    assert f"allowed: {', '.join(Queue.model_fields)}" in refusal(Queue, name="work", zzz=1)


def test_all_faults_of_a_definition_are_listed_at_once():
    text = refusal(
        Queue,
        name="a b",
        underlying_topic="^orders",
        semantics="at-most-once",
        fairness_model="fast",
        lease_period="soon",
        max_backlog=0,
        self=1,
    )
    title, *faults = text.split("\n  - ")
    assert title == "Queue 'a b' has 6 faults:"
    assert {fault.split(":")[0] for fault in faults} == {
        "name",
        "default_publish_target",
        "fairness_model",
        "lease_period",
        "max_backlog",
        "self",
    }


def test_a_faulty_element_brings_no_faults_that_follow_from_it():
    assert refusal(Queue, name="a b").startswith("Queue 'a b': name: ")
    assert refusal(Queue, name="work", underlying_topic="(").startswith("Queue 'work': underlying_topic: ")
    text = refusal(Queue, name="work", underlying_topic="^a", default_publish_target="b c")
    assert text.startswith("Queue 'work': default_publish_target: 'b c' is not a name")


def test_a_copy_with_changes_is_checked_and_its_defaults_follow():
    queue = Queue(name="work", lease_period="30s")
    assert queue.model_copy(update={"name": "late"}) == Queue(name="late", lease_period="30s")
    assert queue.model_copy(update={"lease_period": None}) == Queue(name="work")
    assert "max_backlog: 0" in refusal(queue.model_copy, update={"max_backlog": 0})


# --- JSON ----------------------------------------------------------------------------------------------


@st.composite
def queues(draw):
    topic = draw(NAMES)
    elements = {
        "name": draw(NAMES),
        "underlying_topic": draw(st.sampled_from([None, topic, "^"])),
        "semantics": draw(st.sampled_from(["at-least-once", "at-most-once"])),
        "lease_period": draw(st.none() | st.integers(100, 10**10).map(Interval)),
        "max_per_subscription_backlog": draw(st.integers(1, 10**9)),
        "max_backlog": draw(st.none() | st.integers(1, 10**9)),
        "max_deliveries": draw(st.integers(0, 10**9)),
        "max_cancels": draw(st.integers(0, 10**9)),
        "leasing": draw(st.sampled_from(["strict", "sublet"])),
        "allow_redelivery_after_crash": draw(st.booleans()),
        "filter": draw(st.sampled_from([None, "/a = 'ü'", "/a > 1  AND\n/b LIKE '^x'"])),
        **draw(
            st.sampled_from(
                [
                    {},
                    {"priority": "/price * /qty"},
                    {"barrier_expression": "/last = 1"},
                    {"target_queue_depth": 5_000},
                ]
            )
        ),
    }
    if elements["underlying_topic"] == "^":
        elements["default_publish_target"] = topic
    if elements["semantics"] == "at-least-once":
        elements["fairness_model"] = draw(st.sampled_from(["fast", "round-robin", "proportional"]))
    return Queue(**elements)


@given(queues())
def test_a_queue_comes_back_from_its_json_as_it_was(queue):
    assert Queue.from_json(queue.to_json()) == queue
    assert Queue.from_json(queue.to_json().encode()).to_json() == queue.to_json()


def test_json_holds_the_name_and_what_is_not_default():
    assert Queue(name="work").to_json() == '{"name":"work"}'
    queue = Queue(name="work", underlying_topic="orders", lease_period=90, max_backlog=7, semantics="at-most-once")
    assert queue.to_json() == (
        '{"lease_period":"90s","max_backlog":7,"name":"work","semantics":"at-most-once","underlying_topic":"orders"}'
    )


def test_json_is_the_same_whether_a_default_is_spelled_out_or_not():
    spelled = Queue(**Queue(name="work").model_dump())
    assert spelled.to_json() == Queue(name="work").to_json()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", b"\xff", '{"name":"work","max_backlog":0}', '{"nam":"work"}'])
def test_what_is_not_the_json_of_a_queue_is_refused(text):
    assert refusal(Queue.from_json, text).startswith("Queue")


def test_topics_and_actions_come_back_from_their_json():
    action = Action.dead_letter("work", "dead", reasons=("max_cancels",))
    assert Action.from_json(action.to_json()) == action
    assert json.loads(action.to_json())["on"] == [{"expire": {"topic": "work", "reason": ["max_cancels"]}}]
    assert Topic.from_json('{"name":"orders"}') == Topic(name="orders")


# --- actions -------------------------------------------------------------------------------------------


def test_a_dead_letter_action_publishes_what_expires():
    action = Action.dead_letter("work", "dead")
    assert action.elements() == {
        "name": "dead-letter-work",
        "on": [{"expire": {"topic": "work"}}],
        "do": [{"publish": {"topic": "dead"}}],
    }
    assert action == Action(name="dead-letter-work", on={"expire": "work"}, do={"publish": "dead"})
    assert action == Action(name="dead-letter-work", on=On.expire(topic="work"), do=[Do.publish(topic="dead")])
    assert Action.dead_letter("work", "dead", name="mine").name == "mine"


def test_reasons_are_a_set_in_a_fixed_order():
    given_twice = Action.dead_letter("work", "dead", reasons=["time_limit", "max_cancels", "time_limit"])
    assert given_twice.on[0].reason == ("max_cancels", "time_limit")


@pytest.mark.parametrize("reasons", ["max_cancels", ["late"], 3])
def test_wrong_reasons_are_refused(reasons):
    assert refusal(Action.dead_letter, "work", "dead", reasons=reasons).startswith(
        "Action 'dead-letter-work': reasons: "
    )


def test_an_action_lists_all_that_it_misses():
    text = refusal(Action, on="delete", do="publsh")
    assert text.startswith("Action without a name has 3 faults:")
    assert "on: delete: topic: missing; the queue" in text
    assert "do: 'publsh': no such word; did you mean 'publish'?" in text


# --- views ---------------------------------------------------------------------------------------------

VIEW = {
    "name": "by-symbol",
    "underlying_topic": "work",
    "projection": ["/symbol", "SUM(/price * /qty) AS /value", "COUNT(*) AS /numbers/orders"],
    "grouping": ["/symbol"],
}


def view_refusal(**changed):
    return refusal(View, **{**VIEW, **changed})


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


# --- changes -------------------------------------------------------------------------------------------


def test_every_element_of_a_queue_says_what_its_change_does():
    assert list(CHANGES) == list(Queue.model_fields)
    assert all(change.text.endswith(".") for change in CHANGES.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"filter": "/a = 1", "priority": "/b"},
        {"filter": "/a = 1", "barrier_expression": "/b = 1"},
        {"target_queue_depth": 5_000},
        {"lease_period": "5s", "max_backlog": 3, "max_per_subscription_backlog": 9, "leasing": "strict"},
        {
            "max_deliveries": 1,
            "max_cancels": 1,
            "fairness_model": "fast",
            "allow_redelivery_after_crash": True,
        },
        {},
    ],
)
def test_settings_can_be_changed_while_messages_are_in_the_queue(changed):
    assert refused_changes(Queue(name="work"), Queue(name="work", **changed)) == []


def test_topics_and_semantics_cannot_be_changed_and_the_text_says_what_to_do():
    new = Queue(name="work", underlying_topic="orders", semantics="at-most-once")
    topic, semantics = refused_changes(Queue(name="work"), new)
    assert topic.startswith("Queue 'work': underlying_topic: 'work' cannot become 'orders'. Refused: define a queue of")
    assert semantics.startswith("Queue 'work': semantics: 'at-least-once' cannot become 'at-most-once'.")


def test_another_name_is_another_queue():
    (text,) = refused_changes(Queue(name="a", underlying_topic="x"), Queue(name="b", underlying_topic="x"))
    assert "Another name is another queue" in text


# --- bookmarks -----------------------------------------------------------------------------------------

TEXT = "orders~nyc-1.t6w1xk~1763640000000-0"


def test_a_bookmark_is_its_text_and_knows_its_parts():
    bookmark = Bookmark.parse(TEXT)
    assert (bookmark.topic, bookmark.origin, bookmark.id) == ("orders", "nyc-1.t6w1xk", "1763640000000-0")
    assert bookmark == TEXT == str(bookmark) == Bookmark.of("orders", "nyc-1.t6w1xk", "1763640000000-0")
    assert type(str(bookmark)) is str
    assert {bookmark: 1}[TEXT] == 1
    assert repr(bookmark) == f"Bookmark({TEXT!r})"
    assert pickle.loads(pickle.dumps(bookmark)).topic == "orders"  # noqa: S301 - our own bytes


def test_a_bookmark_carries_nothing_but_its_text():
    assert not hasattr(Bookmark(TEXT), "__dict__")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders~nyc-1.t6w1xk",
        "orders~nyc-1~1-0",
        "or ders~a.b~1-0",
        "orders~a.b~1",
        "orders~a.b~01-0",
        "orders~a.b~1-0~",
        "orders~a.b~1-0\n",
        "orders~a.b~18446744073709551616-0",
        "orders~a.b~\u0661-0",
        "~a.b~1-0",
        None,
        b"orders~a.b~1-0",
    ],
)
def test_what_is_no_bookmark_is_refused_with_its_form(text):
    assert "is not a bookmark; allowed: <topic>~<origin>~<stream id>, as in 'orders~" in refusal(Bookmark.parse, text)


@given(NAMES, UNSIGNED, UNSIGNED)
def test_every_bookmark_parses_back_to_its_parts(topic, milliseconds, sequence):
    bookmark = Bookmark.parse(Bookmark.of(topic, "nyc-1.t6w1xk", f"{milliseconds}-{sequence}"))
    assert (bookmark.topic, bookmark.origin, bookmark.id) == (
        topic,
        "nyc-1.t6w1xk",
        f"{milliseconds}-{sequence}",
    )


# --- refs ----------------------------------------------------------------------------------------------


def test_a_ref_tells_lengths_by_letters():
    assert ref_of("orders", "1763640000000-12") == "m1763640000000b12/orders"
    assert ref_of("a/b", f"{2**64 - 1}-0") == "t18446744073709551615a0/a/b"


@given(NAMES, UNSIGNED, UNSIGNED)
def test_a_ref_reads_back(topic, milliseconds, sequence):
    assert parse_ref(ref_of(topic, f"{milliseconds}-{sequence}")) == (topic, f"{milliseconds}-{sequence}")


@given(st.lists(st.tuples(UNSIGNED, UNSIGNED, st.one_of(NAMES, st.sampled_from("abc"))), max_size=20))
def test_refs_sort_as_their_ids_do(places):
    places += [(ms, seq + 1 if seq < 2**64 - 1 else 0, topic) for ms, seq, topic in places]
    refs = [ref_of(topic, f"{ms}-{seq}") for ms, seq, topic in sorted(places)]
    assert refs == sorted(refs)


@pytest.mark.parametrize("ref", ["", "orders", "m1a0/orders", "a1b0/orders", "a1a0/", "a1a0", "b01a0/x", "a1a0/x y"])
def test_what_is_no_ref_is_refused(ref):
    assert "is not a ref; allowed: " in refusal(parse_ref, ref)


@pytest.mark.parametrize("stream_id", ["", "1", "1-", "-1", "01-0", "1-0\n", "1-0-0", f"{10**20}-0"])
def test_no_ref_is_made_of_what_is_no_stream_id(stream_id):
    assert "is not a stream ID; allowed: <milliseconds>-<sequence>" in refusal(ref_of, "orders", stream_id)


# --- intervals, sizes, counts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1d", 86_400_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("2w", 1_209_600_000),
        ("2000us", 2),
        ("1ns", 1),
        ("1h30m", 5_400_000),
        ("1d 2h 3m 4.005s", 93_784_005),
        ("30", 30_000),
        (" 30 s ", 30_000),
        (0, 0),
        (0.1 + 0.2, 300),
        (0.0001, 1),
        (timedelta(microseconds=1500), 2),
        ("36500d", 3_153_600_000_000),
    ],
)
def test_an_interval_is_whole_milliseconds_rounded_up(value, milliseconds):
    assert Interval.parse(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "-1s",
        "1 hour",
        "30S",
        "30m1h",
        "1m1m",
        "1h30",
        "1h30x",
        "1e3",
        "\u0663s",
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        "36501d",
        timedelta(seconds=-1),
        timedelta.max,
        10**400,
    ],
)
def test_what_is_no_interval_is_refused(value):
    text = refusal(Interval.parse, value)
    assert "is not an interval; allowed: a number of seconds, or numbers with the units ns us ms s m h d w" in text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (100, "100ms"), (1_500, "1500ms"), (90_000, "90s"), (3_600_000, "1h"), (604_800_000, "1w")],
)
def test_an_interval_is_written_in_its_largest_whole_unit(milliseconds, text):
    assert Interval(milliseconds).text == text


@given(st.integers(0, 3_153_600_000_000))
def test_an_interval_reads_back(milliseconds):
    assert Interval.parse(Interval(milliseconds).text) == milliseconds


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("10MB", 10 * 2**20),
        ("1kb", 1024),
        ("1.5gb", 3 * 2**29),
        ("2TB", 2**41),
        ("10", 10),
        (10, 10),
        ("0b", 0),
    ],
)
def test_a_size_is_bytes(value, size):
    assert parse_size(value) == size


@pytest.mark.parametrize("value", ["10M", "-1", -1, 1.5, "0.3b", "MB", "", None, True, "9999999TB"])
def test_what_is_no_size_is_refused(value):
    assert "is not a size; allowed: " in refusal(parse_size, value)


@pytest.mark.parametrize(("value", "count"), [("10k", 10_000), ("1.5M", 1_500_000), ("7", 7), (7, 7), (0, 0)])
def test_a_count_is_a_whole_number(value, count):
    assert parse_count(value) == count


@pytest.mark.parametrize("value", ["10m", "1.5", "10kb", -1, 1.0, None, True, "2000M"])
def test_what_is_no_count_is_refused(value):
    assert "is not a count; allowed: " in refusal(parse_count, value)


# --- the module ----------------------------------------------------------------------------------------


def test_the_models_import_neither_redis_nor_yaml_nor_click():
    code = "import sys, ampsq.models, ampsq.config; print({'redis', 'yaml', 'click', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_expressions_are_imported_when_the_first_one_is_given():
    code = "import sys, ampsq.models as m; m.Queue(name='a'); print([n for n in sys.modules if 'expressions' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def explained(model):
    """What a model's docstring says of its elements."""
    return re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", inspect.getdoc(model), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("model", [Queue, View, Action, Topic])
def test_every_element_is_explained(model):
    assert {element for element, _ in explained(model)} == set(model.model_fields)


def test_the_list_of_view_elements_is_the_model_s_own():
    page = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
    elements = explained(View)
    rows = [f"- `{element}`: {' '.join(text.split()).replace('``', '`')}" for element, text in elements]
    assert [line for line in page.splitlines() if line.startswith("- `")] == rows


# Recovery points


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("epoch", "epoch"),
        ("now", "now"),
        ("creation", "creation"),
        ("orders~nyc-1.t6w1xk~1763640000000-0", "orders~nyc-1.t6w1xk~1763640000000-0"),
        ("2026-11-20T18:30:00Z", "2026-11-20T18:30:00.000Z"),
        ("2026-11-20T18:30:00.25+02:00", "2026-11-20T16:30:00.250Z"),
        ("20261120T183000", "2026-11-20T18:30:00.000Z"),
        ("2026-11-20", "2026-11-20T00:00:00.000Z"),
    ],
)
def test_a_recovery_point_is_a_word_a_bookmark_or_a_time(given, kept):
    queue = Queue(name="work", recovery_point=given)
    assert queue.recovery_point == kept
    assert Queue.from_json(queue.to_json()) == queue


@pytest.mark.parametrize("value", ["yesterday", "orders~5", 12, "", "1969-12-31T00:00:00Z"])
def test_another_recovery_point_is_refused(value):
    assert "allowed: " in refusal(Queue, name="work", recovery_point=value)


def test_file_backed_metadata_is_accepted():
    assert Queue(name="work", file_backed_metadata="enabled").file_backed_metadata == "enabled"
    assert "allowed: " in refusal(Queue, name="work", file_backed_metadata="yes")
