"""Print the functions and files that a message runs through: ``python tests/house/call_path.py``.

A client and a plain queue work on a server of their own. Everything is done once before, so that scripts are loaded,
connections stand and models are built; then each operation is traced once, in the state that it has in a loop of a
consumer. Only the thread that calls is traced: a plain publish, a get and an acknowledgement run there alone. The
thread that shows that the client lives works beside them, by the clock, and belongs to no message.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import click

import ampsq
from ampsq.base.errors import Unavailable
from ampsq.bench.server import private_server
from ampsq.bench.setup import keep_functions_at
from ampsq.client.async_client import AsyncClient
from ampsq.client.client import Client
from ampsq.definitions.queue import Queue

T = TypeVar("T")
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, FrameType

__all__ = [
    "OPERATIONS",
    "PathFunction",
    "as_json",
    "as_markdown",
    "as_text",
    "async_call_paths",
    "call_paths",
    "numbers",
]

#: A function's file and its name.
_Identity: TypeAlias = tuple[str, str]
_PACKAGE: Final = Path(ampsq.__file__).parent
_TOPIC: Final = "orders"
_QUEUE: Final = Queue(name="work", underlying_topic=_TOPIC, lease_period="60s")
#: Acknowledgements are to wait for the next call of the consumer's, not to be sent by the thread beside it.
_ACK_TIMEOUT: Final = "60s"
#: Messages that are published, taken and acknowledged before anything is traced.
_WARMING: Final = 12

#: What is traced, by name: the calls, and what else is to be known of them.
OPERATIONS: Final = {
    "publish": ("client.publish(topic, data)", ""),
    "get": ("subscription.get()", "which carries the acknowledgement of the message before"),
    "ack": ("message.ack(); subscription.flush()", "which sends it at once"),
}
#: What a consumer's loop runs through: what both have in common counts once.
_BOTH: Final = "get and ack"


@dataclass(frozen=True, slots=True)
class PathFunction:
    """One function of a path, where it was called first.

    Attributes:
        file: its file, beginning with the package's name.
        name: its name, with those of its class and of the functions around it.
        caller: the position in the path of the function of ours that called it; None: the operation begins here.
        depth: how many of ours stand above it.
    """

    file: str
    name: str
    caller: int | None
    depth: int

    @property
    def summary(self) -> str:
        """The first line of its docstring, of a constructor that of its class; empty without one."""
        return _summaries(self.file).get(self.name, "")


@dataclass(slots=True)
class _Recorder:
    """A profile function that notes each function of ours when it is called first."""

    path: list[PathFunction] = field(default_factory=list)
    found: dict[_Identity, int] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        known = _identity(frame.f_code) if event == "call" else None
        if known is None or known in self.found:
            return
        caller = self._caller(frame.f_back)
        depth = 0 if caller is None else self.path[caller].depth + 1
        self.found[known] = len(self.path)
        self.path.append(PathFunction(*known, caller, depth))

    def _caller(self, frame: FrameType | None) -> int | None:
        while frame is not None:
            known = _identity(frame.f_code)
            if known in self.found:
                return self.found[known]
            frame = frame.f_back
        return None


@cache
def _identity(code: CodeType) -> _Identity | None:
    """Return file and name of a function of ours, and None of another one's.

    Lambdas and comprehensions are their owner; what is generated, as by dataclasses, has no file.
    """
    path = Path(code.co_filename)
    if not path.is_relative_to(_PACKAGE):
        return None
    names = [name for name in code.co_qualname.split(".") if name != "<locals>"]
    while names and names[-1].startswith("<"):
        names.pop()
    return (f"ampsq/{path.relative_to(_PACKAGE).as_posix()}", ".".join(names)) if names else None


@cache
def _summaries(file: str) -> dict[str, str]:
    """Read the first lines of the docstrings of a file, by names as `PathFunction` has them."""
    found: dict[str, str] = {}

    def walk(node: ast.AST, around: tuple[str, ...], told: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inside = (*around, child.name)
                summary = (ast.get_docstring(child) or "").partition("\n")[0]
                found[".".join(inside)] = summary or (told if child.name == "__init__" else "")
                walk(child, inside, summary)
            else:
                walk(child, around, told)

    walk(ast.parse((_PACKAGE.parent / file).read_text(encoding="utf-8")), (), "")
    return found


@contextmanager
def _recorded(paths: dict[str, list[PathFunction]], operation: str) -> Iterator[None]:
    """Trace what this thread does in the block."""
    recorder, former = _Recorder(), sys.getprofile()
    # What the collector ends meanwhile is no part of the path.
    gc.disable()
    sys.setprofile(recorder)
    try:
        yield
    finally:
        sys.setprofile(former)
        gc.enable()
    paths[operation] = recorder.path


def call_paths(url: str, instance: str) -> dict[str, list[PathFunction]]:
    """Trace each of `OPERATIONS` with a `Client`; gives its functions in the order of their first calls."""
    paths: dict[str, list[PathFunction]] = {}
    with Client(url, instance=instance, ack_timeout=_ACK_TIMEOUT) as client:
        client.apply(_QUEUE)
        with client.subscribe(_QUEUE.name) as messages:
            for number in range(_WARMING):
                client.publish(_TOPIC, {"id": number})
                _given(messages.get()).ack()
                # The last one's acknowledgement is left for the call that is traced.
                if number < _WARMING - 1:
                    messages.flush()
            with _recorded(paths, "publish"):
                client.publish(_TOPIC, {"id": _WARMING})
            with _recorded(paths, "get"):
                message = messages.get()
            with _recorded(paths, "ack"):
                _given(message).ack()
                messages.flush()
    return paths


async def async_call_paths(url: str, instance: str) -> dict[str, list[PathFunction]]:
    """Trace the same with an `AsyncClient`."""
    paths: dict[str, list[PathFunction]] = {}
    async with AsyncClient(url, instance=instance, ack_timeout=_ACK_TIMEOUT) as client:
        await client.apply(_QUEUE)
        async with await client.subscribe(_QUEUE.name) as messages:
            for number in range(_WARMING):
                await client.publish(_TOPIC, {"id": number})
                await _given(await messages.get()).ack()
                if number < _WARMING - 1:
                    await messages.flush()
            with _recorded(paths, "publish"):
                await client.publish(_TOPIC, {"id": _WARMING})
            with _recorded(paths, "get"):
                message = await messages.get()
            with _recorded(paths, "ack"):
                await _given(message).ack()
                await messages.flush()
    return paths


def _given(message: T | None) -> T:
    if message is None:
        raise Unavailable("the message that was published did not come")
    return message


def numbers(paths: Mapping[str, Sequence[PathFunction]]) -> dict[str, dict[str, int]]:
    """Count the functions and files of each operation, and of a consumer's loop, in which common ones count once."""
    found = {operation: _counted(path) for operation, path in paths.items()}
    if {"get", "ack"} <= paths.keys():
        found[_BOTH] = _counted([*paths["get"], *paths["ack"]])
    return found


