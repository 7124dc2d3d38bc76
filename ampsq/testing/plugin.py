"""Fixtures for pytest, which finds them by itself: an instance of a test's own, and clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampsq.client.async_client import AsyncClient
    from ampsq.client.client import Client
    from ampsq.testing.instance import HeldInstance

__all__ = ["ampsq_async_client", "ampsq_client", "ampsq_instance", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line say on which server the tests run."""
    parser.getgroup("ampsq").addoption(
        "--ampsq-server",
        default="memory",
        metavar="SERVER",
        help="server of the fixture ampsq_instance: memory (default), embedded, or an address as redis://localhost",
    )


@pytest.fixture
def ampsq_instance(request: pytest.FixtureRequest) -> Iterator[HeldInstance]:
    """An instance of the test's own, whose time is the test's; see `ampsq.testing.Instance`."""
    # Late: pytest loads this module in every run, and most tests of most projects need no instance.
    from ampsq.testing.instance import HeldInstance  # noqa: PLC0415

    with HeldInstance(request.config.getoption("--ampsq-server")) as instance:
        yield instance


@pytest.fixture
def ampsq_client(ampsq_instance: HeldInstance) -> Client:
    """A client of `ampsq_instance`, which is closed with it."""
    return ampsq_instance.client


@pytest.fixture
def ampsq_async_client(ampsq_instance: HeldInstance) -> AsyncClient:
    """A client of `ampsq_instance` for asyncio, to be used with ``async with``."""
    return ampsq_instance.async_client()
