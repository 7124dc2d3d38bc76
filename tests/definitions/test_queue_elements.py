"""A queue's elements: their defaults, what is allowed, and which ones exclude each other."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta

import pytest
from refusing import refusal

from ampsq.definitions.queue import (
    Interval,
    Queue,
)

# --- queues: defaults ----------------------------------------------------------------------------------


def test_a_queue_of_a_name_alone_has_the_defaults_of_amps():
    assert Queue(name="work").model_dump(mode="json") == {
        "name": "work",
        "underlying_topic": "work",
        "default_publish_target": "work",
        "message_type": "json",
        "field_separator": None,
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
        "deferred_ack_expiration": "1d",
        "record_deliveries": False,
        "paused": False,
        "group_by": None,
        "group_concurrency": None,
        "on_group_failure": None,
        "group_choice": None,
        "group_batch": None,
        "group_weight": None,
        "rate": None,
        "rate_burst": None,
        "group_rate": None,
        "group_rate_burst": None,
        "group_affinity": None,
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


@pytest.mark.parametrize(
    ("element", "allowed"),
    [
        ("ring_size", "a whole number from 1 to 1000000000, or -1 for no limit"),
        ("max_per_subscription_backlog", "a whole number from 1 to 1000000000"),
        ("target_queue_depth", "a whole number from 1000 to 1000000000, best"),
    ],
)
@pytest.mark.parametrize("value", [-2, "10x", 1.5])
def test_what_is_no_count_is_told_the_bounds_of_the_element(element, allowed, value):
    text = refusal(Queue, name="work", **{element: value})
    assert text.startswith(f"Queue 'work': {element}: {value!r} is not a count; allowed: {allowed}")


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


@pytest.mark.parametrize(
    "element",
    [
        "max_backlog",
        "max_deliveries",
        "rate_burst",
        "group_concurrency",
        "group_rate_burst",
        "group_batch",
        "ring_size",
    ],
)
def test_a_count_may_be_a_text_as_files_give_it(element):
    elements = {"name": "work"}
    if element.startswith("group_"):
        elements |= {"group_by": "/customer", "group_rate": "1/s"}
    if element == "rate_burst":
        elements |= {"rate": "1/s"}

    assert getattr(Queue(**elements, **{element: "5"}), element) == 5


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
