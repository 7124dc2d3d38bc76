"""One direction between two instances: reading the source's streams and applying them at the destination.

A link keeps nothing that it could not ask for again. Where it goes on follows from what the destination has
(`received`) beside what the link claimed to have sent (`sent`, at the source); `apply_log` passes over what comes
twice.
"""
# Long: one step, and where the link goes on, are about the same places.

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ampsq.base.errors import DestinationAhead, IncarnationOver, OtherFilter
from ampsq.base.log_positions import FIRST, id_text, parse_id
from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.calls import replication as links
from ampsq.protocol.calls import requests as request_calls
from ampsq.protocol.reads.streams import (
    Stream,
    find_entry,
    journal_of,
    last_id,
    log_of,
    read_streams,
    stream_exists,
    stream_facts,
    wait_for_streams,
)
from ampsq.replication.durability_gate import DurabilityGate
from ampsq.replication.link_sender import LinkPage, LinkSender
from ampsq.replication.selection import (
    NO_FILTER,
    EntrySelector,
    SourceEntryCopy,
    chain,
    published_runs,
    split_entry,
    split_same_entry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.calls.links import SentPlaces
    from ampsq.protocol.calls.replication import EntryRun, JournalRow, Now
    from ampsq.protocol.calls.requests import InstanceRequest
    from ampsq.protocol.entries import RawEntry
    from ampsq.replication.durability_gate import GateMaker
    from ampsq.transport.store import Store

__all__ = ["Link", "LinkProgress", "NewsWaiter"]

#: Messages, about, that one read of a journal tells of.
_TOLD: Final = 500
#: Entries that one read asks for, over all logs: as many as one call takes, which runs while the next are read. Where
#: one log has more, and they are small, as many as some calls take: what else goes with a read is asked less often.
#: Bytes of these together at most, as far as so many of them show it.
_PAGE: Final = 500
_LARGE_PAGE: Final = 2_000
_LARGE_PAGE_BYTES: Final = 1_000_000
_SHOWN: Final = 16
#: Entries of `requests` that one read gives, and seconds for which one of them is told again, a step.
_REQUESTS: Final = 20
_TOLD_AGAIN: Final = 0.05
#: Seconds of a pause while what is read waits for a message that another link brings.
_HELD_PAUSE: Final = 0.02


class LinkProgress(NamedTuple):
    """The work of one step of a link.

    Attributes:
        messages: copies recorded at the destination.
        journal_rows: entries of journals followed there.
        requests: what the destination was told of what is asked for, offered and taken, and what is to be told again.
        bytes: of the fields of what was sent, copies that were there before among it.
        is_idle: there was nothing more to read.
    """

    messages: int
    journal_rows: int
    requests: int
    bytes: int
    is_idle: bool


#: Of what was read at the source, and of what the destination has of it.
_Gates = tuple[DurabilityGate[LinkPage], DurabilityGate[dict[str, str]]]


#: Waits behind places for so many seconds; gives whether something may have come.
NewsWaiter: TypeAlias = "Callable[[Mapping[Stream, str], float], bool]"


class Link:
    """Copies from a source to a destination. Call `open`, then `step` again and again; after an error, `open` again.

    Args:
        name: of the destination, as the source defines it.
        source: a store on the source.
        destination: a store on the destination.
        carried: who both are, and which entries pass.
        topics: those that it carries.
        queues: those whose journals it carries.
        version: of the source's catalog that says so.
        clock: gives the time that the destination's scripts are called with; default its server's own.
        gate: makes what lets through only what is durable at a store's server.
        wait_for_news: waits, once everything was read and applied, behind places and for so many seconds; gives whether
            something may have come. Default: this link asks by itself.
    """

    def __init__(
        self,
        name: str,
        source: Store,
        destination: Store,
        carried: EntrySelector,
        *,
        topics: Sequence[str],
        queues: Sequence[str] = (),
        version: int = 0,
        clock: Callable[[], Now] = str,
        gate: GateMaker = DurabilityGate,
        wait_for_news: NewsWaiter | None = None,
    ) -> None:
        self._wait_at_rest = wait_for_news or self._ask_for_news
        self._clock, self._make_gate = clock, gate
        self.name, self._source, self._destination, self.carried = name, source, destination, carried
        self._queues, self._version = list(queues), version
        # Beside each log what came under another bookmark than its entry's.
        self._places: dict[Stream, Id] = {Stream(kind, topic): FIRST for topic in topics for kind in ("log", "same")}
        self._journals: dict[str, str] = dict.fromkeys(queues, "0-0")
        self._requests = "$"
        # Read there and not passed on yet: they are to be told again.
        self._unanswered: deque[InstanceRequest] = deque()
        self._digests: dict[tuple[str, str], str] = {}
        self._sending = LinkSender(destination, carried, self._digest_of, clock)
        self._fields = source.pipeline()
        self._mark = "0-0"
        self._gates: _Gates | None = None
        self._behind: dict[str, list[JournalRow]] = {}
        # The word under which the destination recovers, until it is told that it has everything of the source.
        self._recovering = ""
        self._has_asked = False
        # Entries that the next read asks for.
        self._page = _PAGE
        # What was sent last is applied, and nothing was to be sent once more, with all that was read behind it.
        self._flows = False
        # Everything was read, and is applied: until something comes, there is nothing else to look at.
        self._rests = False

    @property
    def topics(self) -> list[str]:
        """The topics that it carries."""
        return [stream.of for stream in self._places if stream.kind == "log"]

    # --- where it goes on

    def open(self) -> _Gates:
        """Ask both sides where to go on; gives what lets through only what is durable, there and here.

        Raises:
            OtherFilter: the destination has one of these streams under another filter, from somewhere else.
            IncarnationOver: one of both is an incarnation that was followed by another one.
            DestinationAhead: the destination has what the source never recorded: the source lost its last entries, or
                is another one of its name.
            ServerUnsuitable: the source cannot say what it has flushed.
        """
        self.close()
        # Peers see only what the source cannot lose, and the source counts on what the destination cannot.
        gates: _Gates = self._make_gate(self._source), self._make_gate(self._destination)
        sent = self._source.call(link_calls.read_sent_places(self._source.instance, self.name))
        sent_before = sent.peer
        if sent_before != self.carried.destination.origin:
            self._source.call(link_calls.drop_sent(self._source.instance, self.name))
            sent = link_calls.SentPlaces("", {}, {})
        here = self._source.call(links.read_received(self._source.instance))
        self._end_incarnations({sent_before, *(stream.partition("@")[2] for stream in here)})
        there = self._destination.call(links.read_received(self._destination.instance))
        self._digests = {}
        self._sending.begin(there)
        for topic in self.topics:
            self._open_topic(topic, sent, here, there)
        for queue in self._queues:
            stream = str(journal_of(queue))
            self._journals[queue] = sent.places.get(stream, "0-0") if self._is_complete(stream, sent, there) else "0-0"
        self._requests = self._last_in(request_calls.REQUESTS)
        self._behind = {}
        self._mark = "0-0"
        # What it carries is known from here on, also by those who wait for it.
        carries = {str(stream): id_text(place) for stream, place in self._places.items()}
        carries |= {str(journal_of(queue)): place for queue, place in self._journals.items()}
        known = {name: min(place, sent.places.get(name, "0-0"), key=parse_id) for name, place in carries.items()}
        self._source.call(links.begin_sending(self.name, self.carried.destination.origin, self._version, known))
        # What it has beyond that may not be on its disk yet.
        gates[1].put(carries)
        self._gates = gates
        return gates

    def _end_incarnations(self, known: Iterable[str]) -> None:
        """See that both sides are who they were, and that neither takes anything more of what is over.

        Args:
            known: origins that the source has something of.
        """
        for store, other in ((self._source, self.carried.destination), (self._destination, self.carried.source)):
            if other.origin in (over := store.call(incarnation_calls.closed_incarnations(store.instance))):
                raise IncarnationOver(origin=other.origin)
            former = {origin for _, origin in other.former}
            if store is self._source:
                former |= {origin for origin in known if other.was(origin)}
            if former - over:
                store.call(incarnation_calls.close_incarnations(store.instance, sorted(former - over)))
        # The destination is told of it before anything of that comes back to it.
        lost = [origin for origin in known if self.carried.destination.was(origin)]
        word = self._destination.call(incarnation_calls.recover(sorted(lost)))
        # Who recovers itself may lack what the other one asks for.
        is_whole = not self._source.call(incarnation_calls.recovery_word(self._source.instance))
        self._recovering, self._has_asked = word if is_whole else "", False

    def _open_topic(
        self,
        topic: str,
        sent: SentPlaces,
        here: Mapping[str, tuple[str, str]],
        there: Mapping[str, tuple[str, str]],
    ) -> None:
        log, stream, own = log_of(topic), str(log_of(topic)), self.carried.source.origin
        expression = self.carried.filters.get(topic)
        text = expression.text if expression is not None else ""
        origins = self._source.call(link_calls.copied_origins(self._source.instance, topic))
        former = {origin for _, origin in self.carried.source.former}
        self._sending.refill.pop(topic, None)
        for origin in {own, *former, *origins}:
            digest = chain(here.get(f"{stream}@{origin}", ("", NO_FILTER))[1], text)
            self._digests[topic, origin] = digest
            known = there.get(f"{stream}@{origin}")
            # What it had itself it takes from everybody, whatever part of it that is.
            if known is None or known[1] == digest or self.carried.destination.was(origin):
                continue
            # Our own former filter may be replaced: what it kept out is sent now, and what is there is passed over.
            if sent.filters.get(f"{topic}@{origin}") != known[1]:
                raise OtherFilter(stream=stream, origin=origin, known=known[1], given=digest)
            self._sending.refill[topic] = self._last_of(topic)
        last_there = parse_id(there.get(f"{stream}@{own}", ("0-0", ""))[0])
        if last_there > self._last_of(topic) or self._has_lost(topic, last_there):
            raise DestinationAhead(
                f"{self.carried.destination.name} has {topic!r} up to {id_text(last_there)} of {own}, which has "
                f"not recorded that, or lost it: its last is {id_text(self._last_of(topic))}. Its server was "
                "restored, or failed over to one that had less: begin a new incarnation of it "
                "(ampsq replication begin-incarnation), to which others give back what they have"
            )
        if topic in self._sending.refill:
            self._places[log] = FIRST
        elif self._is_complete(stream, sent, there):
            self._places[log] = parse_id(sent.places.get(stream, "0-0"))
        else:
            # Without copies, IDs there are IDs here.
            self._places[log] = last_there if not origins and not former else FIRST
        is_same, same = self._places[log] > FIRST and stream in sent.places, Stream("same", topic)
        self._places[same] = parse_id(sent.places.get(str(same), "0-0")) if is_same else FIRST

    @staticmethod
    def _is_complete(stream: str, sent: SentPlaces, there: Mapping[str, tuple[str, str]]) -> bool:
        """Return whether the destination has all that was claimed to be sent."""
        claims = {name: stream_id for name, stream_id in sent.places.items() if name.startswith(f"{stream}@")}
        return stream in sent.places and all(
            parse_id(there.get(name, ("0-0", ""))[0]) >= parse_id(stream_id) for name, stream_id in claims.items()
        )

    def _has_lost(self, topic: str, last_there: Id) -> bool:
        """Return whether the source lacks an entry of its own that the destination has, and that was not trimmed."""
        if last_there == FIRST:
            return False
        if self._source.call(link_calls.removed_up_to(self._source.instance, topic)) >= last_there:
            return False
        return self._source.call(find_entry(self._source.instance, log_of(topic), id_text(last_there))) is None

    def _last_of(self, topic: str) -> Id:
        """The last ID that a log of the source ever had."""
        exists = self._source.call(stream_exists(self._source.instance, log_of(topic)))
        return self._source.call(stream_facts(self._source.instance, log_of(topic))).last if exists else FIRST

    def _last_in(self, stream: Stream) -> str:
        """The ID of the last entry that a stream of the source has."""
        return id_text(self._source.call(last_id(self._source.instance, stream)))

    def add(self, topics: Iterable[str]) -> None:
        """Carry more topics."""
        for topic in topics:
            for kind in ("log", "same"):
                self._places.setdefault(Stream(kind, topic), FIRST)

    def close(self) -> None:
        """Forget what was read and not applied; the stores stay open."""
        for gate in self._gates or ():
            gate.close()
        self._gates = None
        self._rests = False
        self._unanswered.clear()
        self._fields.close()
        self._sending.close()

    # --- one step

    def step(self, wait: float = 0.0) -> LinkProgress:
        """Read once and apply what is durable.

        Args:
            wait: seconds to wait for something new, where nothing waits to be applied.

        Raises:
            AmpsqError: either side failed: open the link again.
        """
        gate, arrived = self._gates or self.open()
        if wait and self._rests and not self._wait_at_rest(self._waiting(), wait):
            return LinkProgress(0, 0, 0, 0, is_idle=True)
        sending, is_idle, is_end = self._sending, False, True
        if sending.is_waiting:
            # A moment for what it waits for, which another link brings.
            time.sleep(min(wait, _HELD_PAUSE) if sending.is_held else 0)
        else:
            is_asking = self._recovering and not self._has_asked
            is_free = gate.is_empty and arrived.is_empty and sending.is_empty and not is_asking and not self._unanswered
            page, is_end = self._read(wait if is_free else 0.0)
            is_idle = not page.entries and not page.places
            if not is_idle or (is_asking and page.is_all):
                self._has_asked = self._has_asked or page.is_all
                gate.put(page)
        sending.put(gate.take(is_idle=is_idle and sending.is_empty))
        messages, told, size, applied, has_all = sending.advance(is_more=not is_end)
        self._flows = messages > 0 and not sending.is_waiting
        for places in applied:
            arrived.put(places)
        if has_all and self._recovering:
            peer, word = self.carried.source, self._recovering
            self._destination.call(
                incarnation_calls.note_fetched(self._destination.instance, word, peer.name, peer.group)
            )
            self._recovering = ""
        for places in arrived.take(is_idle=is_idle):
            self._report(places)
        is_done = is_idle and is_end and gate.is_empty and arrived.is_empty and sending.is_empty
        requests = self._pass_requests()
        self._rests = bool(is_done and self._places and not (self._unanswered or self._recovering))
        return LinkProgress(messages, told, requests, size, is_done)

    def _read(self, wait: float) -> tuple[LinkPage, bool]:
        """A page, and whether it came to the end of the logs.

        Journals first, then logs up to their ends: then what the journals tell of is there. While the logs go on,
        what is told waits.
        """
        places: dict[str, str] = {}
        # What is read behind a mark has come to it.
        mark = self._last_in(links.MARKS)
        is_whole = True
        if not self._behind:
            for queue in self._queues:
                page = self._source.call(links.read_journal(queue, self._journals[queue], _TOLD))
                is_whole = is_whole and not page.is_more
                if page.after is not None:
                    self._journals[queue] = page.after
                    self._behind[queue] = page.rows
        else:
            is_whole = False
        entries, runs, is_end = self._read_logs(0.0 if self._behind else wait, places)
        told: dict[str, list[JournalRow]] = {}
        if is_end:
            told, self._behind = self._behind, {}
            places |= {str(journal_of(queue)): self._journals[queue] for queue in told}
            if is_whole and parse_id(mark) > parse_id(self._mark):
                self._mark = places[links.MARKED] = mark
        return LinkPage(entries, told, places, is_end and is_whole, runs), is_end

    def _read_logs(self, wait: float, places: dict[str, str]) -> tuple[list[SourceEntryCopy], Sequence[EntryRun], bool]:
        """Read entries, or runs of them where that is one log's, and whether it came to the end."""
        instance, streams = self._source.instance, {stream: id_text(place) for stream, place in self._places.items()}
        if not streams or (wait and not self._ask_for_news(self._waiting(), wait)):
            return [], (), True
        # Of what is here under another bookmark there is little.
        count = max(self._page // sum(stream.kind == "log" for stream in streams), 50)
        self._page = _PAGE
        got = self._source.call(read_streams(instance, streams, count))
        if (runs := self._published_runs(got, count, places)) is not None:
            return [], runs, all(len(rows) < count for rows in got.values())
        found: list[SourceEntryCopy] = []
        horizon: Id | None = None
        for stream in streams:
            rows = got.get(stream, [])
            if stream.kind == "log":
                found += [split_entry(stream.of, stream_id, flat, self.carried.source) for stream_id, flat in rows]
            else:
                found += [split_same_entry(stream.of, stream_id, flat) for stream_id, flat in rows]
            if len(rows) >= count:
                last = parse_id(rows[-1][0])
                horizon = last if horizon is None else min(horizon, last)
        if len(got) > 1:
            found.sort(key=lambda entry: entry.here)
            if horizon is not None:
                found = [entry for entry in found if entry.here <= horizon]
        reached = {(entry.is_same, entry.topic): entry.here for entry in found}
        for (is_same, topic), here in reached.items():
            stream = Stream("same" if is_same else "log", topic)
            self._places[stream] = here
            places[str(stream)] = id_text(here)
        return self._with_fields(found), (), horizon is None

    def _published_runs(
        self, got: Mapping[Stream, Sequence[RawEntry]], count: int, places: dict[str, str]
    ) -> list[EntryRun] | None:
        """Take what was read as runs, where it is of one log and was published here; else None, and nothing is done."""
        if len(got) != 1:
            return None
        [(stream, rows)] = got.items()
        runs = published_runs(self.carried, stream.of, rows, self._digest_of) if stream.kind == "log" else None
        if runs is not None:
            if self._flows and len(rows) >= count and _size_of_a_large_page(rows) <= _LARGE_PAGE_BYTES:
                self._page = _LARGE_PAGE
            places[str(stream)] = rows[-1][0].decode()
            self._places[stream] = parse_id(places[str(stream)])
        return runs

    def _waiting(self) -> dict[Stream, str]:
        """The positions at which whatever this link reads goes on."""
        waiting = {stream: id_text(place) for stream, place in self._places.items()}
        waiting |= {journal_of(queue): self._journals[queue] for queue in self._queues}
        return waiting | {request_calls.REQUESTS: self._requests, links.MARKS: self._mark}

    def _ask_for_news(self, waiting: Mapping[Stream, str], wait: float) -> bool:
        """Wait until anything comes; False when the time is over."""
        return self._source.call(wait_for_streams(self._source.instance, waiting, wait))

    def _with_fields(self, entries: list[SourceEntryCopy]) -> list[SourceEntryCopy]:
        """The entries; those under another bookmark have the fields of the one in the log, none if it was trimmed."""
        for entry in [each for each in entries if each.is_same]:
            self._fields.post(find_entry(self._source.instance, log_of(entry.topic), entry.values[0].decode()))
        for number, entry in enumerate(entries):
            if entry.is_same:
                row: RawEntry | None = self._fields.collect()  # type: ignore[assignment]  # the reply to its call
                whole = split_entry(entry.topic, b"0-0", row[1] if row else [], self.carried.source)
                entries[number] = entry._replace(names=whole.names, values=whole.values)
        return entries

    def _digest_of(self, topic: str, origin: str) -> str:
        known = self._digests.get((topic, origin))
        if known is None:
            here = self._source.call(links.read_received(self._source.instance))
            expression = self.carried.filters.get(topic)
            former = here.get(f"log {topic}@{origin}", links.ReceivedStream("", NO_FILTER)).digest
            known = self._digests[topic, origin] = chain(former, expression.text if expression is not None else "")
        return known

    def _report(self, places: Mapping[str, str]) -> None:
        if places:
            self._source.call(links.report_sent(self.name, places))

    # --- requests

    def _pass_requests(self) -> int:
        """Tell the destination what the source asks for, offers and takes, and let it pass that on."""
        if not self._queues:
            return 0
        self._read_requests()
        told, until = 0, time.monotonic() + _TOLD_AGAIN
        for _ in range(len(self._unanswered)):
            request = self._unanswered.popleft()
            source = request.source or f"{self.carried.source.origin}~{request.id}".encode()
            is_routed = self.carried.is_routed(source.partition(b"~")[0].decode(), request.path)
            if request.queue in self._journals and is_routed:
                told += 1
                is_again = self._tell(request)
                while is_again and time.monotonic() < until:
                    is_again = self._tell(request)
                if is_again:
                    # The destination has more to read for it: all else goes on meanwhile.
                    self._unanswered.append(request)
                    continue
                path = self.carried.path_of(request.path)
                self._destination.call(request_calls.relay(source, path, request.fields))
        return told

    def _read_requests(self) -> None:
        """Read what is new; of what an instance asks for, the last word counts."""
        for request in self._source.call(request_calls.read_requests(self._source.instance, self._requests, _REQUESTS)):
            self._requests = request.id
            self._unanswered = deque(other for other in self._unanswered if not request.replaces(other))
            self._unanswered.append(request)

    def _tell(self, request: InstanceRequest) -> bool:
        """Tell the destination of one request, offer or claim; gives whether it is to be told again."""
        queue, now = request.queue, self._clock()
        if request.offer is not None:
            self._destination.call(ownership_calls.claim_messages(queue, request.offer, now=now))
            return False
        if request.wish is not None:
            offer = ownership_calls.offer_messages(queue, request.by, request.wish, now=now)
            return self._destination.call(offer).asks_again
        grant = ownership_calls.grant_ownership(
            queue, request.by, request.bookmarks, rooms=request.rooms, followed=request.followed, now=now
        )
        return self._destination.call(grant).asks_again


def _size_of_a_large_page(rows: Sequence[RawEntry]) -> float:
    """Return the bytes that a large page has if all entries are as the largest of some is."""
    shown = rows[:: max(len(rows) // _SHOWN, 1)]
    return _LARGE_PAGE * max(sum(map(len, flat)) for _, flat in shown)
