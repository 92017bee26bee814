"""What the sink tells of its progress, as a process whose stdout nobody may read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TELL = """
from rankslice.backend.runtime.sinks.progress_sink import ProgressSink
sink = ProgressSink()
sink.write(0, [])
sink.finish()
"""


def printed(stdout: int) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", TELL]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_it_tells_how_many_frames_have_come_out() -> None:
    ended = printed(subprocess.PIPE)
    assert (0, "completed 1\ncompleted 1\n", "") == (ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("opened", [os.openpty, os.pipe], ids=["terminal", "pipe"])
def test_a_daemon_that_has_ended_is_no_error_of_the_sink(opened: object) -> None:
    assert callable(opened)
    read, write = opened()
    os.close(read)
    try:
        ended = printed(write)
    finally:
        os.close(write)
    assert (0, "") == (ended.returncode, ended.stderr)
