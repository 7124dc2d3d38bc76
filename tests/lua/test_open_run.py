"""An open push run: whatever comes to its queue finds the leases that each push would have written.

Every script, and single calls of those that come to leases, are carried out twice: where messages are leased in an open
run, and where that run was ended before. Replies, refusals and all keys are the same then.
"""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.errors import AmpsqError
from ampsq.protocol import scripts
from ampsq.protocol.functions import HOT
from ampsq.protocol.limits import BODY_BY_REF, OPEN_RUN
from ampsq.protocol.schema import FIELDS, KEYS

FIRST, SECOND, THIRD = ref("1001-0"), ref("1002-0"), ref("1003-0")
#: What a script is called with, by the names of its arguments; '' where there is nothing here.
ARGUMENTS = {
    "now": "1500", "queue_name": "work", "topic": "orders", "topics": "orders", "refs": SECOND, "count": "10",
    "owner": "i", "period": "1000", "until_id": "9999-0", "id": "1002-0", "patience": "10000", "most": "10",
    "limit": "10", "wanted": "10", "repair": "1", "source": "leases", "cursor": "0", "after": "0-0", "from": "1",
    "streams": "orders", "size": "0", "age": "0", "places": "work", "names": "work", "asked": SECOND, "group": "g",
    "rare": "0", "difference": "0", "boundary": "9999-0", "passed": "0-0", "kept_out": "0", "changed": "1",
    "origins": "j.two", "word": "1", "queues": "work", "enabled": "1", "key": "a", "filter": "none", "dry": "0",
}  # fmt: skip


@pytest.fixture
def scene(world):
    """A queue with one lease of its own form, and three messages pushed in an open run; the first one is settled."""
    world.queue("work", "orders", lease=5_000, room=10)
    world.publish("orders", "zero")
    world.subscription = world.subscribe("work", asked=6)
    world.take(world.subscription)
    for body in ("one", "two", "three"):
        world.now += 1
        world.publish("orders", body)
    world.pushed = world.inbox(world.subscription)
    assert world.settle("acknowledged", world.pushed[:1], by=world.subscription) == {}
    assert is_open(world)
    return world


def is_open(world):
    return world.store.redis.hexists(world.key(":q:work"), FIELDS["open_run"])


def end_run(world):
    """End it as any script does that comes to a key of the queue."""
    world.store.redis.eval(scripts.compose_text("ends_run", _ENDS).source, 1, world.key(""))
    assert not is_open(world)


_ENDS = "--- ends_run: for tests\ncall('EXISTS', K.queue('work'))\n"


def kept(world):
    redis = world.store.redis
    return {name: redis.dump(name) for name in redis.scan_iter(match=world.key(":*"), count=1000)}


def put_back(world, dumps):
    redis = world.store.redis
    redis.delete(*redis.scan_iter(match=world.key(":*"), count=1000))
    for name, dump in dumps.items():
        redis.restore(name, 0, dump)


def stored(world):
    """The state without the IDs of events, which are the server's time, as those of journals."""
    return {
        suffix: [fields for _, fields in value] if suffix.endswith(":events") else value
        for suffix, value in world.state().items()
    }


def outcome(do, world):
    try:
        reply = do(world)
    except AmpsqError as error:
        return type(error).__name__, str(error).partition(":")[0]
    return reply


def same_either_way(world, do):
    """Tell whether the run was ended by it; all else is the same as behind a run that was ended before."""
    dumps, now, requests = kept(world), world.now, world.requests
    reply = outcome(do, world)
    was_ended = not is_open(world)
    end_run(world)
    state = stored(world)
    put_back(world, dumps)
    world.now, world.requests = now, requests
    end_run(world)
    assert outcome(do, world) == reply
    end_run(world)
    assert stored(world) == state
    return was_ended


def crafted(name, subscription):
    """Arguments by their names that mean something in the scene, where one exists."""
    known = ARGUMENTS | {"subscription_id": subscription, "ids": subscription, "by": subscription}
    return [known.get(each.removesuffix("..."), "") for each in scripts.compose(name).arguments]


def writes(name):
    return not scripts.script(name).only_reads


