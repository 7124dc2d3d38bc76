"""Errors of redis-py turned into exceptions of ours, with the address and what to do."""

from __future__ import annotations

import re
import socket
import ssl
from typing import TYPE_CHECKING, Final, TypeVar

import redis

from ampsq.base.addresses import redacted
from ampsq.base.errors import (
    AmpsqError,
    AuthenticationFailed,
    ConnectionRefused,
    FormatMismatch,
    NameNotResolved,
    NoAnswer,
    NotAPrimary,
    NotPermitted,
    ScriptBug,
    ServerFull,
    StillLoading,
    StillUpgrading,
    TlsFailed,
    Unavailable,
    rejection,
)
from ampsq.protocol.functions import library
from ampsq.protocol.script_rights import ADMINISTERING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampsq.protocol.request import Call

__all__ = [
    "RetryPauses",
    "describe_failure",
    "is_slot_moving",
    "may_repeat",
    "translate_connect_error",
    "translate_error",
]

#: What redis-py says of a connection that was not made: to where, and why.
_CONNECTING = re.compile(r"Error \S+ connecting to (?P<place>\S+)\. (?P<why>.+)", re.DOTALL)
#: What says no more than that, of one place or of all that a name stands for.
_REFUSED: Final = ("Connection refused", "Connect call failed", "Multiple exceptions")
_LINE = re.compile(r"user_(script|function):(\d+)")
#: Where in which script a server refused: of no use to who may not do it.
_PLACE_IN_SCRIPT = re.compile(r"\s*script: (\w+, )?on @?user_(script|function):\d+\.?")
#: What redis-py raises while there is no server that could serve us. It takes the first word off the texts of those
#: that it knows, so that they cannot be told by it.
_AWAY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    OSError,
)
_AWAY_TEXTS = (
    *("MISCONF", "READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "BUSY ", "UNBLOCKED"),
    *("NOAUTH", "WRONGPASS"),
)
#: Refused before anything was done.
_NOT_DONE = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    redis.exceptions.BusyLoadingError,
    redis.AuthenticationError,
)
_NOT_DONE_TEXTS = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "NOAUTH", "WRONGPASS")
#: What a node of a cluster answers about a slot that is not, or not wholly, its own; `MovedError` is an `AskError`.
_MOVING: Final = (redis.exceptions.AskError, redis.exceptions.TryAgainError)
#: Seconds between two looks at whether a slot has been moved: its instance stands still meanwhile.
_MOVING_PAUSE: Final = 0.05
#: The answer to a command, and to one within a script.
_NOT_PERMITTED: Final = ("NOPERM", "The user executing the script can't", "ACL failure in script")
_ADVICE: Final = {
    ConnectionRefused: "refused, nobody listens there: start the server, or correct the address",
    NameNotResolved: "the name of the host is not known: correct it, or look after the name service",
    AuthenticationFailed: "correct the name and the password, as in redis://USER:PASSWORD@HOST",
    TlsFailed: (
        "rediss:// is for servers that speak TLS; name their authority with ?ssl_ca_certs=FILE, and where they want a "
        "certificate of yours, that with ssl_certfile=FILE&ssl_keyfile=FILE"
    ),
    NotAPrimary: "it is a replica: name the primary, all addresses in one list, or Sentinel or cluster that know it",
    StillLoading: "it still loads its data; later it answers",
    NoAnswer: "nothing came in time: it hangs, or the network drops what is sent",
}
#: The same, of a server that is there and takes nothing for now, by the first word of its answer. It takes it again by
#: itself, when what is advised was done.
_ADVICE_OF_WORDS: Final = {
    "MISCONF": "its disk is full or broken: make room there (df -h); until then it records nothing",
    "NOREPLICAS": "fewer replicas are connected than its min-replicas-to-write asks for: bring them back, or lower it",
    "BUSY ": "a script of somebody's holds it up: wait, or end that with SCRIPT KILL (a function: FUNCTION KILL)",
}
#: How a server that waits for TLS ends a connection that does not begin with it.
_ENDED: Final = ("Connection closed by server", "reset by peer", "Connection lost")
Away = TypeVar("Away", bound=Unavailable)


def translate_error(error: Exception, call: Call[object] | None, url: str) -> AmpsqError:
    """Turn what came instead of an answer into our exception."""
    if isinstance(error, AmpsqError):
        return error
    text = str(error)
    if isinstance(error, redis.OutOfMemoryError) or text.startswith("OOM"):
        return ServerFull(f"{redacted(url)} is out of memory: acknowledge or expire messages, or raise maxmemory")
    if isinstance(error, redis.exceptions.NoPermissionError) or text.startswith(_NOT_PERMITTED):
        doing = f" ({call.script.name})" if call is not None and call.script is not None else ""
        said = _PLACE_IN_SCRIPT.sub("", text)
        return NotPermitted(f"{redacted(url)}: {said}{doing}; {_advice_of_rights(call)}")
    if isinstance(error, _AWAY) or text.startswith(_AWAY_TEXTS):
        ours = _named(_kind_of(error), error, url)
        ours.may_have_run = not (isinstance(error, _NOT_DONE) or text.startswith(_NOT_DONE_TEXTS))
        return ours
    refused = rejection(text)
    if isinstance(refused, FormatMismatch) and refused.is_upgrading:
        waiting = StillUpgrading(f"{redacted(url)}: {refused}")
        waiting.may_have_run = False
        return waiting
    return refused or ScriptBug(_blame(text, call))


def _advice_of_rights(call: Call[object] | None) -> str:
    if call is not None and call.script is not None and call.script.name in ADMINISTERING:
        return (
            "nothing has changed: this is for an administrator, whose rules `ampsq acl admin` prints; name a user who "
            "has them"
        )
    return "allow it to the user of this address (`ampsq acl ROLE` prints the rules of a role), or name another one"


