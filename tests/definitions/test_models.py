"""The models: names, JSON, actions, what a change does, and that each element is explained."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusing import NAMES, refusal

from ampsq.base.errors import DefinitionError
from ampsq.catalog.queue_changes import CHANGES, refused_changes
from ampsq.definitions.action import Action
from ampsq.definitions.action_parts import Do, On
from ampsq.definitions.queue import GroupLocalQueue, Interval, LocalQueue, Queue, Topic, View

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


# --- JSON ----------------------------------------------------------------------------------------------


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


# --- changes -------------------------------------------------------------------------------------------


def test_every_element_of_a_queue_says_what_its_change_does():
    assert list(CHANGES) == list(GroupLocalQueue.model_fields)
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


@pytest.mark.parametrize(
    ("queue", "owner", "domain"),
    [
        (Queue(name="work", lease_period="30s"), "*", ""),
        (LocalQueue(name="work", lease_period="30s"), "", ""),
        (GroupLocalQueue(name="work", initial_owner="nyc-1"), "nyc-1", "NYC"),
        (GroupLocalQueue(name="work", initial_owner="nyc-1", group_local_queue_domain="US"), "nyc-1", "US"),
    ],
)
def test_each_kind_of_queue_is_stored_with_its_kind_and_says_whose_its_messages_are(queue, owner, domain):
    assert Queue.from_json(queue.to_json()) == queue
    assert type(Queue.from_json(queue.to_json())) is type(queue)
    assert (queue.owner, queue.domain("NYC")) == (owner, domain)
    assert ("kind" in json.loads(queue.to_json())) is (type(queue) is not Queue)


def test_a_group_local_queue_needs_an_owner():
    assert "initial_owner: missing; allowed: the name of the instance" in refusal(GroupLocalQueue, name="work")
    assert "initial_owner: no such element" in refusal(LocalQueue, name="work", initial_owner="nyc-1")


def test_another_kind_of_queue_is_among_the_changes_and_none_that_is_refused_for_good():
    old, new = Queue(name="work", max_backlog=3), GroupLocalQueue(name="work", initial_owner="nyc-1")
    assert new.changes_from(old) == {
        "kind": ("Queue", "GroupLocalQueue"), "max_backlog": (3, None), "initial_owner": (None, "nyc-1"),
    }  # fmt: skip
    assert refused_changes(old, new) == refused_changes(new, old) == []


def test_another_name_is_another_queue():
    (text,) = refused_changes(Queue(name="a", underlying_topic="x"), Queue(name="b", underlying_topic="x"))
    assert "Another name is another queue" in text


# --- the module ----------------------------------------------------------------------------------------


def test_the_models_import_neither_redis_nor_yaml_nor_click():
    unwanted = "{'redis', 'yaml', 'click', 'rich'}"
    code = f"import sys, ampsq.definitions.queue, ampsq.files.config; print({unwanted} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_expressions_are_imported_when_the_first_one_is_given():
    code = "import sys; from ampsq import Queue; Queue(name='a'); print([n for n in sys.modules if 'expressions' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def explained(model):
    """Return the elements and their texts in a model's docstring."""
    return re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", inspect.getdoc(model), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("model", [Queue, View, Action, Topic])
def test_every_element_is_explained(model):
    assert {element for element, _ in explained(model)} == set(model.model_fields)


def test_the_list_of_view_elements_is_the_model_s_own():
    page = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
    elements = explained(View)
    rows = [f"- `{element}`: {' '.join(text.split()).replace('``', '`')}" for element, text in elements]
    assert [line for line in page.splitlines() if line.startswith("- `")] == rows


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


@pytest.mark.parametrize(
    "url", ["ftp://example.com/x", "example.com/x", "http:///x", "https://", "http://[x/", "/x", "x{{URL}}"]
)
def test_a_webhook_that_is_no_address_of_the_web_is_refused_when_it_is_defined(url):
    with pytest.raises(DefinitionError, match="is no address of the web; allowed: http://HOST or https://HOST"):
        Do.webhook(url=url)


@pytest.mark.parametrize("url", ["http://example.com", "https://{{HOST}}/x", "{{URL}}", "HTTP://a:8080/x?y={{Z}}"])
def test_a_webhook_is_http_or_https_or_begins_with_a_variable(url):
    assert Do.webhook(url=url).url == url
