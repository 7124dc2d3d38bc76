"""apply asks; config check, diff, export and schema."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import redis
import yaml
from programs import Called

from ampsq.files.config import SECTIONS
from ampsq.protocol.schema import key

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALL = """
group: NYC
message_memory_limit: 1GB
transports:
  - {name: low, client_message_age_limit: 15s, client_max_capacity: 10%}
topics:
  - {name: orders, retention_age: 7d, retention_size: 100000, retention_unsettled: discard}
  - {name: positions, key: [/symbol, /account], expiration: 1d}
  - {name: fixed, message_type: fix, field_separator: "|"}
address_settings:
  - {match: ring.#, default_ring_size: 3, expiry_delay: -1}
  - {match: ring.b, default_ring_size: }
queues:
  - name: work
    underlying_topic: orders
    lease_period: 1h30m
    redelivery_delay: 5s
    redelivery_delay_multiplier: 1.5
    filter: "/a = '$${HOME}' AND /b LIKE '^[a-z]: #'"
  - {name: "on", underlying_topic: "^a|^on$", default_publish_target: a, allow_redelivery_after_crash: true}
  - {name: "2024", priority: /price}
local_queues:
  - {name: audit, underlying_topic: orders}
group_local_queues:
  - {name: shared, underlying_topic: orders, initial_owner: nyc-1, group_local_queue_domain: east}
views:
  - {name: totals, underlying_topic: work, projection: [/symbol, SUM(/qty) AS /total], grouping: [/symbol]}
conflated_topics:
  - {name: orders-slow, underlying_topic: orders, interval: 250ms, key: [/id], filter: /qty > 0}
  - {name: positions-slow, underlying_topic: positions}
actions:
  - dead_letter: {queue: work, topic: dead, reasons: [max_cancels]}
  - name: everything
    on: [{publish: {topic: orders, filter: /qty > 1}}, connect]
    if: {condition: /x = 'null'}
    do:
      - publish: {topic: "t-{{AMPS_TOPIC}}", data: "{\\"a\\": {{AMPS_DATA}}}\\n"}
      - echo: "no"
destinations:
  - name: nyc-2
    sync_type: async
    topics: [orders, {name: "^w", message_type: json, filter: /a > 1, exclude_validation: [cascade]}]
    addresses: ["redis://:s3cret@nyc-2:6379#nyc-2", "redis://nyc-3"]
    pass_through: ["^NYC"]
"""


def answered(run, answer, *arguments):
    """Answer the question at a terminal; return the text that a person sees, and the exit code."""
    leader, follower = pty.openpty()
    process = run.start_at(follower, 120, *arguments, stderr=follower)
    os.close(follower)
    seen, asked = b"", False
    while select.select([leader], [], [], 20)[0]:
        try:
            seen += os.read(leader, 65536)
        except OSError:
            break
        if b"[y/N]" in seen and not asked:
            asked = True
            os.write(leader, answer)
    os.close(leader)
    return process.wait(20), seen.decode()


# --- apply


def test_where_nobody_can_be_asked_nothing_is_done_and_the_exit_code_says_so(run, definitions):
    done = run("apply", "-", stdin=definitions, code=3)
    assert "+ queue work" in done.out
    assert done.err == "Note: nothing was done: there is no terminal to ask at; --yes does it without asking\n"
    done = run("apply", "-", "--json", stdin=definitions, code=3)
    assert done.out == ""
    assert run("queues", "--json").out == ""


def test_at_a_terminal_it_is_asked_and_only_a_yes_does_it(run, definitions):
    (run.folder / "q.yaml").write_text(definitions)
    code, seen = answered(run, b"\n", "apply", "q.yaml")
    assert (code, "Do it? [y/N]" in seen, "nothing was done" in seen) == (3, True, True)
    assert run("queues", "--json").out == ""
    code, seen = answered(run, b"y\n", "apply", "q.yaml")
    assert code == 0
    # In colours
    assert "\x1b[32m+ queue work" in seen
    assert len(run("queues", "--json").json) == 2


# --- what is only compared writes nothing


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("apply", "-", "--dry-run"), 0), (("apply", "-"), 3), (("config", "diff", "-"), 1),
        (("apply", "-", "--prune", "--dry-run"), 0), (("config", "diff", "--prune", "-"), 1),
    ],
)  # fmt: skip
def test_what_is_only_compared_writes_no_key_and_makes_no_instance(folder, uncared, definitions, arguments, code):
    with contextlib.closing(Called(folder, uncared.url, "fresh")) as run, redis.Redis.from_url(uncared.url) as server:
        before = {name: server.dump(name) for name in server.scan_iter()}

        done = run(*arguments, stdin=definitions, code=code)

        assert "+ queue work" in done.out
        assert {name: server.dump(name) for name in server.scan_iter()} == before


def test_an_action_that_hears_of_clients_hears_nothing_of_a_dry_run(run):
    text = "topics: [{name: t}]\nactions: [{name: heard, on: connect, do: {publish: {topic: t, data: here}}}]\n"
    run("apply", "-", "--yes", stdin=text)
    with run.client() as client:
        topics = key(client.instance, "happenings")
        before = client._store.redis.xlen(topics)

        run("apply", "-", "--dry-run", stdin=text)
        run("config", "diff", "-", stdin=text)

        assert client._store.redis.xlen(topics) == before


def test_a_dry_run_makes_no_server_in_a_folder_without_one(alone, definitions):
    assert "+ queue work" in alone("apply", "-", "--dry-run", stdin=definitions).out
    assert not list(alone.folder.iterdir())


# --- check


def test_a_file_is_checked_without_a_server(alone):
    (alone.folder / "a.yaml").write_text("include: b.yaml\nqueues:\n  - name: work\n")
    (alone.folder / "b.yaml").write_text("topics:\n  - name: orders\n")
    assert alone("config", "check", "a.yaml").out == "a.yaml: 2 definitions, nothing wrong\n"
    (alone.folder / "b.yaml").write_text("topics:\n  - nam: orders\n")
    assert (
        "b.yaml:2: Topic without a name: nam: no such element; did you mean 'name'?"
        in alone("config", "check", "a.yaml", code=1).err
    )
    assert not (alone.folder / ".ampsq").exists()


def test_definitions_that_cannot_stand_beside_each_other_are_found_without_a_server(alone):
    (alone.folder / "a.yaml").write_text("topics:\n  - {name: work, key: /id}\nqueues:\n  - {name: work}\n")
    refused = alone("config", "check", "a.yaml", code=1).err
    assert "a.yaml:2: Topic 'work': key: a queue has the same name" in refused
    # What an instance may have already is not asked for.
    (alone.folder / "a.yaml").write_text("actions:\n  - dead_letter: {queue: work, topic: dead}\n")
    assert "nothing wrong" in alone("config", "check", "a.yaml").out


def test_checked_definitions_are_told_as_json_with_their_places_and_no_passwords(run):
    (run.folder / "a.yaml").write_text(ALL)
    found = run("config", "check", "a.yaml", "--json").json
    line = ALL.split("\n").index("  - {name: audit, underlying_topic: orders}") + 1
    assert {"kind": "LocalQueue", "place": f"a.yaml:{line}", "name": "audit", "underlying_topic": "orders"} in found
    assert "s3cret" not in run("config", "check", "a.yaml", "--json").out


# --- diff


def test_diff_ends_as_diff_does(defined, definitions):
    same = defined("config", "diff", "-", stdin=definitions)
    assert same.out == "nothing to do: 4 definitions are as in the file\n"
    other = defined("config", "diff", "-", stdin=definitions.replace("30s", "40s"), code=1)
    assert other.out.splitlines() == ["~ queue work", "    lease_period: 30s -> 40s", "1 changed, 3 unchanged"]
    assert defined("config", "diff", "-", "--json", stdin=definitions.replace("30s", "40s"), code=1).json[1] == {
        "kind": "queue", "name": "work", "result": "changed", "changes": {"lease_period": {"from": "30s", "to": "40s"}},
    }  # fmt: skip
    refused = defined("config", "diff", "-", stdin="queues:\n  - {name: work, underlying_topic: elsewhere}", code=2)
    assert "<text>:2: Queue 'work': underlying_topic: 'orders' cannot become 'elsewhere'" in refused.err
    assert "no such file" in defined("config", "diff", "none.yaml", code=2).err


# --- export


def test_what_is_exported_can_be_applied_with_no_difference_here_and_there(run):
    (run.folder / "a.yaml").write_text(ALL)
    assert run("apply", "--yes", "a.yaml").code == 0
    exported = run("config", "export", "--secrets")
    (run.folder / "out.yaml").write_text(exported.out)
    assert run("config", "diff", "out.yaml").out.startswith("nothing to do: 19 definitions")
    # Elsewhere it makes the same
    here = run.environment["AMPSQ_INSTANCE"]
    run.environment["AMPSQ_INSTANCE"] = f"{here}-b"
    (run.folder / "out.yaml").write_text(exported.out.replace(f"name: {here}\n", f"name: {here}-b\n", 1))
    assert run("apply", "--yes", "out.yaml").code == 0
    again = run("config", "export", "--secrets").out
    assert again == (run.folder / "out.yaml").read_text()


def test_an_address_with_a_password_is_a_variable_of_what_is_exported(run):
    (run.folder / "a.yaml").write_text(ALL)
    run("apply", "--yes", "a.yaml")
    exported = run("config", "export")
    assert "s3cret" not in exported.out
    assert "AMPSQ_NYC_2_1" in exported.err
    (run.folder / "out.yaml").write_text(exported.out)
    assert "the environment has no AMPSQ_NYC_2_1" in run("config", "diff", "out.yaml", code=2).err
    run.environment["AMPSQ_NYC_2_1"] = "redis://:s3cret@nyc-2:6379#nyc-2"
    assert run("config", "diff", "out.yaml").code == 0
    assert "s3cret" not in run("config", "export", "--json").out
    # What is shown has none either
    assert (
        "s3cret" not in run("apply", "--dry-run", "out.yaml", "--instance", f"{run.environment['AMPSQ_INSTANCE']}").out
    )


def test_an_instance_without_definitions_is_exported_as_its_name(run):
    assert run("config", "export").out == f"name: {run.environment['AMPSQ_INSTANCE']}\n"


def test_which_topics_an_instance_takes_is_applied_told_and_exported(run, validator):
    text = "instance:\n  topics: defined\ntopics:\n  - name: orders\n"
    (run.folder / "a.yaml").write_text(text)
    assert run("config", "check", "a.yaml").out == "a.yaml: 2 definitions, nothing wrong\n"
    assert run("apply", "--dry-run", "a.yaml").out.splitlines()[:2] == [
        "~ instance *", "    topics: 'any' -> 'defined'",
    ]  # fmt: skip
    assert run("apply", "--yes", "a.yaml").code == 0
    # When somebody publishes to another topic
    refused = run("publish", "ordres", "1", code=1)
    assert "'ordres' is not defined" in refused.err
    assert "did you mean 'orders'?" in refused.err
    assert "Traceback" not in refused.err
    # Then the export says the same, and makes the same elsewhere
    exported = run("config", "export").out
    here = run.environment["AMPSQ_INSTANCE"]
    assert exported == f"name: {here}\n{text.replace('  - ', '- ')}"
    assert not list(validator.iter_errors(read(exported)))
    assert run("config", "diff", "-", stdin=exported).out.startswith("nothing to do: 2 definitions")
    assert run("config", "export", "--json").json[0]["topics"] == "defined"
    # And a file whose instance says nothing of it takes it back
    assert "    topics: 'defined' -> 'any'" in run("apply", "--yes", "-", stdin=f"name: {here}\n").out
    assert run("publish", "ordres", "1").code == 0


# --- schema


class Editor(yaml.SafeLoader):
    """As editors read YAML, by its version 1.2: `on` and `no` are texts."""


Editor.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Editor.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


def read(text):
    return yaml.load(text, Editor)  # noqa: S506  (a safe one)


@pytest.fixture(scope="module")
def validator():
    done = subprocess.run(
        [sys.executable, "-m", "ampsq.cli", "config", "schema"], capture_output=True, timeout=90, check=True
    )
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_takes_what_is_right_and_what_is_exported(run, validator):
    assert not list(validator.iter_errors(read(ALL)))
    run("apply", "--yes", "-", stdin=ALL)
    assert not list(validator.iter_errors(read(run("config", "export").out)))


def is_ours(found):
    """Return whether it is a configuration: examples and pages have files of other programs, too."""
    return bool(found.keys() & SECTIONS.keys())


def test_the_schema_takes_every_example(validator):
    found = {path: read(path.read_text()) for path in sorted(EXAMPLES.rglob("*.yaml"))}
    ours = {path: text for path, text in found.items() if is_ours(text)}
    assert EXAMPLES / "queues.yaml" in ours
    assert len(ours) > 10
    for path, text in ours.items():
        assert not [fault.message for fault in validator.iter_errors(text)], path


def test_the_schema_takes_every_file_of_the_pages(validator):
    for page in sorted((EXAMPLES.parent / "docs").glob("*.md")):
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL):
            found = read(text)
            if is_ours(found):
                assert not [fault.message for fault in validator.iter_errors(found)], f"{page.name}: {text}"


@pytest.mark.parametrize(
    "text",
    [
        "queus: []",
        "queues: {name: work}",
        "queues: [{name: work, lease_perod: 30s}]",
        "queues: [{name: work, lease_period: soon!}]",
        "queues: [{name: work, leasing: loose}]",
        "queues: [{underlying_topic: work}]",
        "topics: [{name: orders, retention_unsettled: maybe}]",
        "destinations: [{name: a, topics: [b]}]",
        "destinations: [{name: a, sync_type: sync, topics: [{nam: b}]}]",
        "actions: [{name: a, on: {expir: work}, do: {publish: b}}]",
        "actions: [{name: a, on: {expire: work}, do: {publish: {topc: b}}}]",
        "actions: [{dead_letter: {queue: a}}]",
        "address_settings: [{default_ring_size: 3}]",
        "instance: {topics: some}",
        "instance: {queues: []}",
        "topics: defined",
    ],
)
def test_the_schema_refuses_what_is_wrong(validator, text):
    assert list(validator.iter_errors(read(text)))


# --- forms for programs


def test_files_and_differences_are_printed_in_every_form(defined, definitions):
    changed = definitions.replace("30s", "40s")
    for arguments, code in ((("config", "diff", "-"), 1), (("apply", "-", "--dry-run"), 0)):
        rows = list(csv.DictReader(defined(*arguments, "-o", "csv", stdin=changed, code=code).out.splitlines()))
        assert list(rows[0]) == ["kind", "name", "result", "changes"]
        found = json.loads(defined(*arguments, "-o", "json", stdin=changed, code=code).out)
        assert [each["result"] for each in found] == [each["result"] for each in rows]
        assert found == yaml.safe_load(defined(*arguments, "-o", "yaml", stdin=changed, code=code).out)
        assert found == defined(*arguments, "-o", "jsonl", stdin=changed, code=code).json
    rows = list(csv.DictReader(defined("config", "check", "-", "-o", "csv", stdin=definitions).out.splitlines()))
    assert [(row["kind"], row["name"], row["place"]) for row in rows][1] == ("Queue", "work", "<text>:5")
    assert json.loads(rows[1]["elements"])["lease_period"] == "30s"
    assert json.loads(defined("config", "export", "-o", "json").out) == defined("config", "export", "--json").json
    assert defined("config", "export", "-o", "yaml").out == defined("config", "export").out
    assert "Queue,work," in defined("config", "export", "-o", "csv").out


# --- prune


def test_what_the_file_does_not_have_is_removed_with_prune_alone_and_shown_before(defined, definitions):
    less = definitions.replace("  - name: other\n", "")
    assert defined("config", "diff", "-", stdin=less).out == "nothing to do: 3 definitions are as in the file\n"
    shown = ["- queue other", "1 removed, 3 unchanged"]
    assert defined("config", "diff", "--prune", "-", stdin=less, code=1).out.splitlines() == shown
    assert defined("apply", "--prune", "--dry-run", "-", stdin=less).out.splitlines() == shown
    assert defined("apply", "--prune", "-", stdin=less, code=3).out.splitlines() == shown
    assert len(defined("queues", "--json").json) == 2
    defined.publish(1, 2, topic="other")
    shown.insert(1, "    2 messages in it, which nobody gets from it any more")
    assert defined("apply", "--prune", "--yes", "-", stdin=less).out.splitlines() == shown
    assert len(defined("queues", "--json").json) == 1
    assert defined("apply", "--prune", "-", stdin=less).out.startswith("nothing to do")


def test_a_file_that_leaves_out_what_is_needed_or_used_is_refused_whole(defined, definitions):
    text = definitions.replace("lease_period: 30s", "lease_period: 40s").replace("  - name: other\n", "")
    with defined.client() as client, client.subscribe("other"):
        assert "subscriptions 1" in defined("apply", "--prune", "--yes", "-", stdin=text, code=1).err
        assert client.admin.queues()["work"].lease_period == 30_000
    needed = "topics:\n  - name: new\nactions:\n  - dead_letter: {queue: work, topic: dead}\n"
    done = defined("apply", "--prune", "--yes", "-", stdin=needed, code=1)
    assert "Action 'dead-letter-work' needs what is to be removed" in done.err
    assert "new" not in defined("topics").out


def test_an_empty_file_with_prune_removes_all(defined):
    done = defined("apply", "--prune", "--yes", "-", "--json", stdin="topics: []\n")
    assert [(line["kind"], line["result"]) for line in done.json] == [
        ("queue", "removed"), ("queue", "removed"), ("action", "removed"),
    ]  # fmt: skip
    assert defined("queues", "--json").out == ""
