"""publish."""

from __future__ import annotations

import base64
import gzip
import re
import subprocess
import threading

import pytest
from observing import eventually
from taking import BOOKMARK, data, take

import ampsq
from ampsq.base.errors import NotPersisted

# -- publish


def test_other_message_types_are_written_from_json_and_shown_readably(run):
    with run.client() as client:
        client.apply(*(ampsq.Queue(name=name, message_type=name) for name in ("msgpack", "fix", "binary")))
    run("publish", "msgpack", '{"a": [1, 2.5]}')
    run("publish", "fix", '{"35": "D", "55": ["IBM", "MS"]}')
    run("publish", "binary", "--text", "plain")

    assert run("sow", "msgpack").out.strip().endswith('{"a": [1, 2.5]}')
    assert run("sow", "fix").out.strip().endswith("35=D|55=IBM|55=MS|")
    assert run("sow", "binary").out.strip().endswith("plain")
    assert run("sow", "msgpack", "--json").json[0]["data"] == {"a": [1, 2.5]}
    assert run("sow", "fix", "--json").json[0]["data"] == {"35": "D", "55": ["IBM", "MS"]}


def test_one_message_gives_its_bookmark(defined):
    assert BOOKMARK.fullmatch(defined("publish", "orders", '{"id": 1}').out.strip())
    assert BOOKMARK.fullmatch(defined("publish", "orders", '"text"', "--json").json[0]["bookmark"])
    assert data(defined) == [{"id": 1}, "text"]


def test_json_is_recorded_as_it_is_written(defined):
    defined("publish", "orders", '{"b":1.50,  "a": 12345678901234567890}')
    with defined.client() as client, client.subscribe("work") as messages:
        assert messages.get(30).raw == b'{"b":1.50,  "a": 12345678901234567890}'


def test_headers(defined):
    defined("publish", "orders", "1", "--header", "source=till-4", "--header", "a=b=c")
    assert take(defined)[0]["headers"] == {"source": "till-4", "a": "b=c"}
    assert "NAME=VALUE" in defined("publish", "orders", "1", "--header", "x", code=2).err
    twice = defined("publish", "orders", "1", "--header", "a=b", "--header", "a=c", code=2).err
    assert "--header 'a=c': a has the value 'b' already; give it once" in twice


def test_what_the_server_refuses_for_good_of_a_store_fails_the_command(defined, tmp_path):
    file = tmp_path / "keyed.yaml"
    file.write_text("topics: [{name: keyed, key: [/id]}]")
    defined("apply", "--yes", str(file))
    options = ("--publisher", "till-4", "--store", str(tmp_path / "till-4.db"))

    refused = defined("publish", "keyed", '{"x": 1}', *options, code=1)
    assert refused.out == ""
    assert "a message was refused for good" in refused.err
    assert "'keyed', sequence 1: The topic has a key" in refused.err

    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"x": 1}\n{"id": 1}\n{"x": 2}\n')
    assert "2 messages were refused for good" in defined("publish", "keyed", "--file", str(lines), *options, code=1).err
    assert [each["key"] for each in defined("sow", "keyed", "--json").json] == ["1"]


def test_a_publisher_with_a_store_gives_sequences_and_goes_on_behind_them(defined):
    options = ("--publisher", "till-4", "--store", "till-4.db", "--persisted", "memory")
    assert defined("publish", "orders", "1", *options).out == "1\n"
    assert defined("publish", "orders", "2", *options, "--json").json == [{"sequence": 2}]
    assert defined("publish", "orders", "-", *options, "--json", stdin="3\n4\n").json[0]["published"] == 2
    assert BOOKMARK.fullmatch(defined("publish", "orders", "5", "--publisher", "till-5").out.strip())
    assert data(defined) == [1, 2, 3, 4, 5]
    found = {each["name"]: each for each in defined("publishers", "--json").json}
    assert (found["till-4"]["sequence"], found["till-4"]["client"]) == (4, None)
    assert found["till-5"]["bookmark"].startswith("orders~")
    assert re.search(r"till-4 +4 +orders~\S+ +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z +- ", defined("publishers").out)


