"""Requests as values, and client code as coroutines that await them: what is shared by all ways of waiting.

A `Call` says what to run, whether repeating it is harmless, and how to read the reply. A `Flow` is a coroutine that
awaits calls; `ampsq.transport.store` runs it, synchronously or with asyncio. A flow awaits steps and other flows, and
nothing else: asyncio's objects mean nothing to the synchronous runner. So modules with flows do not import asyncio, and
asyncio code awaits a flow only through ``AsyncStore.run(flow)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Never, Protocol, Self, TypeAlias, TypeVar

from ampsq.base.errors import TooMuchToRead, Unavailable, UnknownTopic
from ampsq.protocol import scripts
from ampsq.protocol.replies import number

if TYPE_CHECKING:
    from redis.typing import EncodableT

__all__ = [
    "AnyPipeline",
    "Call",
    "CallParts",
    "Collect",
    "Flow",
    "ForeignStep",
    "PackedWords",
    "Pause",
    "Post",
    "Reader",
    "Step",
    "ask",
    "command",
    "run_in_parts",
    "script_call",
]

T = TypeVar("T")
_T_co = TypeVar("_T_co", covariant=True)
#: Reads a reply. It says itself of what that is made, as its script answers; nobody else knows, or may call it with
#: anything but the reply to its own call.
Reader: TypeAlias = Callable[[Never], T]
_NOT_RUN: Final = "a flow was awaited by an event loop; write `await store.run(flow)`, which sends its calls"


class ForeignStep(TypeError):
    """A flow awaited an object that is none of the steps; raised where it was awaited."""

    def __init__(self, step: object) -> None:
        super().__init__(
            f"a flow awaited {type(step).__name__}, which no runner of flows can answer; allowed: Call, Post, Collect, "
            "Pause and other flows; asyncio's objects belong into asyncio's own code"
        )


class _Awaited:
    """An object that a flow may await: its runner is given the object itself and answers it."""

    __slots__ = ()

    def __await__(self) -> Generator[Self, object, object]:
        try:
            return (yield self)
        except RuntimeError as error:
            # No runner of ours sends one: it is asyncio's "Task got bad yield".
            raise TypeError(_NOT_RUN) from error


@dataclass(frozen=True, slots=True)
class CallParts(Generic[T]):
    """The way to make a call in several, where the server has too much to read in one.

    Attributes:
        cut: gives calls that do the same one after the other, each with at most so many messages.
        join: makes one result of theirs.
    """

    cut: Callable[[int], list[Call[T]]]
    join: Callable[[list[T]], T]


class PackedWords(NamedTuple):
    """Words of a request as they travel, for who sends the same ones again and again.

    Attributes:
        number: how many.
        text: each with its length.
    """

    number: int
    text: bytes

    @classmethod
    def pack(cls, words: Sequence[EncodableT]) -> Self:
        """Pack words."""
        texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return cls(len(texts), b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in texts]))

    @classmethod
    def join(cls, parts: Sequence[PackedWords]) -> Self:
        """Make one of several, in their order."""
        return cls(sum(part.number for part in parts), b"".join([part.text for part in parts]))


@dataclass(slots=True)
class Call(_Awaited, Generic[_T_co]):
    """One request.

    Attributes:
        script: the script to run, or None for a plain command.
        arguments: what follows the key, or the whole command.
        read: turns the raw reply into what the caller wants.
        repeatable: a second run is harmless, so a lost reply is answered by asking again.
        blocks: seconds that the server may hold the answer back.
        patience: seconds for which it is repeated, where that is less than what the client has for others.
        repeated: set when it was in fact sent more than once: an earlier run may have taken effect.
        parts: how it is made in several; None: it cannot be.
        is_sent_ahead: False: it may be refused as too much to read, so that nothing is sent behind it before its reply.
        key: of another instance of the server, which its script works on; "" for the one that it is sent to.
        is_keyless: its arguments name the instances that its script works on, and it is sent without a key: a node of a
            cluster runs such a script whatever slots it serves.
        packed: more arguments of its script, behind the others, as they travel.
    """

    script: scripts.Script | None
    arguments: Sequence[EncodableT]
    read: Reader[_T_co]
    repeatable: bool = False
    blocks: float = 0.0
    patience: float = math.inf
    repeated: bool = False
    parts: CallParts[_T_co] | None = None
    is_sent_ahead: bool = True
    key: str = ""
    is_keyless: bool = False
    packed: PackedWords | None = None

    @property
    def only_reads(self) -> bool:
        """Return whether it may run before a call that was sent earlier: a script that writes nothing, or a command."""
        return self.repeatable if self.script is None else self.script.only_reads

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Self, object, _T_co]: ...


class AnyPipeline(Protocol):
    """A pipeline, synchronous or asyncio's, as flows see it: they hand it to the runner, which knows which it is."""

    @property
    def open_calls(self) -> int:
        """Calls that were posted and whose replies were not collected."""

    def post(self, call: Call[object]) -> object:
        """Send a call, without waiting for its reply."""

    def post_all(self, calls: Sequence[Call[object]]) -> object:
        """Send several calls, in one write where that is possible, without waiting for their replies."""

    def collect(self) -> object:
        """Read the reply of the earliest call."""


