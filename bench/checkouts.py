"""Checkouts of commits, each laid out as a package of its own, and runs of `ampsq bench` in them."""

from __future__ import annotations

import compileall
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Checkout", "RunFailed", "laid_out"]

#: Seconds for git, and for looking where a package comes from.
_SOON: Final = 60.0
#: Seconds for a benchmark that is asked to end.
_GRACE: Final = 10.0
#: Lines of what a failed run wrote.
_LAST: Final = 12
#: The only thing that a checkout must be able to do.
_PROGRAM: Final = "ampsq.cli"
#: Every Python that is started with the folder on its path runs this first, also what a benchmark starts itself.
_SITE: Final = '''"""Keeps editable installs of ampsq out: a module that this folder lacks is missing."""

import sys
from importlib.machinery import PathFinder


def _gives(finder):
    try:
        return finder is not PathFinder and finder.find_spec("ampsq", None) is not None
    except Exception:
        return False


sys.meta_path[:] = [finder for finder in sys.meta_path if not _gives(finder)]
'''
#: Prints where packages would be imported from.
_WHERE: Final = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    found[name] = spec and (spec.origin or list(spec.submodule_search_locations)[0])
print(json.dumps(found))
"""


class RunFailed(click.ClickException):
    """A run gave no figures, so that there is nothing to compare."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit, or a folder's files as they were, laid out to be imported.

    Attributes:
        given: what the user named it by.
        title: the commit and its subject, or the folder.
        folder: where its package `ampsq` is; the first on the path of its runs.
    """

    given: str
    title: str
    folder: Path

    def figures(self, part: str, *, quick: bool, url: str | None, deadline: float) -> dict[str, object]:
        """Return what `ampsq bench --json` prints, run by this checkout in a process of its own.

        Raises:
            RunFailed: it ended with an error, printed something else, or was not done in time.
        """
        options = [*(["--quick"] if quick else []), *(["--url", url] if url else [])]
        printed = self.run(["-m", _PROGRAM, "bench", "--json", "--part", part, *options], deadline)
        try:
            figures = json.loads(printed)
        except ValueError as error:
            raise RunFailed(f"{self.given}: part {part} printed no JSON: {printed[:200]!r}") from error
        if not isinstance(figures, dict):
            raise RunFailed(f"{self.given}: part {part} printed no object: {printed[:200]!r}")
        return figures

    def run(self, arguments: Sequence[str], deadline: float) -> str:
        """Run a Python that imports this checkout; gives what it printed.

        Raises:
            RunFailed: it ended with an error, or was not done in time.
        """
        # AMPSQ_URL would send every benchmark to that server.
        environment = {name: value for name, value in os.environ.items() if name != "AMPSQ_URL"}
        path = [str(self.folder), *filter(None, [environment.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, *arguments],
            # `-m` puts the current folder before everything else.
            cwd=self.folder,
            env={**environment, "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A group of its own, which ends as a whole: a benchmark starts servers.
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            err = _end(process)
            raise RunFailed(self._failure(arguments, f"was not done after {deadline:g} s", err)) from None
        except BaseException:
            _end(process)
            raise
        if process.returncode:
            raise RunFailed(self._failure(arguments, f"ended with {process.returncode}", err))
        return out

    def _failure(self, arguments: Sequence[str], what: str, err: str) -> str:
        ran = " ".join(arguments) if arguments[0] == "-m" else "looking for its modules"
        last = "\n".join(f"  {line}" for line in err.splitlines()[-_LAST:])
        return f"{self.given} ({self.title}): {ran} {what}; its last words:\n{last or '  none'}"

    def verify(self, packages: Sequence[str]) -> None:
        """See that its packages, and no others, are what its runs import.

        Raises:
            RunFailed: one of them would come from elsewhere.
        """
        found = json.loads(self.run(["-c", _WHERE, *packages], _SOON))
        for name in packages:
            origin = found[name]
            if origin is None or not Path(origin).resolve().is_relative_to(self.folder.resolve()):
                raise RunFailed(
                    f"{self.given}: {name} would be imported from {origin or 'nowhere'}, not from its own checkout; "
                    "something in this environment comes before PYTHONPATH"
                )


def _end(process: subprocess.Popen[str]) -> str:
    """End a run and all that it started; gives what it wrote to stderr."""
    # Asked first: a benchmark that unwinds leaves no folders behind.
    for sign, retry_timeout in ((signal.SIGINT, _GRACE), (signal.SIGKILL, _SOON)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=retry_timeout)[1]
    return ""


def laid_out(given: str, folder: Path) -> Checkout:
    """Lay a git revision, or the files of a checkout's folder as they are now, out in a folder of its own.

    Raises:
        click.UsageError: there is no such revision or checkout.
        RunFailed: a process that would run it imports something else.
    """
    source, title = Path(given), str(Path(given).resolve())
    if not (source / "pyproject.toml").is_file():
        source, title = folder / "commit", _extracted(given, folder / "commit")
    try:
        packages = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-dir"]
        if _PROGRAM not in packages:
            raise click.UsageError(f"{given}: its pyproject.toml names no folder of {_PROGRAM}, the program")
        path = folder / "path"
        for name, where in sorted(packages.items()):
            place = path.joinpath(*name.split("."))
            shutil.copytree(source / where, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    except (OSError, KeyError, ValueError) as error:
        raise click.UsageError(f"{given}: its folders are not those that its pyproject.toml tells: {error}") from error
    (path / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    # Once, and not in the middle of the first run.
    compileall.compile_dir(path, quiet=2, workers=0)
    checkout = Checkout(given, title, path)
    checkout.verify(sorted(packages))
    return checkout


def _extracted(given: str, folder: Path) -> str:
    """Extract a revision's files; gives its commit and subject."""
    try:
        # What begins with a dash would be an option. A branch may move meanwhile, its commit does not.
        commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}").decode().strip()
        title = _git("log", "-1", "--format=%h %s", commit).decode().strip()
        # From the top: `git archive` gives the folder that it is called in.
        top = _git("rev-parse", "--show-toplevel").decode().removesuffix("\n")
        archive = _git("-C", top, "archive", "--format=tar", commit)
    except (OSError, subprocess.SubprocessError) as error:
        text = f"{given}: neither a revision of the git repository here nor a folder with a checkout of ampsq"
        raise click.UsageError(text) from error
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return title


def _git(*arguments: str) -> bytes:
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=_SOON).stdout
