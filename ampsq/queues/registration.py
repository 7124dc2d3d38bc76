"""Request of a subscription, and how the instance learns of it: queues by name or pattern, backlog, filter."""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ampsq.base.errors import AmpsqError, CatalogChanged, DefinitionError, UnknownQueue
from ampsq.base.forks import closed, was_inherited
from ampsq.base.name_patterns import check_may_match, matches_name, parse_topic_or_pattern
from ampsq.base.values import is_name, shown
from ampsq.catalog.first_use import make_queue
from ampsq.catalog.suggestions import explain_no_queue, with_suggestions
from ampsq.definitions.stored import read_stored_queue
from ampsq.expressions import parse
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.calls.subscriptions import SubscribeReply, SubscribeRequest
from ampsq.protocol.keepalive import SESSION_TIMEOUT
from ampsq.queues.clock_comparison import ClockComparison

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.expressions import Expression
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.request import Call

__all__ = ["Registration", "SubscriptionSpec", "parse_filter"]

T = TypeVar("T")

#: Catalog changes between reading and writing; more than this is not chance.
_RACES: Final = 50
#: Queues of a pattern whose definitions are read to find the smallest limit.
_FEW: Final = 64
#: What is in no queue's name, and begins or compares in filters; look-around of regular expressions is not meant.
_LIKE_A_FILTER: Final = re.compile(r"""[='"]|^\s*/.*[\s<>!]""")
_LOOK_AROUND: Final = re.compile(r"\(\?<?[=!]")
_log = logging.getLogger("ampsq")


def parse_filter(text: str | None) -> Expression | None:
    """Read a subscription's filter.

    Raises:
        ExpressionError: it is wrong, or its answer would change with time.
    """
    if text is not None and not isinstance(text, str):
        raise DefinitionError(f"filter={shown(text)}: allowed is a text, as in '/price > 10'")
    return parse(text, "filter") if text is not None else None


def _refuse_filter(name: object) -> None:
    """Refuse a filter that stands in the place of queues."""
    if isinstance(name, str) and _LIKE_A_FILTER.search(_LOOK_AROUND.sub("", name)):
        raise DefinitionError(
            f"{shown(name)} names no queues: this looks like a filter: write filter={shown(name)}; allowed: a queue's "
            "name, or a regular expression of names, as in '^work-'"
        )


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """The request of a subscription, checked.

    Attributes:
        name: a queue, or a regular expression of queues.
        asked: the backlog.
        filter: which messages; None: all.
    """

    name: str
    asked: int
    filter: Expression | None

    @classmethod
    def of(cls, name: str, asked: int, text: str | None) -> Self:
        """Check what is asked for.

        Raises:
            DefinitionError: the backlog is no whole number, or the name is neither a name nor a regular expression.
            ExpressionError: the filter is wrong.
        """
        _refuse_filter(name)
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise DefinitionError(f"max_backlog={shown(asked)}: allowed is a whole number, 0 or more")
        check_may_match(parse_topic_or_pattern(name))
        return cls(name, asked, parse_filter(text))

    def covers(self, queue: str) -> bool:
        """Return whether a queue is one of those asked for."""
        return matches_name(self.name, queue)


