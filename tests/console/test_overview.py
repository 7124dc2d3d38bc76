"""The landing page: every instance with how it stands, also what cannot be read; and the same as JSON."""

from __future__ import annotations

import json
import time

import pytest
from observing import eventually

from ampsq import Action, Client, Destination, LocalQueue, Queue
from ampsq.console.examiner import Examiner
from ampsq.protocol.schema import key

HOSTILE = "<script>window.hacked = 1</script>"


def overview(asked, **more):
    answer = asked.page("/", accept="application/json", **more)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return json.loads(answer.text)


def examined(asked, name, within=60):
    """An instance's part of the overview, once it was examined."""

    def part():
        found = {each["name"]: each for each in overview(asked)["instances"]}
        return found[name]["health"] != "unknown" and found[name]

    return eventually(part, within)


@pytest.fixture
def work(client):
    client.apply(
        LocalQueue(name="work", underlying_topic="orders"),
        LocalQueue(name="dead", underlying_topic="failed"),
        Action.dead_letter("work", "failed"),
    )


@pytest.mark.usefixtures("work")
def test_an_instance_without_a_coordinator_is_told_of_with_why_and_what_mends_it(asked, client):
    found = examined(asked, client.instance)

    fault = next(each for each in found["faults"] if each["check"] == "coordinator")
    assert found["health"] == "wrong"
    assert fault["text"] == "no coordinator is at work"
    assert (fault["why"] != "", fault["mend"]) == (True, "ampsq coordinator")
    page = asked.page("/").text
    assert '<span class="badge bad">coordinator</span> no coordinator is at work</p>' in page
    assert "<code>ampsq coordinator</code>" in page


@pytest.mark.usefixtures("work")
def test_figures_are_those_of_the_instance(asked, client, coordinate, valkey):
    # given
    coordinate(valkey.url)
    bookmark = client.publish("orders", {"id": 1})
    client.ack("work", [bookmark], option="expire")
    client.publish_many("orders", [{"id": 2}, {"id": 3}])
    eventually(lambda: client.admin.queue_stats("dead").depth == 1)
    # when
    found = examined(asked.anew(), client.instance)
    # then
    eventually(lambda: (each := overview(asked)["instances"][0])["depth"] == 3 and each["dead_letters"] == 1)
    assert (found["queues"], found["links"]) == (2, [])
    assert eventually(lambda: overview(asked)["instances"][0]["per_second_in"] is not None) is True
    assert overview(asked)["instances"][0]["oldest_queue"] in {"work", "dead"}


def test_a_queue_where_messages_wait_for_nobody_leads_to_its_page(asked, client, coordinate, valkey, monkeypatch):
    # Given a console that examines without a pause
    monkeypatch.setattr("ampsq.console.examiner._EVERY", 0.0)
    monkeypatch.setattr("ampsq.console.examiner._SHARE", 0)
    coordinate(valkey.url)
    client.apply(LocalQueue(name="a/b", underlying_topic="orders"))
    client.publish("orders", {"id": 1})
    asked.page("/")

    # When more come between the two looks of an examination
    def fault_of_the_queue():
        client.publish("orders", {"id": 2})
        faults = examined(asked, client.instance)["faults"]
        return next((each for each in faults if each["check"] == "consumers"), None)

    # then
    fault = eventually(fault_of_the_queue, within=60)
    assert fault["page"] == f"/i/{client.instance}/queues/a%2Fb"


def test_an_instance_that_cannot_be_read_keeps_no_other_one_away(serve, client, valkey):
    # given
    asked = serve(valkey.url, [client.instance, "nobody"])
    # when
    found = {each["name"]: each for each in overview(asked)["instances"]}
    # then: it comes first
    assert list(found) == ["nobody", client.instance]
    assert found["nobody"]["health"] == "unreachable"
    assert "is not on this server" in found["nobody"]["unreachable"]
    assert overview(asked)["wrong"] >= 1
    assert "unreachable" in asked.page("/").text


