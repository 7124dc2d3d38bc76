"""The facts behind an explanation as plain values, ready for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampsq.messages.explain_look import client_of, filter_of
from ampsq.messages.returns import last_reason
from ampsq.transitions import State

if TYPE_CHECKING:
    from ampsq.messages.explain_look import Look

__all__ = ["facts_of"]


def facts_of(look: Look) -> dict[str, Any]:
    """What is known, ready for JSON; what does not apply is left out."""
    facts: dict[str, Any] = {
        "now": look.now,
        **{name: look.number(name) for name in ("leased", "delayed", "scheduled", "held", "remote", "unread")},
        "ready": look.number("ready") + look.number("sorted"),
        "subscriptions_in_all": look.number("subscriptions"),
    }
    if look.attended is not None:
        facts["coordinator"] = look.attended
    if not look.ref:
        due = {"next_due": look.next_due, "next_due_is_exact": look.next_due_is_exact}
        return facts | (due if look.next_due else {})
    facts |= {"topic": look.topic, "recorded": look.recorded, "head": look.is_head}
    facts |= {name: look.flag(name) for name in ("json", "enters", "is_barrier") if look.flag(name) is not None}
    if look.text("priority"):
        facts["priority"] = look.priority
    if look.attempts is not None:
        facts["attempts"] = dict(zip(("deliveries", "cancels", "last_reason"), look.attempts, strict=True))
        if said := last_reason(look.returns):
            facts["attempts"]["consumer_reason"] = said
    if look.number("ends"):
        facts["ends"] = look.number("ends")
    facts |= _facts_where(look)
    if look.text("before"):
        facts |= _waiting_facts(look)
    return facts


def _facts_where(look: Look) -> dict[str, Any]:
    """What is known of a message because of where it is."""
    match look.where:
        case State.LEASED:
            return {"lease": _lease_facts(look)}
        case State.DELAYED | State.SCHEDULED:
            return {"due": look.number("due")}
        case State.REMOTE:
            return {"owner": look.text("owner") or None, "asked": look.number("asked") or None}
        case State.SETTLED:
            return {"journal": _journal_facts(look)}
    return {}


def _lease_facts(look: Look) -> dict[str, Any]:
    holder, delivery, deadline = look.lease
    return {
        "subscription": holder,
        "client": client_of(look.text("client")) or None,
        "filter": filter_of(look.text("tree")) if look.text("tree") else None,
        "delivery": delivery,
        "until": deadline or None,
        "picked_up": not look.flag("unseen"),
        "silent": bool(look.flag("silent")),
    }


def _journal_facts(look: Look) -> dict[str, Any]:
    found = look.found
    if not found.how:
        return {"found": False, "searched_back_to": found.at or None, "ended": found.ended, "whole": found.whole}
    facts: dict[str, Any] = {"found": True, "how": found.how, "at": found.at, "ahead": bool(look.text("ahead"))}
    if found.consumer_reason:
        facts["consumer_reason"] = found.consumer_reason
    if found.how == "acknowledged" and found.why:
        facts["reason"] = found.why
    if found.how == "expired":
        facts |= {"reasons": found.why.split(","), "deliveries": found.deliveries, "cancels": found.cancels}
    return facts


def _waiting_facts(look: Look) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "before": look.before,
        "before_is_exact": not look.flag("at_least"),
        "room": look.room,
        "subscriptions": [
            {**each._asdict(), "filter": look.filters[each.filter].text if each.filter in look.filters else None}
            for each in look.subscriptions
        ],
        "holders": dict(look.holders),
    }
    if look.text("barrier"):
        facts["barrier"] = str(look.bookmark_of(look.text("barrier")))
    if look.definition.target_queue_depth is not None:
        facts["active"] = look.active
    return facts
