"""The console in a browser, as somebody uses it: whole ways from a page to what it did.

AMPSQ_SCREENSHOTS=docs/images writes the pictures of docs/console.md there.
"""
# Long: one browser is opened for all of it.

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from console_window import APART, PHONE, WIDE, WINDOWS
from observing import eventually
from playwright.sync_api import expect

from ampsq import Action, Client, Destination, Instance, LocalQueue, Queue, Topic
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture
def instance(instance):
    """A name that reads well, where pictures are made."""
    return "nyc-1" if "AMPSQ_SCREENSHOTS" in os.environ else instance


@pytest.fixture
def coordinator(coordinate, valkey):
    return coordinate(valkey.url)


@pytest.fixture
def stop_coordinator(coordinator, instance):
    """End it, and wait until it has."""

    def stop():
        coordinator.stop()
        eventually(lambda: f"coordinator-{instance}" not in {thread.name for thread in threading.enumerate()}, 30)

    return stop


@pytest.fixture
def site(client, serve, valkey, coordinator):
    """An instance with a queue that gives up into dead letters, a coordinator, and its console."""
    client.apply(
        Instance(group="NYC"),
        Topic(name="orders"),
        Topic(name="failed"),
        LocalQueue(
            name="work", underlying_topic="orders", lease_period="10m", max_per_subscription_backlog=2,
            record_deliveries=True,
        ),
        LocalQueue(name="failed-orders", underlying_topic="failed"),
        Action.dead_letter("work", "failed"),
    )  # fmt: skip
    assert coordinator is not None

    def start(**access):
        asked = serve(valkey.url, [client.instance], **access)
        asked.instance = client.instance
        return asked

    return start


def confirm(page, button):
    """Answer the question that a change asks first."""
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{button}?")
    page.get_by_role("button", name=button).click()


def row_of(page, text):
    return page.get_by_role("row").filter(has_text=text)


def test_a_stuck_message_is_found_given_up_redriven_and_delivered_again(site, look, client):
    for number in range(4):
        client.publish("orders", {"id": number, "price": number * 10})
    with client.subscribe("work", max_backlog=2, filter="/price >= 0") as messages:
        stuck = messages.get(timeout="30s")
        page = look(site())

        # In the list, whose figures come without a reload.
        expect(row_of(page, "work").get_by_role("cell").nth(0)).to_have_text("4")
        client.publish("orders", {"id": 4, "price": 40})
        expect(row_of(page, "work").get_by_role("cell").nth(0)).to_have_text("5")
        page.get_by_role("link", name="work", exact=True).click()
        expect(page.get_by_text("backlogs of all subscriptions are full")).to_be_visible()
        expect(row_of(page, "/price >= 0")).to_contain_text("full")

        page.get_by_label("Filter").fill("/id = 0")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("link", name=str(stuck.bookmark)).click()
        expect(page.get_by_role("heading", name="History")).to_be_visible()
        expect(row_of(page, "delivered")).to_contain_text(client._session.client.split("/")[0])
        expect(page.locator("pre")).to_contain_text('"price": 0')
        page.get_by_role("link", name="Expire").click()
        confirm(page, "Expire")
        expect(page.get_by_role("status")).to_have_text(f"{stuck.bookmark} was expired in work")
        expect(row_of(page, "expired").last).to_contain_text("because somebody expired it")

        page.get_by_role("link", name="Dead letters").click()
        expect(row_of(page, "failed-orders").get_by_role("cell").nth(0)).to_have_text("1")
        page.get_by_role("link", name="failed-orders").click()
        expect(row_of(page, "somebody expired it")).to_contain_text('{"id": 0, "price": 0}')
        row_of(page, "somebody expired it").get_by_role("link", name="Redrive").click()
        expect(page.get_by_text("1 message now.")).to_be_visible()
        confirm(page, "Redrive")
        expect(page.get_by_role("status")).to_have_text("1 put back: 1 to work")
        expect(page.get_by_text("No letter is here.")).to_be_visible()

        for number in (1, 2, 3, 4, 0):
            message = messages.get(timeout="30s")
            assert message.data["id"] == number
            message.ack(wait=True)
    assert client.admin.queue_stats("work").depth == 0


