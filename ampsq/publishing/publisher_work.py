"""Work that a guaranteed publisher shares with the thread that sends and the thread that confirms."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from ampsq.base.errors import AmpsqError, NameInUse, SequenceGap, ServerFull, Unavailable
from ampsq.publishing.progress import PublishProgress
from ampsq.publishing.published_runs import PublishedRuns
from ampsq.publishing.settlements import Settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.publishing.guarantee_options import Guarantee
    from ampsq.publishing.session import Identity, PublishSession
    from ampsq.transport.store import Store

__all__ = ["PublisherWork"]

_log = logging.getLogger("ampsq")
T = TypeVar("T")


class PublisherWork:
    """The work of one guaranteed publisher: where it is done, how far it has come, and what is in its way.

    Args:
        identity: the publisher's name and the client's.
        guarantee: what is asked for.
        store: on the instance where it begins.
        origin: of what is published there.
        is_movable: whether it may go on at another instance.

    Attributes:
        identity: as it was given.
        guarantee: as it was given.
        store: on the instance where it is.
        origin: of what is published there.
        kept: the publish store.
        published: what became of the messages.
        progress: how far it has come.
        changed: guards all that is not the store's; told whenever some of it changes.
        news: what the sending thread waits for. Every publish sets it, so it has to be cheap.
        session: the one that sends; None while there is none.
        is_elsewhere: the next session is at another instance, and not one that goes on.
        refused: messages up to here are sent no more, since the last of them was refused for good.
        fatal: what ended it; None while it goes on.
        trouble: what ended the session before; "" once there is another one.
        store_trouble: why the publish store does not let go of what is persisted; "" where it does.
        is_closing: nothing more is taken.
        has_ended: the threads end.
    """

    def __init__(
        self, identity: Identity, guarantee: Guarantee, store: Store, origin: str, *, is_movable: bool
    ) -> None:
        self.identity, self.guarantee, self.kept = identity, guarantee, guarantee.store
        self.store, self.origin = store, origin
        self._former_stores: list[Store] = []
        self.published = PublishedRuns()
        self.progress = PublishProgress(self.kept, Settlements(self.kept, self.tell, origin if is_movable else ""))
        self.changed = self.progress.changed
        self.news = threading.Event()
        self.session: PublishSession | None = None
        self.is_elsewhere = self.is_closing = self.has_ended = False
        self.refused = 0
        self.fatal: AmpsqError | None = None
        self.trouble = self.store_trouble = ""

    @property
    def settlements(self) -> Settlements:
        """Settlements of leases at the instance where it is."""
        return self.progress.settlements

    @property
    def is_over(self) -> bool:
        """Return whether the threads have nothing more to do."""
        return self.fatal is not None or self.has_ended

    def tell(self) -> None:
        """Let the threads look: something is there for them."""
        with self.changed:
            self.changed.notify_all()
        self.news.set()

    def move_to(self, store: Store, origin: str) -> None:
        """Go on at another instance, with what it does not have."""
        with self.changed:
            # The threads still read of what they had there; it ends with this client.
            self._former_stores.append(self.store)
            self.store, self.origin = store, origin
            self.progress.settlements = Settlements(self.kept, self.tell, origin)
            self.session, self.is_elsewhere = None, True
        self.tell()

    def end_session(self, session: PublishSession, error: AmpsqError) -> None:
        """Let the sending thread open another one; raises the error where that would not do better."""
        if not isinstance(error, (Unavailable, NameInUse, SequenceGap, ServerFull)):
            raise error
        with self.changed:
            if self.session is session:
                self.session, self.trouble = None, str(error)
        self.tell()

    def guarded(self, work: Callable[[], None]) -> None:
        """Run a thread's work; where it fails, the publisher ends, and says why."""
        try:
            work()
        except AmpsqError as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001  (publishers are to be told, whatever it is)
            _log.exception("publishing failed")
            self._give_up(AmpsqError(f"publishing stopped, our fault: {error!r}; what is kept is not lost"))

    def _give_up(self, error: AmpsqError) -> None:
        _log.error("publisher %s stopped: %s", self.identity.publisher, error)
        with self.changed:
            self.fatal = self.fatal or error
        self.tell()

    @staticmethod
    def report(handler: Callable[[T], object], what: T) -> None:
        """Call a handler of the user's; whatever it does, publishing goes on."""
        try:
            handler(what)
        except Exception:  # noqa: BLE001  (see above)
            _log.exception("the handler of %s failed", type(what).__name__)

    def close_stores(self) -> None:
        """Close the connections to all instances where it was."""
        for store in (self.store, *self._former_stores):
            store.close()
