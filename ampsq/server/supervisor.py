"""The detached process that runs the embedded server for as long as anybody uses it.

``ampsq.server.embedded`` starts it by path, ``python -P .../ampsq/supervisor.py FOLDER BINARY COMMAND...``, where
COMMAND is the coordinator's. It imports the standard library only: it starts fast, wherever ampsq was found.

What lives in the data folder, beside the append-only files of the server:

    start.lock       held while somebody joins, and by the supervisor from "nobody left" to its own end
    users.lock       held shared by every user; nobody holds it = nobody is left
    supervisor.lock  held by the supervisor for life; its process id
    server.lock      held by the server and whatever it forks; its process id. No second server can write here
    settings.json    what the present users asked for: coordinator, appendfsync; changed under start.lock
    valkey.sock      the server's socket; when the folder is too deep, `socket` names a private short folder
    server.log       the last words of supervisor and server;  coordinator.log  those of the coordinator

All locks are flock: the kernel drops them with the last descriptor, so that no death leaves one behind.
"""
# Long: it runs as a file of its own, without the package.

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START, USERS, SUPERVISOR, SERVER = "start.lock", "users.lock", "supervisor.lock", "server.lock"
SETTINGS, LOG, COORDINATOR_LOG = "settings.json", "server.log", "coordinator.log"
BUSY = 75  # exit code: another supervisor has the folder

_TICK = 0.1
_GRACE = 0.3  # how long nobody must be left: a user that comes right after another keeps the server
_KILL_AFTER = 5.0  # from SIGTERM to SIGKILL
_TOLD_KILL_AFTER = (1.8, 2.0)  # the same, of coordinator and server, where the supervisor was told to stop
_STEADY = 10.0  # a child that lived this long starts again without delay
_START_ATTEMPTS = 5
_SOCKET_LIMIT = 100  # bytes; sun_path has 104 on macOS and 108 on Linux, with the final NUL
_PR_SET_PDEATHSIG = 1
_TIED_BY_KERNEL = sys.platform == "linux"


def open_lock(path: Path) -> int:
    """Open a lock file, made when missing; children do not inherit the descriptor when they exec."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a flock of `kind` if that is possible at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still(descriptor: int, path: Path) -> bool:
    """Return whether `path` is still the open file; a lock on a file that was removed or replaced excludes nobody."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def recorded_process(path: Path) -> int | None:
    """The process id that the holder of a lock file wrote there."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def read_settings(folder: Path) -> dict[str, object]:
    """Return the settings that the present users asked for; empty when nobody wrote any yet."""
    try:
        settings = json.loads((folder / SETTINGS).read_text())
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def socket_path(folder: Path) -> Path | None:
    """Return the socket of this folder's server, or None when its short folder was not made yet."""
    inside = folder / "valkey.sock"
    if len(os.fsencode(inside)) <= _SOCKET_LIMIT:
        return inside
    try:
        return Path((folder / "socket").read_text()) / inside.name
    except FileNotFoundError:
        return None


def exchange(path: Path, *commands: str, timeout: float = 1.0) -> list[str]:
    """Send inline commands, the last of which has a one-line answer, and give all lines of the answers.

    Raises:
        OSError: nobody listens, or there was no answer in time.
    """
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(os.fspath(path))
        connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
        while True:
            part = connection.recv(65536)
            if not part:
                raise ConnectionResetError(f"the server at {path} closed the connection")
            answer += part
            lines = answer.decode(errors="replace").split("\r\n")
            if not lines[-1] and lines[-2][:1] in ("+", "-"):
                return lines[:-1]


def answering_process(folder: Path) -> int | None:
    """The process id of the server that answers on the folder's socket and has its lock, when it is ready."""
    path = socket_path(folder)
    if path is None:
        return None
    try:
        lines = exchange(path, "INFO server", "PING")
    except OSError:
        return None
    named = [int(line[11:]) for line in lines if line.startswith("process_id:")]
    loading = lines[-1].startswith("-LOADING")
    return named[0] if named and not loading and named[0] == recorded_process(folder / SERVER) else None


