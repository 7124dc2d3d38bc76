"""The server of console, metrics and health: a thread of the process that runs a coordinator, or `ampsq up`."""

from __future__ import annotations

import logging
import socket
import threading
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ampsq.base.addresses import redacted
from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.console.access import Access, Guard
from ampsq.console.examiner import Examiner
from ampsq.console.health import readiness_faults
from ampsq.console.metrics import exposition
from ampsq.console.observer import Observer
from ampsq.console.pages import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

__all__ = ["Console", "parse_where"]

_log = logging.getLogger("ampsq.console")
#: Seconds in which the pages and what reads the figures end.
_ENDS_WITHIN: Final = 2.5
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_LAST_PORT: Final = 65_535


def parse_where(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``HOST`` or ``:PORT``: the host is by default the loopback, the port a free one.

    Raises:
        DefinitionError: it is none of these.
    """
    host, mark, port = text.rpartition(":")
    if not mark or text.endswith("]"):
        host, port = text, "0"
    if not port.isdigit() or int(port) > _LAST_PORT:
        raise DefinitionError(f"--console {text!r}: allowed are HOST:PORT, HOST and :PORT, with a port up to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


class Console:
    """Serves one server's instances; `address` is known at once, and answered from `start` to `stop`.

    Args:
        url: the server with the instances.
        where: host and port, as `parse_where` reads them.
        access: who may do what.
        instances: which; default all that the server carries.
        rounds: instance and duty -> seconds by which it is late, of the coordinator in this process; None: it is in
            another one.

    Attributes:
        access: who may do what.
        cookie: the name of the cookie of those who showed the token.

    Raises:
        OSError: the address is taken, or not of this machine.
    """

    def __init__(
        self,
        url: str,
        where: str = "127.0.0.1:0",
        access: Access | None = None,
        *,
        instances: Sequence[str] = (),
        rounds: Callable[[], Mapping[tuple[str, str], float]] | None = None,
    ) -> None:
        host, port = parse_where(where)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self._host, self._port = host, self._socket.getsockname()[1]
        given = access or Access()
        self.access = Access(given.token, (*given.hosts, host), given.is_read_only)
        # Browsers do not tell ports of a host apart, and what is forwarded here may have any.
        self.cookie = f"ampsq-console-{self._port}-{sha256(redacted(url).encode()).hexdigest()[:8]}"
        # A coordinator in this process says itself that the server is lost.
        self._observer = Observer(url, instances, logging.WARNING if rounds is None else logging.DEBUG)
        self._rounds = rounds
        self._examiner = Examiner(self._observer)
        pages = Pages(self._observer, self._examiner, self.access, lambda: self._server.should_exit)
        app = Starlette(
            routes=[*self._routes(), *pages.routes],
            middleware=[Middleware(Guard, access=self.access, cookie=self.cookie)],
            exception_handlers={404: pages.nowhere},
        )
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="console", daemon=True
        )
        self._given_up = 0.0

    @property
    def base(self) -> str:
        """The address without the token."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    @property
    def address(self) -> str:
        """The address with the token: whoever has it may look, and change what is not read-only."""
        return f"{self.base}/?token={self.access.token}"

    def start(self) -> None:
        """Begin to serve."""
        self._observer.start()
        self._examiner.start()
        self._thread.start()
        _log.info("console at %s", self.base)

    def begin_to_stop(self) -> None:
        """Let it end, without a wait; a signal's handler may call it."""
        if not self._server.should_exit:
            self._server.should_exit = True
            self._given_up = time.monotonic() + _ENDS_WITHIN

    def stop(self) -> None:
        """End it; open pages lose their connection."""
        self.begin_to_stop()
        self._thread.join(max(self._given_up - time.monotonic(), 0.0))
        self._examiner.stop()
        self._observer.stop(max(self._given_up - time.monotonic(), 0.0))
        self._socket.close()

    def _routes(self) -> list[Route]:
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
        ]

    def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def _readyz(self, _request: Request) -> Response:
        found = list(readiness_faults(self._observer, self._rounds))
        return PlainTextResponse("\n".join(found or ["ok"]) + "\n", 503 if found else 200)

    def _metrics(self, _request: Request) -> Response:
        readings, reachable = [], {}
        try:
            instances = self._observer.instances()
        except AmpsqError as error:
            return PlainTextResponse(f"{error}\n", 503)
        for instance in instances:
            try:
                readings.append(self._observer.reading(instance))
            except AmpsqError as error:
                _log.warning("metrics of %s: %s", instance, error)
            reachable[instance] = bool(readings) and readings[-1].figures.instance == instance
        rounds = self._rounds() if self._rounds is not None else {}
        return Response(exposition(readings, reachable, rounds), media_type=None, headers={"content-type": _TEXT})
