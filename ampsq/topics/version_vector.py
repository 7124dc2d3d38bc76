"""Places that hold at every instance: of each origin of a topic, the last message that is before them.

A message has one bookmark everywhere, but each instance has an order of its own, in which it received everything. What
all have in common is the order of each origin. So a reader that goes on at another instance says of each origin how far
it has come, begins there before the first entry that is behind that, and passes over what it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ampsq.base.bookmarks import Origin, recorded_by
from ampsq.base.log_positions import FIRST, id_text, next_id, parse_id, previous_id
from ampsq.protocol.calls.links import copied_origins
from ampsq.protocol.calls.replication import read_received
from ampsq.protocol.entries import source_in, with_source
from ampsq.protocol.reads.copies import count_runs, read_runs, runs_behind, runs_up_to
from ampsq.protocol.reads.destinations import read_destination_names, read_sent
from ampsq.protocol.reads.origin import name_of
from ampsq.protocol.reads.removed import removed_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.base.log_positions import Id, LogSpan
    from ampsq.topics.merge import Entry

__all__ = [
    "StartPositions",
    "Stretch",
    "Vector",
    "VersionVector",
    "find_start_positions",
    "read_version_vectors",
    "shares_messages",
]

#: Origin -> the ID there of the last message that is before a place.
Vector: TypeAlias = "Mapping[str, Id]"
#: Runs of copies before a place that are looked through for some that are out of line.
_NEAR: Final = 100
#: A place before everything that is no beginning: from there on something was trimmed.
_ALMOST_FIRST: Final = (0, 1)


class Stretch(NamedTuple):
    """A part of a topic's log that is asked for.

    Attributes:
        after: behind what it begins: a place that holds everywhere, or an ID of whichever log is read.
        last: up to where it goes, as `after`; None: for ever.
    """

    after: Vector | Id
    last: Vector | Id | None


class VersionVector:
    """The progress of a reader in the logs of all instances.

    Args:
        origin: of the instance where it reads.

    Attributes:
        passed: topic and origin -> the ID there up to which it has everything that it is to have.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.passed: dict[tuple[str, str], Id] = {}
        self._stretches: dict[str, list[Stretch]] = {}
        # What it had when it came here, and entries here that it had under another bookmark; None: it never moved.
        self._had: dict[tuple[str, str], Id] | None = None
        self._doubles: frozenset[tuple[str, bytes]] = frozenset()

    # -- what is asked for

    def lacks(self, number: int) -> bool:
        """Return whether of so many topics not all are charted."""
        return number > len(self._stretches)

    async def chart(self, instance: str, spans: Mapping[str, Sequence[LogSpan]], now: Id) -> None:
        """Note what is asked for of topics, so that it holds elsewhere, too.

        Args:
            instance: the instance where it reads.
            spans: of each topic, what is asked for of its log.
            now: up to where the logs are settled.
        """
        came = {topic: found for topic, found in spans.items() if topic not in self._stretches}
        places = {(topic, end) for topic, found in came.items() for span in found for end in span}
        vectors = await read_version_vectors(
            instance, self._origin, [(topic, end) for topic, end in places if end is not None and FIRST < end <= now]
        )
        for topic, found in came.items():
            stretches = [
                Stretch(vectors.get((topic, span.after), span.after), _end(vectors, topic, span)) for span in found
            ]
            self._stretches[topic] = stretches
            if stretches and not isinstance(stretches[0].after, tuple):
                self.had(topic, stretches[0].after)

    def had(self, topic: str, vector: Vector) -> None:
        """Note that everything of a topic up to a place was had, or is not to be."""
        for origin, last in vector.items():
            self.passed[topic, origin] = max(self.passed.get((topic, origin), FIRST), last)

    def has_had(self, topic: str, source: str) -> bool:
        """Return whether it had a message, by its origin and ID there as in a bookmark."""
        origin, _, text = source.partition("~")
        return parse_id(text) <= self.passed.get((topic, origin), FIRST)

    @property
    def by_topic(self) -> dict[str, Vector]:
        """Topic -> how far it has come there."""
        found: dict[str, dict[str, Id]] = {topic: {} for topic in self._stretches}
        for (topic, origin), last in self.passed.items():
            found.setdefault(topic, {})[origin] = last
        return dict(found)

    # -- what is read

    def take_in(self, entries: Iterable[Entry]) -> list[Entry]:
        """Note entries; gives those that are to be handed on, each saying whose it is, wherever it is looked at."""
        news: list[Entry] = []
        lasts: dict[tuple[str, str], str] = {}
        for topic, stream_id, flat in entries:
            source = source_in(flat)
            if not source:
                text = stream_id.decode()
                source = f"{recorded_by(self._origin, text)}~{text}"
                flat = with_source(flat, source)  # noqa: PLW2901  (the same, with its source)
            origin, _, text = source.partition("~")
            if self._had is None or self._is_news(topic, origin, parse_id(text), stream_id):
                lasts[topic, origin] = text
                news.append((topic, stream_id, flat))
        for (topic, origin), text in lasts.items():
            self.had(topic, {origin: parse_id(text)})
        return news

    def _is_news(self, topic: str, origin: str, number: Id, here: bytes) -> bool:
        """Return whether a reader that came from elsewhere is to have an entry, and has not had it."""
        if self._had is not None and number <= self._had.get((topic, origin), FIRST):
            return False
        if (topic, here) in self._doubles:
            return False
        stretches = self._stretches.get(topic)
        return stretches is None or any(
            not _is_before(each.after, origin, number, here)
            and (each.last is None or _is_before(each.last, origin, number, here))
            for each in stretches
        )

    def resume_at(self, origin: str, doubles: frozenset[tuple[str, bytes]]) -> None:
        """From here on entries are those of another instance.

        Args:
            origin: its own.
            doubles: topics and IDs there of what was had under another bookmark.
        """
        self._origin, self._had, self._doubles = origin, dict(self.passed), doubles


