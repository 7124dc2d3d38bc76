"""All pages in a browser, at 400 and 1400 pixels: what tables, buttons and a screen reader's tree must hold on each.

AMPSQ_SHOW=FOLDER writes a picture of each page there.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from console_window import APART, PHONE, WIDE, WINDOWS
from observing import eventually
from playwright.sync_api import expect

from ampsq import Action, Client, Destination, Instance, LocalQueue, Queue, Topic, View
from ampsq.base.partitions import partitions_of
from ampsq.console.page_table import PAGES
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

#: Tables without a caption, with two columns of one name, or with a column that has none.
TABLES = """() => [...document.querySelectorAll("table")].flatMap((table) => {
  const heads = [...table.querySelectorAll("thead th")].map((e) => e.innerText.trim() || e.textContent.trim());
  const caption = table.caption ? table.caption.textContent.trim() : "";
  const twice = heads.filter((e, i) => heads.indexOf(e) !== i || !e);
  return caption && !twice.length ? [] : [[caption, twice]];
})"""
#: Words that stand beside buttons and are no button, no badge and no label.
LOOSE = """() => [...document.querySelectorAll("main button, main .button")].flatMap((button) =>
  [...button.parentElement.childNodes]
    .filter((e) => e.nodeType === Node.TEXT_NODE && e.textContent.trim())
    .map((e) => [button.innerText, e.textContent.trim()]))"""
#: IDs that a page has twice.
TWICE = """() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return ids.filter((e, i) => ids.indexOf(e) !== i); }"""
#: Placeholders that are wider than their field.
CUT = """() => [...document.querySelectorAll("input[placeholder]")].filter((e) => {
  const style = getComputedStyle(e), pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return pen.measureText(e.placeholder).width > room + 1;
}).map((e) => e.placeholder)"""
#: Moments in another form than that of all pages.
MOMENTS = r"""() => document.querySelector("main").innerText.match(/\d{4}-\d\d-\d\dT\d\d:\d\d/g) || []"""
#: Words of links that are not in sight as a whole, or that touch a box or other words.
COVERED = """() => {
  const box = (e) => e.getBoundingClientRect();
  const words = [...document.querySelectorAll(".graph li li > span")];
  const nodes = [...document.querySelectorAll(".graph .node")];
  const meet = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  for (const word of words) {
    const a = box(word);
    if (a.left < 0 || a.right > innerWidth + 1 || a.width < 1) found.push(["out of sight", word.innerText]);
    for (const other of [...nodes, ...words])
      if (other !== word && meet(a, box(other))) found.push([word.innerText, other.innerText]);
  }
  return found;
}"""


def report_link(client, instance, direction="out", **facts):
    """Write the report of a link."""
    now = int(client._store.redis.time()[0]) * 1000
    said = {
        "state": "connected", "at": now + 3_600_000, "since": now, "instance": instance, "group": "LDN",
        "source": instance, "destination": client.instance, "sync_type": "sync", **facts,
    }  # fmt: skip
    client._store.redis.hset(key(client.instance, "links"), f"{direction} {instance}", json.dumps(said))


@pytest.fixture
def instance(instance):
    """A name that reads well, where pictures are made."""
    return "nyc-1" if "AMPSQ_SHOW" in os.environ else instance


@pytest.fixture
def world(client, serve, valkey, coordinate):
    """Something of everything on every page."""
    longer = "an-instance-with-quite-a-long-name-in-singapore-1"
    client.apply(
        Instance(group="NYC"),
        Topic(name="orders", key=["/id"]),
        Topic(name="kept", retention_count=2),
        Topic(name="failed"),
        LocalQueue(name="work", underlying_topic="kept", max_per_subscription_backlog=2, record_deliveries=True),
        LocalQueue(name="letters", underlying_topic="failed"),
        LocalQueue(name="tenants", underlying_topic="tenants-in", group_by="/g", on_group_failure="stop"),
        Queue(name="shared", underlying_topic="orders"),
        View(name="totals", underlying_topic="orders", projection=["/s AS /s", "COUNT(/id) AS /n"], grouping=["/s"]),
        Action.dead_letter("work", "failed"),
    )
    marks = client.publish_many(
        "kept", [{"id": number, "note": "by hand " * 9} for number in range(9)], headers={"a": "b"}
    )
    client.publish_many("orders", [{"id": number, "s": "IBM"} for number in range(3)])
    client.publish_many("tenants-in", [{"g": each} for each in ("alice", "alice", "bob", "carol", "carol", "bob")])
    client.ack("work", option="expire", filter="/id < 2", reason="of no use")
    coordinator = coordinate(valkey.url)
    eventually(lambda: len(client.admin.dead_letters("letters")) == 2, within=30)
    client.apply(Action.dead_letter("work", "orders", name="keep"))
    client.ack("work", option="expire", filter="/id = 2")
    eventually(lambda: client.admin.failed_events("keep"), within=30)
    # What is being tried again is not listed.
    coordinator.stop()
    eventually(lambda: f"coordinator-{client.instance}" not in {thread.name for thread in threading.enumerate()})
    client.apply(
        *(
            Destination(name=each, addresses=["redis://localhost:1"], sync_type=kind, topics=["orders", "shared"])
            for each, kind in (("ldn-1", "sync"), ("tok-1", "async"), (longer, "sync"))
        ),
    )
    report_link(client, "ldn-1", losses=3, lost_at=int(client._store.redis.time()[0]) * 1000 - 120_000)
    report_link(client, "ldn-1", "in")
    report_link(client, longer, state="refused", reason="its clock is 12 s ahead of ours: set both clocks by NTP")
    whole = f"{client.instance}-w"
    asked = serve(valkey.url, [client.instance, *(each.instance for each in partitions_of(whole, 2))])
    asked.instance = client.instance
    with (
        Client(valkey.url, partitions=2, instance=whole) as all_of_them,
        client.publisher("till") as publisher,
        client.subscribe("work", max_backlog=2, filter="/id > 2") as held,
        client.subscribe("tenants", max_backlog=2) as grouped,
    ):
        all_of_them.apply(Queue(name="work", underlying_topic="jobs"))
        all_of_them.publish_many("jobs", range(9), key=str)
        publisher.publish("orders", {"id": 9})
        publisher.flush(timeout="30s")
        assert held.get(timeout="30s") is not None
        grouped.get(timeout="30s").expire()
        grouped.flush()
        yield asked, addresses(client.instance, marks)


def addresses(instance, marks):
    """Page -> its addresses."""
    of, mark = f"/i/{instance}", quote(str(marks[4]), safe="")
    return {
        "overview": ["/"],
        "search_all": ["/search", "/search?q=or"],
        "search": [f"{of}/search?q={mark}", f"{of}/search?q=no-such-thing"],
        "queues": [f"{of}/queues", f"{of}/queues?q=none"],
        "queue": [f"{of}/queues/{each}" for each in ("work", "work?filter=/id+>+2", "work?filter=/id+>", "shared")],
        "partitioned_queues": [f"/p/{instance}-w/queues", f"/p/{instance}-w/queues?q=none"],
        "partitioned_queue": [f"/p/{instance}-w/queues/work"],
        "groups": [f"{of}/groups/tenants", f"{of}/groups/tenants?limit=1"],
        "topics": [f"{of}/topics"],
        "topic": [f"{of}/topics/{each}" for each in ("orders", "totals", "kept?from=epoch")],
        "publishers": [f"{of}/publishers"],
        "message": [f"{of}/messages?bookmark={mark}{each}" for each in ("", "&queue=work")],
        "letter_queues": [f"{of}/dead-letters"],
        "dead_letters": [f"{of}/dead-letters/letters{each}" for each in ("", "?filter=/queue+=+'work'")],
        "replication": [f"{of}/replication"],
        "actions": [f"{of}/actions"],
        "action": [f"{of}/actions/keep"],
        "question": [f"{of}/changes/expire?queue=work&filter=1+%3D+1", f"{of}/changes/pause?queue=work"],
    }


def faults_of(page):
    """Return what a page has that none may have; a screen reader's tree among it."""
    found = {
        "tables": page.evaluate(TABLES),
        "loose words beside buttons": page.evaluate(LOOSE),
        "grave buttons near others": page.evaluate(APART),
        "IDs twice": page.evaluate(TWICE),
        "placeholders cut": page.evaluate(CUT),
        "moments in another form": page.evaluate(MOMENTS),
        "wider than its window": page.evaluate("Math.max(document.documentElement.scrollWidth - innerWidth, 0)") or [],
    }
    tree = page.locator("body").aria_snapshot().splitlines()
    found["nameless"] = [
        each.strip()
        for each in tree
        if re.match(r"\s*- (link|button|textbox|searchbox|img|table|region|search)(:|$)", each)
    ]
    levels = [int(each) for each in re.findall(r"heading [^\n]*\[level=(\d)\]", "\n".join(tree))]
    found["headings"] = [] if levels[:1] == [1] and levels.count(1) == 1 else levels
    found["levels left out"] = [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1]
    marks = {mark: sum(bool(re.match(rf"- {mark}\b", each)) for each in tree) for mark in ("banner", "main")}
    found["landmarks"] = [] if set(marks.values()) == {1} else marks
    return {name: what for name, what in found.items() if what}


