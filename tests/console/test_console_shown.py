"""Texts of strangers on every page: shown whole, acting neither on the page nor on the reader."""

from __future__ import annotations

import pytest

from ampsq import Action, LocalQueue

TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"


@pytest.fixture
def work(client):
    client.apply(
        LocalQueue(name="work", underlying_topic="orders"),
        LocalQueue(name="dead", underlying_topic="failed"),
        Action.dead_letter("work", "failed"),
    )
    return f"/i/{client.instance}/queues/work"


def test_half_of_a_pair_in_a_body_takes_no_page_away(asked, client, work):
    # JSON may say what UTF-8 cannot
    bookmark = client.publish("orders", b'{"id": "\\ud800 alone"}')
    client.publish("orders", {"id": 2})

    page = asked.page(work)

    assert page.status == 200
    assert "\\ud800 alone" in page.text
    assert "{&#34;id&#34;: 2}" in page.text
    message = asked.page(f"/i/{client.instance}/messages?bookmark={bookmark}")
    assert (message.status, "\\ud800 alone" in message.text) == (200, True)


def test_half_of_a_pair_in_a_letter_takes_no_page_away(asked, client, valkey, coordinate, work):
    bookmark = client.publish("orders", b'{"id": "\\ud800 alone"}')
    client.ack("work", [bookmark], option="expire")
    coordinate(valkey.url)
    with client.subscribe("dead") as letters:
        assert letters.get(timeout=30) is not None

    page = asked.page(work.replace("queues/work", "dead-letters/dead"))

    assert (page.status, "\\ud800 alone" in page.text) == (200, True)


def test_what_turns_the_direction_of_writing_is_seen_and_turns_nothing(asked, client, work):
    bookmark = client.publish("orders", {"file": TURNED}, headers={"from": TURNED})
    for path in (work, f"/i/{client.instance}/messages?bookmark={bookmark}"):
        text = asked.page(path).text
        assert "\\u202egnp.exe" in text
        assert TURNED not in text


def test_what_a_form_sends_back_is_what_was_asked_for(asked, client, work):
    client.publish_many("orders", [{"file": TURNED}, {"file": "exe.png"}])
    filter_ = f"/file = '{TURNED}'"
    change = work.replace("queues/work", "changes/expire")
    question = asked.page(f"{change}?queue=work&filter=/file%20=%20%27%E2%80%AEgnp.exe%27")
    # What is asked shows it, what is sent has it
    assert "/file = &#39;\\u202egnp.exe&#39;" in question.text
    assert f'name="filter" value="/file = &#39;{TURNED}&#39;"' in question.text

    asked.change(change, queue="work", filter=filter_)

    assert [each.data["file"] for each in client.sow("work")] == ["exe.png"]


def test_a_very_long_body_is_shown_from_its_beginning_which_is_said(asked, client):
    long, short = (client.publish("orders", {"text": "x" * length}) for length in (1_000_000, 10))
    pages = [asked.page(f"/i/{client.instance}/messages?bookmark={each}").text for each in (long, short)]
    assert "976.6KB, of which the beginning is shown" in pages[0]
    assert len(pages[0]) < 100_000
    assert "of which the beginning" not in pages[1]


@pytest.mark.usefixtures("work")
def test_a_deep_body_is_shown_whole(asked, client):
    bookmark = client.publish("orders", b'{"a":' * 400 + b"1" + b"}" * 400)
    text = asked.page(f"/i/{client.instance}/messages?bookmark={bookmark}").text
    assert "1" + "}" * 400 in text
    assert "of which the beginning" not in text


@pytest.mark.usefixtures("work")
def test_long_headers_are_cut_in_tables_and_whole_on_the_message_s_page(asked, client):
    bookmark = client.publish("orders", {"id": 1}, headers={"long": "h" * 4_000})
    whole, cut = "h" * 4_000, "long=" + "h" * 159 + "…"
    topic = asked.page(f"/i/{client.instance}/topics/orders").text
    message = asked.page(f"/i/{client.instance}/messages?bookmark={bookmark}").text
    assert (cut in topic, whole in topic) == (True, False)
    assert (cut in message, message.count(whole)) == (True, 1)