def test_the_overview_says_what_is_wrong_why_and_what_mends_it_and_leads_there(site, look, client):
    # given: nobody takes what comes, and an event failed
    page = look(site())
    page.get_by_role("link", name="Overview").click()
    card = page.get_by_role("region", name=client.instance)
    expect(card.get_by_text("well", exact=True)).to_be_visible(timeout=60_000)
    # when
    deadline = time.monotonic() + 60
    while not card.get_by_role("link", name="queue work").count():
        assert time.monotonic() < deadline
        client.publish("orders", {"id": 1})
        page.wait_for_timeout(100)
    # then: it came without a reload
    expect(card).to_contain_text("nobody is subscribed, so the queue and its log only grow")
    expect(card.get_by_text("ampsq worker MODULE:FUNCTION --queue work")).to_be_visible()
    expect(card.locator("dd").filter(has_text=re.compile(r":\d+$"))).to_have_count(1)
    card.get_by_role("link", name="queue work").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("work")


def test_the_header_tells_brand_instance_and_pages_apart_and_leads_to_other_instances(look, client, serve, valkey):
    # given
    with Client(valkey.url, instance=f"{client.instance}-2") as other:
        asked = serve(valkey.url, [client.instance, other.instance])
        asked.instance = client.instance
        page = look(asked)
        # when
        switch = page.get_by_role("group").filter(has_text=client.instance)
        switch.get_by_text(client.instance, exact=False).first.click()
        page.get_by_role("link", name=other.instance).click()
        # then
        page.wait_for_url(f"**/i/{other.instance}/queues")
        header = page.locator("header").inner_text().split("\n")
        assert header[0].strip() == "ampsq"
        assert page.title() == f"Queues · {other.instance} · ampsq console"
        expect(page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_text(
            ["Overview", "Queues", "Topics", "Publishers", "Dead letters", "Replication", "Actions"]
        )


def test_all_that_match_a_filter_are_expired_after_being_counted(site, look, client):
    client.publish_many("orders", [{"id": number} for number in range(50)])
    page = look(site())

    page.goto(f"{page.url}/work?filter=/id+>%3D+20")
    page.get_by_role("link", name="Expire all that match").click()
    expect(page.get_by_text("30 messages now.")).to_be_visible()
    page.get_by_role("link", name="Leave it as it is").click()
    assert client.admin.queue_stats("work").depth == 50
    page.get_by_role("link", name="Expire all that match").click()
    confirm(page, "Expire")

    expect(page.get_by_role("status")).to_have_text("30 messages of work were expired")
    assert client.admin.queue_stats("work").depth == 20
    page.get_by_role("link", name="Pause").click()
    expect(page.get_by_text("20 messages now; what waits stays where it is.")).to_be_visible()
    confirm(page, "Pause")
    expect(page.get_by_text("the queue is paused")).to_be_visible()
    with client.subscribe("work", max_backlog=2) as messages:
        assert messages.get(timeout="50ms") is None
        page.get_by_role("link", name="Resume").click()
        confirm(page, "Resume")
        assert messages.get(timeout="30s").data == {"id": 0}
    page.get_by_label("Filter").fill("/id >")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("/id >")


def test_a_queue_shows_what_it_was_over_time_and_the_range_is_chosen(site, look, client):
    # given
    page = look(site())
    page.goto(f"{page.url}/work")
    charts = page.locator(".charts svg")
    # four of what the queue was, and two of how long messages took
    expect(charts).to_have_count(6)
    expect(charts.nth(2)).to_have_attribute("aria-label", "Depth: not known yet")
    # when: it comes without a reload
    client.publish_many("orders", [{"id": number} for number in range(3)])
    # then
    expect(charts.nth(2)).to_have_attribute(
        "aria-label", re.compile("Depth over the last 15 minutes: 3 now"), timeout=60_000
    )
    page.get_by_role("navigation", name="Range").get_by_role("link", name="7 days").click()
    expect(charts.nth(2)).to_have_attribute("aria-label", re.compile("Depth over the last 7 days: 3 now"))
    expect(page.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "true")


def test_a_queue_is_purged_of_all_that_waits_or_is_leased_after_being_counted(site, look, client):
    # given: one is leased, one is no JSON, one comes later
    client.publish_many("orders", [{"id": number} for number in range(3)])
    client.publish("orders", b"\xff")
    client.publish("orders", {"id": 9}, delay="1h")
    with client.subscribe("work") as messages:
        assert messages.get(timeout="30s").data == {"id": 0}
        page = look(site())
        page.goto(f"{page.url}/work")
        # when
        page.get_by_role("link", name="Purge the queue").click()
        expect(page.get_by_text("4 messages now, waiting or leased.")).to_be_visible()
        page.get_by_label("The reason").fill("not wanted")
        confirm(page, "Purge")
        # then
        expect(page.get_by_role("status")).to_have_text("4 messages of work were expired")
    assert client.admin.queue_stats("work").depth == 1


def test_no_button_that_cannot_be_undone_stands_beside_another_one_and_tables_have_captions(site, look, client):
    # given
    client.publish_many("orders", [{"id": number} for number in range(3)])
    with client.subscribe("work") as messages:
        bookmark = messages.get(timeout="30s").bookmark
        page = look(site())
        queue = f"{page.url}/work"
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            for address in (
                queue,
                f"{queue}?filter=/id+>%3D+0",
                f"{queue.rpartition('/queues')[0]}/messages?bookmark={bookmark}",
            ):
                page.goto(address)
                # then
                assert page.evaluate(APART) == [], address
                captions = page.locator("table > caption")
                expect(captions).to_have_count(page.locator("table").count())
                assert all(text.strip() for text in captions.all_text_contents())
        # A phone has a card of each subscription, with what its figures are
        page.goto(queue)
        card = page.get_by_role("row").filter(has_text="has room").or_(page.locator("tr").filter(has_text="full")).first
        labels = card.locator("td").evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)")
        assert [each.strip('"') for each in labels if each != "none"][:3] == ["Client: ", "Leased: ", "Backlog: "]


