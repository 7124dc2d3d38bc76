"""Changes of each element of a queue that holds messages: `queue_changes.CHANGES`, held to its word."""
# Long: one table: a scene for each element of a queue that may change.

from __future__ import annotations

import pytest
from observing import eventually
from scene import data_of, pick_up, rest_of, settle_all

from ampsq import LocalQueue, Queue, Topic
from ampsq.base.errors import DefinitionError, MessageTypeFixed, NotLeaseHolder, QueueNotEmpty, ServerUnsuitable
from ampsq.catalog.queue_changes import CHANGES
from ampsq.definitions.queue import GroupLocalQueue
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import key

ORDERS = "^orders"


def base(**elements):
    given = {
        "name": "work", "underlying_topic": ORDERS, "default_publish_target": "orders-1",
        "max_per_subscription_backlog": 100, **elements,
    }  # fmt: skip
    return Queue(**given)


def filled(client, number=10, **elements):
    """The queue with so many messages in it."""
    client.apply(base(**elements))
    client.publish_many("work", range(number))


def name_makes_another_queue(client):
    filled(client)
    client.apply(base(name="other"))
    assert client.admin.queue_stats("work").depth == client.admin.queue_stats("other").depth == 10


def underlying_topic_is_refused(client):
    filled(client)
    with pytest.raises(DefinitionError, match=r"underlying_topic: '\^orders' cannot become '\^order'.*drain this one"):
        client.apply(base(underlying_topic="^order"))
    assert client.admin.queues()["work"] == base()


def default_publish_target_takes_the_next_publish(client):
    filled(client)
    client.apply(base(default_publish_target="orders-2"))
    assert client.publish("work", 10).topic == "orders-2"
    with client.subscribe("work", max_backlog=100) as messages:
        got = pick_up(messages, 11)
        assert data_of(got) == list(range(11))
        assert {message.topic for message in got[:10]} == {"orders-1"}


def type_follows_the_topics(element, value):
    def scene(client):
        queue = Queue(name="work", underlying_topic="orders", message_type="fix")
        client.apply(queue)
        with pytest.raises(
            DefinitionError, match=f"the topic 'orders' is fix, and the queue 'work' over it is .*{value}"
        ):
            client.apply(queue.model_copy(update={element: value}))
        changed = {"message_type": "fix", element: value}
        client.apply(Topic(name="orders", **changed), queue.model_copy(update=changed))
        client.publish("work", {"a": 1} if value == "nvfix" else b"55=1|")
        with client.subscribe("work") as messages:
            assert data_of(pick_up(messages, 1)) == [{"a": "1"} if value == "nvfix" else {"55": "1"}]
        with pytest.raises(MessageTypeFixed):
            client.apply(Topic(name="orders"), queue.model_copy(update={"message_type": "json"}))

    return scene


def semantics_is_refused(client):
    filled(client)
    with pytest.raises(DefinitionError, match="semantics: 'at-least-once' cannot become 'at-most-once'"):
        client.apply(base(semantics="at-most-once", allow_redelivery_after_crash=True))
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
    assert client.admin.queue_stats("work").depth == 10


def lease_period_holds_for_new_leases(client):
    filled(client, 2)
    with client.subscribe("work", max_backlog=2) as messages:
        # Given a lease without an end, and later one of a second
        endless = pick_up(messages, 2)[0]
        endless.extend("1h")
        client.apply(base(lease_period="1s"))
        client.publish("work", "new")
        with client.subscribe("work", max_backlog=1) as others:
            short = pick_up(others, 1)[0]
            assert short.lease_until is not None
            # Then the new one lapses, and the old ones hold
            eventually(lambda: others.get(0.05) and client.admin.queue_stats("work").returned >= 1)
            endless.ack(wait=True)


