"""Writes the hashes by which a process knows the scripts and the server functions without composing them.

That of the functions stands in ampsq/protocol/functions.py, those of the scripts in ampsq/protocol/released_scripts.py.

python tests/library_hash.py            # after a change of a script, of the schema, or of what composes scripts
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ampsq.protocol.functions import LIBRARY_HASH, library
from ampsq.protocol.scripts import compose, names, sources_hash

__all__ = ["PATH", "SCRIPTS_PATH", "scripts_text", "text"]

_PROTOCOL: Final = Path(__file__).resolve().parents[1] / "ampsq" / "protocol"
#: Where the hash of the functions is, and those of the scripts, in a checkout.
PATH: Final = _PROTOCOL / "functions.py"
SCRIPTS_PATH: Final = _PROTOCOL / "released_scripts.py"
_TOP: Final = """\
\"\"\"The SHA1 of each script, so that a client calls it without composing it; written by tests/library_hash.py.\"\"\"

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["READING", "SHA1S", "SOURCES"]

#: Hash of all that they are composed of: a checkout where that is another one composes them.
SOURCES: Final = "{sources}"
#: Scripts whose flags say that they write nothing.
READING: Final = frozenset(
    {{
{reading}
    }}
)
#: By the verb of each.
SHA1S: Final[Mapping[str, str]] = MappingProxyType(
    {{
{sha1s}
    }}
)
"""


def text() -> str:
    """Return the text of the module with the hash of the functions that are composed now."""
    return PATH.read_text().replace(LIBRARY_HASH, library().hash)


def scripts_text() -> str:
    """Return the text of the module with the SHA1s of the scripts that are composed now."""
    composed = [compose(name) for name in names()]
    return _TOP.format(
        sources=sources_hash(),
        reading="\n".join(f'        "{each.name}",' for each in composed if each.only_reads),
        sha1s="\n".join(f'        "{each.name}": "{each.sha}",' for each in composed),
    )


if __name__ == "__main__":
    PATH.write_text(text())
    SCRIPTS_PATH.write_text(scripts_text())
