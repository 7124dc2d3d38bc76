"""Rules of clients of all partitions, for threads and for asyncio: what is merged how, and what is refused."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar

from ampsq.base.bookmarks import Bookmark, PublisherBookmark, split_bookmarks
from ampsq.base.errors import DefinitionError, Unavailable
from ampsq.base.log_positions import BookmarkSpec
from ampsq.base.partitions import name_request
from ampsq.base.values import list_of, shown
from ampsq.queues.subscription_core import SubscriptionCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from threading import Lock

    from ampsq.base.partitions import Partition
    from ampsq.client.session import Session
    from ampsq.publishing.guarantee_options import FailedWrite
    from ampsq.publishing.persistence_level import PersistedAck
    from ampsq.topics.subscription_spec import TopicSubscriptionSpec

__all__ = [
    "ATTEMPTS",
    "FIRST_PAUSE",
    "FULL",
    "LONGEST_PAUSE",
    "SEPARATELY",
    "STEP",
    "PartitionFailures",
    "by_each_partition",
    "by_partition",
    "check_backlog",
    "check_ended",
    "check_readable",
    "managed_parts",
    "not_merged",
    "not_of_each",
    "only_for_one",
    "part_of",
    "refuse_the_rest",
    "reporting",
    "spec_after",
    "spec_of_each",
    "waiting_for_topic",
]

#: Seconds of one wait for bells; and of one where all of the backlog is being worked on, until some of it is settled.
STEP: Final = 1.0
FULL: Final = 0.02
#: Seconds for which a call to one partition is repeated while the others wait.
ATTEMPTS: Final = 0.5
#: Seconds between two looks for a partition that is away: at first, and doubled up to the last.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
#: Up to so many partitions a subscription waits for each by a connection of its own. Beyond that it has one connection
#: to each server: of a queue it listens there to the channel of each partition; of topics and records the server tracks
#: the keys of their logs, and tells when one changes.
SEPARATELY: Final = 64
_log = logging.getLogger("ampsq")
_Kind = TypeVar("_Kind", bound=type)
_Taken = TypeVar("_Taken")
_Managed = TypeVar("_Managed")
_Place: TypeAlias = "Bookmark | str | datetime | None"
_Event = TypeVar("_Event", "PersistedAck", "FailedWrite")


def not_merged(what: str) -> DefinitionError:
    """Return the refusal of a call whose answers of several partitions are not merged."""
    return DefinitionError(
        f"{what} is not there for an instance with partitions yet; allowed: a client of one of them, as in "
        "Client(address, instance=client.partitions[0]), or an instance without partitions"
    )


def managed_parts(subscription: _Taken, of: Callable[[_Taken], _Managed]) -> list[_Managed]:
    """Return the managed subscription of a subscription; of one of all partitions, that of each partition.

    Args:
        subscription: of one instance, or of all partitions of one.
        of: gives the managed subscription of a subscription of one instance.
    """
    parts: list[_Managed] | None = getattr(subscription, "_parts", None)
    return [of(subscription)] if parts is None else parts


def only_for_one(name: str) -> NoReturn:
    """Refuse what a client of one instance has inside.

    Raises:
        AttributeError: it is an attribute that Python or a tool asks for. DefinitionError: it is a part of a client.
    """
    if name.startswith("__") or name not in ("_connection", "_managed", "_core"):
        raise AttributeError(name)
    raise not_merged("a worker, a command or a service that works on parts of a client")


def refuse_the_rest(kind: _Kind, whole: type, *, prefix: str = "") -> _Kind:
    """Have a class refuse all public calls of the class that it stands for and does not have itself."""
    for name, value in list(vars(whole).items()):
        if not name.startswith("_") and callable(value) and name not in vars(kind):
            setattr(kind, name, _refusing(f"{prefix}{name}"))
    return kind


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise not_merged(name)

    return refuse


def check_readable(partitions: int, *, is_conflated: bool, is_fully_durable: bool = False) -> None:
    """Refuse a subscription to topics or records that needs a connection for each of too many partitions.

    Raises:
        DefinitionError: it is so.
    """
    if partitions > SEPARATELY and (is_conflated or is_fully_durable):
        raise DefinitionError(
            f"{'conflation' if is_conflated else 'fully_durable'} over {partitions} partitions needs a connection for "
            f"each, and is there for at most {SEPARATELY} yet; allowed: a subscription without it, or subscriptions of "
            "clients of single ones, Client(address, instance=name) for each name of client.partitions"
        )


def check_backlog(max_backlog: object) -> None:
    """Refuse a backlog that is none.

    Raises:
        DefinitionError: it is so.
    """
    if not isinstance(max_backlog, int) or isinstance(max_backlog, bool) or max_backlog < 0:
        raise DefinitionError(
            f"max_backlog={shown(max_backlog)}: allowed is a whole number, 0 or more, for all partitions together"
        )


def spec_after(
    former: tuple[str, int, str | None], name: str | None, max_backlog: int | None, text: str | EllipsisType | None
) -> tuple[str, int, str | None]:
    """Return the name, backlog and filter that a subscription asks for when some of them are replaced."""
    return (
        former[0] if name is None else name,
        former[1] if max_backlog is None else max_backlog,
        former[2] if isinstance(text, EllipsisType) else text,
    )


def part_of(
    session: Session, name: str, max_backlog: int, text: str | None, *, renew: bool, longest_wait: float, of_all: str
) -> SubscriptionCore:
    """Return the part at one partition of a subscription to all, not registered yet.

    Args:
        session: of the client of the partition.
        name: a queue, or a regular expression of queues.
        max_backlog: of all partitions together.
        text: its filter; None: everything.
        renew: leases are extended as long as the client lives.
        longest_wait: seconds of one blocked read at most.
        of_all: what its parts have in common, and no other subscription has.
    """
    return SubscriptionCore(
        *(session.instance, name, max_backlog, name_request(session.request(), of_all)),
        origin=session.origin,
        text=text,
        renewed=renew,
        longest_wait=longest_wait,
        has_bell=True,
    )


def by_partition(
    partitions: Sequence[Partition], bookmarks: Iterable[Bookmark | str] | str
) -> list[tuple[int, list[Bookmark | str]]]:
    """Sort bookmarks by the partitions whose messages they name: the numbers of these, and the bookmarks of each.

    Raises:
        DefinitionError: one is none, is of a publisher, or of a message of no partition.
    """
    given = (
        split_bookmarks(bookmarks) if isinstance(bookmarks, str) else list_of("bookmarks", bookmarks, "['a~b.c~1-0']")
    )
    numbers = {each.instance: each.number for each in partitions}
    found: dict[int, list[Bookmark | str]] = {}
    for text in given:
        bookmark = Bookmark.parse(text)
        if isinstance(bookmark, PublisherBookmark):
            raise not_merged(f"bookmark {str(text)!r}, which names a publisher's message,")
        instance = bookmark.origin.rpartition(".")[0]
        if instance not in numbers:
            raise DefinitionError(f"bookmark {str(text)!r} is of instance {instance!r}, which is no partition here")
        found.setdefault(numbers[instance], []).append(text)
    return sorted(found.items())


def by_each_partition(partitions: Sequence[Partition], bookmark: _Place) -> list[_Place]:
    """Return the places of all partitions that a time says, or a bookmark of each, with commas between.

    Raises:
        DefinitionError: it is of messages, and not of one of each partition.
    """
    if not isinstance(bookmark, str) or not ("~" in bookmark or "|" in bookmark):
        return [bookmark] * len(partitions)
    found = dict(by_partition(partitions, bookmark))
    if len(found) < len(partitions) or any(len(some) > 1 for some in found.values()):
        raise not_of_each(bookmark, partitions, found)
    return [some[0] for _, some in sorted(found.items())]


def not_of_each(bookmark: object, partitions: Sequence[Partition], found: Iterable[int]) -> DefinitionError:
    """Return the refusal of bookmarks that do not say where each partition stands."""
    missing = [str(each.number) for each in partitions if each.number not in set(found)]
    which = f"partition{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    lack = f"says nothing of {which}" if missing else "has several of one partition"
    return DefinitionError(
        f"bookmark={shown(bookmark)} {lack}; allowed: a bookmark of each partition, with commas between, as "
        "`position` of a subscription to a topic has them, or a time"
    )


def spec_of_each(partitions: Sequence[Partition], spec: TopicSubscriptionSpec) -> list[TopicSubscriptionSpec]:
    """Return what a subscription to topics asks for at each partition; its rate is that of all together.

    Raises:
        DefinitionError: bookmarks of messages say where some partitions begin, and not where the others do.
    """
    starts = spec.asked.starts
    named = [end for end in spec.asked.ends if end.bookmark is not None]
    if not named:
        return [replace(spec, pace=None)] * len(partitions)
    if spec.asked.ranges:
        raise DefinitionError(
            f"bookmark: a range that begins or ends at {str(named[0].bookmark)!r} is of one partition, and nothing "
            "says what it is in the others; allowed: ranges of times, epoch, now and most_recent"
        )
    own = dict(by_partition(partitions, [end.bookmark for end in named if end.bookmark is not None]))
    of_all = [end for end in starts if end.bookmark is None]
    if not of_all and len(own) < len(partitions):
        raise not_of_each(", ".join(str(end.bookmark) for end in named), partitions, own)
    specs = []
    for each in partitions:
        mine = [end for end in named if end.bookmark in own.get(each.number, ())]
        specs.append(replace(spec, pace=None, asked=BookmarkSpec((*of_all, *mine))))
    return specs


def waiting_for_topic(spec: TopicSubscriptionSpec) -> TopicSubscriptionSpec | None:
    """Return what to ask of a partition that has no topic of the name, where others have; None: there is nothing."""
    return None if spec.asked.ranges else replace(spec, name=f"^{re.escape(spec.name)}$")


def reporting(number: int, report: Callable[[_Event], object] | None, turn: Lock) -> Callable[[_Event], object] | None:
    """Return what tells a function of a partition's publisher, the partition named, and one at a time.

    Args:
        number: of the partition.
        report: gets a `PersistedAck` or a `FailedWrite`.
        turn: held while it is called.
    """
    if report is None:
        return None

    def told(event: _Event) -> None:
        with turn:
            report(event._replace(partition=number))

    return told


def check_ended(failures: Sequence[BaseException], partitions: int) -> None:
    """Raise what failed when a subscription was ended in each partition, unless only some are away.

    What was acknowledged at those and not sent is sent by their clients, if these are open when the partition is back;
    else its messages come again, as after the death of a consumer.

    Args:
        failures: of those where it failed.
        partitions: how many there are.
    """
    lasting = [each for each in failures if not _is_passing(each)]
    if lasting or (failures and len(failures) == partitions):
        raise [*lasting, *failures][0]
    if failures:
        _log.warning("ended with %d of %d partitions away: %s", len(failures), partitions, failures[0])


class PartitionFailures:
    """The failures of partitions that a subscription reads: while some can be read, it goes on with those.

    Args:
        partitions: how many there are.
        patience: seconds for which all of them may be away at once.
    """

    def __init__(self, partitions: int, patience: float = 0.0) -> None:
        self._partitions, self._patience = partitions, patience
        self._of: dict[int, BaseException] = {}
        self._until: float | None = None

    def note(self, number: int, failure: BaseException | None) -> None:
        """Note how reading a partition has ended last."""
        if failure is None:
            self._of.pop(number, None)
            return
        if _is_passing(failure) and number not in self._of:
            _log.warning("partition %d cannot be read, the others are: %s", number, failure)
        self._of[number] = failure

    def check(self, now: float = 0.0) -> None:
        """Raise what ends a call: any failure but that a server is away, or that all are for too long.

        Args:
            now: seconds, by the monotonic clock.

        Raises:
            Unavailable: no partition can be read. AmpsqError: as of reading one.
        """
        if len(self._of) < self._partitions:
            self._until = None
        elif self._until is None:
            self._until = now + self._patience
        for failure in list(self._of.values()):
            if not _is_passing(failure) or (self._until is not None and now >= self._until):
                self._of.clear()
                self._until = None
                raise failure


def _is_passing(failure: BaseException) -> bool:
    return isinstance(failure, Unavailable) and not failure.is_lasting
