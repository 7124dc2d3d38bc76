"""The part of publishers with a name that does not wait: `Publisher` and `AsyncPublisher` share it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Generic

from ampsq.base.errors import Closed, DefinitionError, Unavailable
from ampsq.base.forks import closed, refuse_in_children, was_inherited
from ampsq.base.values import parse_name, shown
from ampsq.client.instance_connection import BETWEEN_ROUNDS, AnyStore
from ampsq.publishing.plain import PlainPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.client.instance_connection import Parts
    from ampsq.publishing.guarantee_options import Guarantee
    from ampsq.publishing.guaranteed import FailoverGuard, GuaranteedPublisher
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route

__all__ = ["PublisherCore", "Publishers"]

#: Seconds for which closing tries to send what a file keeps.
_CLOSE_TIMEOUT = 1.0


class PublisherCore(Generic[AnyStore]):
    """One publisher with a name, at one instance after the other.

    Args:
        name: under which it publishes.
        guarantee: of one with a store.
        publishers: all of its client.
        parts: of the client at its instance.

    Attributes:
        parts: those of the client at its present instance.
        guaranteed: what sends for one with a store, from `open` on.
        plain: what numbers the messages of one without a store.
        closed: whether nothing more is taken.
        process: the ID of the process that opened it.
    """

    def __init__(
        self, name: str, guarantee: Guarantee | None, publishers: Publishers[AnyStore], parts: Parts[AnyStore]
    ) -> None:
        self.name = parse_name(name)
        self.guarantee, self.closed, self._is_open = guarantee, False, False
        self.process = os.getpid()
        self.parts: Parts[AnyStore] = parts
        self._publishers: Publishers[AnyStore] = publishers
        self.guaranteed: GuaranteedPublisher | None = None
        self.plain = PlainPublisher(parts.session, self.name)

    def __str__(self) -> str:
        return f"{self.name} at {self.parts.session.instance}"

    def open(self) -> None:
        """Begin to publish; with a store, log on, and send what that holds. It waits for the server, and for disks.

        Raises:
            Closed: it was closed. DefinitionError: the client has another publisher of this name.
            PublishStoreError, Unavailable, ServerUnsuitable: as of `GuaranteedPublisher`.
        """
        if self.closed:
            raise closed("this publisher", self.process)
        if not self._is_open:
            self._publishers.add(self)
            self._is_open = True

    def log_on(self, parts: Parts[AnyStore], revive: Callable[[], None] | None, several: FailoverGuard | None) -> None:
        """Let one with a store begin to send at an instance."""
        if self.guarantee is not None:
            from ampsq.publishing.guaranteed import GuaranteedPublisher
            from ampsq.publishing.session import Identity

            identity, origin = Identity(self.name, parts.session.client), parts.session.origin
            self.guaranteed = GuaranteedPublisher(identity, parts.route, origin, self.guarantee, revive, several)

    def check_open(self) -> None:
        """Refuse what comes too early or too late."""
        if self.closed:
            raise closed("this publisher", self.process)
        if not self._is_open:
            raise Closed("this publisher is not open: use `async with client.publisher(...) as publisher`")

    def check_process(self) -> None:
        """Refuse another process than the one that opened it."""
        if was_inherited(self.process):
            raise closed("this publisher", self.process)

    @property
    def persisted(self) -> int:
        """The last sequence that is persisted, with all before it."""
        return self.guaranteed.persisted if self.guaranteed is not None else self.plain.recorded

    def is_of(self, publishers: object) -> bool:
        """Return True where this publisher belongs to these publishers of a client."""
        return self._publishers is publishers

    def keeper(self) -> GuaranteedPublisher:
        """The keeper of acknowledgements; a publisher without a store refuses to be one."""
        self.check_open()
        if self.guaranteed is None:
            raise DefinitionError(
                f"publisher {self.name!r} has no store to keep acknowledgements in; allowed: one with store=..."
            )
        return self.guaranteed

    def check_resume_at(self, route: Route) -> None:
        """Refuse an instance that lacks what was told to be persisted; see `GuaranteedPublisher`."""
        if self.guaranteed is not None:
            self.guaranteed.check_resume_at(route)

    def resume_at(self, parts: Parts[AnyStore]) -> None:
        """Go on at another instance."""
        self.parts = parts
        if self.guaranteed is not None:
            self.guaranteed.resume_at(parts.route, parts.session.origin)
        self.plain = PlainPublisher(parts.session, self.name, self.plain)

    def close(self) -> None:
        """Send what is left, as far as that is possible in time, and end. Safe to call again.

        Raises:
            NotPersisted: the time is over, and the store does not survive this process.
        """
        self.closed = True
        if was_inherited(self.process):
            # Its messages are sent by the process that has them.
            return
        try:
            if self.guaranteed is not None:
                self.guaranteed.close(self._publishers.retry_timeout, _CLOSE_TIMEOUT)
        finally:
            self._publishers.discard(self)


class Publishers(Generic[AnyStore]):
    """The publishers of one client that are open.

    Args:
        parts: of the client at its instance.
        instances: where it may work.
        revive: what can bring its server back.
        retry_timeout: seconds for which opening waits for a server, and closing tries to send what would be lost.
        is_careful: whether an instance is refused that lacks what was told to be persisted.

    Attributes:
        retry_timeout: as it was given.
    """

    def __init__(
        self,
        parts: Parts[AnyStore],
        instances: Sequence[InstanceAddress],
        revive: Callable[[], None] | None,
        *,
        retry_timeout: float,
        is_careful: bool,
    ) -> None:
        self._parts: Parts[AnyStore] = parts
        self._instances, self._revive = instances, revive
        self.retry_timeout, self._is_careful = retry_timeout, is_careful
        self._open: dict[str, PublisherCore[AnyStore]] = {}
        refuse_in_children(self)

    def refuse_in_child(self) -> None:
        """Refuse all that is published, in a process that was forked from the one that opened them."""
        for core in list(self._open.values()):
            core.closed = True

    def make(self, name: str, guarantee: Guarantee | None) -> PublisherCore[AnyStore]:
        """Make a publisher that is still to be opened."""
        return PublisherCore(name, guarantee, self, self._parts)

    def add(self, core: PublisherCore[AnyStore]) -> None:
        """Let a publisher begin; see `PublisherCore.open`."""
        if self._open.setdefault(core.name, core) is not core:
            raise DefinitionError(
                f"this client has a publisher {shown(core.name)} that is open; use that one, or close it before"
            )
        try:
            parts = self._log_on(core)
        except BaseException:
            self.discard(core)
            raise
        if parts is not self._parts:
            # The client has gone on at another instance meanwhile.
            core.resume_at(self._parts)

    def _log_on(self, core: PublisherCore[AnyStore]) -> Parts[AnyStore]:
        """Try it for as long as the client's calls are tried; gives where it was done."""
        from ampsq.publishing.guaranteed import FailoverGuard

        several = FailoverGuard(self._instances[0].instance, self._is_careful) if len(self._instances) > 1 else None
        until = time.monotonic() + self.retry_timeout
        while True:
            parts = self._parts
            try:
                core.log_on(parts, self._revive, several)
            except Unavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(BETWEEN_ROUNDS)
                if self._revive is not None:
                    self._revive()
            else:
                return parts

    def keeper_of(self, publisher: object) -> GuaranteedPublisher | None:
        """Return the keeper of acknowledgements of the publisher that a call was given; None where it was given none.

        Raises:
            DefinitionError: it is none of this client's, or has no store. Closed: it is not open.
        """
        if publisher is None:
            return None
        core = getattr(publisher, "_core", None)
        if not isinstance(core, PublisherCore) or not core.is_of(self):
            raise DefinitionError(
                f"publisher={shown(publisher)}: allowed is one of this client, made with "
                "client.publisher(NAME, store=...)"
            )
        return core.keeper()

    def discard(self, core: PublisherCore[AnyStore]) -> None:
        """Forget one that is closed."""
        if self._open.get(core.name) is core:
            del self._open[core.name]

    def check_resume_at(self, route: Route) -> None:
        """Refuse an instance that lacks what one of them was told to be persisted, if that is asked for."""
        for core in list(self._open.values()) if self._is_careful else ():
            core.check_resume_at(route)

    def resume_at(self, parts: Parts[AnyStore]) -> None:
        """Go on at another instance, all of them."""
        self._parts = parts
        for core in list(self._open.values()):
            if core.parts is not parts:
                core.resume_at(parts)

    def close(self) -> None:
        """Close all of them; raises what the first raises that fails."""
        failures: list[Exception] = []
        for core in list(self._open.values()):
            try:
                core.close()
            except Exception as error:  # noqa: BLE001  (the others are closed first)
                failures.append(error)
        if failures:
            raise failures[0]
