"""The pages stay right and usable while 5,000 messages a second come and go, and with 1,000 queues; in Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from console_window import PHONE, WIDE
from observing import eventually
from playwright.sync_api import expect
from test_pages_in_browser import faults_of

from ampsq import LocalQueue, Topic

pytestmark = pytest.mark.slow

RATE = 5_000
LOAD = Path(__file__).with_name("load.py")
#: Seconds within which a page is there, on a machine of two cores on which a server, a loader and a browser work, too.
SOON = 20.0


class Load:
    """The loader, as a process of its own.

    Attributes:
        published: how many messages it said it had published, and when that was.
    """

    def __init__(self, url, instance):
        self.published = []
        self._process = subprocess.Popen(
            [sys.executable, str(LOAD), url, instance, str(RATE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            if line.strip().isdecimal():
                self.published.append((time.monotonic(), int(line)))

    def rate(self):
        """Messages a second over the last seconds."""
        (first_at, first), (last_at, last) = self.published[max(len(self.published) - 8, 0)], self.published[-1]
        return (last - first) / (last_at - first_at)

    @property
    def runs(self):
        return self._process.poll() is None

    def end(self):
        """Let it consume what is left, and end."""
        if self.runs:
            self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._reader.join(10)

    def kill(self):
        self._process.kill()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def load(client, valkey):
    """Messages that come and go; the queues are `work`, and `tenants` with groups."""
    client.apply(
        Topic(name="orders", retention_count=1_000),
        Topic(name="tenants-in", retention_count=1_000),
        LocalQueue(name="work", underlying_topic="orders", max_per_subscription_backlog=500),
        LocalQueue(name="tenants", underlying_topic="tenants-in", group_by="/g", max_per_subscription_backlog=500),
    )
    made = Load(valkey.url, client.instance)
    eventually(lambda: len(made.published) > 2, within=60)
    yield made
    made.kill()


def tile(page, name):
    """The figure of a tile."""
    return page.locator("dl.tiles div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$"))).locator("dd")


def in_and_out(page):
    """Messages a second that came in and went out, as the page of a queue has them."""
    return [float(each) for each in tile(page, "In, out a second").inner_text().split(", ")]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_pages_stay_right_and_usable_while_5_000_messages_a_second_come_and_go(  # noqa: PLR0917  (fixtures)
    load, client, serve, valkey, look, coordinate, size
):
    # Given a console, a coordinator, and messages that come and go
    coordinate(valkey.url)
    asked = serve(valkey.url, [client.instance])
    asked.instance = client.instance
    page = look(asked, size=size)
    of = f"{asked.console.base}/i/{client.instance}"
    slow, bad = {}, {}

    # When each page is opened, then it is there soon and is what all pages are
    for address in (f"{asked.console.base}/", f"{of}/queues", f"{of}/queues/work", f"{of}/topics",
                    f"{of}/topics/orders", f"{of}/groups/tenants", f"{of}/publishers"):  # fmt: skip
        begun = time.monotonic()
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        slow[address] = time.monotonic() - begun
        if found := faults_of(page):
            bad[address] = found
    assert bad == {}
    assert max(slow.values()) < SOON, slow

    # And the figures of a queue are up to date without being loaded again, and right: half of the messages are its
    page.goto(f"{of}/queues/work")
    expect(tile(page, "In, out a second")).to_have_text(re.compile(r"\d{3,}\.\d, \d{3,}\.\d"), timeout=SOON * 1000)
    shown = in_and_out(page)
    expect(tile(page, "In, out a second")).not_to_have_text(", ".join(f"{each:.1f}" for each in shown))
    assert load.runs
    half, (came, went) = load.rate() / 2, in_and_out(page)
    assert 0.5 * half < came < 2 * half, (came, half)
    assert 0.5 * half < went < 2 * half, (went, half)
    expect(page.get_by_text("Not up to date")).to_have_count(0)

    # And it can be used meanwhile: a link, a filter, a search
    page.get_by_role("link", name="24 hours").or_(page.get_by_role("link", name="6 hours")).first.click()
    expect(page).to_have_url(re.compile("range=6h"))
    page.get_by_role("textbox", name="Filter").fill("/id < 0")
    page.get_by_role("textbox", name="Filter").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("work")
    page.goto(f"{of}/queues")
    page.keyboard.press("/")
    page.keyboard.type("tenan")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(re.compile("^2 found for tenan in "))
    assert load.runs

    # And once it is over, the page says so by itself, as the server has it
    page.goto(f"{of}/queues/work")
    load.end()
    expect(tile(page, "Depth")).to_have_text("0", timeout=SOON * 1000)
    stats = client.admin.queue_stats("work")
    assert (stats.depth, stats.leased) == (0, 0)
    assert stats.acknowledged >= load.published[-1][1] / 2
    assert load.rate() > RATE / 4, "the machine was too busy for a load that says anything"


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_pages_are_right_and_usable_with_a_thousand_queues(  # noqa: PLR0917  (fixtures)
    client, serve, valkey, look, define_many, size
):
    # Given a thousand queues over fifty topics, the last of them with messages
    define_many(client, 1_000)
    client.publish_many("t49", [{"id": number} for number in range(30)])
    asked = serve(valkey.url, [client.instance])
    asked.instance = client.instance
    page = look(asked, size=size)
    of = f"{asked.console.base}/i/{client.instance}"

    # When pages are opened, then each is what all are
    bad = {}
    for address in (f"{asked.console.base}/", f"{of}/queues", f"{of}/queues?page=20", f"{of}/queues/q999",
                    f"{of}/topics", f"{of}/topics/t49"):  # fmt: skip
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if found := faults_of(page):
            bad[address] = found
    assert bad == {}

    # And queues are found by page, by order and by name
    page.goto(f"{of}/queues?sort=depth")
    expect(page.get_by_role("row").nth(1)).to_contain_text("30")
    page.goto(f"{of}/queues")
    page.get_by_label("Search by name").fill("q99")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="q999", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="q1", exact=True)).to_have_count(0)