@pytest.mark.parametrize("name", scripts.names())
def test_every_script_does_the_same_with_an_open_run_as_without(scene, name):
    def do(world):
        reply = world.run(name, *crafted(name, world.subscription))
        if name == "read_stats":
            fields = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
            fields.pop(FIELDS["open_run"], None)
            return fields, reply[1:]
        # A key that was put back takes other memory.
        return len(reply) if name == "measure_logs" else reply

    was_ended = same_either_way(scene, do)

    assert writes(name) or not was_ended


def messages(world, *numbers):
    return [world.pushed[number] for number in numbers]


#: Calls of scripts that come to leases, each as something else is in it.
CALLS = {
    "acknowledged by a token that is over": lambda w: w.settle("acknowledged", w.pushed[:1], by=w.subscription),
    "acknowledged with one that is over": lambda w: w.settle("acknowledged", w.pushed[:2], by=w.subscription),
    "acknowledged twice in a call": lambda w: w.settle("acknowledged", messages(w, 1, 1), by=w.subscription),
    "acknowledged by an administrator": lambda w: w.settle("acknowledged", {"work": [(SECOND, "")]}),
    "acknowledged by another one": lambda w: w.settle("acknowledged", w.pushed[1:], by="s00000009"),
    "acknowledged with a reason": lambda w: w.run(
        "settle", w.now, "acknowledged", 0, w.subscription, *w.groups(w.pushed[1:]), "because"
    ),
    "with what is leased otherwise": lambda w: w.settle(
        "acknowledged", {"work": [(ref("1000-0"), "1"), (SECOND, w.pushed[1].token)]}, by=w.subscription
    ),
    "the last one first": lambda w: (
        w.settle("acknowledged", w.pushed[2:], by=w.subscription),
        w.settle("acknowledged", w.pushed[1:2], by=w.subscription),
    ),
    "all": lambda w: w.settle("acknowledged", w.pushed[1:], by=w.subscription),
    "cancelled": lambda w: w.settle("returned", w.pushed[1:2], by=w.subscription),
    "expired": lambda w: w.settle("expired", w.pushed[1:2], by=w.subscription),
    "extended": lambda w: w.settle("extended", w.pushed[1:2], period=9_000, by=w.subscription),
    "extended with progress": lambda w: w.run(
        "settle", w.now, "extended", 9_000, w.subscription, *w.groups(w.pushed[1:2]), "0.5 half"
    ),
    "given back": lambda w: w.settle("given_back", w.pushed[1:2], by=w.subscription),
    "taken": lambda w: [m.ref for m in w.take(w.subscription, 10)],
    "taken with acknowledgements": lambda w: [m.ref for m in w.take(w.subscription, 10, w.pushed[1:])],
    "pushed again": lambda w: w.run("push_again", w.now, w.subscription, "work", "0", w.pushed[1].token),
    "another one comes": lambda w: (w.subscribe("work", asked=2), w.publish("orders", "four")),
    "it leaves": lambda w: w.unsubscribe(w.subscription),
    "it leaves with messages in hand": lambda w: w.unsubscribe(w.subscription, w.pushed[1:]),
    "it has another queue, too": lambda w: (
        w.queue("mail", "letters"),
        w.replace(w.subscription, "work", "mail", asked=6),
        w.publish("orders", "four"),
        w.publish("letters", "a"),
    ),
    "less room": lambda w: (w.run("resize_backlog", w.now, w.subscription, 2), w.publish("orders", "four")),
    "one more is published": lambda w: w.publish("orders", "four"),
    "several are published": lambda w: w.publish("orders", "four", "five"),
    "a large one is published": lambda w: w.publish("orders", "x" * BODY_BY_REF),
    "one is published for later": lambda w: w.publish("orders", "four", due=99_000),
    "as many as there is room for": lambda w: [w.publish("orders", str(i)) for i in range(9)],
    "room again": lambda w: (
        [w.publish("orders", str(i)) for i in range(9)],
        w.settle("acknowledged", w.pushed[1:], by=w.subscription),
        w.publish("orders", "last"),
    ),
    "somebody else records one": lambda w: (w.xadd("orders", "1003-5", "b", "x"), w.publish("orders", "four")),
    "somebody else's waits": lambda w: (
        w.xadd("orders", "1003-5", "b", "x"),
        w.settle("acknowledged", w.pushed[1:], by=w.subscription),
    ),
    "somebody removes one": lambda w: (
        w.store.redis.xdel(w.key(":log:orders"), "1002-0"),
        w.settle("acknowledged", w.pushed[1:2], by=w.subscription),
        w.publish("orders", "four"),
    ),
    "somebody removes the last one": lambda w: (
        w.store.redis.xdel(w.key(":log:orders"), "1003-0"),
        w.publish("orders", "four"),
    ),
    "somebody removes the subscription": lambda w: (
        w.store.redis.delete(w.key(f":s:{w.subscription}")),
        w.publish("orders", "four"),
        w.settle("acknowledged", w.pushed[1:2], by=w.subscription),
        # What stands there of nobody has the score that was written last.
        w.store.redis.zrem(w.key(":q:work:free:none"), w.subscription),
    ),
    "the leases lapse": lambda w: (later(w, 6_000), w.sweep_all()),
    "the clock goes back": lambda w: (later(w, -500), w.publish("orders", "four"), w.sweep_all()),
    "redefined": lambda w: (w.queue("work", "orders", lease=9_000, room=10), w.publish("orders", "four")),
    "once at most": lambda w: (w.queue("work", "orders", lease=5_000, once=1), w.publish("orders", "four")),
    "with a priority": lambda w: (
        w.queue("work", "orders", lease=5_000, priority="/p"),
        w.sweep_all(),
        w.publish("orders", '{"p":1}'),
    ),
    "a second queue on the topic": lambda w: (w.queue("mail", "orders"), w.publish("orders", "four")),
    "a second queue on the topic, where somebody waits": lambda w: (
        w.queue("mail", "orders"),
        w.subscribe("mail"),
        w.publish("orders", "four"),
    ),
    "removed": lambda w: w.run("remove_queue", w.version(), "work"),
    "watched": lambda w: (w.run("watch_queue", w.now, "work", 1_000), w.publish("orders", "four"))[1],
    "paused": lambda w: (w.queue("work", "orders", lease=5_000, backlog=-1), w.publish("orders", "four")),
}  # fmt: skip


