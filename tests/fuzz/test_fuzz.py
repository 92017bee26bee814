"""No file makes a reader crash, compute without end or take memory without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from targets import TARGETS, edited

CAMPAIGN = Path(__file__).with_name("campaign.py")


def campaign(target: str, examples: int, seed: int) -> None:
    """Let a reader meet damaged files in a process of its own, which its memory limit may kill."""
    options = ["--examples", str(examples), "--seed", str(seed)]
    ended = subprocess.run(
        [sys.executable, CAMPAIGN, target, *options], capture_output=True, text=True, check=False
    )
    assert 0 == ended.returncode, ended.stderr[-4000:]


@pytest.mark.ci
@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_read_or_refused_with_an_error_for_people(target: str) -> None:
    campaign(target, examples=300, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS)
def test_very_many_damaged_files_are_read_or_refused(target: str) -> None:
    campaign(target, examples=20_000, seed=1)


def test_edits_are_made_one_after_the_other() -> None:
    assert b"aXYd" == edited(b"abcd", [(1, 1, b"XY"), (3, 1, b"")])


def test_a_campaign_finds_a_reader_that_crashes(tmp_path: Path) -> None:
    script = tmp_path / "find.py"
    script.write_text(
        "import campaign, targets\n"
        "def read(path):\n"
        "    if b'!' in path.read_bytes(): raise KeyError('a bug')\n"
        "campaign.run(targets.Target('x', read, (b'seed',), (b'!',)), 300, 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(CAMPAIGN.parent)},
    )
    assert 1 == ended.returncode
    assert "KeyError: 'a bug'" in ended.stderr
    assert "content=b'!" in ended.stderr


@pytest.mark.ci
def test_a_campaign_finds_a_reader_that_takes_gigabytes_or_does_not_end(tmp_path: Path) -> None:
    script = tmp_path / "find.py"
    for body, error in {"bytearray(4 << 30)": "MemoryError", "endless()": "TimeoutError"}.items():
        script.write_text(
            "import campaign, targets\n"
            "campaign.SECONDS = 0.2\n"
            "def endless():\n"
            "    while True: pass\n"
            "def read(path):\n"
            f"    if b'!' in path.read_bytes(): {body}\n"
            "campaign.run(targets.Target('x', read, (b'seed',), (b'!',)), 300, 0)\n"
        )
        ended = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(CAMPAIGN.parent)},
        )
        assert 1 == ended.returncode
        assert error in ended.stderr
