"""Coordinators that die at a call of a test's choice."""

from __future__ import annotations


class Died(BaseException):
    """A coordinator that is no more, at this very place."""


class Mortal:
    """A store that does something at its n-th call, before or after it; the coordinator knows nothing of it."""

    def __init__(self, store, at, what, *, after=False):
        self._store, self._at, self._what, self._after = store, at, what, after
        self.made = 0
        self._call = store.call

    def __enter__(self):
        self._store.call = self.call
        return self

    def __exit__(self, *_):
        self._store.call = self._call

    def call(self, call):
        self.made += 1
        if self.made - 1 == self._at and not self._after:
            self._what()
        at = self.made - 1
        try:
            return self._call(call)
        finally:
            # Also where the call was refused.
            if at == self._at and self._after:
                self._what()


def die(*_):
    raise Died
