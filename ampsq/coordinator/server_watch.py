"""The instances of one server: one loop looks at all of them, and those where something is to be done have a round.

While nothing happens, a look costs the server one script for all its instances, a count of who listens, and little
else, and the coordinator one packet, in which it also says that it is alive. What happens is noticed at once: scripts
wake the coordinator (lua/lib/timetable.lua). The look each second finds what nobody tells: plain XADDs, clients of
older releases, and what was lost with a connection.

An instance where nothing happened for a while rests long: it is looked at each twenty seconds only. What is due before
then wakes the coordinator, too, and the server tells of plain XADDs (entry_wait.py; tracked_entries.py in a cluster).

In a cluster each primary is such a server. The loop tells main.py, which places the instances, when one of them may be
at another node.
"""
# Long: the loop and all that it looks at are one state under one lock.

from __future__ import annotations

import contextlib
import heapq
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final, cast

from ampsq.base.errors import AmpsqError, NotPermitted, Unavailable
from ampsq.coordinator.entry_wait import EntryWait
from ampsq.coordinator.flush_settings import FlushState, read_flush_state
from ampsq.coordinator.listener_counts import ListenerCounts
from ampsq.coordinator.log_search import LogSearch
from ampsq.coordinator.loop_state import Alarm, InstanceInLoop, ServerRest
from ampsq.coordinator.membership import MembershipQuestion
from ampsq.coordinator.tracked_entries import TrackedEntries
from ampsq.operations.functions import keep_functions
from ampsq.protocol.calls.duties import read_news
from ampsq.protocol.functions import are_used
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.server import ON_REWRITE, configuration, count_keys
from ampsq.protocol.reads.subscribers import count_channel_listeners
from ampsq.publishing.server_clock import Moment, clock_of
from ampsq.transport.kept_pipeline import KeptPipeline
from ampsq.transport.repeated_question import RepeatedQuestion
from ampsq.transport.wakeups import Wakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ampsq.coordinator.instance_duties import InstanceDuties, RoundFailure
    from ampsq.coordinator.membership import Membership
    from ampsq.protocol.calls.duties import NewsReply
    from ampsq.protocol.reads.duties import AllLogsScan
    from ampsq.protocol.request import Call
    from ampsq.transport.route import Route
    from ampsq.transport.server_wait import ServerWait
    from ampsq.transport.store import Store

__all__ = ["ServerWatch"]

_log = logging.getLogger("ampsq.coordinator")
#: Seconds between two looks at everything; where nothing can wake us, between two looks. A client that is gone is
#: noticed by a look and ended 0.3 s later, which is to be within 1.2 s.
_LOOK: Final = 0.8
_LOOK_UNWOKEN: Final = 0.1
#: Looks after which also what is no matter of a second is looked at.
_RARE: Final = 3
#: Looks of which one looks at the server all the same though all is as it was, and looks for which that is not asked
#: after something was otherwise.
_SURE: Final = 8
_UNSURE: Final = 3
#: Channels of clients up to which that is asked: of many the server's answer is long.
_CHANNELS: Final = 100
#: Seconds without a look from which on all duties are as late as that.
_UNSEEN: Final = 2.0
#: Seconds between two questions how the server flushes, and after which all of it is asked: between, a look asks for
#: what may be set while it runs.
_FLUSHING: Final = 3.0
_FLUSHING_WHOLE: Final = 30.0
#: Seconds between two looks whether the server still has its functions.
_FUNCTIONS: Final = 30.0
#: Seconds without a look after which the server, or this loop, is taken to be stuck.
_STUCK: Final = 5.0
#: Least seconds between two rounds of an instance that is busy.
_BETWEEN_ROUNDS: Final = 0.01
#: Instances of one look.
_INSTANCES: Final = 200
#: Seconds without anything that happens after which an instance rests long, looks of which each has one then, and
#: seconds for which one is looked at each time where a look found what nobody had told. All turns together take less
#: than `LONG_REST_HORIZON`, the time before a due entry at which scripts wake the coordinator, and less than what is
#: left of a subscription's time after a sign of life. So no look is needed between two turns while all is well.
_QUIET_AFTER: Final = 10.0
_TURNS: Final = 24
_UNTOLD: Final = 600.0
#: What scripts tell of when it happens, so that a look has nothing to find.
_TOLD: Final = frozenset({"catalog", "names", "clients"})
#: Seconds by which a clock has moved where instances have to know: far less than a jump is for them.
_MOVED: Final = 0.3
#: Seconds for which the blocked read of entries is asked for again while the server cannot be reached.
_RETRY_TIMEOUT: Final = 0.5
#: Seconds until a look or a round that failed is made again.
_AFTER_FAILURE: Final = 0.5


