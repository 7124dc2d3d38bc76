"""The demo's scenario: publish everything, let five processes work, kill one in the middle, take stock."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq import Client
from ampsq.cli import demo_world as world
from ampsq.cli.demo_check import DemoOutcome, check_outcome
from ampsq.cli.demo_crew import Crew, DemoFailed
from ampsq.cli.demo_evidence import Evidence, Journal
from ampsq.cli.demo_worker import BARRIER
from ampsq.protocol.reads.subscribers import (
    has_subscription,
    inbox_deliveries,
    subscription_facts,
    subscription_names,
)
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq import Bookmark
    from ampsq.cli.demo_crew import Deadline, DemoProcess
    from ampsq.protocol.calls.queue_stats import QueueStats

__all__ = ["DemoResult", "DemoView", "Kill", "run"]

_PUBLISHED_A_TICK: Final = 3_000
_BATCH: Final = 500
_TICK: Final = 0.03
#: The part of the flights that is acknowledged when a worker is killed.
_MIDDLE: Final = 0.4
_VICTIM: Final = world.WORKERS.index(max(world.WORKERS))
#: Its leases at least, since before a barrier there are few; after the second part of the flights one is enough.
_WORTH_KILLING: Final = 20
_LATE: Final = 0.7
#: Seconds in which what a frozen process has sent reaches the server.
_SETTLES_WITHIN: Final = 0.03
#: Seconds in which every worker records the last barrier after it was sent.
_ARRIVES_WITHIN: Final = 5.0


@dataclass(slots=True)
class Kill:
    """The death of one worker.

    Attributes:
        name: whose.
        held: leases that it held and had picked up, when it was killed.
        acknowledged: flights that all had acknowledged by then.
        barriers: those that the journal had by then.
        noticed_after: seconds until the coordinator ended its subscription; None until then.
    """

    name: str
    held: int
    acknowledged: int
    barriers: int
    at: float
    noticed_after: float | None = None


@dataclass(frozen=True, slots=True)
class DemoView:
    """One moment, for whoever watches."""

    seconds: float
    total: int
    published: int
    delays: QueueStats
    board: QueueStats
    letters: int
    days: int
    crew: Crew
    kill: Kill | None


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of the demo."""

    outcome: DemoOutcome
    seconds: float
    kill: Kill | None


def run(site: world.DemoSite, number: int, deadline: Deadline, watch: Callable[[DemoView], None]) -> DemoResult:
    """Play the whole scenario.

    Args:
        site: where.
        number: how many flights.
        deadline: for everything together.
        watch: called with every moment.

    Raises:
        DemoFailed: something did not happen in time, or a process ended by itself.
    """
    with (
        Client(site.url, instance=site.instance) as client,
        contextlib.closing(Store(site.url, site.instance)) as store,
    ):
        client.apply(*world.definitions())
        with Crew(site.folder, world.children(site, number)) as crew:
            demo = _Demo(client, store, crew, messages=world.messages(number), deadline=deadline, watch=watch)
            return demo.play()


