"""Boards for tests, which skip where there can be none. Import them into a ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boards import Boards, why_not


def skip_without_boards() -> None:
    """Skip the test if there can be no boards here; the reason says what is missing."""
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def boards() -> Iterator[Boards]:
    """Two boards for all tests of a module, which leave them as they were."""
    skip_without_boards()
    with Boards(2) as both:
        yield both


@pytest.fixture(scope="module")
def rack(request: pytest.FixtureRequest) -> Iterator[Boards]:
    """Boards for all tests of a module, which leave them as they were.

    They are two with small disks, unless ``RACK`` of the module has other arguments.
    """
    skip_without_boards()
    with Boards(**{"count": 2, "disk_mb": 64, **getattr(request.module, "RACK", {})}) as boards:
        yield boards


@pytest.fixture
def fresh_boards() -> Iterator[Boards]:
    """Two boards for one test, which may do them any harm."""
    skip_without_boards()
    with Boards(2) as both:
        yield both
