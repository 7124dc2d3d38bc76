"""Finds the function or the app that ``ampsq worker`` is to run, and explains why there is none."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ampsq
from ampsq.base.errors import AmpsqError
from ampsq.client.typed_handlers import as_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

__all__ = ["find_app", "find_handler", "names_app"]

#: A module's name and a member's.
_NAMED: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def names_app(text: str) -> bool:
    """Ask whether a text has the form ``module:app``, and is no file's name."""
    return _NAMED.fullmatch(text) is not None and not Path(text).exists()


def find_app(text: str) -> ampsq.App:
    """Import the app that ``module:app`` names; the current folder comes first.

    Raises:
        click.ClickException: there is no such thing, or it is no app.
    """
    found = _find(text)
    if not isinstance(found, ampsq.App):
        raise click.ClickException(f"{text} is of type {type(found).__name__}; allowed is an ampsq.App")
    return found


def find_handler(text: str) -> Callable[..., Any] | ampsq.App:
    """Import the function or the app that ``module:name`` names; the current folder comes first.

    Raises:
        click.ClickException: there is no such thing, or it cannot be called with one message.
    """
    found = _find(text)
    if isinstance(found, ampsq.App):
        return found
    _check(found, text)
    return found  # type: ignore[no-any-return]


def _find(text: str) -> Any:
    module_name, _, path = text.partition(":")
    if not module_name or not path:
        meant = re.sub(r"\.(?=[^.]*$)", ":", text) if "." in text and ":" not in text else "tasks:handle"
        raise click.UsageError(f"{text!r}: allowed is MODULE:FUNCTION or MODULE:APP, as in {meant}")
    if module_name.endswith(".py") or "/" in module_name:
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"{text!r}: allowed is a module's name, not a file's; did you mean {meant}:{path}?")
    found: Any = _import(module_name)
    for name in path.split("."):
        found = _member(found, name, text)
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            files = (file.stem for file in Path().glob("*.py"))
            hint = _meant(name, files) or f"looked in {here} and in what is installed"
            raise click.ClickException(f"there is no module {error.name!r}; {hint}") from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> click.ClickException:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return click.ClickException(f"importing {name} failed: {type(error).__name__}: {error}{place}")


def _member(owner: Any, name: str, text: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        names = [
            name
            for name, value in vars(owner).items()
            if isinstance(value, ampsq.App)
            or (inspect.isroutine(value) and not name.startswith("_") and value.__module__ == owner.__name__)
        ]
        hint = _meant(name, names) or (f"it has {', '.join(names)}" if names else "it has no functions and no app")
        raise click.ClickException(f"{text}: {owner.__name__} has no {name!r}; {hint}") from None


def _meant(wrong: str, names: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(wrong, list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _check(found: Any, text: str) -> None:
    """Refuse what would fail at every message."""
    if not callable(found):
        raise click.ClickException(
            f"{text} is of type {type(found).__name__}; allowed is a function of one message, or an ampsq.App"
        )
    try:
        as_handler(found)
    except AmpsqError as error:
        raise click.ClickException(f"{text} cannot be called with one message: {error}") from None