def max_per_subscription_backlog_holds_at_once(client):
    filled(client, 20, max_per_subscription_backlog=2)
    with client.subscribe("work", max_backlog=10) as messages:
        held = pick_up(messages, 2)
        assert not rest_of(messages)
        # A larger one is filled at once
        client.apply(base(max_per_subscription_backlog=5))
        held += pick_up(messages, 3)
        # Under a smaller one held leases stay, and the next comes when fewer are held
        client.apply(base(max_per_subscription_backlog=4))
        held.pop().ack(wait=True)
        assert not rest_of(messages)
        held.pop().ack(wait=True)
        assert len(rest_of(messages)) == 1


def max_backlog_holds_at_once(client):
    filled(client, 20)
    with client.subscribe("work", max_backlog=10) as messages:
        held = pick_up(messages, 10)
        # Under a smaller limit held leases stay, and delivery goes on once fewer are held
        client.apply(base(max_backlog=8))
        for message in held[:2]:
            message.ack(wait=True)
        assert not rest_of(messages)
        held[2].ack(wait=True)
        assert len(rest_of(messages)) == 1
        # Without one it goes on at once
        client.apply(base())
        assert len(pick_up(messages, 2)) == 2


def max_deliveries_is_checked_when_a_message_comes_back(client):
    filled(client, 1)
    with client.subscribe("work") as messages:
        for _ in range(3):
            pick_up(messages, 1)[0].cancel()
        held = pick_up(messages, 1)[0]
        client.apply(base(max_deliveries=2))
        assert client.admin.queue_stats("work").depth == 1
        held.cancel()
        assert not rest_of(messages)
    assert client.admin.queue_stats("work").expired == 1


def max_cancels_is_checked_when_a_message_comes_back(client):
    filled(client, 1, max_cancels=2)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].cancel()
        held = pick_up(messages, 1)[0]
        client.apply(base(max_cancels=0))
        held.cancel()
        held = pick_up(messages, 1)[0]
        client.apply(base(max_cancels=3))
        held.cancel()
        assert not rest_of(messages)
    assert client.admin.queue_stats("work").expired == 1


def fairness_model_places_everybody_anew(client):
    filled(client, 0)
    subscriptions = [client.subscribe("work", max_backlog=backlog) for backlog in (10, 10)]
    client.publish("work", "to the first")
    client.publish("work", "to the second")
    client.apply(base(fairness_model="fast"))
    for number in range(3):
        client.publish("work", number)
    assert [data_of(rest_of(s)) for s in subscriptions] == [["to the first", 0, 1, 2], ["to the second"]]
    client.apply(base(fairness_model="proportional"))
    for number in range(3):
        client.publish("work", number)
    assert [data_of(rest_of(s)) for s in subscriptions] == [[], [0, 1, 2]]
    client.apply(base(fairness_model="round-robin"))
    for number in range(4):
        client.publish("work", number)
    assert sorted(len(rest_of(s)) for s in subscriptions) == [2, 2]


def only_when_empty(**changed):
    def scene(client):
        given = {"initial_owner": client.instance, "group_local_queue_domain": "NYC"}
        group_local = GroupLocalQueue(**base().elements(), **given)
        client.apply(group_local)
        client.publish_many("work", range(2))
        with pytest.raises(QueueNotEmpty):
            client.apply(group_local.model_copy(update=changed))
        assert client.admin.queues()["work"] == group_local
        with client.subscribe("work", max_backlog=2) as messages:
            for message in pick_up(messages, 2):
                message.ack(wait=True)
        client.apply(group_local.model_copy(update=changed))
        assert client.admin.queues()["work"] == group_local.model_copy(update=changed)

    return scene


def deferred_ack_expiration_holds_for_what_is_told_from_now_on(client):
    filled(client, 1, deferred_ack_expiration="1h")
    assert field(client, "deferral") == b"3600000"
    client.apply(base())
    assert field(client, "deferral") is None


def field(client, name):
    return client._store.redis.hget(key(client.instance, "queue", "work"), name)