def later(world, period):
    world.now += period


@pytest.mark.parametrize("call", CALLS)
def test_what_comes_to_leases_does_the_same_with_an_open_run_as_without(scene, call):
    same_either_way(scene, CALLS[call])


def test_what_a_push_and_an_acknowledgement_write(scene):
    scene.mark()
    scene.now += 1

    scene.publish("orders", "four")

    queue = scene.store.redis.hgetall(scene.key(":q:work"))
    assert queue[b"open_run"].decode().split(" ") == [
        scene.subscription, "1", "6", "1", "5000", "b", "5", "1004-0", "3",
        SECOND, "3", "6002", THIRD, "4", "6003", ref("1004-0"), "5", "6004",
    ]  # fmt: skip
    assert scene.changes().keys() == {
        ":log:orders", ":clock", ":q:work", ":q:work:cursors", ":q:work:leases",
        f":s:{scene.subscription}", f":s:{scene.subscription}:inbox",
    }  # fmt: skip
    scene.mark()

    assert scene.settle("acknowledged", scene.pushed[1:], by=scene.subscription) == {}

    assert is_open(scene)
    changes = scene.changes()
    assert changes[":q:work:journal"] == [
        {"how": "acknowledged", "reason": "", "refs": f"{SECOND} {THIRD}", "by": scene.subscription}
    ]
    assert changes[":q:work"] == {"acknowledged": "3"}
    assert changes[":q:work:leases"] == {SECOND: None, THIRD: None}
    assert changes[f":s:{scene.subscription}"] == {"leased": "2"}


