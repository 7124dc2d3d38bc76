"""apply, topics and queues."""

from __future__ import annotations

import re
from pathlib import Path

from observing import eventually
from programs import at_terminal

import ampsq
from ampsq.base.formatting import size_text
from ampsq.cli.output import table


def test_apply_tells_what_is_new_changed_and_unchanged(run, definitions):
    (run.folder / "q.yaml").write_text(definitions)
    assert run("apply", "--yes", "q.yaml").out.splitlines() == [
        "+ topic orders",
        "+ queue work",
        "    underlying_topic: 'orders'",
        "    lease_period: 30s",
        "    max_per_subscription_backlog: 10",
        "+ queue other",
        "+ action dead-letter-work",
        '    on: [{"expire": {"topic": "work"}}]',
        '    do: [{"publish": {"topic": "dead"}}]',
        "4 new, 0 unchanged",
    ]
    changed = run("apply", "--yes", "-", "--json", stdin=definitions.replace("30s", "40s"))
    assert changed.json == [
        {"kind": "topic", "name": "orders", "result": "unchanged"},
        {
            "kind": "queue",
            "name": "work",
            "result": "changed",
            "changes": {"lease_period": {"from": "30s", "to": "40s"}},
        },
        {"kind": "queue", "name": "other", "result": "unchanged"},
        {"kind": "action", "name": "dead-letter-work", "result": "unchanged"},
    ]


def test_apply_tells_what_changed_element_by_element_and_with_dry_run_does_nothing(defined):
    text = "queues:\n  - {name: work, underlying_topic: orders, priority: /p, leasing: strict}\n  - name: next\n"
    expected = [
        "~ queue work",
        "    lease_period: 30s -> none",
        "    max_per_subscription_backlog: 10 -> 1",
        "    leasing: 'sublet' -> 'strict'",
        "    priority: none -> '/p'",
        "+ queue next",
        "1 new, 1 changed, 0 unchanged",
    ]
    dry = defined("apply", "--yes", "-", "--dry-run", stdin=text)
    assert (dry.out.splitlines(), dry.err) == (expected, "Note: a dry run: nothing was done\n")
    with defined.client() as client:
        assert client.admin.queues()["work"].priority is None
        assert "next" not in client.admin.queues()
    assert defined("apply", "--yes", "-", stdin=text).out.splitlines() == expected
    again = "nothing to do: 2 definitions are as in the file\n"
    assert defined("apply", "-", "--dry-run", stdin=text).out == again
    # Then nobody is asked, either
    assert defined("apply", "-", stdin=text).out == again


def test_a_dry_run_refuses_what_apply_refuses(defined):
    done = defined(
        "apply", "--yes", "-", "--dry-run", stdin="queues:\n  - {name: work, underlying_topic: elsewhere}", code=1
    )
    assert "Refused" in done.err
    done = defined(
        "apply", "--yes", "-", "--dry-run", stdin="actions:\n  - dead_letter: {queue: wrok, topic: dead}", code=1
    )
    assert "'wrok' is no queue; did you mean 'work'? (action 'dead-letter-wrok')" in done.err


def test_an_action_on_a_queue_that_is_not_there_names_it_also_where_there_is_no_instance_yet(run):
    text = "queues:\n  - {name: work}\nactions:\n  - dead_letter: {queue: wrok, topic: dead}"
    for name in ("new", "newer"):
        done = run("--instance", name, "apply", "--yes", "-", stdin=text, code=1)
        assert "<text>:4: Action 'dead-letter-wrok': 'wrok' is no queue; did you mean 'work'?" in done.err
    alone = text.partition("actions:")[2]
    done = run("--instance", "new", "apply", "--yes", "-", stdin=f"actions:{alone}", code=1)
    assert "'wrok' is no queue; there is no queue yet" in done.err


NAMED = "Javascript-QuickStart-Demo"
AMPS = Path(__file__).resolve().parents[1] / "data" / "amps"