def test_what_messages_forbid_is_refused_before_anything_is_changed(client):
    filled(client, 1)
    client.publish("fixed", 1)
    before = client.admin.definitions()
    for refused, error in (
        (LocalQueue(**base().elements()), QueueNotEmpty),
        (Topic(name="fixed", message_type="fix"), MessageTypeFixed),
    ):
        for call in (client.apply, client.admin.plan):
            with pytest.raises(error):
                call(Topic(name="first"), Queue(name="second"), refused)
    assert client.admin.definitions() == before


@pytest.mark.parametrize(
    ("kind", "owner"),
    [
        (LocalQueue(**base().elements()), None),
        (GroupLocalQueue(**base().elements(), initial_owner="nyc-1"), b"nyc-1"),
    ],
)
def test_another_kind_of_queue_is_another_owner_and_refused_until_the_queue_is_empty(client, kind, owner):
    filled(client, 1)
    assert field(client, "owner") == b"*"
    with pytest.raises(QueueNotEmpty, match="Drain it"):
        client.apply(kind)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].ack(wait=True)
    client.apply(kind)
    assert field(client, "owner") == owner
    assert type(client.admin.queues()["work"]) is type(kind)


def leasing_judges_the_next_acknowledgement(client):
    filled(client, 2)
    with client.subscribe("work", max_backlog=2) as messages:
        one, two = pick_up(messages, 2)
        client.apply(base(leasing="strict"))
        with pytest.raises(NotLeaseHolder):
            client.ack("work", [one.bookmark])
        client.apply(base())
        assert client.ack("work", [one.bookmark]) == 1
        two.ack(wait=True)


def allow_redelivery_after_crash_looks_at_the_server_again(client):
    filled(client, 2, semantics="at-most-once", allow_redelivery_after_crash=True)
    with pytest.raises(ServerUnsuitable):
        client.apply(base(semantics="at-most-once"))
    assert client.admin.queues()["work"].allow_redelivery_after_crash
    assert client.admin.queue_stats("work").depth == 2


def numbered(client, count):
    filled(client, 0)
    client.publish_many("work", [{"n": number} for number in range(count)])


def numbers_of(messages):
    return [message.data["n"] for message in messages]


def filter_holds_for_what_is_read_from_now_on(client):
    numbered(client, 4)
    with client.subscribe("work", max_backlog=1) as messages:
        (first,) = pick_up(messages, 1)
        client.apply(base(filter="/n > 2"))
        first.cancel()
        assert numbers_of([messages.get(30)]) == [0]
        messages.flush()
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [0, 3]
    assert client.admin.queue_stats("work").filtered == 2


def priority_puts_everything_in_its_new_place(client):
    numbered(client, 4)
    client.apply(base(priority="/n"))
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [3, 2, 1, 0]
    client.apply(base(priority="0 - /n"))
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [0, 1, 2, 3]
    client.apply(base(priority="/n % 2"))
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [1, 3, 0, 2]
    client.apply(base())
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [0, 1, 2, 3]


def barrier_expression_judges_what_waits(client):
    numbered(client, 4)
    client.apply(base(barrier_expression="/n = 1"))
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [0]
    client.apply(base(barrier_expression="/n = 0 OR /n = 2"))
    with client.subscribe("work", max_backlog=9) as messages:
        barrier, *others = rest_of(messages)
        assert (barrier.data["n"], barrier.is_barrier, numbers_of(others)) == (0, True, [1])
    client.apply(base())
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [1, 2, 3]


def target_queue_depth_bounds_the_active_part(client):
    numbered(client, 1_100)
    client.apply(base(target_queue_depth=1_000, max_per_subscription_backlog=2_000))
    with client.subscribe("work", max_backlog=2_000) as messages:
        assert len(rest_of(messages)) == 1_000
        client.apply(base(max_per_subscription_backlog=2_000))
        assert numbers_of(rest_of(messages)) == list(range(1_000, 1_100))