def say(text: str) -> None:
    """Write a line to the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    os.write(1, f"{stamp} ampsq supervisor {os.getpid()}: {text}\n".encode(errors="replace"))


def kill_group(leader: int) -> None:
    """SIGKILL what is left of the process group that a child of ours led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class SupervisedProcess:
    """A child process in a group of its own that cannot outlive us and is started again after it ended.

    Args:
        name: what the log calls it.
        command: what to run.
        log: the file that its standard streams are appended to.
        first_delay: seconds before the first restart; doubles with every short life, up to `longest_delay`.
        longest_delay: the longest wait before a restart.
        lock: a file whose flock the child holds, with its process id, together with all that it forks.
        tied_by_kernel: False where the kernel has no PR_SET_PDEATHSIG: a forked watcher does it then.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        first_delay: float = 0.2,
        longest_delay: float = 5.0,
        lock: Path | None = None,
        tied_by_kernel: bool = _TIED_BY_KERNEL,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.lock = lock
        self.process: subprocess.Popen[bytes] | None = None
        self._delays = (first_delay, longest_delay)
        self._tied_by_kernel = tied_by_kernel
        self._watcher: tuple[int, int] | None = None
        self._started = self._due = 0.0
        self._short_lives = 0

    def start(self) -> bool:
        """Start the child if it is time to and nothing of a former one is left; whether it was started."""
        if time.monotonic() < self._due:
            return False
        lock = None if self.lock is None else open_lock(self.lock)
        try:
            if lock is not None and self.lock is not None and not try_lock(lock, fcntl.LOCK_EX):
                return False
            if lock is not None:
                os.ftruncate(lock, 0)
            self._spawn(lock)
        finally:
            if lock is not None:
                os.close(lock)
        self._started = time.monotonic()
        return True

    def _spawn(self, lock: int | None) -> None:
        tie = _before_exec(os.getpid(), lock, tied_by_kernel=self._tied_by_kernel)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                pass_fds=() if lock is None else (lock,),
                preexec_fn=tie,  # noqa: PLW1509 - this process has one thread
            )
        if not self._tied_by_kernel:
            self._watcher = _watch(self.process.pid)

    @property
    def age(self) -> float:
        """Seconds since it was last started."""
        return time.monotonic() - self._started

    def ended(self) -> bool:
        """Return whether the child has ended since the last call; true once for each life."""
        if self.process is None or self.process.poll() is None:
            return False
        kill_group(self.process.pid)
        self._dismiss_watcher()
        lived = self.age
        self._short_lives = 0 if lived > _STEADY else self._short_lives + 1
        first, longest = self._delays
        delay = min(longest, first * 2 ** min(self._short_lives - 1, 16)) if self._short_lives else 0.0
        self._due = time.monotonic() + delay
        say(f"{self.name} {self.process.pid} ended with {self.process.returncode} after {lived:.1f} s")
        self.process = None
        return True

    def stop(self, grace: float = _KILL_AFTER) -> None:
        """End the child and all that it forked: SIGTERM, and SIGKILL when it is there after `grace`."""
        if self.process is None:
            return
        if grace:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        kill_group(self.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_AFTER)
        self._dismiss_watcher()
        self.process = None

    def _dismiss_watcher(self) -> None:
        if self._watcher is not None:
            watcher, pipe = self._watcher
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, b".")
            os.close(pipe)
            os.waitpid(watcher, 0)
            self._watcher = None


def _before_exec(parent: int, lock: int | None, *, tied_by_kernel: bool) -> Callable[[], None]:
    """Return the function that a child runs between fork and exec: it dies with its parent, and signs its lock."""
    prctl = None
    if tied_by_kernel:
        import ctypes  # noqa: PLC0415 - users of the helpers above do without it

        prctl = ctypes.CDLL(None, use_errno=True).prctl

    def tie() -> None:
        # SIGKILL: a server in a long script does not hear SIGTERM, and what it answered is in its file.
        if prctl is not None and prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
            raise OSError("prctl(PR_SET_PDEATHSIG) failed")
        if os.getppid() != parent:
            os._exit(1)  # it died before the line above
        if lock is not None:
            os.write(lock, f"{os.getpid()}\n".encode())

    return tie


def _watch(leader: int) -> tuple[int, int]:
    """Fork a watcher that kills a group when our end of a pipe closes, unless it was dismissed by a byte."""
    reader, writer = os.pipe()
    watcher = os.fork()
    if watcher:
        os.close(reader)
        return watcher, writer
    try:
        # Our locks must not live on in the watcher, nor the pipes of other watchers.
        os.closerange(3, reader)
        os.closerange(reader + 1, 1024)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not os.read(reader, 1):
            kill_group(leader)
    finally:
        os._exit(0)


class Supervisor:
    """Keeps the server, and on request the coordinator, running until nobody is left.

    Args:
        folder: the data folder.
        binary: the Valkey server.
        coordinator: the coordinator's command, to which `--url URL` is added.
        lock: the descriptor that holds supervisor.lock.
    """

    def __init__(self, folder: Path, binary: str, coordinator: Sequence[str], lock: int) -> None:
        self.folder = folder
        self.socket = _place_socket(folder)
        self.server = SupervisedProcess(
            "the server", [binary], folder / LOG, first_delay=0.05, longest_delay=1.0, lock=folder / SERVER
        )
        self.coordinator = SupervisedProcess(
            "the coordinator", [*coordinator, "--url", url_of(self.socket)], folder / COORDINATOR_LOG
        )
        self.stopping = False
        self._lock = lock
        self._start = open_lock(folder / START)
        self._users = open_lock(folder / USERS)
        self._ready = False
        self._failures = 0
        self._idle_since: float | None = None

    def run(self) -> int:
        """Supervise until nobody is left; the exit code."""
        try:
            while not self.stopping and not self._nobody_left():
                if not self._has_folder():
                    return 1
                self._tend_server()
                if self._failures >= _START_ATTEMPTS:
                    say(f"the server failed to start {self._failures} times in a row; giving up")
                    return 1
                self._tend_coordinator()
                time.sleep(_TICK if self._ready else 0.01)
            say("told to stop" if self.stopping else "nobody is left")
            return 0
        finally:
            self._stop_children()

    def _stop_children(self) -> None:
        # A server that ends in peace removes its socket, and without the folder that may be a successor's.
        has_folder = self._has_folder()
        told = _TOLD_KILL_AFTER if self.stopping else (_KILL_AFTER, _KILL_AFTER)
        for child, grace in zip((self.coordinator, self.server), told, strict=True):
            child.stop(grace if has_folder else 0.0)
        if has_folder:
            _remove_socket(self.folder, self.socket)

    def _has_folder(self) -> bool:
        """Return whether the folder is there; another one under its name is not ours to serve."""
        return is_still(self._lock, self.folder / SUPERVISOR)

    def _nobody_left(self) -> bool:
        """Return whether nobody was there for the grace period; if so, the start lock stays ours: none can join."""
        if not try_lock(self._start, fcntl.LOCK_EX):
            self._idle_since = None
            return False
        now = time.monotonic()
        if not try_lock(self._users, fcntl.LOCK_EX):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= _GRACE:
            return True
        fcntl.flock(self._users, fcntl.LOCK_UN)
        fcntl.flock(self._start, fcntl.LOCK_UN)
        return False

    def _tend_server(self) -> None:
        if self.server.ended():
            self._failures = 0 if self._ready else self._failures + 1
            self._ready = False
        if self.server.process is None:
            self.server.command[1:] = _arguments(self.folder, self.socket)
            self.server.start()
        elif not self.socket.exists():
            # A young server has not made it yet.
            if not self._ready and self.server.age < _KILL_AFTER:
                return
            say(f"{self.socket} was removed; starting the server again")
            self.server.stop()
            self._ready = False
            self.socket = _place_socket(self.folder)
            self.coordinator.command[-1] = url_of(self.socket)
        elif not self._ready:
            self._ready = answering_process(self.folder) == self.server.process.pid

    def _tend_coordinator(self) -> None:
        wanted = bool(read_settings(self.folder).get("coordinator"))
        self.coordinator.ended()
        if not wanted:
            self.coordinator.stop()
        elif self._ready and self.coordinator.process is None:
            self.coordinator.start()


def url_of(path: Path) -> str:
    """The address of a Unix socket as redis-py takes it."""
    return "unix://" + quote(os.fspath(path))


def _arguments(folder: Path, path: Path) -> list[str]:
    # `hz` stays as it is, though 1 would save an idle server 0.6 ms/s: blocked reads, and `get` with a timeout, would
    # end up to a second late, and `everysec` would flush up to a second later (docs/performance.md).
    options = {
        "port": "0",
        "unixsocket": os.fspath(path),
        "unixsocketperm": "700",
        "dir": os.fspath(folder),
        "logfile": "",
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always" if read_settings(folder).get("appendfsync") == "always" else "everysec",
        "aof-load-truncated": "yes",
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _place_socket(folder: Path) -> Path:
    """The path for the socket, in a private short folder of its own when the data folder is too deep."""
    path = socket_path(folder)
    if path is not None:
        if path.parent != folder:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700)
        if path.parent == folder or _is_private(path.parent):
            return path
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = runtime and len(os.fsencode(runtime)) <= _SOCKET_LIMIT // 2 and os.access(runtime, os.W_OK)
    short = tempfile.mkdtemp(prefix="ampsq-", dir=runtime if usable else "/tmp")  # noqa: S108 - short, 0700
    # Renamed into place: a reader sees a whole name.
    (folder / "socket.new").write_text(short)
    (folder / "socket.new").replace(folder / "socket")
    return Path(short) / "valkey.sock"


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _remove_socket(folder: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent != folder:
        with contextlib.suppress(OSError):
            path.parent.rmdir()
            (folder / "socket").unlink()


def _let_children_find_ampsq() -> None:
    """Name the folder of ampsq to children if it was found through the working folder or a changed sys.path."""
    here = Path(__file__).resolve().parents[1]
    spec = importlib.util.find_spec("ampsq")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not any(Path(place).resolve() == here for place in places):
        former = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*([former] if former else []), str(here.parent)])


def _become_daemon(lock: int) -> None:
    """Leave the session and the parent of our starter; what it ignored or blocked does not hold for us."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(lock, f"{os.getpid()}\n".encode())
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _end_former_server(folder: Path) -> bool:
    """Make sure that no server of a killed supervisor is left, nor what it forked; False when it stays."""
    lock = open_lock(folder / SERVER)
    try:
        deadline = time.monotonic() + _KILL_AFTER
        while not try_lock(lock, fcntl.LOCK_EX):
            # The lock is held, so what it names is the group of a holder and not of a stranger.
            leader = recorded_process(folder / SERVER)
            if leader:
                kill_group(leader)
            if time.monotonic() > deadline:
                say(f"process group {leader} of a former server cannot be ended")
                return False
            time.sleep(0.005)
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)
    return True


def main(arguments: Sequence[str]) -> int:
    """Take the folder, leave the starter and supervise; BUSY when another supervisor has the folder."""
    folder, binary, coordinator = Path(arguments[0]), arguments[1], arguments[2:]
    os.umask(0o077)
    os.chdir(folder)
    lock = open_lock(folder / SUPERVISOR)
    # Somebody may be looking at the lock just now, which holds it for a moment.
    for _ in range(20):
        if try_lock(lock, fcntl.LOCK_EX):
            break
        time.sleep(0.01)
    else:
        return BUSY
    os.ftruncate(lock, 0)
    if not _end_former_server(folder):
        return 1
    _become_daemon(lock)
    _let_children_find_ampsq()
    supervisor = Supervisor(folder, binary, coordinator, lock)

    def stop(_number: int, _frame: object) -> None:
        supervisor.stopping = True

    signal.signal(signal.SIGTERM, stop)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
