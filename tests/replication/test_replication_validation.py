"""What a link checks of the definitions of both sides, each check both ways: what differs, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ampsq import Destination, GroupLocalQueue, LocalQueue, Queue, ReplicatedTopic, Topic, View
from ampsq.definitions.destination import CHECKS
from ampsq.protocol.calls.catalog import Catalog
from ampsq.replication.selection import select
from ampsq.replication.validation import ConfigDifference, validate

WORK = Queue(name="work", underlying_topic="orders")
BOARD = View(name="board", underlying_topic="orders", projection=["/a", "COUNT(*) AS /n"], grouping=["/a"])


def instance(name, *definitions, group=None):
    """What an instance has defined; each kind as the catalog keeps it."""
    kinds = {Topic: "topics", Queue: "queues", View: "views", Destination: "destinations"}
    parts = {part: {} for part in ("topics", "queues", "actions", "patterns", "views", "settings", "transports")}
    parts |= {"destinations": {}, "conflated": {}}
    for definition in definitions:
        (part,) = (part for kind, part in kinds.items() if isinstance(definition, kind))
        parts[part][definition.name] = definition.to_json()
        if isinstance(definition, Queue):
            parts["topics"].setdefault(definition.default_publish_target, "{}")
        if isinstance(definition, View):
            parts["topics"].setdefault(definition.name, "{}")
    return Catalog(1, **parts, instance=name, group=group or name)


def to(name, *topics, pass_through=(), exclude=(), **elements):
    """A destination; `exclude` for all of its topics."""
    made = [
        topic if isinstance(topic, ReplicatedTopic) else ReplicatedTopic(name=topic, exclude_validation=exclude)
        for topic in topics
    ]
    return Destination(name=name, sync_type="async", topics=made, pass_through=pass_through, **elements)


def differences(mine, theirs, name=None):
    """Of the link from the one to the other, as (check, topic)."""
    return [(check, topic) for check, topic, _, refuses in _validated(mine, theirs, name) if refuses]


def _validated(mine, theirs, name=None):
    return validate(mine, theirs, Destination.from_json(mine.destinations[name or theirs.instance]))


def both(*definitions, topics=("orders",), exclude=(), **elements):
    """Two instances that are alike, A and B."""
    return tuple(
        instance(here, *definitions, to(there, *topics, exclude=exclude, **elements))
        for here, there in (("A", "B"), ("B", "A"))
    )


ORDERS = Topic(name="orders")


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
    (found,) = [each for each in _validated(mine, theirs) if each.refuses]
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
    (found,) = _validated(mine, instance("B", ORDERS))
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
        (found,) = _validated(mine, instance("B", ORDERS, to("A", filtered(back))))
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
    (found,) = _validated(mine, instance("B", ORDERS, back, on))
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


def with_queues(here, there, *, exclude=(), pass_through=()):
    """A with a queue and B with another one, or none, and what they are over, all sent both ways."""
    names = ["orders", "returns", "work"]
    one = instance("A", ORDERS, here, to("B", *names, exclude=exclude, pass_through=pass_through))
    return one, instance("B", ORDERS, *([there] if there else []), to("A", *names, pass_through=pass_through))


GROUPED = GroupLocalQueue(name="work", underlying_topic="orders", initial_owner="A", group_local_queue_domain="US")


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
    (found,) = [each for each in _validated(mine, theirs) if each.refuses]
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
    (found,) = _validated(mine, theirs)
    assert (found.check, found.topic) == ("queue_underlying", "work")
    assert text in found.text


def test_queue_underlying_filters_are_alike_by_what_they_mean_and_other_elements_may_differ():
    here = WORK.model_copy(update={"filter": "/a > 1", "lease_period": "5s", "fairness_model": "fast"})
    assert differences(*with_queues(here, WORK.model_copy(update={"filter": "(/a > 1)"}))) == []


def test_queue_underlying_a_queue_s_messages_must_be_sent_too():
    theirs = instance("B", WORK, to("A", ".*"))
    (found,) = _validated(instance("A", WORK, to("B", "work")), theirs)
    assert (found.check, found.topic) == ("queue_underlying", "work")
    assert "On 'A' add 'orders' to the topics of the destination 'B'" in found.text
    assert differences(instance("A", WORK, to("B", "work", "orders")), theirs) == []
    # All of the topics that a regular expression finds
    several = Queue(name="work", underlying_topic="^o-", default_publish_target="o-1")
    mine = instance("A", several, Topic(name="o-2"), Topic(name="o-3"), Topic(name="p"), to("B", "work", "o-[12]"))
    (found,) = _validated(mine, instance("B", several, to("A", ".*")))
    assert "add 'o-3' to the topics" in found.text
    assert (
        differences(instance("A", several, Topic(name="o-2"), to("B", ".*")), instance("B", several, to("A", ".*")))
        == []
    )


def test_queue_underlying_a_view_s_rows_are_not_sent():
    over = Queue(name="best", underlying_topic="board")
    (found,) = _validated(*both(ORDERS, BOARD, over, topics=[".*"]))
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
    (found,) = _validated(b, a)
    assert "arrives at 'B' from the group 'Three' and would not reach 'A'. On 'B' let pass_through of 'A'" in found.text
    (found,) = _validated(c, b)
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


# --- what is not replicated as a queue


def test_only_the_messages_of_a_queue_may_be_sent_and_then_no_rule_of_queues_holds():
    # An archive that records what queues are fed with
    mine = instance("A", WORK, to("B", "orders", exclude="replicate"))
    assert validate(mine, instance("B"), to("B", "orders", exclude="replicate")) == []


def test_a_distributed_queue_there_that_is_not_here_is_warned_of():
    mine, theirs = instance("A", ORDERS, to("B", "orders")), instance("B", WORK, to("A", "orders"))
    (found,) = _validated(mine, theirs)
    assert (found.check, found.topic, found.refuses) == ("queue", "work", False)
    assert found.text == (
        "of 'B' would never deliver what is published to 'orders' on 'A', to which such messages belong. On 'B' make "
        "it a LocalQueue, or have it on 'A', too, and replicate it both ways"
    )
    # Also where it is here and is not sent
    (found,) = _validated(instance("A", WORK, to("B", "orders")), theirs)
    assert not found.refuses
    # What waits for one instance, or for nobody, gets them; and what is over other topics never would
    for queue in (
        LocalQueue(name="work", underlying_topic="orders"),
        GROUPED,
        Queue(name="work", underlying_topic="x"),
    ):
        assert _validated(mine, instance("B", queue, to("A", "orders"))) == []


def test_warnings_come_last():
    mine = instance("A", ORDERS, Topic(name="prices"), to("B", "orders", "prices"))
    found = _validated(mine, instance("B", WORK, to("A", "orders")))
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
