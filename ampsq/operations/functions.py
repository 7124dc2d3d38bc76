"""Loading the server functions of this release, and who may: an operator of the server, whose right that is.

Functions belong to a server and not to an instance. Whoever loads one has it run with the rights of all who call it, so
no role of an instance may. Where a server has no users, everybody may do everything, and a coordinator loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ampsq.base.errors import AmpsqError, NotPermitted, ScriptBug
from ampsq.protocol.functions import HOT, function_name, has_library_text, library, library_name
from ampsq.protocol.reads.functions import delete_library, has_users, list_libraries, load_library, may_list_users

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FunctionState", "functions_at", "keep_functions", "load_functions", "remove_others"]

#: ``here``: it has this release's text; ``replaced``: another text; ``missing``: it is not there; ``other``: it is of
#: another release, or of nobody that we know.
_State: TypeAlias = Literal["here", "replaced", "missing", "other"]
_EXISTS: Final = "already exists"


class FunctionState(NamedTuple):
    """A function of ours at a server.

    Attributes:
        name: of the function; of those of another release that of their library.
        verb: of the script that it is; "" of another release.
        state: ``here``, ``replaced``, ``missing`` or ``other``.
    """

    name: str
    verb: str
    state: _State


async def functions_at() -> list[FunctionState]:
    """Return this release's functions as they are at the server, then those of other releases.

    Raises:
        NotPermitted: this user may not list functions. ScriptBug: the server has none.
    """
    texts = dict(await list_libraries())
    text = texts.pop(library_name(), None)
    state: _State = "missing" if text is None else "here" if has_library_text(text) else "replaced"
    found = [FunctionState(function_name(verb), verb, state) for verb in HOT]
    return found + [FunctionState(name, "", "other") for name in sorted(texts)]


async def load_functions(*, again: bool = True) -> list[FunctionState]:
    """Load this release's functions where they are missing or were replaced; gives them as they were before.

    Args:
        again: False leaves another text under our name, which somebody who may do so put there.

    Raises:
        NotPermitted: this user may not load functions.
    """
    before = await functions_at()
    states = {each.state for each in before if each.verb}
    if "replaced" in states and again:
        await load_library(library(), replace=True)
    elif "missing" in states:
        try:
            await load_library(library(), replace=False)
        except ScriptBug as error:
            # Somebody else loaded them meanwhile; whoever calls one reads whether they are ours.
            if _EXISTS not in str(error):
                raise
    return before


async def remove_others() -> Sequence[str]:
    """Take the functions of other releases away; gives their names. Clients of those go on with EVALSHA.

    Raises:
        NotPermitted: this user may not delete functions.
    """
    others = [each.name for each in await functions_at() if each.state == "other"]
    for name in others:
        await delete_library(name)
    return others


async def keep_functions() -> bool:
    """Load the missing functions where the server has no users; gives whether it has them now.

    Raises:
        Unavailable: the server does not answer.
    """
    try:
        if all(each.state != "missing" for each in await functions_at()):
            return True
        if not await may_list_users() or await has_users():
            return False
    except (NotPermitted, ScriptBug):
        # A server that lets not everybody ask has users; and the one of `memory://` has no functions.
        return False
    try:
        await load_functions(again=False)
    except AmpsqError:
        # Its memory or its disk is full, or it has too few replicas: it takes no functions now; scripts do the same.
        return False
    return True
