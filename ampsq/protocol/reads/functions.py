"""Server functions: which there are, with their texts; loading them and taking them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.functions import PREFIX
from ampsq.protocol.replies import plain
from ampsq.protocol.request import Call, command

if TYPE_CHECKING:
    from ampsq.protocol.functions import ServerLibrary

__all__ = [
    "LoadedLibrary",
    "delete_library",
    "has_users",
    "list_libraries",
    "load_library",
    "may_list_users",
    "read_library",
    "text_of",
]

_MAY_LIST_USERS: Final = "return redis.acl_check_cmd('ACL', 'LIST') and 1 or 0"


class LoadedLibrary(NamedTuple):
    """A library of ours at a server.

    Attributes:
        name: of the library.
        text: what was loaded.
    """

    name: str
    text: bytes


def read_library(name: str) -> Call[object]:
    """Read a library with its text; `text_of` gives it."""
    return command(_question(name), plain)


def _question(name: str) -> list[str]:
    return ["FUNCTION", "LIST", "LIBRARYNAME", name, "WITHCODE"]


def text_of(reply: object) -> bytes | None:
    """Return the text of the one library that was asked for; None: the server does not have it."""
    found = _libraries(reply)
    return found[0].text if found else None


def list_libraries() -> Call[list[LoadedLibrary]]:
    """List our libraries, of whatever release, with their texts."""
    return command(_question(f"{PREFIX}*"), _libraries)


def load_library(library: ServerLibrary, *, replace: bool) -> Call[bool]:
    """Load a library; with `replace` in the place of one that has its name, without it that is an error."""
    words = ["FUNCTION", "LOAD", *(["REPLACE"] if replace else []), library.source]
    # Once more, it would be there already.
    return Call(None, words, bool, repeatable=replace)


def delete_library(name: str) -> Call[bool]:
    """Take a library away."""
    return Call(None, ["FUNCTION", "DELETE", name], bool)


def may_list_users() -> Call[bool]:
    """Ask whether this user may list users; asked so, since a server notes each call that it refuses."""
    return command(["EVAL", _MAY_LIST_USERS, 0], bool)


def has_users() -> Call[bool]:
    """Ask whether the server has users beside the default one, or that is not allowed everything.

    Refused with `NotPermitted` where this user may not ask, see `may_list_users`: then there are some.
    """
    return command(["ACL", "LIST"], _has_users)


def _has_users(reply: list[bytes]) -> bool:
    rules = [line.split() for line in reply]
    return any(words[1] != b"default" or b"+@all" not in words or b"~*" not in words for words in rules)


def _libraries(reply: object) -> list[LoadedLibrary]:
    if not isinstance(reply, list):
        return []
    libraries = [dict(zip(each[::2], each[1::2], strict=True)) for each in reply if isinstance(each, list)]
    return [LoadedLibrary(each[b"library_name"].decode(), each[b"library_code"]) for each in libraries]
