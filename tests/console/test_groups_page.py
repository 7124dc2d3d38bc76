"""The page of a queue's groups: which stand still, of which most waits, what is unread, and letting one go on."""

from __future__ import annotations

import json

import pytest
from observing import eventually

from ampsq import Action, LocalQueue


@pytest.fixture
def grouped(client):
    """Group `a` waits behind one that is leased; group `b` was stopped when a message of it was given up."""
    client.apply(
        LocalQueue(
            name="mail/out", underlying_topic="letters", group_by="/g", on_group_failure="stop",
            max_per_subscription_backlog=9,
        )
    )  # fmt: skip
    client.publish_many("letters", [{"g": group} for group in "abaab"])
    with client.subscribe("mail/out", max_backlog=9) as messages:
        first, second = messages.get(timeout="30s"), messages.get(timeout="30s")
        assert (first.group, second.group) == ("a", "b")
        second.expire()
        messages.flush()
        yield f"/i/{client.instance}/groups/mail%2Fout"


def facts(asked, path):
    answer = asked.page(path, accept="application/json")
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def test_groups_that_stand_still_come_first_with_what_waits_since_when_and_what_is_leased(asked, grouped):
    found = facts(asked, grouped)

    assert [(each["group"], each["leased"], each["waiting"], each["failed"]) for each in found["groups"]] == [
        ("b", 0, 1, 0),
        ("a", 1, 2, 0),
    ]
    assert [each["stopped"] is None for each in found["groups"]] == [False, True]
    assert all(each["oldest"] for each in found["groups"])
    assert (found["number"], found["is_all"], found["unread"]) == (2, True, 0)
    page = asked.page(grouped).text
    assert "2 groups with messages." in page
    assert ">stopped</span> for " in page
    assert "Change it" in page


def test_the_sentence_of_the_next_message_names_its_group(asked, client, grouped):
    sentence = facts(asked, grouped)["next"]["sentence"]
    assert sentence.startswith("The next message waits because its group 'a' has 1 of 1 leased, by ")
    assert "its group &#39;a&#39; has 1 of 1 leased" in asked.page(grouped).text
    client.admin.pause_queue("mail/out")
    sentence = facts(asked, grouped)["next"]["sentence"]
    assert sentence.startswith("The next message, of group 'a', waits because the queue is paused")


@pytest.mark.usefixtures("grouped")
def test_a_queue_s_json_has_the_numbers_of_its_groups(asked, client):
    client.apply(LocalQueue(name="plain", underlying_topic="letters"))
    queues = facts(asked.anew(), f"/i/{client.instance}/queues")["queues"]
    groups = {each["name"]: each["groups"] for each in queues}
    assert groups["plain"] is None
    names = ("number", "leased", "on_hold", "stopped", "paused")
    assert [groups["mail/out"][name] for name in names] == [2, 1, 0, 1, 0]
    assert groups["mail/out"]["oldest"] > 0
    assert groups["mail/out"]["age"] >= 0


def test_fewer_groups_are_shown_where_that_is_asked_for_and_the_rest_is_counted(asked, grouped):
    found = facts(asked, f"{grouped}?limit=1")
    assert ([each["group"] for each in found["groups"]], found["number"]) == (["b"], 2)
    page = asked.page(f"{grouped}?limit=1").text
    assert "2 groups with messages, of which 1 is shown" in page
    assert 'href="?limit=4"' in page


def test_what_is_unread_is_said_to_be_in_no_group_yet(asked, client):
    client.apply(LocalQueue(name="mail", underlying_topic="letters", group_by="/g"))
    client.publish_many("letters", [{"g": group} for group in "abc"])
    path = f"/i/{client.instance}/groups/mail"
    assert (facts(asked, path)["unread"], facts(asked, path)["groups"]) == (3, [])
    page = asked.page(path).text
    assert "3 messages are unread, and in no group yet" in page
    assert "Nothing of the queue is in a group now." in page


