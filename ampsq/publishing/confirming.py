"""Confirming: the thread that learns what is persisted, and lets the publish store let go of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import AmpsqError, PublishStoreError
from ampsq.publishing.persistence_level import PersistedAck

if TYPE_CHECKING:
    from ampsq.publishing.publisher_work import PublisherWork
    from ampsq.publishing.session import PublishSession

__all__ = ["Confirmer"]

_log = logging.getLogger("ampsq")
#: Seconds before a store that is full is asked again.
_FULL_PAUSE: Final = 0.2


class Confirmer:
    """Confirms what a guaranteed publisher was answered.

    Args:
        work: the publisher's.
    """

    def __init__(self, work: PublisherWork) -> None:
        self._work = work

    def run(self) -> None:
        """Confirm until the publisher ends; for a thread of its own."""
        work, progress, former = self._work, self._work.progress, None
        while not work.is_over:
            with work.changed:
                work.changed.wait_for(lambda: work.is_over or (work.session is not None and progress.has_answers))
                work.changed.wait_for(lambda: work.is_over or progress.is_urgent, work.guarantee.conflation)
                session, sequence, settled = work.session, progress.answered, work.settlements.answered_queues()
                topics = session.take_topics() if session is not None else set()
                if session is not None:
                    session.has_confirmer = True
            if former is not None and session is not former:
                former.stop_confirming()
            former = session
            if session is not None and not work.is_over:
                self._confirm(session, sequence, settled, topics)
        if former is not None:
            former.stop_confirming()

    def _confirm(
        self, session: PublishSession, sequence: int, settled: dict[int, str], topics: set[str] | None
    ) -> None:
        """Wait until answers are persisted, and let go of what they were about."""
        work = self._work
        streams = [*(f"log {topic}" for topic in topics or ()), *{f"journal {queue}" for queue in settled.values()}]
        try:
            while not session.is_persisted(sequence, streams if topics is not None else []):
                if work.is_over or work.session is not session:
                    return
                if session.hopeless_at:
                    with work.changed:
                        work.changed.notify_all()
        except AmpsqError as error:
            session.stop_confirming()
            work.end_session(session, error)
            return
        while not self._let_go(sequence, list(settled)):
            if work.is_over:
                return
        with work.changed:
            is_news = sequence > work.progress.persisted
            work.progress.persisted = max(work.progress.persisted, sequence)
            work.changed.notify_all()
        if is_news and work.guarantee.on_persisted is not None:
            work.report(work.guarantee.on_persisted, PersistedAck(sequence, work.guarantee.level.level))

    def _let_go(self, sequence: int, numbers: list[int]) -> bool:
        """Let go of what is persisted; False where the store cannot do so now: then it is tried again."""
        work = self._work
        try:
            work.kept.discard(sequence)
            work.settlements.forget(numbers)
        except PublishStoreError as error:
            if not error.may_pass:
                raise
            _log.warning("publisher %s: %s; trying again", work.identity.publisher, error)
            with work.changed:
                work.store_trouble = str(error)
                work.changed.wait_for(lambda: work.is_over, _FULL_PAUSE)
            return False
        work.store_trouble = ""
        return True