@dataclass(frozen=True, slots=True)
class Post(_Awaited):
    """A flow's request to send a call now and to read its reply later, by `Collect`.

    Attributes:
        pipeline: on which it is sent.
        call: the call.
        behind: another one that is sent behind it, in one write, and collected after it; None: none is.
    """

    pipeline: AnyPipeline
    call: Call[object]
    behind: Call[object] | None = None


@dataclass(frozen=True, slots=True)
class Collect(_Awaited, Generic[T]):
    """A flow's request for the reply of the earliest call that was posted on a pipeline.

    Whoever awaits it knows what it posted, and so says the type of the reply.
    """

    pipeline: AnyPipeline

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Self, object, T]: ...


@dataclass(frozen=True, slots=True)
class Pause(_Awaited):
    """A flow's request to go on later, in so many seconds."""

    seconds: float


Step = Call[object] | Post | Collect[object] | Pause
#: What client code is made of: it awaits steps and returns a value.
Flow = Coroutine[Step, object, T]


async def ask(pipeline: AnyPipeline, call: Call[T]) -> T:
    """Run a call on a pipeline that runs nothing else meanwhile."""
    await Post(pipeline, call)
    reply: T = await Collect(pipeline)
    return reply


async def run_in_parts(call: Call[T], refusal: TooMuchToRead) -> T:
    """Make a call in several, in their order, after it was refused since the server has too much to read in one.

    Raises:
        TooMuchToRead: it cannot be made in several.
        Unavailable: `may_have_run` where parts of it have.
    """
    if call.parts is None:
        raise refusal
    done: list[T] = []
    for part in call.parts.cut(number(refusal.detail["read"])):
        try:
            done.append(await part)
        except Unavailable as error:
            error.may_have_run = error.may_have_run or bool(done)
            raise
        except UnknownTopic as error:
            if not done:
                raise
            # Whoever makes a topic that is not there, and repeats the call, would do twice what is done.
            raise Unavailable(f"the topic was removed when a part of this call had run: {error}") from error
        call.repeated = call.repeated or part.repeated
    return call.parts.join(done)


def script_call(
    name: str,
    arguments: Sequence[EncodableT],
    read: Reader[T],
    *,
    repeatable: bool = False,
) -> Call[T]:
    """Ask for one script; `arguments` are those of its head, in order."""
    return Call(scripts.script(name), arguments, read, repeatable)


def command(
    arguments: Sequence[EncodableT], read: Reader[T], *, blocks: float = 0.0, patience: float = math.inf
) -> Call[T]:
    """Ask for one plain command that only reads, or that a second run does not change."""
    return Call(None, arguments, read, repeatable=True, blocks=blocks, patience=patience)
