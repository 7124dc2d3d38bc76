"""Errors: one class a code, and how a script's answer becomes one."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from ampsq.base import errors
from ampsq.base.errors import AmpsqError, Rejected, StaleLease, UnknownQueue, rejection
from ampsq.protocol import scripts

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

    assert {code for name in scripts.names() for code in scripts.script(name).fails} <= known


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
    assert str(refusal).endswith("(queue='work')")


def test_a_refusal_without_detail_is_read_too():
    assert str(rejection("AMPSQ_STALE_LEASE")) == StaleLease.__doc__


@pytest.mark.parametrize("text", ["", "ERR syntax error", "AMPSQ_NO_SUCH_CODE {}", "OOM command not allowed"])
def test_what_is_no_refusal_of_ours_is_none(text):
    assert rejection(text) is None


def test_everything_is_caught_by_the_root():
    assert all(issubclass(getattr(errors, n), AmpsqError) for n in errors.__all__ if n != "rejection")
