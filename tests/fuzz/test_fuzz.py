"""No file or client makes a reader or server crash, compute without end or take endless memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from targets import TARGETS, edited

FOLDER = Path(__file__).parent


def ended(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder in a process of its own, which its memory limit may kill."""
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )


def campaign(target: str, examples: int, seed: int) -> None:
    """Let a reader meet damaged files."""
    done = ended(FOLDER / "campaign.py", target, f"--examples={examples}", f"--seed={seed}")
    assert 0 == done.returncode, done.stderr[-4000:]


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
    done = ended(script)
    assert 1 == done.returncode
    assert "KeyError: 'a bug'" in done.stderr
    assert "content=b'!" in done.stderr


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
        done = ended(script)
        assert 1 == done.returncode
        assert error in done.stderr


@pytest.mark.ci
def test_a_server_answers_others_while_clients_send_rubbish() -> None:
    done = ended(FOLDER / "clients.py", "--seconds", "8")
    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-4000:]