def link(client, instance, direction="out"):
    """Write the report of a link that is connected."""
    now = int(client._store.redis.time()[0]) * 1000
    said = {
        "state": "connected", "at": now + 3_600_000, "since": now, "instance": instance, "group": "LDN",
        "source": instance, "destination": client.instance, "sync_type": "sync",
    }  # fmt: skip
    client._store.redis.hset(key(client.instance, "links"), f"{direction} {instance}", json.dumps(said))


def test_a_link_is_downgraded_and_upgraded_and_a_queue_proxied(client, look, serve, valkey):
    client.apply(
        Topic(name="orders"),
        Queue(name="shared", underlying_topic="orders"),
        Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders", "shared"]),
    )
    link(client, "ldn-1")
    client.publish("orders", {"id": 1})
    asked = serve(valkey.url, [client.instance])
    asked.instance = client.instance
    page = look(asked)

    page.get_by_role("link", name="Replication").click()
    expect(page.locator(".graph")).to_contain_text("sync, connected, 1 behind for ")
    page.get_by_role("link", name="Downgrade").click()
    expect(page.get_by_text("do not fail over to it")).to_be_visible()
    confirm(page, "Downgrade")
    expect(page.get_by_role("status")).to_contain_text("unsafe to fail over to")
    expect(row_of(page, "to ldn-1")).to_contain_text("downgraded")
    assert client.admin.sync_states()["ldn-1"].downgraded
    page.get_by_role("link", name="Upgrade").click()
    confirm(page, "Upgrade")
    expect(row_of(page, "to ldn-1")).not_to_contain_text("downgraded")
    page.get_by_role("link", name="Enable proxied transfer").click()
    confirm(page, "Enable proxied transfer")
    expect(row_of(page, "shared")).to_contain_text("proxied")
    assert client.admin.replication().queues[0].proxied
    page.get_by_role("link", name="Disable proxied transfer").click()
    confirm(page, "Disable proxied transfer")
    assert not client.admin.replication().queues[0].proxied


