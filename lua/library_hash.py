"""Writes the hash by which a server's functions are known without composing them, into ampsq/protocol/functions.py.

python lua/library_hash.py            # after a change of a script of the server functions, or of what composes them
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ampsq.protocol.functions import LIBRARY_HASH, library

__all__ = ["PATH", "text"]

#: Where it is, in a checkout.
PATH: Final = Path(__file__).resolve().parents[1] / "ampsq" / "protocol" / "functions.py"


def text() -> str:
    """Return the text of the module with the hash of what is composed now."""
    return PATH.read_text().replace(LIBRARY_HASH, library().hash)


if __name__ == "__main__":
    PATH.write_text(text())
