"""The administrative calls of a client: definitions, figures, dead letters, replication, failures."""

# Long: one table: a method for each administrative call.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ampsq.base.message_types import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.apply import Planned
    from ampsq.client.session import Session
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.destination import Destination
    from ampsq.definitions.queue import Definition, Queue, View
    from ampsq.operations.actions import ActionState, FailedEvent
    from ampsq.operations.check.queue import CheckReport
    from ampsq.operations.groups import QueueGroups
    from ampsq.operations.latencies import QueueLatencies
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.protocol.calls.queue_stats import QueueStats
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.publishing.publishers import PublisherState
    from ampsq.publishing.sync_state import SyncState
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.explain import Explanation
    from ampsq.queues.history import History
    from ampsq.queues.redrive import Redriven, RedriveProgress
    from ampsq.replication.recovery import Recovery
    from ampsq.replication.report import ReplicationReport
    from ampsq.topics.retention import Trimmed
    from ampsq.topics.topic_state import TopicState
    from ampsq.transport.store import Store

__all__ = ["Admin"]


class _Connection(Protocol):
    """The session and the store of a client, at the instance where it works now."""

    @property
    def session(self) -> Session: ...
    @property
    def store(self) -> Store: ...


class Admin:
    """The administrative calls of a client, its `admin`; they go to the instance where the client works.

    Args:
        connection: what its client has open.
    """

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Admin of {self._connection}>"

    @property
    def _session(self) -> Session:
        return self._connection.session

    @property
    def _store(self) -> Store:
        return self._connection.store

    def plan(self, *definitions: Definition, removing: Iterable[Definition] = ()) -> list[Planned]:
        """Say what `Client.apply` would do with these definitions, and do nothing.

        Args:
            definitions: what is to be so.
            removing: what is to be removed after that; whatever `remove` would refuse is refused.

        Returns:
            For each, in the order of work: `definition`, `outcome` and `changes` (element -> value before and after).

        Raises:
            As `Client.apply` and `remove` do.
        """
        return self._store.run(self._session.plan(definitions, removing))

    def definitions(self) -> list[Definition]:
        """Read everything that is defined, in the order of `Client.apply`; not topics that were only used.

        What it gives can be applied, also elsewhere, or written as a file (`ampsq config export`).
        """
        from ampsq.catalog.read_definitions import read_definitions

        return self._store.run(read_definitions())

    def remove(self, *definitions: Definition) -> None:
        """Remove definitions by kind and name, what depends on others first; what is not there is no fault.

        Messages stay in the logs of their topics; of a queue it is forgotten what was settled and what not. A topic
        goes back to one without records and retention, a destination keeps what it has, an instance goes back to its
        default group. Nothing is removed if anything is refused.

        Raises:
            DefinitionError: an action or a view that is left needs one of them.
            QueueInUse: a queue has subscriptions, leases, delayed or scheduled messages.
        """
        self._store.run(self._session.remove(definitions))

    def pause_queue(self, queue: str) -> bool:
        """Deliver no more of a queue on this instance, until it is resumed; what is leased stays so.

        It is the element `paused` of its definition: applying one without it resumes the queue.

        Returns:
            Whether that changed something.

        Raises:
            UnknownQueue: there is none of that name.
        """
        return self._store.run(self._session.pause(queue, paused=True))

    def resume_queue(self, queue: str) -> bool:
        """Deliver again what `pause_queue` ended.

        Returns:
            Whether that changed something.

        Raises:
            UnknownQueue: there is none of that name.
        """
        return self._store.run(self._session.pause(queue, paused=False))

    def message_type(self, topic: str) -> str:
        """Read the message type of a topic or a queue, as in ``msgpack``; ``json`` of what is not there."""
        return (self._store.run(self._session.types.read(topic)) or JSON).name

    def publishers(self) -> list[PublisherState]:
        """Read all publishers that have a name: how far they are, and who is logged on."""
        from ampsq.publishing.publishers import publishers

        return self._store.run(publishers(self._session.instance))

    def replication(self) -> ReplicationReport:
        """Read how replication stands: each link with its lag, each shared queue with who owns what."""
        from ampsq.replication.report import read_replication

        return self._store.run(read_replication(self._session.instance))

    def enable_proxied_transfer(self, queue: str) -> None:
        """Let this instance own messages of a queue in the place of owners that it does not hear of.

        For while one of the instances is lost: choose ONE of those left, move the clients there, enable, bring the lost
        one back without clients, disable, let clients back. A message may be delivered twice where its owner comes
        back, or where two instances do this.

        Raises:
            UnknownQueue: there is none of that name.
        """
        from ampsq.protocol.calls import ownership as ownership_calls

        self._store.call(ownership_calls.set_proxied_transfer(queue, enabled=True))

    def disable_proxied_transfer(self, queue: str) -> None:
        """End what `enable_proxied_transfer` began; what was taken over stays.

        Raises:
            UnknownQueue: there is none of that name.
        """
        from ampsq.protocol.calls import ownership as ownership_calls

        self._store.call(ownership_calls.set_proxied_transfer(queue, enabled=False))

    def dead_letters(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None = None,
        reason: str | None = None,
        top_n: int | None = None,
        bookmarks: Iterable[Bookmark | str] | str | None = None,
    ) -> list[DeadLetter]:
        """Look at dead letters, what a dead-letter action published, without taking anything; the oldest first.

        Args:
            queue: the queue of the letters, one over the action's topic.
            filter: an expression over the letters, as in ``/message/price > 10 AND /deliveries > 3``; default all.
            source: only what this queue gave up.
            reason: only what was given up for this reason, perhaps beside another: ``max_deliveries``,
                ``max_cancels``, ``forced_expire``, ``time_limit``.
            top_n: at most so many.
            bookmarks: instead of all these: of the letters, or of one.

        Returns:
            The letters that are available, as of `Client.sow`; what is no dead letter is left out.

        Raises:
            UnknownQueue: there is no such queue. DefinitionError: an argument is wrong. UnknownMessage: no letter with
                this bookmark is available.
        """
        return self._store.run(
            self._session.dead_letters(queue, filter, source=source, reason=reason, top_n=top_n, bookmarks=bookmarks)
        )

    def redrive(
        self,
        queue: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        bookmarks: Iterable[Bookmark | str] | str | None = None,
        *,
        source: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
        rate: float | str | None = None,
        progress: Callable[[RedriveProgress], object] | None = None,
        edit: Callable[[DeadLetter], Any] | None = None,
    ) -> Redriven:
        """Put dead letters back: each message goes to the queue that gave it up, and to no other of its topic.

        The message is recorded again, to the byte, with its headers and one more, ``ampsq-redriven-from``, the
        letter's bookmark; it has no deliveries yet, and a life of its own. That and settling the letter are one step,
        so a letter is put back once, whoever dies when and however many do it at once. Letters that a subscription
        holds stay, and so does what comes after the beginning. There is no undo.

        Args:
            queue: the queue of the letters.
            filter: an expression over the letters; default all. `source` and `reason` as of `dead_letters`; or
            bookmarks: of letters, or of one.
            source: only what this queue gave up.
            reason: only what was given up for this reason.
            to: a queue that gets all of them instead. Where the message's own topic does not feed it, the message is
                recorded in that queue's `default_publish_target`.
            dry_run: only say what would go where.
            rate: at most so many letters a second, evenly; a number, or a text as ``100/s``, ``30/m``, ``500/h``.
            progress: called with a `RedriveProgress` (done, refused, total) between calls and while it waits; what it
                raises ends the redriving there, and the outcome of nothing is unknown then. For the total the letters
                are read once more.
            edit: called with each `DeadLetter`; gives the body that is put back instead, as `Client.publish` takes it,
                or None to leave the letter where it is.

        Returns:
            How many were put back, an int with `targets` (queue -> how many), `refused` (how many could not be) and
            `refusals` (bookmark and reason of the first thousand). One that somebody else settled meanwhile is neither.

        Raises:
            UnknownQueue: there is no such queue. DefinitionError: an argument is wrong.
            ServerFull, Unavailable: some may have been put back; doing it again puts back the rest.
        """
        return self._store.run(
            self._session.redrive(
                queue,
                filter=filter,
                bookmarks=bookmarks,
                source=source,
                reason=reason,
                to=to,
                dry_run=dry_run,
                rate=rate,
                progress=progress,
                edit=edit,
            )
        )

    def explain(self, queue: str, bookmark: Bookmark | str | None = None) -> Explanation:
        """Say why a message is where it is; nothing is changed.

        Args:
            queue: the queue.
            bookmark: the message; default the head of the queue, which is to be delivered next.

        Raises:
            UnknownQueue: there is none of that name. DefinitionError: it is no bookmark.
        """
        from ampsq.queues.explain import explain

        return self._store.run(explain(self._session, queue, bookmark))

    def history(self, bookmark: Bookmark | str) -> History:
        """Tell a message's life as a timeline, and where it is now in each queue that its topic feeds.

        Raises:
            DefinitionError: it is no bookmark, or one of another origin.
        """
        from ampsq.queues.history import history

        return self._store.run(history(self._session, bookmark))

    def check(self, *queues: str, repair: bool = False) -> list[CheckReport]:
        """Compare the live state of queues, by default all, with what their logs and journals alone say.

        Traffic goes on. What seems wrong is looked at once more, live state and journal in one moment, so that nothing
        is reported that only was under way. docs/recovery.md names all differences.

        Args:
            queues: which; default all.
            repair: mend what is wrong; a queue whose cursors are lost is rebuilt.

        Raises:
            UnknownQueue: no queue has this name. Rebuilding: somebody else began to rebuild it meanwhile.
        """
        from ampsq.operations.check.queue import check

        return self._store.run(check(self._session, queues, repair=repair))

    def rebuild(self, queue: str) -> Rebuilt:
        """Rebuild a queue's state from its logs and its journal, in bounded steps, and check it.

        The queue reads nothing from its logs until that is done. Leases, delays and attempts that are there stay.

        Raises:
            UnknownQueue: no queue has this name. Rebuilding: somebody else rebuilds it.
        """
        from ampsq.operations.check.queue import rebuild_queue

        return self._store.run(rebuild_queue(self._session, queue))

    def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        return self._store.run(self._session.queue_stats(queue))

    def queue_latencies(self, queue: str, over: str = "15m") -> QueueLatencies:
        """Read how long messages of a queue take, as percentiles.

        Clients measure about one message in a hundred, and the first of each queue every ten seconds, and tell it with
        their signs of life, so that what is read lacks up to the last ten seconds.

        Args:
            queue: its name.
            over: the range of time that ends now: ``15m`` (default), ``6h`` or ``7d``.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the range is none of these.
        """
        from ampsq.operations.latencies import read_latencies

        return self._store.run(read_latencies(self._session.instance, queue, over))

    def groups(self, queue: str, *, limit: int = 20) -> QueueGroups:
        """Read the groups of a queue: those that stand still first, then those of which most waits.

        What the queue has not read yet is in no group. Of very many groups the first 20,000 are looked at.

        Args:
            queue: its name.
            limit: groups in the answer at most, 1 to 500.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the limit is none.
        """
        from ampsq.operations.groups import read_groups

        return self._store.run(read_groups(queue, limit))

    def release_group(self, queue: str, group: str) -> bool:
        """Let a group of a queue go on that a failed message holds, that was stopped, or that waits for its rate.

        What is leased of it stays so, and a failed message keeps its place. Of its `group_rate` it may have its whole
        burst again. A group that is bound to a subscription by `group_affinity` may go to any other one.

        Args:
            queue: its name.
            group: the group, as `groups` names it.

        Returns:
            Whether anything held it, or bound it.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the group is no text, or the queue has no groups.
                NotPermitted: this takes the rights of an administrator.
        """
        from ampsq.operations.groups import release_group

        return self._store.run(release_group(queue, group))

    def pause_group(self, queue: str, group: str) -> bool:
        """Deliver nothing more of a group, until it is resumed; what is leased of it stays so, and other groups go on.

        It stays so when the definition changes, and for messages that come later; it is in no
        journal, so that a lost server forgets it. A group of which nothing is there can be paused, too.

        Args:
            queue: its name.
            group: the group, as `groups` names it.

        Returns:
            Whether that changed something.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the group is no text, or the queue has no groups.
                NotPermitted: this takes the rights of an administrator.
        """
        from ampsq.operations.groups import pause_group

        return self._store.run(pause_group(queue, group, self._session.client, paused=True))

    def resume_group(self, queue: str, group: str) -> bool:
        """Deliver again what `pause_group` ended; a group that was stopped, or that a failed message holds, stays so.

        Args:
            queue: its name.
            group: the group, as `groups` names it.

        Returns:
            Whether that changed something.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the group is no text, or the queue has no groups.
                NotPermitted: this takes the rights of an administrator.
        """
        from ampsq.operations.groups import pause_group

        return self._store.run(pause_group(queue, group, self._session.client, paused=False))

    def drop_group(self, queue: str, group: str, *, reason: str | None = None, dry_run: bool = False) -> int:
        """Let all messages of a group that wait leave their queue as expired; a dead-letter action publishes them.

        Those that were read, that are unread, and that came back and wait for their delay. What is leased stays so, and
        so does what is scheduled, or comes after the beginning. It is done in bounded steps, while others work on; a
        group that is paused or stopped stays so.

        Args:
            queue: its name.
            group: the group, as `groups` names it.
            reason: why, one line of at most 500 characters, shown with the messages and their dead letters.
            dry_run: only count.

        Returns:
            How many messages left, or would leave.

        Raises:
            UnknownQueue: there is none of this name. DefinitionError: the group is no text, the queue has no groups, or
                the reason is wrong. Rebuilding: the queue is being rebuilt. Unavailable: no answer; some may have left,
                and doing it again lets the rest leave. NotPermitted: this takes the rights of an administrator.
        """
        from ampsq.operations.groups import drop_group

        return self._store.run(drop_group(queue, group, reason, dry_run=dry_run))

    def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues, by name."""
        return self._store.run(self._session.queues())

    def readers(self) -> list[ReaderState]:
        """Read the subscriptions to topics that report, of all clients: where a transport with limits is defined."""
        return self._store.run(self._session.readers())

    def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings, by what they match."""
        return self._store.run(self._session.address_settings())

    def destinations(self) -> dict[str, Destination]:
        """Read the definitions of all destinations, by name."""
        from ampsq.replication.destinations import read_destinations

        return self._store.run(read_destinations())

    def remove_destination(self, name: str) -> bool:
        """Forget a destination: nothing is sent to it any more, and no log is kept for it.

        What it has stays there. Defined again, it is sent whatever it lacks and the logs still have.

        Returns:
            Whether there was one.

        Raises:
            DefinitionError: the text is no name.
        """
        from ampsq.replication.destinations import remove_destination

        return self._store.run(remove_destination(name))

    def sync_states(self) -> dict[str, SyncState]:
        """Read whether publishers wait for each destination of `sync_type` ``sync``, and how far behind it is."""
        from ampsq.publishing.sync_state import sync_states

        return self._store.run(sync_states(self._session.instance))

    def downgrade_replication(self, destination: str) -> bool:
        """Wait for a sync destination no more, until it is upgraded: what it holds back is acknowledged at once.

        From then on it may lack what publishers were told is persisted: clients must not fail over to it.

        Returns:
            Whether that changed something.

        Raises:
            DefinitionError: there is no such destination, or it is configured as async.
        """
        from ampsq.replication.downgrade import downgrade

        return self._store.run(downgrade(destination))

    def upgrade_replication(self, destination: str) -> bool:
        """Wait for a sync destination again that was downgraded.

        Returns:
            Whether that changed something.

        Raises:
            DefinitionError: there is no such destination, or it is configured as async.
        """
        from ampsq.replication.downgrade import upgrade

        return self._store.run(upgrade(destination))

    def begin_incarnation(self) -> str:
        """Begin a new incarnation of this instance: after its server was restored, or failed over to one that had less.

        The links of other instances then give back what they have of it and it lacks. Until everything is here that
        the destinations have with which it shares queues, these are held: nothing of them is delivered. Its leases are
        void. All other clients of the server lose their connections, and those of this instance have to be made anew.

        Returns:
            The new origin, as bookmarks have it from now on.
        """
        from ampsq.replication.incarnations import end_connections, new_incarnation
        from ampsq.replication.recovery import resume_recovered

        origin = self._store.run(new_incarnation())
        self._session.origin = origin
        self._store.route.logged_on(origin)
        self._store.run(end_connections())
        self._store.run(resume_recovered(self._session.instance))
        return origin

    def recover_without(self, destination: str) -> Recovery | None:
        """Let a new incarnation recover without a destination that is gone for good: the operator's word.

        What that one alone knows the instance then delivers without knowing it: a message that was settled there, or
        by an acknowledgement that it alone has, may be delivered again. If it comes back, what it has is taken in.

        Args:
            destination: its name.

        Returns:
            What is waited for still; None where the instance recovers no more, or never did.

        Raises:
            DefinitionError: there is no such destination.
        """
        from ampsq.replication.recovery import recover_without

        return self._store.run(recover_without(self._session.instance, destination))

    def views(self) -> dict[str, View]:
        """Read the definitions of all views, by name."""
        return self._store.run(self._session.views())

    def actions(self) -> dict[str, ActionState]:
        """Read all actions, by name, with how far they have come and how many of their events failed."""
        from ampsq.operations.actions import actions

        return self._store.run(actions(self._session.instance))

    def failed_events(self, action: str) -> list[FailedEvent]:
        """Read the events of an action that failed and are tried again, the first one first.

        Raises:
            DefinitionError: there is no such action.
        """
        from ampsq.operations.actions import failed_events

        return self._store.run(failed_events(self._session.instance, action))

    def retry_action(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Let a coordinator try failed events at once, from the step at which they failed.

        Args:
            action: its name.
            events: their numbers, as `failed_events` gives them; default all.

        Returns:
            How many there were.

        Raises:
            DefinitionError: there is no such action.
        """
        from ampsq.operations.actions import retry_action

        return self._store.run(retry_action(self._session.instance, action, events))

    def drop_failed(self, action: str, events: Iterable[int] | int | None = None) -> int:
        """Forget failed events: the rest of their steps is never made.

        Args:
            action: its name.
            events: their numbers; default all.

        Returns:
            How many were dropped.

        Raises:
            DefinitionError: there is no such action.
        """
        from ampsq.operations.actions import drop_failed

        return self._store.run(drop_failed(self._session.instance, action, events))

    def topics(self) -> dict[str, TopicState]:
        """Read all topics by name: what each holds, which queues it feeds, and what of it is kept."""
        return self._store.run(self._session.topics())

    def trim(self, topic: str, *, age: timedelta | float | str | None = None, dry_run: bool = False) -> Trimmed:
        """Remove now what a topic's retention gives up and nobody needs; a coordinator does it by itself.

        Args:
            topic: the topic.
            age: instead of its retention: what is as old as that; ``0s`` is all that nobody needs.
            dry_run: only count.

        Raises:
            DefinitionError: there is no such topic, or it has no retention and no age is given.
        """
        return self._store.run(self._session.trim(topic, age, dry_run=dry_run))
