"""Values of a file that come from the environment: ``${NAME}``, ``${NAME:-default}``, and ``$${`` for ``${`` itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENVIRONMENT_ALLOWED", "substitute"]

ENVIRONMENT_ALLOWED: Final = "${NAME}, ${NAME:-default}, or $${ where no variable is meant"

_VARIABLE: Final = re.compile(r"(?P<plain>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{")


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Put variables into a text. What they hold is not looked through for further ones.

    Args:
        text: of one value.
        variables: those that there are; as in a shell, ``:-`` counts for one that is empty, too.

    Raises:
        DefinitionError: a variable is not there and has no default, or ``${`` begins none.
    """

    def value(found: re.Match[str]) -> str:
        if found["plain"]:
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            part = text[found.start() : found.start() + 20]
            raise DefinitionError(f"{shown(part)} is no variable; allowed: {ENVIRONMENT_ALLOWED}")
        if default is not None:
            return variables.get(name) or default
        if name not in variables:
            raise DefinitionError(
                f"${{{name}}}: the environment has no {name}; allowed: set it, or give a default, as in "
                f"${{{name}:-...}}; $${{{name}}} is that text itself"
            )
        return variables[name]

    return _VARIABLE.sub(value, text)
