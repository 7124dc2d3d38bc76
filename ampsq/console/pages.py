"""The pages: what each one reads, and which template shows it. Whatever is read is escaped where it is shown."""
# Long: one method a page.

from __future__ import annotations

import json
import logging
import re
import secrets
from collections import OrderedDict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ampsq.base.errors import AmpsqError, DefinitionError, ExpressionError, Unavailable, UnknownQueue, UnknownTopic
from ampsq.base.formatting import printable, size_text, time_text
from ampsq.base.message_types import MessageType
from ampsq.base.suggestions import nearest
from ampsq.console.answers import (
    action_facts,
    browse_facts,
    details_facts,
    json_answer,
    latency_facts,
    letter_facts,
    missing_facts,
    queue_facts,
    topic_facts,
    wants_json,
)
from ampsq.console.changes import CHANGES, change_named
from ampsq.console.charts import draw_sparkline, rates
from ampsq.console.facts import RefusalFacts
from ampsq.console.history_charts import RANGE_NAMES, draw_history, draw_latencies
from ampsq.console.live_updates import LiveUpdates
from ampsq.console.lookups import browse, cut_text, long_text, read_body, read_past, short_text
from ampsq.console.openapi import pages_document
from ampsq.console.overview import letter_queues, read_overview
from ampsq.console.page_table import PAGES
from ampsq.console.partitioned_queues import read_partitioned_queues, sum_rates
from ampsq.console.queue_list import asked_number, choose_queues, span, wait
from ampsq.console.replication_graph import draw_links
from ampsq.console.search import KINDS, search_everything
from ampsq.console.topic_lookups import ReplayRequest, read_details, read_topic_page
from ampsq.operations.figures import sample_of
from ampsq.operations.subscribers import read_subscribers
from ampsq.protocol.calls.queue_history import RANGES
from ampsq.protocol.context import InstanceContext
from ampsq.queues.history_texts import event_details, reasons_text
from ampsq.replication.report import carried_to, read_destinations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from ampsq.base.bookmarks import Bookmark
    from ampsq.console.access import Access
    from ampsq.console.examiner import Examiner
    from ampsq.console.facts import Facts
    from ampsq.console.observer import Observer
    from ampsq.console.page_table import PageEntry
    from ampsq.operations.figures import QueueFigures

__all__ = ["Pages"]

_log = logging.getLogger("ampsq.console")
_HERE: Final = Path(__file__).parent
#: Messages that a page shows at first, and at most.
_SHOWN: Final = 25
_MOST: Final = 500
#: Seconds that one look at a queue may take, and where somebody asks to look further.
_BUDGET: Final = 1.5
_PATIENT: Final = 20
#: Words that are kept for the page that a change leads to.
_NOTES: Final = 100
#: A moment as sentences have it, by ISO 8601.
_MOMENT: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d{3})?Z")
#: Other instances that the header leads to; the overview has all.
_OTHERS: Final = 20


