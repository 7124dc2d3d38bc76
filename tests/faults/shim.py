"""Servers behind `shim.c`: their wall clock can be stepped, and a loss of power takes what they had not flushed.

It needs a C compiler. Where there is none, `compiled` says so, and campaigns do without: no clock steps, and a loss of
power takes the end of the file by its age (`power.py`), not by what was flushed.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

__all__ = ["MISSING", "Shim", "compiled"]

#: What is said where nothing can be compiled.
MISSING = "no C compiler (cc or gcc): no clock steps, and power is lost by the age of what was written"
_SOURCE = Path(__file__).with_name("shim.c")
#: As `shim.c` has them.
_FILES = 250
_HEAD, _FILE = struct.Struct("=qq"), struct.Struct("=Qq")


def compiled(folder):
    """Compile the shim into a folder; gives its path, or None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    out = Path(folder, "shim.so")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(out), str(_SOURCE)], check=True)
    return out


class Shim:
    """The memory that one server shares with whoever disturbs it.

    Args:
        library: what `compiled` gave.
        path: of the file that both map.
    """

    def __init__(self, library, path):
        self._path = Path(path)
        self._path.write_bytes(bytes(_HEAD.size + _FILES * _FILE.size))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "AMPSQ_SHIM": str(path)}

    def step_clock(self, seconds):
        """Let the server's clock be so many seconds off the machine's, from now on."""
        self._memory[:8] = struct.pack("=q", int(seconds * 1e6))

    def _flushed(self):
        """Inode -> how much of the file is on the disk."""
        used = min(_HEAD.unpack_from(self._memory)[1], _FILES)
        return dict(_FILE.unpack_from(self._memory, _HEAD.size + number * _FILE.size) for number in range(used))

    def note_start(self, directory):
        """Everything that is in a server's folder is on the disk, as far as it is there when the server starts."""
        files = [path.stat() for path in Path(directory).glob("appendonlydir/*")]
        struct.pack_into("=q", self._memory, 8, len(files))
        for number, found in enumerate(files):
            _FILE.pack_into(self._memory, _HEAD.size + number * _FILE.size, found.st_ino, found.st_size)

    def lose_power(self, directory, kept):
        """Take from a dead server's files what it had not flushed, but for a part of it.

        Args:
            directory: the server's.
            kept: the part of what was not flushed that reached the disk all the same, 0 to 1.

        Returns:
            Bytes lost.
        """
        flushed, lost = self._flushed(), 0
        for path in Path(directory).glob("appendonlydir/*"):
            found = path.stat()
            sure = min(flushed.get(found.st_ino, 0), found.st_size)
            length = sure + int((found.st_size - sure) * kept)
            if length < found.st_size:
                os.truncate(path, length)
                lost += found.st_size - length
        return lost

    def close(self):
        self._memory.close()