def later(client, milliseconds=200):
    """Everything is done that is due so many milliseconds from now."""
    seconds, microseconds = client._store.redis.time()
    now = seconds * 1000 + microseconds // 1000 + milliseconds
    while client._store.call(script_call("sweep", [now], lambda reply: reply))[0]:
        pass


def expiration_holds_for_what_waits(client):
    numbered(client, 2)
    client.apply(base(expiration="100ms"))
    later(client)
    assert client.admin.queue_stats("work").expired == 2


def expiration_model_holds_for_what_waits(client):
    client.apply(base(expiration="100ms"))
    client.publish("work", {"n": 1}, expiration="1h")
    later(client)
    assert client.admin.queue_stats("work").expired == 0
    client.apply(base(expiration="100ms", expiration_model="earliest"))
    later(client)
    assert client.admin.queue_stats("work").expired == 1


def redelivery_delay_holds_for_what_comes_back(client):
    filled(client, 1)
    client.apply(base(redelivery_delay="1h"))
    with client.subscribe("work") as messages:
        messages.get(30).cancel()
        assert rest_of(messages) == []
        assert client.admin.queue_stats("work").delayed == 1


def delay_of(client, **elements):
    """Seconds that a message waits that was delivered twice before it came back."""
    filled(client, 1, redelivery_delay="1s", **elements)
    with client.subscribe("work") as messages:
        messages.get(30).cancel(0)
        message = messages.get(30)
        message.cancel()
        facts = client.admin.explain("work", message.bookmark).facts
    client.ack("work", message.bookmark)
    return (facts["due"] - facts["now"]) / 1000


def redelivery_delay_multiplier_holds_for_what_comes_back(client):
    assert 0.5 < delay_of(client) <= 1
    assert 2.5 < delay_of(client, redelivery_delay_multiplier=3) <= 3


def max_redelivery_delay_holds_for_what_comes_back(client):
    assert 1.5 < delay_of(client, redelivery_delay_multiplier=30, max_redelivery_delay="2s") <= 2


def redelivery_collision_avoidance_factor_holds_for_what_comes_back(client):
    delays = {delay_of(client, redelivery_collision_avoidance_factor=0.5) for _ in range(5)}
    assert len({round(delay, 1) for delay in delays}) > 1
    assert all(0 < delay <= 1.5 for delay in delays)


def ring_size_evicts_nothing_and_what_enters_as_many(client):
    numbered(client, 5)
    client.apply(base(ring_size=3))
    assert client.admin.queue_stats("work").depth == 5
    client.publish("work", {"n": 5})
    assert client.admin.queue_stats("work").depth == 5
    with client.subscribe("work", max_backlog=9) as messages:
        assert numbers_of(rest_of(messages)) == [1, 2, 3, 4, 5]


def record_deliveries_begins_and_ends(client):
    filled(client, 3)
    records = key(client.instance, "deliveries", "work")
    lengths = []
    with client.subscribe("work", max_backlog=9) as messages:
        for recorded in (False, True, False):
            client.apply(base(record_deliveries=recorded))
            pick_up(messages, 1)[0].cancel()
            lengths.append(client._store.redis.xlen(records))
    assert lengths[0] == 0 < lengths[1] == lengths[2]


def paused_ends_delivery_and_leaves_leases(client):
    numbered(client, 5)
    with client.subscribe("work", max_backlog=2) as messages:
        first, second = pick_up(messages, 2)
        client.admin.pause_queue("work")
        first.ack(wait=True)
        second.cancel()
        assert rest_of(messages) == []
        assert client.admin.queue_stats("work").depth == 4
        client.admin.resume_queue("work")
        assert numbers_of(pick_up(messages, 2)) == [1, 2]
        assert client.admin.queues()["work"] == base()