def test_who_owns_what_is_drawn_and_proxied_transfer_offered_where_it_can_do_something(client, look, serve, valkey):
    # given: a queue that goes to ldn-1, one that stays, and a local one
    client.apply(
        Queue(name="shared", underlying_topic="orders"),
        Queue(name="alone", underlying_topic="orders"),
        LocalQueue(name="local", underlying_topic="orders"),
        Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders", "shared"]),
    )
    link(client, "ldn-1")
    client.publish("orders", {"id": 1})
    with client.subscribe("shared") as messages:
        messages.get(timeout="5s").cancel()
    asked = serve(valkey.url, [client.instance])
    asked.instance = client.instance
    page = look(asked)
    # when
    page.get_by_role("link", name="Replication").click()
    # then
    expect(page.locator(".graph .here")).to_have_text(re.compile(f"^{client.instance}.*owns shared 1$"))
    expect(page.locator(".graph .node").last).to_have_text(re.compile("^ldn-1.*owns nothing$"))
    expect(row_of(page, "shared")).to_contain_text("Enable proxied transfer")
    expect(page.get_by_role("link", name="alone", exact=True)).to_have_count(0)
    for name, why in (("alone", "no destination is sent this queue"), ("local", "it is a local queue")):
        page.goto(f"{asked.console.base}/i/{client.instance}/queues/{name}")
        expect(page.get_by_text(f"Proxied transfer is not offered: {why}")).to_be_visible()
        expect(page.get_by_role("link", name="Enable proxied transfer")).to_have_count(0)
    page.goto(f"{asked.console.base}/i/{client.instance}/queues/shared")
    expect(page.get_by_role("link", name="Enable proxied transfer")).to_be_visible()


def test_an_event_that_an_action_failed_at_is_seen_and_dropped(site, look, client, stop_coordinator):
    client.apply(Topic(name="keyed", key=["/id"]), Action.dead_letter("work", "keyed", name="keep"))
    client.publish("orders", {"id": 1})
    assert client.ack("work", option="expire", filter="/id = 1") == 1
    eventually(lambda: client.admin.failed_events("keep"), within=30)
    # It would be trying again, and what is being tried is not listed and not dropped.
    stop_coordinator()
    page = look(site())

    page.get_by_role("link", name="Actions").click()
    expect(row_of(page, "keep").get_by_role("cell").nth(2)).to_have_text("1")
    page.get_by_role("link", name="keep").click()
    expect(row_of(page, "expire work")).to_contain_text("The topic has a key")
    row_of(page, "expire work").get_by_role("link", name="Drop").click()
    confirm(page, "Drop")

    expect(page.get_by_role("status")).to_have_text("1 failed event of keep was dropped")
    expect(page.get_by_text("No event failed.")).to_be_visible()


def test_a_read_only_console_shows_no_change_and_makes_none(site, look, client):
    bookmark = client.publish("orders", {"id": 1})
    asked = site(is_read_only=True)
    page = look(asked)

    page.goto(f"{page.url}/work")
    expect(page.get_by_role("link", name=str(bookmark))).to_be_visible()
    expect(page.get_by_text("read-only")).to_be_visible()
    expect(page.get_by_role("link", name="Expire")).to_have_count(0)
    question = f"/i/{asked.instance}/changes/expire"
    page.goto(f"{asked.console.base}{question}?queue=work&bookmark={bookmark}")
    expect(page.get_by_role("alert")).to_contain_text("read-only")
    refused = asked.change(question, queue="work", bookmark=str(bookmark))
    assert (refused.status, "read-only" in refused.text) == (403, True)
    assert client.admin.queue_stats("work").depth == 1


