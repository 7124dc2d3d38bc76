"""Errors: one class a code, and how a script's answer becomes one."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import Counter

import pytest

from ampsq.base import errors
from ampsq.base.bookmarks import Bookmark, Bookmarks
from ampsq.base.errors import AmpsqError, Rejected, StaleLease, UnknownQueue, rejection
from ampsq.definitions.queue import Queue
from ampsq.definitions.topic import ConflatedTopic
from ampsq.protocol import scripts
from ampsq.publishing.memory_store import StoreEntry
from ampsq.publishing.session import RunRefused
from ampsq.topics.topic_names import ConflatedName

REJECTED = Rejected.__subclasses__()


def test_each_code_is_one_class_and_each_class_one_code():
    codes = Counter(cls.code for cls in REJECTED)

    assert set(codes.values()) == {1}
    assert "" not in codes


@pytest.mark.parametrize("cls", REJECTED, ids=lambda cls: cls.__name__)
def test_a_code_is_the_name_of_its_class(cls):
    words = "".join("_" + letter if letter.isupper() else letter for letter in cls.__name__).upper()

    assert cls.code == "AMPSQ" + words
    assert type(rejection(cls.code + " {}")) is cls


def test_every_code_that_a_script_gives_has_a_class():
    known = {cls.code.removeprefix("AMPSQ_") for cls in REJECTED}

    assert {code for name in scripts.names() for code in scripts.compose(name).fails} <= known


def test_every_error_is_exported_and_drawn_in_the_tree():
    classes = {name for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, AmpsqError)}

    assert set(errors.__all__) == classes | {"rejection"}
    drawn = set(errors.__doc__.replace("\n", " ").split())
    assert {name for name in classes if name not in drawn} == set()


@pytest.mark.parametrize("suffix", ["", " script: 0a1b, on @user_script:12."])
def test_a_refusal_is_read_with_its_detail(suffix):
    refusal = rejection('AMPSQ_UNKNOWN_QUEUE {"queue":"work"}' + suffix)

    assert isinstance(refusal, UnknownQueue)
    assert refusal.detail == {"queue": "work"}
    assert str(refusal).startswith("'work' is no queue; ")


def test_a_refusal_without_detail_is_read_too():
    assert str(rejection("AMPSQ_STALE_LEASE")) == StaleLease.__doc__


@pytest.mark.parametrize("text", ["", "ERR syntax error", "AMPSQ_NO_SUCH_CODE {}", "OOM command not allowed"])
def test_what_is_no_refusal_of_ours_is_none(text):
    assert rejection(text) is None


def test_everything_is_caught_by_the_root():
    assert all(issubclass(getattr(errors, n), AmpsqError) for n in errors.__all__ if n != "rejection")


def _examples():
    """One of each, with what its constructor takes, and some that were told more afterwards."""
    taken = {
        errors.ExpressionError: ("no such function", "FOO(/a)", 1),
        errors.TopicNotDefined: ("ordres", ["orders"]),
        errors.NotPersisted: ("two are missing", 3, 4, 1, "the server is away"),
        errors.SlowClient: ("orders", "client_message_age_limit", 900, 500),
    }
    for kind in (each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, AmpsqError)):
        if issubclass(kind, Rejected):
            yield kind(queue="work", message=3)
        else:
            yield kind(*taken.get(kind, ("what it is about",)))
    yield errors.FormatMismatch(found=False)
    yield UnknownQueue(name="wrok").with_explanation("'wrok' is no queue; did you mean 'work'?")
    yield ConflatedName(ConflatedTopic(name="slow", underlying_topic="orders", interval="1s", key="/id"))
    yield RunRefused(StoreEntry(3, 1, "publish", (b"orders", b"b", b"{}")), errors.MissingKey(key="/id"))
    certain = errors.NoAnswer("nothing was sent")
    certain.may_have_run, certain.definition = False, Queue(name="work")
    certain.published = Bookmarks("nyc.1")
    certain.published.add(Bookmark("orders~nyc.1~1-0"))
    yield certain


def _said(error):
    # An error within an error is another object in the copy.
    told = {name: str(value) if isinstance(value, AmpsqError) else value for name, value in vars(error).items()}
    return type(error), str(error), error.args, {**told, "published": list(error.published)}


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301 - our own
@pytest.mark.parametrize("error", list(_examples()), ids=lambda error: type(error).__name__)
def test_an_error_goes_to_other_processes_as_it_is(error, again):
    assert _said(again(error)) == _said(error)