def recovery_point_begins_anew(client):
    bookmarks = filled_with(client, 10)
    with client.subscribe("work") as messages:
        pick_up(messages, 1)[0].ack(wait=True)
        client.apply(base(recovery_point=bookmarks[4]))
        # What is leased stays with its holder
        assert settle_all(messages) == [1, 5, 6, 7, 8, 9]
        client.apply(base())
        # What was settled stays so, and what was left out comes in
        assert settle_all(messages) == [2, 3, 4]


def filled_with(client, number):
    client.apply(base())
    return client.publish_many("work", range(number))


def file_backed_metadata_has_no_effect(client):
    filled(client)
    client.apply(base(file_backed_metadata="enabled"))
    assert client.admin.queue_stats("work").depth == 10


def group_by_changes_only_while_nothing_waits(client):
    numbered(client, 2)
    for changed in (base(group_by="/n"), base(group_concurrency=1)):
        with pytest.raises(QueueNotEmpty):
            client.apply(changed)
    with client.subscribe("work", max_backlog=2) as messages:
        for message in pick_up(messages, 2):
            message.ack(wait=True)
    client.apply(base(group_by="/n"))
    assert client.admin.queues()["work"] == base(group_by="/n")


def of_one_group(client, number, **elements):
    client.apply(base(**elements))
    client.publish_many("work", range(number), group="a")


def group_concurrency_holds_at_once(client):
    of_one_group(client, 6, group_concurrency=1)
    with client.subscribe("work", max_backlog=10) as messages:
        pick_up(messages, 1)
        assert rest_of(messages) == []
        client.apply(base(group_concurrency=3, on_group_failure="hold"))
        assert [message.data for message in pick_up(messages, 2)] == [1, 2]
        client.apply(base(group_concurrency=1))
        assert rest_of(messages) == []
        assert client.admin.queue_stats("work").leased == 3


def on_group_failure_lets_go_what_a_failure_holds(client):
    of_one_group(client, 3, group_concurrency=1)
    with client.subscribe("work", max_backlog=10) as messages:
        pick_up(messages, 1)[0].cancel(delay="1h")
        assert rest_of(messages) == []
        client.apply(base(group_concurrency=1, on_group_failure="pass"))
        assert [message.data for message in pick_up(messages, 1)] == [1]


def group_choice_holds_for_the_next_delivery(client):
    client.apply(base(group_concurrency=1))
    for group, body in (("a", 0), ("a", 1), ("a", 2), ("b", 3)):
        client.publish("work", body, group=group)
    with client.subscribe("work", max_backlog=1) as messages:
        (first,) = pick_up(messages, 1)
        client.apply(base(group_concurrency=1, group_choice="round_robin"))
        first.ack(wait=True)
        for number in (1, 3, 2):
            (following,) = pick_up(messages, 1)
            assert following.data == number
            following.ack(wait=True)


def group_batch_holds_for_the_next_delivery_and_what_is_leased_stays_a_batch(client):
    client.apply(base(group_concurrency=1, group_batch=2))
    for body in range(6):
        client.publish("work", body, group="a")
    with client.subscribe("work", max_backlog=9) as messages:
        batch = pick_up(messages, 2)
        client.apply(base(group_concurrency=1, group_batch=3))
        batch[0].cancel()
        (again,) = pick_up(messages, 1)
        assert again.data == 0
        again.ack(wait=True)
        assert [message.data for message in pick_up(messages, 3)] == [1, 2, 3]
        assert rest_of(messages) == []


