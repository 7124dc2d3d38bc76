"""claim and note_place: who may write down how far a durable subscription has come."""

from __future__ import annotations

import pytest

from ampsq.base.errors import NameInUse, UnknownSession


def claim(world, client="c/1", subscription="audit", former=""):
    return world.run("begin_session", world.now, subscription, client, former)


def note(world, session, kept=None, reached=(), subscription="audit"):
    texts = [text for two in (kept or {}).items() for text in two]
    return world.run("save_bookmarks", subscription, session, len(kept or {}), *texts, *reached)


def test_a_claim_gives_a_number_that_is_greater_than_every_earlier_one(world):
    world.mark()

    assert [claim(world), claim(world, subscription="other"), claim(world, "c/2")] == ["1", "2", "3"]
    assert world.changes() == {
        ":instance": {"logons": "3"},
        ":bookmarks:audit": {"session": "3 c/2"},
        ":bookmarks:other": {"session": "2 c/1"},
    }


def test_a_place_is_written_and_what_it_has_reached_is_removed(world):
    session = claim(world)
    note(world, session, {"floor": "0-0", "at a": "1-0", "beyond a 3-0": ""})
    world.mark()

    note(world, session, {"at a": "4-0"}, ["beyond a 3-0"])

    assert world.changes() == {":bookmarks:audit": {"at a": "4-0", "beyond a 3-0": None}}


def test_a_session_that_another_one_ended_is_refused_and_changes_nothing(world):
    first = claim(world)
    second = claim(world, "c/2")
    note(world, second, {"floor": "0-0"})
    world.mark()

    with pytest.raises(NameInUse, match="sub_id 'audit' by c/2") as refusal:
        note(world, first, {"floor": "9-0"})

    assert refusal.value.detail == {"subscription": "audit", "by": "c/2"}
    assert world.changes() == {}


def test_more_than_one_command_takes_is_written_and_removed(world):
    session = claim(world)
    many = {f"beyond a {number}-0": "" for number in range(3_000)}
    note(world, session, {"floor": "0-0", **many})
    world.mark()

    note(world, session, {}, list(many))

    assert world.changes() == {":bookmarks:audit": dict.fromkeys(many)}


def test_a_claim_is_above_the_clock_whatever_was_lost(world):
    world.now = 1_767_225_600_000 + 5_000
    assert claim(world) == "5000"
    assert claim(world, "c/2") == "5001"

    world.store.redis.delete(world.key(":bookmarks:audit"))
    world.store.redis.hdel(world.key(":instance"), "logons")
    world.now += 10

    assert claim(world, "c/3") == "5010"


def test_a_subscription_whose_session_was_lost_claims_again_unless_a_later_one_has_the_name(world):
    first, second = claim(world), claim(world, "c/2")
    world.mark()

    with pytest.raises(NameInUse, match="by c/2"):
        claim(world, "c/3", former=first)
    assert world.changes() == {}

    assert claim(world, "c/2", former=first) == "3"
    assert claim(world, "c/3", former="9") == "4"
    assert second == "2"


def test_a_place_of_a_session_that_is_not_known_is_refused(world):
    world.mark()
    with pytest.raises(UnknownSession):
        note(world, 1, {"floor": "0-0"})
    assert world.changes() == {}

    claim(world)
    world.mark()
    with pytest.raises(UnknownSession):
        note(world, 2, {"floor": "0-0"})
    assert world.changes() == {}
