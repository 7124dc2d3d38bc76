"""An instance of the release before is turned into this release's format, once, wherever that is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import lua_rooms as rooms
import pytest
from data.format4 import release
from data.format4.load import instances_of, read_dump, remove
from data.format4.upgraded import prepare, settled, upgrade

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import FormatMismatch, StillUpgrading
from ampsq.operations.upgrade import STEPS, step_for, upgrade_instance
from ampsq.protocol import scripts
from ampsq.protocol.calls.upgrade import begin_upgrade, end_upgrade, read_format, upgrade_part
from ampsq.protocol.schema import FORMAT, KEYS, key
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="changes the format of instances, as their operator does")

NYC = "format4-nyc"
STEP = STEPS[0].name
#: Calls after which an upgrade of the dump has gone astray.
_ASTRAY = 200


@pytest.fixture(scope="module")
def lines():
    return read_dump()


@pytest.fixture
def plain(valkey, lines):
    with contextlib.closing(valkey.client()) as client:
        prepare(client, lines)
        yield client
        remove(client, lines)


@pytest.fixture
def nyc(valkey, plain):  # noqa: ARG001  (there is nothing to be stored on without it)
    with contextlib.closing(Store(valkey.url, NYC)) as store:
        yield store


@pytest.fixture(scope="module")
def former(tmp_path_factory):
    """Run a program of the release before; gives what it printed."""
    folder = release.unpack(tmp_path_factory.mktemp("former"))

    def run(program):
        done = subprocess.run(
            release.arguments(folder, program), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


# -- what a step does


def test_this_release_has_the_step_from_the_format_before_to_its_own():
    assert [(step.found, step.made, step.name) for step in STEPS] == [(FORMAT - 1, FORMAT, f"{FORMAT - 1}>{FORMAT}")]
    assert step_for(str(FORMAT)) is None


def test_what_differs_afterwards_is_what_the_page_says(valkey, plain, lines):
    before = {line["key"]: line["value"] for line in settled(plain, lines)}

    upgrade(valkey.url, *instances_of(lines))

    after = {line["key"]: line["value"] for line in settled(plain, lines)}
    kinds = {_kind(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert kinds == {"instance", "queue", "journal", "filters", "due"}
    assert before.keys() <= after.keys()
    assert dict(after["{format4-nyc}:instance"])["format"] == str(FORMAT)


def _kind(name):
    suffix = name.partition("}")[2]
    patterns = {kind: re.sub("<[^>]+>", "[^:]+", re.escape(each.suffix)) for kind, each in KEYS.items()}
    return next(kind for kind, pattern in patterns.items() if re.fullmatch(pattern, suffix))


def test_an_upgrade_ends_alike_however_much_a_call_does(valkey, plain, lines):
    upgrade(valkey.url, *instances_of(lines))
    expected = settled(plain, lines)

    for limit in (1, 7):
        prepare(plain, lines)
        upgrade(valkey.url, *instances_of(lines), limit=limit)
        assert settled(plain, lines) == expected


def test_a_second_upgrade_changes_nothing(valkey, plain, lines):
    upgrade(valkey.url, *instances_of(lines))
    expected = settled(plain, lines)

    upgrade(valkey.url, *instances_of(lines))

    assert settled(plain, lines) == expected


def awkward_upgrade(store):
    """Upgrade with all that may come between: calls that are made twice, that come late, that are made too early."""
    calls = [0]
    ask = store.call

    def counted(call):
        calls[0] += 1
        assert calls[0] < _ASTRAY, "the upgrade does not end"
        return ask(call)

    store.call = counted
    try:
        stored = counted(begin_upgrade("4", STEP))
        assert counted(begin_upgrade("4", STEP)) == stored == (STEP, "1 ")
        # As if the queues were done.
        assert counted(end_upgrade(STEP, "2 ")) == stored
        # Of somebody who believes to be elsewhere.
        assert counted(upgrade_part("upgrade_queues", STEP, "1 zzz", ["work"])) == stored
        assert counted(upgrade_part("upgrade_queues", "3>4", "1 ", ["work"])) == stored
        moved = counted(upgrade_part("upgrade_queues", STEP, "1 ", ["all-rates"]))
        assert counted(upgrade_part("upgrade_queues", STEP, "1 ", ["all-rates"])) == moved == (STEP, "1 all-rates")
        assert store.run(upgrade_instance(NYC, limit=3)) == str(FORMAT)
        # Of an upgrader that was slow.
        for late in (begin_upgrade("4", STEP), end_upgrade(STEP, "2 "), upgrade_part("upgrade_queues", STEP, "2 ", [])):
            assert counted(late) == (str(FORMAT), "")
    finally:
        del store.call


def test_calls_that_come_twice_late_or_early_do_nothing(nyc, plain, lines):
    awkward_upgrade(nyc)
    found = settled(plain, lines)

    prepare(plain, lines)
    nyc.run(upgrade_instance(NYC))

    assert found == settled(plain, lines)


def parts_of_the_step():
    """Every line of `lua/upgrade` that is no head, comment or blank: where it is, and the file without it."""
    for file in sorted(rooms.FOLDER.glob("upgrade/**/*.lua")):
        path = file.relative_to(rooms.FOLDER).with_suffix("").as_posix()
        text = file.read_text().splitlines()
        for number, line in enumerate(text):
            if line.strip() and not line.strip().startswith("--"):
                yield pytest.param(path, "\n".join([*text[:number], *text[number + 1 :]]), id=f"{path}:{number + 1}")


@pytest.fixture(scope="module")
def made():
    """The instance after an upgrade with all parts; made by the first test that needs it."""
    return []


@pytest.mark.slow
@pytest.mark.parametrize(("path", "text"), list(parts_of_the_step()))
def test_without_any_line_of_the_step_the_instance_is_another_one(  # noqa: PLR0917
    nyc, plain, lines, made, monkeypatch, path, text
):
    if not made:
        awkward_upgrade(nyc)
        made[:] = settled(plain, lines)
        prepare(plain, lines)
    read = scripts._read
    monkeypatch.setattr(scripts, "_read", lambda each: scripts._parse(each, text) if each == path else read(each))
    monkeypatch.setattr(scripts, "script", functools.cache(scripts.compose))

    with contextlib.suppress(Exception):
        awkward_upgrade(nyc)
        # It went through: then it is to be seen in what it left.
        assert settled(plain, lines) != made


# -- what is refused


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("3", "it is too old for one step"),
        ("7", "a later release wrote it"),
        ("5>6", "being upgraded, from format 5 to 6"),
        ("", "nobody opened it yet"),
        ("many", "stored in format many"),
        ("-4", "stored in format -4"),
    ],
)
def test_a_format_without_a_step_is_refused_in_a_sentence_and_nothing_changes(nyc, plain, lines, found, said):
    if found:
        plain.hset("{format4-nyc}:instance", "format", found)
    else:
        plain.hdel("{format4-nyc}:instance", "format")
    before = settled(plain, lines)

    with pytest.raises(FormatMismatch, match=said):
        nyc.run(upgrade_instance(NYC))

    assert settled(plain, lines) == before


def test_a_client_of_an_instance_of_the_release_before_is_told_what_to_do(valkey, plain):  # noqa: ARG001
    with pytest.raises(FormatMismatch, match=r"stored in format 4, and this ampsq reads 5: `ampsq upgrade` turns it"):
        Client(valkey.url, instance=NYC)


@pytest.mark.slow
def test_the_release_before_is_refused_while_it_is_upgraded_and_afterwards(valkey, nyc, former):
    refused = f"""