def test_a_configuration_of_amps_is_checked_and_applied_as_it_is_to_the_instance_that_it_names(run):
    file = str(AMPS / "quickstart.xml")
    done = run("config", "check", file)
    assert done.out == f"{file}: 6 definitions, nothing wrong\n"
    told = f"{file}:4: AMPSConfig/Name: 'Javascript QuickStart Demo' is {NAMED!r} here"
    assert told in done.err
    done = run("apply", "--yes", file, code=1)
    assert done.err.endswith(f"or apply it to {NAMED!r}: --instance {NAMED}\n")
    done = run("--instance", NAMED, "apply", "--yes", file)
    assert told in done.err
    lines = [f"~ instance {NAMED}", "    label: none -> 'Javascript QuickStart Demo'"]
    assert done.out.splitlines()[:2] == lines
    assert "nothing to do: 6 definitions" in run("--instance", NAMED, "apply", "--yes", file).out
    exported = run("--instance", NAMED, "config", "export").out
    assert f"name: {NAMED}\nlabel: Javascript QuickStart Demo\n" in exported


def test_apply_refuses_a_file_whole(run, definitions):
    done = run("apply", "--yes", "-", stdin=definitions.replace("lease_period", "leaseperiod"), code=1)
    assert "did you mean 'lease_period'?" in done.err
    assert done.out == ""
    assert run("topics", "--json").out == ""


def test_apply_explains_what_cannot_change(defined):
    done = defined("apply", "--yes", "-", stdin="queues:\n  - {name: work, underlying_topic: elsewhere}", code=1)
    assert "underlying_topic" in done.err
    assert "Refused" in done.err


def test_what_the_server_says_no_to_has_its_place_in_the_file_too(defined):
    (defined.folder / "q.yaml").write_text(
        "queues:\n  - name: new\n  - name: work\n    lease_period: 5m\n    underlying_topic: elsewhere\n"
    )
    for options in ([], ["--dry-run"]):
        done = defined("apply", "--yes", "q.yaml", *options, code=1)
        assert done.err.startswith(
            "Error: q.yaml:5: Queue 'work': underlying_topic: 'orders' cannot become 'elsewhere'"
        )
    (defined.folder / "a.yaml").write_text(
        "queues:\n  - name: new\nactions:\n  - dead_letter: {queue: wrok, topic: d}\n"
    )
    done = defined("apply", "--yes", "a.yaml", code=1)
    assert done.err.startswith("Error: a.yaml:4: Action 'dead-letter-wrok': 'wrok' is no queue; did you mean 'work'?")
    (defined.folder / "o.yaml").write_text("queues:\n  - name: once\n    semantics: at-most-once\n")
    assert defined("apply", "--yes", "o.yaml", code=1).err.startswith(
        "Error: o.yaml:3: Queue 'once': semantics: 'at-most-once'"
    )


def test_plain_numbers_are_told_as_the_times_that_they_were_read_as(run):
    text = "queues:\n  - {name: work, lease_period: 90, expiration: 1h, redelivery_delay: 5400}\n"
    new = run("apply", "--yes", "-", stdin=text).out.splitlines()
    assert new[1:4] == ["    lease_period: 1m30s", "    expiration: 1h", "    redelivery_delay: 1h30m"]
    changed = run("apply", "--yes", "-", stdin=text.replace("90", "120"))
    assert changed.out.splitlines()[:2] == ["~ queue work", "    lease_period: 1m30s -> 2m"]
    assert "lease_period      1m30s" not in run("queues", "work").out
    assert "redelivery_delay  1h30m" in run("queues", "work").out


def test_a_longest_delay_without_a_delay_is_refused_unless_an_address_setting_has_one(run):
    text = "queues:\n  - {name: work, max_redelivery_delay: 1m}\n"
    done = run("apply", "--yes", "-", stdin=text, code=1)
    assert (
        ":2: Queue 'work': max_redelivery_delay: 1m is of no effect without redelivery_delay, which is 0s" in done.err
    )
    setting = "address_settings:\n  - {match: '#', redelivery_delay: 5s}\n"
    assert "+ queue work" in run("apply", "--yes", "-", stdin=setting + text).out


