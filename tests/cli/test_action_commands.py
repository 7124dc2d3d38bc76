"""actions: the list, what failed, retry and drop; what a coordinator is allowed."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from observing import eventually

from ampsq import Action, Do, Topic
from ampsq.coordinator.actions import Actions
from ampsq.protocol.schema import key


@pytest.fixture
def failing(run):
    """An action that failed for three messages: its target is no stream."""
    with run.client() as client:
        client.apply(Topic(name="orders"), Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="target")))
        client._store.redis.set(key(client.instance, "log", "target"), "planted")
        client.publish_many("orders", [{"id": 1}, {"id": 2}, b"\xff"])
        while not Actions().run_once(client._store):
            pass
        # The server's own coordinator tries again much later.
        retries = key(client.instance, "retries", "copy")
        client._store.redis.zadd(retries, dict.fromkeys((1, 2, 3), 1e15), xx=True)
    return run


def test_actions_are_listed_with_what_they_have_done(defined):
    assert defined("actions").out.splitlines() == [
        "name              on           do       waiting  done  failed  error",
        "dead-letter-work  expire work  publish        0     0       0  -",
    ]
    (state,) = defined("actions", "--json").json
    assert state == {
        "name": "dead-letter-work",
        "waiting": 0,
        "done": 0,
        "failed": 0,
        "error": "",
        "sources": {"expire work": 0},
        "definition": {
            "name": "dead-letter-work",
            "on": [{"expire": {"topic": "work"}}],
            "do": [{"publish": {"topic": "dead"}}],
        },
    }


def test_without_actions_a_note_says_how_to_define_some(run):
    done = run("actions")
    assert (done.out, done.err) == (
        "",
        "Note: no actions yet; ampsq apply FILE defines them (docs/actions.md shows some)\n",
    )


def test_what_failed_is_listed(failing):
    head, first, _, third, _, whole = failing("actions", "failed", "copy").out.splitlines()
    assert head.split() == ["event", "source", "step", "tries", "next", "error", "data"]
    assert first.split()[:5] == ["1", "publish", "orders", "publish", "1"]
    assert "WRONGTYPE" in first
    assert "holding the wrong kind of value" in whole
    assert '{"id":1}' in first
    assert "\\xff" in third
    events = failing("actions", "failed", "copy", "--json").json
    assert [(event["event"], event["what"], event["variables"]["AMPS_DATA"]) for event in events] == [
        (1, "publish", '{"id":1}'),
        (2, "publish", '{"id":2}'),
        (3, "publish", "\\xff"),
    ]
    (state,) = failing("actions", "--json").json
    assert (state["failed"], state["waiting"]) == (3, 0)
    assert "WRONGTYPE" in state["error"]


def test_all_that_failed_is_dropped_only_when_somebody_says_so(failing):
    assert failing("actions", "drop", "copy", "--all", "--dry-run").out == "3 would be dropped\n"
    assert "allowed: --yes" in failing("actions", "drop", "copy", "--all", code=3).err
    assert failing("actions", "drop", "copy", "--event", "2", "--dry-run", "--json").json[0]["would_be_dropped"] == 1
    assert failing("actions", "drop", "copy", "--all", "--yes").out == "3 dropped\n"


def test_what_failed_is_retried_or_dropped(failing):
    assert failing("actions", "drop", "copy", "--event", "2").out == "1 dropped\n"
    with failing.client() as client:
        client._store.redis.delete(key(client.instance, "log", "target"))
        done = failing("actions", "retry", "copy", "--event", "1", "--event", "2", code=1)
        assert done.out == "1 retried\n"
        assert done.err.startswith("Error: event 2 of copy did not fail, or is done; failed are 1, ")
        eventually(lambda: client.admin.topics()["target"].messages == 1)
        assert failing("actions", "retry", "copy", "--all", "--json").json == [{"action": "copy", "retried": 1}]
        eventually(lambda: client.admin.topics()["target"].messages == 2)
        eventually(lambda: not client.admin.failed_events("copy"))
    done = failing("actions", "failed", "copy")
    assert (done.out, done.err) == ("", "Note: nothing failed of copy\n")
    assert failing("actions", "drop", "copy", "--all").out == "0 dropped\n"


def test_one_action_is_shown_with_its_definition_and_figures(failing):
    shown = dict(line.split(maxsplit=1) for line in failing("actions", "copy").out.splitlines())
    assert (shown["name"], shown["on"]) == ("copy", '{"publish": {"topic": "orders"}}')
    assert int(shown["failed"]) > 0
    assert shown["last"].startswith("error")
    assert failing("actions", "show", "copy", "--json").json == failing("actions", "--json").json
    assert failing("actions", "copy", "--json").json[0]["definition"]["name"] == "copy"


def test_wrong_names_and_calls_are_explained(failing):
    assert "did you mean 'copy'?" in failing("actions", "cpy", code=1).err
    assert "no such command 'retyr'; did you mean 'retry'?" in failing("actions", "retyr", "copy", code=2).err
    assert "exclude each other" in failing("actions", "retry", "copy", "--all", "--event", "1", code=2).err
    assert "did you mean 'copy'?" in failing("actions", "failed", "cpy", code=1).err
    assert "--event N" in failing("actions", "drop", "copy", code=2).err
    assert "--event N" in failing("actions", "drop", "copy", "--all", "--event", "1", code=2).err
    assert "Examples" in failing("actions", "retry", "--help").out


class _Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        self.send_response(204 if self.path.startswith("/ok") else 302)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hook():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hook) as server:
        server.got = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_coordinator_calls_the_webhooks_that_it_may_and_no_others(run, hook):
    # Given messages that choose where they are sent
    base = f"http://127.0.0.1:{hook.server_port}"
    with run.client() as client:
        client.apply(
            Topic(name="orders"),
            Action(
                name="tell",
                on={"publish": "orders"},
                do=[Do.extract(value="TO=/to"), Do.webhook(url=base + "{{TO}}", data='{"got": {{AMPS_DATA}}}')],
            ),
        )
        targets = ["/ok/1", "/ok/../secret", "/okay", "/ok", "/ok/%2e%2e/secret", "@127.0.0.1/ok/"]
        client.publish_many("orders", [{"to": to} for to in targets])
        # When a coordinator may call what is below one address
        run.start("coordinator", "--instance", client.instance, "--allow-webhooks", base + "/ok")
        eventually(
            lambda: client.admin.actions()["tell"].done == 2 and len(client.admin.failed_events("tell")) == 4, within=25
        )
        # Then it calls that and nothing else, and what it does not call is seen
        assert [(path, json.loads(body)["got"]["to"]) for path, _, body in hook.got] == [
            ("/ok/1", "/ok/1"),
            ("/ok", "/ok"),
        ]
        assert {kind for _, kind, _ in hook.got} == {"application/json"}
        errors = [event.error for event in client.admin.failed_events("tell")]
        assert len(errors) == 4
        assert all("--allow-webhooks" in error for error in errors)


def test_a_webhook_s_redirection_is_a_failure(run, hook):
    base = f"http://127.0.0.1:{hook.server_port}"
    with run.client() as client:
        client.apply(
            Topic(name="orders"), Action(name="tell", on={"publish": "orders"}, do=Do.webhook(url=base + "/moved"))
        )
        client.publish("orders", 1)
        run.start("coordinator", "--instance", client.instance, "--allow-webhooks", base)
        eventually(lambda: client.admin.failed_events("tell"), within=25)
        eventually(lambda: "302" in client.admin.failed_events("tell")[0].error, within=25)
        assert {path for path, _, _ in hook.got} == {"/moved"}


def test_the_publisher_of_an_action_whose_events_all_failed_has_no_time(run):
    # Given an action that publishes into a topic with a key what has none
    with run.client() as client:
        client.apply(
            Topic(name="orders"),
            Topic(name="records", key=["/id"]),
            Action(name="copy", on={"publish": "orders"}, do=Do.publish(topic="records", data="{{AMPS_DATA}}")),
        )
        client.publish("orders", "no object")
        run.start("coordinator", "--instance", client.instance)
        eventually(lambda: client.admin.failed_events("copy"), within=25)

    (told,) = run("publishers", "--json").json
    (_, row) = run("publishers").out.splitlines()

    assert (told["name"].startswith("action:copy"), told["at"], told["bookmark"]) == (True, None, None)
    assert "1970" not in row
    assert row.split()[-3:-1] == ["-", "-"]