def test_a_run_holds_so_many_messages_and_a_new_one_begins_behind_it(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=100)
    for number in range(OPEN_RUN + 1):
        world.publish("orders", str(number))

    text = world.store.redis.hget(world.key(":q:work"), FIELDS["open_run"]).decode()
    leased = world.store.redis.hlen(world.key(":q:work:leases")) - 1

    assert (leased, text.split(" ")[1:3], text.split(" ")[8]) == (OPEN_RUN, [str(OPEN_RUN), "100"], "1")
    assert len(world.holders("work")) == len(world.inbox(subscription)) == OPEN_RUN + 1


def hint(world):
    return world.store.redis.hget(world.key(":instance"), "open orders")


def test_who_publishes_next_finds_the_queue_by_a_hint(scene):
    assert hint(scene).decode() == f"{scene.version()} work"

    scene.queue("mail", "orders")
    other = scene.subscribe("mail", asked=50)
    scene.publish("orders", "four")

    # It is of another version of the catalog: the route is looked at, which has two queues. The new one begins.
    assert [message.body for message in scene.inbox(other)] == ["zero"]
    assert not is_open(scene)


def test_a_run_that_begins_again_leaves_the_hint_as_it_is(scene):
    scene.unsubscribe(scene.subscription, scene.pushed[1:])
    scene.take(scene.subscribe("work", asked=6), 10)
    scene.publish("orders", "four")
    assert is_open(scene)
    end_run(scene)

    scene.publish("orders", "five")

    # Begun again under the same version of the catalog: what is there already is not written.
    assert is_open(scene)
    assert hint(scene).decode() == f"{scene.version()} work"


def test_a_hint_goes_when_nobody_is_free(scene):
    scene.unsubscribe(scene.subscription, scene.pushed[1:])
    assert hint(scene)

    scene.publish("orders", "four")

    assert hint(scene) is None


def test_leases_without_an_end_are_in_a_run_without_an_entry_of_the_timetable(world):
    world.queue("work", "orders", lease=0)
    subscription = world.subscribe("work", asked=10)
    world.publish("orders", "one")
    world.now += 5
    world.publish("orders", "two")

    assert is_open(world)
    one, two = world.inbox(subscription)
    assert (one.deadline, two.deadline) == (0, 0)
    assert ":due" not in world.state()
    end_run(world)

    assert world.state()[":q:work:leases"] == {
        one.ref: f"{one.token} {subscription} 1 0 0", two.ref: f"{two.token} {subscription} 1 0 0",
    }  # fmt: skip
    assert ":due" not in world.state()


def test_a_full_holder_is_free_no_more_and_again_when_it_has_room(world):
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=2)
    world.publish("orders", "one")
    world.publish("orders", "two")
    assert is_open(world)
    assert ":q:work:free:none" not in world.state()

    assert world.settle("acknowledged", world.inbox(subscription), by=subscription) == {}

    assert is_open(world)
    assert world.state()[":q:work:free:none"] == {subscription: 0}
    for body in ("three", "four", "five"):
        world.publish("orders", body)
    assert [message.body for message in world.inbox(subscription)] == ["one", "two", "three", "four"]
    assert world.settle("acknowledged", world.inbox(subscription)[2:3], by=subscription) == {}
    assert [message.body for message in world.inbox(subscription)] == ["one", "two", "three", "four", "five"]


def test_who_has_room_for_one_message_is_leased_it_as_by_any_push(world):
    world.queue("work", "orders", lease=5_000)
    world.subscribe("work", asked=1)

    world.publish("orders", "one")

    assert not is_open(world)
    assert len(world.holders("work")) == 1


def test_scripts_that_write_end_runs_by_the_names_of_keys_or_load_queues_first():
    """Read every script for keys of queues. Those that load queues are held by the calls above."""
    assert set(HOT) == scripts.LOADING
    plain = f"(P .. '{KEYS['queue'].suffix.partition('<')[0]}' .."
    for name in scripts.names():
        source = scripts.compose(name).source
        # The functions that end runs themselves stand in front, and within what few calls need.
        _, _, main = source.partition("\nlocal function main()\n")
        before, _, nest = main.partition("local function open_run()\n")
        rest = before + nest.partition("\nreturn {")[2]
        is_gated = writes(name) and name not in scripts.LOADING
        assert not (is_gated and plain in rest), name
        assert is_gated or "closed_queue" not in source, name