def test_no_error_of_a_file_or_an_option_speaks_python(run):
    words = ("timedelta", "datetime", "None", "Input should", "<class", "pydantic")
    wrong = "queues:\n  - {name: w, lease_period: %s, recovery_point: %s, max_cancels: %s, filter: %s, leasing: %s}\n"
    for value in ("''", "x", "[]", "{}", "[{}]", "-1", "5x"):
        told = run("apply", "--yes", "-", stdin=wrong % ((value,) * 5), code=1).err
        assert told.count("<text>:2: Queue 'w': ") == 5
        assert not [word for word in words if word in told], told
    for options in (
        ["publish", "o", "1", "--delay", "x"],
        ["publish", "o", "1", "--at", "x"],
        ["trim", "o", "--age", "x"],
    ):
        told = run(*options, code=2).err
        assert not [word for word in words if word in told], told


def test_apply_of_no_file_and_of_no_yaml(run):
    assert "none.yaml: no such file" in run("apply", "--yes", "none.yaml", code=1).err
    assert "not YAML" in run("apply", "--yes", "-", stdin="queues: [", code=1).err
    assert "Missing argument 'FILE'" in run("apply", "--yes", code=2).err


def test_a_file_says_where_it_is_applied_unless_the_command_does(run, served):
    named = f"name: {run.environment['AMPSQ_INSTANCE']}-b\nurl: {served.url}\nqueues:\n  - name: work\n"
    (run.folder / "b.yaml").write_text(named)
    assert "this is the instance 'i" in run("apply", "--yes", "b.yaml", code=1).err
    run.environment.pop("AMPSQ_INSTANCE")
    run.environment.pop("AMPSQ_URL")
    # The instance itself is as it is said to be
    assert run("apply", "--yes", "b.yaml").out.splitlines() == ["+ queue work", "1 new, 1 unchanged"]
    assert not (run.folder / ".ampsq").exists()


def test_topics(defined):
    bookmark = defined.publish({"id": 1}, {"id": 2})[1]
    lines = defined("topics").out.splitlines()
    header = ["topic", "messages", "memory", "queues", "key", "records", "retention", "pinned", "by", "last"]
    assert lines[0].split() == header
    orders = next(line.split() for line in lines if line.startswith("orders"))
    assert (*orders[:2], *orders[3:]) == ("orders", "2", "work", "-", "-", "-", "-", bookmark)
    facts = next(each for each in defined("topics", "--json").json if each["topic"] == "orders")
    assert (facts["messages"], facts["last"], facts["queues"], facts["retention"]) == (2, bookmark, ["work"], {})
    assert orders[2] == size_text(facts["bytes"])
    assert facts["bytes"] > 100


def test_one_topic(run):
    text = "topics:\n  - {name: orders, retention_age: 7d, retention_size: 10MB}\nqueues:\n  - name: orders\n"
    assert run("apply", "--yes", "-", stdin=text + "  - {name: work, underlying_topic: orders}\n").out
    first, last = run.publish(1, 2)
    shown = dict(line.split(maxsplit=1) for line in run("topics", "orders").out.splitlines())
    assert shown | {"memory": "?"} == {
        "topic": "orders", "messages": "2", "memory": "?", "first": first, "last": last, "queues": "orders, work",
        "retention_age": "7d", "retention_size": "10MB",
    }  # fmt: skip
    assert run("topics", "orders", "--json").json[0]["retention"] == {
        "retention_age": "1w",
        "retention_size": 10_485_760,
    }
    assert "age 7d, size 10MB" in run("topics").out
    assert "did you mean 'orders'?" in run("topics", "ordres", code=1).err
    assert "'work' is a queue over 'orders'; ampsq queues work shows it" in run("topics", "work", code=1).err


def test_trim(run):
    # The coordinator that runs beside trims by the definition: what the commands remove is what they are told.
    topic = "topics:\n  - {name: orders, retention_age: 2d, retention_unsettled: keep}\n"
    assert run("apply", "--yes", "-", stdin=topic + "queues:\n  - {name: work, underlying_topic: orders}\n").out
    first = run("publish", "orders", "1").out.strip()
    assert (
        "orders"
        in run("apply", "--yes", "-", "--dry-run", stdin="topics:\n  - {name: orders, retention_age: 7d}\n").out
    )
    dry = run("trim", "orders", "--age", "0s", "--dry-run").out
    assert dry.splitlines() == [
        "0 messages would be removed, about 0B",
        f"1 message or more beyond that is still needed: the first, {first}, by queue work, where it is waiting",
    ]
    run("ack", "work", first)
    run("subscribe", "work", "--timeout", "0.1")
    assert run("trim", "orders").out == "0 messages removed, about 0B\n"
    done = run("trim", "orders", "--age", "0s", "--yes", "--json").json[0]
    assert (done["topic"], done["removed"], done["kept"], done["pinned_by"]) == ("orders", 1, 0, None)
    assert "'order': no such topic" in run("trim", "order", code=1).err
    assert "is not an interval" in run("trim", "orders", "--age", "x", code=2).err
    assert "age 2d" in run("topics").out