def test_hostile_bodies_headers_and_names_are_shown_as_text(site, look, client):
    client.publish("orders", {"id": 1, "note": HOSTILE}, headers={"from": HOSTILE})
    client.publish("orders", b"\xff\x00" + HOSTILE.encode())
    client.publish("orders", {"n": [[HOSTILE]] * 3})
    page = look(site())

    page.goto(f"{page.url}/work?filter={HOSTILE}")
    expect(page.get_by_role("alert")).to_contain_text("<script>")
    page.goto(page.url.partition("?")[0])
    expect(page.locator("td.body").first).to_contain_text("<script>window.hacked = 1</script><img src=x")
    expect(page.locator("td.body").nth(1)).to_contain_text("\\xff")
    page.get_by_role("row").filter(has_text="note").get_by_role("link").first.click()
    expect(page.locator("pre")).to_contain_text("<script>")
    expect(page.locator("dd").first).to_contain_text("<img src=x")
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.hacked") is None


def test_a_long_name_and_a_long_word_move_nothing_out_of_sight(site, look, client):
    client.apply(LocalQueue(name="n" * 255, underlying_topic="orders"))
    bookmark = client.publish("orders", {"id": 1}, headers={"h" * 200: "v" * 500})
    with client.subscribe("work") as messages:
        messages.get(timeout=30).expire(reason="r" * 300)
    page = look(site())
    tables = "[...document.querySelectorAll('.scroll')].map(each => each.scrollWidth - each.clientWidth)"

    expect(row_of(page, "nnn").get_by_role("cell").nth(0)).to_have_text("1")
    assert page.evaluate(tables) == [0]
    page.goto(f"{page.url.rpartition('/')[0]}/dead-letters/failed-orders")
    eventually(lambda: page.reload() and row_of(page, "rrr").count(), within=60)
    expect(row_of(page, "rrr").get_by_role("link", name="Redrive")).to_be_in_viewport(ratio=1)
    assert page.evaluate(tables) == [0]
    page.goto(f"{page.url.rpartition('/dead-letters')[0]}/messages?bookmark={bookmark}")
    expect(page.get_by_text("h" * 200, exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_a_page_says_when_what_it_shows_is_not_so_any_more(look, client, serve, start_server):
    # Given an open page of an instance on a server of its own
    server = start_server("valkey")
    with Client(server.url, instance=client.instance) as there:
        there.apply(LocalQueue(name="work", underlying_topic="orders"))
        process_id = int(there._store.redis.info("server")["process_id"])
    asked = serve(server.url, [client.instance])
    asked.instance = client.instance
    page = look(asked)
    state = page.locator(".live .state")
    expect(state).to_have_text("Live.")

    # When the server hangs, then the page says so, until it answers again
    os.kill(process_id, signal.SIGSTOP)
    try:
        expect(state).to_have_text(
            re.compile(r"Not up to date: no figures come from the server; these are of \d\d:\d\d:\d\d UTC\.")
        )
    finally:
        os.kill(process_id, signal.SIGCONT)
    expect(state).to_have_text("Live.")

    # And so it is when the console is gone
    asked.console.stop()
    expect(state).to_contain_text("Not up to date: the console does not answer.")


def test_everything_is_done_with_the_keyboard_and_focus_is_seen(site, look, client):
    bookmark = client.publish("orders", {"id": 1})
    page = look(site())

    def focused():
        return page.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.innerText || e.id, s.outlineStyle, parseFloat(s.outlineWidth)] }"
        )

    def tab_to(text):
        for _ in range(40):
            page.keyboard.press("Tab")
            name, style, width = focused()
            assert (style, width >= 2) == ("solid", True), name
            if name.replace("\n", "") == text:
                return
        raise AssertionError(f"the keyboard never comes to {text}")

    tab_to("Skip to content")
    page.keyboard.press("Enter")
    tab_to("q")
    page.keyboard.type("wor")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 of 2 queues")).to_be_visible()
    tab_to("work")
    # What is live goes on, and takes nothing from whoever is there.
    client.publish("orders", {"id": 2})
    expect(row_of(page, "work").get_by_role("cell").nth(0)).to_have_text("2")
    assert focused()[0] == "work"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("work")
    tab_to(str(bookmark))
    tab_to("Expire")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Expire?")
    tab_to("Expire")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("was expired")
    eventually(lambda: client.admin.queue_stats("work").depth == 1)


