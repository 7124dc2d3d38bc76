"""Scripts without one of their guards: a piece of their text is taken out when they are composed."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from ampsq.protocol import functions, scripts
from ampsq.transport import known_functions

if TYPE_CHECKING:
    from collections.abc import Callable


class Guard(NamedTuple):
    """One guard, and what stands in its place where it is missing.

    Attributes:
        file: of ``lua/``, without its ending; "" where no script has it.
        text: as it stands there, once.
        instead: what stands there without it.
        first: the seed from which on the simulation is asked whether it notices.
        scene: what notices instead, where chance would take too long: it raises where the guard is missing.
    """

    file: str = ""
    text: str = ""
    instead: str = ""
    first: int = 0
    scene: Callable[[Any], None] | None = None


@contextlib.contextmanager
def without(guard):
    """Compose scripts without a guard."""
    read = scripts._read.__wrapped__

    @functools.cache
    def read_without(path):
        file = read(path)
        if path != guard.file:
            return file
        source = scripts._folder().joinpath(*f"{path}.lua".split("/")).read_text()
        assert source.count(guard.text) == 1, f"lua/{path}.lua has {guard.text!r} {source.count(guard.text)} times"
        return scripts._parse(path, source.replace(guard.text, guard.instead))

    if not guard.file:
        yield
        return
    read_without(guard.file)
    _forget_texts()
    try:
        # What is released has the guard: scripts by their SHA1s, and a server's functions by the hash of their text.
        with (
            mock.patch.object(scripts, "_read", read_without),
            mock.patch.object(scripts, "_released", return_value={}),
            mock.patch.object(known_functions, "has_library_text", return_value=False),
        ):
            yield
    finally:
        _forget_texts()


def _forget_texts():
    """Compose scripts anew, and functions."""
    scripts.script.cache_clear()
    scripts._composed.cache_clear()
    functions.library.cache_clear()