def test_queues(defined):
    defined.publish(1, 2, 3)
    heads, other, work = (line.split() for line in defined("queues").out.splitlines())
    assert " ".join(heads) == (
        "name depth waiting ready held leased delayed subscriptions delivered acknowledged expired"
    )
    assert work == ["work", "3", "3", "0", "0", "0", "0", "0", "0", "0", "0"]
    assert other[0] == "other"
    figures = defined("queues", "--json").json[1]
    assert list(figures)[:2] == ["name", "depth"]
    assert figures["name"] == "work"
    assert figures["depth"] == figures["waiting"] == 3


def test_the_list_has_what_few_queues_have_where_one_has_some(run):
    run("apply", "--yes", "-", stdin="queues:\n  - {name: ring, ring_size: 1}\n  - name: a-queue-of-a-long-name\n")
    assert "scheduled" not in run("queues").out
    run.publish(1, 2, 3, topic="ring")
    with run.client() as client:
        client.publish("a-queue-of-a-long-name", 1, delay="1h")
        eventually(lambda: client.admin.queue_stats("a-queue-of-a-long-name").scheduled == 1)
    head, long, ring = (line.split() for line in run("queues").out.splitlines())
    assert head[-2:] == ["scheduled", "evicted"]
    assert (long[-2:], ring[-2:]) == (["1", "0"], ["0", "2"])
    narrow = at_terminal(run, 80, "queues").replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert max(map(len, narrow)) <= 80
    assert narrow[0].split() == [
        "name", "depth", "waiting", "ready", "subs", "delivered", "acked", "expired", "sched", "evict",
    ]  # fmt: skip
    # Numbers are never cut: where a terminal has no room for them, it has to break the lines
    assert at_terminal(run, 40, "queues").split()[: len(narrow[0].split())] == narrow[0].split()


def test_one_queue(defined):
    defined.publish(1)
    definition, figures = defined("queues", "work").out.split("\n\n")
    assert [line.split() for line in definition.splitlines()] == [
        ["name", "work"],
        ["underlying_topic", "orders"],
        ["lease_period", "30s"],
        ["max_per_subscription_backlog", "10"],
    ]
    shown = dict(line.split(maxsplit=1) for line in figures.splitlines())
    assert shown["depth"] == "1"
    assert shown["unread"].split() == ["of", "orders", "1"]
    (figures,) = defined("queues", "work", "--json").json
    assert figures["definition"]["lease_period"] == "30s"
    assert figures["topics"] == {"orders": 1}


def test_one_queue_tells_how_long_its_messages_took(defined):
    assert re.search(
        r"^delivery +nothing measured in the last 15 minutes$", defined("queues", "work").out, re.MULTILINE
    )
    defined.publish(1)
    defined("subscribe", "work", "--ack", "--count", "1", "--timeout", "30")
    shown = defined("queues", "work").out
    (figures,) = defined("queues", "work", "--json").json
    for name in ("delivery", "handling"):
        told = rf"^{name} +p50 .*, p95 .*, p99 .* \(1 message measured in the last 15 minutes\)$"
        assert re.search(told, shown, re.MULTILINE)
    assert figures["latencies"]["over"] == "15m"
    assert [figures["latencies"][name]["samples"] for name in ("delivery", "handling")] == [1, 1]


