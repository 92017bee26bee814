"""Which tests ``make test`` leaves to the other tiers."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
JOBS = ("boards", "endurance", "faults")
"""Folders whose tests run jobs under mpirun, or boards."""

ONE_OF_EACH_KIND = {
    "test_any_window_lets_all_frames_through[3]",
    "test_boards_give_what_the_unsliced_model_gives[wheels_mpirun]",
    "test_a_job_that_comes_to_harm_ends_soon_says_where_and_leaves_nothing_behind"
    "[killed-rank0-5.0]",
}
"""A sound job, one across two boards, and one with a fault."""


def is_in_first_tier(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in ("ci", "slow"))


def test_make_test_runs_one_job_of_each_kind(request: pytest.FixtureRequest) -> None:
    """Without this, it would take a little longer with each new test."""
    files = {
        item.name
        for item in request.session.items
        if item.path.relative_to(TESTS).parts[0] in JOBS and is_in_first_tier(item)
    }
    assert files <= ONE_OF_EACH_KIND, "mark these: @pytest.mark.ci"
