"""The commands about topics with a key: sow, sow-delete, publish --delta, topics."""

from __future__ import annotations

import json

import pytest

FILE = """
topics:
  - {name: orders, key: [/id], expiration: 1h}
"""


@pytest.fixture
def orders(run, tmp_path):
    path = tmp_path / "records.yaml"
    path.write_text(FILE)
    assert run("apply", "--yes", str(path)).code == 0
    for number in (1, 2, 3):
        run("publish", "orders", json.dumps({"id": number, "price": number * 10}))
    return run


def test_records_are_shown_by_filter_key_and_bookmark(orders):
    bookmark = orders("publish", "orders", '{"id": 1, "price": 11}', "--delta").out.strip()
    assert orders("publish", "orders", '{"id": 2, "price": 12}').code == 0

    found = orders("sow", "orders", "--json", "--filter", "/price < 20").json
    assert [(each["key"], each["data"]) for each in found] == [
        ("1", {"id": 1, "price": 11}), ("2", {"id": 2, "price": 12}),
    ]  # fmt: skip
    assert [each["key"] for each in orders("sow", "orders", "--key", "3", "--key", "9", "--json").json] == ["3"]
    assert [each["data"]["price"] for each in orders("sow", "orders", "--at", bookmark, "--json").json] == [20, 30, 11]
    assert "a time as in" in orders("sow", "orders", "--at", "yesterday", code=1).err


def test_records_are_deleted_by_one_of_key_filter_and_data(orders):
    assert orders("sow-delete", "orders", "--key", "1", "--key", "9").out == "1\n"
    assert orders("sow-delete", "orders", "--data", '{"id": 2}', "--json").json == [{"deleted": 1}]
    assert orders("sow-delete", "orders", "--filter", "/price > 1", "--yes").out == "1\n"
    assert "give one of" in orders("sow-delete", "orders", code=2).err
    assert "'nowhere' is no topic; there are 'orders'" in orders("sow-delete", "nowhere", "--key", "1", code=1).err


@pytest.mark.parametrize("wish", ["--dry-run", "--yes"])
@pytest.mark.parametrize("name", ["work", "totals"])
def test_what_has_no_records_is_refused_also_when_it_is_only_counted(run, name, wish):
    file = "queues: [{name: work, underlying_topic: o}]\n"
    file += "views: [{name: totals, underlying_topic: work, projection: [/id], grouping: [/id]}]"
    run("apply", "-", "--yes", stdin=file)
    run("publish", "o", '{"id": 1}')

    assert repr(name) in run("sow-delete", name, "--filter", "/id > 0", wish, code=1).err


def test_follow_takes_at_most_so_many_of_those_that_are_there_first(orders):
    told = orders("sow", "orders", "--follow", "--top", "2", "--order-by", "/id", "--timeout", "200ms", "--json").json

    assert [(each["command"], each["key"]) for each in told] == [("sow", "1"), ("sow", "2")]


def test_topics_shows_keys_and_records(orders):
    header, line = orders("topics").out.splitlines()[:2]

    assert "key" in header
    assert "records" in header
    assert line.split()[:1] == ["orders"]
    assert "/id" in line
    facts = orders("topics", "--json").json[0]
    assert (facts["key"], facts["records"], facts["retention"]) == (["/id"], 3, {})


def test_a_delta_is_one_message(orders):
    assert "for one message" in orders("publish", "orders", "-", "--delta", code=2).err
    assert "/id" in orders("publish", "orders", '{"no": 1}', code=1).err


def test_records_of_another_message_type_are_written_and_deleted_as_json(run, tmp_path):
    path = tmp_path / "fills.yaml"
    path.write_text("topics:\n  - {name: fills, message_type: nvfix, key: [/id]}\n")
    run("apply", "--yes", str(path))
    run("publish", "fills", '{"id": "7", "qty": 3}')

    assert [(each["key"], each["data"]) for each in run("sow", "fills", "--json").json] == [
        ("7", {"id": "7", "qty": "3"})
    ]
    assert "whole message" in run("publish", "fills", '{"id": "7", "qty": 4}', "--delta", code=1).err
    assert "is not JSON" in run("sow-delete", "fills", "--data", "id=7", code=2).err
    assert run("sow-delete", "fills", "--data", '{"id": "7"}').out == "1\n"


def test_records_are_followed_with_what_leaves_the_view(orders):
    bookmark = orders("sow", "orders", "--key", "3", "--json").json[0]["bookmark"]
    orders("publish", "orders", '{"id": 1, "price": 11}')
    orders("sow-delete", "orders", "--key", "2")

    found = orders("sow", "orders", "--follow", "--at", bookmark, "--timeout", "0.3", "--json").json
    assert [(each["command"], each["reason"], each["key"]) for each in found] == [
        ("sow", "", "1"), ("sow", "", "2"), ("sow", "", "3"), ("publish", "", "1"), ("oof", "deleted", "2"),
    ]  # fmt: skip
    assert found[3]["data"] == {"id": 1, "price": 11}
    asked = ("--filter", "/price > 10", "--conflation", "50ms", "--timeout", "0.3")
    lines = orders("sow", "orders", "--follow", *asked, "--at", bookmark).out.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [
        ["sow", "2"], ["sow", "3"], ["publish", "1"], ["oof deleted", "2"],
    ]  # fmt: skip
    assert "leave --count" in orders("sow", "orders", "--follow", "--count", code=2).err
    assert "are for --follow" in orders("sow", "orders", "--timeout", "1s", code=2).err
