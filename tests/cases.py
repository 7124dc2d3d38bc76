"""Cases of a test: many as one item, where items would cost more than what they look at; some in `make test` alone."""

from __future__ import annotations

import functools
import inspect

import pytest

__all__ = ["first_ones", "for_each", "seeds", "short_and_whole"]


def seeds(number, soon):
    """Parametrize a test with seeds from 0 on, of which `make test` has the first ones alone."""
    return first_ones("seed", range(number), soon)


def first_ones(arguments, cases, soon):
    """Parametrize a test with cases, of which `make test` has the first ones alone, as many as `soon` says."""
    several = "," in arguments if isinstance(arguments, str) else True
    return pytest.mark.parametrize(
        arguments,
        [
            case if place < soon else pytest.param(*(case if several else (case,)), marks=pytest.mark.slow)
            for place, case in enumerate(cases)
        ],
    )


def short_and_whole(argument, short, whole):
    """Run a test with a small number, and with the whole one in `make test-slow`."""
    return first_ones(argument, (short, whole), 1)


def for_each(argument, cases, name=str):
    """Call a test with each of the cases in one item: for what changes nothing, since all share its fixtures.

    All that fail are raised together, each with the case's name.

    Args:
        argument: the test's argument that is a case.
        cases: a list, or a function that makes it when the test runs.
        name: makes the name of a case.
    """

    def decorate(test):
        @functools.wraps(test)
        def call_all(**fixtures):
            failures = []
            found = list(cases() if callable(cases) else cases)
            assert found, "no cases"
            for case in found:
                try:
                    test(**fixtures, **{argument: case})
                except Exception as error:  # noqa: BLE001 - all that fail are raised below
                    error.add_note(f"{argument}: {name(case)}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(found)} cases", failures)

        parameters = [each for each in inspect.signature(test).parameters.values() if each.name != argument]
        call_all.__signature__ = inspect.Signature(parameters)
        return call_all

    return decorate
