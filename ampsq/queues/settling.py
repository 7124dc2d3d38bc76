"""Settling messages at once, with the server's answer: one in any way, or many acknowledged in one call."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ampsq.protocol.calls import queues as calls
from ampsq.protocol.encoding import batch_of
from ampsq.queues.returns import checked_reason

if TYPE_CHECKING:
    from ampsq.base.errors import Rejected
    from ampsq.protocol.calls.queues import Parts, Verb
    from ampsq.queues.lease_table import LeaseTable

__all__ = ["acknowledge_all", "settle"]


async def settle(leases: LeaseTable, parts: Parts, verb: Verb, period: int | None, reason: str | None) -> None:
    """Settle one message. A barrier has no lease to settle.

    Args:
        leases: where it is held.
        parts: its head.
        verb: what is done.
        period: ms; of a cancel the delay, None: as the queue says; of an extension its length, None: that which the
            lease has.
        reason: why, in the consumer's words; of an extension how far it is, as `report_text` writes it.

    Raises:
        Rejected: what the server answers.
        DefinitionError: the reason is no line, or too long.
    """
    why = checked_reason(reason) if verb != "extended" else reason or ""
    if parts[2] != b"0":
        for refusal in (await _settle(leases, [parts], verb, period, why)).values():
            raise refusal


async def acknowledge_all(leases: LeaseTable, messages: list[Parts]) -> list[Rejected | None]:
    """Acknowledge leased messages of one queue, a batch at most, in one call; gives what is refused of each."""
    refused = await _settle(leases, messages, "acknowledged", None, "")
    return [refused.get(parts[5]) for parts in messages]


async def _settle(
    leases: LeaseTable, messages: list[Parts], verb: Verb, period: int | None, why: str
) -> dict[bytes, Rejected]:
    """Settle messages of one queue; gives what is refused, by ref."""
    queue, by = messages[0][0], leases.registration.id
    refs, tokens = [parts[5] for parts in messages], [parts[1] for parts in messages]
    call = calls.settle(verb, queue, refs, tokens, period=period, by=by, reason=why)
    kept = leases.settlements if verb != "extended" else None
    if verb == "acknowledged":
        for parts in messages:
            leases.samples.acknowledged(parts)
    if verb in ("cancelled", "expired") and any(batch_of(parts) for parts in messages):
        for parts in messages:
            leases.end_batch(parts)
        # The first message of a batch that is not acknowledged is the one that failed.
        await leases.flush()
    taken_out = leases.take_out_acks(messages) if verb != "extended" else []
    started = time.monotonic()
    try:
        with kept.keeping(verb, messages, period, by, why) if kept is not None else contextlib.nullcontext():
            try:
                refused = await call
            finally:
                # Also when nobody knows whether it was done: from here on the lease may lapse, it is not renewed.
                if verb != "extended":
                    leases.drop({queue: messages})
    except BaseException as error:
        # What the next batch was to acknowledge, it still does. It acknowledges all, where nobody waits for the answer
        # any more, as of a task that was cancelled, and no publish store does: what was processed stays so.
        is_left = isinstance(error, GeneratorExit) and verb == "acknowledged" and kept is None
        if again := messages if is_left else taken_out:
            leases.collect_again({queue: again}, may_have_run=True)
        raise
    return await leases.late.refusals(verb, queue, refused, since=started if call.repeated else None)
