"""Scenes of settle: the messages of `leased`, the codes, and the form of a journal's entry."""

from __future__ import annotations

from world import ref

FIRST, SECOND = ref("1000-0"), ref("1000-1")
STALE, ACKED, UNKNOWN, NOT_HOLDER = (
    "AMPSQ_STALE_LEASE", "AMPSQ_ALREADY_ACKED", "AMPSQ_UNKNOWN_MESSAGE", "AMPSQ_NOT_LEASE_HOLDER",
)  # fmt: skip


def journaled(how, *refs, reason="", **more):
    return {"how": how, "reason": reason, "refs": " ".join(refs), **more}
