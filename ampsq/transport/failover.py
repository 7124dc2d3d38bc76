"""Going on at another instance when a client's own is out of reach.

A thread looks every second which instances the sync destinations of the present one lead to, and whether they are in
force: when it is gone, nobody can be asked. What a client does elsewhere is done anew there, under that instance's own
keys, tokens and places; nothing that was meant for the one is ever sent to the other.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from ampsq.base.errors import AmpsqError
from ampsq.transport.errors import describe_failure
from ampsq.transport.instances import barriers_to_failover
from ampsq.transport.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route

__all__ = ["FailOver", "Failover"]

_log = logging.getLogger("ampsq")
#: Seconds between two looks.
_LOOK: Final = 1.0
#: Seconds in which a look ends, and in which the client is moved, after it was told to end.
_ENDS_WITHIN: Final = 1.0
_MOVES_WITHIN: Final = 4.0
#: Seconds between two attempts while there is no server.
_AGAIN: Final = 0.2


class FailOver(Protocol):
    """A function that moves a client to another instance."""

    def __call__(self, instance_address: InstanceAddress, *, is_careful: bool) -> Route:
        """Go on at another instance; gives the way there.

        Args:
            instance_address: the instance.
            is_careful: refuse where the publisher's own messages are missing that were told to be persisted.

        Raises:
            AmpsqError: that is not possible; all is as before.
        """
        ...


class Failover:
    """Watches one client's instance.

    Args:
        instances: the instances, in the order in which they are tried.
        route: the way to the present one.
        policy: ``refuse`` or ``warn``.
        fail_over: moves the client.
    """

    def __init__(self, instances: Sequence[InstanceAddress], route: Route, policy: str, fail_over: FailOver) -> None:
        self._instances, self._route, self._policy, self._fail_over = list(instances), route, policy, fail_over
        self._barriers: dict[str, str] = {}
        self._reported = ""
        self._stopped = threading.Event()
        # While the present instance is asked.
        self._asking: Store | None = None
        self._thread = threading.Thread(target=self._run, name=f"ampsq-failover-{route.instance}", daemon=True)

    def start(self) -> None:
        """Look once, and go on looking in a thread."""
        self._look(None)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_ENDS_WITHIN)
            asking = self._asking
            if asking is not None:
                # The server hangs: nobody needs its answer any more.
                asking.disconnect()
            self._thread.join(_MOVES_WITHIN)

    def _run(self) -> None:
        lost: float | None = None
        while not self._stopped.wait(_LOOK if lost is None else _AGAIN):
            try:
                lost = self._look(lost)
            except Exception:  # noqa: BLE001  (without this thread the client stays where it is for ever)
                # Ended, its connection is closed while it is read.
                if not self._stopped.is_set():
                    _log.exception("looking for another instance failed; trying again")

    def _look(self, lost: float | None) -> float | None:
        """Ask the present instance who may follow it; gives since when it does not answer."""
        store = self._asking = Store(self._route, self._route.instance, retry_timeout=0.0)
        try:
            self._barriers = store.run(barriers_to_failover(store.instance))
        except AmpsqError as error:
            self._asking = None
            lost = lost or time.monotonic()
            if self._stopped.is_set():
                return lost
            if time.monotonic() - lost >= self._route.heartbeat and self._go_on(str(error)):
                # Who may follow the next one is known as soon as that is used.
                return self._look(None)
            return lost
        finally:
            self._asking = None
            store.close()
        self._route.stays = self._reported = ""
        return None

    def _go_on(self, cause: str) -> bool:
        """Try the other instances, the next one first; whether one was found."""
        here = self._route.instance
        at = next(
            number for number, instance_address in enumerate(self._instances) if instance_address.instance == here
        )
        reasons = []
        for instance_address in self._instances[at + 1 :] + self._instances[:at]:
            reason = self._barriers.get(
                instance_address.instance, f"no destination of {here!r} that is sync leads there"
            )
            if reason and self._policy == "refuse":
                reasons.append(f"{instance_address}: {reason}")
                continue
            try:
                self._route = self._fail_over(instance_address, is_careful=self._policy == "refuse")
            except AmpsqError as error:
                reasons.append(describe_failure(str(instance_address), instance_address.url, error))
                continue
            told = f", though {reason}" if reason else ""
            _log.warning("instance %s is out of reach (%s): going on at %s%s", here, cause, instance_address, told)
            self._barriers, self._reported = {}, ""
            return True
        self._stay("; ".join(reasons))
        return False

    def _stay(self, reasons: str) -> None:
        self._route.stays = f"not going on elsewhere: {reasons}; allowed with failover='warn'"
        if reasons != self._reported:
            self._reported = reasons
            _log.warning("instance %s is out of reach; %s", self._route.instance, self._route.stays)
