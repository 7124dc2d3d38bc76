"""Access to the console: a token that becomes a cookie, and checks against requests that other pages make.

A page of any other site can make a browser send requests here. It cannot read the token, has another `Origin`, gets
no cookie sent along (`SameSite=Strict`), does not know the word that each change needs, and where it has its own name
point here (DNS rebinding), that name is none of ours.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse

from ampsq.base.addresses import is_host_of

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Access", "Guard"]

#: Open to whoever reaches the port: they say nothing but whether it works.
_PROBES: Final = ("/healthz", "/readyz")
#: Need no token: they have figures and names, and no messages; and what all pages are made with.
_OPEN: Final = ("/metrics", "/static/")
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: then a form would be sent with the Origin `null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_COOKIE_AGE: Final = 30 * 86_400


@dataclass(frozen=True)
class Access:
    """The rules of access.

    Attributes:
        token: whoever knows it may look, and change what is not read-only.
        hosts: names under which the console is called, beside ``localhost`` and any IP address.
        is_read_only: nobody may change anything.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    hosts: tuple[str, ...] = ()
    is_read_only: bool = False

    def _derived(self, use: str) -> str:
        return hmac.new(self.token.encode(), use.encode(), hashlib.sha256).hexdigest()

    @property
    def cookie(self) -> str:
        """Value of the cookie for those who showed the token."""
        return self._derived("cookie")

    @property
    def word(self) -> str:
        """Word that each change has to give, from a page that we made."""
        return self._derived("change")

    def is_token(self, text: str) -> bool:
        """Return whether it is the token."""
        return secrets.compare_digest(text.encode(), self.token.encode())

    def is_cookie(self, text: str) -> bool:
        """Return whether it is the cookie."""
        return secrets.compare_digest(text.encode(), self.cookie.encode())

    def is_word(self, text: str) -> bool:
        """Return whether it is the word of changes."""
        return secrets.compare_digest(text.encode(), self.word.encode())

    def is_host(self, header: str) -> bool:
        """Return whether a request was made under a name of ours."""
        return is_host_of(self.hosts, header)


class Guard:
    """The middleware that every request passes.

    Args:
        app: what answers those that pass.
        access: who may do what.
        cookie: the cookie's name; cookies do not tell ports apart.
    """

    def __init__(self, app: ASGIApp, access: Access, cookie: str) -> None:
        self._app, self._access, self._cookie = app, access, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused; let the rest through, and add our headers to what comes back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = dict(_HEADERS)
                if not scope["path"].startswith("/static/"):
                    added["cache-control"] = "no-store"
                known = {name for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode()) for name, value in added.items() if name.encode() not in known
                ]
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        path, access = request.url.path, self._access
        if path in _PROBES:
            return None
        if not access.is_host(request.headers.get("host", "")):
            return PlainTextResponse(
                "This is not the host that the console answers to. Allowed: localhost, any IP address, and the names "
                "given with --console-host.\n",
                421,
            )
        if path.startswith(_OPEN):
            return None
        shown = request.query_params.get("token")
        if shown is not None and request.method == "GET" and access.is_token(shown):
            return self._welcome(request)
        if not (self._is_program(request) or access.is_cookie(request.cookies.get(self._cookie, ""))):
            return PlainTextResponse(
                "The console needs its token: open the address that was printed when it started, with ?token=... at "
                "its end.\n",
                401,
            )
        return self._refused_change(request) if request.method not in ("GET", "HEAD") else None

    def _is_program(self, request: Request) -> bool:
        """Return whether a program asks that shows the token itself; a change needs what a page of ours has."""
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        return request.method in ("GET", "HEAD") and kind.lower() == "bearer" and self._access.is_token(bearer.strip())

    def _welcome(self, request: Request) -> Response:
        # Without the token, so that it is in no history; a path alone, so that it leads nowhere else.
        url = URL(path=f"/{request.url.path.lstrip('/')}", query=request.url.query).remove_query_params("token")
        answer = RedirectResponse(str(url), 303)
        answer.set_cookie(
            self._cookie, self._access.cookie, max_age=_COOKIE_AGE, path="/", httponly=True, samesite="strict"
        )
        return answer

    def _refused_change(self, request: Request) -> Response | None:
        if self._access.is_read_only:
            return PlainTextResponse("This console is read-only: it was started with --console-read-only.\n", 403)
        _, _, origin = request.headers.get("origin", "").partition("://")
        if not origin or origin != request.headers.get("host"):
            return PlainTextResponse("Changes are made from the console's own pages alone.\n", 403)
        return None