def group_affinity_binds_what_is_delivered_from_then_on_and_for_no_longer_than_it_says(client):
    client.apply(base(group_concurrency=1))
    for body in range(3):
        client.publish("work", body, group="a")
    with client.subscribe("work", max_backlog=1) as messages:
        pick_up(messages, 1)[0].ack(wait=True)
        client.apply(base(group_concurrency=1, group_affinity="1h"))
        (following,) = pick_up(messages, 1)
        following.ack(wait=True)
        (last,) = pick_up(messages, 1)
        assert last.data == 2
        (state,) = client.admin.groups("work").groups
        client.apply(base(group_concurrency=1, group_affinity="10m"))
        (shorter,) = client.admin.groups("work").groups
        assert state.bound_to == shorter.bound_to != ""
        assert (state.bound_until - shorter.bound_until).total_seconds() > 2_900
        client.apply(base(group_concurrency=1))
        assert client.admin.groups("work").groups[0].bound_to == ""


def group_weight_holds_for_groups_that_begin_to_wait(client):
    elements = {"group_by": "/g", "group_concurrency": 9, "group_choice": "fair"}
    client.apply(base(**elements))
    client.apply(base(**elements, group_weight="/w"))
    client.publish_many("work", [{"g": "a", "w": 1}] * 4 + [{"g": "b", "w": 3}] * 4)
    with client.subscribe("work", max_backlog=8) as messages:
        assert [message.group for message in pick_up(messages, 8)] == ["a", "b", "b", "b", "a", "b", "a", "a"]


def delivered_of_two(client, before, after, then):
    """Numbers that are delivered at once by one rate, and those by another one, when its time has come."""
    client.apply(base(**before))
    client.publish_many("work", [{"g": "a", "n": n} for n in range(9)])
    with client.subscribe("work", max_backlog=9) as messages:
        first = [message.data["n"] for message in pick_up(messages, 2)]
        assert rest_of(messages) == []
        client.apply(base(**after))
        assert [message.data["n"] for message in pick_up(messages, len(then))] == then
        return first


def rate_holds_for_the_next_delivery(client):
    rate = {"rate": "1/h", "rate_burst": 2}
    assert delivered_of_two(client, rate, {"rate": "50/s"}, [2, 3, 4]) == [0, 1]


def rate_burst_holds_for_the_next_delivery(client):
    client.apply(base(rate="1/h", rate_burst=1))
    client.publish_many("work", range(9))
    with client.subscribe("work", max_backlog=9) as messages:
        assert data_of(pick_up(messages, 1)) == [0]
        assert rest_of(messages) == []
        client.apply(base(rate="1/h", rate_burst=4))
        assert data_of(pick_up(messages, 3)) == [1, 2, 3]
        assert rest_of(messages) == []


def group_rate_holds_for_the_next_delivery(client):
    groups = {"group_by": "/g", "group_concurrency": 9}
    before = groups | {"group_rate": "1/h", "group_rate_burst": 2}
    assert delivered_of_two(client, before, groups | {"group_rate": "50/s"}, [2, 3, 4]) == [0, 1]


def group_rate_burst_holds_for_the_next_delivery(client):
    groups = {"group_by": "/g", "group_concurrency": 9, "group_rate": "1/h"}
    after = groups | {"group_rate_burst": 5}
    assert delivered_of_two(client, groups | {"group_rate_burst": 2}, after, [2, 3, 4]) == [0, 1]


