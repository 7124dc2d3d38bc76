"""Servers that let in only users of roles, made here; see `under_roles`."""

from __future__ import annotations

import contextlib
import threading
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ampsq.operations.roles import rules

PASSWORD = "secret"  # noqa: S105 - of these tests alone
TESTS = "tests"


class Guarded:
    """A server that lets in only users that were made here.

    Attributes:
        path: of its socket.
        keeps: whether it has a file of users, so that it knows them after a restart.
    """

    def __init__(self, path, *, keeps):
        self.path, self.keeps = str(path), keeps
        self._made: dict[str, tuple[str, str]] = {}
        self._making = threading.Lock()

    def plain(self):
        """A client of redis-py's with all rights, that does not wait for a server that is away."""
        retry = Retry(NoBackoff(), 0)
        return redis.Redis(unix_socket_path=self.path, username=TESTS, password=PASSWORD, protocol=2, retry=retry)

    def user(self, role, instance):
        """The name of a user of a role at an instance; it is made where it is not there."""
        instance = instance or "none"
        name = f"{role}@{instance.replace('/', '-')}".replace("+", "_")
        with self._making:
            if name not in self._made:
                words = _words([rules(each, instance, user=name, password=PASSWORD) for each in role.split("+")])
                with contextlib.closing(self.plain()) as plain:
                    plain.execute_command("ACL", "SETUSER", name, *words)
                    if self.keeps:
                        plain.execute_command("ACL", "SAVE")
                self._made[name] = role, instance
        return name

    def take_over(self, other):
        """Know the users that another server knows."""
        for role, instance in other._made.values():
            self.user(role, instance)

    def refused(self):
        """Return the server's refusals since the last question."""
        with contextlib.closing(self.plain()) as plain:
            told = plain.acl_log()
            plain.acl_log_reset()
        return {(each["username"], each["reason"], each["object"], each["context"]) for each in told}


#: Path of a socket -> the server behind it.
SERVERS: dict[str, Guarded] = {}


def _words(several):
    """The rules of a user who has those of several roles."""
    first, *others = (each.words() for each in several)
    return [*first, *(word for words in others for word in words if word[0] in "~%&+")]


def behind(url):
    return SERVERS.get(urlsplit(url.partition(",")[0].partition("#")[0]).path)