def _counted(path: Sequence[PathFunction]) -> dict[str, int]:
    functions = {(each.file, each.name) for each in path}
    return {"functions": len(functions), "files": len({file for file, _ in functions})}


def as_json(paths: Mapping[str, Sequence[PathFunction]]) -> dict[str, object]:
    """Return the numbers of each operation, and its functions in the order of their first calls."""
    listed = {
        operation: {"path": [{**asdict(each), "summary": each.summary} for each in path]}
        for operation, path in paths.items()
    }
    return {operation: {**counted, **listed.get(operation, {})} for operation, counted in numbers(paths).items()}


def as_text(paths: Mapping[str, Sequence[PathFunction]]) -> Iterator[str]:
    """Return lines: of each operation its numbers, and each function below the one that called it first."""
    for operation, counted in numbers(paths).items():
        yield _told(operation, counted)
        if operation in paths:
            yield from (f"  {line}" for line in _tree(paths[operation], with_summaries=False))
        yield ""


def as_markdown(paths: Mapping[str, Sequence[PathFunction]]) -> Iterator[str]:
    """Return the same as lines of Markdown, with the first line of each function's docstring."""
    for operation, counted in numbers(paths).items():
        yield f"{_told(operation, counted, mark='`')}."
        yield ""
        if operation in paths:
            yield from ("```text", *_tree(paths[operation], with_summaries=True), "```", "")


def _told(operation: str, counted: Mapping[str, int], mark: str = "") -> str:
    if operation in OPERATIONS:
        calls, why = OPERATIONS[operation]
        words = [operation, f"{mark}{calls}{mark}", *([why] if why else [])]
    else:
        words = [f"{operation} together"]
    return f"{', '.join(words)}: {counted['functions']} functions in {counted['files']} files"


def _tree(path: Sequence[PathFunction], *, with_summaries: bool) -> list[str]:
    """Return a line for each function, below the one that called it first."""
    rows = [("  " * each.depth + each.name, each.file, each.summary) for each in _below(path, None)]
    names, files = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [
        f"{name:<{names}}  {file:<{files}}  {summary if with_summaries else ''}".rstrip()
        for name, file, summary in rows
    ]


def _below(path: Sequence[PathFunction], caller: int | None) -> Iterator[PathFunction]:
    for number, function in enumerate(path):
        if function.caller == caller:
            yield function
            yield from _below(path, number)


@click.command(
    epilog="\b\nExamples:\n  python tests/house/call_path.py\n  python tests/house/call_path.py get ack --asyncio"
)
@click.argument("operations", nargs=-1, type=click.Choice(list(OPERATIONS)))
@click.option("--asyncio", "awaited", is_flag=True, help="Those of `AsyncClient`; default `Client`.")
@click.option(
    "--markdown", "form", flag_value="markdown", help="Lists for docs/design.md, with docstrings' first lines."
)
@click.option("--json", "form", flag_value="json", help="Everything, in the order of first calls.")
def call_path(operations: tuple[str, ...], *, awaited: bool, form: str | None) -> None:
    """Print the functions and files of ampsq that OPERATIONS run through: publish, get and ack, or some of them.

    A function counts once, where it is called first. What Python generates does not count, and lambdas and
    comprehensions are part of the function that they stand in. A server is started, and ended afterwards.
    """
    with private_server() as url:
        keep_functions_at(url)
        paths = asyncio.run(async_call_paths(url, "call-path")) if awaited else call_paths(url, "call-path")
    chosen = {name: path for name, path in paths.items() if name in (operations or OPERATIONS)}
    if form == "json":
        click.echo(json.dumps(as_json(chosen), indent=1))
        return
    text = "\n".join(as_markdown(chosen) if form == "markdown" else as_text(chosen))
    click.echo(text.rstrip())


if __name__ == "__main__":
    call_path(prog_name="python tests/house/call_path.py")
