"""Effects of actions outside of the instance, programs and webhooks, if the coordinator was started for that."""

from __future__ import annotations

import shlex
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.base.errors import AmpsqError
from ampsq.coordinator.actions.event import rendered
from ampsq.definitions.action_parts import Do

if TYPE_CHECKING:
    from ampsq.definitions.action import Action

__all__ = ["OutsidePermissions", "StepFailed"]

#: Characters of what a program said on standard error that a failure shows.
_SHOWN = 200


class StepFailed(AmpsqError):
    """A step of an action could not be made; the text says why and, where it is so, what would allow it."""


@dataclass(frozen=True, slots=True)
class OutsidePermissions:
    """The permissions of a coordinator for actions outside of the instance.

    Attributes:
        commands: run programs.
        webhooks: POST to addresses that begin with one of these: the same scheme, host and port, and a path below.
    """

    commands: bool = False
    webhooks: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The permissions as words. A coordinator that has all words of another may do all that the other may."""
        return [*(["commands"] if self.commands else []), *(f"webhooks {prefix}" for prefix in self.webhooks)]

    def wait_for(self, action: Action) -> bool:
        """Return whether an action waits for what is outside: so long that nothing else may wait for it."""
        return self.suffice(action) and any(isinstance(step, Do.execute | Do.webhook) for step in action.do)

    @staticmethod
    def longest(action: Action) -> int:
        """Milliseconds that an event of an action may wait for what is outside."""
        return sum(step.timeout for step in action.do if isinstance(step, Do.execute | Do.webhook))

    def suffice(self, action: Action) -> bool:
        """Return whether a coordinator with these may make all steps of an action, as far as can be known before."""
        needs = {type(step) for step in action.do}
        return (self.commands or Do.execute not in needs) and (bool(self.webhooks) or Do.webhook not in needs)

    def execute(self, step: Do.execute, text: dict[str, bytes]) -> None:
        """Run a program to its end.

        Raises:
            StepFailed: it is not allowed, cannot be started, takes too long, or ends with another code than 0.
        """
        if not self.commands:
            raise StepFailed(
                "execute: this coordinator may not run programs; allowed where it is started with --allow-commands "
                "(or AMPSQ_ALLOW_COMMANDS=1)"
            )
        # Split before the variables are put in: what a message says never becomes another argument.
        words = [rendered(word, text) for word in shlex.split(step.command)]
        try:
            done = subprocess.run(
                words, input=text.get("AMPS_DATA", b""), capture_output=True, timeout=step.timeout / 1000, check=False
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"execute: {step.command!r} took longer than {step.timeout.text}") from None
        except (OSError, ValueError) as error:
            raise StepFailed(f"execute: {step.command!r}: {error}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-_SHOWN:]
            raise StepFailed(f"execute: {step.command!r} ended with {done.returncode}" + (f": {said}" if said else ""))

    def webhook(self, step: Do.webhook, text: dict[str, bytes]) -> None:
        """POST to an address.

        Raises:
            StepFailed: it is not allowed, cannot be reached, takes too long, or answers otherwise than with 2xx.
        """
        url = rendered(step.url, text).decode(errors="replace")
        if not any(_is_below(url, prefix) for prefix in self.webhooks):
            allowed = f"only {', '.join(self.webhooks)}" if self.webhooks else "none"
            raise StepFailed(
                f"webhook: this coordinator may not call {url}; allowed are {allowed}; start it with "
                "--allow-webhooks PREFIX (or AMPSQ_ALLOW_WEBHOOKS)"
            )
        data = rendered(step.data, text)
        headers = {"Content-Type": "application/json" if data[:1] in b'{["' else "application/octet-stream"}
        request = urllib.request.Request(url, data=data, headers=headers, method="POST")  # noqa: S310  (checked above)
        try:
            with _OPENER.open(request, timeout=step.timeout / 1000) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            raise StepFailed(f"webhook: {url} answered {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise StepFailed(f"webhook: {url}: {error}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that is allowed must not lead to one that is not."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _is_below(url: str, prefix: str) -> bool:
    """Return whether an address is one of those that a prefix allows: no other host, and no way up."""
    try:
        asked, allowed = urllib.parse.urlsplit(url), urllib.parse.urlsplit(prefix)
        same = (asked.scheme, asked.hostname, asked.port) == (allowed.scheme, allowed.hostname, allowed.port)
    except ValueError:
        return False
    if not same or asked.scheme not in ("http", "https") or asked.username is not None:
        return False
    path, base = urllib.parse.unquote(asked.path or "/"), allowed.path or "/"
    inside = path == base or path.startswith(base if base.endswith("/") else base + "/")
    return inside and ".." not in path.split("/") and "\\" not in path
