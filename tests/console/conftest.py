"""A console on the test's instance, asked over HTTP as anybody would."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import pytest
from console_window import ARGUMENTS, WIDE
from prometheus_client.parser import text_string_to_metric_families

from ampsq import LocalQueue
from ampsq.console import Access, Console
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import COMPILED, key


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str


class Asked:
    """A console, and whoever asks it."""

    def __init__(self, console):
        self.console = console
        self.host = urlsplit(console.base).netloc
        self.cookie = f"{console.cookie}={console.access.cookie}"

    def __call__(self, path, method="GET", form=None, **headers):
        """Ask once; `form` is sent as a browser does."""
        line = http.client.HTTPConnection(self.host, timeout=90)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None
        if form is not None:
            method, body = "POST", urlencode(form)
            sent = {"content-type": "application/x-www-form-urlencoded", **sent}
        with contextlib.closing(line):
            line.request(method, path, body, sent)
            answer = line.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())

    def page(self, path, **headers):
        """A page, as somebody who has shown the token."""
        return self(path, cookie=self.cookie, **headers)

    def change(self, path, **form):
        """A change, as the console's own pages make it."""
        sent = {"csrf": self.console.access.word, **form}
        return self(path, form=sent, cookie=self.cookie, origin=f"http://{self.host}")

    def anew(self):
        """Forget the figures, so that the next question is answered with the present state."""
        for instance in self.console._observer.instances():
            self.console._observer.forget(instance)
        return self

    def metrics(self):
        """Name -> labels -> value."""
        answer = self("/metrics")
        assert answer.status == 200, answer.text
        found = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return found


@pytest.fixture
def serve():
    """Start consoles: ``serve(url, instances, **access)``; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(url, instances=(), rounds=None, **access):
            console = Console(url, access=Access(**access), instances=instances, rounds=rounds)
            console.start()
            stack.callback(console.stop)
            return Asked(console)

        yield start


@pytest.fixture
def define_many():
    """Define queues `q0` and so on over topics `t0` to `t49`, by the script alone: ``define_many(client, 1000)``.

    Elements that the script is not told of, as `group_by`, stand in their definitions alone.
    """

    def define(client, number, **elements):
        store = client._store
        version = int(store.redis.hget(key(client.instance, "instance"), "catalog") or 0)
        compiled = " ".join(str({"ratio": 1, "room": 1000}.get(name, 0)) for name in COMPILED)
        for i in range(number):
            topic = f"t{i % 50}"
            definition = LocalQueue(name=f"q{i}", underlying_topic=topic, **elements).to_json()
            head = ["", version, f"q{i}", definition, topic, f"{compiled} {topic}", *[""] * 5, 0, *[""] * 5]
            version = store.call(script_call("define_queue", [*head, 1, topic], int))

    return define


@pytest.fixture
def asked(serve, valkey, client):
    """A console of the test's instance, where `client` is."""
    return serve(valkey.url, [client.instance])


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of a module."""
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415  (other tests do without)

    program = shutil.which("chromium")
    if program is None:
        assert os.environ.get("AMPSQ_FORBID_SKIPS") != "1", "chromium is missing: apt-get install chromium"
        pytest.skip("chromium is not installed")
    # How long something may take to appear, on a machine that others keep busy, too.
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def look(browser):
    """Open a console in a window of its own: ``look(asked, colour=..., size=...)`` gives the page."""
    from playwright.sync_api import expect  # noqa: PLC0415  (other tests do without)

    windows = []

    def open_it(asked, colour="light", size=WIDE):
        windows.append(browser.new_context(color_scheme=colour, viewport=size))
        page = windows[-1].new_page()
        page.set_default_timeout(20_000)
        page.goto(asked.console.address)
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.goto(f"{asked.console.base}/i/{asked.instance}/queues")
        return page

    yield open_it
    for window in windows:
        window.close()
