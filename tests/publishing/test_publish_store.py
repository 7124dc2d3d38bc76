"""Publish stores: what is kept, in which order, what survives, who may use them, and what a fault leaves."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading

import pytest

from ampsq import FilePublishStore, MemoryPublishStore
from ampsq.base.errors import DefinitionError, PublishStoreError
from ampsq.publishing.memory_store import StoreEntry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "till.db"


@pytest.fixture(params=["memory", "file", "file with fsync"])
def kept(request, path):
    store = (
        MemoryPublishStore() if request.param == "memory" else FilePublishStore(path, fsync="fsync" in request.param)
    )
    store.open("i", "till-1")
    yield store
    store.close()


def keep(store, *bodies, topic=b"orders"):
    return store.keep(len(bodies), "publish", [topic, b"b", *bodies])


def held(store, after=0):
    return [(entry.sequence, entry.last, list(entry.arguments)) for entry in store.read(after, 100)]


def test_what_is_kept_is_read_in_order_under_numbers_that_follow_each_other(kept):
    assert [keep(kept, b"one"), keep(kept, b"two", b"three"), keep(kept, b"")] == [1, 2, 4]

    assert held(kept) == [
        (1, 1, [b"orders", b"b", b"one"]),
        (2, 3, [b"orders", b"b", b"two", b"three"]),
        (4, 4, [b"orders", b"b", b""]),
    ]
    assert (kept.last, kept.held, kept.lowest()) == (4, 4, 1)


def test_an_entry_is_read_until_all_its_messages_are_behind(kept):
    keep(kept, b"one")
    keep(kept, b"two", b"three")

    assert [entry.sequence for entry in kept.read(2, 100)] == [2]
    assert kept.read(3, 100) == []


def test_only_so_many_are_read(kept):
    for number in range(10):
        keep(kept, b"%d" % number)

    assert [entry.sequence for entry in kept.read(3, 4)] == [4, 5, 6, 7]


def test_of_large_entries_in_a_file_only_what_travels_in_a_call_is_read(path):
    store = FilePublishStore(path)
    store.open("i", "till-1")
    for _ in range(30):
        keep(store, b"x" * 600_000)
    # As much as a call takes is more than one of them and less than three
    assert [first for first, _, _ in held(store)] == [1, 2]
    assert [first for first, _, _ in held(store, after=29)] == [30]
    store.close()


def test_what_is_discarded_is_gone_and_its_numbers_are_not_given_again(kept):
    keep(kept, b"one")
    keep(kept, b"two", b"three")
    empty = kept.held_bytes

    kept.discard(2)
    assert [row[:2] for row in held(kept)] == [(2, 3)]
    assert (kept.held, kept.lowest()) == (2, 2)
    kept.discard(3)

    assert (held(kept), kept.held, kept.held_bytes, kept.lowest()) == ([], 0, 0, 4)
    assert keep(kept, b"four") == 4
    assert 0 < kept.held_bytes < empty


def test_numbers_go_on_behind_those_that_the_server_knows(kept):
    kept.begin_after(20)

    assert (kept.lowest(), keep(kept, b"one")) == (21, 21)
    kept.begin_after(5)
    assert keep(kept, b"two") == 22


def test_bodies_are_any_bytes(kept):
    body = bytes(range(256)) * 3 + b"\r\n$3\r\n"
    keep(kept, body, b"\r\n")

    assert held(kept)[0][2] == [b"orders", b"b", body, b"\r\n"]


def test_settlements_are_kept_until_they_are_forgotten(kept):
    numbers = kept.keep_settlements([[b"acknowledged", b"ref-1"], [b"expired", b"ref-2"]])
    more = kept.keep_settlements([[b"cancelled", b"ref-3"]])

    assert list(kept.settlements().values()) == [
        [b"acknowledged", b"ref-1"],
        [b"expired", b"ref-2"],
        [b"cancelled", b"ref-3"],
    ]
    kept.forget_settlements([numbers[0], *more])
    assert kept.settlements() == {numbers[1]: [b"expired", b"ref-2"]}


def test_threads_get_numbers_of_their_own_and_lose_nothing(kept):
    given = []

    def publish(name):
        for body in (b"%s-%d" % (name, number) for number in range(50)):
            sequence = keep(kept, body)
            given.append((sequence, body))

    threads = [threading.Thread(target=publish, args=(name,)) for name in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    entries = kept.read(0, 1000)
    assert [entry.sequence for entry in entries] == list(range(1, 201))
    assert sorted(given) == [(entry.sequence, entry.arguments[2]) for entry in entries]
    for name in (b"a", b"b", b"c", b"d"):
        numbers = [int(entry.arguments[2][2:]) for entry in entries if entry.arguments[2].startswith(name)]
        assert numbers == list(range(50))


@pytest.mark.parametrize("options", [{"messages": 3}, {"size": 40}])
def test_a_store_has_room_up_to_its_bounds(options):
    kept = MemoryPublishStore(**options)
    kept.open("i", "p")
    while kept.has_room():
        keep(kept, b"x" * 10)

    assert kept.held == 3
    kept.discard(1)
    assert kept.has_room()


@pytest.mark.parametrize("options", [{"messages": 0}, {"size": "0"}, {"messages": "many"}, {"timeout": "soon"}])
def test_bounds_that_say_nothing_are_refused(options):
    with pytest.raises(DefinitionError):
        MemoryPublishStore(**options)


def test_a_file_has_everything_when_it_is_opened_again(path):
    first = FilePublishStore(path)
    first.open("i", "till-1")
    keep(first, b"one", b"two")
    keep(first, b"three")
    first.keep_settlements([[b"acknowledged"]])
    first.discard(2)
    size = first.held_bytes
    first.close()
    again = FilePublishStore(path)
    again.open("i", "till-1")

    assert held(again) == [(3, 3, [b"orders", b"b", b"three"])]
    assert (again.last, again.held, again.held_bytes, again.lowest()) == (3, 1, size, 3)
    assert list(again.settlements().values()) == [[b"acknowledged"]]
    again.discard(3)
    again.close()
    again.open("i", "till-1")
    assert keep(again, b"four") == 4
    again.close()


def test_publishers_and_instances_share_a_file_and_nothing_in_it(path):
    stores = {}
    for instance, name in (("i", "a"), ("i", "b/c"), ("j", "a")):
        stores[instance, name] = FilePublishStore(path)
        stores[instance, name].open(instance, name)
        keep(stores[instance, name], f"{instance} {name}".encode())
        stores[instance, name].keep_settlements([[name.encode()]])

    for (instance, name), store in stores.items():
        assert held(store) == [(1, 1, [b"orders", b"b", f"{instance} {name}".encode()])]
        assert list(store.settlements().values()) == [[name.encode()]]
        store.close()


HOLD = """
import sys
from ampsq import FilePublishStore
store = FilePublishStore(sys.argv[1])
store.open("i", "till-1")
print("open", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time_uses_a_publisher_s_file_and_a_killed_one_lets_go(path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "open\n"
        store = FilePublishStore(path)
        with pytest.raises(PublishStoreError, match="another process publishes as 'till-1'"):
            store.open("i", "till-1")
        holder.kill()
        holder.wait()
        store.open("i", "till-1")
        store.close()
    finally:
        holder.kill()
        holder.communicate()


def test_a_store_serves_one_client(kept):
    with pytest.raises(PublishStoreError, match="another client"):
        kept.open("i", "till-2")


def test_a_file_that_is_none_of_ours_is_refused(path):
    path.write_bytes(b"these are notes, and no database at all" * 50)
    with pytest.raises(PublishStoreError, match="not a database"):
        FilePublishStore(path).open("i", "p")
    with pytest.raises(PublishStoreError, match=r"No such file"):
        FilePublishStore(path.parent / "nowhere" / "till.db").open("i", "p")
    with pytest.raises(PublishStoreError, match="is a folder; allowed: a file"):
        FilePublishStore(".").open("i", "p")


def test_a_file_of_a_later_layout_is_refused(path):
    data = sqlite3.connect(path)
    data.execute("PRAGMA user_version=99")
    data.close()
    with pytest.raises(PublishStoreError, match="layout 99"):
        FilePublishStore(path).open("i", "p")


def test_what_could_not_be_written_is_told_and_its_number_is_given_again(path):
    store = FilePublishStore(path)
    store.open("i", "till-1")
    keep(store, b"one")
    # When the disk is full
    store._file.execute("PRAGMA max_page_count=1")
    with pytest.raises(PublishStoreError, match="disk is full; make room there"):
        keep(store, b"x" * 1_000_000)
    assert (store.last, store.held) == (1, 1)
    store._file.execute("PRAGMA max_page_count=100000")
    # Then the next one has its number
    assert keep(store, b"two") == 2
    assert [row[2][2] for row in held(store)] == [b"one", b"two"]
    store.close()


def test_a_part_of_an_entry_is_its_messages_with_all_their_values():
    entry = StoreEntry(5, 3, "publish", [b"orders", b"bh", b"5", b"h5", b"6", b"h6", b"7", b"h7"])

    assert entry.part(6, 6) == StoreEntry(6, 1, "publish", [b"orders", b"bh", b"6", b"h6"])
    assert entry.part(6, 9).arguments == [b"orders", b"bh", b"6", b"h6", b"7", b"h7"]
    assert entry.part(1, 9) is entry
