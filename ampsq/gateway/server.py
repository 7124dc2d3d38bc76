"""The gateway's server: a thread of the process that runs it, with a client of the instance for all who ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

from ampsq.base.addresses import is_host_of
from ampsq.base.errors import AmpsqError, DefinitionError, NotPermitted
from ampsq.base.values import shown
from ampsq.gateway.asyncapi import frames_document
from ampsq.gateway.client import GatewayClient
from ampsq.gateway.connections import LONGEST_ORDER, Requests, Sockets
from ampsq.gateway.json_messages import Problem
from ampsq.gateway.openapi import document
from ampsq.gateway.publish import Writing
from ampsq.gateway.requests import RequestHandler, refusal
from ampsq.gateway.rules_reload import RulesFile
from ampsq.gateway.server_probe import Probe
from ampsq.gateway.streams import Streams
from ampsq.gateway.users import Users

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.websockets import WebSocket

    from ampsq.gateway.rules import Bounds, GatewayRules

    Doing = Callable[[str, Request], Awaitable[dict[str, object]]]

__all__ = ["Gateway", "Tls", "parse_where"]

_log = logging.getLogger("ampsq.gateway")
_LAST_PORT: Final = 65_535
#: Seconds until it serves, that streams have to end and then connections, and until the thread is given up.
_BEGINS_WITHIN: Final = 30.0
_ENDS_WITHIN: Final = 2
_CONNECTIONS_END_WITHIN: Final = 1
_GIVEN_UP: Final = 3.2
#: Headers that say who asks a browser to ask, and whom it asks.
_COMPARED: Final = (b"origin", b"host")
#: Answer under any name: they say nothing but whether it works.
_PROBES: Final = ("/healthz", "/readyz")
_NOT_OURS: Final = (
    "This is not the host that the gateway answers to. Allowed: localhost, any IP address, the host that it listens "
    "on, and the names given with --host (of a coordinator --gateway-host)."
)
_NOT_SAME: Final = (
    "A page of another origin asked. Allowed: pages of the gateway's own, and programs that are no browsers."
)
_LOOPBACK: Final = ("127.", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates that encrypt the connections.

    Attributes:
        certificate: file with the certificate and those above it, PEM.
        key: file with its key.
        clients: file with the authorities of clients: then only who shows a certificate of theirs is let in (mTLS).
    """

    certificate: str
    key: str
    clients: str | None = None


