"""Two instances that share a queue, each on a server of its own, and everything that can happen to them."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections import deque
from pathlib import Path

import redis
from campaign_judge import PROMISED
from campaign_plan import CREWS
from campaign_processes import Crew
from network import Relay
from power import cut_back, length_of
from shim import Shim

from ampsq import Client, Destination, Queue, Topic

__all__ = ["Pair", "Site", "define"]

#: Without a shim: seconds of the file that a loss of power takes at most.
_LOST = 0.9
#: Bytes that a full disk, and full memory, still take.
_DISK_LEFT, _MEMORY_LEFT = 4_000, 100_000


def define(client, *more):
    """Define what all campaigns publish to and work on."""
    client.apply(
        Topic(name="orders"),
        Queue(name="work", underlying_topic="orders", lease_period="20s", max_per_subscription_backlog=50),
        *more,
    )


class Site:
    """One instance: its server, the relays before it, and its processes.

    Args:
        launch: starts servers.
        folder: for all of it; a short path.
        short: its letter.
        appendfsync: how its server flushes.
        library: the compiled shim, or None.
    """

    def __init__(self, launch, folder, short, appendfsync, library):
        self.short, self.name, self._folder = short, f"campaign-{short}", Path(folder, short)
        self._launch, self._flushes = launch, appendfsync
        self._shim = Shim(library, Path(folder, f"{short}.shim")) if library else None
        self._lengths = deque()
        #: (when it was set back, until when it flushes nothing).
        self._set_back = (0.0, 0.0)
        self.server = None
        self.start_server()
        self.front = Relay(self.server.socket, Path(folder, f"{short}-f"))
        #: How the other instance's link comes here.
        self.link = Relay(self.server.socket, Path(folder, f"{short}-l"))
        roles = CREWS[short]
        self.crew = Crew(
            Path(folder, f"{short}-crew"), short, self.server.url, self.front.url, self.name, "fsync", roles
        )

    def start_server(self):
        options = ("--appendfsync", self._flushes, "--auto-aof-rewrite-percentage", "0")
        # A server of ours that may not write more is told so (EFBIG), not killed: as one whose disk is full.
        more = {"restore_signals": False}
        if self._shim:
            self._shim.note_start(self._folder)
            more["env"] = self._shim.environment
        self.server = self._launch("valkey", self._folder, appendonly=True, options=options, **more)

    def kill_server(self):
        self.server.process.kill()
        self.server.process.wait()

    def note_length(self):
        """Look at how long the file is, for losses of power without a shim."""
        now = time.monotonic()
        with contextlib.suppress(ValueError, OSError):
            self._lengths.append((now, length_of(self._folder)))
        while self._lengths and self._lengths[0][0] < now - _LOST:
            self._lengths.popleft()

    def lose_power(self, kept):
        """Kill the server, and take from its files what was not flushed; gives bytes lost."""
        died = time.monotonic()
        self.kill_server()
        if self._shim:
            return self._shim.lose_power(self._folder, kept)
        lengths = [length for at, length in self._lengths if at >= died - _LOST * (1 - kept)]
        self._lengths.clear()
        return cut_back(self._folder, lengths[0]) if lengths and self._flushes != "always" else 0

    def step_clock(self, seconds):
        """Let its clock be so far off; gives by how much it moved."""
        with contextlib.closing(self.server.client()) as plain:
            before = plain.time()[0] - time.time()
            self._shim.step_clock(seconds)
            # A server looks at its clock now and then.
            time.sleep(0.1)
            moved = plain.time()[0] - time.time() - before
        now = time.monotonic()
        if moved < 0:
            since, until = self._set_back
            self._set_back = (since if now <= until else now, max(until, now - moved + PROMISED))
        return moved

    def may_lose_since(self, died):
        """From when on answers may be gone with the power: with a clock that was set back a server does not flush."""
        since, until = self._set_back
        return min(since, died) - PROMISED if died <= until else died - PROMISED

    def ask(self, question):
        """Return a plain client's answer, or None where the server does not answer."""
        with contextlib.closing(self.server.client(socket_timeout=10)) as plain:
            try:
                return question(plain)
            except redis.RedisError:
                return None

    def end(self):
        self.crew.end()
        for relay in (self.front, self.link):
            relay.close()
        self.server.end()
        if self._shim:
            self._shim.close()


