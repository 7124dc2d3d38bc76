"""What moves messages to the server: the part of a client that publishes and deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from ampsq.base.values import Interval
from ampsq.client.admin import Administration
from ampsq.protocol.encoding import encode_batches
from ampsq.publishing.envelope import Envelope, refuse_arguments
from ampsq.publishing.publishers import Sequences
from ampsq.publishing.publishing_batches import PublishingBatches, telling_of_taken

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.guaranteed import GuaranteedPublisher
    from ampsq.queues.subscription import Subscription

__all__ = ["Publication"]

#: Messages that one `publish_many` call records by default.
_BATCH = 100


class Publication(Administration):
    """How a client publishes, with a publish store or without; a part of `Client`."""

    _publishing: threading.RLock
    _guaranteed: GuaranteedPublisher | None
    _subscriptions: list[Subscription]

    def publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> Bookmark | int:
        """Record one message; with a `publish_store`, take it, to be recorded whatever happens.

        Args:
            topic: a topic, or a queue, whose `default_publish_target` gets it. A new topic is made, unless the
                instance takes defined ones alone.
            data: bytes go as they are; everything else is encoded by the topic's `message_type`: JSON, unless it says
                otherwise (docs/message-types.md).
            headers: names and values, texts.
            expiration: how long it may be in a queue, 1ms or longer; a queue's `expiration_model` says how this and the
                queue's own go together. Default: the queue's.
            delay: how long until it is delivered, or
            at: when; in the past: at once. Until then it is in its queues, scheduled; then it is at the head of what is
                unread, and `expiration` begins to count. Default: now.
            sequence: with a `publisher`: the message's number; default the next one. A number that is recorded
                already records nothing and answers the first record's bookmark (with an empty ID where that record
                is too far back to be found).
            unknown: refused, with a word where it is said.

        Returns:
            Its bookmark. With a `publish_store` its sequence, an int, as soon as the store has it: the bookmark is
            known only later. `flush` waits until all is persisted; `last_persisted`, `on_persisted` tell how far it is.

        Raises:
            DefinitionError: the topic's `message_type` cannot say such data. TopicNotDefined: nobody defined the topic,
                and the instance takes defined ones alone (`Instance.topics`); with a `publish_store`, `on_failed_write`
                is told.
            Unavailable: no answer. Without a `publisher` the message may or may not be recorded.
            ServerFull: the server's memory is full; nothing was recorded.
            PublishStoreFull, PublishStoreError: the store did not take it. NameInUse: another client publishes under
                the same name now; what the store took of this one is not sent any more.
            MissingKey: the topic has a key, and the message does not have one value for it; nothing was recorded.
            UnreadBody: the topic has a key, which is not looked for in a body as large as this.
        """
        if unknown:
            refuse_arguments("publish", unknown)
        envelope = Envelope.of(headers, expiration, delay, at)
        if self._guaranteed is not None:
            body = self._store.run(self._session.body(topic, data))
            return self._guaranteed.publish(topic, [body], envelope, sequence)
        with self._publishing:
            return self._store.run(self._session.publish(topic, data, envelope, sequence))

    def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> Bookmark | int:
        """Record one message of a topic with a key that says only what changes of the record of its key.

        The server merges it into the record: members replace those of the same name, objects are merged, all else
        stays to the byte. The whole message is recorded and goes to the queues. Where the key has no record, or the
        topic no key, it is published as it is.

        Args:
            topic: the topic.
            data: an object that has the key and what changes; bytes go as they are.
            headers: of the whole message; those before are not kept.
            expiration: of the whole message, as of `publish`.
            sequence: as of `publish`.
            unknown: refused, as of `publish`.

        Returns:
            As of `publish`; a `publish_store` keeps the change, which is merged when it is recorded.

        Raises:
            MissingKey: the message does not have one value for the topic's key.
            UnreadBody: the change, or what it would make of the record, is more than the server reads.
            DeltaNotJson: the topic has a key, and a message type of which nothing is merged.
            Unavailable, ServerFull, PublishStoreFull, PublishStoreError, NameInUse: as of `publish`.
        """
        if unknown:
            refuse_arguments("delta_publish", unknown)
        envelope = Envelope.of(headers, expiration, None, None)
        if self._guaranteed is not None:
            body = self._store.run(self._session.body(topic, data))
            return self._guaranteed.publish(topic, [body], envelope, sequence, delta=True)
        with self._publishing:
            return self._store.run(self._session.delta_publish(topic, data, envelope, sequence))

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = _BATCH,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        **unknown: Never,
    ) -> Sequence[Bookmark] | Sequence[int]:
        """Record many messages, `batch` (1 to 500) a call, the next one prepared while the last is recorded.

        `headers`, `expiration`, `delay` and `at` are those of each, as of `publish`.

        Returns:
            Their bookmarks, in order, made when they are looked at; with a `publish_store` their sequences.

        Raises:
            Unavailable: no answer; where `may_have_run`, some of them are recorded, or may be, the first ones first.
            ServerFull: the server's memory is full. MissingKey, UnreadBody: as of `publish`; nothing of their batch is
                recorded.
            DefinitionError: a message cannot be encoded. PublishStoreFull, PublishStoreError, NameInUse: as of
                `publish`. Whichever error it is, its `published` has what is recorded, or taken, of other batches.
        """
        if unknown:
            refuse_arguments("publish_many", unknown)
        envelope = Envelope.of(headers, expiration, delay, at)
        if self._guaranteed is not None:
            sequences = Sequences()
            message_type = self._store.run(self._session.learn_type(topic))
            with telling_of_taken(sequences):
                for bodies in encode_batches(messages, batch, message_type):
                    self._session.note_large(topic, bodies)
                    sequences.add(self._guaranteed.publish(topic, bodies, envelope), len(bodies))
            self._store.run(self._session.warn_of_unread())
            return sequences
        noted = PublishingBatches(self.origin)
        with self._publishing:
            self._store.run(self._session.learn_type(topic))
            calls = self._session.batches(topic, messages, batch, envelope, noted)
            with noted.telling():
                for call in calls:
                    self._session.note(noted, self._store.run(self._session.publish_first(topic, call)))
                    break
                for answer in self._store.stream(calls):
                    self._session.note(noted, answer)
            self._store.run(self._session.warn_of_unread())
        return noted.bookmarks

    @property
    def last_persisted(self) -> int:
        """With a `publish_store`: the sequence up to which everything is persisted; 0 before the first."""
        return self._guaranteed.persisted if self._guaranteed is not None else 0

    def flush(self, timeout: timedelta | float | str | None = None) -> None:
        """Wait until what was published and acknowledged up to now is persisted.

        Without a `publish_store` all that was published is recorded already, and acknowledgements are only sent.

        Args:
            timeout: how long; default as long as it takes.

        Raises:
            NotPersisted: the time is over, or a sync destination is found to lead to an instance of this one's name, at
                once; tells what is missing, and why. It is still sent.
            NameInUse: another client publishes under this publisher's name now.
        """
        for subscription in list(self._subscriptions):
            subscription.flush()
        if self._guaranteed is not None:
            self._guaranteed.flush(None if timeout is None else Interval.parse(timeout) / 1000)

    def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        data: Any = None,
    ) -> int:
        """Delete records of a topic with a key; its queues keep their messages.

        Args:
            topic: the topic.
            keys: of the records, as of `sow`; or
            filter: an expression: all that match, each as of the step that looked at it; or
            data: a message with the key of the record.

        Returns:
            How many there were. With a `publisher` a call by keys or data that is repeated after a lost reply deletes
            nothing that was published meanwhile, and counts nothing. With a `publish_store` a call by keys or data is
            kept there, in the order of what is published, and gives its sequence; one by a filter is made at once, on
            what is recorded by then (`flush` goes before).

        Raises:
            NoRecords: the topic has no key. MissingKey: the data does not have it.
            DefinitionError: none or several of keys, filter and data.
        """
        if self._guaranteed is not None and filter is None:
            deletions = self._store.run(self._session.deletions(topic, keys, data))
            return [self._guaranteed.take(1, "sow_delete", arguments) for arguments in deletions][-1]
        with self._publishing:
            return self._store.run(self._session.sow_delete(topic, keys, filter, data))
