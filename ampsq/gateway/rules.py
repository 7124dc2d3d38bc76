"""Rules that the gateway reads from YAML: its users, what they are entitled to, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval, parse_count, parse_name, parse_size, shown
from ampsq.files.config import OF_GATEWAY
from ampsq.files.file_faults import Faults, read_file
from ampsq.files.yaml_nodes import key_of, place_of, read_files, value_of
from ampsq.gateway.entitlements import Entitlement, Entitlements
from ampsq.gateway.users import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampsq.files.yaml_nodes import Node

__all__ = ["Bounds", "GatewayRules", "Marks", "marks_of", "read_rules"]

#: Seconds of a time-out.
_SHORTEST: Final = 0.05
Marks: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a gateway, the section ``gateway`` of a file.

    Attributes:
        max_connections: connections at once; beyond it 503. Default 1000.
        max_streams: subscriptions of one user at once; beyond it 429. Default 100.
        max_backlog: unacknowledged messages of one subscription to a queue. Default 1000.
        max_requests: requests of one user that are answered at once; beyond it 429. Default 100.
        max_request_size: bytes of a request. Default 16MB.
        max_pending_size: bytes of all requests of one user that are answered at once; beyond it 429. Default 32MB.
        max_answer: messages of one answer of `sow`. Default 10,000.
        request_timeout: how long a request may take to come in, and to be answered. Default 30s.
        send_timeout: how long somebody may take to take a message, or a part of an answer; then it is cut. Default 10s.
        server_timeout: how long a server that is away is waited for; then 503, or 1013 of a subscription. Default 15s.
        heartbeat: after so long a subscriber is asked whether it is there, and has as long to answer. Default 20s.
    """

    max_connections: int = 1_000
    max_streams: int = 100
    max_backlog: int = 1_000
    max_requests: int = 100
    max_request_size: int = 16 * 2**20
    max_pending_size: int = 32 * 2**20
    max_answer: int = 10_000
    request_timeout: float = 30.0
    send_timeout: float = 10.0
    server_timeout: float = 15.0
    heartbeat: float = 20.0

    @classmethod
    def of(cls, elements: dict[str, Any]) -> Bounds:
        """Make them of what a file says.

        Raises:
            DefinitionError: an element is unknown or wrong.
        """
        known = {each.name for each in fields(cls)}
        found: dict[str, Any] = {}
        for name, text in elements.items():
            if name not in known:
                raise DefinitionError(f"{shown(name)} is no element; allowed: {', '.join(sorted(known))}")
            try:
                found[name] = _reader(name)(text)
            except DefinitionError as error:
                raise DefinitionError(f"{name}: {error}") from error
        return cls(**found)


def _reader(name: str) -> Callable[[Any], float]:
    if name.endswith("timeout") or name == "heartbeat":
        return _seconds
    return parse_size if name.endswith("size") else parse_count


def _seconds(value: Any) -> float:
    found = Interval.parse(value) / 1000
    if found < _SHORTEST:
        raise DefinitionError(f"{shown(value)}: allowed is {_SHORTEST * 1000:g}ms or longer")
    return found


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """The users of a gateway, with their rights and bounds.

    Attributes:
        users: name -> hash of the secret.
        entitlements: what they may do.
        bounds: how much is served.
        files: those that they were read from.
        marks: what these were then, see `marks_of`.
    """

    users: dict[str, Secret] = field(repr=False)
    entitlements: Entitlements = field(repr=False)
    bounds: Bounds = field(default_factory=Bounds)
    files: tuple[Path, ...] = ()
    marks: Marks = ()


def marks_of(files: Iterable[Path]) -> Marks:
    """Return marks that change with files: node, size and time of each; None for one that is not there."""
    return tuple(map(_mark_of, files))


def _mark_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_rules(path_or_text: Path | str) -> GatewayRules:
    """Read the sections ``users``, ``entitlements`` and ``gateway`` of a YAML file; others are not looked at.

    Args:
        path_or_text: a `Path`, or the text itself. ``include`` and ``${NAME}`` work as in other files.

    Raises:
        DefinitionError: something is wrong, a line each, or there is no user.
    """
    path = path_or_text if isinstance(path_or_text, Path) else None
    # Before it is read: what is written meanwhile is found to be new.
    marks = {path: marks_of([path])[0]} if path is not None else {}
    try:
        text = read_file(path) if path is not None else str(path_or_text)
    except (OSError, UnicodeError) as error:
        raise DefinitionError(f"{path} cannot be read: {error}") from error
    faults = Faults()
    reading = _Reading(faults)
    for file in read_files(text, path, faults):
        if path is not None:
            marks.setdefault(Path(file.source), marks_of([Path(file.source)])[0])
        for key, node in file.root.value if file.root is not None and file.root.id == "mapping" else ():
            if key_of(key) in OF_GATEWAY:
                reading.section(key_of(key), node)
    faults.refuse()
    if not reading.users:
        raise DefinitionError(
            f"{path or 'the text'} has no users, so nobody could ask; allowed: users: [{{name: NAME, secret: "
            "scrypt:...}], of which `ampsq gateway --hash` makes the secret"
        )
    return GatewayRules(
        reading.users, Entitlements(reading.entitlements), reading.bounds, tuple(marks), tuple(marks.values())
    )


class _Reading:
    """Collects what files say."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.users: dict[str, Secret] = {}
        self.entitlements: list[Entitlement] = []
        self.bounds = Bounds()

    def section(self, name: str, node: Node) -> None:
        """Read one section, and note what is wrong with it."""
        items = [node] if name == "gateway" else node.value if node.id == "sequence" else []
        if name != "gateway" and node.id != "sequence" and value_of(node) is not None:
            self._faults.add(place_of(node), f"{name}: allowed is a list")
        for item in items:
            elements = value_of(item, 3)
            try:
                if not isinstance(elements, dict):
                    raise DefinitionError("allowed is a mapping of elements")  # noqa: TRY301 - told with its place
                self._read(name, elements)
            except DefinitionError as error:
                self._faults.add(place_of(item), f"{name}: {error}")

    def _read(self, name: str, elements: dict[str, Any]) -> None:
        if name == "gateway":
            self.bounds = Bounds.of(elements)
        elif name == "entitlements":
            self.entitlements.append(Entitlement.of(elements))
        else:
            self._user(dict(elements))

    def _user(self, elements: dict[str, Any]) -> None:
        user = parse_name(elements.pop("name", None))
        if user in self.users:
            raise DefinitionError(f"{user!r} is there twice; allowed: once")
        try:
            self.users[user] = Secret.parse(elements.pop("secret", None))
        except DefinitionError as error:
            raise DefinitionError(f"secret of {user!r}: {error}") from error
        if elements:
            raise DefinitionError(f"{shown(next(iter(elements)))} is no element of a user; allowed: name, secret")
