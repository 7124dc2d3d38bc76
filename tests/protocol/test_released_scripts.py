"""Scripts by the SHA1s that are written with the release: composed when a server does not know them, and not before."""

from __future__ import annotations

import asyncio
import shutil
from types import MappingProxyType
from unittest import mock

import library_hash
import pytest

from ampsq.base.errors import ReleaseReplaced
from ampsq.protocol import released_scripts, schema, scripts
from ampsq.protocol.request import Call, script_call
from ampsq.protocol.scripts import Script, compose, script
from ampsq.transport.async_pipeline import AsyncPipeline
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.pipeline import Pipeline

LUA = library_hash.PATH.parents[2] / "lua"


@pytest.fixture(autouse=True)
def forget_what_was_composed():
    """Begin and end as a process that has composed nothing."""

    def forget():
        for kept in (scripts._composed, scripts.script, scripts._released, scripts._paths, scripts._read):
            kept.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A copy of lua/ in the place of the checkout's, in which ``edited(path, text)`` writes behind a file."""
    shutil.copytree(LUA, tmp_path / "lua")

    def edit(path, text):
        with (tmp_path / "lua" / path).open("a") as file:
            file.write(text)

    monkeypatch.setattr(scripts, "_folder", lambda: tmp_path / "lua")
    return edit


def test_the_hashes_that_are_written_with_the_release_are_those_of_what_is_composed():
    assert library_hash.SCRIPTS_PATH.read_text() == library_hash.scripts_text(), "python tests/library_hash.py"


def test_each_script_is_known_without_composing_it():
    with mock.patch.object(scripts, "_compose", side_effect=AssertionError("composed")):
        known = {name: script(name) for name in scripts.names()}

    assert {name: each.sha for name, each in known.items()} == dict(released_scripts.SHA1S)
    assert {name for name, each in known.items() if each.only_reads} == released_scripts.READING
    assert known["browse"].only_reads
    assert not known["take"].only_reads


def test_the_text_of_a_script_is_the_one_with_its_sha():
    assert script("settle").source == compose("settle").source
    assert script("settle").place(40) == compose("settle").place(40)


def test_a_checkout_whose_scripts_are_edited_composes_them(edited):
    edited("queues/lib/lease_runs.lua", "local function unused()\nend\n")
    edited("delivery/settle.lua", "redis.call('PING')\n")

    assert script("settle").sha == compose("settle").sha != released_scripts.SHA1S["settle"]
    assert script("settle").source.endswith("redis.call('PING')\nend\nreturn main()\n")
    assert script("browse").sha == released_scripts.SHA1S["browse"]


@pytest.mark.parametrize("path", ["delivery/settle.lua", "lib/fail.lua"])
def test_an_edit_of_any_file_changes_the_hash_of_what_scripts_are_composed_of(edited, path):
    before = scripts.sources_hash()
    assert before == released_scripts.SOURCES
    edited(path, " ")
    assert scripts.sources_hash() != before


def test_an_editor_s_own_files_change_nothing(edited):
    edited("delivery/.#settle.lua", "half a line")

    assert scripts.sources_hash() == released_scripts.SOURCES


@pytest.mark.parametrize(
    ("table", "more"),
    [("KEYS", {"more": schema.KEYS["instance"]}), ("FIELDS", {"more": "more"}), ("VALUES", {"more": 1})],
)
def test_so_does_each_literal_of_the_schema(monkeypatch, table, more):
    monkeypatch.setattr(schema, table, MappingProxyType({**getattr(schema, table), **more}))

    assert scripts.sources_hash() != released_scripts.SOURCES


def test_what_is_installed_is_taken_as_it_was_released(tmp_path, monkeypatch):
    # Given scripts that stand in the package, as a wheel has them: its files were compared when it was built
    (tmp_path / "ampsq/protocol").mkdir(parents=True)
    shutil.copytree(LUA, tmp_path / "ampsq/lua")
    monkeypatch.setattr(scripts, "_folder", lambda: tmp_path / "ampsq/lua")
    monkeypatch.setattr(scripts, "__file__", str(tmp_path / "ampsq/protocol/scripts.py"))

    with mock.patch.object(scripts, "sources_hash", side_effect=AssertionError("hashed")):
        assert script("settle").sha == released_scripts.SHA1S["settle"]


def test_a_text_that_is_another_one_than_when_the_process_began_is_refused_in_a_sentence(edited):
    # Given a process that knows a script by its hash
    known = script("settle")
    assert known.sha == released_scripts.SHA1S["settle"]

    # When its files change, and a server asks for the text
    edited("delivery/settle.lua", "redis.call('PING')\n")

    # Then no other text is sent than the one that it is known by
    with pytest.raises(ReleaseReplaced, match=r"the script settle has another text .* so start it again"):
        _ = known.source
    assert known.place(40) == "settle.lua"


def test_a_script_that_is_not_there_any_more_is_refused_too():
    with pytest.raises(ReleaseReplaced, match="the script sell has another text"):
        _ = Script("sell", "0" * 40, only_reads=False).source


def test_who_calls_such_a_script_at_a_server_that_does_not_know_it_hears_so_and_goes_on(opened):
    opened.redis.script_flush()
    gone = Script("sell", "0" * 40, only_reads=False)

    with pytest.raises(ReleaseReplaced, match="the script sell"):
        opened.call(Call(gone, [], str))
    pipeline = Pipeline(opened)
    pipeline.post(Call(gone, [], str))
    with pytest.raises(ReleaseReplaced, match="the script sell"):
        pipeline.collect()
    pipeline.close()

    assert opened.call(script_call("read_catalog", ["0"], list, repeatable=True)) is not None


# At servers that know nothing yet


def read_version():
    """Ask for the version of the catalog."""
    return script_call("read_catalog", ["none"], lambda reply: reply[0], repeatable=True)


@pytest.fixture
def fresh(opened):
    """A store whose server and whose process know no script."""
    opened.redis.hset("{" + opened.instance + "}:instance", "catalog", "7")
    opened.redis.script_flush()
    return opened


def test_a_server_that_knows_no_script_is_sent_the_text_of_those_that_are_called(fresh):
    assert fresh.call(read_version()) == b"7"

    assert scripts._composed.cache_info().currsize == 1
    assert fresh.redis.script_exists(script("read_catalog").sha, script("settle").sha) == [True, False]


def test_pipelines_send_the_text_too_and_answer_in_order(fresh):
    calls = [read_version() for _ in range(3)]

    with Pipeline(fresh) as pipeline:
        pipeline.post_all(calls)
        assert [pipeline.collect() for _ in calls] == [b"7"] * 3
    assert scripts._composed.cache_info().currsize == 1


def test_asyncio_does_the_same(fresh, server):
    calls = [read_version() for _ in range(3)]

    async def main():
        store = AsyncStore(server.url, fresh.instance)
        try:
            assert await store.call(calls[0]) == b"7"
            fresh.redis.script_flush()
            pipeline = AsyncPipeline(store)
            for call in calls:
                await pipeline.post(call)
            assert [await pipeline.collect() for _ in calls] == [b"7"] * 3
            await pipeline.close()
        finally:
            await store.close()

    asyncio.run(main())