def test_options_of_a_guarantee_that_do_not_go_together_are_refused(defined):
    assert "--publisher NAME" in defined("publish", "orders", "1", "--store", "x.db", code=2).err
    assert "--store FILE" in defined("publish", "orders", "1", "--persisted", "fsync", code=2).err
    wrong = defined("publish", "orders", "1", "--publisher", "p", "--store", "x.db", "--persisted", "disk", code=1)
    assert "allowed are 'memory', 'fsync'" in wrong.err


def test_text_is_published_as_it_is(defined):
    defined("publish", "orders", "--text", "Grüße {")
    assert take(defined)[0]["data"] == {"base64": base64.b64encode("Grüße {".encode()).decode()}


@pytest.mark.parametrize("wrong", ["hello", "{'id': 1}", "NaN", "", '{"a":1} 2', "[" * 100_000])
def test_what_is_not_json_is_refused_with_the_way_out(run, wrong):
    done = run("publish", "orders", wrong, code=1)
    assert done.err.startswith("Error: not JSON")
    assert "--text" in done.err
    assert len(done.err) < 1000
    assert run("topics", "--json").out == ""


@pytest.mark.parametrize("arguments", [[], ["1", "--file", "x"]])
def test_one_source_of_messages_is_needed(run, arguments):
    assert "give one of" in run("publish", "orders", *arguments, code=2).err


def test_a_wrong_topic_is_explained(run):
    assert "is not a name" in run("publish", "two words", "1", code=1).err


def test_a_file_of_json_lines(defined):
    (defined.folder / "f.jsonl").write_bytes(b'\xef\xbb\xbf{"n":0}\r\n\r\n{"n":1}\n  {"n":2}')
    assert re.fullmatch(
        r"published 3 to orders in [\d.]+ s \([\d,]+ a second\)\n",
        defined("publish", "orders", "--file", "f.jsonl", "--header", "from=file").out,
    )
    messages = take(defined)
    assert [message["data"]["n"] for message in messages] == [0, 1, 2]
    assert messages[2]["headers"] == {"from": "file"}


def test_compressed_lines_from_a_file_and_from_standard_input(defined):
    packed = gzip.compress(b'{"n":0}\n{"n":1}\n')
    (defined.folder / "f.jsonl.gz").write_bytes(packed)
    (done,) = defined("publish", "orders", "-f", "f.jsonl.gz", "--json").json
    assert done["published"] == 2
    assert done["seconds"] >= 0
    assert defined("publish", "orders", "-", "--json", stdin=packed).json[0]["published"] == 2
    assert len(data(defined)) == 4


def test_many_lines_keep_their_order(defined):
    lines = "".join(f"{n}\n" for n in range(5000))
    assert defined("publish", "orders", "-", "--json", stdin=lines).json[0]["published"] == 5000
    assert data(defined) == list(range(5000))


def test_a_wrong_line_is_named_and_the_ones_before_are_published(defined):
    done = defined("publish", "orders", "-", stdin='{"n":0}\n\n{"n":1}\nnot json\n{"n":2}\n', code=1)
    assert "standard input: line 4 is not JSON (the 2 before it were published)" in done.err
    assert "'not json'" in done.err
    assert [message["n"] for message in data(defined)] == [0, 1]
    assert "nothing was published" in defined("publish", "orders", "-", stdin=b"\xff\n", code=1).err


def test_a_refused_line_leaves_what_was_published_before_it_and_says_how_many(defined):
    (defined.folder / "keyed.yaml").write_text("topics:\n  - name: prices\n    key: /id\n")
    defined("apply", "keyed.yaml", "--yes")
    lines = "".join(f'{{"id":{n}}}\n' if n != 250 else '{"no":1}\n' for n in range(300))
    done = defined("publish", "prices", "-", stdin=lines, code=1)
    assert "message 250" in done.err
    # The batches of a hundred before it, whole.
    assert "200 of the lines were published" in done.err
    assert "no line is known to be published" in defined("publish", "prices", "-", stdin='{"no":1}\n', code=1).err


def test_lines_of_text(defined):
    defined("publish", "orders", "-", "--text", stdin="one\n2\n")
    assert data(defined) == [b"one", 2]