def _end(vectors: Mapping[tuple[str, Id], Vector], topic: str, span: LogSpan) -> Vector | Id | None:
    return None if span.last is None else vectors.get((topic, span.last), span.last)


def _is_before(end: Vector | Id, origin: str, number: Id, here: bytes) -> bool:
    if isinstance(end, tuple):
        return parse_id(here) <= end
    return number <= end.get(origin, FIRST)


# -- between an instance's own places and those that hold everywhere


async def _received(instance: str) -> dict[str, Id]:
    return {name: parse_id(stream.id) for name, stream in (await read_received(instance)).items()}


async def shares_messages(instance: str, other: str, topics: Iterable[str]) -> bool:
    """Return whether an instance's logs of topics have, or had, copies of another one's messages, or are sent to that.

    Args:
        instance: the instance here.
        other: the name of the other one.
        topics: the topics that count.
    """
    streams = [name.removeprefix("log ").partition("@") for name in await _received(instance)]
    wanted = {*topics}
    if any(topic in wanted and name_of(origin) == other for topic, _, origin in streams):
        return True
    for topic in wanted:
        if any(name_of(origin) == other for origin in await copied_origins(instance, topic)):
            return True
    # A link that goes one way only leaves its trace where it begins.
    sent = await _sent_to(instance, other)
    return any(topic in sent for topic in wanted)


async def read_version_vectors(
    instance: str, origin: str, places: Sequence[tuple[str, Id]]
) -> dict[tuple[str, Id], Vector]:
    """Say of places in topics' logs here, none before the first message, what holds everywhere.

    Args:
        instance: the instance.
        origin: its own.
        places: topics, and IDs of their logs.
    """
    found: dict[tuple[str, Id], Vector] = {}
    if not places:
        return found
    received = await _received(instance)
    for topic, place in places:
        former = origin.former if isinstance(origin, Origin) else ()
        vector = {name: min(last, place) for last, name in former}
        stream = f"log {topic}@"
        named = {name.removeprefix(stream) for name in received if name.startswith(stream)}
        for each in sorted(named.union(await copied_origins(instance, topic))):
            last, is_all = await _last_before(instance, topic, each, place)
            # What is not noted any more was trimmed, and is before everything that is.
            last = max(last, received.get(f"{stream}{each}", FIRST) if is_all else FIRST)
            vector[each] = max(last, vector.get(each, FIRST))
        vector[str(origin)] = place
        found[topic, place] = vector
    return found