class _Demo:
    def __init__(
        self,
        client: Client,
        store: Store,
        crew: Crew,
        *,
        messages: list[tuple[bytes, dict[str, object]]],
        deadline: Deadline,
        watch: Callable[[DemoView], None],
    ) -> None:
        self._client, self._store, self._crew = client, store, crew
        self._messages, self._deadline, self._watch = messages, deadline, watch
        self._flights = sum("end_of_day" not in said for _, said in messages)
        self._bookmarks: list[Bookmark] = []
        self._delays = Journal(world.DELAYS, client.origin)
        self._board = Journal(world.BOARD, client.origin)
        self._victim = crew.children[_VICTIM]
        self._kill: Kill | None = None
        self._orphaned = ""
        self._began = 0.0

    def play(self) -> DemoResult:
        self._crew.await_ready(self._deadline)
        self._began = time.monotonic()
        self._crew.go()
        self._await_subscriptions()
        for first in range(0, len(self._messages), _PUBLISHED_A_TICK):
            some = [body for body, _ in self._messages[first : first + _PUBLISHED_A_TICK]]
            self._bookmarks += self._client.publish_many(world.FLIGHTS, some, batch=_BATCH)
            self._tick()
        while not self._tick():
            time.sleep(_TICK)
        self._await_last_barrier()
        seconds = time.monotonic() - self._began
        self._crew.ask_to_end()
        letters = list(self._letters())
        self._crew.end()
        self._follow()
        return DemoResult(check_outcome(self._evidence(letters)), seconds, self._kill)

    def _await_subscriptions(self) -> None:
        """A barrier goes to who is there: all workers are, before the first flight is published."""
        while self._client.admin.queue_stats(world.DELAYS).subscriptions < len(world.WORKERS):
            self._crew.read_records()
            self._deadline.check("the workers to subscribe")
            time.sleep(_TICK / 10)

    def _await_last_barrier(self) -> None:
        """Let every worker record what was sent to it; whether it did is for the check to say."""
        until = time.monotonic() + _ARRIVES_WITHIN
        sent = len(self._messages) - self._flights
        workers = [child for child in self._workers if child is not self._victim]
        while any(worker.barriers < sent for worker in workers) and time.monotonic() < until:
            self._crew.read_records()
            time.sleep(_TICK / 10)

    def _tick(self) -> bool:
        """Look at everything once; True when every message has been settled."""
        self._crew.read_records()
        self._follow()
        delays, board = self._client.admin.queue_stats(world.DELAYS), self._client.admin.queue_stats(world.BOARD)
        letters = self._client.admin.queue_stats(world.NEVER_LEFT).depth
        if self._kill is None and delays.acknowledged >= _MIDDLE * self._flights:
            self._try_to_kill(delays.acknowledged)
        elif self._kill and self._kill.noticed_after is None and not self._is_there(self._orphaned):
            self._kill.noticed_after = time.monotonic() - self._kill.at
        moment = time.monotonic() - self._began
        sent, ended = len(self._bookmarks), self._delays.count(BARRIER)
        published = sum("end_of_day" not in said for _, said in self._messages[:sent])
        self._watch(DemoView(moment, self._flights, published, delays, board, letters, ended, self._crew, self._kill))
        left = delays.depth + board.depth + delays.expired - letters
        self._deadline.check(
            f"{left:,} flights to be settled (the first queue holds {delays.depth:,}, the second "
            f"{board.depth:,}, and {delays.expired - letters:,} dead letters are under way)"
        )
        return sent == len(self._messages) and left == 0

    def _follow(self) -> None:
        self._delays.follow(self._store)
        self._board.follow(self._store)

    # -- the kill

    def _try_to_kill(self, acknowledged: int) -> None:
        """Kill the victim while it surely holds picked-up leases, and several; else wait for the next tick."""
        self._victim.freeze()
        time.sleep(_SETTLES_WITHIN)
        subscription, held = self._held_by(self._victim)
        if held < (_WORTH_KILLING if acknowledged < _LATE * self._flights else 1):
            self._victim.thaw()
            return
        self._follow()
        self._victim.kill()
        self._orphaned = subscription
        self._kill = Kill(self._victim.name, held, acknowledged, self._delays.count(BARRIER), time.monotonic())

    def _held_by(self, child: DemoProcess) -> tuple[str, int]:
        """A process's subscription, and the leases that it has picked up."""
        prefix, instance = f"{socket.gethostname()}-{child.process.pid}-", self._store.instance
        for name in self._store.call(subscription_names(instance)):
            facts = self._store.call(subscription_facts(instance, name))
            if facts and facts.client.startswith(prefix):
                return name, facts.leased - self._store.call(inbox_deliveries(instance, name))
        return "", 0

    def _is_there(self, subscription: str) -> bool:
        return self._store.call(has_subscription(self._store.instance, subscription))

    # -- the end

    def _letters(self) -> Iterator[dict[str, object]]:
        """Take the dead letters out of a queue of their own, as whoever mends them would."""
        expected = self._client.admin.queue_stats(world.NEVER_LEFT).depth
        with self._client.subscribe(world.NEVER_LEFT, max_backlog=_BATCH) as letters:
            for _ in range(expected):
                letter = letters.get("5s")
                if letter is None:
                    raise DemoFailed(f"the dead-letter queue said that it holds {expected}, and gave fewer")
                yield letter.data
                letter.ack()

    @property
    def _workers(self) -> list[DemoProcess]:
        return self._crew.children[: len(world.WORKERS)]

    def _evidence(self, letters: list[dict[str, object]]) -> Evidence:
        board = next(child for child in self._crew.children if child.name == world.BOARD)
        published = [(bookmark, said) for bookmark, (_, said) in zip(self._bookmarks, self._messages, strict=True)]
        died = [worker.name for worker in self._workers if worker.process.returncode == -signal.SIGKILL]
        return Evidence(
            flights={bookmark: said for bookmark, said in published if "end_of_day" not in said},
            barriers={bookmark: str(said["end_of_day"]) for bookmark, said in published if "end_of_day" in said},
            delays=self._delays,
            workers={worker.name: worker.records() for worker in self._workers},
            letters=letters,
            board=self._board,
            board_records=board.records(),
            max_cancels=world.DELAYS_QUEUE.max_cancels,
            killed=dict.fromkeys(died, self._kill.barriers if self._kill else 0),
        )