from ampsq import Client, errors
try:
    Client({valkey.url!r}, instance={NYC!r})
except errors.FormatMismatch as error:
    print(sorted(error.detail.items()))
"""
    nyc.call(begin_upgrade("4", STEP))
    assert former(refused) == "[('expected', '4'), ('found', '4>5')]\n"

    nyc.run(upgrade_instance(NYC))

    assert former(refused) == "[('expected', '4'), ('found', '5')]\n"


# -- who waits


def test_a_client_that_meets_an_upgrade_waits_for_its_end(valkey, nyc):
    nyc.call(begin_upgrade("4", STEP))
    opened = threading.Event()

    def open_it():
        with Client(valkey.url, instance=NYC, retry_timeout=60) as client:
            client.admin.queues()
        opened.set()

    thread = threading.Thread(target=open_it)
    thread.start()
    try:
        assert not opened.wait(0.3)
        nyc.run(upgrade_instance(NYC))
        assert opened.wait(60)
    finally:
        thread.join(60)


def test_a_client_waits_no_longer_than_its_own_deadline_and_says_for_what(valkey, nyc):
    nyc.call(begin_upgrade("4", STEP))

    with pytest.raises(StillUpgrading, match=r"being upgraded, from format 4 to 5.*`ampsq upgrade`") as refusal:
        Client(valkey.url, instance=NYC, retry_timeout=0.3)

    assert not refusal.value.may_have_run


@pytest.fixture
def upgrading(valkey, valkey_store):
    """Let an instance that clients use be upgraded for a while, as the next release does it."""
    field = key(valkey_store.instance, "instance")

    @contextlib.contextmanager
    def begin(end_after):
        def end():
            with contextlib.closing(valkey.client()) as other:
                other.hset(field, "format", FORMAT)

        timer = threading.Timer(end_after, end)
        with contextlib.closing(valkey.client()) as other:
            other.hset(field, "format", f"{FORMAT}>{FORMAT + 1}")
            timer.start()
            yield
            timer.join()

    return begin


def test_whoever_works_at_it_waits_and_goes_on(valkey, instance, upgrading):
    with Client(valkey.url, instance=instance, retry_timeout=60) as client:
        client.apply(Queue(name="work", lease_period="60s", max_per_subscription_backlog=10))
        with client.publisher("till") as till, client.subscribe("work", max_backlog=10) as messages:
            client.publish("work", {"n": 0})
            first = messages.get(30)
            with upgrading(0.4):
                client.publish("work", {"n": 1})
            with upgrading(0.4):
                till.publish("work", {"n": 2})
                first.ack(wait=True)
            till.flush(60)
            found = [messages.get(30) for _ in range(2)]
            for message in found:
                message.ack(wait=True)
            assert [message.data["n"] for message in found] == [1, 2]
        with upgrading(0.4):
            assert client.admin.queue_stats("work").acknowledged == 3
            assert all(each.clean for each in client.admin.check("work"))


def test_so_does_whoever_waits_with_asyncio(valkey, instance, upgrading):
    async def work():
        async with AsyncClient(valkey.url, instance=instance, retry_timeout=60) as client:
            await client.apply(Queue(name="work"))
            with upgrading(0.4):
                await client.publish("work", {"n": 1})
            async with client.subscribe("work") as messages:
                message = await messages.get(30)
                await message.ack()
                return message.data

    assert asyncio.run(work()) == {"n": 1}


# -- what the step is for: this release reads large bodies otherwise

LARGE = """
import json
from ampsq import Client, Queue, Topic
client = Client({url!r}, instance={instance!r})
client.apply(Queue(name="best", underlying_topic="bids", priority="/price"))
pad, huge = "x" * 40_000, "y" * 1_200_000
for price, text in [(2**60 + 3, pad), (2**60 + 1, pad), (10, huge), (7, pad), (2**60 + 2, ""), (9, "")]:
    client.publish("bids", {{"price": price, "pad": text}})
