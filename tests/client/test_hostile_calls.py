"""Hostile calls of the public package: whatever is refused is refused in words that teach, and nothing hangs."""

from __future__ import annotations

import pytest
from fuzz import Fuzz

#: Calls of `make test`, and of `make test-all`; more by `python tests/client/fuzz.py --calls 20000`.
FEW, MANY = 400, 2_000


def refusals(server, instance, numbers):
    fuzz = Fuzz(server.url, instance, 1)
    fuzz.run(numbers)
    assert sum(fuzz.outcomes.values()) == len(numbers)
    # Some calls succeed, and many are refused: otherwise nothing was tried.
    assert fuzz.outcomes["done"] > len(numbers) / 5
    assert fuzz.outcomes["DefinitionError"] > len(numbers) / 5
    return fuzz.unclear


def test_hostile_calls_are_refused_in_words_that_teach(valkey, instance):
    assert refusals(valkey, instance, range(FEW)) == []


@pytest.mark.slow
def test_many_more_hostile_calls_are_refused_in_words_that_teach(valkey, instance):
    assert refusals(valkey, instance, range(FEW, FEW + MANY)) == []
