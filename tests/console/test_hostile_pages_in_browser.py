"""Pages full of what strangers may write, in a browser: nothing of it is run, and no page is wider than its window.

AMPSQ_SHOW=FOLDER writes a picture of each page there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest
from console_window import APART, WINDOWS
from observing import eventually
from playwright.sync_api import expect

from ampsq import Action, Client, Destination, LocalQueue, Queue, Topic, View
from ampsq.protocol.schema import key

pytestmark = pytest.mark.slow

#: The longest names that are allowed.
LONG, TOPIC = "n" * 255, "t" * 255
SCRIPT = "\"'><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 " * 4
TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe \N{FAMILY} \u4f60\u597d" + "\u0301" * 40
#: Widths: what cannot be seen without moving the page.
WIDER = """() => [...document.querySelectorAll("main *")].filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest(".scroll, caption, svg, pre");
}).map((e) => e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 30)).slice(0, 3)"""
DEEP = b'{"a":' * 400 + b"1" + b"}" * 400


@pytest.fixture
def hostile(client, serve, valkey, coordinate):
    """A server where every text that somebody else writes is of the worst kind; its console, and its pages."""
    client.apply(
        Topic(name="orders", key=["/id"]),
        LocalQueue(name=LONG, underlying_topic="orders", record_deliveries=True),
        LocalQueue(
            name="grouped", underlying_topic="mail", group_by="/g", on_group_failure="stop", group_affinity="1h"
        ),
        LocalQueue(name="letters", underlying_topic="failed"),
        Queue(name="shared", underlying_topic=TOPIC),
        View(name="rows", underlying_topic="orders", projection=["/s AS /s", "COUNT(/id) AS /n"], grouping=["/s"]),
        Action.dead_letter(LONG, "failed", name="a" * 255),
        Destination(name="d" * 255, addresses=["redis://localhost:1"], sync_type="sync", topics=[TOPIC, "shared"]),
    )  # fmt: skip
    headers = {SCRIPT: SCRIPT, "long": "h" * 4_000, "rtl": ARABIC, "turned": TURNED}
    texts = [SCRIPT, "w" * 1_000_000, ARABIC, TURNED, {SCRIPT: [SCRIPT]}]
    marks = [client.publish("orders", {"id": n, "s": each}, headers=headers) for n, each in enumerate(texts)]
    marks += [client.publish(TOPIC, each) for each in (DEEP, b"\xff\xfe\x00<script>window.hacked = 3</script>")]
    client.publish(TOPIC, {"x": SCRIPT})
    client.publish_many("mail", [{"g": each} for each in (SCRIPT, "g" * 2_000, ARABIC, "paused", "free")])
    client.ack(LONG, marks[:1], option="expire", reason=SCRIPT.replace("\n", " "))
    coordinate(valkey.url)
    eventually(lambda: client.admin.dead_letters("letters"), within=30)
    client.admin.pause_group("grouped", "paused")
    now = int(client._store.redis.time()[0]) * 1000
    report = {
        "state": "refused", "at": now + 3_600_000, "since": now, "instance": SCRIPT, "group": ARABIC, "reason": SCRIPT,
        "source": SCRIPT, "destination": client.instance, "sync_type": "sync",
    }  # fmt: skip
    client._store.redis.hset(key(client.instance, "links"), f"in {SCRIPT}", json.dumps(report))
    whole = f"{client.instance}-w"
    with (
        Client(valkey.url, partitions=3, instance=whole) as all_of_them,
        client.publisher("p" * 255) as publisher,
        client.subscribe(LONG, max_backlog=2, filter=f"/s <> '{'f' * 800}'") as held,
        client.subscribe("grouped", max_backlog=2) as grouped,
    ):
        all_of_them.apply(Queue(name="work", underlying_topic="orders"))
        all_of_them.publish_many("orders", range(1_100), batch=500, key=lambda _: "hot")
        publisher.publish("orders", {"id": 77})
        publisher.flush(timeout="30s")
        assert held.get(timeout="30s") is not None
        grouped.get(timeout="30s").expire()
        grouped.flush()
        assert grouped.get(timeout="30s") is not None
        asked = serve(valkey.url, [client.instance, *all_of_them.partitions])
        asked.instance = client.instance
        of = f"/i/{client.instance}"
        yield asked, [
            "/", f"/search?q={quote(SCRIPT)}", f"/search?q={'n' * 900}", f"{of}/search?q=a", f"{of}/queues",
            f"{of}/queues?q={quote(SCRIPT)}", f"{of}/queues/{LONG}", f"{of}/queues/{LONG}?filter={quote(SCRIPT)}",
            f"{of}/queues/{quote(SCRIPT, safe='')}", f"{of}/groups/grouped", f"{of}/topics", f"{of}/topics/orders",
            f"{of}/topics/rows", f"{of}/topics/{TOPIC}?from={quote(SCRIPT)}", f"{of}/publishers",
            *(f"{of}/messages?bookmark={quote(str(each), safe='')}&queue={LONG}" for each in marks),
            f"{of}/messages?bookmark={quote(SCRIPT)}", f"{of}/dead-letters", f"{of}/dead-letters/letters",
            f"{of}/replication", f"{of}/actions", f"{of}/actions/{'a' * 255}",
            f"{of}/changes/expire?queue={LONG}&filter={quote('/s = ' + repr('f' * 800))}",
            f"{of}/changes/pause-group?queue=grouped&group={quote(SCRIPT)}",
            f"{of}/changes/drop-group?queue=grouped&group={'g' * 2_000}",
        ]  # fmt: skip


def test_nothing_that_strangers_write_is_run_or_breaks_a_page(hostile, look):
    asked, addresses = hostile
    folder, bad, said = os.environ.get("AMPSQ_SHOW"), {}, []
    for kind, (colour, size) in WINDOWS.items():
        # Colours change nothing of all this, but for the pictures.
        if folder is None and colour == "dark":
            continue
        page = look(asked, colour, size)
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        for number, address in enumerate(addresses):
            page.goto(asked.console.base + address)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            run = page.evaluate("[window.hacked, document.querySelectorAll('main script, main img').length]")
            if width > 0 or run != [None, 0] or page.evaluate(WIDER):
                bad[kind, address[:60]] = (width, run, page.evaluate(WIDER))
            if apart := page.evaluate(APART):
                bad[kind, address[:60], "grave buttons near others"] = apart
            if folder is not None:
                page.screenshot(path=Path(folder) / f"hostile-{number:02}-{kind}.png", full_page=True)
    assert said == []
    assert not bad, bad
