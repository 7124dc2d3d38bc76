"""Every script, its reply dropped after it took effect, and sent again as a client does: as if it had run once.

Real work (`every_script`) is done through a store that drops the first reply of every call. Whether the call is sent
again is the store's own decision. Where it is, the state after the second run is compared with that after the first;
where it is not, the caller was told that nobody knows, and the call goes on with the reply that was dropped. A script
that no work there makes run fails the last test: whoever adds one adds work, or an entry.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time

import pytest
import redis
from every_script import WORK, Work

from ampsq.base.errors import Rejected, Unavailable
from ampsq.protocol import scripts
from ampsq.protocol.limits import ASK_AGAIN
from ampsq.transport.store import Connection, ConnectionPool, Store

#: Where the second run of a script may write a later moment, and nothing else: keys, as regular expressions.
MAY_BE_LATER = {
    "heartbeat": r":subscriptions",  # the second sign of life
    "subscribe": r":subscriptions",
    "confirm_sequence": r":sessions",
    "report_reader": r":reporting",
    "settle": r":q:\w+:leases",  # an extension counts from the second run on
    "watch_queue": r":due|:q:\w+",  # whoever watches, keeps, holds or rebuilds does so for longer
    "keep_duty": r":keepers",
    "track_matches": r":keepers",
    "hold_log": r":holds:.*",
    "begin_rebuild": r":rebuilding|:q:\w+",
}
_MOMENT = re.compile(r"\d{13}")
#: What may do more of what is due the second time: what it did is never done again, and the work below proves it, since
#: every message of it is handed out and settled once.
DOES_MORE = {
    "take": "the messages of the lost reply are leased; `push_again` pushes them again, and what came later is new",
    "sweep": "whatever is due by then",
    "end_wait": "a second element that ends a blocked read, and is no message",
    "set_mark": "another mark, of which the last one counts",
    "report_sent": "those who wait are woken twice",
    "emit_overdue": "whatever is due by then; an event of each is made once",
    "push_again": "pushes what is leased and not named once more: the client is told which by their tokens",
    "logon": "a second session of the same client, whose first one nobody knows the number of",
    "begin_session": "a second session of the same client, whose first one nobody knows the number of",
    "emit_event": "a user's own event is raised again, as it says; comings and goings once",
    "offer_messages": "a second offer; no message changes owner by it",
    "claim_messages": "named twice, each is granted once, and no more than there was room for",
    "trim_log": "the walk goes on from where it is remembered",
    "trim_journal": "the walk goes on",
    "rebuild": "the walk goes on",
    "index_log": "the next part of what is lacking is added",
}
#: Seconds behind the first run from which on a second one is another wish, which counts like any other.
SAME_WITHIN = {"request_messages": ASK_AGAIN / 1000}
#: Never sent again; the caller is told, and does it anew from what it reads.
NOT_REPEATED = {
    "define_action", "define_queue", "define_setting", "define_topic", "define_transport", "define_view",
    "set_event_aside", "discard_unsettled", "correct_read_count", "end_rebuild", "define_destination",
    "define_instance",
    "remove_destination", "remove_action", "remove_queue", "remove_setting", "remove_transport", "remove_view",
    "define_conflated", "remove_conflated",
    # Its window may be over when it is sent again.
    "publish_once",
    # A message that failed since would be released by the second run.
    "release_group",
    # A group that was resumed since would be paused by the second run; what was dropped is counted once.
    "pause_group", "drop_group",
}  # fmt: skip
#: Sent again only where something tells the second run: a publisher, tokens, no place of the caller's own; a sign of
#: life where nothing that was measured goes with it.
SOMETIMES = {"publish", "settle", "sow_delete", "trim_log", "trim_journal", "heartbeat"}


class Ledger:
    """The record of scripts run twice, those run once, and differences."""

    def __init__(self):
        self.twice, self.once, self.faults = set(), set(), []


class DoubtingPool(ConnectionPool):
    """Connections that lose the replies that their store drops."""

    store = None

    def take(self, key):
        taken = super().take(key)
        given = DoubtingConnection(taken.server, taken.pool, taken.raw, taken.owner, taken.key)
        given.store = self.store
        return given


class DoubtingConnection(Connection):
    store = sent = None

    def send(self, call, *, whole=False):
        self.sent = call
        super().send(call, whole=whole)

    def read(self, blocks=0.0):
        reply = super().read(blocks)
        if self.store.dropped(self.sent, reply):
            raise redis.ConnectionError("the test dropped this reply")
        return reply


class Doubting(Store):
    """A store that drops the first reply of every script."""

    def __init__(self, url, instance, ledger, snapshot):
        super().__init__(url, instance, retry_timeout=60.0)
        self._alone = threading.RLock()
        self._ledger, self._look = ledger, lambda: snapshot(self)
        self._dropping, self._dropped, self._takes = False, None, 0
        self._connections = DoubtingPool(self.route)
        self._connections.store = self

    def call(self, call):
        # Actions have threads of their own for what takes long: nothing may change between the two looks.
        with self._alone:
            if call.script is None or self._is_spared(call.script.name):
                return super().call(call)
            return self._doubted(call)

    def _doubted(self, call):
        name, self._dropping, self._dropped = call.script.name, True, None
        began = time.monotonic()
        try:
            answer = super().call(call)
        except Unavailable as error:
            if self._dropped is None or call.repeatable or not error.may_have_run:
                raise
            self._ledger.once.add(name)
            return call.read(self._dropped[0])
        except Rejected as error:
            if self._dropped is not None:
                self._ledger.faults.append(f"{name}: refused when it was repeated: {error}")
            raise
        finally:
            self._dropping = False
        self._ledger.twice.add(name)
        if name not in DOES_MORE and time.monotonic() - began < SAME_WITHIN.get(name, math.inf):
            self._compare(name, self._dropped[1], self._look())
        return answer

    def _is_spared(self, name):
        """Every second reply of `take` arrives: if each were lost, no message ever came."""
        self._takes += name == "take"
        return name == "take" and self._takes % 2 == 0

    def take_connection(self):
        """A pipeline loses nothing: nobody would ask a second time."""
        return ConnectionPool.take(self._connections, self.key)

    def dropped(self, sent, reply):
        """Note what came of a call, and say whether its reply is to be lost."""
        if not self._dropping or sent is None or sent.script is None:
            return False
        self._dropping = False
        self._dropped = (reply, self._look())
        return True

    def _compare(self, name, first, second):
        later = MAY_BE_LATER.get(name)
        for suffix in sorted(first.keys() | second.keys()):
            one, two = first.get(suffix), second.get(suffix)
            if one != two and later and re.fullmatch(later, suffix):
                one, two = (_MOMENT.sub("moment", repr(value)) for value in (one, two))
            if one != two:
                self._ledger.faults.append(f"{name}: {suffix}: {_changed(first.get(suffix), second.get(suffix))}")


def _changed(first, second):
    """Return only the differences."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = sorted(first.keys() | second.keys())
        return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
    return first, second


@pytest.fixture
def ledger():
    return Ledger()


@pytest.fixture
def work(valkey, instance, ledger, snapshot):
    with contextlib.closing(Doubting(valkey.url, instance, ledger, snapshot)) as store:
        yield Work(store)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_script_s_outcome_is_that_of_running_once(work, ledger):
    for part in WORK:
        part(work)
    assert ledger.faults == [], "\n".join(ledger.faults)
    missing = set(scripts.names()) - ledger.twice - ledger.once
    assert missing == set(), "no work here makes these scripts run: add some"
    # And what is never sent again is what is known to be so
    assert ledger.once - ledger.twice == NOT_REPEATED
    assert ledger.once & ledger.twice <= SOMETIMES
