"""Options of the test suite."""

from __future__ import annotations

import hypothesis
import pytest

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("rankslice", deadline=None)
hypothesis.settings.load_profile("rankslice")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden",
        action="store_true",
        help="write the folders in tests/golden anew instead of comparing with them",
    )
