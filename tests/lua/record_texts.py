"""Records as the server keeps them."""

from __future__ import annotations


def record(stream_id, body, ends=0, others=""):
    """As lua/records/lib/record_text.lua writes it."""
    return f"{stream_id} {ends} b {len(others) + 1}\n{others}{body}"
