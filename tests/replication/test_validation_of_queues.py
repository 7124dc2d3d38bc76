"""Checks of a link of the queues of both sides, each check both ways."""

from __future__ import annotations

import pytest
from alike import BOARD, GROUPED, ORDERS, WORK, both, differences, instance, to, validated, with_queues

from ampsq import Destination, LocalQueue, Queue, Topic
from ampsq.definitions.destination import CHECKS
from ampsq.replication.validation import validate


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        (WORK, None, "is a queue on 'A' and none on 'B'. On 'B' define it as it is on 'A', or on 'A' let no topic"),
        (WORK, LocalQueue(name="work", underlying_topic="orders"), "is a Queue on 'A' and a LocalQueue on 'B'"),
        (WORK, GROUPED, "is a Queue on 'A' and a GroupLocalQueue on 'B'"),
        (
            GROUPED,
            GROUPED.model_copy(update={"group_local_queue_domain": None}),
            "is of the domain 'US' on 'A' and of 'B' on 'B', so that they are two queues",
        ),
    ],
)
def test_queue_what_is_a_queue_here_must_be_the_same_there(here, there, text):
    mine, theirs = with_queues(here, there)
    (found,) = [each for each in validated(mine, theirs) if each.refuses]
    assert (found.check, found.topic) == ("queue", "work")
    assert text in found.text
    assert differences(*with_queues(here, here)) == []


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        (
            WORK,
            Queue(name="work", underlying_topic="returns"),
            "has underlying_topic 'orders' on 'A' and 'returns' on 'B'",
        ),
        (WORK, WORK.model_copy(update={"filter": "/a > 1"}), "has filter None on 'A' and '/a > 1' on 'B'"),
        (
            WORK.model_copy(update={"filter": "/a > 2"}),
            WORK.model_copy(update={"filter": "/a > 1"}),
            "has filter '/a > 2' on 'A' and '/a > 1' on 'B'",
        ),
        (
            GROUPED,
            GROUPED.model_copy(update={"initial_owner": "B"}),
            "has initial_owner 'A' on 'A' and 'B' on 'B'. Give it the same on both",
        ),
    ],
)
def test_queue_underlying_a_queue_must_be_over_the_same_with_the_same_filter_and_owner(here, there, text):
    mine, theirs = with_queues(here, there)
    (found,) = validated(mine, theirs)
    assert (found.check, found.topic) == ("queue_underlying", "work")
    assert text in found.text


def test_queue_underlying_filters_are_alike_by_what_they_mean_and_other_elements_may_differ():
    here = WORK.model_copy(update={"filter": "/a > 1", "lease_period": "5s", "fairness_model": "fast"})
    assert differences(*with_queues(here, WORK.model_copy(update={"filter": "(/a > 1)"}))) == []


def test_queue_underlying_a_queue_s_messages_must_be_sent_too():
    theirs = instance("B", WORK, to("A", ".*"))
    (found,) = validated(instance("A", WORK, to("B", "work")), theirs)
    assert (found.check, found.topic) == ("queue_underlying", "work")
    assert "On 'A' add 'orders' to the topics of the destination 'B'" in found.text
    assert differences(instance("A", WORK, to("B", "work", "orders")), theirs) == []
    # All of the topics that a regular expression finds
    several = Queue(name="work", underlying_topic="^o-", default_publish_target="o-1")
    mine = instance("A", several, Topic(name="o-2"), Topic(name="o-3"), Topic(name="p"), to("B", "work", "o-[12]"))
    (found,) = validated(mine, instance("B", several, to("A", ".*")))
    assert "add 'o-3' to the topics" in found.text
    assert (
        differences(instance("A", several, Topic(name="o-2"), to("B", ".*")), instance("B", several, to("A", ".*")))
        == []
    )


def test_queue_underlying_a_view_s_rows_are_not_sent():
    over = Queue(name="best", underlying_topic="board")
    (found,) = validated(*both(ORDERS, BOARD, over, topics=[".*"]))
    assert (found.check, found.topic) == ("queue_underlying", "best")
    assert "is over the view 'board', which is not replicated. Put a LocalQueue over it on both" in found.text
    local = LocalQueue(name="best", underlying_topic="board")
    assert differences(*both(ORDERS, BOARD, local, topics=[".*"])) == []


def test_a_queue_must_be_sent_back_as_a_topic_must():
    mine = instance("A", WORK, to("B", "orders", "work"))
    theirs = instance("B", WORK, to("A", "orders"))
    assert differences(mine, theirs) == [("replicate", "work")]
    # Told once, where it has its topic's name
    named = Queue(name="orders")
    assert differences(instance("A", named, to("B", "orders")), instance("B", named)) == [("replicate", "orders")]
    lenient = instance("A", WORK, to("B", "orders", "work", exclude="cascade"))
    assert differences(lenient, instance("B", WORK, to("A", "orders", "work"), to("C", "work", exclude="sow"))) == [
        ("queue_passthrough", "work")
    ]


