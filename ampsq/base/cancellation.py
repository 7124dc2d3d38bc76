"""Work of asyncio's tasks that a cancellation must not leave half done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Never, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["run_to_end"]

T = TypeVar("T")


async def run_to_end(work: Coroutine[object, Never, T]) -> T:
    """Await what must not be left half done: cancelled meanwhile, even again, it says so when the work is done."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None or task.cancelled():
        return task.result()
    # Else its exception would be one that nobody asked for.
    task.exception()
    raise cancelled
