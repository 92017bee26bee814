"""No Keras file makes reading it crash, compute without end or take memory without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).parents[1] / "fuzz" / "campaign.py"


def campaign(suffix: str, examples: int, seed: int) -> None:
    """Let the reader meet damaged files in a process of its own."""
    options = ["--examples", str(examples), "--seed", str(seed)]
    ended = subprocess.run(
        [sys.executable, CAMPAIGN, suffix, *options], capture_output=True, text=True, check=False
    )
    assert 0 == ended.returncode, ended.stderr[-4000:]


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_damaged_files_are_read_or_refused_with_an_error_for_people(suffix: str) -> None:
    campaign(suffix, examples=150, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_very_many_damaged_files_are_read_or_refused(suffix: str) -> None:
    campaign(suffix, examples=3000, seed=1)