def test_the_checks_that_cannot_be_left_out_hold_whatever_is_excluded():
    optional = [check for check in CHECKS if check not in ("queue", "queue_underlying")]
    for there, check in ((None, "queue"), (WORK.model_copy(update={"filter": "/a"}), "queue_underlying")):
        assert differences(*with_queues(WORK, there, exclude=optional)) == [(check, "work")]


def chain(*, to_a=(), to_c=(), exclude=()):
    """The chapter's A in One, B in Two, C in Three; B passes on what is given."""
    sent = "orders", "work"
    a = instance("A", WORK, to("B", *sent, group="Two", exclude=exclude), group="One")
    b = instance(
        "B", WORK, to("A", *sent, group="One", pass_through=to_a, exclude=exclude),
        to("C", *sent, group="Three", pass_through=to_c), group="Two",
    )  # fmt: skip
    return a, b, instance("C", WORK, to("B", *sent, group="Two"), group="Three")


def test_queue_passthrough_the_chapter_s_chain_of_three_groups():
    a, b, c = chain(to_a=["^Three$"], to_c=["^One$"])
    assert [differences(*pair) for pair in ((a, b), (b, a), (b, c), (c, b))] == [[]] * 4
    # B does not send on to A what comes from C: B sees it, and so does C, whose messages would be missing
    a, b, c = chain(to_c=["^One$"])
    for one, other in ((b, a), (c, b)):
        assert differences(one, other) == [("queue_passthrough", "work")]
    assert differences(a, b) == differences(b, c) == []
    (found,) = validated(b, a)
    assert "arrives at 'B' from the group 'Three' and would not reach 'A'. On 'B' let pass_through of 'A'" in found.text
    (found,) = validated(c, b)
    assert "would not send on to its destination 'A' what arrives from the group 'Three'. On 'B' let" in found.text
    # And the other way round
    a, b, c = chain(to_a=["^Three$"])
    assert [bool(differences(*pair)) for pair in ((a, b), (b, a), (b, c), (c, b))] == [True, False, True, False]
    # It can be left out
    a, b, c = chain(exclude=["queue_passthrough", "cascade"])
    assert differences(a, b) == differences(b, a) == []


def test_queue_passthrough_the_group_of_a_destination_that_says_none_is_the_one_that_its_link_found():
    b = instance(
        "B", WORK, to("A", "orders", "work", pass_through=["^Three$"]), to("C", "orders", "work", pass_through=[".*"])
    )
    a = instance("A", WORK, to("B", "orders", "work"), group="One")
    to_a = Destination.from_json(b.destinations["A"])

    assert validate(b, a, to_a, {"C": "Three", "A": "One"}) == []
    (found,) = validate(b, a, to_a, {"C": "Four"})
    assert "arrives at 'B' from the group 'Four' and would not reach 'A'" in found.text
    # Its name is nobody's group, and nobody is known to send it until somebody is found.
    assert validate(b, a, to_a) == []
    # What a destination says counts, whatever was found.
    named = instance("B", WORK, to("A", "orders", "work"), to("C", "orders", "work", group="Four", pass_through=[".*"]))
    (found,) = validate(named, a, Destination.from_json(named.destinations["A"]), {"C": "Three"})
    assert "from the group 'Four'" in found.text


def test_queue_passthrough_within_a_group_others_of_it_may_be_unknown():
    """The chapter's X and Y of one group, which Z may be of, too."""

    def pair(pass_through):
        return tuple(
            instance(here, WORK, to(there, "orders", "work", group="One", pass_through=pass_through), group="One")
            for here, there in (("X", "Y"), ("Y", "X"))
        )

    for one, other in (pair([]), pair(["Two"])):
        assert differences(one, other) == differences(other, one) == [("queue_passthrough", "work")]
    for one, other in (pair(["One"]), pair([".*"])):
        assert differences(one, other) == differences(other, one) == []


def test_queue_passthrough_of_three_regions_with_pairs_everything_is_passed():
    regions = {"Chicago": ("chi-1", "chi-2"), "NewYork": ("ny-1", "ny-2"), "London": ("ldn-1", "ldn-2")}

    def server(region, name, partner, pass_through):
        links = [to(partner, "orders", "work", group=region, pass_through=pass_through)]
        links += [
            to(other, "orders", "work", group=other, pass_through=pass_through,
               addresses=[f"redis://{each}#{each}" for each in pair])
            for other, pair in regions.items() if other != region
        ]  # fmt: skip
        return instance(name, WORK, *links, group=region)

    for pass_through, alike in (([".*"], True), ([], False)):
        made = {
            name: server(region, name, pair[1 - number], pass_through)
            for region, pair in regions.items()
            for number, name in enumerate(pair)
        }
        for name, one in made.items():
            for text in one.destinations.values():
                destination = Destination.from_json(text)
                for other in made.values():
                    if other.instance != name and destination.leads_to(other.instance, other.group):
                        assert (validate(one, other, destination) == []) is alike, (name, other.instance)