def translate_connect_error(error: Exception, url: str) -> AmpsqError:
    """Turn what came of connecting into our exception: no call was sent."""
    ours = translate_error(error, None, url)
    if isinstance(ours, ScriptBug):
        # Whatever a server answers to a greeting, it does not serve us.
        ours = Unavailable(f"{redacted(url)}: {ours}")
    if isinstance(ours, Unavailable):
        ours.may_have_run = False
        if type(ours) is Unavailable and url.startswith("redis://") and any(word in str(ours) for word in _ENDED):
            ours.args = (f"{ours}; a server that speaks TLS alone wants rediss://",)
        elif type(ours) is Unavailable and url.startswith("rediss://") and any(word in str(ours) for word in _ENDED):
            ours.args = (
                f"{ours}; a server that wants a certificate of yours takes ssl_certfile=FILE&ssl_keyfile=FILE",
            )
        elif type(ours) is NoAnswer and url.startswith("rediss://"):
            ours.args = (f"{ours}; or it does not speak TLS: then it is redis://",)
    return ours


def may_repeat(error: AmpsqError, call: Call[object]) -> bool:
    """Return whether a call may be sent again: nothing was done, or a second run changes nothing."""
    return isinstance(error, Unavailable) and (call.repeatable or not error.may_have_run)


def is_slot_moving(error: BaseException) -> bool:
    """Return whether a node refused because the slot is being moved: then waiting helps."""
    return isinstance(error, _MOVING) or isinstance(error.__cause__, _MOVING)


class RetryPauses:
    """Pauses before what failed is tried again: few milliseconds while its slot is being moved, else longer and longer.

    Attempts during a move count for none of the later pauses: once the slot is moved, waiting on would be in vain.

    Args:
        pause: gives the seconds after so many failures, from 1 on.
    """

    def __init__(self, pause: Callable[[int], float]) -> None:
        self._pause, self._failures = pause, 0

    def after(self, error: BaseException) -> float:
        """Return the seconds to wait after an error."""
        if any(isinstance(each, _MOVING) for each in _chain(error)):
            return _MOVING_PAUSE
        self._failures += 1
        return self._pause(self._failures)

    def begin_anew(self) -> None:
        """Forget the failures: something succeeded."""
        self._failures = 0


def describe_failure(shown: str, url: str, error: Exception) -> str:
    """Describe the failure at one of several addresses, shown as `shown` instead of the address in the error's text."""
    return f"{shown}: {str(error).removeprefix(f'{redacted(url)}: ')}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    # One that was kept and is raised again, while what came of it is handled, is among its own causes.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


#: Of what redis-py raised, or of the first word of an answer: what it is to us.
_BY_ANSWER: Final[tuple[tuple[type[Unavailable], tuple[type[Exception], ...], tuple[str, ...]], ...]] = (
    (AuthenticationFailed, (redis.AuthenticationError,), ("NOAUTH", "WRONGPASS")),
    (StillLoading, (redis.exceptions.BusyLoadingError,), ("LOADING",)),
    (
        NotAPrimary,
        (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError),
        ("READONLY", "MASTERDOWN", "UNBLOCKED"),
    ),
)
#: Of what lies behind a failed connection.
_BY_CAUSE: Final[tuple[tuple[type[Unavailable], tuple[type[BaseException], ...]], ...]] = (
    (TlsFailed, (ssl.SSLError,)),
    (NameNotResolved, (socket.gaierror,)),
    (ConnectionRefused, (ConnectionRefusedError, FileNotFoundError)),
)


def _kind_of(error: Exception) -> type[Unavailable]:
    text = str(error)
    for kind, classes, words in _BY_ANSWER:
        if isinstance(error, classes) or text.startswith(words):
            return kind
    chain = list(_chain(error))
    for kind, causes in _BY_CAUSE:
        if any(isinstance(cause, causes) for cause in chain):
            return kind
    return NoAnswer if isinstance(error, (redis.TimeoutError, TimeoutError)) else Unavailable


def _named(kind: type[Away], error: Exception, url: str) -> Away:
    if isinstance(error, _MOVING):
        where = f" to {error.node_addr[0]}:{error.node_addr[1]}" if isinstance(error, redis.exceptions.AskError) else ""
        return kind(f"{redacted(url)}: its slot is being moved{where}; waiting helps")
    text = _without_place(str(error), url).rstrip(".") or type(error).__name__
    if kind is ConnectionRefused and text.startswith(_REFUSED):
        return kind(f"{redacted(url)}: {_ADVICE[kind]}")
    advice = _ADVICE.get(kind) or next((_ADVICE_OF_WORDS[w] for w in _ADVICE_OF_WORDS if text.startswith(w)), None)
    return kind(f"{redacted(url)}: {text}; {advice}" if advice else f"{redacted(url)}: {text}")


def _without_place(text: str, url: str) -> str:
    """A text that names the one place again that the address in front of it names."""
    said = _CONNECTING.fullmatch(text)
    if said is None or "," in url or url.startswith(("sentinel://", "cluster://")):
        return text
    return said["why"] if said["place"].removesuffix(":6379") in url.replace("[", "").replace("]", "") else text


def _blame(text: str, call: Call[object] | None) -> str:
    """The error with the Lua file and line that it came from, as far as they are known."""
    if call is None:
        return text
    if call.script is None:
        return f"{call.arguments[0]!r}: {text}"
    line = _LINE.search(text)
    if line is None:
        return f"{call.script.name}: {text}"
    ran = library() if line[1] == "function" else call.script
    return f"{ran.place(int(line[2]))}: {text}"