def test_every_page_holds_what_tables_buttons_and_a_screen_reader_need(world, look):
    asked, pages = world
    assert set(pages) == {page.name for page in PAGES}
    folder, bad = os.environ.get("AMPSQ_SHOW"), {}
    for kind, (colour, size) in WINDOWS.items():
        # Colours change nothing of all this, but for the pictures.
        if folder is None and colour == "dark":
            continue
        page = look(asked, colour, size)
        for name, some in pages.items():
            for number, address in enumerate(some):
                page.goto(asked.console.base + address)
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                if found := faults_of(page):
                    bad[kind, address] = found
                if folder is not None:
                    page.screenshot(path=Path(folder) / f"{name}-{number}-{kind}.png", full_page=True)
    assert bad == {}


def test_the_test_of_all_pages_sees_each_of_its_faults(browser):
    page = browser.new_page()
    page.set_content("""<main><h1>A</h1><h3 id="x">B</h3><p id="x">words <a class="button" href="/">Do</a>
      <a class="button grave" href="/">Purge</a><a href="/"></a></p>
      <table><thead><tr><th>In</th><th>In</th></tr></thead></table><p style="width: 5000px">wide</p>
      <input placeholder="words that are longer" style="width: 60px"><p>2026-05-01T09:00:00Z</p></main>""")
    assert set(faults_of(page)) == {
        "tables", "loose words beside buttons", "grave buttons near others", "IDs twice", "wider than its window",
        "nameless", "levels left out", "landmarks", "placeholders cut", "moments in another form",
    }  # fmt: skip
    page.close()


