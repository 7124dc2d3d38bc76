"""set_intent and note_definitions: versions of the definitions of all partitions."""

from __future__ import annotations

import pytest
from world import version_after

from ampsq.base.errors import StaleDefinitions


def test_an_intent_is_said_where_the_one_before_it_stands(world):
    world.mark()

    assert world.run("set_intent", "", "1 [[],[]]") == 1

    assert world.changes() == {":instance": {"intent": "1 [[],[]]"}}
    assert world.run("set_intent", "1 [[],[]]", "1") == 1
    assert world.changes() == {":instance": {"intent": "1"}}


def test_an_intent_behind_one_that_is_not_there_any_more_is_refused_and_nothing_changes(world):
    world.run("set_intent", "", "7 [[],[]]")
    world.mark()

    with pytest.raises(StaleDefinitions) as raised:
        world.run("set_intent", "", "1 [[],[]]")

    assert raised.value.detail["found"] == 7
    assert world.changes() == {}


def test_an_intent_that_is_said_twice_is_found(world):
    world.run("set_intent", "", "1 [[],[]]")
    world.mark()

    assert world.run("set_intent", "", "1 [[],[]]") == 1
    assert world.changes() == {}


def test_a_version_is_noted_and_whoever_read_the_catalog_before_is_refused(world):
    world.mark()

    assert world.run("note_definitions", 3) == 1

    assert world.changes() == {":instance": {"definitions": "3", "catalog": version_after(1)}}


def test_a_version_that_is_noted_twice_changes_nothing(world):
    world.run("note_definitions", 3)
    world.mark()

    assert world.run("note_definitions", 3) == 1
    assert world.changes() == {}


def test_an_older_version_is_refused_and_nothing_changes(world):
    world.run("note_definitions", 10)
    world.mark()

    with pytest.raises(StaleDefinitions) as raised:
        world.run("note_definitions", 9)

    assert raised.value.detail["found"] == 10
    assert world.changes() == {}