class Pair:
    """The two, and each fault: a generator that begins it, yields while it lasts, ends it, and returns whether it hit.

    Args:
        launch: starts servers.
        folder: for all of it; a short path.
        plan: of the run.
        library: the compiled shim, or None.

    Attributes:
        losses: (since when answers may be gone, when, why) of each loss of power and each server that was killed.
        lost: bytes that these took.
        died: servers that ended by themselves.
    """

    def __init__(self, launch, folder, plan, library):
        self.losses, self.lost, self.died = [], 0, []
        self._always = plan.appendfsync == "always"
        self.sites = {}
        with contextlib.ExitStack() as starting:
            for short in "ab":
                self.sites[short] = Site(launch, folder, short, plan.appendfsync, library)
                starting.callback(self.sites[short].end)
            for here, there in (("a", "b"), ("b", "a")):
                with self.client(here) as client:
                    other = self.sites[there]
                    define(
                        client,
                        Destination(
                            name="other", sync_type="sync", topics=["orders", "work"],
                            addresses=[f"{other.link.url}#{other.name}"],
                        ),
                    )  # fmt: skip
            self._stack = starting.pop_all()

    @property
    def crews(self):
        return [site.crew for site in self.sites.values()]

    def client(self, site):
        """A client of one of the instances, past the relays."""
        return Client(self.sites[site].server.url, instance=self.sites[site].name, retry_timeout="60s")

    def plain(self, site):
        """A plain client of redis-py."""
        return self.sites[site].server.client()

    def begin(self):
        for crew in self.crews:
            crew.begin()

    def look(self, busy):
        """Notice what ended by itself; `busy` are the targets of faults that last."""
        for short, site in self.sites.items():
            site.note_length()
            if (short, "server") not in busy and site.server.process.poll() is not None:
                self.died.append(f"server {short} ended by itself, code {site.server.process.returncode}")
                site.start_server()
            site.crew.look([role for role in site.crew.commands if (short, role) in busy])

    @staticmethod
    def target(step):
        """Name what a fault has for itself while it lasts."""
        if step.fault in {"kill process", "stop process"}:
            return step.site, step.process
        if step.fault in {"lose replies", "delay replies", "silence clients"}:
            return step.site, "front"
        return step.site, "link" if step.fault == "part instances" else "server"

    def fault(self, step):
        """Begin a fault: a generator."""
        return getattr(self, "_" + step.fault.replace(" ", "_"))(self.sites[step.site], step)

    def _kill_server(self, site, step):
        del step
        # While a flush takes long, a server with `everysec` answers what it has not written yet, for 2 s at most.
        died = time.monotonic()
        self.losses.append((died - PROMISED, died, "lost with a server that was killed"))
        site.kill_server()
        yield
        site.start_server()
        return True

    def _lose_power(self, site, step):
        died = time.monotonic()
        self.losses.append((site.may_lose_since(died), died, "lost with the power"))
        lost = site.lose_power(step.amount)
        self.lost += lost
        yield
        site.start_server()
        # With `always` there is nothing to lose, which is what is to be shown.
        return bool(lost) or self._always

    @staticmethod
    def _kill_process(site, step):
        return site.crew.killed(step.process)

    @staticmethod
    def _stop_process(site, step):
        return site.crew.stopped(step.process)

    @staticmethod
    def _stop_server(site, step):
        del step
        site.server.process.send_signal(signal.SIGSTOP)
        yield
        site.server.process.send_signal(signal.SIGCONT)
        return True

    @staticmethod
    def _close_connections(site, step):
        del step
        closed = site.ask(lambda plain: plain.client_kill_filter(_type="normal", skipme=True))
        yield
        return bool(closed)

    @staticmethod
    def _lose_replies(site, step):
        before = site.front.lost
        site.front.lose(1 + int(step.amount * 4))
        yield
        site.front.lose(0)
        return site.front.lost > before

    @staticmethod
    def _delay_replies(site, step):
        before = site.front.late
        site.front.delay(0.02 + step.amount * 0.3)
        yield
        site.front.delay(0.0)
        return site.front.late > before

    @staticmethod
    def _silence(relay, step):
        before = relay.late
        relay.silence()
        yield
        # Either all that was held up arrives late, or what was open is gone.
        if step.amount < 0.5:
            relay.cut()
        relay.speak()
        return relay.late > before

    def _silence_clients(self, site, step):
        return self._silence(site.front, step)

    def _part_instances(self, site, step):
        return self._silence(site.link, step)

    @staticmethod
    def _step_clock(site, step):
        moved = site.step_clock(step.clock)
        yield
        site.step_clock(0.0)
        return abs(moved - step.clock) < 1.5

    def _fill_disk(self, site, step):
        process, directory = site.server.process, site.server.directory
        most = length_of(directory) + int(step.amount * _DISK_LEFT)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        yield
        if process.poll() is not None:
            # With `always` a server that cannot write ends, and must.
            site.start_server()
            return True
        found = site.ask(lambda plain: plain.info("persistence")["aof_last_write_status"])
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return found == "err"

    @staticmethod
    def _fill_memory(site, step):
        refused = lambda plain: plain.info("errorstats").get("errorstat_OOM", {}).get("count", 0)  # noqa: E731
        before = site.ask(refused)
        used = site.ask(lambda plain: plain.info("memory")["used_memory"])
        if used is not None:
            site.ask(lambda plain: plain.config_set("maxmemory", used + int(step.amount * _MEMORY_LEFT)))
        yield
        after = site.ask(refused)
        site.ask(lambda plain: plain.config_set("maxmemory", 0))
        return None not in {before, after} and after > before

    def excuse(self, at):
        """Return why an answered message may be gone, and seconds until its server died; None if it may not."""
        ages = [(died - at, why) for since, died, why in self.losses if since <= at <= died + 0.5]
        if self._always or not ages:
            return None
        age, why = min(ages)
        return (why if age <= PROMISED else "lost since a clock was set back"), age

    def end(self):
        self._stack.close()