def test_words_of_links_are_in_sight_and_run_under_no_box(world, look):
    asked, _ = world
    for kind, (colour, size) in WINDOWS.items():
        page = look(asked, colour, size)
        page.goto(f"{asked.console.base}/i/{asked.instance}/replication")
        graph = page.get_by_role("group", name=f"{asked.instance} and the instances that it is linked with")
        expect(graph.locator(".out").filter(has_text="To ldn-1")).to_contain_text("connection lost 3 times, last ")
        expect(graph.locator(".bad").filter(has_text="singapore")).to_contain_text("sync, refused")
        # What a screen reader reads is the same as what is seen.
        tree = graph.aria_snapshot()
        assert "To ldn-1" in tree
        assert re.search(r"sync, connected(, \d+ behind for [^;]+)?; connection lost 3 times", tree), tree
        assert page.evaluate(COVERED) == [], kind
        # Letters twice as large, as somebody may have them.
        page.evaluate(
            "document.querySelectorAll('.graph li li, .graph .node, .graph .node span')"
            ".forEach(e => e.style.setProperty('font-size', '26px'))"
        )
        assert page.evaluate(COVERED) == [], kind
        colours = {
            level: page.locator(f".graph li li.{level}").first.evaluate("e => getComputedStyle(e).color")
            for level in ("good", "bad")
        }
        assert colours["good"] != colours["bad"]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_everything_is_searched_with_the_keyboard_alone(world, look, client, size):
    asked, _ = world
    bookmark = client.publish("kept", {"id": 77})
    page = look(asked, size=size)

    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "everything"
    page.keyboard.type("tenan")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(re.compile("^2 found for tenan in "))
    expect(page.locator("main")).to_match_aria_snapshot(f"""
      - main:
        - heading "Search" [level=1]
        - status:
          - text: 2 found for
          - code: tenan
          - text: in {client.instance}.
        - region "Queues":
          - heading "Queues" [level=2]
          - list:
            - listitem:
              - link "tenants"
        - region "Topics":
          - heading "Topics" [level=2]
          - list:
            - listitem:
              - link "tenants-in"
        - paragraph:
          - link "Search all instances"
    """)
    while page.evaluate("document.activeElement.textContent") != "tenants":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("tenants")
    # A slash in a field is a slash.
    page.get_by_role("textbox", name="Filter").focus()
    page.keyboard.type("/id")
    expect(page.get_by_role("textbox", name="Filter")).to_have_value("/id")
    # And a message, from the page of all instances.
    page.goto(f"{asked.console.base}/")
    page.keyboard.press("/")
    page.keyboard.type(str(bookmark))
    page.keyboard.press("Enter")
    page.get_by_role("link", name=str(bookmark)).click()
    expect(page.locator("pre")).to_contain_text('"id": 77')


def test_a_thousand_queues_are_searched_at_once(client, serve, valkey, look, define_many):
    define_many(client, 1_000)
    asked = serve(valkey.url, [client.instance])
    asked.instance = client.instance
    page = look(asked)
    page.get_by_role("searchbox", name="Search everything").fill("q98")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("status")).to_contain_text("10 found, and 1 more")
    expect(page.get_by_text("1 more: a longer part of the name finds them.")).to_be_visible()


def test_a_group_that_stands_still_is_found_and_let_go_on(world, look, client):
    asked, _ = world
    page = look(asked)
    page.get_by_role("link", name="tenants", exact=True).click()
    page.get_by_role("link", name="Groups of this queue").click()
    row = page.get_by_role("row").filter(has_text="alice")
    expect(row).to_contain_text("stopped")
    tree = page.get_by_role("table", name="Groups of tenants").aria_snapshot()
    assert 'row "Group Waiting Oldest Leased Failed State Change it"' in tree
    assert re.search(r"row .alice 1 \w+( \w+)? 0 0 stopped for .*: a message of it was given up Release", tree), tree
    page.set_viewport_size(PHONE)
    labels = row.locator("td").evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)")
    assert [each.strip('"') for each in labels if each != "none"] == [
        "Waiting: ", "Oldest: ", "Leased: ", "Failed: ", "State: ",
    ]  # fmt: skip
    row.get_by_role("link", name="Release").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Release?")
    expect(page.get_by_text("1 message of it now, which may be delivered.")).to_be_visible()
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status")).to_have_text("group alice of tenants goes on")
    assert [each.stopped for each in client.admin.groups("tenants").groups] == [None] * 3