with client.subscribe("best", max_backlog=1) as messages:
    messages.get(10).cancel()
print([json.loads(message.raw)["price"] - 2**60 * (message.raw.count(b"11529") > 0) for message in client.sow("best")])
client.close()
"""


@pytest.fixture
def large(valkey, valkey_store, former):
    """An instance of the release before, with messages in their places that it read and this one does not."""
    instance = f"{valkey_store.instance}-large"
    with contextlib.closing(valkey.client()) as plain:
        yield instance, former(LARGE.format(url=valkey.url, instance=instance)).strip()
        for each in list(plain.scan_iter(match="{" + instance + "}:*")):
            plain.delete(each)
        plain.srem("ampsq:instances", instance)


def test_messages_have_the_places_that_this_release_gives_them(valkey, large):
    instance, former_order = large
    assert former_order == "[3, 2, 1, 10, 9, 7]"

    upgrade(valkey.url, instance)

    with Client(valkey.url, instance=instance) as client:
        (report,) = client.admin.check("best")
        assert report.clean
        with client.subscribe("best", max_backlog=1) as messages:
            order = []
            for _ in range(6):
                message = messages.get(30)
                order.append((json.loads(message.raw)["price"], len(message.raw) > 1_000_000))
                message.ack(wait=True)
    # A body beyond 1 MB is not read: it has the lowest priority; of one beyond 32 KB numbers are doubles.
    assert order == [
        (2**60 + 2, False), (2**60 + 3, False), (2**60 + 1, False), (9, False), (7, False), (10, True),
    ]  # fmt: skip


def test_reading_the_format_needs_no_format(nyc):
    assert nyc.call(read_format(NYC)) == ("4", "")


@pytest.mark.slow
def test_upgraders_that_are_killed_or_two_at_once_end_alike(start_server):
    server = start_server("valkey")
    program = Path(__file__).with_name("upgrade_kills.py")
    done = subprocess.run(
        [sys.executable, program, server.url, "--seeds", "30"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 seeds" in done.stdout
