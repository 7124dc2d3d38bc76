"""Results of public calls: exported, documented, frozen, with a readable text."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass

import returned
from cases import for_each

import ampsq
from ampsq import AmpsqError

EXPORTED = [each for each in map(ampsq.__getattr__, ampsq.__all__) if inspect.isclass(each)]


def is_made_by_calls(kind):
    """Return whether only the package makes it, as its text or its name says."""
    return bool(re.search(r"Made by|[Ss]ubscription$", f"{kind.__doc__} {kind.__name__}"))


FOUND = returned.returned([each for each in EXPORTED if not is_made_by_calls(each)])
RETURNED = sorted(FOUND, key=lambda kind: kind.__name__)


def ids(kind):
    return kind.__name__


def test_it_looks_at_what_calls_return():
    names = {kind.__name__ for kind in RETURNED}

    assert {"Subscription", "TopicSubscription", "SowMessage", "ConnectionEvent", "PersistedAck", "Server"} <= names
    assert {"Message", "AsyncMessage", "RecordChange", "RowSubscription", "Subscribing", "ConnectionState"} <= names


def test_every_type_that_a_public_call_returns_is_exported():
    # Errors are in ampsq.base.errors
    others = [kind for kind in RETURNED if not issubclass(kind, AmpsqError)]

    hidden = {kind.__name__: FOUND[kind] for kind in others if getattr(ampsq, kind.__name__, None) is not kind}

    assert hidden == {}


@for_each("kind", RETURNED, ids)
def test_it_is_documented_with_all_its_fields(kind):
    text = "\n".join(inspect.getdoc(each) or "" for each in kind.__mro__ if each.__module__.startswith("ampsq"))

    assert inspect.getdoc(kind)
    fields = returned.field_names(kind)
    told = set(re.findall(r"\w+", " ".join(re.findall(r"(?m)^ {4}(\w+(?:, \w+)*): ", text))))
    assert [field for field in fields if not field.startswith("_") and field not in told] == []


@for_each("kind", RETURNED, ids)
def test_it_has_a_text_of_its_own(kind):
    # What is raised has its message
    assert issubclass(kind, Exception) or kind.__repr__ is not object.__repr__


@for_each("kind", [kind for kind in RETURNED if is_dataclass(kind)], ids)
def test_its_fields_do_not_change(kind):
    assert kind.__dataclass_params__.frozen
