"""Stored format 4: upgraded, then read, told and worked on as it was when it was stored.

`tests/data/format4` has the dump of three instances, the program that made it, and what the public API said of them
then. Each test loads and upgrades them, asks or works, and removes them.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from datetime import datetime, timedelta

import pytest
from cases import first_ones
from data.format4.ask import ask
from data.format4.load import DUMP, dumped, instances_of, load, read_dump, remove, said
from data.format4.upgraded import load_upgraded
from observing import eventually

from ampsq import Client, Destination
from ampsq.coordinator import Coordinator
from ampsq.coordinator.actions import Actions
from ampsq.coordinator.views import Views
from ampsq.operations.upgrade import STEPS
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls.jobs import finish_job, record_stage
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import FORMAT, INSTANCES, KEYS
from ampsq.replication import recovery as recovering
from ampsq.replication.link_directions import make_link
from ampsq.replication.link_ends import read_peer

NYC, LDN, TYO = "format4-nyc", "format4-ldn", "format4-tyo"

#: Keys of the schema that the dump cannot have, each with the reason.
NOT_DUMPED: dict[str, str] = {
    "bell": "came later, with subscriptions to partitions, which no release before could make",
    "wanted": "came later, and needs nothing of what was stored; it is empty most of the time",
    "runs": "came later, and only processes that ask for them make any",
    "run_refs": "came later, with the runs whose refs they are",
    "history": "came later, and charts begin anew without it",
    "latencies": "came later, and figures begin anew without it",
    "progress": "came later, and needs nothing of what was stored; a holder reports again",
    "deduplicated": "came later, and needs nothing of what was stored; no release before knew such IDs",
    "windows": "came later, with the IDs whose windows they are",
    "groups": "came later, with queues that have groups, which no release before could define",
    "grouped": "came later, with the groups that its messages are in",
    "listed": "came later, with the groups in which messages wait unread",
    "going": "came later, with the groups of which it has what may go",
    "pinned": "came later, with the groups that failed messages hold",
    "turns": "came later, with groups that take turns",
    "batches": "came later, with queues that give groups in batches",
    "bound": "came later, with queues whose groups are bound to subscriptions",
    "lines": "came later, with the subscriptions for which bound groups wait",
    "going_of": "came later, with the bound groups that may go",
    "rates": "came later, with queues that have rates, which no release before could define",
    "later": "came later, with the rates for which its groups wait",
    "searches": "came later, and needs nothing of what was stored; what is lost of it is looked for again",
}

_TEN_YEARS = timedelta(days=3_652)
_DAY = 86_400_000
_TEN_YEARS_MS = 3_652 * _DAY
_MS = re.compile(r"(?<!\d)\d{13}(?!\d)")
_ISO = re.compile(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00")


@pytest.fixture(scope="module")
def lines():
    return read_dump()


@pytest.fixture(scope="module")
def answers():
    return said()


@pytest.fixture
def stored(server, lines):
    """The server, with the dump, upgraded."""
    with contextlib.closing(server.client()) as plain:
        load_upgraded(plain, server.url, lines)
        yield server
        remove(plain, lines)


@pytest.fixture
def nyc(stored):
    with contextlib.closing(Client(stored.url, instance=NYC)) as client:
        yield client


@pytest.fixture
def handed(answers):
    """Return a function that gives the messages of a queue that were leased when the dump was made."""
    return lambda queue: [each for each in answers["handed"] if (each["instance"], each["queue"]) == (NYC, queue)]


def test_the_dump_is_of_the_format_of_which_it_says_to_be(lines):
    assert instances_of(lines) == sorted((NYC, LDN, TYO))
    stored_as = [dict(line["value"])["format"] for line in lines if line["key"].endswith("}:instance")]
    assert stored_as == ["4"] * 3
    assert [(step.found, step.made) for step in STEPS] == [(4, FORMAT)], "a dump of the release before is to be made"


def test_the_dump_is_small_and_has_nothing_of_the_machine(lines):
    assert DUMP.stat().st_size < 300_000
    text = json.dumps([line for line in lines if line["type"] != "stream"])
    assert "/aq-" not in text
    assert "unix:" not in text


def test_every_key_of_the_schema_is_in_the_dump(lines):
    kept = {line["key"].partition("}")[2] for line in lines}
    patterns = {name: re.compile(re.sub("<[^>]+>", "(.+)", re.escape(each.suffix))) for name, each in KEYS.items()}
    found = {name for name, pattern in patterns.items() if any(pattern.fullmatch(suffix) for suffix in kept)}
    assert KEYS.keys() - found == NOT_DUMPED.keys()


def test_every_key_is_of_the_type_that_the_schema_says(lines):
    known = [(re.compile(re.sub("<[^>]+>", "[^:]+", re.escape(each.suffix))), each.type) for each in KEYS.values()]
    for line in lines:
        types = {kind for pattern, kind in known if pattern.fullmatch(line["key"].partition("}")[2])}
        assert line["key"] == INSTANCES or line["type"] in types, line["key"]


def test_loading_makes_exactly_the_keys_that_were_dumped(server, lines):
    with contextlib.closing(server.client()) as plain:
        load(plain, lines)
        assert dumped(plain, instances_of(lines)) == lines
        remove(plain, lines)


def test_removing_leaves_nothing_and_other_instances_alone(server, store, lines):
    store.call(catalog_calls.open_instance(store.instance, "one"))
    with contextlib.closing(server.client()) as plain:
        plain.sadd(INSTANCES, store.instance)
        load(plain, lines)
        remove(plain, lines)
        assert list(plain.scan_iter(match="{format4-*")) == []
        assert plain.smembers(INSTANCES) >= {store.instance.encode()}
        assert plain.exists("{" + store.instance + "}:instance")
        plain.srem(INSTANCES, store.instance)


@pytest.mark.parametrize("instance", [NYC, LDN, TYO])
def test_the_public_api_says_of_it_what_it_said(stored, answers, instance):
    assert differing(ask(stored.url, instance), answers["instances"][instance]) == []


#: What no release before told: numbers.
_TOLD_SINCE = re.compile(r"/topics/.+/recorded")
#: What was empty when the dump was made: why a link is silent, with how long.
_SAID_SINCE = re.compile(r"/replication/links/\d+/reason")


def differing(told, expected, place=""):
    """Return where two answers differ, and how: a whole answer is too long to be looked through."""
    if isinstance(told, dict) and isinstance(expected, dict):
        parts = [(name, told.get(name), expected.get(name)) for name in sorted(told.keys() | expected.keys())]
    elif isinstance(told, list) and isinstance(expected, list) and len(told) == len(expected):
        parts = [(str(number), *pair) for number, pair in enumerate(zip(told, expected, strict=True))]
    else:
        is_since = isinstance(told, int) and _TOLD_SINCE.fullmatch(place)
        is_same = told == expected or (expected is None and (is_since or (told and _SAID_SINCE.fullmatch(place))))
        return [] if is_same else [(place, told, expected)]
    return [each for name, one, other in parts for each in differing(one, other, f"{place}/{name}")]


def older(text):
    """A text with all its moments ten years earlier; whole days are lengths of time, and stay."""
    text = _MS.sub(lambda found: str(int(found[0]) - (_TEN_YEARS_MS if int(found[0]) % _DAY else 0)), text)
    return _ISO.sub(lambda found: _earlier(found[0]), text)


def _earlier(text):
    return (datetime.fromisoformat(text) - _TEN_YEARS).isoformat()


@first_ones("instance", [NYC, LDN, TYO], 1)
def test_ten_years_later_it_says_the_same(server, lines, answers, instance):
    aged = [json.loads(older(json.dumps(line))) for line in lines]
    with contextlib.closing(server.client()) as plain:
        load_upgraded(plain, server.url, aged)
        try:
            expected = json.loads(older(json.dumps(answers["instances"][instance])))
            assert differing(ask(server.url, instance), expected) == []
        finally:
            remove(plain, aged)


def test_no_check_finds_anything_wrong(stored, answers):
    for instance in (NYC, LDN, TYO):
        found = answers["instances"][instance]["checked"]
        with contextlib.closing(Client(stored.url, instance=instance)) as client:
            assert found.keys() >= client.admin.queues().keys() - {"mending"}
        assert all(each["clean"] and not each["undecided"] for each in found.values())


# -- and it is worked on


def test_a_lease_is_ended_by_its_token_alone(nyc, handed):
    first, second = handed("work")[:2]

    def settle(each, token):
        call = calls.settle("acknowledged", b"work", [each["ref"].encode()], [token.encode()])
        return nyc._store.call(call)

    before = nyc.admin.queue_stats("work").acknowledged

    assert settle(first, second["token"]) != []
    assert nyc.admin.explain("work", first["bookmark"]).state == "leased"
    assert settle(first, first["token"]) == []
    assert nyc.ack("work", [second["bookmark"]]) == 1
    assert {nyc.admin.explain("work", each["bookmark"]).reason for each in (first, second)} == {"acknowledged"}
    assert nyc.admin.queue_stats("work").acknowledged == before + 2


def test_messages_are_delivered_in_the_order_that_was_said(nyc, answers):
    for queue in ("from-there", "best", "type-fix-queue", "auto.sensors.slow", "work-letters"):
        expected = [each["bookmark"] for each in answers["instances"][NYC]["waiting"][queue]]
        with nyc.subscribe(queue) as messages:
            for bookmark in expected[:3]:
                message = messages.get(30)
                assert str(message.bookmark) == bookmark
                message.ack(wait=True)


def test_a_publisher_goes_on_with_its_next_number(stored, nyc, answers):
    known = {each["name"]: each for each in answers["instances"][NYC]["publishers"]}["till-1"]
    with Client(stored.url, instance=NYC) as client, client.publisher("till-1") as till:
        number = known["sequence"]
        assert till.publish("sold", {"number": number}, sequence=number).bookmark() == known["bookmark"]
        before = nyc.admin.topics()["sold"].messages
        till.publish("sold", {"number": number + 1}, sequence=number + 1)
    assert nyc.admin.topics()["sold"].messages == before + 1


def test_what_is_scheduled_comes_due_and_what_is_leased_lapses(nyc):
    assert nyc.admin.queue_stats("later").scheduled == 4
    before = {name: nyc.admin.queue_stats(name).returned for name in ("later", "work", "big")}
    for year in (2101, 2130):
        now = round(datetime.fromisoformat(f"{year}-01-01T00:00:00+00:00").timestamp() * 1000)
        eventually(lambda now=now: not nyc._store.call(script_call("sweep", [now], lambda reply: reply[0])))

    assert nyc.admin.queue_stats("later").scheduled == 0
    # Whoever held them has room, and is delivered others.
    assert [nyc.admin.queue_stats(name).returned > before[name] for name in before] == [True] * 3


def test_a_durable_subscription_goes_on_where_it_was(nyc):
    with nyc.subscribe_topic("audit", sub_id="in-order") as replay:
        assert [replay.get(30).data["n"] for _ in range(3)] == [4, 5, 6]
    with nyc.subscribe_topic("^audit$", sub_id="out-of-turn") as replay:
        assert [replay.get(30).data["n"] for _ in range(5)] == [2, 3, 5, 7, 8]


def test_records_are_merged_deleted_and_queried_on(nyc):
    nyc.delta_publish("positions", {"symbol": "USD", "qty": 70})
    (record,) = nyc.sow("positions", sow_keys=["USD"])
    assert record.data == {"symbol": "USD", "qty": 70, "price": 1.25, "legs": [1, None, {"a": "ü"}]}
    assert nyc.sow_delete("positions", keys=["USD", "東京"]) == 2
    assert {each.key for each in nyc.sow("positions")} == {"EUR", "CHF", "SEK"}


def test_views_and_actions_go_on(nyc):
    counted = {row.data["symbol"]: row.data["n"] for row in nyc.sow("by-symbol")}
    tasks, copies = (nyc.admin.topics()[name].messages for name in ("tasks", "copies"))
    alarms = nyc.admin.topics()["alarms"].messages
    nyc.publish("bids", {"id": 1, "symbol": "A", "price": 1})
    nyc.publish("tasks", {"id": 9})
    views, actions = Views(), Actions()

    def are_done():
        views.run_once(nyc._store)
        actions.run_once(nyc._store)
        rows = {row.data["symbol"]: row.data["n"] for row in nyc.sow("by-symbol")}
        topics = nyc.admin.topics()
        return (
            rows["A"] == counted["A"] + 1
            and topics["copies"].messages == copies + 1 == tasks + 1
            and topics["alarms"].messages == alarms + 2
        )

    eventually(are_done)


def test_a_job_records_the_rest_of_its_rows(nyc):
    assert nyc.admin.topics()["rows"].messages < 710
    for partition in (0, 1):
        eventually(lambda partition=partition: nyc._store.call(record_stage("staged", 5, f"{NYC}/{partition}")) == 0)
    assert nyc._store.call(finish_job("staged", 5, [f"{NYC}/0", f"{NYC}/1"])) == 0
    assert nyc.admin.topics()["rows"].messages == 710


def test_a_rebuild_that_was_begun_is_ended(nyc):
    assert nyc.admin.rebuild("mending").messages == 5
    assert [each.data["n"] for each in nyc.sow("mending")] == [0, 1, 2, 3, 4]


def test_links_carry_what_was_under_way(stored):
    with contextlib.ExitStack() as stack:
        clients = {
            name: stack.enter_context(contextlib.closing(Client(stored.url, instance=name))) for name in (NYC, LDN, TYO)
        }
        assert {each.bookmark for each in clients[NYC].sow("deals-work")}
        assert clients[TYO].admin.replication().recovery is not None
        carry(clients)
        carry(clients)
        assert clients[TYO].admin.replication().recovery is None
        logs = []
        for client in clients.values():
            with client.subscribe_topic("deals", bookmark="[epoch:now)") as replay:
                logs.append(sorted(message.raw for message in replay))
        assert logs[0] == logs[1] == logs[2]
        assert all(
            found.clean for client in clients.values() for found in client.admin.check("deals-work", "deals-ours")
        )


def carry(clients):
    """Step the links between instances until nothing moves any more, and let who recovers go on."""
    ends = {name: read_peer(client._store) for name, client in clients.items()}
    links = [
        make_link(end, ends[name], Destination.from_json(text))
        for end in ends.values()
        for name, text in end.catalog.destinations.items()
        if name in ends
    ]
    try:
        for link in links:
            link.open()
        eventually(lambda: all(moved.is_idle and not moved.requests for moved in [link.step() for link in links]))
        for name, client in clients.items():
            client._store.run(recovering.resume_recovered(name))
    finally:
        for link in links:
            link.close()


def test_a_coordinator_takes_over_all_of_it(stored):
    coordinator = Coordinator(stored.url, [NYC, LDN, TYO])
    thread = threading.Thread(target=coordinator.run)
    thread.start()
    try:
        with contextlib.closing(Client(stored.url, instance=NYC)) as client:
            # Whoever held something is gone; a rebuild that was begun is ended.
            eventually(lambda: sum(client.admin.queue_stats(name).leased for name in client.admin.queues()) == 0, 60)
            eventually(lambda: client.admin.queue_stats("mending").depth == 5)
            assert [found.queue for found in client.admin.check() if not found.clean] == []
    finally:
        coordinator.stop()
        thread.join()