class Pages:
    """All pages of one console.

    Args:
        observer: what they read.
        examiner: what the overview reads besides.
        access: who may do what.
        stopping: whether the server is to end, so that streams do.
    """

    def __init__(self, observer: Observer, examiner: Examiner, access: Access, stopping: Callable[[], bool]) -> None:
        self._observer, self._examiner, self._access = observer, examiner, access
        self._notes: OrderedDict[str, str] = OrderedDict()
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=_seen,
        )  # fmt: skip
        self._templates.filters |= {
            "wait": wait, "span": span, "moment": _moment, "moments": _with_moments, "size": size_text,
            "number": "{:,}".format, "at": _at, "age": _age, "setting": _setting, "short": cut_text,
        }  # fmt: skip
        self._live = LiveUpdates(observer, examiner, self._templates, stopping)
        self._templates.globals |= {
            "short_text": short_text,
            "long_text": long_text,
            "event_details": partial(event_details, moment=_moment, short=cut_text),
            "reasons": reasons_text,
        }

    @property
    def routes(self) -> list[BaseRoute]:
        """Addresses and what answers them."""
        of = "/i/{instance}"
        shown: dict[str, Callable[[Request], Response]] = {
            "overview": self._overview, "search_all": self._search, "search": self._search, "queues": self._queues,
            "queue": self._queue, "groups": self._groups, "topics": self._topics, "topic": self._topic,
            "publishers": self._publishers, "message": self._message, "letter_queues": self._letter_queues,
            "dead_letters": self._dead_letters, "replication": self._replication, "actions": self._actions,
            "action": self._action, "question": self._question, "partitioned_queues": self._partitioned_queues,
            "partitioned_queue": self._partitioned_queue,
        }  # fmt: skip
        return [
            Mount("/static", StaticFiles(directory=_HERE / "static")),
            Route("/openapi.json", lambda _request: JSONResponse(pages_document())),
            Route("/events", self._events),
            Route(f"{of}/events", self._events),
            *(Route(page.path, self._shown(page, shown[page.name]), methods=["GET"]) for page in PAGES),
            Route(f"{of}/changes/{{change}}", self._do, methods=["POST"]),
        ]

    # -- how a page is shown

    def _shown(self, page: PageEntry, show: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Show what a page raises as a page, too."""

        def endpoint(request: Request) -> Response:
            self._observer.looked()
            request.state.facts = page.facts
            try:
                return show(request)
            except AmpsqError as error:
                return self._failed(request, error)

        return endpoint

    def _failed(self, request: Request, error: AmpsqError) -> Response:
        status = (
            503 if isinstance(error, Unavailable) else 404 if isinstance(error, UnknownQueue | UnknownTopic) else 400
        )
        titles = {503: "The server cannot be reached", 404: "There is nothing of this name", 400: "That cannot be done"}
        request.state.facts = RefusalFacts
        told = {"error": str(error), "title": titles[status]}
        return self._page("error.html", request, status=status, told=told, title=titles[status], error=str(error))

    def nowhere(self, request: Request, _error: Exception) -> Response:
        """Answer for an address that no page has."""
        title, error = "There is no page at this address", f"{request.url.path}: the overview, at /, leads to all pages"
        request.state.facts = RefusalFacts
        told = {"error": error, "title": title}
        return self._page("error.html", request, status=404, told=told, title=title, error=error)

    def _page(self, template: str, request: Request, *, told: object, status: int = 200, **values: object) -> Response:
        """Answer with a template for people, or with what it shows, told as JSON."""
        if wants_json(request):
            kind: type[Facts] = request.state.facts
            return json_answer(kind.model_validate(told), status)
        is_live = request.query_params.get("live") != "off"
        instance = request.path_params.get("instance")
        text = self._templates.get_template(template).render(
            request=request,
            status=status,
            instance=instance,
            others=[each for each in self._observer.listed if each != instance][:_OTHERS] if instance else [],
            path=request.url.path,
            query=request.url.query,
            here=str(request.url.remove_query_params("note").replace(scheme="", netloc="")),
            still=str(request.url.include_query_params(live="off").replace(scheme="", netloc="")),
            moving=str(request.url.remove_query_params("live").replace(scheme="", netloc="")),
            is_live=is_live,
            since="" if is_live or instance is None else self._live.since(instance),
            note=self._notes.get(request.query_params.get("note", ""), ""),
            is_read_only=self._access.is_read_only,
            changes=CHANGES,
            **values,
        )
        return HTMLResponse(text, status, {"vary": "accept"})

    def _noted(self, text: str) -> str:
        """Keep words for the page that comes next; an address alone cannot make one say something."""
        name = secrets.token_urlsafe(8)
        self._notes[name] = text
        while len(self._notes) > _NOTES:
            self._notes.popitem(last=False)
        return name

    def _named(self, request: Request) -> str:
        """The instance that a request is about."""
        instance: str = request.path_params["instance"]
        known = self._observer.instances()
        if instance not in known:
            raise DefinitionError(f"no instance {instance!r} is shown here; {nearest(instance, known, 'instance')}")
        return instance

    def _context(self, instance: str) -> InstanceContext:
        client = self._observer.client(instance)
        return InstanceContext(client.instance, client.origin)

    # -- pages

    def _overview(self, request: Request) -> Response:
        self._examiner.looked()
        found = read_overview(self._observer, self._examiner, request.query_params.get("page", "1"))
        return self._page("overview.html", request, told=found, title="Overview", found=found)

    def _search(self, request: Request) -> Response:
        instance = self._named(request) if "instance" in request.path_params else None
        found = search_everything(self._observer, request.query_params.get("q", ""), instance)
        return self._page("search.html", request, told=found, title="Search", found=found, kinds=KINDS, text=found.text)

    def _queues(self, request: Request) -> Response:
        instance = self._named(request)
        figures = self._observer.reading(instance).figures
        asked = request.query_params
        chosen = choose_queues(
            figures.queues.values(), asked.get("q", ""), asked.get("sort", "name"), asked.get("page", "1")
        )
        moments = {each.stats.name: self._observer.moments(instance, each.stats.name) for each in chosen.queues}
        charts = {
            name: draw_sparkline([(each.at, each.depth) for each in found], "depth") for name, found in moments.items()
        }
        each_second = {name: rates(found) for name, found in moments.items()}
        told = {
            "queues": [queue_facts(each, each_second[each.stats.name]) for each in chosen.queues],
            "number": chosen.number, "page": chosen.page, "pages": chosen.pages,
        }  # fmt: skip
        return self._page(
            "queues.html", request, told=told, title="Queues", chosen=chosen, charts=charts, rates=each_second,
            total=len(figures.queues), whole="", missing=(), partitions=0,
        )  # fmt: skip

    def _partitioned_queues(self, request: Request) -> Response:
        whole, asked = request.path_params["whole"], request.query_params
        found = read_partitioned_queues(self._observer, whole)
        chosen = choose_queues(found.queues, asked.get("q", ""), asked.get("sort", "name"), asked.get("page", "1"))
        each_second = {each.stats.name: sum_rates(found.parts[each.stats.name]) for each in chosen.queues}
        told = {
            "queues": [queue_facts(each, each_second[each.stats.name]) for each in chosen.queues],
            "number": chosen.number, "page": chosen.page, "pages": chosen.pages, "total": found.total,
            "missing": missing_facts(found.away),
        }  # fmt: skip
        return self._page(
            "queues.html", request, told=told, title=f"Queues of {whole} in {found.total:,} partitions", chosen=chosen,
            charts=None, rates=each_second, total=len(found.parts), whole=whole, missing=found.away,
            partitions=found.total,
        )  # fmt: skip

    def _partitioned_queue(self, request: Request) -> Response:
        whole, name = request.path_params["whole"], request.path_params["queue"]
        found = read_partitioned_queues(self._observer, whole)
        queue, parts = found.queue(name)
        each_second = sum_rates(parts)
        told = {
            "queue": queue_facts(queue, each_second), "total": found.total, "missing": missing_facts(found.away),
            "partitions": [
                {
                    "number": each.partition.number, "instance": each.partition.instance,
                    "queue": queue_facts(each.figures, each.rates),
                }
                for each in parts
            ],
        }  # fmt: skip
        rows = sorted(parts, key=lambda part: (-part.figures.stats.depth, part.partition.number))
        return self._page(
            "partitioned_queue.html", request, told=told, title=name, queue=queue, rates=each_second, rows=rows,
            whole=whole, missing=found.away, partitions=found.total,
        )  # fmt: skip

    def _queue(self, request: Request) -> Response:
        instance, name = self._named(request), request.path_params["queue"]
        queue = self._known_queue(instance, name)
        moments = self._observer.moments(instance, name)
        filter_, limit = request.query_params.get("filter", "").strip(), self._limit(request)
        seconds = _PATIENT if "patient" in request.query_params else _BUDGET
        try:
            found, wrong = (
                self._observer.run(instance, browse(self._context(instance), name, filter_, limit, seconds)),
                "",
            )
        except (ExpressionError, DefinitionError) as error:
            found, wrong = None, str(error)
        explained = self._observer.client(instance).admin.explain(name)
        is_shared, alone = self._sharing(instance, queue)
        subscribers = self._observer.run_ahead(instance, partial(read_subscribers, instance, name))
        range_ = request.query_params.get("range", "")
        range_ = range_ if range_ in RANGES else next(iter(RANGES))
        past = self._observer.run(instance, read_past(instance, name, range_))
        told = {
            **queue_facts(queue, rates(moments)), "history": {"range": range_, "samples": past.samples},
            "latencies": latency_facts(range_, past),
            "next": explained.as_dict(), "subscriptions": subscribers,
            "messages": None if found is None else browse_facts(found), "wrong": wrong, "definition": queue.definition,
        }  # fmt: skip
        return self._page(
            "queue.html", request, told=told, title=name, queue=queue, found=found, wrong=wrong, filter=filter_,
            limit=limit, more=min(limit * 4, _MOST), most=_MOST, patient=_PATIENT, explained=explained,
            rates=rates(moments), ranges=RANGE_NAMES, range=range_, subscribers=subscribers,
            history=draw_history(past.samples, range_, sample_of(queue, past.now)),
            latencies=draw_latencies(past.latencies, range_, past.now), is_shared=is_shared, alone=alone,
            settings={"underlying_topic": queue.definition.underlying_topic, **queue.definition.elements()},
        )  # fmt: skip

    def _sharing(self, instance: str, queue: QueueFigures) -> tuple[bool, str]:
        """Return whether another instance may own messages of a queue; and why not, where others could."""
        if not self._observer.reading(instance).figures.links:
            return False, ""
        if not queue.stored.owner:
            return False, "it is a local queue, of which each instance delivers copies of its own"
        destinations = carried_to(self._observer.run(instance, read_destinations(instance)), queue.stored)
        if destinations or queue.stats.remote or queue.ages.proxied:
            return True, ""
        return False, "no destination is sent this queue, so that all its messages are this instance's"

    def _limit(self, request: Request) -> int:
        return asked_number(request.query_params.get("limit", ""), _MOST, _SHOWN)

    def _known_queue(self, instance: str, name: str) -> QueueFigures:
        if name not in self._observer.reading(instance).figures.queues:
            # Raises, and says which name was meant; else it was defined since the last reading.
            self._observer.client(instance).admin.queue_stats(name)
            self._observer.forget(instance)
        queues = self._observer.reading(instance).figures.queues
        if name not in queues:
            raise UnknownQueue(queue=name)
        return queues[name]

    def _groups(self, request: Request) -> Response:
        instance, name = self._named(request), request.path_params["queue"]
        queue, limit = self._known_queue(instance, name), self._limit(request)
        admin = self._observer.client(instance).admin
        found, explained = admin.groups(name, limit=limit), admin.explain(name)
        unread = admin.queue_stats(name).waiting
        told = {
            "queue": name, "groups": found.groups, "number": found.number, "is_all": found.is_all,
            "unread": unread, "limit": limit, "next": explained.as_dict(),
        }  # fmt: skip
        return self._page(
            "groups.html", request, told=told, title=f"Groups of {name}", queue=name, unread=unread, found=found,
            limit=limit, more=min(limit * 4, _MOST), most=_MOST, explained=explained, now=datetime.now(UTC),
            concurrency=queue.definition.group_concurrency or 0,
        )  # fmt: skip

    def _topics(self, request: Request) -> Response:
        instance, asked = self._named(request), request.query_params
        found = self._observer.run(
            instance, read_topic_page(self._context(instance), asked.get("q", ""), asked.get("page", "1"))
        )
        moments = self._observer.note_topics(instance, found.topics)
        each_second = {name: rates(moments.get(name, ())) for name in found.topics}
        told = {
            "topics": [
                topic_facts(name, state, each_second[name], is_view=name in found.views)
                for name, state in found.topics.items()
            ],
            "number": found.number, "page": found.page, "pages": found.pages,
        }  # fmt: skip
        return self._page("topics.html", request, told=told, title="Topics", found=found, rates=each_second)

    def _topic(self, request: Request) -> Response:
        instance, name = self._named(request), request.path_params["topic"]
        place, filter_ = (request.query_params.get(each, "").strip() for each in ("from", "filter"))
        seconds = _PATIENT if "patient" in request.query_params else _BUDGET
        asked = ReplayRequest(place, filter_, self._limit(request), seconds)
        found = read_details(self._observer.client(instance), name, asked, _SHOWN)
        each_second = rates(self._observer.note_topics(instance, {name: found.state}).get(name, ()))
        queues = self._observer.reading(instance).figures.queues
        return self._page(
            "topic.html", request, told=details_facts(name, found, each_second), title=name, found=found,
            rates=each_second, asked=asked, more=min(asked.limit * 4, _MOST), most=_MOST, patient=_PATIENT,
            queues=[queues[each] for each in found.state.queues if each in queues],
        )  # fmt: skip

    def _publishers(self, request: Request) -> Response:
        found = self._observer.client(self._named(request)).admin.publishers()
        told = {"publishers": found}
        return self._page(
            "publishers.html", request, told=told, title="Publishers", found=found[:_MOST], number=len(found)
        )

    def _message(self, request: Request) -> Response:
        instance = self._named(request)
        bookmark, queue = request.query_params.get("bookmark", "").strip(), request.query_params.get("queue", "")
        client = self._observer.client(instance)
        told = client.admin.history(bookmark)
        form = MessageType.parse(client.admin.message_type(told.bookmark.topic))
        body = self._observer.run(instance, read_body(self._context(instance), bookmark, form))
        explained = client.admin.explain(queue, bookmark) if queue else None
        facts = {
            **told.as_dict(), "body": body.text, "bytes": body.length, "headers": body.headers,
            "explained": explained.as_dict() if explained is not None else None,
        }  # fmt: skip
        return self._page(
            "message.html", request, told=facts, title="Message", life=told, body=body, explained=explained, queue=queue
        )

    def _letter_queues(self, request: Request) -> Response:
        instance = self._named(request)
        figures = self._observer.reading(instance).figures
        found = [figures.queues[name] for name in letter_queues(figures)]
        told = [{"queue": each.stats.name, "letters": each.stats.depth, "oldest": each.ages.message} for each in found]
        return self._page("letter_queues.html", request, told={"queues": told}, title="Dead letters", found=found)

    def _dead_letters(self, request: Request) -> Response:
        instance, name = self._named(request), request.path_params["queue"]
        filter_, limit, wrong = request.query_params.get("filter", "").strip(), self._limit(request), ""
        client = self._observer.client(instance)
        try:
            letters = client.admin.dead_letters(name, filter_ or None, top_n=limit + 1)
        except (ExpressionError, DefinitionError) as error:
            letters, wrong = [], str(error)
        told = {
            "letters": [letter_facts(each) for each in letters[:limit]],
            "more": len(letters) > limit,
            "wrong": wrong,
        }
        queues = self._observer.reading(instance).figures.queues
        grouped = {name for name, each in queues.items() if each.definition.group_concurrency}
        return self._page(
            "letters.html", request, told=told, title=f"Dead letters in {name}", queue=name, letters=letters[:limit],
            is_more=len(letters) > limit, limit=limit, more=min(limit * 4, _MOST), filter=filter_, wrong=wrong,
            grouped=grouped,
        )  # fmt: skip

    def _replication(self, request: Request) -> Response:
        instance = self._named(request)
        found = self._observer.client(instance).admin.replication()
        here, peers = draw_links(found)
        return self._page(
            "replication.html", request, told=found, title="Replication", found=found, graph=here, peers=peers
        )

    def _actions(self, request: Request) -> Response:
        figures = self._observer.reading(self._named(request)).figures
        found = figures.actions.values()
        told = {"actions": [action_facts(each) for each in found]}
        return self._page("actions.html", request, told=told, title="Actions", found=found)

    def _action(self, request: Request) -> Response:
        instance, name = self._named(request), request.path_params["action"]
        client = self._observer.client(instance)
        failed = client.admin.failed_events(name)
        state = client.admin.actions()[name]
        told = {**action_facts(state), "events": failed[:_MOST]}
        return self._page(
            "action.html", request, told=told, title=name, state=state, failed=failed[:_MOST], number=len(failed)
        )

    async def _events(self, request: Request) -> Response:
        """Tell a page whenever there are new figures; what it shows it asks for itself."""
        instance = await run_in_threadpool(self._named, request) if "instance" in request.path_params else None
        return StreamingResponse(self._live.stream(instance), media_type="text/event-stream")

    # -- changes

    def _question(self, request: Request) -> Response:
        instance, change = self._named(request), change_named(request.path_params["change"])
        given = change.given(request.query_params)
        if self._access.is_read_only:
            raise DefinitionError("this console is read-only: it was started with --console-read-only")
        number = change.counts(self._observer.client(instance), given) if change.counts is not None else None
        told = {"change": change.name, "asks": change.asks(given), "messages": number, "given": given}
        return self._page(
            "question.html", request, told=told, title=change.title, change=change, given=given,
            asks=told["asks"], number=number, word=self._access.word,
            back=_own(request.query_params.get("back", ""), instance),
        )  # fmt: skip

    async def _do(self, request: Request) -> Response:
        form = {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
        if not self._access.is_word(form.get("csrf", "")):
            text = "The page was made by another start of the console, or by somebody else: load it again.\n"
            return PlainTextResponse(text, 403)
        return await run_in_threadpool(self._done, request, form)

    def _done(self, request: Request, form: Mapping[str, str]) -> Response:
        try:
            instance, change = self._named(request), change_named(request.path_params["change"])
            given = change.given(form)
            said = change.does(self._observer.client(instance), given)
        except AmpsqError as error:
            return self._failed(request, error)
        _log.info("changed from the console, %s of %s: %s", change.name, instance, said)
        self._observer.forget(instance)
        back = _own(form.get("back", ""), instance)
        mark = "&" if "?" in back else "?"
        return RedirectResponse(f"{back}{mark}note={self._noted(said)}", 303)


def _at(moment: datetime) -> str:
    """Write a moment to the second, by UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _moment(milliseconds: int) -> str:
    """Write a moment, ms since 1970, to the millisecond, where the order of several counts."""
    return _with_moments(time_text(milliseconds))


def _with_moments(text: str) -> str:
    """Write the moments in a sentence as all pages write them."""
    return _MOMENT.sub(r"\1 \2\3 UTC", text)


def _setting(value: object, indent: int | None = None) -> str:
    """Write the value of a definition's element: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _age(bookmark: Bookmark | None) -> str:
    """Return how long ago a message was published, to the second; a dash for none."""
    return wait(None if bookmark is None else datetime.now(UTC).timestamp() - int(bookmark.id.partition("-")[0]) / 1000)


def _own(path: str, instance: str) -> str:
    """Return the page to go back to: a page of ours, whatever an address says."""
    own = f"/i/{instance}/"
    is_ours = path.startswith(own) and "\\" not in path and "//" not in path.partition("?")[0] and path.isprintable()
    return path if is_ours else f"{own}queues"


def _seen(value: object) -> object:
    """Return what a template shows, without characters that act on the screen; markup and form values stay."""
    return printable(value) if type(value) is str else value
