"""Committing what tasks have put aside: decided once, then recorded, however often that breaks off."""

from __future__ import annotations

import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError, EpochPast, TooMuchToRead, Unavailable
from ampsq.protocol.calls.jobs import (
    Committed,
    commit_job,
    decided,
    drop_stages,
    finish_job,
    keep_stages,
    last_epoch,
    record_stage,
)
from ampsq.protocol.replies import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.calls.jobs import StagedRows
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["commit", "discard"]

_log = logging.getLogger("ampsq")
#: For how many ms rows are kept, at least, from when a commit begins to when their instance hears what was decided.
_KEPT: Final = 7 * 86_400_000
#: Calls that record a lane's rows that are in flight at once.
_PIPELINE: Final = 4


def commit(stores: Sequence[Store], job: str, epoch: int, lanes: Sequence[StagedRows]) -> None:
    """Record an epoch of a job, once.

    The first instance decides which attempts count; the others follow it. An epoch before that was decided and broke
    off is recorded first.

    Args:
        stores: the instances.
        job: the job's name.
        epoch: of the job.
        lanes: what the tasks have put aside.

    Raises:
        EpochPast: a later epoch is recorded.
        StageLost: rows are gone that were put aside; where none was recorded, the job can be run again.
    """
    by_instance = {store.instance: store for store in stores}
    by_attempt = {lane[:2] for lane in lanes}
    if stores[0].call(last_epoch(stores[0].instance, job)).epoch < epoch:
        # What is decided cannot be taken back: so what another instance lost is noticed before.
        for name, share in _by_instance(lanes).items():
            by_instance[name].call(keep_stages(job, _KEPT, share))
    own = False
    while (committed := stores[0].call(commit_job(job, epoch, lanes))) is not None:
        own = own or any(lane[:2] in by_attempt for lane in committed.lanes)
        _record(by_instance, stores[0], job, committed)
    if lanes and not own:
        _log.warning(
            "epoch %d of %r was recorded before, and nothing was now; a later run has a higher epoch, another job "
            "another publisher",
            epoch,
            job,
        )
    # Where others counted, what these attempts have put aside is of no use.
    discard(stores, job, lanes)


def discard(stores: Sequence[Store], job: str, lanes: Sequence[StagedRows]) -> None:
    """Let go of what attempts have put aside that do not count.

    The other instances may not know yet what the first one decided, where a commit broke off.
    """
    by_instance = {store.instance: store for store in stores}
    counts = stores[0].call(decided(stores[0].instance, job))
    for name, share in _by_instance([lane for lane in lanes if lane[:2] not in counts]).items():
        if name in by_instance:
            by_instance[name].call(drop_stages(job, share))


def _by_instance(lanes: Sequence[StagedRows]) -> dict[str, list[StagedRows]]:
    shares: dict[str, list[StagedRows]] = defaultdict(list)
    for lane in lanes:
        shares[lane.lane.rpartition("/")[0]].append(lane)
    return shares


def _record(stores: dict[str, Store], first: Store, job: str, committed: Committed) -> None:
    shares = _by_instance(committed.lanes)
    unknown = sorted(shares.keys() - stores.keys())
    if unknown:
        raise DefinitionError(
            f"instance: epoch {committed.epoch} of {job!r} was committed with {', '.join(unknown)}, too, and is not "
            "all recorded; allowed: the same instances until it is, then others"
        )

    def record(name: str) -> None:
        store = stores[name]
        if store is first:
            _record_lanes(store, job, Committed(committed.epoch, shares[name]))
            return
        # A later epoch there followed this one's end: somebody else carried it out meanwhile.
        with suppress(EpochPast):
            while (there := store.call(commit_job(job, committed.epoch, shares[name]))) is not None:
                _record_lanes(store, job, there)
                store.call(finish_job(job, there.epoch, [lane.lane for lane in there.lanes]))

    # One thread an instance, for each has one core to give.
    with ThreadPoolExecutor(max(len(shares), 1)) as pool:
        list(pool.map(record, shares))
    first.call(finish_job(job, committed.epoch, [lane.lane for lane in committed.lanes]))


def _record_lanes(store: Store, job: str, committed: Committed) -> None:
    """Record one instance's lanes, in the order of partitions."""
    lanes = sorted(committed.lanes, key=lambda lane: int(lane.lane.rpartition("/")[2]))
    with store.pipeline() as pipeline:
        for lane in lanes:
            _record_lane(store, pipeline, job, committed.epoch, lane.lane)


def _record_lane(store: Store, pipeline: Pipeline, job: str, epoch: int, lane: str) -> None:
    """Record one lane: calls are in flight while it has more, and one too many does nothing."""
    step, left = record_stage(job, epoch, lane), 1
    while left > 0 or pipeline.open_calls:
        try:
            while left > 0 and pipeline.open_calls < _PIPELINE:
                pipeline.post(step)
            left = pipeline.collect()  # type: ignore[assignment]  # the reply to what was posted
        except Unavailable:
            left = store.call(step)
        except TooMuchToRead as refusal:
            left = store.call(record_stage(job, epoch, lane, number(refusal.detail["read"])))
