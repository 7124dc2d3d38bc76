"""The calls of what coordinators do from time to time, and of who does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from ampsq.protocol.request import Call, PackedWords, script_call
from ampsq.protocol.schema import slot_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.typing import EncodableT

__all__ = [
    "InstanceNews",
    "NewsReply",
    "SweepReply",
    "WatchedInstance",
    "hold_view",
    "note_flushing",
    "read_news",
    "scan_foreign_entries",
    "sweep",
]


class SweepReply(NamedTuple):
    """The work that a sweep has left.

    Attributes:
        more: more is due already.
        pause: seconds until the next entry is; None: there is none.
    """

    more: bool
    pause: float | None


@dataclass(slots=True)
class WatchedInstance:
    """An instance as `read_news` is asked about it: what was seen of it last.

    Attributes:
        name: its name.
        catalog: the version of its catalog; "" before it was read.
        follows: whether a coordinator that rests is to be woken for news in logs and journals.
        rests_long: whether it is looked at each twenty seconds only: what is due before then wakes a coordinator, too.
        streams: key of a stream -> the last ID seen in it.
        queues: those that several instances have.
        clients: which came last, as the script said it.

    What it holds is replaced, never changed in place: while nothing happens, it is packed once for the script.
    """

    name: str
    catalog: str = ""
    follows: bool = False
    rests_long: bool = False
    streams: dict[str, str] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    clients: str = ""
    _packed: dict[bool, PackedWords] = field(default_factory=dict)

    def __setattr__(self, name: str, value: object) -> None:
        """Pack it anew, where it is another one now."""
        object.__setattr__(self, name, value)
        if name != "_packed":
            object.__setattr__(self, "_packed", {})

    def words(self, *, remote: bool) -> PackedWords:
        """Return the script's arguments about it; `remote`: the script is to look for messages that others own."""
        packed = self._packed
        found = packed.get(remote)
        if found is None:
            found = packed[remote] = PackedWords.pack(self._words(remote=remote))
        return found

    def _words(self, *, remote: bool) -> list[EncodableT]:
        # As lua/lib/timetable.lua reads it.
        mode = 1 + self.follows + 2 * self.rests_long
        head = (self.name, self.catalog, mode, self.clients, len(self.streams))
        queues = self.queues if remote else ()
        return [*head, *self.streams, *self.streams.values(), len(queues), *queues]


class InstanceNews(NamedTuple):
    """News of one instance.

    Attributes:
        wait: seconds until the first entry of its timetable is due; None: that is not soon.
        what: `catalog`, `names`, `clients`, `rebuilds`, `remote`, `lost` or `refused`; see lua/instance/read_news.lua.
        streams: key of a stream that goes on -> its last ID now.
        clients: which came last; None: those that are known.
        again: seconds until it is to be looked at again; None: that is no sooner than for others.
    """

    wait: float | None
    what: frozenset[str]
    streams: dict[str, str]
    clients: str | None = None
    again: float | None = None


class NewsReply(NamedTuple):
    """News of some instances.

    Attributes:
        now: the server's clock, seconds.
        news: of those where something has, by name.
        keys: how many the server has; -1: this user may not ask.
    """

    now: float
    news: dict[str, InstanceNews]
    keys: int = -1


def read_news(
    instances: Sequence[WatchedInstance],
    *,
    rare: bool = True,
    remote: bool = True,
    is_keyless: bool = False,
    now: int | str = "",
) -> Call[NewsReply]:
    """See what has happened at instances since that was looked at last, and let a coordinator rest until more does.

    Args:
        instances: what was seen of each last.
        rare: look also for silent clients, names that were used first, and rebuilds that were left.
        remote: look also for messages that other instances own.
        is_keyless: the server is a node of a cluster, and is to answer though an instance may have left it: that one is
            `refused`.
        now: milliseconds; default the server's time.
    """
    asked = [(each.name, each.streams) for each in instances]

    def read(reply: list[int | list[int | bytes]]) -> NewsReply:
        milliseconds, number_of_keys, *found = reply
        news = {}
        for number, wait, *rest in cast("list[list[int | bytes]]", found):
            name, places = asked[cast("int", number) - 1]
            keys = list(places)
            what, streams, clients, again = set[str](), dict[str, str](), None, None
            items = iter(rest)
            for item in items:
                if isinstance(item, int):
                    streams[keys[item - 1]] = cast("bytes", next(items)).decode()
                elif item == b"came":
                    clients = cast("bytes", next(items)).decode()
                    what.add("clients")
                elif item == b"again":
                    again = float(cast("bytes", next(items))) / 1000
                else:
                    what.add(item.decode())
            pause = cast("int", wait) / 1000 if cast("int", wait) >= 0 else None
            news[name] = InstanceNews(pause, frozenset(what), streams, clients, again)
        return NewsReply(cast("int", milliseconds) / 1000, news, cast("int", number_of_keys))

    call = script_call("read_news", [now, int(rare)], read, repeatable=True)
    call.is_keyless = is_keyless
    call.packed = PackedWords.join([each.words(remote=remote) for each in instances])
    return call


def sweep(now: int | str = "") -> Call[SweepReply]:
    """Do what is due; gives whether more is due already, and the seconds until the next entry, if any.

    Args:
        now: milliseconds; default the server's time.
    """
    return script_call(
        "sweep",
        [now],
        lambda reply: SweepReply(bool(reply[0]), None if reply[1] < 0 else reply[1] / 1000),
        repeatable=True,
    )


def scan_foreign_entries(topics: Mapping[str, str]) -> Call[dict[str, str]]:
    """Find what others wrote into logs; topic -> last ID seen, gives topic -> last ID."""
    arguments: list[EncodableT] = [text for pair in topics.items() for text in pair]

    def read(reply: list[bytes]) -> dict[str, str]:
        return {topic: last.decode() for topic, last in zip(topics, reply, strict=True)}

    return script_call("scan_foreign_entries", ["", *arguments], read, repeatable=True)


def hold_view(view: str, owner: str, period: int, instance: str = "") -> Call[bool]:
    """Be the one that keeps a view up to date, for `period` ms; False while somebody else is.

    Args:
        view: the view, or another duty.
        owner: who is it.
        period: ms.
        instance: default the one that the call is sent to.
    """
    call = script_call("keep_duty", ["", view, owner, period], bool, repeatable=True)
    call.key = slot_key(instance) if instance else ""
    return call


def note_flushing(run: str, appendfsync: str, on_rewrite: str, held_until: int) -> Call[bool]:
    """Note how the server flushes, of the run that it is in; False where that was noted.

    Args:
        run: the ID of its process.
        appendfsync: the setting.
        on_rewrite: the setting ``no-appendfsync-on-rewrite``.
        held_until: its clock was set back: until it shows this, in ms, it flushes nothing; 0: it was not.
    """
    return script_call("note_flushing", [run, appendfsync, on_rewrite, held_until], bool, repeatable=True)
