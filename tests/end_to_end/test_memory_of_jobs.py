"""What the ranks of a job keep in memory."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil
import pytest
from real_jobs import chain, chain_folder, let_ranks_sleep, ranks_of

VALUES = 2_000_000
SLOT_BYTES = 4 * VALUES


def own_bytes(process: psutil.Process) -> int:
    """Return what a process has in memory, without pages of files.

    A page that two ranks have mapped counts half for each of them. Those of libraries would count
    less while programs that take no part have them mapped, too.
    """
    told = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return sum(1024 * int(kb) for kb in re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", told, re.M))


def memory_bytes(folder: Path, *options: str) -> float:
    """Run a job; return the sum of what its two ranks have in memory while frames flow.

    Frames flow for two seconds at the end; it is the median of one of these. A value of a moment in
    which a rank maps memory may be larger.
    """
    rankslice = Path(sys.executable).with_name("rankslice")
    command = [rankslice, "run", folder, "--frames", "40", *options]
    sums: list[tuple[float, float]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        while launcher.poll() is None:
            time.sleep(0.02)
            with suppress(psutil.Error, OSError):
                found = [own_bytes(rank) for rank in ranks_of(folder).values()]
                if len(found) == 2:
                    sums.append((time.monotonic(), sum(found)))
    assert 0 == launcher.returncode
    end_s = sums[-1][0]
    return median(each for at_s, each in sums if 0.5 < end_s - at_s < 1.5)


@pytest.mark.ci
def test_slots_that_two_ranks_share_are_in_memory_once(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 2, chain(2, VALUES, result_width=4)), 50)
    saved = memory_bytes(folder, "--no-direct") - memory_bytes(folder)
    # Three slots for both ranks, instead of two for each of them.
    assert 0.9 * SLOT_BYTES < saved
