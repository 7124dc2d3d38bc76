"""The demo's scenario: publish everything, let five processes work, kill one in the middle, take stock."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ampsq import Client
from ampsq.cli import demo_world as world
from ampsq.cli.demo_check import Evidence, Journal, Outcome, judge
from ampsq.cli.demo_crew import Crew, DemoFailed
from ampsq.flow import command
from ampsq.schema import key
from ampsq.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq import Bookmark
    from ampsq.cli.demo_crew import Child, Deadline
    from ampsq.session import QueueStats

__all__ = ["Kill", "Scene", "View", "run"]

_PUBLISHED_A_TICK: Final = 3_000
_BATCH: Final = 500
_TICK: Final = 0.03
#: The part of the flights that is acknowledged when a worker is killed.
_MIDDLE: Final = 0.4
_VICTIM: Final = world.WORKERS.index(max(world.WORKERS))
#: Seconds in which what a frozen process has sent reaches the server.
_SETTLES_WITHIN: Final = 0.03


@dataclass(slots=True)
class Kill:
    """The death of one worker.

    Attributes:
        name: whose.
        held: leases that it held and had picked up, when it was killed.
        acknowledged: flights that all had acknowledged by then.
        noticed_after: seconds until the coordinator ended its subscription; None until then.
    """

    name: str
    held: int
    acknowledged: int
    at: float
    noticed_after: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One moment, for whoever watches."""

    seconds: float
    total: int
    published: int
    delays: QueueStats
    board: QueueStats
    letters: int
    crew: Crew
    kill: Kill | None


@dataclass(frozen=True, slots=True)
class Scene:
    """What remains when the demo is over."""

    outcome: Outcome
    seconds: float
    kill: Kill | None


def run(place: world.Place, number: int, deadline: Deadline, watch: Callable[[View], None]) -> Scene:
    """Play the whole scenario.

    Args:
        place: where.
        number: how many flights.
        deadline: for everything together.
        watch: called with every moment.

    Raises:
        DemoFailed: something did not happen in time, or a process ended by itself.
    """
    with (
        Client(place.url, instance=place.instance) as client,
        contextlib.closing(Store(place.url, place.instance)) as store,
    ):
        client.apply(*world.definitions())
        with Crew(place.folder, world.children(place, number)) as crew:
            demo = _Demo(client, store, crew, flights=world.flights(number), deadline=deadline, watch=watch)
            return demo.play()


class _Demo:
    def __init__(
        self,
        client: Client,
        store: Store,
        crew: Crew,
        *,
        flights: list[bytes],
        deadline: Deadline,
        watch: Callable[[View], None],
    ) -> None:
        self._client, self._store, self._crew = client, store, crew
        self._flights, self._deadline, self._watch = flights, deadline, watch
        self._bookmarks: list[Bookmark] = []
        self._delays = Journal(world.DELAYS, client.origin)
        self._board = Journal(world.BOARD, client.origin)
        self._victim = crew.children[_VICTIM]
        self._kill: Kill | None = None
        self._orphaned = ""
        self._began = 0.0

    def play(self) -> Scene:
        self._crew.await_ready(self._deadline)
        self._began = time.monotonic()
        self._crew.go()
        for first in range(0, len(self._flights), _PUBLISHED_A_TICK):
            some = self._flights[first : first + _PUBLISHED_A_TICK]
            self._bookmarks += self._client.publish_many(world.FLIGHTS, some, batch=_BATCH)
            self._tick()
        while not self._tick():
            time.sleep(_TICK)
        seconds = time.monotonic() - self._began
        self._crew.ask_to_end()
        letters = list(self._letters())
        self._crew.end()
        self._follow()
        return Scene(judge(self._evidence(letters)), seconds, self._kill)

    def _tick(self) -> bool:
        """Look at everything once; True when every flight has been settled."""
        self._crew.look()
        self._follow()
        delays, board = self._client.queue_stats(world.DELAYS), self._client.queue_stats(world.BOARD)
        letters = self._client.queue_stats(world.NEVER_LEFT).depth
        if self._kill is None and delays.acknowledged >= _MIDDLE * len(self._flights):
            self._try_to_kill(delays.acknowledged)
        elif self._kill and self._kill.noticed_after is None and not self._is_there(self._orphaned):
            self._kill.noticed_after = time.monotonic() - self._kill.at
        moment = time.monotonic() - self._began
        total, published = len(self._flights), len(self._bookmarks)
        self._watch(View(moment, total, published, delays, board, letters, self._crew, self._kill))
        left = delays.depth + board.depth + delays.expired - letters
        self._deadline.check(
            f"{left:,} flights to be settled (the first queue holds {delays.depth:,}, the second "
            f"{board.depth:,}, and {delays.expired - letters:,} dead letters are under way)"
        )
        return published == total and left == 0

    def _follow(self) -> None:
        self._delays.follow(self._store)
        self._board.follow(self._store)

    # -- the kill

    def _try_to_kill(self, acknowledged: int) -> None:
        """Kill the victim while it surely holds leases that it has picked up; else wait for the next tick."""
        self._victim.freeze()
        time.sleep(_SETTLES_WITHIN)
        subscription, held = self._held_by(self._victim)
        if held <= 0:
            self._victim.thaw()
            return
        self._victim.kill()
        self._orphaned = subscription
        self._kill = Kill(self._victim.name, held, acknowledged, time.monotonic())

    def _held_by(self, child: Child) -> tuple[str, int]:
        """A process's subscription, and the leases that it has picked up."""
        prefix = f"{socket.gethostname()}-{child.process.pid}-".encode()
        names = self._store.call(
            command(["ZRANGE", self._key("subscriptions"), 0, -1], lambda reply: [name.decode() for name in reply])
        )
        for name in names:
            client, leased = self._store.call(
                command(["HMGET", self._key("subscription", name), "client", "leased"], list[Any])
            )
            if client and client.startswith(prefix):
                pushed = self._store.call(command(["LLEN", self._key("inbox", name)], int))
                return name, int(leased) - pushed // 2
        return "", 0

    def _is_there(self, subscription: str) -> bool:
        return self._store.call(command(["EXISTS", self._key("subscription", subscription)], bool))

    def _key(self, name: str, *parameters: str) -> str:
        return key(self._store.instance, name, *parameters)

    # -- the end

    def _letters(self) -> Iterator[dict[str, Any]]:
        """Take the dead letters out of a queue of their own, as whoever mends them would."""
        expected = self._client.queue_stats(world.NEVER_LEFT).depth
        with self._client.subscribe(world.NEVER_LEFT, max_backlog=_BATCH) as letters:
            for _ in range(expected):
                letter = letters.get("5s")
                if letter is None:
                    raise DemoFailed(f"the dead-letter queue said that it holds {expected}, and gave fewer")
                yield letter.data
                letter.ack()

    def _evidence(self, letters: list[dict[str, Any]]) -> Evidence:
        *workers, board = [child for child in self._crew.children if child.backlogs]
        return Evidence(
            flights=dict(zip(self._bookmarks, map(json.loads, self._flights), strict=True)),
            delays=self._delays,
            records=[record for worker in workers for record in worker.records()],
            letters=letters,
            board=self._board,
            board_records=board.records(),
            max_cancels=world.DELAYS_QUEUE.max_cancels,
            killed=sum(worker.process.returncode == -signal.SIGKILL for worker in workers),
        )
