"""Writes ampsq/protocol/library_hash.py, by which a server's functions are known without composing them.

python lua/library_hash.py            # after a change of a script of the server functions, or of what composes them
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ampsq.protocol.functions import library

__all__ = ["PATH", "text"]

#: Where it is written to, in a checkout.
PATH: Final = Path(__file__).resolve().parents[1] / "ampsq" / "protocol" / "library_hash.py"
_TEXT: Final = '''\
"""SHA-256 of this release's server functions, as their names have the beginning of it.

Written by lua/library_hash.py; a test compares it with what is composed.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LIBRARY_HASH"]

LIBRARY_HASH: Final = "{}"
'''


def text() -> str:
    """Return the text of the module."""
    return _TEXT.format(library().hash)


if __name__ == "__main__":
    PATH.write_text(text())
