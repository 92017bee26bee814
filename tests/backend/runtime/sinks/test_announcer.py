"""The sink's voice, as a process whose stdout nobody may read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TELL = """
import sys
from pathlib import Path
from rankslice.backend.runtime.sinks.announcer import Announcer
from rankslice.backend.runtime.sinks.results import ResultsWriter
announcer = Announcer(ResultsWriter(Path(sys.argv[1]), "f", []), True)
announcer.write(0, [])
announcer.finish()
"""


def told(stdout: int, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", TELL, str(folder / "results.bin")]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_it_tells_how_many_frames_have_come_out(tmp_path: Path) -> None:
    ended = told(subprocess.PIPE, tmp_path)
    assert (0, "completed 1\ncompleted 1\n", "") == (ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("opened", [os.openpty, os.pipe], ids=["terminal", "pipe"])
def test_a_daemon_that_has_ended_is_no_error_of_the_sink(opened: object, tmp_path: Path) -> None:
    assert callable(opened)
    read, write = opened()
    os.close(read)
    try:
        ended = told(write, tmp_path)
    finally:
        os.close(write)
    assert (0, "") == (ended.returncode, ended.stderr)
