"""Checks of a link of the definitions of both sides, each check both ways: what differs, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from alike import BOARD, GROUPED, ORDERS, WORK, both, differences, instance, to, validated, with_queues

from ampsq import LocalQueue, Queue, ReplicatedTopic, Topic, View
from ampsq.replication.selection import select
from ampsq.replication.validation import ConfigDifference, validate


def test_instances_that_are_alike_do_not_differ():
    one, other = both(ORDERS, Topic(name="prices", key=["/id"]), WORK, BOARD, topics=["orders", "prices", "work"])
    assert validate(one, other, to("B", "orders", "prices", "work")) == []
    assert differences(one, other) == differences(other, one) == []


# --- who the other side is


def test_a_peer_of_another_group_or_of_another_name_is_refused_and_told_where_to_mend_it():
    mine, theirs = instance("A"), instance("B", to("A", "orders"), group="LDN")
    (found,) = validate(mine, theirs, to("B", "orders", group="NYC"))
    assert found == ConfigDifference(
        "group", "",
        "'B' is of the group 'LDN', and Destination 'B' of 'A' says 'NYC'. On 'B' apply Instance(group='NYC'), or on "
        "'A' say group='LDN'",
    )  # fmt: skip
    (found,) = validate(mine, theirs, to("C", "orders"))
    assert (found.check, found.topic) == ("instance", "")
    assert str(found).startswith("instance: Destination 'C' of 'A' is not meant for 'B'. On 'A', name the instance")
    # By its address, or by the group where there is none, it is meant
    for elements in ({"addresses": ["redis://b#B"]}, {"group": "LDN"}):
        assert validate(mine, theirs, to("C", "orders", **elements)) == []
    # Without a group, none is checked; the default is the instance's name
    assert validate(mine, theirs, to("B", "orders")) == []
    assert validate(mine, replace(theirs, group="B"), to("B", "orders", group="B")) == []


# --- the checks of topics


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        (ORDERS, View(name="orders", underlying_topic="o", projection=["/a"], grouping=["/a"]), "a view on 'B'"),
        (ORDERS, Queue(name="orders", underlying_topic="returns"), "on 'B' a queue over 'returns'"),
        (
            Topic(name="orders", message_type="fix"),
            ORDERS,
            "is fix on 'A' and json on 'B'. On 'B' define Topic(name='orders', message_type='fix')",
        ),
        (Topic(name="orders", message_type="fix"), None, "is fix on 'A' and not defined, that is json, on 'B'"),
    ],
)
def test_txlog_what_is_recorded_here_must_be_recorded_there_as_the_same(here, there, text):
    mine = instance("A", here, to("B", "orders"))
    theirs = instance("B", *([there] if there else []), to("A", "orders"))
    (found,) = [each for each in validated(mine, theirs) if each.refuses]
    assert (found.check, found.topic) == ("txlog", "orders")
    assert text in found.text
    lenient = replace(mine, destinations={"B": to("B", "orders", exclude="txlog").to_json()})
    assert differences(lenient, theirs) == []


def test_txlog_a_topic_that_is_not_there_yet_is_added_by_its_first_copy():
    mine, theirs = instance("A", ORDERS, to("B", "orders", "later")), instance("B", to("A", ".*"))
    assert differences(mine, theirs) == []
    # Nor has it a type yet where it is only named
    named = ReplicatedTopic(name="later", message_type="fix")
    theirs = instance("B", Topic(name="later", message_type="fix"), to("A", ".*"))
    assert differences(instance("A", to("B", named)), theirs) == []


def test_replicate_a_topic_must_be_sent_back():
    mine = instance("A", ORDERS, to("B", "orders"))
    (found,) = validated(mine, instance("B", ORDERS))
    assert (found.check, found.topic) == ("replicate", "orders")
    assert "On 'B' add it to the topics of a destination that leads to 'A', or on 'A' exclude 'replicate'" in found.text
    # A destination that leads elsewhere, or sends other topics, is no way back
    for destination in (to("C", "orders"), to("A", "returns")):
        assert differences(mine, instance("B", ORDERS, destination)) == [("replicate", "orders")]
    for destination in (to("A", "ord.*"), to("x", "orders", addresses=["redis://c", "redis://a#A"])):
        assert differences(mine, instance("B", ORDERS, destination)) == []
    # A view server does not send back
    assert differences(instance("A", ORDERS, to("B", "orders", exclude="replicate")), instance("B", ORDERS)) == []


def test_sow_and_keys_records_must_be_kept_there_by_the_same_key():
    keyed = Topic(name="orders", key=["/id"])
    assert differences(instance("A", keyed, to("B", "orders")), instance("B", ORDERS, to("A", "orders"))) == [
        ("sow", "orders")
    ]
    for other, found in ((["/id", "/day"], [("keys", "orders")]), (["/no"], [("keys", "orders")]), (["/id"], [])):
        theirs = instance("B", Topic(name="orders", key=other), to("A", "orders"))
        assert differences(instance("A", keyed, to("B", "orders")), theirs) == found
        assert differences(instance("A", keyed, to("B", "orders", exclude="keys")), theirs) == []
    # What has none here may have one there: the other direction says so
    theirs = instance("B", keyed, to("A", "orders"))
    assert differences(instance("A", ORDERS, to("B", "orders")), theirs) == []
    assert differences(theirs, instance("A", ORDERS, to("B", "orders"))) == [("sow", "orders")]
    assert differences(theirs, instance("A", to("B", "orders"))) == [("sow", "orders")]
    lenient = instance("A", keyed, to("B", "orders", exclude="sow,keys"))
    assert differences(lenient, instance("B", ORDERS, to("A", "orders"))) == []


def filtered(text, exclude=()):
    return ReplicatedTopic(name="orders", filter=text, exclude_validation=exclude)


def test_replicate_filter_the_same_filter_must_hold_for_the_way_back():
    mine = instance("A", ORDERS, to("B", filtered("/a > 1")))
    for back, told in (("/a > 2", "under '/a > 2'"), (None, "without a filter")):
        (found,) = validated(mine, instance("B", ORDERS, to("A", filtered(back))))
        assert (found.check, found.topic) == ("replicate_filter", "orders")
        assert f"under the filter '/a > 1' and back {told}" in found.text
    # The same in other words is the same
    assert differences(mine, instance("B", ORDERS, to("A", filtered("(/a) > 1")))) == []
    lenient = instance("A", ORDERS, to("B", filtered("/a > 1", "replicate_filter")))
    assert differences(lenient, instance("B", ORDERS, to("A", "orders"))) == []
    # Without one here nothing is compared
    assert differences(instance("A", ORDERS, to("B", "orders")), instance("B", ORDERS, to("A", filtered("/a")))) == []


def test_cascade_the_other_side_must_enforce_the_same_checks_wherever_it_sends_the_topic():
    mine = instance("A", ORDERS, to("B", "orders"))
    back, on = to("A", "orders"), to("C", "orders", exclude="sow,keys")
    (found,) = validated(mine, instance("B", ORDERS, back, on))
    assert (found.check, found.topic) == ("cascade", "orders")
    assert "sent on by 'B' to its destination 'C' without 'sow', 'keys', which 'A' wants" in found.text
    # Also on the way back, and of cascade itself
    for exclude in ("sow", "cascade"):
        assert differences(mine, instance("B", ORDERS, to("A", "orders", exclude=exclude))) == [("cascade", "orders")]
    # Not of other topics, nor where this instance leaves out the same, more, or cascade
    assert differences(mine, instance("B", ORDERS, back, to("C", "returns", exclude="sow"))) == []
    for exclude in ("sow,keys", "txlog,sow,keys", "cascade"):
        lenient = instance("A", ORDERS, to("B", "orders", exclude=exclude))
        assert differences(lenient, instance("B", ORDERS, back, on)) == []


# --- the checks of queues


# --- what is not replicated as a queue


def test_only_the_messages_of_a_queue_may_be_sent_and_then_no_rule_of_queues_holds():
    # An archive that records what queues are fed with
    mine = instance("A", WORK, to("B", "orders", exclude="replicate"))
    assert validate(mine, instance("B"), to("B", "orders", exclude="replicate")) == []


def test_a_distributed_queue_there_that_is_not_here_is_warned_of():
    mine, theirs = instance("A", ORDERS, to("B", "orders")), instance("B", WORK, to("A", "orders"))
    (found,) = validated(mine, theirs)
    assert (found.check, found.topic, found.refuses) == ("queue", "work", False)
    assert found.text == (
        "of 'B' would never deliver what is published to 'orders' on 'A', to which such messages belong. On 'B' make "
        "it a LocalQueue, or have it on 'A', too, and replicate it both ways"
    )
    # Also where it is here and is not sent
    (found,) = validated(instance("A", WORK, to("B", "orders")), theirs)
    assert not found.refuses
    # What waits for one instance, or for nobody, gets them; and what is over other topics never would
    for queue in (
        LocalQueue(name="work", underlying_topic="orders"),
        GROUPED,
        Queue(name="work", underlying_topic="x"),
    ):
        assert validated(mine, instance("B", queue, to("A", "orders"))) == []


def test_warnings_come_last():
    mine = instance("A", ORDERS, Topic(name="prices"), to("B", "orders", "prices"))
    found = validated(mine, instance("B", WORK, to("A", "orders")))
    assert [each.refuses for each in found] == [True, False]


# --- what is chosen


def test_a_regular_expression_passes_over_what_each_instance_has_of_its_own():
    local = LocalQueue(name="audit", underlying_topic="orders")
    mine, theirs = both(ORDERS, WORK, BOARD, local, GROUPED.model_copy(update={"name": "us"}), topics=[".*"])
    chosen = select(mine, theirs, to("B", ".*"))
    assert (sorted(chosen.topics), sorted(chosen.queues)) == (["orders"], ["us", "work"])
    assert differences(mine, theirs) == []


def test_a_regular_expression_passes_over_another_domain_s_queue_of_the_same_name():
    other = GROUPED.model_copy(update={"group_local_queue_domain": "EU", "initial_owner": "B"})
    mine, theirs = instance("A", GROUPED, to("B", ".*")), instance("B", other, to("A", ".*"))
    assert select(mine, theirs, to("B", ".*")).queues == {}
    assert differences(mine, theirs) == differences(theirs, mine) == []
    # By name it is meant
    assert differences(*with_queues(GROUPED, other)) == [("queue", "work")]


def test_a_topic_counts_by_the_first_that_matches_its_name_and_type():
    fix = ReplicatedTopic(name=".*", message_type="fix")
    mine = instance("A", ORDERS, Topic(name="trades", message_type="fix"), WORK)
    assert list(select(mine, instance("B"), to("B", fix)).topics) == ["trades"]
    first = filtered("/a")
    chosen = select(mine, instance("B"), to("B", first, ".*"))
    assert chosen.topics["orders"] == first
    assert chosen.queues["work"].name == ".*"