class ServerWatch:
    """Cares for the instances of one server, in threads of its own, until it is closed.

    Args:
        store: on the server.
        servers: what waits for a server that is lost.
        run: lets work have a thread.
        membership: this coordinator's place among those of the server: looks give its signs of life.
        moved: the server is a node of a cluster: called when an instance may be at another one, or the node is lost.

    Attributes:
        store: on the server.
    """

    def __init__(
        self,
        store: Store,
        servers: ServerWait,
        run: Callable[[Callable[[], None]], object],
        membership: Membership | None = None,
        moved: Callable[[], None] | None = None,
    ) -> None:
        self.store, self._servers, self._run, self._membership = store, servers, run, membership
        self._moved = moved
        self._instances: dict[str, InstanceInLoop] = {}
        # Guards what follows and all of `InstanceInLoop`; who changes what the loop waits for rings the alarm.
        self._changed, self._alarm = threading.Condition(), Alarm()
        self._timers: list[tuple[float, str]] = []
        # Those that are to be looked at beside the looks at everything.
        self._looked_at_soon: set[InstanceInLoop] = set()
        # The channels that clients have to listen to, and whose they are; None: a round may have changed them.
        self._channels_known: list[tuple[str, InstanceInLoop]] | None = None
        self._listeners: ListenerCounts[InstanceInLoop] = ListenerCounts()
        # The last look at everything was answered whole.
        self._is_answered = False
        # How far the server's clock is ahead of the own one, seconds, as all instances were told last.
        self._ahead = -math.inf
        self._failures: list[tuple[InstanceDuties, RoundFailure]] = []
        self._is_lost, self._back_at = True, 0.0
        # Rounds that have a thread.
        self._rounds = 0
        self._closed = threading.Event()
        self._wakeups = Wakeups(store, self._woken, self._connection_lost, None if moved is None else self._left)
        # The node sends nothing for some of them, since it may not serve them.
        self._unheard = False
        self._opened_at = -math.inf
        self._entries: EntryWait | TrackedEntries
        if moved is None:
            waiting = servers.store(store.url, store.instance, _RETRY_TIMEOUT)
            self._entries = EntryWait(waiting, self._quiet_logs, self._entries_found)
        else:
            self._entries = TrackedEntries(self._quiet_logs, self._entries_found, self._route)
        self._look_number = self._searched_at = 0
        self._looked_at = time.monotonic()
        self._flushing: FlushState | None = None
        self._flushing_at = self._functions_at = 0.0
        self._flushing_known_until = -math.inf
        # While nothing happens anywhere: what is found by one question. None: something may have happened.
        self._rest: ServerRest | None = None
        self._stirred = 0
        self._question = RepeatedQuestion()
        self._asked_about: list[tuple[str, InstanceInLoop]] | None = None
        self._rests_from = 0
        # This user may count the server's keys.
        self._may_count_keys = True
        self._search = LogSearch(store, self._logs_found)
        # Of the loop's thread alone, and for which store it asked last.
        self._asking = KeptPipeline()
        self._asked_by = store
        self._thread = threading.Thread(target=self._loop, name="coordinator-look", daemon=True)
        self._thread.start()

    # -- which instances

    @property
    def names(self) -> list[str]:
        """The instances that are cared for here."""
        with self._changed:
            return list(self._instances)

    def add(self, duties: InstanceDuties) -> None:
        """Care for an instance from now on, of which nothing is known, or which was at another node of the cluster."""
        name = duties.store.instance
        duties.watched.rests_long = False
        duties.wake_all()
        with self._changed:
            self._instances[name] = InstanceInLoop(duties, _TURNS)
            self._is_lost = True
            self._end_rest()
            self._alarm.ring()

    def remove(self, name: str) -> None:
        """Let go of an instance; a round of it that is under way ends."""
        duties = self.release(name)
        if duties is not None:
            duties.leaving.set()
            self._run(duties.close)

    def release(self, name: str) -> InstanceDuties | None:
        """Let go of an instance, whose duties another watch goes on with; None: it is not cared for here."""
        with self._changed:
            watched = self._instances.pop(name, None)
            if watched is not None:
                self._looked_at_soon.discard(watched)
            self._channels_known = None
            self._end_rest()
            # Nothing is listened to for it any more.
            self._is_lost = self._is_lost or self._moved is not None
            self._alarm.ring()
        if isinstance(self._entries, TrackedEntries):
            self._entries.uncover(name)
        return watched.duties if watched is not None else None

    def lateness(self) -> dict[tuple[str, str], float]:
        """Return for each instance and duty by how many seconds it is late, or was not looked at."""
        now = time.monotonic()
        with self._changed:
            watched, unseen = list(self._instances.values()), now - self._looked_at
        unseen = unseen if unseen > _UNSEEN else 0.0
        return {
            (each.duties.store.instance, duty): max(late, unseen)
            for each in watched
            for duty, late in each.duties.lateness(now).items()
        }

    def late_duties(self) -> dict[str, float]:
        """Return by how many seconds duties are late that are late by more than one, each at most."""
        now = time.monotonic()
        with self._changed:
            watched, unseen = list(self._instances.values()), now - self._looked_at
        unseen = unseen if unseen > _UNSEEN else 0.0
        late: dict[str, float] = {}
        for each in watched:
            # Of a thousand instances at rest nothing is counted duty by duty.
            if unseen or each.duties.wanted_at <= now:
                for duty, seconds in each.duties.lateness(now).items():
                    if max(seconds, unseen) > 1.0:
                        late[duty] = max(seconds, unseen, late.get(duty, 0.0))
        return late

    @property
    def is_stuck(self) -> bool:
        """Return whether the server has not answered for long."""
        return time.monotonic() - self._looked_at > _STUCK

    def close(self) -> None:
        """End the loop; rounds that are under way end by themselves."""
        self._closed.set()
        with self._changed:
            for watched in self._instances.values():
                watched.duties.stop()
            self._alarm.ring()
        self._wakeups.end()
        self._entries.close()

    def join(self, until: float) -> bool:
        """Wait for the loop and all rounds, up to a moment of the monotonic clock; False where the loop goes on."""
        self._thread.join(max(until - time.monotonic(), 0.0))
        with self._changed:
            watched = list(self._instances.values())
            # One that goes on would connect once more.
            self._changed.wait_for(lambda: not self._rounds, max(until - time.monotonic(), 0.0))
        for each in watched:
            each.duties.join(until)
        self.store.close()
        return not self._thread.is_alive()

    # -- what happens

    def _woken(self, instance: str, what: str) -> None:
        with self._changed:
            watched = self._instances.get(instance)
            if watched is None:
                return
            self._stir(watched)
            watched.duties.wake([what])  # type: ignore[list-item]  # what a script says
            self._want_round(watched)

    def _left(self, instance: str) -> None:
        """Look at an instance each time that the node serves no more, until it is cared for elsewhere."""
        with self._changed:
            if (watched := self._instances.get(instance)) is not None:
                self._stir(watched)
                self._unheard = True
        self._tell_of_move()

    def _tell_of_move(self) -> None:
        """Have whoever places instances look where they are, at a node of a cluster."""
        if self._moved is not None:
            self._moved()

    def _route(self, instance: str) -> Route | None:
        with self._changed:
            watched = self._instances.get(instance)
        return watched.duties.store.route if watched is not None else None

    def _stir(self, watched: InstanceInLoop, until: float = 0.0) -> None:
        """Look at an instance each time from now on; see `InstanceInLoop.stir`. The lock is held."""
        watched.stir(until)
        if isinstance(self._entries, TrackedEntries):
            self._entries.uncover(watched.duties.store.instance)
        self._end_rest()

    def _end_rest(self) -> None:
        """Look at all that is to be looked at from now on, until a look finds nothing to do; the lock is held."""
        self._rest, self._stirred = None, self._stirred + 1

    def _entries_found(self, instances: set[str]) -> None:
        """Look at instances in whose logs something was written."""
        now = time.monotonic()
        with self._changed:
            for name in instances:
                if (watched := self._instances.get(name)) is not None:
                    self._stir(watched)
                    watched.look_at = min(watched.look_at, now)
                    self._looked_at_soon.add(watched)
            self._alarm.ring()

    def _quiet_logs(self) -> dict[str, dict[str, str]]:
        """The logs of instances that rest long, or could: of each the last ID that was seen in each log."""
        until = time.monotonic() - _QUIET_AFTER
        with self._changed:
            quiet = [each for each in self._instances.values() if each.quiet_since <= until and not each.is_running]
            logs = {each.duties.store.instance: each.duties.seen_logs for each in quiet}
        return {name: places for name, places in logs.items() if places is not None}

    def _connection_lost(self) -> None:
        with self._changed:
            self._is_lost = True
            self._alarm.ring()

    def _want_round(self, watched: InstanceInLoop) -> None:
        """Let an instance have a round as soon as a thread is free; the lock is held."""
        if watched.is_running:
            watched.is_wanted = True
        elif not self._closed.is_set():
            watched.is_running = True
            self._run(lambda: self._round(watched))

    def _round(self, watched: InstanceInLoop) -> None:
        """One round of an instance, in a thread of the pool."""
        began = time.monotonic()
        failures: list[RoundFailure] = []
        with self._changed:
            self._rounds += 1
        try:
            failures = watched.duties.do_round()
        except Exception:  # noqa: BLE001  (whatever is wrong with one instance, the others go on)
            _log.exception("a round of %s failed", watched.duties.store.instance)
        finally:
            with self._changed:
                self._rounds -= 1
                if self._closed.is_set():
                    self._changed.notify_all()
                self._channels_known = None
                watched.is_running, is_wanted = False, watched.is_wanted
                watched.is_wanted = False
                # What began before the server was back says nothing of it now.
                if began < self._back_at:
                    failures = []
                    watched.duties.wake_all()
                self._failures += [(watched.duties, failure) for failure in failures]
                at = watched.duties.wanted_at
                if failures:
                    at = max(at, time.monotonic() + _AFTER_FAILURE)
                is_wanted = is_wanted or at <= time.monotonic()
                is_here = self._instances.get(watched.duties.store.instance) is watched
                # One that is never at rest is looked at in between: its catalog may have changed.
                if not is_here:
                    pass
                elif is_wanted and not failures and time.monotonic() - watched.looked_at < _LOOK:
                    # Behind the others that wait for a thread.
                    self._want_round(watched)
                else:
                    # Once it rests, whatever happens wakes us: at most that often.
                    watched.look_at = began + _BETWEEN_ROUNDS
                    self._looked_at_soon.add(watched)
                    # Where more is to be done, the look lets it have its round.
                    is_looked_at = at <= time.monotonic() and watched.duties.watched.catalog != ""
                    self._set_timer(watched, math.inf if is_looked_at else at)
                    self._alarm.ring()

    def _set_timer(self, watched: InstanceInLoop, at: float) -> None:
        watched.timer_at = at
        if at < math.inf:
            heapq.heappush(self._timers, (at, watched.duties.store.instance))

    # -- the loop

    def _loop(self) -> None:
        next_look = 0.0
        while not self._closed.is_set():
            try:
                if self._failures:
                    self._judge_failures()
                if self._is_lost:
                    self._begin_anew()
                    next_look = 0.0
                now = time.monotonic()
                if now >= next_look:
                    self._look_at_everything()
                    period = _LOOK_UNWOKEN if self._wakeups.is_refused else _LOOK
                    next_look = max(next_look + period, now + period / 2)
                self._wait(next_look)
            except Unavailable:
                self._wait_for_server()
            except AmpsqError as error:
                _log.warning("looking at the instances of a server failed; trying again: %s", error)
                self._give_no_sign()
                self._closed.wait(_AFTER_FAILURE)
            except Exception:  # noqa: BLE001  (without this loop nothing would ever be done)
                _log.exception("looking at the instances of a server failed; trying again")
                self._give_no_sign()
                self._closed.wait(_AFTER_FAILURE)
        self._asking.close()
        self._question.close()
        with self._changed:
            self._alarm.close()

    def _wait(self, until: float) -> None:
        """Wait for a moment, begin rounds whose time comes, and look at who has had one so that it can rest."""
        while not (self._closed.is_set() or self._is_lost or self._failures):
            with self._changed:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    at, name = heapq.heappop(self._timers)
                    watched = self._instances.get(name)
                    if watched is not None and watched.timer_at == at:
                        watched.timer_at = math.inf
                        self._want_round(watched)
                resting = [each for each in self._looked_at_soon if not each.is_running]
                due = [each for each in resting if each.look_at <= now]
                if not due:
                    wanted = [until, *(each.look_at for each in resting)]
                    wanted += [self._timers[0][0]] if self._timers else []
                    seconds = min(wanted) - now
                    if until <= now:
                        return
                    if self._closed.is_set() or self._is_lost or self._failures:
                        return
                    self._alarm.arm()
            if not due:
                self._alarm.wait(seconds)
                continue
            # Messages that others own wait as long as they like: each second is often enough to ask for them.
            self._look(due, rare=True, remote=False)

    def _begin_anew(self) -> None:
        """Listen on a new connection if the last one was lost; instances that are new have a round."""
        with self._changed:
            self._is_lost = False
            self._end_rest()
            names = list(self._instances)
        # It may be another run of the server.
        self._flushing_known_until = -math.inf
        if self._wakeups.is_open:
            self._wakeups.listen(names)
        elif not self._wakeups.is_refused:
            # A node that is not well refuses at once, and would be asked again at once.
            self._closed.wait(max(self._opened_at + _AFTER_FAILURE - time.monotonic(), 0.0))
            self._opened_at = time.monotonic()
            self._wakeups.open(names)
            self._wake_all(names)
            return
        with self._changed:
            for watched in self._instances.values():
                if watched.duties.watched.catalog == "" or watched.is_new:
                    watched.is_new = False
                    self._want_round(watched)

    def _wake_all(self, names: Sequence[str]) -> None:
        with self._changed:
            for name in names:
                if (watched := self._instances.get(name)) is not None:
                    self._stir(watched)
                    watched.is_new = False
                    watched.duties.wake_all()
                    self._want_round(watched)

    def _wait_for_server(self) -> None:
        """Wait until the server answers; then everything may have changed."""
        self._give_no_sign()
        self._tell_of_move()
        if self._servers.wait(self.store, self._closed):
            self._go_on()
        else:
            self._closed.wait(_AFTER_FAILURE)

    def _go_on(self) -> None:
        """Let everything be done anew on a server that is back."""
        with self._changed:
            self._failures.clear()
            self._back_at = time.monotonic()
            # It may be another one: a node of a cluster has functions of its own.
            self._functions_at = 0.0
            names = list(self._instances)
        self._wake_all(names)

    def _judge_failures(self) -> None:
        """Wait where the server is away; else say why duties wait, and let them try again."""
        with self._changed:
            failures, self._failures = self._failures, []
        first = next((duties for duties, failure in failures if isinstance(failure.error, Unavailable)), None)
        if first is not None:
            self._tell_of_move()
            # What an instance waits for may be another node than this one, which its other instances need not wait for.
            if self._servers.wait(first.store if self._moved is None else self.store, self._closed):
                self._go_on()
                return
        for duties, failure in failures:
            duties.warn(failure)

    # -- looking

    def _look_at_everything(self) -> None:
        self._look_number += 1
        if self._still_rests():
            return
        if not self._wakeups.check():
            # It is half open, or the server hangs: a new one shows which.
            self._wakeups.close()
        if not (self._wakeups.is_open or self._wakeups.is_refused):
            # Or it could not be opened.
            self._connection_lost()
        if self._unheard and self._wakeups.is_open:
            # It is served again, or refused again, where nobody has taken it up elsewhere.
            self._unheard = False
            self._wakeups.listen(self.names)
        with self._changed:
            self._end_rest()
            stirred = self._stirred
            idle = [each for each in self._instances.values() if not each.is_running]
            watched = self._whose_turn_it_is(idle)
        if watched or not self._instances:
            self._look(watched, rare=self._look_number % _RARE == 1, remote=True)
        else:
            rest = self._coming_rest()
            is_quiet = self._look_at_server()
            with self._changed:
                # What happened meanwhile, the look may not have seen.
                self._rest = rest if is_quiet and self._stirred == stirred else None
        self._looked_at = time.monotonic()
        if self._looked_at >= self._flushing_at:
            self._flushing_at = self._looked_at + _FLUSHING
            self._flushing_known_until = self._looked_at + _FLUSHING_WHOLE
            self._ask_how_it_flushes()
        if self._looked_at >= self._functions_at:
            self._functions_at = self._looked_at + _FUNCTIONS
            if are_used():
                self.store.run(keep_functions())

    # -- rest: nothing is done but asking whether all is as it was

    def _still_rests(self) -> bool:
        """Return whether all is as the last look found it, so that there is nothing to look at; asks the server."""
        rest, number = self._rest, self._look_number
        if rest is None or number > rest.until or number % _TURNS in rest.turns:
            return False
        if self._channels_known is not rest.channels or self._entries.covered is not rest.covered:
            return False
        shown = self._question.ask(self._asked_by)
        now = time.monotonic()
        if shown is None or abs(shown - now - self._ahead) > _MOVED:
            self._rests_from = number + _UNSURE
            self._flushing_at = min(self._flushing_at, now)
            return False
        self._looked_at = now
        if self._membership is not None:
            self._membership.met_at = now
        return True

    def _coming_rest(self) -> ServerRest | None:
        """Return what is found if the look that comes now finds nothing to do; None: then the server is not at rest.

        The question is asked before that look: what changes later is answered otherwise.
        """
        channels, covered = self._channels(), self._entries.covered
        is_alone = self._membership is None or not self._membership.is_among_others
        if len(channels) > _CHANNELS or not is_alone or self._look_number < self._rests_from:
            return None
        if channels != self._asked_about or not self._question.is_open:
            calls: list[Call[object]] = (
                [count_channel_listeners([channel for channel, _ in channels])] if channels else []
            )
            calls += self._membership.reads() if self._membership is not None else []
            calls += [count_keys()] if self._may_count_keys else []
            calls += [configuration()] if self._flushing is not None else []
            self._question.put(self._asked_by, calls)
            self._asked_about = channels
        self._question.ask(self._asked_by)
        with self._changed:
            turns = frozenset(each.turn for each in self._instances.values())
        return ServerRest(channels, covered, turns, self._look_number + _SURE)

    def _whose_turn_it_is(self, idle: Sequence[InstanceInLoop]) -> list[InstanceInLoop]:
        """Return the instances that are looked at now, once it was seen which may rest long; the lock is held."""
        quiet_until = time.monotonic() - _QUIET_AFTER if self._wakeups.is_open else -math.inf
        covered = self._entries.covered
        turn, chosen, is_uncovered = self._look_number % _TURNS, [], False
        for each in idle:
            is_quiet, watched = each.quiet_since <= quiet_until, each.duties.watched
            rests_long = is_quiet and watched.name in covered
            is_uncovered = is_uncovered or (is_quiet and not rests_long and watched.catalog != "")
            if watched.rests_long != rests_long:
                watched.rests_long = rests_long
            elif rests_long and each.turn != turn and self._is_answered:
                continue
            chosen.append(each)
        if is_uncovered:
            self._entries.want()
        return chosen

    def _look(self, instances: Sequence[InstanceInLoop], *, rare: bool, remote: bool) -> None:
        """Look at instances, and let those have a round where something has happened."""
        with self._changed:
            # Of the others nothing has been wanted since they had a timer, unless the look before was not answered.
            is_sure = not rare and self._is_answered
            unsure = self._looked_at_soon.intersection(instances) if is_sure else set(instances)
            unsure.update([each for each in instances if each.rests_long])
            was_answered, self._is_answered = self._is_answered, self._is_answered and not remote
            if self._looked_at_soon:
                self._looked_at_soon.difference_update(instances)
            now = time.monotonic()
            for each in instances:
                each.look_at, each.looked_at = math.inf, now
        # Of one whose catalog was not read yet, nothing is known to compare with.
        known = [each for each in instances if each.duties.watched.catalog]
        groups = [each for each in known if not each.rests_long], [each for each in known if each.rests_long]
        parts = [some[first : first + _INSTANCES] for some in groups for first in range(0, len(some), _INSTANCES)]
        if not parts:
            self._give_no_sign()
            return
        calls: list[Call[object]] = [
            read_news(
                [each.duties.watched for each in part],
                rare=rare or part[0].rests_long,
                remote=remote,
                is_keyless=self._moved is not None,
            )
            for part in parts
        ]
        calls += self._listeners.begin(self._channels()) if remote else []
        signs = MembershipQuestion([])
        steps: list[Call[AllLogsScan]] = []
        # Behind a script that the server does not know these would have run out of turn, and the whole look fails: so
        # they are left out after a failure.
        if remote and was_answered:
            steps = self._search.begin()
            # Behind all else: what of it is refused takes nothing away.
            signs = self._membership.question() if self._membership is not None else signs
        asked = time.monotonic()
        if self._moved is None:
            # A script names an instance whose keys this user may use.
            self._asked_by = parts[0][0].duties.store
        with contextlib.closing(self._asking.ask(self._asked_by, [*calls, *steps, *signs.calls])) as replies:
            is_moved = False
            for part in parts:
                reply: NewsReply = next(replies)  # type: ignore[assignment]  # what was asked
                is_moved = is_moved or (rare and self._has_moved(reply.now))
                self._keep_clock(reply.now, Moment(asked, time.monotonic()))
                self._take_in(part, reply, unsure, is_moved=is_moved)
            if is_moved:
                self._tell_clock(set(self._instances.values()).difference(instances), reply.now)
            absent, is_doubtful = self._listeners.take_in(replies) if remote else (set(), False)
            found = [next(replies) for _ in steps]
            if self._membership is not None:
                self._membership.keep_time(reply.now * 1000)
                self._membership.take_in(signs, replies, reply.now * 1000)
            if remote:
                self._is_answered = True
                self._search.go_on(found[0] if found else None, reply.keys)  # type: ignore[arg-type]  # see above
        self._look_for_lost_clients(self._count_listeners() if is_doubtful else absent)

    def _look_at_server(self) -> bool:
        """Look where it is the turn of no instance; gives whether nothing was found that asks for anything."""
        listeners = self._listeners.begin(self._channels())
        keys: list[Call[object]] = [count_keys()] if self._may_count_keys else []
        steps = self._search.begin(self._look_number - self._searched_at)
        self._searched_at, now = self._look_number, time.monotonic()
        is_flushing_due = self._flushing is not None and self._flushing_at <= now < self._flushing_known_until
        flushing: list[Call[object]] = [configuration()] if is_flushing_due else []
        signs = self._membership.question() if self._membership is not None else MembershipQuestion([])
        calls = [*listeners, server_time(), *keys, *steps, *flushing, *signs.calls]
        absent, is_doubtful, number, found = set[InstanceInLoop](), False, -1, list[object]()
        with contextlib.closing(self._asking.ask(self._asked_by, calls)) as replies:
            if listeners:
                absent, is_doubtful = self._listeners.take_in(replies)
            self._take_clock(cast("int", next(replies)) / 1000, Moment(now, time.monotonic()))
            try:
                number = cast("int", next(replies)) if keys else number
            except NotPermitted:
                # What else was asked is not answered this time.
                self._may_count_keys = False
            else:
                found = [next(replies) for _ in steps]
                self._take_flush_settings([next(replies) for _ in flushing])
                if self._membership is not None:
                    self._membership.take_in(signs, replies, self._membership.now())
        self._search.go_on(cast("AllLogsScan", found[0]) if found else None, number)
        self._look_for_lost_clients(self._count_listeners() if is_doubtful else absent)
        is_alone = self._membership is None or not self._membership.is_among_others
        return not absent and not is_doubtful and number >= 0 and self._search.is_done and is_alone

    def _take_clock(self, shown: float, moment: Moment) -> None:
        """Take in the server's clock, in seconds, where no instance is looked at."""
        if self._membership is not None:
            self._membership.keep_time(shown * 1000)
        self._keep_clock(shown, moment)
        if self._has_moved(shown):
            self._tell_clock(list(self._instances.values()), shown)

    def _take_flush_settings(self, found: Sequence[object]) -> None:
        """See whether what may be set while a server runs is as before; else all of it is asked for."""
        for settings in cast("Sequence[Mapping[str, str]]", found):
            known = self._flushing
            is_same = known is not None and _flush_settings(known) == (settings["appendfsync"], settings[ON_REWRITE])
            self._flushing_at = time.monotonic() + _FLUSHING if is_same else 0.0

    def _count_listeners(self) -> set[InstanceInLoop]:
        with contextlib.closing(self._asking.ask(self._asked_by, self._listeners.calls())) as replies:
            return self._listeners.absent(replies)

    def _give_no_sign(self) -> None:
        """Let the other thread say that this coordinator is alive, since no look does now."""
        if self._membership is not None:
            self._membership.changed.set()

    def _keep_clock(self, shown: float, moment: Moment) -> None:
        """See whether the server's clock was set back: then it flushes nothing for a while."""
        if self._flushing is not None:
            clock = clock_of(self._flushing.run, time.monotonic)
            clock.learn(shown, moment)
            if math.ceil(clock.held_until * 1000) != self._flushing.held_until:
                self._flushing_at = 0.0

    def _has_moved(self, shown: float) -> bool:
        """Return whether the server's clock has moved beside the own one since all instances were told of it."""
        ahead = shown - time.monotonic()
        if abs(ahead - self._ahead) <= _MOVED:
            return False
        self._ahead = ahead
        return True

    def _tell_clock(self, instances: Iterable[InstanceInLoop], shown: float) -> None:
        """Let instances know the server's clock; where it jumped, they have a round."""
        jumped = [each for each in instances if not each.duties.keep_clock(shown)]
        with self._changed:
            for each in jumped:
                each.duties.wake(("clients",))
                self._want_round(each)

    def _take_in(
        self, part: Sequence[InstanceInLoop], reply: NewsReply, unsure: set[InstanceInLoop], *, is_moved: bool
    ) -> None:
        """Let those instances have a round where something has happened, or that may want one."""
        if is_moved:
            self._tell_clock(part, reply.now)
        known = {each.duties.store.instance: each for each in part} if reply.news else {}
        now, is_elsewhere = time.monotonic(), False
        with self._changed:
            for name, news in reply.news.items():
                each = known[name]
                is_due = news.wait == 0.0
                if news.what or news.streams or is_due:
                    # Nobody told of that, or the coordinator was woken meanwhile.
                    is_untold = each.rests_long and bool(is_due or news.what & _TOLD)
                    self._stir(each, now + _UNTOLD if is_untold else 0.0)
                if news.again is not None:
                    self._look_again(each, now + news.again)
                if news.what & {"lost", "refused"}:
                    # The duties say why, once.
                    each.duties.wake_all()
                    is_elsewhere = is_elsewhere or "refused" in news.what
                each.duties.take_news(news)
            for each in [*(known[name] for name in reply.news), *(unsure.intersection(part) if unsure else ())]:
                if (at := each.duties.wanted_at) <= time.monotonic():
                    self._want_round(each)
                elif at < each.timer_at:
                    self._set_timer(each, at)
        if is_elsewhere:
            self._tell_of_move()

    def _channels(self) -> list[tuple[str, InstanceInLoop]]:
        """The channels that clients have to listen to, and whose they are."""
        with self._changed:
            if self._channels_known is None:
                watched = list(self._instances.values())
                self._channels_known = [(channel, each) for each in watched for channel in each.duties.channels]
            return self._channels_known

    def _look_for_lost_clients(self, absent: Iterable[InstanceInLoop]) -> None:
        """Let instances look for them where one of their channels has no listener."""
        with self._changed:
            for each in absent:
                each.duties.wake(("clients",))
                self._want_round(each)

    def _ask_how_it_flushes(self) -> None:
        """Let every instance note it, where it is another way than before."""
        try:
            state = read_flush_state(self._asking.pipeline(self._asked_by))
        except NotPermitted:
            # Each instance says so, once.
            self._flushing_known_until = -math.inf
            return
        if state != self._flushing:
            is_first, self._flushing = self._flushing is None, state
            if not is_first:
                with self._changed:
                    for watched in self._instances.values():
                        watched.duties.wake(("flushing",))
                        self._want_round(watched)

    def _look_again(self, watched: InstanceInLoop, at: float) -> None:
        """Look at one that rests long before its turn; the lock is held."""
        watched.look_at = min(watched.look_at, at)
        self._looked_at_soon.add(watched)

    def _logs_found(self, logs: Sequence[tuple[str, str]]) -> None:
        """Let instances have a round where a log is new."""
        with self._changed:
            for instance, topic in logs:
                watched = self._instances.get(instance)
                if watched is not None and watched.duties.find_log(topic):
                    self._want_round(watched)


def _flush_settings(state: FlushState) -> tuple[str, str]:
    return state.appendfsync, state.on_rewrite
