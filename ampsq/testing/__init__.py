"""The test kit: an instance whose time belongs to the test, and messages for unit tests of handlers.

`Client("memory://")` needs nothing of this. The package's extra is ``testing``; docs/testing-your-handlers.md shows how
it is used, with the fixtures that pytest finds by itself. Names are imported when they are first used, since pytest
loads this package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampsq.testing.handler_message import HandlerMessage, message
    from ampsq.testing.instance import HeldInstance as Instance

__all__ = ["HandlerMessage", "Instance", "message"]

_HOMES = {
    "Instance": "instance.HeldInstance",
    "HandlerMessage": "handler_message.HandlerMessage",
    "message": "handler_message.message",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ampsq.testing' has no attribute {name!r}")
    module, _, what = home.partition(".")
    return getattr(import_module(f"ampsq.testing.{module}"), what)
