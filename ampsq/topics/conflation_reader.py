"""A subscription to topics that is conflated: what is read waits until it may go, and the latest of each key goes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.request import Pause
from ampsq.topics.conflation import Conflation, ConflationKey
from ampsq.topics.message import document_of
from ampsq.topics.subscription_core import TopicSubscriptionCore

if TYPE_CHECKING:
    from ampsq.protocol.context import ClientContext
    from ampsq.protocol.request import AnyPipeline
    from ampsq.topics.merge import Entry
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.replay import LogReader
    from ampsq.topics.slow_reader import LimitedReader
    from ampsq.topics.subscription_core import Handed
    from ampsq.topics.subscription_spec import TopicSubscriptionSpec

__all__ = ["make_subscription_core"]

#: Seconds after which it is looked for later messages before an earlier one is handed out.
_LOOK: Final = 0.05
#: Seconds for which the end of the logs is read after while something could be handed out.
_CATCH_UP: Final = 0.25
#: Seconds of one wait while so much waits that nothing more is read.
_STEP: Final = 0.05


def make_subscription_core(
    session: ClientContext, spec: TopicSubscriptionSpec, save_after: float, reporting: Reporting
) -> TopicSubscriptionCore:
    """Make the reading that somebody wishes."""
    kind = TopicSubscriptionCore if spec.conflation is None else _ConflatedSubscriptionCore
    return kind(session, spec, save_after, reporting)


class _ConflatedSubscriptionCore(TopicSubscriptionCore):
    """See `TopicSubscriptionCore`; `buffer` stays empty, what waits is in a `Conflation`."""

    def __init__(
        self, session: ClientContext, spec: TopicSubscriptionSpec, save_after: float, reporting: Reporting
    ) -> None:
        super().__init__(session, spec, save_after, reporting)
        self._waiting = Conflation(spec.conflation or 0.0)
        # By topic; None: it has no key.
        self._keys: dict[str, ConflationKey | None] = {}
        self._looked = float("-inf")
        self.is_unpaced = False

    @property
    def completed(self) -> bool:
        """Return whether the end of what was asked for was handed out."""
        return not self._waiting and super().completed

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""
        return not self.is_paused and self._waiting.wait(time.monotonic()) == 0

    async def open(self, pipeline: AnyPipeline) -> None:
        """Begin; see `TopicSubscriptionCore.open`.

        Raises:
            DefinitionError: a topic has no key, and none is given.
        """
        await super().open(pipeline)
        await self._find_keys()
        without = [topic for topic, found in self._keys.items() if found is None]
        if without:
            if self._reader is not None:
                await self._reader.close(pipeline)
            raise DefinitionError(
                f"conflation: topic {without[0]!r} has no key; allowed: conflation_key, as in conflation_key=['/id']"
            )

    async def _find_keys(self) -> None:
        """Find the keys of topics that came."""
        topics = [] if self._reader is None else [each for each in self._reader.places() if each not in self._keys]
        if not topics:
            return
        if self._spec.conflation_key is not None:
            self._keys.update(dict.fromkeys(topics, self._spec.conflation_key))
            return
        catalog = await catalog_calls.catalog()
        for topic in topics:
            identifiers = json.loads(catalog.topics.get(topic, "{}")).get("key")
            self._keys[topic] = ConflationKey(identifiers) if identifiers else None

    async def fetch(self, pipeline: AnyPipeline, wait: float) -> None:
        """Read what is there, up to the end, for a bounded time; see `TopicSubscriptionCore.fetch`."""
        if self._reader is None:
            return
        await self._heed_limits()
        if self.is_paused:
            await Pause(min(_STEP, wait))
            return
        started = time.monotonic()
        while not self.closed:
            now = time.monotonic()
            until = started + max(wait, _CATCH_UP if self._reader.is_behind else 0.0)
            due = self._waiting.wait(now)
            if due == 0:
                until = min(until, started + _CATCH_UP)
            await self._look(pipeline, min(max(until - now, 0.0), float("inf") if due is None else due))
            self._looked = time.monotonic()
            is_done = self._waiting.wait(self._looked) == 0 and not self._has_more
            if is_done or self.completed or self._looked >= until:
                return

    @property
    def _has_more(self) -> bool:
        return self._reader is not None and self._reader.is_behind and not self._waiting.is_full

    async def _look(self, pipeline: AnyPipeline, wait: float) -> None:
        if self._reader is None:
            return
        if self._is_read:
            self._waiting.release()
        elif self._waiting.is_full:
            await Pause(min(wait, _STEP))
        else:
            await self._read(self._reader, pipeline, wait)

    async def _learn_topics(self, reader: LogReader | LimitedReader) -> None:
        await self._find_keys()
        await super()._learn_topics(reader)

    def _receive(self, entries: list[Entry]) -> None:
        now = time.monotonic()
        for entry in self._unhad(self._wanted(entries)):
            found = self._keys[entry[0]]
            key = (
                None
                if found is None
                else found.of(document_of(entry, self.origin, self.instance, self.type_of(entry[0])))
            )
            self._waiting.put(entry, key, now)

    def backlog(self) -> tuple[int, int]:
        """Return bytes and age of the messages that were read and may be handed out; see `Consumer`."""
        return self._waiting.size, self._waiting.oldest or 0

    def refuse(self) -> None:
        """Hand out nothing more; see `Consumer`."""
        self._page = None
        self._waiting = Conflation(self._spec.conflation or 0.0)

    def take(self, owner: object) -> Handed | None:  # noqa: ARG002  (nothing of it is noted as handled)
        """The next message that may be handed out now, unless a later one of its key may have come."""
        now = time.monotonic()
        if self.is_paused or now > self._looked + _LOOK:
            return None
        entry = self._waiting.take(now)
        return None if entry is None else (entry, None)
