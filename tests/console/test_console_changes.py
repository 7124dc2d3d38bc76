"""Changes over HTTP: from the console's own pages they are made, from anywhere else they are not."""

from __future__ import annotations

import re

import pytest

from ampsq import LocalQueue, Topic


@pytest.fixture
def message(client):
    """A message of `work`, and the address of its end."""
    client.apply(Topic(name="orders"), LocalQueue(name="work", underlying_topic="orders"))
    bookmark = client.publish("orders", {"id": 1})
    return {"queue": "work", "bookmark": str(bookmark)}, f"/i/{client.instance}/changes/expire"


def test_a_change_from_a_page_of_ours_is_made_once_and_leads_back(asked, client, message):
    given, address = message

    done = asked.change(address, back=f"/i/{client.instance}/queues/work?filter=x", **given)

    assert done.status == 303
    assert done.headers["location"].startswith(f"/i/{client.instance}/queues/work?filter=x&note=")
    assert (
        f"{given['bookmark']} was expired in work"
        in asked.page(
            done.headers["location"].split("filter=x&")[0] + done.headers["location"].split("filter=x&")[1]
        ).text
    )
    assert client.admin.queue_stats("work").depth == 0
    again = asked.change(address, **given)
    assert (again.status, "was acknowledged" in again.text or "expired" in again.text) == (400, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"csrf": "guessed"},
        {"csrf": ""},
        {"cookie": "other=guessed"},
    ],
)
def test_a_change_that_is_not_from_a_page_of_ours_is_refused(asked, client, message, wrong):
    given, address = message
    form = {"csrf": wrong.get("csrf", asked.console.access.word), **given}
    headers = {"origin": wrong.get("origin", f"http://{asked.host}"), "cookie": wrong.get("cookie", asked.cookie)}

    refused = asked(address, form=form, **headers)

    assert refused.status in (401, 403)
    assert client.admin.queue_stats("work").depth == 1


def test_a_question_changes_nothing(asked, client, message):
    given, address = message

    question = asked.page(f"{address}?queue=work&bookmark={given['bookmark']}")

    assert (question.status, "Leave it as it is" in question.text) == (200, True)
    assert client.admin.queue_stats("work").depth == 1


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/i/\\evil", "javascript:alert(1)", ""])
def test_a_change_leads_to_pages_of_ours_alone(asked, client, message, back):
    given, address = message

    done = asked.change(address, back=back, **given)

    assert done.headers["location"].startswith(f"/i/{client.instance}/queues?note=")


def test_words_in_an_address_are_not_shown_as_ours(asked, client, message):
    assert message
    assert "Call this number" not in asked.page(f"/i/{client.instance}/queues?note=Call+this+number").text


def test_what_is_not_there_is_said(asked, client, message):
    given, _ = message
    changes = f"/i/{client.instance}/changes"

    assert asked.page(f"/i/{client.instance}/queues/nowhere").status == 404
    assert "no instance" in asked.page("/i/elsewhere/queues").text
    assert "no change is named" in asked.page(f"{changes}/delete?queue=work").text
    assert "queue is missing" in asked.page(f"{changes}/expire").text
    assert "one of bookmark and filter" in asked.change(f"{changes}/expire", queue="work").text
    assert "allowed is the number" in asked.change(f"{changes}/retry", action="a", event="x").text
    assert client.admin.queue_stats("work").depth == 1
    assert given


def test_a_thousand_queues_are_searched_sorted_and_shown_a_page_at_a_time(asked, client, define_many):
    define_many(client, 1000)
    client.publish_many("t7", range(3))
    at = f"/i/{client.instance}/queues"

    first, found = asked.anew().page(at), asked.page(f"{at}?q=q99&sort=depth&page=1")

    assert first.text.count('<th scope="row">') == 50
    assert "page 1 of 20" in first.text
    assert "11 of 1,000 queues" in found.text
    assert asked.page(f"{at}?sort=depth").text.index(">q107<") < asked.page(f"{at}?sort=depth").text.index(">q0<")
    assert "page 20 of 20" in asked.page(f"{at}?page=999").text


def test_a_filter_that_finds_nothing_among_very_many_ends_in_time(asked, client):
    client.apply(Topic(name="orders"), LocalQueue(name="work", underlying_topic="orders"))
    client.publish_many("orders", ({"id": number} for number in range(30_000)))

    at = f"/i/{client.instance}/queues/work?filter=/id+%3C+0"

    looked, further = asked.page(at), asked.page(f"{at}&patient=1")

    assert looked.status == further.status == 200
    assert "No message matches." in looked.text
    assert "No message matches." in further.text
    # Whoever has the time is told of all.
    assert "The time for one look was over" not in further.text


def test_the_question_asks_why_and_the_message_s_page_says_it(asked, client, message):
    given, address = message
    question = asked.page(f"{address}?queue=work&bookmark={given['bookmark']}")
    assert '<input name="reason"' in question.text
    assert 'name="reason"' not in asked.page(address.replace("expire", "pause") + "?queue=work").text
    refused = asked.change(address, reason="x" * 501, **given)
    assert (refused.status, "500 characters at most" in refused.text) == (400, True)
    assert client.admin.queue_stats("work").depth == 1

    done = asked.change(address, reason="  void <b>since</b> Monday ", **given)

    assert done.status == 303
    page = asked.page(f"/i/{client.instance}/messages?queue=work&bookmark={given['bookmark']}").text
    assert page.count("void &lt;b&gt;since&lt;/b&gt; Monday") >= 2
    assert "reason given: void" in page


def test_letters_show_why_their_consumer_gave_them_up(asked, client):
    client.apply(Topic(name="letters"), LocalQueue(name="dead", underlying_topic="letters"))
    head = {"queue": "work", "topic": "orders", "bookmark": "orders~x.1~5-0", "reason": "max_cancels"}
    client.publish("letters", {**head, "consumer_reason": "no such <flight>", "message": {}})

    page = asked.page(f"/i/{client.instance}/dead-letters/dead").text

    assert "max_cancels was reached</span>: no such &lt;flight&gt;" in page


def test_how_long_a_message_is_leased_is_told_as_a_moment(asked, client, message):
    given, _ = message
    client.apply(LocalQueue(name="work", underlying_topic="orders", lease_period="10m"))
    with client.subscribe("work") as messages:
        assert messages.get(timeout="30s") is not None

        page = asked.anew().page(f"/i/{client.instance}/messages?queue=work&bookmark={given['bookmark']}").text

    assert re.search(r"until 20\d\d-\d\d-\d\d [\d:.]+ UTC", page)


def test_headers_of_a_message_have_a_heading_and_are_told_in_words(asked, client):
    client.apply(LocalQueue(name="work", underlying_topic="orders"))
    bookmark = client.publish("orders", {"id": 1}, headers={"desk": "ny", "trader": "ann"})

    page = asked.anew().page(f"/i/{client.instance}/messages?queue=work&bookmark={bookmark}").text

    assert '<h2 id="headers">Headers</h2>' in page
    assert "with headers desk=ny, trader=ann" in page
    assert 'data-label="Details"' in page
