"""What the system tells of processes."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from rankslice.backend.runtime.system.processes import (
    all_processes,
    bytes_of,
    cpu_s_of,
    memory_of,
    stat_of,
    status_of,
    threads_of,
)

NOBODY = 1 << 30
"""No process has this number."""


def test_a_process_is_seen_as_another_reader_sees_it() -> None:
    stat, seen = stat_of(os.getpid()), psutil.Process()
    assert stat is not None
    assert "R" == stat.state
    assert stat.resident_bytes == pytest.approx(seen.memory_info().rss, rel=0.2)
    assert stat.cpu_s == pytest.approx(sum(seen.cpu_times()[:2]), abs=0.1)
    assert str(os.getuid()) == status_of("self", "Uid").split()[0]
    assert memory_of("self", "VmHWM") >= memory_of("self", "VmRSS") * 0.9 > 0
    assert os.getpid() in all_processes()
    assert bytes_of("self", "cmdline") == b"".join(word.encode() + b"\0" for word in seen.cmdline())


def test_threads_are_told_one_by_one() -> None:
    main = threading.main_thread().native_id
    assert main in threads_of("self")
    assert stat_of(f"self/task/{main}") is not None


def test_nothing_is_told_of_a_process_that_is_gone_and_its_state_of_one_that_has_ended() -> None:
    assert stat_of(NOBODY) is None
    assert 0 == cpu_s_of(NOBODY) == memory_of(NOBODY, "VmRSS")
    assert "" == status_of(NOBODY, "Uid")
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        stat = stat_of(process.pid)
        assert stat is not None
        assert stat.has_ended


@pytest.mark.parametrize("text", ["", "1 (a", "1 (a) b) R 2 3", "1 (a) R " + "x " * 40])
def test_a_text_that_is_no_stat_tells_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/stat").write_text(text)
    assert stat_of(1, tmp_path) is None
