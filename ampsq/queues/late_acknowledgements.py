"""Acknowledgements that the server refused: which came too late, and which had been done by an earlier call.

A call whose reply was lost may have run. What it acknowledged is acknowledged again and refused then, which is no
failure: the queue knows which subscription ended a lease, and is asked for that.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Rejected, rejection
from ampsq.protocol.reads.settlements import settled_here

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import MessagesByQueue, Verb
    from ampsq.queues.registration import Registration

__all__ = ["SENT_WITHIN", "LateAcknowledgements"]

_log = logging.getLogger("ampsq")

#: Seconds before a call was found to be unanswered within which it was sent: time to repeat it is within.
SENT_WITHIN: Final = 120.0
#: What a repeated call may be answered because its first run did it. What was cancelled is no longer ours, and an
#: extension leaves the lease as it is. Others may have ended the lease, too: the queue tells who did.
_ALREADY: Final = ("AMPSQ_ALREADY_ACKED",)
_DONE: Final[dict[Verb, tuple[str, ...]]] = {
    "acknowledged": _ALREADY,
    "expired": _ALREADY,
    "cancelled": ("AMPSQ_ALREADY_ACKED", "AMPSQ_STALE_LEASE"),
}
#: Of how many the last are kept.
_KEPT: Final = 1000


class LateAcknowledgements:
    """The acknowledgements of one subscription that came too late, and what is needed to tell these from others.

    Attributes:
        errors: of batches, newest last.
        unanswered: queue and ref of what a call may have acknowledged that was never answered -> sent since then.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self.errors: deque[Rejected] = deque(maxlen=_KEPT)
        self.unanswered: dict[tuple[bytes, bytes], float] = {}

    def note_unanswered(self, acks: MessagesByQueue) -> None:
        """Remember what a call carried that may have run or not."""
        since = time.monotonic() - SENT_WITHIN
        for queue, some in acks.items():
            for parts in some:
                self.unanswered.setdefault((queue, parts[5]), since)

    def forget(self, acks: MessagesByQueue) -> None:
        """Remember nothing more of what was answered."""
        for queue, some in acks.items():
            for parts in some:
                self.unanswered.pop((queue, parts[5]), None)

    async def note(self, acks: MessagesByQueue, refused: list[tuple[bytes, str]], *, since: float | None) -> None:
        """Note which acknowledgements of a batch came too late.

        Args:
            acks: the batch.
            refused: ref and code of what was refused.
            since: when the call was sent first, if it was sent again.
        """
        mine = await self._acknowledged_before(acks, {ref for ref, code in refused if code in _ALREADY}, since)
        for ref, code in refused:
            if ref in mine:
                continue
            error = self._refusal(ref, code)
            self.errors.append(error)
            _log.warning("late acknowledgement: %s", error)

    async def _acknowledged_before(self, acks: MessagesByQueue, refs: set[bytes], since: float | None) -> set[bytes]:
        """Return those of some refs of a batch that a call which was not answered acknowledged."""
        mine: set[bytes] = set()
        for queue, some in acks.items() if refs else ():
            asked = {parts[5]: self.unanswered.get((queue, parts[5]), since) for parts in some if parts[5] in refs}
            sent = {ref: moment for ref, moment in asked.items() if moment is not None}
            if sent:
                mine |= await self._ended_here(queue, "acknowledged", set(sent), min(sent.values()))
        return mine

    async def refusals(
        self, verb: Verb, queue: bytes, refused: list[tuple[bytes, str]], *, since: float | None
    ) -> dict[bytes, Rejected]:
        """Return what is refused of a call that settled messages of one queue, by ref.

        Args:
            verb: what it did.
            queue: the queue.
            refused: ref and code of what the last of its runs refused.
            since: when the call was sent first, if it was sent again: where that did it, that is the answer.
        """
        ended = {ref for ref, code in refused if code in _DONE.get(verb, ())}
        mine = await self._ended_here(queue, verb, ended, since) if ended and since is not None else set[bytes]()
        return {ref: self._refusal(ref, code) for ref, code in refused if ref not in mine}

    async def _ended_here(self, queue: bytes, verb: Verb, refs: set[bytes], since: float) -> set[bytes]:
        """Return those of some refs whose lease an earlier run of our own call ended, sent at that moment or later."""
        us, seconds = self._registration, time.monotonic() - since
        return await settled_here(us.instance, queue.decode(), us.id, verb, refs, seconds=seconds)

    def _refusal(self, ref: bytes, code: str) -> Rejected:
        error = rejection(code) or Rejected(code=code)
        return type(error)(ref=ref.decode(), subscription=self._registration.id, queue=self._registration.name)
