"""The reference of the Python API has every public name once, and says nothing that it does not explain."""

import re
from collections import Counter
from pathlib import Path
from threading import Timer

import pytest
from cases import for_each
from observing import eventually

import ampsq
from ampsq import Action, Client, Queue, Topic, View
from ampsq.server.embedded import acquire

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
HEADINGS = {name: re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE) for name, text in PAGES.items()}
#: Types of Python, its library and Spark that signatures name.
FOREIGN = {"Any", "Callable", "Column", "DataFrame", "EllipsisType", "Exception", "False", "BaseException", "Iterable"}
FOREIGN |= {"Iterator", "Mapping", "None", "Path", "PathLike", "Self", "Sequence", "True", "Unpack"}


def anchor(heading):
    return re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")


def anchors(page):
    return {*map(anchor, HEADINGS[page]), *re.findall(r'<a id="([^"]+)">', PAGES[page])}


@for_each("name", ampsq.__all__)
def test_every_exported_name_is_on_one_page(name):
    assert [page for page, headings in HEADINGS.items() for heading in headings if heading == name] == [
        *{page for page, headings in HEADINGS.items() if name in headings}
    ]
    assert sum(name in headings for headings in HEADINGS.values()) == 1
    assert f"| [`{name}`](" in PAGES["index.md"]


@pytest.mark.parametrize("kind", [ampsq.Client, ampsq.AsyncClient, ampsq.Admin, ampsq.AsyncAdmin, ampsq.Publisher])
def test_every_call_is_on_one_page(kind):
    calls = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    found = Counter(heading for headings in HEADINGS.values() for heading in headings)

    assert {call: found[f"{kind.__name__}.{call}"] for call in calls} == dict.fromkeys(calls, 1)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_heading(page):
    missing = [
        (target, part)
        for target, part in re.findall(r"\]\(([\w/.-]*\.md)?#([\w-]+)\)", PAGES[page])
        if part not in anchors(target or page)
    ]

    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_type_of_a_signature_is_explained(page):
    known = {heading for headings in HEADINGS.values() for heading in headings} | FOREIGN
    known |= set(re.findall(r"^\| `(\w+)` \|", PAGES["figures.md"], re.MULTILINE))
    known |= set(re.findall(r'<a id="\w+"></a>`(\w+)`', PAGES["errors.md"]))
    signatures = re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)
    calls = [re.sub(r'"[^"]*"|^from .*$|\w+\.(?=[A-Z])', "", text, flags=re.MULTILINE) for text in signatures]

    assert {name for text in calls for name in re.findall(r"\b[A-Z]\w+", text)} - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_element_and_argument_of_a_page_is_explained(page):
    assert re.findall(r"^\| `.*\| +\|$", PAGES[page], re.MULTILINE) == []
    for part in re.split(r"^#+ ", PAGES[page], flags=re.MULTILINE):
        if "**Args**" in part:
            call = re.search(r"```python\n(?:from .*\n\n)?(.*?)```", part, re.DOTALL)[1]
            items = re.search(r"\*\*Args\*\*\n\n(.*?)(?=\n\n|\Z)", part, re.DOTALL)[1]
            told = {
                name for names in re.findall(r"^- (`.*?`): ", items, re.MULTILINE) for name in re.findall(r"\w+", names)
            }
            assert told == set(re.findall(r"(?:^ +|[(,] ?)\**(\w+):", call, re.MULTILINE)), call


class _Seen(Exception):
    """A program that goes on until it is stopped has printed what was waited for."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_keys_of_the_tasks_for_readers_do_what_the_tasks_ask(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (FOLDER.parent / "measured" / "reference-tasks.md").read_text()
    keys = dict(re.findall(r"```python\n# (\d+)\n(.*?)```", page, re.DOTALL))
    assert len(keys) == 10
    free, new = {"id": 2, "price": 0}, {"id": 7, "price": 3, "state": "new"}

    def run(number, *, until=None, **names):
        """Run a key; one that goes on until it is stopped is, once it has printed what is waited for."""
        printed = []

        def show(value):
            printed.append(value)
            if value == until:
                raise _Seen

        program = keys[str(number)]
        for address in ("redis://localhost:6379", "redis://nyc:6379", "redis://ldn:6379"):
            program = program.replace(address, server.url)
        try:
            exec(compile(program, f"key {number}", "exec"), {"client": client, "print": show, **names})  # noqa: S102
        except _Seen:
            return printed
        assert until is None
        return printed

    with acquire(tmp_path / "d", appendfsync="always") as server, Client(server.url) as client:
        client.apply(
            Topic(name="orders", key=["/id"]),
            Queue(name="work", underlying_topic="orders"),
            Queue(name="failed-orders", underlying_topic="failed"),
            Action.dead_letter("work", "failed"),
            View(name="totals", underlying_topic="orders", projection=["COUNT(/id) AS /number"]),
        )
        assert run(1) == []
        assert run(2, until={"id": 1, "price": 5}) == [{"id": 1, "price": 5}]
        client.publish("orders", free)
        bookmark = client.publish("orders", new)

        assert run(3) == [1]
        assert run(4) == []
        assert client.admin.queue_stats("work").delayed == 1
        assert run(10, bookmark=bookmark) == [client.admin.explain("work", bookmark).sentence]

        client.apply(Queue(name="work", underlying_topic="orders", max_deliveries=1))
        with client.subscribe("work") as messages:
            messages.get("5s").cancel()
        eventually(lambda: client.admin.dead_letters("failed-orders"))
        assert run(5) == [1]

        ((planned,),) = run(6)
        assert (planned.definition.name, planned.outcome) == ("urgent", "new")
        assert client.admin.queues()["urgent"].priority == "/price"
        assert run(7) == [{**new, "state": "paid"}]

        late = Timer(1.0, client.publish, ("orders", {"id": 8, "price": 1}))
        late.start()
        assert run(8, until={"number": 6})[-1] == {"number": 6}
        late.join()
        with Client(server.url, instance="ldn-1") as other, Client(server.url, instance="nyc-1") as one:
            other.publish("orders", free)
            one.publish("orders", free)
        assert run(9, until=free) == [free]