#: What docs/console.md shows: pages and windows.
PICTURES = {
    "overview-light-wide", "overview-dark-phone", "queues-light-wide", "queues-work-dark-wide",
    "queues-work-light-wide", "replication-light-wide", "replication-dark-phone", "queues-dark-phone",
    "dead-letters-failed-orders-light-phone",
}  # fmt: skip
PAGES = ("", "queues", "queues/work", "dead-letters/failed-orders", "replication", "actions")


def live_on(client, page, seconds):
    """Something goes on for a while, so that a picture has something to show."""
    for number in range(4 * seconds):
        client.publish_many("orders", [{"id": 100 + number, "symbol": "IBM", "price": 12.5}] * (number % 7))
        client.publish("trades", {"id": number, "price": number % 9, "qty": 150})
        if number % 4 == 3:
            client.ack("best-trades", [each.bookmark for each in client.sow("best-trades", top_n=6)])
        page.wait_for_timeout(250)


def test_every_page_fits_its_window_in_both_colours(site, look, client):
    client.apply(
        LocalQueue(name="best-trades", underlying_topic="trades", priority="/price"),
        LocalQueue(name="large", underlying_topic="trades", filter="/qty > 100"),
        Queue(name="shared", underlying_topic="orders"),
        Destination(name="ldn-1", addresses=["redis://localhost:1"], sync_type="sync", topics=["orders"]),
        Destination(name="tok-1", addresses=["redis://localhost:2"], sync_type="async", topics=["orders"]),
    )
    link(client, "ldn-1")
    link(client, "ldn-1", "in")
    client.publish_many("trades", [{"id": i, "price": i * 7 % 100, "qty": 2 * i} for i in range(120)])
    client.publish_many(
        "orders",
        [{"id": i, "symbol": "IBM", "price": 12.5 * i, "note": HOSTILE if i == 5 else "by hand"} for i in range(30)],
    )
    client.ack("work", option="expire", filter="/id < 3")
    folder, asked, grounds = os.environ.get("AMPSQ_SCREENSHOTS"), site(), {}
    with client.subscribe("work", max_backlog=2):
        for kind, (colour, size) in WINDOWS.items():
            page = look(asked, colour, size)
            expect(row_of(page, "failed-orders").get_by_role("cell").nth(0)).to_have_text("3")
            for name in PAGES if colour == "light" or folder is not None else PAGES[:3]:
                page.goto(f"{asked.console.base}/i/{client.instance}/{name}" if name else f"{asked.console.base}/")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                wide, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                assert wide <= window, (kind, name)
                picture = f"{name.replace('/', '-') or 'overview'}-{kind}"
                if folder is not None and picture in PICTURES:
                    live_on(client, page, seconds=2 if name in {"replication", "actions"} else 12)
                    page.screenshot(path=Path(folder) / f"console-{picture}.png")
            grounds[kind] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds["light-wide"] == grounds["light-phone"] != grounds["dark-wide"] == grounds["dark-phone"]
