"""Problems for several of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain_problems import platform, problem

from rankslice.exploration.problem.problem import Problem


@pytest.fixture
def two_boards(tmp_path: Path) -> Problem:
    return problem(tmp_path, platform(2, power=True))
