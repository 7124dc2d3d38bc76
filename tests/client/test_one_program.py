"""A program written for one instance runs on one with partitions by changing its address, for threads and for asyncio.

The programs are in program_texts.py and program_texts_of_topics.py. one_program.json has what each calls, with which
arguments: together every method and every argument of the exported classes, but what `REFUSED` has. So a new method
fails a test until a program calls it. `PYTHONPATH=tests python tests/client/test_one_program.py --write` writes the
list anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import program_texts_of_topics  # noqa: F401  (puts its programs into the table)
import pytest
from one_program import HELD, PLACES, Place, arguments_of, members_of
from program_texts import PROGRAMS, WORK

import ampsq
from ampsq import (
    Action,
    Destination,
    Do,
    GroupLocalQueue,
    Instance,
    MemoryPublishStore,
    On,
    Queue,
    Topic,
    View,
)
from ampsq.base.errors import DefinitionError

TABLE = Path(__file__).with_name("one_program.json")
KINDS = ("threads", "asyncio")
WRITE = "PYTHONPATH=tests python tests/client/test_one_program.py --write"
#: What keeps something beside an instance: the programs give them to the calls that take them.
STORES = {"FilePublishStore", "MemoryPublishStore", "MemoryBookmarkStore", "RedisBookmarkStore", "SqliteBookmarkStore"}


# -- what is refused


def aggregate(place):
    place.client.aggregate("work", ["COUNT(*) AS /n"])


def origin(place):
    return place.client.origin


def origin_of_a_topic(place):
    with place.client.subscribe_topic("orders") as topic:
        return topic.origin


def last_persisted(place):
    with place.client.publisher("till", store=MemoryPublishStore()) as till:
        return till.last_persisted


def sequence_of_a_deletion(place):
    place.client.apply(Topic(name="states", key="/id"))
    with place.client.publisher("till", store=MemoryPublishStore()) as till:
        return till.sow_delete("states", keys=[1]).sequence


#: Members that a client of all partitions refuses -> a call that does so.
REFUSED = {
    "Client.aggregate": aggregate,
    "Client.origin": origin,
    "TopicSubscription.origin": origin_of_a_topic,
    "Publisher.last_persisted": last_persisted,
    "DeletionReceipt.sequence": sequence_of_a_deletion,
    "Admin.replication": lambda place: place.client.admin.replication(),
    "Admin.enable_proxied_transfer": lambda place: place.client.admin.enable_proxied_transfer("work"),
    "Admin.disable_proxied_transfer": lambda place: place.client.admin.disable_proxied_transfer("work"),
    "Admin.remove_destination": lambda place: place.client.admin.remove_destination("other"),
    "Admin.downgrade_replication": lambda place: place.client.admin.downgrade_replication("other"),
    "Admin.upgrade_replication": lambda place: place.client.admin.upgrade_replication("other"),
    "Admin.recover_without": lambda place: place.client.admin.recover_without("other"),
    "Admin.begin_incarnation": lambda place: place.client.admin.begin_incarnation(),
}
#: Members that only what is refused gives, and arguments that a test's thread cannot give.
NOT_CALLED = {
    *("RowSubscription.get", "RowSubscription.get timeout", "RowSubscription.close"),
    *("Worker.run signals", "App.run signals"),
}


def with_publisher(use, **options):
    """Return a call that uses a publisher with a store."""

    def call(place):
        with place.client.publisher("till", store=MemoryPublishStore(), **options) as till:
            return use(place, till)

    return call


def at_one_message(use):
    """Return a call that is given the bookmark of a message."""

    def call(place):
        place.client.apply(Topic(name="states", key="/id"))
        return use(place.client, place.client.publish("states", {"id": 1}))

    return call


def change_without_partition_by(place):
    place.client.apply(Topic(name="states", key="/id", partition_by="/region"))
    place.client.delta_publish("states", {"id": 1})


DEFINITIONS = {
    "a view": View(name="v", underlying_topic="t", projection=["COUNT(*) AS /n"]),
    "a barrier": Queue(name="w", underlying_topic="t", barrier_expression="/end = 1"),
    "affinity": Queue(name="w", underlying_topic="t", group_by="/g", group_affinity="30s"),
    "a shared queue": GroupLocalQueue(name="g", initial_owner="other"),
    "a destination": Destination(name="d", topics="t", sync_type="sync"),
    "an instance": Instance(topics="defined"),
    "a schedule": Action(name="a", on=On.schedule(every="1h"), do=Do.publish(topic="t", data="1")),
}
#: What a client of all partitions refuses because of what it is given.
REFUSED_VALUES = {
    "sequence without a key": with_publisher(lambda _, till: till.publish("orders", {}, sequence=3)),
    "change without partition_by": change_without_partition_by,
    "topic from one message on": at_one_message(lambda client, one: client.subscribe_topic("states", bookmark=one)),
    "topic to one message": at_one_message(
        lambda client, one: client.subscribe_topic("states", bookmark=f"[epoch:{one}]")
    ),
    "records at one message": at_one_message(lambda client, one: client.sow("states", bookmark=one)),
    "changes from one message on": at_one_message(lambda client, one: client.sow_and_subscribe("states", bookmark=one)),
    "publisher's bookmark": lambda place: place.client.ack("work", "till|3"),
    "topic from a publisher's bookmark on": lambda place: place.client.subscribe_topic("orders", bookmark="till|3"),
    "history of a publisher's bookmark": lambda place: place.client.admin.history("till|3"),
    **{name: lambda place, each=each: place.client.apply(each) for name, each in DEFINITIONS.items()},
}


# -- the table


def run(name, place):
    """Run a program; gives what it gave, and what it called."""
    place.folder.mkdir()
    with place:
        found = PROGRAMS[name](place)
    return json.loads(json.dumps(found, default=repr)), {
        method: sorted(arguments) for method, arguments in sorted(place.called.items())
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_at_an_address_with_partitions(request, name, kind, server, instance):
    folder = request.getfixturevalue("tmp_path")
    if name == "reading_what_is_on_disk":
        server = request.getfixturevalue("start_server")(server.kind, appendonly=True)
    (found, called), (of_partitions, _) = (
        run(name, Place(kind, f"{server.url}{suffix}", f"{instance}-{number}", folder / str(number)))
        for number, suffix in enumerate(PLACES)
    )

    assert of_partitions == found
    if kind == KINDS[0]:
        assert called == json.loads(TABLE.read_text())[name], WRITE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_VALUES])
def test_what_is_refused_names_the_partitions_and_what_to_do(name, kind, server, instance, tmp_path):
    with Place(kind, f"{server.url}{PLACES[1]}", instance, tmp_path) as place:
        place.client.apply(Topic(name="orders"), WORK)
        with pytest.raises(DefinitionError, match=r"(?s)partition.*allowed: "):
            {**REFUSED, **REFUSED_VALUES}[name](place)


def test_every_member_and_argument_of_what_works_at_an_instance_is_called():
    table = json.loads(TABLE.read_text())
    called = {name for each in table.values() for name in each}
    called |= {f"{name} {argument}" for each in table.values() for name in each for argument in each[name]}
    members = {f"{name}.{member}" for name in HELD for member in members_of(name)} - REFUSED.keys()
    members |= {f"{name} {each}" for name in members for each in arguments_of(*name.split("."))}

    assert members - called == NOT_CALLED, WRITE
    assert table.keys() == PROGRAMS.keys(), WRITE
    # What is new among the exported classes and works at an instance belongs to `HELD`.
    held = {
        name for name in ampsq.__all__ if "close" in dir(getattr(ampsq, name)) or "run" in dir(getattr(ampsq, name))
    }
    assert {name.removeprefix("Async") for name in held} <= {*HELD, *STORES}


def test_the_page_of_partitions_lists_what_is_refused():
    page = (Path(__file__).parents[2] / "docs/partitions.md").read_text()
    listed = page.partition("## What is refused")[2].partition("\n## ")[0]

    assert [name for name in REFUSED if f"`{name.partition('.')[2]}`" not in listed] == []


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    # `conftest` of all tests starts servers, not the one beside this.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conftest import launch

    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        server = launch("valkey", Path(folder, "valkey"), appendonly=True)
        try:
            found = {name: run(name, Place(KINDS[0], server.url, name, Path(folder, name)))[1] for name in PROGRAMS}
        finally:
            server.end()
    TABLE.write_text(json.dumps(found, indent=1) + "\n")
