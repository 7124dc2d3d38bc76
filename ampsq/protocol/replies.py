"""Replies as plain values, whatever form the server's protocol gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampsq.base.log_positions import FIRST, parse_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.base.log_positions import Id

__all__ = ["last_id", "pairs", "plain", "streams", "text", "texts"]


def plain(reply: Any) -> Any:
    """Give a reply as it came."""
    return reply


def text(reply: bytes | None) -> str:
    """Read one value; "" where there is none."""
    return reply.decode() if reply else ""


def pairs(reply: Any) -> Iterable[tuple[bytes, Any]]:
    """Names and values of a hash or of facts, which come in turn or as a dict."""
    return zip(reply[::2], reply[1::2], strict=True) if isinstance(reply, list) else reply.items()


def texts(reply: Any) -> dict[str, str]:
    """Read a hash of texts."""
    return {name.decode(): value.decode() for name, value in pairs(reply)}


def last_id(reply: Any) -> Id:
    """Read the ID of the only entry of a page; `FIRST` where there is none."""
    return parse_id(reply[0][0]) if reply else FIRST


def streams(reply: Any) -> Mapping[bytes, list[tuple[bytes, list[bytes]]]]:
    """Read what ``XREAD`` gives: of each stream that has news its key, and its entries."""
    return reply if isinstance(reply, dict) else dict(reply or ())