def test_a_group_is_released_after_a_question_that_counts_what_waits(asked, client, grouped):
    change = f"/i/{client.instance}/changes/release-group"
    assert f"{change}?queue=mail%2Fout&amp;group=b" in asked.page(grouped).text
    question = asked.page(f"{change}?queue=mail/out&group=b")
    assert "<strong>1 message</strong> of it now, which may be delivered." in question.text
    assert facts(asked, grouped)["groups"][0]["stopped"]

    done = asked.change(change, queue="mail/out", group="b", back=grouped)

    assert (done.status, done.headers["location"].partition("?")[0]) == (303, grouped)
    assert "group b of mail/out goes on" in asked.page(done.headers["location"]).text
    assert [each["stopped"] for each in facts(asked, grouped)["groups"]] == [None, None]
    again = asked.change(change, queue="mail/out", group="b", back=grouped)
    assert "was neither held nor stopped" in asked.page(again.headers["location"]).text


def test_a_group_is_paused_and_resumed_after_a_question(asked, client, grouped):
    pause, resume = (f"/i/{client.instance}/changes/{name}-group" for name in ("pause", "resume"))
    assert f"{pause}?queue=mail%2Fout&amp;group=a" in asked.page(grouped).text
    question = asked.page(f"{pause}?queue=mail/out&group=a").text
    assert "<strong>2 messages</strong> of it now; what waits stays where it is." in question

    done = asked.change(pause, queue="mail/out", group="a", back=grouped)

    assert "group a of mail/out was paused" in asked.page(done.headers["location"]).text
    row = next(each for each in facts(asked, grouped)["groups"] if each["group"] == "a")
    assert row["paused"]
    assert row["paused_by"]
    page = asked.anew().page(grouped).text
    assert ">paused</span> for " in page
    assert f"{resume}?queue=mail%2Fout&amp;group=a" in page
    assert f"{pause}?queue=mail%2Fout&amp;group=a" not in page
    asked.change(resume, queue="mail/out", group="a", back=grouped)
    assert [each["paused"] for each in facts(asked, grouped)["groups"]] == [None, None]
    again = asked.change(resume, queue="mail/out", group="a", back=grouped)
    assert "group a of mail/out had been resumed" in asked.page(again.headers["location"]).text


def test_a_group_is_dropped_after_a_question_that_counts_all_that_waits(asked, client, grouped):
    change = f"/i/{client.instance}/changes/drop-group"
    assert f"{change}?queue=mail%2Fout&amp;group=a" in asked.page(grouped).text
    client.publish("letters", {"g": "a"})
    question = asked.page(f"{change}?queue=mail/out&group=a").text
    assert "<strong>3 messages</strong> of it now." in question

    done = asked.change(change, queue="mail/out", group="a", reason="closed", back=grouped)

    assert "3 messages of group a of mail/out were expired" in asked.page(done.headers["location"]).text
    assert client.admin.queue_stats("mail/out").expired == 4


def test_the_queue_and_its_dead_letters_lead_to_the_groups(asked, client, grouped, coordinate, valkey):
    queue = asked.anew().page(grouped.replace("/groups/", "/queues/")).text
    page = grouped.replace("%2F", "/")
    assert f'href="{page}"' in queue
    assert "<strong>2</strong> groups with messages: 1 in flight, 0 on hold, " in queue
    assert '<span class="badge bad">1 stopped</span>, 0 paused; the oldest message waits for ' in queue
    client.apply(LocalQueue(name="dead", underlying_topic="failed"), Action.dead_letter("mail/out", "failed"))
    coordinate(valkey.url)
    client.publish("letters", {}, group="said")
    client.ack("mail/out", option="expire", filter="/g IS NULL")
    eventually(lambda: client.admin.dead_letters("dead"), within=30)
    letters = asked.anew().page(f"/i/{client.instance}/dead-letters/dead").text
    assert f'mail/out, group said: <a href="{page}">its groups</a>' in letters
    client.apply(LocalQueue(name="plain", underlying_topic="letters"))
    assert "/groups/" not in asked.anew().page(f"/i/{client.instance}/queues/plain").text


def test_weights_are_shown_where_there_are_some(asked, client, grouped):
    assert "Weight</th>" not in asked.page(grouped).text
    client.apply(
        LocalQueue(name="fair", underlying_topic="plans", group_by="/g", group_choice="fair", group_weight="/w")
    )
    client.publish_many("plans", [{"g": "a", "w": 3}, {"g": "b"}])
    with client.subscribe("fair", max_backlog=1) as messages:
        assert messages.get(timeout="30s")
        page = asked.anew().page(f"/i/{client.instance}/groups/fair").text
    assert "Weight</th>" in page
