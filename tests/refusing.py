"""Refusals of definitions: what is given, and what they say to it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from ampsq.base.errors import DefinitionError

NAMES = st.from_regex(r"[A-Za-z0-9_./-]{1,255}", fullmatch=True)


def refusal(make, *args, **elements):
    with pytest.raises(DefinitionError) as caught:
        make(*args, **elements)
    return str(caught.value)
