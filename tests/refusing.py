"""Refusals of definitions: what is given, and what they say to it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from ampsq.base.errors import DefinitionError
from ampsq.files.config import load

NAMES = st.from_regex(r"[A-Za-z0-9_./-]{1,255}", fullmatch=True)


def refusal(make, *args, **elements):
    with pytest.raises(DefinitionError) as caught:
        make(*args, **elements)
    return str(caught.value)


def refusals(path_or_text):
    """Load a file of definitions, or its text, which is refused: the lines of what that says."""
    return refusal(load, path_or_text).splitlines()