def test_partitions_are_one_instance_with_a_row_each_and_the_hot_one_is_told(serve, client, valkey):
    # Given an instance with partitions, of which one has nearly all messages
    whole = f"{client.instance}-w"
    with Client(valkey.url, partitions=4, instance=whole) as all_of_them:
        all_of_them.apply(Queue(name="work", underlying_topic="orders"))
        all_of_them.publish_many("orders", range(1_100), batch=500, key=lambda _: "hot")
        all_of_them.publish("orders", 1, key="other")
        names = all_of_them.partitions
        depths = [each.admin.queue_stats("work").depth for each in all_of_them.clients]
    hot = depths.index(max(depths))
    asked = serve(valkey.url, [client.instance, *names])

    # When one looks
    found = examined(asked, whole)

    # Then there is one part of them, with sums and all that is wrong
    assert {each["name"] for each in overview(asked)["instances"]} == {client.instance, whole}
    assert (found["depth"], found["queues"], found["total"]) == (1_101, 1, 4)
    assert {each["name"]: each["depth"] for each in found["partitions"]} == dict(zip(names, depths, strict=True))
    assert [each["number"] for each in found["partitions"] if each["is_hot"]] == [hot]
    faults = {(each["check"], each["subject"]): each for each in found["faults"]}
    assert faults["skew", f"partition {hot}"]["text"].startswith(f"{max(depths):,} messages, ")
    assert faults["skew", f"partition {hot}"]["page"] == f"/i/{names[hot]}/queues"
    eventually(lambda: all(each["health"] == "wrong" for each in examined(asked, whole)["partitions"]), within=60)
    subjects = {each["subject"] for each in examined(asked, whole)["faults"] if each["check"] == "coordinator"}
    assert subjects == {"coordinator in all 4 partitions"}
    page = asked.page("/").text
    assert f"{whole} in 4 partitions" in page
    assert "<strong>in all 4 partitions</strong>: no coordinator is at work" in page
    assert f'<a href="/i/{names[hot]}/queues">{hot}: {names[hot]}</a>' in page


def test_a_refused_link_is_shown_on_either_side(asked, client):
    # given
    now = int(client._store.redis.time()[0]) * 1000
    client.apply(
        Queue(name="shared", underlying_topic="orders"),
        Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders"]),
    )
    said = {
        "state": "refused", "at": now + 3_600_000, "instance": "ldn-1", "source": "tok-1", "destination": "ldn-1",
        "reason": f"'orders' differs {HOSTILE}",
    }  # fmt: skip
    for name in ("out ldn-1", "in tok-1"):
        client._store.redis.hset(key(client.instance, "links"), name, json.dumps(said))
    # when
    links = overview(asked.anew())["instances"][0]["links"]
    # then
    assert [(each["direction"], each["peer"], each["state"]) for each in links] == [
        ("to", "ldn-1", "refused"), ("from", "tok-1", "refused"),
    ]  # fmt: skip
    text = asked.page("/").text
    assert text.count("&#39;orders&#39; differs &lt;script&gt;") >= 2
    assert HOSTILE not in text


def test_a_server_without_instances_says_how_one_is_made(serve, start_server):
    asked = serve(start_server("valkey").url)
    page = asked.page("/")
    assert (page.status, "ampsq apply FILE" in page.text) == (200, True)
    assert overview(asked)["instances"] == []


def test_many_instances_are_shown_a_page_at_a_time(serve, valkey):
    asked = serve(valkey.url, [f"none-{number:02}" for number in range(60)])
    first, last = overview(asked), json.loads(asked.page("/?page=9", accept="application/json").text)
    assert (first["number"], first["pages"], len(first["instances"])) == (60, 3, 25)
    assert (last["page"], [each["name"] for each in last["instances"]][-1]) == (3, "none-59")
    assert 'rel="next"' in asked.page("/").text


