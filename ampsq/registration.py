"""What a subscription asks for, and how the instance is told: queues by name or pattern, backlog, filter."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Final, TypeVar

from ampsq import calls
from ampsq.calls import Wish
from ampsq.errors import CatalogChanged, DefinitionError
from ampsq.expressions import parse
from ampsq.values import is_name, pattern_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.expressions import Expression
    from ampsq.flow import Call, Flow

__all__ = ["PATIENCE", "Registration", "parse_filter"]

T = TypeVar("T")

#: Milliseconds without a sign of life after which a subscription is gone, though its connection seems to stand.
PATIENCE: Final = 30_000
#: Catalog changes between reading and writing; more than this is not chance.
_RACES: Final = 50


def parse_filter(text: str | None) -> Expression | None:
    """Read a subscription's filter.

    Raises:
        ExpressionError: it is wrong, or its answer would change with time.
    """
    if text is not None and not isinstance(text, str):
        raise DefinitionError(f"filter={shown(text)}: allowed is a text, as in '/price > 10'")
    return parse(text, "filter") if text is not None else None


class Registration:
    """One subscription's wish and its name on the instance.

    Args:
        client: unlike in every other subscription: asked again after a lost reply, the one that was made is answered.

    Attributes:
        id: the subscription's name on the instance; another one after it had to be made again.
        max_backlog: the effective backlog: the least of what was asked and of the queues' limits.
        name: a queue, or a regular expression of queues.
        asked: the backlog asked for.
        filter: which messages; None: all.
    """

    name: str
    asked: int
    filter: Expression | None

    def __init__(self, client: str) -> None:
        self.client = client
        self.id = ""
        self.max_backlog = 0

    def wants(self, name: str, asked: int, text: str | None) -> None:
        """Note what is asked for: queues, backlog, filter.

        Raises:
            DefinitionError: the backlog is no whole number. ExpressionError: the filter is wrong.
        """
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise DefinitionError(f"max_backlog={asked!r}: allowed is a whole number, 0 or more")
        self.filter = parse_filter(text)
        self.name, self.asked = name, asked

    def wish_with(
        self, name: str | None, asked: int | None, text: str | EllipsisType | None
    ) -> tuple[str, int, str | None]:
        """What is asked for, with what is given in place of what was."""
        former = self.filter.text if self.filter else None
        return (
            self.name if name is None else name,
            self.asked if asked is None else asked,
            former if isinstance(text, EllipsisType) else text,
        )

    def register(self) -> Flow[None]:
        """Subscribe, or subscribe again after the subscription was lost.

        Raises:
            UnknownQueue: the name is no queue's. TooManyFilters: of the queue's subscriptions.
            DefinitionError: the name is neither a name nor a regular expression.
        """

        def subscribe(wish: Wish) -> Call[tuple[str, int]]:
            return calls.subscribe(self.client, wish, PATIENCE)

        self.id, self.max_backlog = yield from self.matched(subscribe)

    def matched(self, ask: Callable[[Wish], Call[T]]) -> Flow[T]:
        """Ask with the queues that the name stands for, again when the catalog changed meanwhile."""
        tree = (self.filter.id, self.filter.json) if self.filter else None
        answer: T
        if is_name(self.name):
            answer = yield ask(Wish(self.asked, tree, "", [self.name], None))
            return answer
        pattern = pattern_of(self.name)
        for _ in range(_RACES):
            catalog = yield calls.catalog()
            queues = [queue for queue in catalog.queues if pattern.search(queue)]
            try:
                answer = yield ask(Wish(self.asked, tree, self.name, queues, catalog.version))
            except CatalogChanged:
                continue
            return answer
        raise CatalogChanged(reason=f"the catalog changed {_RACES} times while {self.name!r} was subscribed")
