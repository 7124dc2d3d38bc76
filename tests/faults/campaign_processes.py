"""The processes beside the servers of a campaign: how each is started, killed, stopped, and found to have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from campaign_crew import RECORDS, Records
from network import free_port

from ampsq.gateway.users import Secret, _scrypt

__all__ = ["Crew"]

_HERE = Path(__file__).parent
#: Little work for each request: what a campaign asks of a gateway is not its hash.
_WORK, _SALT = (4, 8, 1), b"salt of a test--"
_RULES = """
users: [{{name: till, secret: "{secret}"}}]
entitlements: [{{user: till, name: orders, rights: write}}]
"""
#: What a record says of a process that works.
_AT_WORK = {"took", "answered", "handled"}
#: Seconds within which a process that is told to end does.
_ENDS = 240.0


class Crew:
    """The processes of one site.

    Args:
        folder: for records, stores and what they say.
        site: its name, a letter.
        url: of the instance, for coordinators.
        front: the same for all others.
        instance: its name.
        level: what *persisted* means for the publisher.
        roles: of the processes that there are.

    Attributes:
        ended: what ended by itself, with its code and its last words.
    """

    def __init__(self, folder, site, url, front, instance, level, roles):  # noqa: PLR0917
        self.folder, self.site, self._instance = Path(folder), site, instance
        self.ended = []
        self._running = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        rules = self.folder / "gateway.yaml"
        rules.write_text(_RULES.format(secret=Secret(_WORK, _SALT, _scrypt("cash", _SALT, _WORK))))
        crew = [sys.executable, str(_HERE / "campaign_crew.py")]
        ampsq = [sys.executable, "-m", "ampsq.cli"]
        at = ["--url", front, "--instance", instance]
        listen = f"127.0.0.1:{port}"
        commands = {
            "coordinator": [sys.executable, "-m", "ampsq.coordinator", "--url", url, "--instance", instance],
            "worker": [*crew, "work", front, instance, self._records("worker")],
            "cli worker": [*ampsq, "worker", "campaign_crew:handle", "--queue", "work", "--concurrency", "2", *at],
            "publisher": [
                *(*crew, "publish", front, instance, self._records("publisher"), f"till-{site}"),
                *(str(self.store), level),
            ],
            "teller": [*crew, "tell", front, instance, self._records("teller"), f"plain-{site}"],
            "gateway": [*ampsq, "gateway", "--listen", listen, "--config", str(rules), *at],
            "poster": [*crew, "post", f"http://{listen}", instance, self._records("poster"), f"post-{site}"],
        }
        self.commands = {role: commands[role] for role in roles}

    @property
    def store(self):
        """The file of the publisher with a guarantee."""
        return self.folder / "store.db"

    def _records(self, role):
        return str(self.folder / f"{role}.records")

    def records(self, role):
        """Return the records of a role, in order; none where it never ran."""
        path = self.folder / f"{role}.records"
        return Records(path).read() if path.exists() else []

    def begin(self):
        for role in self.commands:
            self.start(role)

    def is_at_work(self, since=0.0):
        """Return whether each that keeps records has done something since a moment."""
        kept = [role for role in self.commands if role not in {"coordinator", "gateway"}]
        return all(
            any(each["what"] in _AT_WORK and each["at"] >= since for each in self.records(role)) for role in kept
        )

    def start(self, role):
        environment = {**os.environ, RECORDS: self._records(role)}
        # What is started again and again is compiled once.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self.folder / f"{role}.said").open("ab") as said:
            self._running[role] = subprocess.Popen(
                self.commands[role], stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=_HERE, env=environment
            )

    def is_running(self, role):
        return role in self._running and self._running[role].poll() is None

    def kill(self, role):
        """Kill it; gives whether it lived."""
        lived = self.is_running(role)
        self._running[role].kill()
        self._running[role].wait()
        return lived

    def signal(self, role, number):
        self._running[role].send_signal(number)

    def killed(self, role):
        """A fault in two halves: kill it, and start it again; returns whether it hit."""
        lived = self.kill(role)
        yield
        self.start(role)
        return lived

    def stopped(self, role):
        """A fault in two halves: stop it, and let it go on; returns whether it hit."""
        lived = self.is_running(role)
        self.signal(role, signal.SIGSTOP)
        yield
        self.signal(role, signal.SIGCONT)
        return lived

    def look(self, but=()):
        """Note what ended by itself, and start it again, as what watches over services does."""
        for role, process in self._running.items():
            if role not in but and process.poll() is not None:
                self.ended.append(f"{role} {self.site} ended by itself, code {process.returncode}: {self._words(role)}")
                self.start(role)

    def _words(self, role):
        lines = (self.folder / f"{role}.said").read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-2:])

    def finish(self, role):
        """Wait until a process that was told to end did; gives its code, or None where it had to be killed."""
        process = self._running.pop(role)
        try:
            return process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def end(self):
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
