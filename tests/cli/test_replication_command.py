"""``ampsq replication`` and its subcommands."""

from __future__ import annotations

import pytest

DEFINITIONS = """
name: {name}
topics: [{{name: orders}}]
queues: [{{name: work, underlying_topic: orders}}]
destinations:
  - name: nyc-2
    sync_type: sync
    topics: [orders, work]
    addresses: ["redis://user:secret@nyc-2.example.com"]
    pass_through: ["^NYC$"]
  - {{name: london, sync_type: async, topics: [orders]}}
"""


@pytest.fixture
def replicated(run):
    """The program with two destinations, which nobody runs."""
    with run.client() as client:
        name = client.instance
    run("apply", "--yes", "-", stdin=DEFINITIONS.format(name=name))
    return run


def test_links_and_shared_queues_are_tables(replicated):
    replicated.publish(1, 2, 3)

    text = " ".join(replicated("replication").out.split())

    assert "destination instance group state ack behind seconds" in text
    assert "nyc-2 - - silent sync 3" in text
    assert "work * 0 0" in text or "work origin 0 0" in text
    assert "nyc-2: no coordinator runs this link" in text
    assert "secret" not in text


def test_the_same_as_json_is_one_object(replicated):
    replicated.publish(1)

    (found,) = replicated("replication", "--json").json

    assert [(link["destination"], link["behind"], link["pass_through"]) for link in found["links"]] == [
        ("london", 1, []),
        ("nyc-2", 1, ["^NYC$"]),
    ]
    assert [(queue["queue"], queue["proxied"]) for queue in found["queues"]] == [("work", False)]


def test_an_instance_without_destinations_says_how_to_have_some(run):
    assert "has no links" in run("replication").err


def test_a_downgraded_destination_is_told_everywhere_not_to_be_failed_over_to(replicated):
    assert "unsafe to fail over" in replicated("replication", "downgrade", "nyc-2").out
    shown = replicated("replication").out
    assert "downgraded" in shown
    assert "Do not fail over to it until it has caught up" in " ".join(shown.split())
    assert replicated("replication", "downgrade", "nyc-2").out == "nyc-2 was downgraded before\n"

    assert replicated("replication", "upgrade", "nyc-2", "--json").json == [
        {"destination": "nyc-2", "upgraded": True, "changed": True}
    ]
    assert "downgraded" not in replicated("replication").out


def test_what_cannot_be_downgraded_is_refused(replicated):
    assert "london" in replicated("replication", "downgrade", "london", code=1).err


def test_proxied_transfer_says_that_a_message_may_come_twice_and_how_it_ends(replicated):
    assert "second time" in replicated("replication", "enable-proxied-transfer", "work").out
    assert "disable-proxied-transfer work" in replicated("replication").out
    replicated("replication", "disable-proxied-transfer", "work")
    assert "disable-proxied-transfer" not in replicated("replication").out
    assert "wrok" in replicated("replication", "enable-proxied-transfer", "wrok", code=1).err


def test_the_help_has_the_order_of_recovery(run):
    text = run("replication", "enable-proxied-transfer", "--help").out

    steps = [text.index(step) for step in ("choose ONE", "enable it", "bring the lost", "disable it", "let consumers")]
    assert steps == sorted(steps)


def test_a_destination_is_removed_by_its_name(replicated):
    assert "london, nyc-2" in replicated("replication", "remove", "nyc-3", code=1).err
    assert replicated("replication", "remove", "nyc-2").out == "nyc-2 is removed\n"
    assert [link["destination"] for link in replicated("replication", "--json").json[0]["links"]] == ["london"]


def test_recovering_without_nobody_in_particular_is_refused(replicated):
    refused = replicated("replication", "recover-without", "nobody", code=1)

    assert "nobody" in refused.err