async def _last_before(instance: str, topic: str, origin: str, place: Id) -> tuple[Id, bool]:
    """The last ID there of what is recorded here up to a place, and whether nothing is behind that."""
    number = await count_runs(instance, topic, origin)
    # The first run that is not before the place is among these; mostly there is none.
    low, high, probe = 0, number, number - 1
    while low < high:
        found = await read_runs(instance, topic, origin, probe, probe)
        if found and found[0].here <= place:
            low = probe + 1
        else:
            high = probe
        probe = (low + high) // 2
    runs = (await read_runs(instance, topic, origin, max(low - _NEAR, 0), low - 1)) if low else []
    # What came under two bookmarks may be out of line: behind it nothing counts.
    out = next((at for at, run in enumerate(runs) if run.here > place), len(runs))
    is_all = low == number and out == len(runs) and (not runs or runs[-1].behind(runs[-1].there(place)) is None)
    return (runs[out - 1].there(place) if out else FIRST), is_all


@dataclass(frozen=True, slots=True)
class StartPositions:
    """The places where a reader begins that comes from elsewhere.

    Attributes:
        places: topic -> the ID here up to which it has everything.
        doubles: topics and IDs here, behind those, of what it had under another bookmark.
    """

    places: dict[str, Id] = field(default_factory=dict)
    doubles: frozenset[tuple[str, bytes]] = frozenset()


async def find_start_positions(
    instance: str, origin: str, vectors: Mapping[str, Vector], former: str
) -> StartPositions:
    """Find where a reader goes on that comes from another instance.

    Args:
        instance: the instance here.
        origin: its own.
        vectors: topic -> how far the reader has come.
        former: the name of the instance that it comes from; "" where it is not known.
    """
    found, doubles = StartPositions(), set[tuple[str, bytes]]()
    here = _Here(instance, origin, (await _sent_to(instance, former)))
    received = await _received(instance)
    for topic, vector in vectors.items():
        [trimmed] = await removed_ids(instance, [topic])
        place = max(_own_place(here, topic, vector), trimmed)
        near: list[Id] = []
        stream = f"log {topic}@"
        named = {name.removeprefix(stream) for name in received if name.startswith(stream)}
        for each in named.union(await copied_origins(instance, topic)):
            last = vector.get(each, FIRST)
            before = await runs_up_to(instance, topic, each, last, _NEAR)
            behind = await runs_behind(instance, topic, each, last, 1)
            firsts = [first for run in [*before[:1], *behind] if (first := run.behind(last)) is not None]
            if not firsts and received.get(f"{stream}{each}", FIRST) > last and trimmed > FIRST:
                # What it had not was trimmed.
                firsts = [next_id(_ALMOST_FIRST)]
            place = min([place, *map(previous_id, firsts)])
            near += [run.here for run in before if run.count == 1 and run.first <= last]
        found.places[topic] = place
        doubles.update((topic, id_text(each).encode()) for each in near if each > place)
    return StartPositions(found.places, frozenset(doubles))


async def _sent_to(instance: str, former: str) -> dict[str, Id]:
    """Return up to where another instance was sent logs: topic -> ID, that of an origin behind an ``@``."""
    for name in await read_destination_names(instance):
        sent = await read_sent(instance, name)
        if former and name_of(sent.peer) == former:
            return sent.logs
    return {}


class _Here(NamedTuple):
    """The instance that a reader comes to, and what that has sent to the one before."""

    instance: str
    origin: str
    sent: Mapping[str, Id]


def _own_place(here: _Here, topic: str, vector: Vector) -> Id:
    """Up to where the reader has what was published here."""
    last = vector.get(str(here.origin), FIRST)
    if topic in here.sent and here.sent.get(f"{topic}@{here.origin}", FIRST) <= last:
        # Of all that it could have had where it comes from, it has what is of here.
        last = max(last, here.sent[topic])
    former = here.origin.former if isinstance(here.origin, Origin) else ()
    others = [vector.get(name, FIRST) for end, name in former if vector.get(name, FIRST) < end]
    return min([last, *others])
