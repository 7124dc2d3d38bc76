"""Pipelines for threads: several calls are sent on one connection before the first is answered.

`ampsq.transport.async_pipeline` is made from this file. After a refusal, `ampsq.transport.calls_in_flight` decides for
both what is repeated.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Self, TypeVar

import redis

from ampsq.base.errors import Unavailable
from ampsq.protocol.reads.server import load_script
from ampsq.transport.calls_in_flight import REFUSALS, CallsInFlight
from ampsq.transport.errors import is_slot_moving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.calls_in_flight import CallRunner, LentConnection

__all__ = ["PinnedPipeline", "Pipeline"]

T = TypeVar("T")


class Pipeline:
    """Calls in flight on one connection, answered in order. After a failure it is empty and usable again.

    What a server refuses before it runs is done as single calls do it: `MOVED` is followed, `ASK` and `TRYAGAIN` are
    waited out, and what has too much to read is sent in parts; then all that was in flight is sent again, in order.

    Args:
        store: opens connections, and makes single calls.
        follows: False: such a refusal is raised, and so is that the instance went elsewhere; for who depends on what
            that connection has read or written.
    """

    def __init__(self, store: CallRunner, *, follows: bool = True) -> None:
        self._store, self._calls = store, CallsInFlight(store.route, follows=follows)
        self._connection: LentConnection | None = None

    @property
    def open_calls(self) -> int:
        """Calls posted and not collected."""
        return self._calls.number

    def post(self, call: Call[object]) -> None:
        """Send a call. Raises `Unavailable` when the connection broke: then nobody knows what ran."""
        if self._calls.refused:
            self._calls.refused.append(call)
            self._post_refused()
            return
        if (
            self._connection is not None
            and not self._calls.sent
            and self._connection.server is not self._calls.route.current
        ):
            self.close()
            if not self._calls.follows:
                raise self._calls.left()
        if self._connection is None:
            try:
                self._connection = self._store.take_connection()
            except Unavailable as error:
                if not self._calls.follows or not is_slot_moving(error):
                    raise
                self._calls.refused.append(call)
                return
        try:
            self._connection.send(call)
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, call) from error
        except BaseException:
            self._abandon()
            raise
        self._calls.sent.append(call)

    def post_all(self, calls: Sequence[Call[object]]) -> None:
        """Send several calls, in one write where the connection stands; raises as `post` does."""
        connection = self._connection
        if connection is None or self._calls.refused or connection.server is not self._calls.route.current:
            for call in calls:
                self.post(call)
            return
        try:
            connection.send(*calls)
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, calls[0]) from error
        except BaseException:
            self._abandon()
            raise
        self._calls.sent.extend(calls)

    def collect(self) -> object:
        """Read the reply of the earliest call; raises what the server answered, or `Unavailable`."""
        if self._calls.refused and not self._calls.sent:
            self._post_refused()
            if self._calls.refused:
                return self._run(self._calls.refused.popleft())
        if self._connection is None:
            raise Unavailable("the connection broke while calls were in flight")
        call = self._calls.sent[0]
        try:
            reply = self._connection.read(call.blocks)
        except redis.ResponseError as error:
            ours = self._calls.judge(error, self._connection.server)
            if ours is None:
                return self._send_again(self._connection, error)
            self._calls.sent.popleft()
            if not isinstance(ours, REFUSALS):
                # The outcome of all that is in flight is unknown to whoever posted: none of it may be read as something
                # else.
                self.close()
            raise ours from error
        except (redis.RedisError, OSError) as error:
            raise self._failed(error, call) from error
        except BaseException:
            self._abandon()
            raise
        self._calls.sent.popleft()
        return call.read(reply)  # type: ignore[arg-type]  # it says of what its reply is made

    def _post_refused(self) -> None:
        waiting, self._calls.refused = self._calls.refused, deque()
        while waiting:
            self.post(waiting.popleft())
            if self._calls.refused:
                # There is no connection yet: `collect` waits for one.
                self._calls.refused.extend(waiting)
                return

    def _send_again(self, connection: LentConnection, error: redis.ResponseError) -> object:
        """After a refusal: all of it in order, unless something behind it ran or waits there for what is to come."""
        if self._calls.is_read_behind:
            return self._run(self._calls.take_refused())
        if self._has_run_ahead(connection):
            ours = self._calls.out_of_turn(error, connection.server)
            self._calls.forget()
            self.close()
            raise ours from error
        return self._run(self._calls.hold_back())

    def _has_run_ahead(self, connection: LentConnection) -> bool:
        """Read the replies of all behind the refused call; whether one of these has done something."""
        has_run = False
        for call in islice(self._calls.sent, 1, None):
            answer: redis.ResponseError | None = None
            try:
                connection.read(call.blocks)
            except redis.ResponseError as error:
                answer = error
            except (redis.RedisError, OSError) as error:
                raise self._failed(error, call) from error
            except BaseException:
                self._abandon()
                raise
            has_run = self._calls.is_out_of_turn(call, answer) or has_run
        return has_run

    def _run(self, call: Call[object]) -> object:
        """Run a call by itself, as patiently as single calls are; what waits behind it comes afterwards."""
        try:
            return self._store.call(call)
        except REFUSALS:
            raise
        except BaseException:
            self.close()
            raise

    def _failed(self, error: Exception, call: Call[object]) -> AmpsqError:
        """Drop the connection, and say what the failure means."""
        ours = self._calls.explain(error, call, self._connection.server if self._connection else None)
        self._abandon()
        return ours

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        self._calls.forget()
        if connection is not None:
            connection.drop()
            connection.release()

    def forget_refused(self) -> None:
        """Drop the calls that did not run and were to be sent again; those in flight are still answered."""
        self._calls.refused.clear()

    def close(self) -> None:
        """Give the connection back; one with unread replies is dropped."""
        connection, self._connection = self._connection, None
        is_unread = bool(self._calls.sent)
        # Before anything is waited for: what is posted next would be taken for the answer to these.
        self._calls.forget()
        if connection is not None:
            if is_unread:
                connection.drop()
            connection.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PinnedPipeline(Pipeline):
    """A channel whose calls run on one connection or not at all: for who waits for what that connection wrote."""

    def __init__(self, store: CallRunner) -> None:
        super().__init__(store, follows=False)
        self._calls.is_pinned = True
        self._is_used = False

    def post(self, call: Call[object]) -> None:
        """Send a call; see `Pipeline.post`. Raises `Unavailable` when the connection is gone."""
        is_elsewhere = self._connection is not None and self._connection.server is not self._store.route.current
        if self._is_used and (self._connection is None or is_elsewhere):
            self.close()
            raise Unavailable("the connection broke while calls were in flight")
        self._is_used = True
        super().post(call)

    def ask(self, call: Call[T]) -> T:
        """Send a call and read its reply, and that of nothing else."""
        self.post(call)
        return self.collect()  # type: ignore[return-value]  # the reply to this call

    def load(self, *scripts: str) -> None:
        """Let the server know scripts, by name, before they are sent as hashes."""
        for name in scripts:
            self.ask(load_script(name))
