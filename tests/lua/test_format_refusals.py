"""Scripts that meet another format, or a catalog that has changed, refuse and change nothing."""

from __future__ import annotations

import pytest
from cases import first_ones
from world import ref, version_after

from ampsq.base.errors import CatalogChanged, FormatMismatch
from ampsq.protocol import scripts
from ampsq.protocol.schema import FORMAT

FIRST = ref("1000-0")
ARGUMENTS = {
    "apply_log": [1_000, 0, "orders", "o.1", "-", "o/o", "0-0", "5-0", 1, 1, "b", "5-0", "body"],
    "apply_journal": [1_000, "work", "", "o.1~5-0", "o/o", "acknowledged", "", "", "", "", "", "", 0],
    "assume_ownership": [1_000, "work", 10, "o"],
    "count_owners": ["work", 10],
    "grant_messages": [1_000, "work", "o.1", "i.one 1", "", "orders~i.one~1000-0"],
    "claim_messages": [1_000, "work", "i.one", "o.1", 1, "", "orders~o.1~1000-0"],
    "offer_messages": [1_000, "work", "o.1", "i.one 1", "", "", "none 1 "],
    "set_proxied_transfer": ["work", 1],
    "read_journal": ["work", "0-0", 10],
    "relay_requests": ["o.1~5-0", "o/o", 1, "queues", "work"],
    "begin_incarnation": [1_000, "two"],
    "check_copies": [1_000, "orders", "0-0", 1],
    "check_owners": [1_000, "work", 1],
    "begin_recovery": [1_000, "i.zero"],
    "end_recovery": [1_000, "999-1", "work"],
    "find_oldest_unacknowledged": [1_000, "o", "log orders"],
    "report_sent": ["o", "log orders", "5-0"],
    "request_messages": [1_000, "work"],
    "advance_action": ["a", "expire work", "0-0", "1-0", 1, 1, 1],
    "heartbeat": [1_000, 10, "", "s00000001"],
    "read_catalog": [""],
    "raise_counter": ["a", "expire work 0", 1, "seen"],
    "define_action": [1_000, 0, "a", "{}", 0],
    "define_destination": [0, "nyc-2", "{}", 1],
    "downgrade": [1_000, "nyc-2", 1],
    "find_lacking_destinations": ["1-0"],
    "set_mark": [],
    "measure_ages": [1_000, "work"],
    "measure_logs": ["orders"],
    "define_instance": [0, "NYC", "", "", ""],
    "define_queue": [
        1_000,
        0,
        "work",
        "{}",
        "orders",
        "0 0 0 0 1 0 0 0 1 0",
        "",
        "",
        "",
        "",
        "",
        0,
        "*",
        "",
        "",
        "",
        "",
        1,
        "orders",
    ],
    "write_rows": [1_000, "orders", "job", 0, 1, 0, 0, 7, "b", "body"],
    "stage_rows": [1_000, "orders", "job", "i/0", "a", 0, 60_000, "b", "body"],
    "commit_job": [1_000, "job", 1],
    "record_stage": [1_000, "job", 1, "i/0"],
    "finish_job": [1_000, "job", 1, "i/0"],
    "keep_stages": ["job", 60_000],
    "drop_stages": ["job", "i/0", "a"],
    "check_delayed_counts": ["work", 1],
    "check_timetable": ["0", 50, 1],
    "check_filter_index": [1_000, "work", "f", "all", "0", 1],
    "check_lease_count": ["s00000001", 1],
    "check_structure": [1_000, "work", "ready", "0", 50, 1],
    "check_log": ["work", "orders", "0-0", "+"],
    "check_queue": [1_000, "work", 1, "orders"],
    "check_free_subscriptions": ["work", "members", "0", 1],
    "confirm_sequence": [1_000, "till-1", 1, 1],
    "correct_read_count": ["work", "orders", 1],
    "count_entries": ["orders", "0-0", "+"],
    "browse": [1_000, "work", "ready", "", "", ""],
    "set_intent": ["", "1 []"],
    "note_definitions": [1],
    "define_setting": [0, "ring.#", "{}"],
    "define_topic": [1_000, 0, "orders", "{}", 0, "", ""],
    "browse_records": [1_000, "orders", "", ""],
    "catch_up_records": ["orders"],
    "sow_delete": [1_000, "orders", "", "", "", "", "keys", "1"],
    "define_transport": [0, "*", "{}", "- - - -"],
    "measure_lag": ["orders", "0-0"],
    "report_reader": [1_000, "r", "*", "online", 0, 0, 0, 15_000, "c", "{}"],
    "discard_unsettled": [1_000, 0, "orders", 0, "", "", "0-0", 0],
    "explain": [1_000, "work", FIRST],
    "find_bookmarks": ["orders~o.1~5-0"],
    "find_numbers": ["orders", "+", "5", "till"],
    "find_index_point": ["orders", "1-0"],
    "forget_publishers": [1_000, "0"],
    "hold_log": [1_000, "orders", "replay r", "1-0", 0],
    "index_log": ["orders"],
    "pin_messages": ["orders", "action a", 1, "1-0"],
    "skip_entries": ["orders", "0-0", "+", 10],
    "trim_log": [1_000, 0, "orders", 0, "", "", "", 0, 0],
    "trim_journal": [1_000, "work", ""],
    "define_view": [0, "board", "{}"],
    "remove_destination": ["nyc-2"],
    "define_conflated": [0, "slow", "{}"],
    "remove_conflated": [0, "slow"],
    "remove_action": [0, "a", 0],
    "remove_queue": [0, "work"],
    "check_groups": [1_000, "work", "groups", "0", 0],
    "list_groups": ["work", 0, 100],
    "count_groups": ["", "work", 0, 100],
    "release_group": [1_000, "work", "a"],
    "pause_group": [1_000, "work", "a", 1, "c"],
    "drop_group": [1_000, "work", "a", "placed", "", "9-0", 0, ""],
    "remove_setting": [0, "ring.#"],
    "remove_transport": [0, "*"],
    "remove_view": [0, "board"],
    "emit_event": [1_000, "connect", "c", "", ""],
    "keep_duty": [1_000, "board", "me", 5_000],
    "drop_before_start": ["work", FIRST],
    "begin_session": [1_000, "audit", "c", ""],
    "note_flushing": ["run", "everysec", "no", 0],
    "save_bookmarks": ["audit", 1, 1, "floor", "0-0"],
    "logoff": ["till-1", 1],
    "logon": [1_000, "till-1", "c", 1, "", ""],
    "locate_in_log": ["orders", "+"],
    "read_available": [1_000, "work", FIRST],
    "name_messages": [FIRST],
    "scan_foreign_entries": [1_000, "orders", ""],
    "open": [1_000, "i", "two"],
    "emit_overdue": [1_000, "a"],
    "publish": [1_000, "orders", "", "", "b", "body"],
    "publish_once": [1_000, "orders", 5_000, "b", 1, "invoice-17", "body"],
    "redrive": [1_000, "work", "orders", "work", "c/9", FIRST, "body", "", ""],
    "retry_event": [1_000, "a", 1, 1, "", 0, "", "", "", "", ""],
    "begin_rebuild": [1_000, "work", "me", 5_000, 0, "orders 0-0 0"],
    "rebuild": [1_000, "work", "me", 5_000, "0-0", "", FIRST, 0],
    "repair": [1_000, "work", "0-0", FIRST, 0],
    "replace_subscription": [1_000, "", "s00000001", 1, 5, "none", "", "", "work"],
    "resize_backlog": [1_000, "s00000001", 5],
    "end_wait": ["s00000001"],
    "end_rebuild": [1_000, "work", "me", "0-0", "", "", "orders 0-0 0"],
    "push_again": [1_000, "s00000001", "work", 0],
    "set_event_aside": ["a", "expire work", "0-0", "1-0", 1, 1, "{}", "why", 2_000],
    "settle": [1_000, "acknowledged", 0, "", "work", 1, FIRST, "1"],
    "read_stats": ["work"],
    "subscribe": [1_000, "", "c/9", 1, "none", "", "", 10_000, "work"],
    "sweep": [9_000],
    "take": [1_000, "s00000001", 1],
    "track_matches": ["a", "track orders", "0-0", "1-0", 1, 5_000],
    "unsubscribe": [1_000, "s00000001"],
    "verify": [1_000, "work", "0-0", FIRST, 0],
    "begin_browse": ["work"],
    "want_name": [0, "trades"],
    "watch_queue": [1_000, "work", 60_000],
}
#: What turns one format into another looks at how far that is, and refuses nothing.
UPGRADING = {
    "begin_upgrade": ["4", "4>5"],
    "upgrade_queues": [1_000, "4>5", "1 ", "work"],
    "end_upgrade": ["4>5", "2 "],
}