def parse_where(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``HOST`` or ``:PORT``: the host is by default the loopback, the port a free one.

    Raises:
        DefinitionError: it is none of these.
    """
    host, mark, port = text.rpartition(":")
    if not mark or text.endswith("]"):
        host, port = text, "0"
    if not port.isdigit() or int(port) > _LAST_PORT:
        raise DefinitionError(f"{text!r}: allowed are HOST:PORT, HOST and :PORT, with a port up to {_LAST_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)


class _SameOrigin:
    """Refuses what a page of another site makes a browser ask, which may know the user's name and secret.

    A page whose site's name was made to point here (DNS rebinding) asks its own origin: that host is none of ours.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers") or ()
        origins, hosts = ([value.decode("latin-1") for name, value in headers if name == each] for each in _COMPARED)
        is_ours = len(hosts) == 1 and is_host_of(self._hosts, hosts[0])
        is_same = is_ours and all(urlsplit(origin).netloc in hosts for origin in origins)
        if is_same or scope["type"] == "lifespan" or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            reason = "another origin" if is_ours else "another host"
            await send({"type": "websocket.close", "code": 1008, "reason": reason})
        elif is_ours:
            await refusal(Problem(403, "OtherOrigin", _NOT_SAME))(scope, receive, send)
        else:
            await refusal(Problem(421, "OtherHost", _NOT_OURS))(scope, receive, send)


async def _refuse_address(request: Request, error: Exception) -> Response:
    """Refuse an address that is none, or a method that it does not have."""
    if not isinstance(error, HTTPException):
        raise error
    path, headers = shown(request.url.path), error.headers or {}
    if allowed := headers.get("Allow"):
        text = f"{request.method} {path}: allowed is {allowed}; /openapi.json has all requests"
        return JSONResponse(Problem(error.status_code, "UnknownMethod", text).as_dict(), error.status_code, headers)
    text = (
        f"{path} is no address of the gateway; /openapi.json has all requests, /asyncapi.json what goes over WebSockets"
    )
    return refusal(Problem(error.status_code, "UnknownAddress", text))


async def _may_serve(client: GatewayClient) -> None:
    """Refuse a user of the server who lacks what subscriptions need, before anybody connects.

    Raises:
        NotPermitted: what to do.
    """
    try:
        await client.check_rights()
    except NotPermitted as error:
        raise NotPermitted(
            f"{error}. A gateway needs a user with the rights of `ampsq acl gateway`; inside a coordinator, those of "
            "`ampsq acl coordinator --gateway`"
        ) from error


def _loaded(config: uvicorn.Config) -> uvicorn.Config:
    """Read the files of TLS now: what is wrong with them is for who named them, not for the thread that serves."""
    try:
        config.load()
    except ssl.SSLError as error:
        clients = f"; authorities {config.ssl_ca_certs}" if config.ssl_ca_certs else ""
        raise DefinitionError(
            f"TLS of certificate {config.ssl_certfile} and key {config.ssl_keyfile}{clients}: {error}; allowed: files "
            "in PEM, and the key without a password and of this certificate"
        ) from error
    return config


class _Encryption(TypedDict, total=False):
    """Options of uvicorn."""

    ssl_certfile: str
    ssl_keyfile: str
    ssl_ca_certs: str
    ssl_cert_reqs: int


class _Served(NamedTuple):
    """The parts that answer, once the gateway has begun."""

    desk: RequestHandler
    writing: Writing
    streams: Streams
    probe: Probe


class Gateway:
    """Serves one instance over HTTP and WebSockets, from `start` to `stop`.

    Args:
        url: the server with the instance.
        instance: its name.
        rules: who may do what.
        where: host and port, as `parse_where` reads them.
        tls: what encrypts it; default: nothing does.
        file: where the rules were read from; it is followed, so that rules change while it serves. Default: they stay.
        hosts: names under which it is called, beside ``localhost``, any IP address and the host of `where`.
        partitions: how many the instance has, where the address does not say it; None: it has none.

    Raises:
        OSError: the address is taken, or a file of TLS cannot be read.
        DefinitionError: a file of TLS is not what it should be.
    """

    def __init__(
        self,
        url: str,
        instance: str,
        rules: GatewayRules,
        where: str = "127.0.0.1:0",
        tls: Tls | None = None,
        *,
        file: Path | None = None,
        hosts: Sequence[str] = (),
        partitions: int | None = None,
    ) -> None:
        host, port = parse_where(where)
        self._rules, self._tls, self._host = rules, tls, host
        self._hosts = (host, *hosts)
        self._url, self._instance, self._partitions = url, instance, partitions
        self._served: _Served | None = None
        self._file = file
        self._followed: tuple[asyncio.AbstractEventLoop, RulesFile] | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        try:
            self._server = _Server(_loaded(self._config()))
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)
        self._given_up = 0.0
        if tls is None and not host.startswith(_LOOPBACK):
            _log.warning("the gateway at %s speaks plain text, secrets included: give it a certificate", host)

    @property
    def address(self) -> str:
        """Address of the gateway."""
        scheme, port = ("https" if self._tls else "http"), self._socket.getsockname()[1]
        return f"{scheme}://[{self._host}]:{port}" if ":" in self._host else f"{scheme}://{self._host}:{port}"

    def _serve(self) -> None:
        # It leaves like this where it cannot begin; why, `start` says.
        with contextlib.suppress(SystemExit):
            self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Begin to serve.

        Raises:
            AmpsqError: the instance cannot be reached, or the user of the address lacks what a gateway needs.
        """
        self._thread.start()
        self._server.has_begun.wait(_BEGINS_WITHIN)
        if not self._server.started:
            self.stop()
            raise self._server.failure or AmpsqError(f"the gateway did not begin within {_BEGINS_WITHIN:g} s")
        _log.info("gateway of %s at %s", self._instance, self.address)

    def begin_to_stop(self) -> None:
        """Let it end, without a wait; a signal's handler may call it."""
        if not self._server.should_exit:
            self._server.should_exit = True
            self._given_up = time.monotonic() + _GIVEN_UP

    def stop(self) -> None:
        """End it: subscriptions are closed, and what they held goes back to its queues."""
        self.begin_to_stop()
        self._thread.join(max(self._given_up - time.monotonic(), 0.0))
        self._socket.close()

    def reload(self) -> None:
        """Read the file of the rules now; one that is wrong is refused whole, and told in the log."""
        if self._followed is not None:
            loop, file = self._followed
            loop.call_soon_threadsafe(file.read_now)

    def _adopt(self, rules: GatewayRules) -> None:
        bounds, config = rules.bounds, self._server.config
        # Of connections that come from here on.
        config.limit_concurrency = bounds.max_connections
        config.ws_ping_interval = config.ws_ping_timeout = bounds.heartbeat
        self._now.desk.client.wait_for_server(bounds.server_timeout)
        self._now.desk.adopt(rules)

    def _bounds(self) -> Bounds:
        return (self._served.desk.rules if self._served is not None else self._rules).bounds

    def _config(self) -> uvicorn.Config:
        bounds, tls = self._rules.bounds, self._tls
        encrypted: _Encryption = {}
        if tls is not None:
            encrypted = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
            if tls.clients:
                encrypted.update({"ssl_ca_certs": tls.clients, "ssl_cert_reqs": ssl.CERT_REQUIRED})
        guard = Middleware(_SameOrigin, hosts=self._hosts)
        refusals = {404: _refuse_address, 405: _refuse_address}
        app = Starlette(routes=self._routes(), middleware=[guard], lifespan=self._lifespan, exception_handlers=refusals)
        return uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", server_header=False,
            http=partial(Requests, bounds=self._bounds), ws=partial(Sockets, bounds=self._bounds),  # type: ignore[arg-type]
            limit_concurrency=bounds.max_connections, timeout_graceful_shutdown=_CONNECTIONS_END_WITHIN,
            ws_max_size=LONGEST_ORDER, ws_ping_interval=bounds.heartbeat, ws_ping_timeout=bounds.heartbeat,
            **encrypted,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        try:
            retry_timeout = self._rules.bounds.server_timeout
            made = GatewayClient(
                self._url, instance=self._instance, partitions=self._partitions, retry_timeout=retry_timeout
            )
            async with made as client:
                await _may_serve(client)
                desk = RequestHandler(client, self._rules, Users(self._rules.users))
                streams = self._server.streams = Streams(desk)
                self._served = _Served(desk, Writing(desk, client.persisting()), streams, Probe(client))
                async with self._following():
                    yield
        except Exception as error:
            self._server.failure = error
            raise

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        if self._file is None:
            yield
            return
        file = RulesFile(self._file, self._rules, self._adopt)
        self._followed = asyncio.get_running_loop(), file
        task = asyncio.create_task(file.follow())
        try:
            yield
        finally:
            self._followed = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _routes(self) -> Sequence[Route | WebSocketRoute]:
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/openapi.json", self._openapi),
            Route("/asyncapi.json", self._asyncapi),
            Route("/v1/publish", self._answer(lambda served: served.writing.publish), methods=["POST"]),
            Route("/v1/publish_many", self._answer(lambda served: served.writing.publish_many), methods=["POST"]),
            Route("/v1/delta_publish", self._answer(lambda served: served.writing.delta_publish), methods=["POST"]),
            Route("/v1/sow_delete", self._answer(lambda served: served.writing.sow_delete), methods=["POST"]),
            Route("/v1/sow", self._answer(lambda served: served.desk.sow)),
            Route("/v1/events", self._events),
            WebSocketRoute("/v1/subscribe", self._subscribe),
            WebSocketRoute("/v1/sow_and_subscribe", self._sow_and_subscribe),
        ]

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        fault = await self._now.probe.fault()
        return PlainTextResponse(f"{fault}\n" if fault else "ok\n", 503 if fault else 200)

    async def _openapi(self, _request: Request) -> Response:
        return JSONResponse(document())

    async def _asyncapi(self, _request: Request) -> Response:
        return JSONResponse(frames_document())

    @property
    def _now(self) -> _Served:
        if self._served is None:
            raise AmpsqError("the gateway has not begun")
        return self._served

    def _answer(self, do: Callable[[_Served], Doing]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self._now.desk.answer(request, do(self._now))

        return answer

    async def _events(self, request: Request) -> Response:
        return await self._now.streams.events(request)

    async def _subscribe(self, socket: WebSocket) -> None:
        await self._now.streams.subscribe(socket)

    async def _sow_and_subscribe(self, socket: WebSocket) -> None:
        await self._now.streams.sow_and_subscribe(socket)


class _Server(uvicorn.Server):
    """Tells when it serves, and that streams are to end before anything else does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_begun = threading.Event()
        self.failure: Exception | None = None
        self.streams: Streams | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and tell it."""
        try:
            await super().startup(sockets)
        finally:
            self.has_begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which give back what they hold, and then the connections."""
        if self.streams is not None:
            await self.streams.end(_ENDS_WITHIN)
        await super().shutdown(sockets)