class Registration:
    """The request of one subscription, and its name on the instance.

    Args:
        instance: the instance's name.
        client: unlike in every other subscription: asked again after a lost reply, the one that was made is answered.
        spec: what it asks for at first.
        has_bell: it has no room but what visits lend it, and a bell that rings when messages wait for it.

    Attributes:
        id: the subscription's name on the instance; another one after it had to be made again.
        max_backlog: the effective backlog: the least of what was asked and of the queues' limits, as the server said it
            last.
        spec: what is asked for.
        closed: whether nobody uses it any more.
        left: whether the server has ended it, too.
        process: the ID of the process that subscribed.
        clock: the server's.
    """

    def __init__(self, instance: str, client: str, spec: SubscriptionSpec, *, has_bell: bool = False) -> None:
        self.instance, self.client = instance, client
        self.spec, self.has_bell = spec, has_bell
        self.id = ""
        self.max_backlog = 0
        # When something else was asked for last: the answer to an earlier sign of life has the backlog of before.
        self._asked_at = 0.0
        self.closed, self.left = False, False
        self.process = os.getpid()
        self.clock = ClockComparison()

    def __str__(self) -> str:
        chosen = f", filter {self.filter.text!r}" if self.filter else ""
        return f"{self.id} to {self.name!r}, max_backlog {self.max_backlog}{chosen}"

    @property
    def name(self) -> str:
        """The queue, or the regular expression of queues."""
        return self.spec.name

    @property
    def asked(self) -> int:
        """The backlog asked for."""
        return self.spec.asked

    @property
    def filter(self) -> Expression | None:
        """Filter of its messages; None: all."""
        return self.spec.filter

    def learn_backlog(self, max_backlog: int) -> None:
        """Note the effective backlog that the server has answered to what was asked for."""
        self.max_backlog, self._asked_at = max_backlog, time.monotonic()

    def follow_backlog(self, max_backlog: int, sent: float) -> None:
        """Note the effective backlog that the answer to a sign of life has: a queue may have another limit now.

        Args:
            max_backlog: the effective one.
            sent: when the sign of life was sent, by the monotonic clock.
        """
        if sent > self._asked_at:
            self.max_backlog = max_backlog

    def check_open(self) -> None:
        """Refuse what comes after the end; raises `Closed`."""
        if self.closed:
            raise closed("this subscription", self.process)

    def check_process(self) -> None:
        """Refuse another process than the one that subscribed; raises `Closed`."""
        if was_inherited(self.process):
            raise closed("this subscription", self.process)

    def spec_with(
        self, name: str | None, asked: int | None, text: str | EllipsisType | None
    ) -> tuple[str, int, str | None]:
        """Return the request with the given values in place of the former ones."""
        former = self.filter.text if self.filter else None
        return (
            self.name if name is None else name,
            self.asked if asked is None else asked,
            former if isinstance(text, EllipsisType) else text,
        )

    @with_suggestions("queue", explain=explain_no_queue)
    async def register(self) -> None:
        """Subscribe, or subscribe again after the subscription was lost.

        Raises:
            UnknownQueue: the name is no queue's; the text says what it is instead.
            TooManyFilters: of the queue's subscriptions.
            DefinitionError: the name is neither a name nor a regular expression.
        """
        sent = 0.0

        def subscribe(request: SubscribeRequest) -> Call[SubscribeReply]:
            nonlocal sent
            sent = time.monotonic()
            return subscription_calls.subscribe(self.client, request, SESSION_TIMEOUT, has_bell=self.has_bell)

        made = await self.matched(self.spec, subscribe)
        self.clock.learn(sent, time.monotonic(), made.now)
        self.id = made.name
        self.learn_backlog(made.max_backlog)
        await self.tell_cut()

    async def tell_cut(self) -> None:
        """Log which queue allows less than was asked for; one more round trip, and only then."""
        # Of one with a bell it is the limit of each instance, and what was asked for is that of all together.
        if self.has_bell or self.max_backlog >= self.asked:
            return
        try:
            catalog = await catalog_calls.catalog()
        except AmpsqError:
            # What was asked for is done: this is only about words.
            return
        names = [name for name in catalog.queues if self.spec.covers(name)]
        queues = [read_stored_queue(catalog.queues[name]) for name in names[:_FEW]]
        cause = next((queue for queue in queues if queue.max_per_subscription_backlog == self.max_backlog), None)
        by = f"queue {cause.name!r}" if cause else "its queues"
        text = "max_backlog %d is cut to %d by max_per_subscription_backlog of %s"
        _log.warning(text, self.asked, self.max_backlog, by)

    async def matched(self, spec: SubscriptionSpec, ask: Callable[[SubscribeRequest], Call[T]]) -> T:
        """Ask with the queues that the name stands for, again when the catalog changed meanwhile."""
        tree = (spec.filter.id, spec.filter.json) if spec.filter else None
        answer: T
        if is_name(spec.name):
            request = SubscribeRequest(spec.asked, tree, "", [spec.name], None)
            try:
                answer = await ask(request)
            except UnknownQueue:
                if not (await make_queue(spec.name)):
                    raise
                answer = await ask(request)
            return answer
        for _ in range(_RACES):
            catalog = await catalog_calls.catalog()
            queues = [queue for queue in catalog.queues if spec.covers(queue)]
            try:
                answer = await ask(SubscribeRequest(spec.asked, tree, spec.name, queues, catalog.version))
            except CatalogChanged:
                continue
            if not queues:
                self._warn_of_topics(catalog)
            return answer
        raise CatalogChanged(reason=f"the catalog changed {_RACES} times while {spec.name!r} was subscribed")

    def _warn_of_topics(self, catalog: Catalog) -> None:
        """Log that a regular expression, which is of queues here, is in names of topics alone."""
        topic = next((topic for topic in sorted(catalog.topics) if self.spec.covers(topic)), None)
        if topic is not None:
            text = "no queue matches %r yet, and topics do, as %r: subscribe_topic(%r) follows them"
            _log.warning(text, self.spec.name, topic, self.spec.name)