def test_every_script_is_tried_on_another_format():
    assert sorted([*ARGUMENTS, *UPGRADING, "read_news"]) == scripts.names()


@pytest.mark.parametrize("found", ["4", "", None])
def test_news_are_read_of_no_instance_of_another_format_and_of_all_others(world, found):
    # Given an instance of another format among several that are looked at
    world.store.redis.delete(world.key(":instance"))
    if found is not None:
        world.store.redis.hset(world.key(":instance"), "format", found)
    other = "{other}:instance"
    world.store.redis.hset(other, mapping={"format": FORMAT, "catalog": "7"})
    world.mark()
    try:
        _, keys, *news = world.run(
            "read_news", 1_000, 1, world.store.instance, "1", "1", "", 0, 0, "other", "6", "1", " ", 0, 0
        )
        assert news == [[1, -1, "lost"], [2, -1, "catalog"]]
        assert keys == world.store.redis.dbsize()
        assert world.changes() == {}
    finally:
        world.store.redis.delete(other)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@first_ones("found", ["1", "", None], 1)
def test_every_script_refuses_another_format_and_changes_nothing(world, name, found):
    if found is None and name == "open":
        return  # it makes the format
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one", "two")
    world.take(world.subscribe("work"))
    if found is None:
        world.store.redis.delete(world.key(":instance"))
    else:
        world.store.redis.hset(world.key(":instance"), "format", found)
    world.mark()

    with pytest.raises(FormatMismatch) as refusal:
        world.run(name, *ARGUMENTS[name])

    assert refusal.value.detail == {"expected": str(FORMAT), "found": False if found is None else found}
    assert world.changes() == {}


@pytest.mark.parametrize("name", sorted(UPGRADING))
@pytest.mark.parametrize("found", ["3", str(FORMAT), f"{FORMAT}>{FORMAT + 1}", ""])
def test_what_upgrades_does_nothing_to_another_format(world, name, found):
    world.queue("work", "orders", lease=5_000)
    world.store.redis.hset(world.key(":instance"), mapping={"format": found, "upgrade": "1 "})
    world.mark()

    assert world.run(name, *UPGRADING[name]) == [found, "1 "]

    assert world.changes() == {}


@pytest.mark.parametrize(
    "name",
    [
        *("define_action", "define_destination", "define_instance", "define_queue", "define_topic"),
        *(
            "remove_action",
            "remove_queue",
            "remove_setting",
            "remove_transport",
            "remove_view",
            "define_conflated",
            "remove_conflated",
        ),
    ],
)
def test_a_definition_on_an_old_catalog_is_refused_and_changes_nothing(world, name):
    world.queue("work", "orders")
    world.mark()

    with pytest.raises(CatalogChanged) as refusal:
        world.run(name, *ARGUMENTS[name])

    assert refusal.value.detail == {"expected": "0", "found": version_after(1)}
    assert world.changes() == {}
