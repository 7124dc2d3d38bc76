"""Stored actions read without their models say the same as the models do."""

from __future__ import annotations

import pytest

from ampsq import Action
from ampsq.catalog.action_sources import HEARD
from ampsq.catalog.followed_streams import followed_streams
from ampsq.definitions.action_parts import TRIGGERS, Do
from ampsq.definitions.stored_action import read_stored_action
from ampsq.protocol.calls.catalog import Catalog

#: Elements of one trigger of each word, or of several.
ELEMENTS = {
    "expire": [{"topic": "work"}, {"topic": "work", "reason": ["time_limit"]}],
    "delete": [{"topic": "work"}],
    "deliver": [{"topic": "work"}, {"topic": "^w"}],
    "publish": [{"topic": "orders"}, {"topic": "^o", "filter": "/id > 1"}],
    "timeout": [{"topic": "orders", "duration": "5s", "key": ["/id"]}],
    "schedule": [{"every": "4h"}, {"cron": "30 20 * * MON-FRI", "time_zone": "Europe/Berlin"}],
    "subscribe": [{}, {"topic": "work"}, {"topic": "^w"}],
    "unsubscribe": [{}, {"topic": "work"}],
    "event": [{"event": "rang"}],
}
ACTIONS = [
    Action(name="a", on={word: elements}, do=[{"publish": {"topic": "dead", "data": "x"}}, {"echo": {"message": "y"}}])
    for word in TRIGGERS
    for elements in ELEMENTS.get(word, [{}])
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.on[0].id)
def test_a_stored_action_says_what_its_model_says(action):
    stored, (trigger,) = read_stored_action(action.to_json()), action.on
    (read,) = stored.on

    assert stored.name == "a"
    assert stored.elements() == action.elements()
    assert stored.steps == tuple(step.word for step in action.do) == ("publish", "echo")
    assert stored.published == tuple(step.topic for step in action.do if isinstance(step, Do.publish)) == ("dead",)
    for attribute in ("word", "id", "about", "is_pattern"):
        assert getattr(read, attribute) == getattr(trigger, attribute)
    for name in ("work", "orders", "other"):
        assert read.follows(name) == trigger.follows(name)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.on[0].id)
def test_only_what_the_instance_says_of_itself_is_followed_in_its_happenings(action):
    queues, topics = {"work": "{}", "wait": "{}"}, {"orders": "{}", "others": "{}"}
    catalog = Catalog(1, topics, queues, {}, {}, {}, {}, {}, {}, {}, "here", "here")

    kinds = {stream.kind for stream in followed_streams(action.on[0], catalog)}

    assert (kinds == {"happenings"}) == isinstance(action.on[0], HEARD)


def test_every_trigger_with_elements_is_compared():
    assert set(ELEMENTS) == {word for word, kind in TRIGGERS.items() if kind.model_fields}
