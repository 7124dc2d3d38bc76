"""The subscriptions that are open: how many each user has, what they read, and why one is to end."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ampsq.gateway.entitlements import NotEntitled
from ampsq.gateway.json_messages import Problem, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.gateway.rules import GatewayRules
    from ampsq.gateway.users import Secret

__all__ = ["OpenStream", "OpenStreams"]


class OpenStream:
    """One subscription, from when its user is known until it has given back what it held.

    Args:
        user: whose it is.
        secret: by which the user was known.

    Attributes:
        is_over: set when it is to end.
        problem: why.
    """

    def __init__(self, user: str, secret: Secret | None) -> None:
        self.user, self._secret = user, secret
        self.is_over = asyncio.Event()
        self.problem: Problem | None = None
        self._reads: tuple[str, str | None, str | None] | None = None

    def reads(self, rules: GatewayRules, name: str, asked: str | None) -> str | None:
        """Set the topic that it reads from here on; gives the filter to read with.

        Raises:
            NotEntitled, DefinitionError: as `Entitlements.to_read`.
        """
        text = rules.entitlements.to_read(self.user, name, asked)
        self._reads = name, asked, text
        return text

    def end(self, problem: Problem) -> None:
        """Let it end; the first reason counts."""
        if not self.is_over.is_set():
            self.problem = problem
            self.is_over.set()

    def review(self, rules: GatewayRules) -> None:
        """Let it end where its user is another one by new rules, or may not read exactly what it reads."""
        if rules.users.get(self.user) != self._secret:
            self.end(Problem(401, "NotAuthenticated", f"{self.user} has another secret now, or is no user any more"))
            return
        if self._reads is None:
            return
        name, asked, text = self._reads
        try:
            if rules.entitlements.to_read(self.user, name, asked) == text:
                return
        except NotEntitled as error:
            self.end(problem_of(error))
            return
        self.end(
            Problem(403, "EntitlementChanged", f"what {self.user} may read of {name!r} has changed: subscribe again")
        )


class OpenStreams:
    """All of them."""

    def __init__(self) -> None:
        self._open: set[OpenStream] = set()
        self._of: Counter[str] = Counter()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: Problem | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def begin(self, user: str, rules: GatewayRules) -> Iterator[OpenStream]:
        """Count one while it lasts.

        Raises:
            Problem: the user has as many as are allowed, or the gateway ends.
        """
        most = rules.bounds.max_streams
        if self._ending is not None:
            raise self._ending
        if self._of[user] >= most:
            raise Problem(429, "TooManyStreams", f"{user} has {most} subscriptions; allowed: {most} (max_streams)")
        stream = OpenStream(user, rules.users.get(user))
        self._of[user] += 1
        self._open.add(stream)
        self._is_idle.clear()
        try:
            yield stream
        finally:
            self._open.discard(stream)
            self._of[user] -= 1
            if not self._of[user]:
                del self._of[user]
            if not self._open:
                self._is_idle.set()

    def review(self, rules: GatewayRules) -> None:
        """Let those end that new rules do not allow as they are."""
        for stream in list(self._open):
            stream.review(rules)

    async def end(self, problem: Problem) -> None:
        """End all, and wait until they have given back what they held."""
        self._ending = problem
        for stream in list(self._open):
            stream.end(problem)
        await self._is_idle.wait()
