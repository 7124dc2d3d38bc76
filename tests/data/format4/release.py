"""The release before, of commit 285c5f6, which writes format 4: what its wheel installs, for programs of its own.

Left out is what no test of two releases side by side runs: command line, console, gateway, Spark, configuration files,
benchmarks. It is made of the commit's wheel, from a clone that has it: python tests/data/format4/release.py
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

__all__ = ["ARCHIVE", "COMMIT", "arguments", "unpack"]

COMMIT = "285c5f6"
ARCHIVE = Path(__file__).with_name(f"ampsq-{COMMIT}.tar.xz")
_LEFT_OUT = {"bench", "cli", "console", "files", "gateway", "spark"}
#: What a program of it begins with: an editable installation of today's release would give it modules of its own.
_ALONE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
sys.path.insert(0, {folder!r})
import ampsq
assert ampsq.__file__.startswith({folder!r}), ampsq.__file__
"""


def unpack(folder):
    """Unpack it into a folder, which is what programs of it import from."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def arguments(folder, program):
    """The command line of a program of that release; it runs with the same interpreter and what that has installed."""
    return [sys.executable, "-c", _ALONE.format(folder=str(folder)) + program]


def _make():
    with tempfile.TemporaryDirectory() as folder:
        sources = subprocess.run(
            ["git", "archive", COMMIT],  # noqa: S607  (the developer's own)
            check=True,
            capture_output=True,
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(sources)) as archive:
            archive.extractall(Path(folder, "sources"), filter="data")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
        subprocess.run([*pip, str(Path(folder, "sources"))], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as found, tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for name in sorted(found.namelist()):
                package, _, rest = name.partition("/")
                if package != "ampsq" or rest.partition("/")[0] in _LEFT_OUT:
                    continue
                content = found.read(name)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    _make()
