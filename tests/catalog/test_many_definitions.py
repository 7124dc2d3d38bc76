"""Defining many things costs one call each, whatever is there already, at once or one after the other."""

from __future__ import annotations

import functools
import itertools
import types

from ampsq import Queue, Topic
from ampsq.base.errors import AmpsqError
from ampsq.catalog.apply import apply


@types.coroutine
def before_each(flow, do):
    """The same flow, with something that is done before each of its calls is sent."""
    go_on = functools.partial(flow.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            return end.value
        do(step)
        try:
            go_on = functools.partial(flow.send, (yield step))
        except AmpsqError as refusal:
            go_on = functools.partial(flow.throw, refusal)


def queues(number):
    """So many, two over each topic."""
    return [Queue(name=f"q{i}", underlying_topic=f"t{i // 2}") for i in range(number)]


def test_each_new_queue_and_each_new_topic_is_one_call(client):
    # given
    calls = []
    # when
    outcomes = client._store.run(before_each(apply(queues(40), None), calls.append))
    # then: a look at what is there, 40 queues, 20 topics
    assert [outcome for _, outcome in outcomes] == ["new"] * 40
    assert len(calls) == 1 + 40 + 20
    assert {*client.admin.queues()} == {f"q{i}" for i in range(40)}
    assert {f"t{i}" for i in range(20)} <= {*client.admin.topics()}


def test_what_is_already_so_is_one_call_in_all(client):
    # given
    client.apply(*queues(40))
    calls = []
    # when
    outcomes = client._store.run(before_each(apply(queues(40), None), calls.append))
    # then
    assert [outcome for _, outcome in outcomes] == ["unchanged"] * 40
    assert len(calls) == 1


def test_what_somebody_else_defines_meanwhile_is_kept(client, connect):
    # given: another client, which defines a topic that our queue reads, too, now and then
    other, calls, made = connect(), itertools.count(), []
    ours = [*queues(8), Queue(name="all", underlying_topic="^late-.*", default_publish_target="late-0")]

    def disturb(_):
        if next(calls) % 5 == 3:
            made.append(f"late-{len(made)}")
            other.apply(Topic(name=made[-1]))

    # when
    client._store.run(before_each(apply(ours, None), disturb))
    # then
    assert {*client.admin.queues()} == {each.name for each in ours}
    for topic in made:
        other.publish(topic, {"id": 1})
    assert client.admin.queue_stats("all").depth == len(made) > 2
    for each in queues(8):
        client.publish(each.name, {"id": 1})
        assert client.admin.queue_stats(each.name).depth >= 1


def test_a_queue_costs_as_much_after_many_others_as_after_few(client, redis):
    # given: a client that knows what it defined itself
    wanted = [Queue(name=f"q{i}", underlying_topic=f"t{i}") for i in range(300)]
    client.apply(wanted[0])
    sent = redis.info("stats")["total_net_output_bytes"]
    # when
    for each in wanted[1:]:
        client.apply(each)
    # then: few calls a queue, with short replies; all that is defined before it each time would be about 7 MB
    assert redis.info("stats")["total_net_output_bytes"] - sent < 300_000
    assert {*client.admin.queues()} == {each.name for each in wanted}


def test_what_another_client_changed_is_read_before_the_next_definition(client, connect):
    # given
    other = connect()
    client.apply(Queue(name="work", underlying_topic="orders"))
    other.apply(Queue(name="mail", underlying_topic="letters"))
    # when
    seen = client.apply(Queue(name="mail", underlying_topic="letters"))
    other.admin.remove(Queue(name="work"), Queue(name="mail"))
    again = client.apply(Queue(name="work", underlying_topic="orders"), Queue(name="mail", underlying_topic="letters"))
    # then
    assert [outcome for _, outcome in seen] == ["unchanged"]
    assert [outcome for _, outcome in again] == ["new", "new"]
    assert {*client.admin.queues()} == {"work", "mail"}


def test_what_the_server_lost_is_defined_again_by_a_client_that_had_defined_it(client, connect, redis, instance):
    # given
    work = Queue(name="work", underlying_topic="orders")
    client.apply(work)
    # when
    redis.delete(*redis.scan_iter(f"{{{instance}}}*"))
    other = connect()
    outcomes = client.apply(work)
    # then
    assert [outcome for _, outcome in outcomes] == ["new"]
    assert {*other.admin.queues()} == {"work"}
