"""Entrance of all requests: their users, bounds and deadlines; and the requests that are answered at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from ampsq.base.errors import DefinitionError
from ampsq.base.values import is_name, shown
from ampsq.gateway.json_messages import Problem, dumped, loaded, message_frame, problem_of
from ampsq.gateway.open_streams import OpenStreams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.requests import HTTPConnection, Request

    from ampsq.gateway.client import GatewayClient
    from ampsq.gateway.open_streams import OpenStream
    from ampsq.gateway.rules import GatewayRules
    from ampsq.gateway.users import Users

__all__ = ["RequestHandler", "asked", "name_of", "number_of", "refusal"]

_log = logging.getLogger("ampsq.gateway")
#: Statuses of requests that may not have been read to their end.
_UNREAD: Final = (413, 429, 504)
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="ampsq", charset="UTF-8"'}


class RequestHandler:
    """The entrance of all requests: it finds the user, checks that they may ask, and bounds the time.

    Args:
        client: connected while anything is served.
        rules: who may do what.
        users: the same users, asked.
    """

    def __init__(self, client: GatewayClient, rules: GatewayRules, users: Users) -> None:
        self.client, self.rules, self._users = client, rules, users
        self.streams = OpenStreams()
        # Of each user: requests that are answered, and their bytes.
        self._asking: Counter[str] = Counter()
        self._pending: Counter[str] = Counter()

    async def user(self, connection: HTTPConnection) -> str:
        """Return the user of a request.

        Raises:
            Problem: nobody who is known.
        """
        address = connection.client.host if connection.client is not None else ""
        found = await self._users.who(connection.headers.get("authorization", ""), address)
        if found is None:
            raise Problem(401, "NotAuthenticated", "name and secret: Authorization: Basic, or Bearer NAME:SECRET")
        return found

    def adopt(self, rules: GatewayRules) -> None:
        """Go by these rules from here on; subscriptions that they do not allow end."""
        self.rules = rules
        self._users.adopt(rules.users)
        self.streams.review(rules)

    def stream(self, user: str) -> AbstractContextManager[OpenStream]:
        """Count a subscription while it lasts; see `OpenStreams.begin`."""
        return self.streams.begin(user, self.rules)

    async def answer(self, request: Request, do: Callable[[str, Request], Awaitable[dict[str, Any]]]) -> Response:
        """Answer a request: what is done for the user, or what is wrong."""
        try:
            async with asyncio.timeout(self.rules.bounds.request_timeout):
                user = await self.user(request)
                with self._counted(user, request):
                    return Response(dumped(await do(user, request)), media_type="application/json")
        except asyncio.CancelledError:
            # The gateway ends, and has waited as long as it does.
            return refusal(Problem(503, "Closed", "the gateway ends; what was published may have been recorded", 1))
        except ClientDisconnect:
            # Nobody is there who could read it.
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001  (whatever it is, somebody waits for an answer)
            return refusal(error)

    async def sow(self, user: str, request: Request) -> dict[str, Any]:
        """Query records, rows, or what is available in a queue."""
        given = asked(request, {"name", "filter", "order_by", "top_n", "skip_n"})
        name, most = name_of(given.get("name"), "name"), self.rules.bounds.max_answer
        text = self.rules.entitlements.to_read(user, name, given.get("filter"))
        top = number_of(given, "top_n", most, least=1)
        found = await self.client.sow(
            name, text, order_by=given.get("order_by", ()), top_n=top, skip_n=number_of(given, "skip_n", None)
        )
        return {"messages": [{**message_frame(each), "deliveries": each.deliveries} for each in found]}

    async def object_of(self, user: str, request: Request, allowed: frozenset[str]) -> dict[str, Any]:
        """The object that a request brings.

        Raises:
            Problem: it is too large, or no JSON is meant. DefinitionError: it is none, or has what is not known.
        """
        # No form of another site's page can say that, so that a browser asks before it sends it.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Problem(415, "NotJson", "content-type: allowed is application/json")
        given = loaded(await self._body(user, request))
        if not isinstance(given, dict):
            raise DefinitionError(f"{shown(given)} was sent; allowed is an object with {', '.join(sorted(allowed))}")
        if unknown := given.keys() - allowed:
            raise DefinitionError(f"unknown element {shown(min(unknown))}; allowed are {', '.join(sorted(allowed))}")
        return given

    async def _body(self, user: str, request: Request) -> bytes:
        most, parts, size = self.rules.bounds.max_request_size, [], 0
        told = request.headers.get("content-length", "")
        too_large = Problem(413, "TooLarge", f"allowed are requests up to {most:,} bytes (max_request_size)")
        # What says how large it is, is not read at all.
        if told.isdigit() and int(told[:20]) > most:
            raise too_large
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            self._pending[user] += len(part)
            request.state.pending += len(part)
            if self._pending[user] > (room := self.rules.bounds.max_pending_size):
                text = f"{user} has requests of more than {room:,} bytes at once; allowed: {room:,} (max_pending_size)"
                raise Problem(429, "TooMuchAtOnce", text, 1)
            parts.append(part)
        return b"".join(parts)

    @contextmanager
    def _counted(self, user: str, request: Request) -> Iterator[None]:
        """Count a request, and what it brings, while it is answered."""
        most = self.rules.bounds.max_requests
        if self._asking[user] >= most:
            raise Problem(
                429, "TooManyRequests", f"{user} asks {most} times at once; allowed: {most} (max_requests)", 1
            )
        self._asking[user] += 1
        request.state.pending = 0
        try:
            yield
        finally:
            self._asking[user] -= 1
            self._pending[user] -= request.state.pending
            if not self._asking[user]:
                del self._asking[user], self._pending[user]


def refusal(error: Exception) -> Response:
    """The answer to a request that failed."""
    problem = problem_of(error)
    if problem.status >= 500:  # noqa: PLR2004 - what is our fault, or the server's
        _log.warning("a request failed: %s: %s", type(error).__name__, error, exc_info=problem.status == 500)  # noqa: PLR2004
    headers = dict(_CHALLENGE) if problem.status == 401 else {}  # noqa: PLR2004
    if problem.status in _UNREAD:
        # The rest of its body is not waited for.
        headers["connection"] = "close"
    if problem.after is not None:
        headers["retry-after"] = str(problem.after)
    return JSONResponse(problem.as_dict(), problem.status, headers)


def asked(connection: HTTPConnection, allowed: set[str]) -> dict[str, str]:
    """The parameters of an address.

    Raises:
        DefinitionError: one is unknown, or there twice.
    """
    given = connection.query_params.multi_items()
    names = [name for name, _ in given]
    for name in names:
        if name not in allowed or names.count(name) > 1:
            raise DefinitionError(f"parameter {shown(name)}: allowed, each once, are {', '.join(sorted(allowed))}")
    return dict(given)


def number_of(given: dict[str, str], name: str, most: int | None, *, least: int = 0, default: int | None = None) -> Any:
    """A whole number that was given, up to `most`, else `default`, or the most.

    Raises:
        DefinitionError: it is none.
    """
    text = given.get(name)
    if text is None:
        return most if default is None else default
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= (most or 10**9):
        raise DefinitionError(f"{name}={shown(text)}: allowed is a whole number from {least} to {most or 10**9}")
    return int(text)


def name_of(value: object, element: str) -> str:
    """A name that was given.

    Raises:
        DefinitionError: it is missing, or no name.
    """
    if value is None:
        raise DefinitionError(f"{element} is missing; allowed: a name, as in 'orders'")
    if not isinstance(value, str) or not is_name(value):
        raise DefinitionError(f"{element}: {shown(value)} is no name")
    return value