def test_a_file_that_cannot_be_read(run):
    assert "No such file" in run("publish", "orders", "--file", "none", code=1).err
    assert "directory" in run("publish", "orders", "--file", ".", code=1).err
    (run.folder / "cut.gz").write_bytes(gzip.compress(b"1\n" * 9)[:-9])
    assert "cannot be read" in run("publish", "orders", "--file", "cut.gz", code=1).err


def test_what_comes_through_a_pipe_is_published_at_once(defined):
    process = defined.start("publish", "orders", "-", stdin=subprocess.PIPE)
    process.stdin.write('{"n":0}\n')
    process.stdin.flush()
    with defined.client() as client:
        eventually(lambda: client.admin.queue_stats("work").depth == 1, within=40.0)
    process.stdin.close()
    assert process.wait(30) == 0


# -- expiration, delay, time


def test_a_message_may_be_published_for_a_while_and_for_later(defined):
    defined("publish", "orders", "1", "--expiration", "1h", "--delay", "1h")
    defined("publish", "orders", "2", "--at", "2099-01-01T00:00+01:00")
    defined("publish", "orders", "3", "--at", "2001-01-01T00:00Z")
    with defined.client() as client:
        stats = client.admin.queue_stats("work")
    assert (stats.scheduled, stats.waiting) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--at", "tomorrow"], 2, "--at 'tomorrow': allowed is a time with a zone"),
        (["--at", "2026-12-24T18:00"], 2, "allowed is a time with a zone"),
        (["--delay", "soon"], 2, "'--delay': 'soon' is not an interval"),
        (["--expiration", "0s"], 2, "--expiration 0: allowed is 1ms or longer"),
        (["--delay", "1s", "--at", "2099-01-01T00:00Z"], 2, "--delay and --at exclude each other"),
    ],
)
def test_wrong_times_are_refused_before_anything_is_published(defined, arguments, code, text):
    done = defined("publish", "orders", "1", *arguments, code=code)
    assert text in done.err


def test_a_long_body_is_cut_for_people_and_whole_for_programs(defined):
    defined.publish("x" * 1_000_000)
    defined.publish({"short": True})

    shown = defined("sow", "work")

    assert [len(line) < 500 for line in shown.out.splitlines()] == [True, True]
    assert "xxx..." in shown.out
    assert shown.out.endswith('{"short":true}\n')
    assert shown.err.count("-o jsonl prints it whole") == 1
    for form in ("json", "jsonl", "yaml", "csv"):
        assert len(defined("sow", "work", "-o", form).out) > 1_000_000


def test_publish_tells_what_it_waits_for_until_everything_is_persisted(process):
    away = ampsq.Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders"])
    with process.client() as client:
        client.apply(ampsq.Topic(name="orders"), away)
        publishing = process.start("publish", "orders", "1", "--publisher", "p", "--store", "p.db")

        limit = threading.Timer(60, publishing.kill)
        limit.start()
        # Whatever it waits for at first, the destination is told
        told = next((line for line in publishing.stderr if "'ldn-1' has not acknowledged" in line), "")
        limit.cancel()
        client.admin.remove_destination("ldn-1")
        out, _ = publishing.communicate(timeout=60)

    assert told.startswith("Note: still waiting: 1 messages (sequences 1 to 1) of publisher 'p' are not persisted")
    assert (publishing.returncode, out) == (0, "1\n")


def test_what_publish_waits_for_is_told_once_and_again_when_it_changes(defined, monkeypatch):
    waits = [*(f"'ldn-1': its oldest message waits for {age}.5 s" for age in (3, 6, 9)), "no answer", "no answer"]

    def flush(_publisher, timeout=None):  # noqa: ARG001
        if waits:
            why = waits.pop(0)
            raise NotPersisted(f"not persisted ({why})", 1, 1, 0, why)

    monkeypatch.setattr(ampsq.Publisher, "flush", flush)

    told = defined("publish", "orders", "1", "--publisher", "till").err.splitlines()

    assert told == [
        "Note: still waiting: not persisted ('ldn-1': its oldest message waits for 3.5 s)",
        "Note: still waiting: not persisted (no answer)",
    ]