SCENES = {
    "rate": rate_holds_for_the_next_delivery,
    "rate_burst": rate_burst_holds_for_the_next_delivery,
    "group_rate": group_rate_holds_for_the_next_delivery,
    "group_rate_burst": group_rate_burst_holds_for_the_next_delivery,
    "group_choice": group_choice_holds_for_the_next_delivery,
    "group_affinity": group_affinity_binds_what_is_delivered_from_then_on_and_for_no_longer_than_it_says,
    "group_batch": group_batch_holds_for_the_next_delivery_and_what_is_leased_stays_a_batch,
    "group_weight": group_weight_holds_for_groups_that_begin_to_wait,
    "group_by": group_by_changes_only_while_nothing_waits,
    "group_concurrency": group_concurrency_holds_at_once,
    "on_group_failure": on_group_failure_lets_go_what_a_failure_holds,
    "expiration": expiration_holds_for_what_waits,
    "expiration_model": expiration_model_holds_for_what_waits,
    "redelivery_delay": redelivery_delay_holds_for_what_comes_back,
    "redelivery_delay_multiplier": redelivery_delay_multiplier_holds_for_what_comes_back,
    "max_redelivery_delay": max_redelivery_delay_holds_for_what_comes_back,
    "redelivery_collision_avoidance_factor": redelivery_collision_avoidance_factor_holds_for_what_comes_back,
    "record_deliveries": record_deliveries_begins_and_ends,
    "paused": paused_ends_delivery_and_leaves_leases,
    "ring_size": ring_size_evicts_nothing_and_what_enters_as_many,
    "name": name_makes_another_queue,
    "underlying_topic": underlying_topic_is_refused,
    "default_publish_target": default_publish_target_takes_the_next_publish,
    "semantics": semantics_is_refused,
    "lease_period": lease_period_holds_for_new_leases,
    "max_per_subscription_backlog": max_per_subscription_backlog_holds_at_once,
    "max_backlog": max_backlog_holds_at_once,
    "max_deliveries": max_deliveries_is_checked_when_a_message_comes_back,
    "max_cancels": max_cancels_is_checked_when_a_message_comes_back,
    "fairness_model": fairness_model_places_everybody_anew,
    "message_type": type_follows_the_topics("message_type", "nvfix"),
    "field_separator": type_follows_the_topics("field_separator", "|"),
    "filter": filter_holds_for_what_is_read_from_now_on,
    "priority": priority_puts_everything_in_its_new_place,
    "barrier_expression": barrier_expression_judges_what_waits,
    "target_queue_depth": target_queue_depth_bounds_the_active_part,
    "recovery_point": recovery_point_begins_anew,
    "file_backed_metadata": file_backed_metadata_has_no_effect,
    "leasing": leasing_judges_the_next_acknowledgement,
    "deferred_ack_expiration": deferred_ack_expiration_holds_for_what_is_told_from_now_on,
    "initial_owner": only_when_empty(initial_owner="nyc-2"),
    "group_local_queue_domain": only_when_empty(group_local_queue_domain="US"),
    "allow_redelivery_after_crash": allow_redelivery_after_crash_looks_at_the_server_again,
}


def test_every_element_of_a_queue_has_a_scene():
    assert set(SCENES) == set(CHANGES) == set(GroupLocalQueue.model_fields)


@pytest.mark.parametrize("element", SCENES)
def test_a_change_does_what_the_table_says(client, element):
    SCENES[element](client)


def test_a_definition_applied_again_changes_nothing(client):
    filled(client, 3)
    before = client.admin.queue_stats("work").as_dict()
    client.apply(base())
    client.apply(base(), base())
    assert client.admin.queue_stats("work").as_dict() == before


def test_what_does_not_fit_together_is_refused_and_nothing_is_defined(client):
    # A name that stands for a target cannot be a topic for another queue
    client.apply(Queue(name="work", underlying_topic="orders"))
    with pytest.raises(DefinitionError):
        client.apply(Queue(name="chain", underlying_topic="work"))
    with pytest.raises(
        DefinitionError, match=r"is not a definition; allowed: Instance, Transport, .*, Action, Destination, as in"
    ):
        client.apply("queue")
    assert set(client.admin.queues()) == {"work"}


def test_two_clients_that_define_at_once_both_succeed(connect):
    # Given two clients that each define twenty queues over one topic, in turn
    one, other = connect(), connect()
    for number in range(20):
        one.apply(Queue(name=f"one-{number}", underlying_topic="orders"))
        other.apply(Queue(name=f"other-{number}", underlying_topic="orders"))
    one.publish("orders", 1)
    assert len(one.admin.queues()) == len(other.admin.queues()) == 40
    assert all(other.admin.queue_stats(name).depth == 1 for name in other.admin.queues())