def test_an_unknown_queue(defined):
    assert "did you mean 'work'?" in defined("queues", "wrok", code=1).err
    assert "Error: 'zzz' is no queue" in defined("queues", "zzz", "--json", code=1).err
    assert "'orders' is a topic; its queues are 'work'" in defined("queues", "orders", code=1).err
    # As in `ampsq queues "$QUEUE"` of a variable that is not set
    assert "'' is no queue" in defined("queues", "", code=1).err


def test_nothing_yet_is_said_on_standard_error(run):
    assert run("queues").out == run("topics").out == run("queues", "--json").out == ""
    assert "apply" in run("queues").err


def test_without_rich_tables_are_plain(capsys):
    table(["name", "depth"], [["work", 12], ["other", None]])
    assert capsys.readouterr().out == "name   depth\nwork   12\nother  -\n"


def test_a_closed_pipe_ends_quietly(defined):
    process = defined.start("queues")
    process.stdout.close()
    assert process.wait(20) == 0
    assert process.stderr.read() == ""


def test_topics_leave_out_what_none_has_where_the_terminal_is_narrow(run, tmp_path):
    file = tmp_path / "wide.yaml"
    topics = ", ".join(f"{{name: orders-of-very-many-customers-of-ours-{n}}}" for n in range(3))
    file.write_text(
        f"topics: [{topics}]\nqueues: [{{name: work, underlying_topic: orders-of-very-many-customers-of-ours-0}}]"
    )
    run("apply", "--yes", str(file))

    narrow = at_terminal(run, 80, "topics").replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert narrow[0].split() == ["topic", "msgs", "memory", "queues", "key", "recs", "last"]
    assert max(map(len, narrow)) <= 80
    assert "retention" in at_terminal(run, 200, "topics")


def test_at_a_terminal_a_table_fits(defined):
    wide = at_terminal(defined, 120, "queues")
    with defined.client() as client:
        client.apply(ampsq.Queue(name="a-queue-of-a-long-name"))
    narrow = at_terminal(defined, 80, "queues")
    assert "delivered" in narrow
    assert "acknowledged" in wide
    assert "\x1b[1m" in wide
    assert "acked" in narrow
    assert max(map(len, narrow.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 80


BROKER = """\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <journal-type>NIO</journal-type>
    <address-settings>
      <address-setting match="ring.#">
        <default-ring-size>3</default-ring-size>
        <redelivery-delay>500</redelivery-delay>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="ring.my"><anycast><queue name="ring.my"/></anycast></address>
    </addresses>
  </core>
</configuration>
"""


def test_a_broker_xml_is_applied_as_it_is_and_what_is_not_acted_on_is_named(run):
    (run.folder / "broker.xml").write_text(BROKER)
    done = run("apply", "--yes", "broker.xml")
    assert [line for line in done.out.splitlines() if line[0] == "+"] == ["+ address setting ring.#", "+ queue ring.my"]
    assert "WARNING: broker.xml:4: core/journal-type is not acted on" in done.err
    shown = run("queues", "ring.my").out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in shown if "(address settings)" in line] == [
        "500ms (address settings)", "5s (address settings)", "3 (address settings)",
    ]  # fmt: skip
    (found,) = run("queues", "ring.my", "--json").json
    assert found["from_address_settings"] == {
        "redelivery_delay": "500ms", "max_redelivery_delay": "5s", "ring_size": 3,
    }  # fmt: skip
    assert found["definition"]["ring_size"] is None
    for number in range(5):
        run.publish(number, topic="ring.my")
    assert run("sow", "ring.my", "--count").out == "3\n"
    # From standard input, and changed
    again = run("apply", "--yes", "-", stdin=BROKER.replace(">500<", ">1000<"))
    assert again.out.splitlines() == [
        "~ address setting ring.#",
        "    redelivery_delay: 500ms -> 1s",
        "1 changed, 1 unchanged",
    ]


def test_settings_of_a_file_make_queues_on_first_use(run):
    text = "address_settings:\n  - {match: ring.#, default_ring_size: 2, auto_create_queues: true}\n"
    assert run("apply", "--yes", "-", "--json", stdin=text).json == [
        {"kind": "address setting", "name": "ring.#", "result": "new"}
    ]
    run.publish(1, 2, 3, topic="ring.new")
    assert [line["data"] for line in run("sow", "ring.new", "--json").json] == [2, 3]
