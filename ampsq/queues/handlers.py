"""Functions that may be given as `on_message`, and how one is called that may be a plain function or is awaited."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_handler", "check_handler"]

T = TypeVar("T")


def check_handler(handler: object, *, awaits: bool) -> None:
    """Refuse what cannot handle a message; None is none.

    Args:
        handler: what was given as `on_message`.
        awaits: whether what it returns is awaited, as by the asyncio client.

    Raises:
        DefinitionError: nothing can call it, or nobody would await it.
    """
    if handler is None:
        return
    if not callable(handler):
        raise DefinitionError(
            f"on_message={shown(handler)}: allowed is a function that takes a message, as in on_message=handle"
        )
    _check_parameters(handler)
    is_awaited = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(handler.__call__)
    if is_awaited and not awaits:
        raise DefinitionError(
            f"on_message={shown(handler)} is a coroutine function, which nobody awaits here; allowed: a plain "
            "function, or the same with AsyncClient, which awaits it"
        )


def _check_parameters(handler: Callable[..., object]) -> None:
    """Refuse what cannot be called with one message; of what does not say its parameters nothing is known."""
    try:
        parameters = inspect.signature(handler)
    except (TypeError, ValueError):
        return
    try:
        parameters.bind(None)
    except TypeError as reason:
        raise DefinitionError(
            f"on_message={shown(handler)} cannot be called with one message: {reason}; allowed is a function that "
            "takes a message, as in on_message=handle"
        ) from None


async def call_handler(handler: Callable[[T], object], message: T) -> None:
    """Call a handler, and await what it returns where that can be awaited."""
    result = handler(message)
    if inspect.isawaitable(result):
        await result
