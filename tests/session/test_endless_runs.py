"""Runs that end when they are told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import COMMAND
from real_jobs import debians_mpirun, wheels_mpirun

from rankslice.backend.runtime.sinks.results import read_results

ENDLESS = ("--frames", "unlimited", "--fps", "100", "--overflow", "drop")


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start an endless run; return it when its first frame has come out."""
    job = subprocess.Popen(
        [*COMMAND, "run", *map(str, (folder, *ENDLESS, "--output", "-", *arguments))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    line = b""
    while not line.endswith(b"\n"):  # what is read ahead would be missing later
        line += os.read(job.stdout.fileno(), 1) or b"\n"
    assert line.startswith(b'{"frame": 0, "input": "random 0", "arrival": 0, "arrived_s": ')
    return job


@pytest.mark.ci
@pytest.mark.parametrize(
    ("open_mpi", "number"), [(wheels_mpirun, signal.SIGINT), (debians_mpirun, signal.SIGTERM)]
)
def test_a_signal_ends_an_endless_run_once_all_that_entered_has_come_out(
    built: Path, tmp_path: Path, open_mpi: Callable[[], Path], number: signal.Signals
) -> None:
    record = tmp_path / "run.json"
    job = start(built, "--mpirun", open_mpi(), "--json", record)
    job.send_signal(number)
    out, err = job.communicate(timeout=120)
    assert 0 == job.returncode
    assert f"ended by {number.name}: every frame that had entered has come out\n" in err
    summary = json.loads(record.read_text())
    assert summary["frames"] == summary["completed"] == 1 + len(out.splitlines())
    assert summary["completed"] == len(read_results(built / "results.bin"))
    report = json.loads((built / "report.json").read_text())
    assert summary["frames"] == report["ranks"][0]["source"]["frames"]


@pytest.mark.ci
def test_a_second_signal_ends_an_endless_run_at_once(built: Path) -> None:
    job = start(built, "--results", "/dev/null", "--start-timeout", "60")
    # What nobody reads holds the run back, so that it cannot end by the first one.
    job.send_signal(signal.SIGTERM)
    assert job.stderr is not None
    assert "SIGTERM: no further frame enters; a second signal ends the job at once\n" == (
        job.stderr.readline()
    )
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert 128 + signal.SIGTERM == job.returncode