def test_while_nobody_looks_nothing_is_examined():
    class NoObserver:
        def instances(self):
            raise AssertionError("nobody looks")

    examiner = Examiner(NoObserver())
    examiner.start()
    # Two rounds of its thread
    time.sleep(0.6)
    examiner.stop()
    assert (examiner.number, examiner.found("x")) == (0, None)


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("application/json;q=0.5, text/html", False),
        ("text/html;q=0.5, application/json", True),
        ("*/*", False),
        ("", False),
        ("application/json;q=zero", False),
    ],
)
def test_json_is_for_those_who_would_rather_have_it(asked, accept, is_json):
    answer = asked.page("/", accept=accept)
    assert (answer.headers["content-type"] == "application/json") == is_json


@pytest.mark.usefixtures("work")
def test_every_page_is_told_as_json(asked, client):
    # given
    bookmark = client.publish("orders", b'{"id": "\\ud800 alone \xe2\x80\xae"}', headers={"from": HOSTILE})
    client.publish("orders", b"\xff\x00")
    of = f"/i/{client.instance}"

    def told(path):
        answer = asked.anew().page(path, accept="application/json")
        assert answer.status == 200, answer.text
        # Nothing of it acts on a terminal, and nothing of it is a page
        assert "\u202e" not in answer.text
        assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == (
            "application/json", "nosniff",
        )  # fmt: skip
        return json.loads(answer.text)

    # then
    (dead, queue) = told(f"{of}/queues")["queues"]
    assert (dead["name"], queue["name"], queue["depth"], queue["paused"]) == ("dead", "work", 2, False)
    page = told(f"{of}/queues/work")
    assert [each["body"] for each in page["messages"]["waiting"]] == [
        '{"id": "\\ud800 alone \u202e"}', {"base64": "/wA="},
    ]  # fmt: skip
    assert page["history"] == {"range": "15m", "samples": []}
    assert told(f"{of}/queues/work?range=7d")["history"]["range"] == "7d"
    assert told(f"{of}/queues/work?range=%3Cscript%3E")["history"]["range"] == "15m"
    assert (page["next"]["reason"], page["definition"]["underlying_topic"]) != ("", "")
    assert page["messages"]["waiting"][0]["headers"] == {"from": HOSTILE}
    message = told(f"{of}/messages?bookmark={bookmark}&queue=work")
    assert (message["bookmark"], message["explained"]["queue"]) == (str(bookmark), "work")
    assert told(f"{of}/dead-letters")["queues"][0]["queue"] == "dead"
    assert told(f"{of}/dead-letters/dead") == {"letters": [], "more": False, "wrong": ""}
    assert told(f"{of}/replication")["links"] == []
    assert told(f"{of}/actions")["actions"][0]["name"] == "dead-letter-work"
    assert told(f"{of}/actions/dead-letter-work")["events"] == []
    client.publish("orders", {"id": 7})
    question = told(f"{of}/changes/expire?queue=work&filter=/id+%3D+7")
    assert question["messages"] == 1
    assert asked.console.access.word not in json.dumps(question)


def test_what_is_wrong_is_told_as_json_too(asked, client):
    answer = asked.page(f"/i/{client.instance}/queues/nobody", accept="application/json")
    assert (answer.status, "nobody" in json.loads(answer.text)["error"]) == (404, True)


@pytest.mark.usefixtures("work")
def test_a_program_shows_the_token_in_a_header_and_may_look_and_change_nothing(asked, client):
    bearer = {"authorization": f"Bearer {asked.console.access.token}", "accept": "application/json"}
    assert asked(f"/i/{client.instance}/queues", **bearer).status == 200
    assert asked("/", authorization="Bearer wrong").status == 401
    change = f"/i/{client.instance}/changes/pause"
    form = {"csrf": asked.console.access.word, "queue": "work"}
    assert asked(change, form=form, origin=f"http://{asked.host}", **bearer).status == 401


def test_another_instance_of_the_server_is_a_step_away(serve, client, valkey):
    with Client(valkey.url, instance=f"{client.instance}-2"):
        asked = serve(valkey.url, [client.instance, f"{client.instance}-2"])
        asked.page("/")
        text = asked.page(f"/i/{client.instance}/queues").text
    assert f'href="/i/{client.instance}-2/queues"' in text
