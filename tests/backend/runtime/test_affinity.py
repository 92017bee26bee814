"""Ranks and their cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rankslice.backend.runtime.affinity import bind_to_cores, check_binding
from rankslice.backend.runtime.errors import JobError

USABLE = sorted(os.sched_getaffinity(0))
NO_CORE = 1000

BIND = """
import os, sys, threading
from pathlib import Path
from rankslice.backend.runtime.affinity import bind_to_cores
waiting = threading.Event()
before = threading.Thread(target=waiting.wait, daemon=True)
before.start()
bind_to_cores([int(sys.argv[1])])
after = threading.Thread(target=waiting.wait, daemon=True)
after.start()
for thread in Path("/proc/self/task").iterdir():
    print(*os.sched_getaffinity(int(thread.name)))
waiting.set()
"""


def test_all_threads_of_a_process_are_bound_those_that_ran_before_and_those_that_come() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", BIND, str(USABLE[-1])], capture_output=True, text=True, check=True
    )
    threads = answer.stdout.splitlines()
    assert {str(USABLE[-1])} == set(threads)
    assert 3 <= len(threads)


def test_a_core_that_the_board_lacks_is_told_with_those_it_has() -> None:
    with pytest.raises(JobError) as error:
        bind_to_cores([NO_CORE])
    expected = (
        f"cores [{NO_CORE}] cannot be used on this board; its cores are 0-{os.cpu_count() - 1},"
        f" of which {sorted(os.sched_getaffinity(os.getppid()))} may be used"
    )
    assert expected == str(error.value)
    assert USABLE == sorted(os.sched_getaffinity(0))


def test_a_binding_that_is_as_wide_as_the_rank_or_narrower_passes() -> None:
    check_binding(USABLE)
    check_binding([*USABLE, NO_CORE])


def test_a_thread_outside_the_ranks_cores_is_told() -> None:
    with pytest.raises(JobError) as error:
        check_binding([NO_CORE])
    assert f"a thread runs on cores {USABLE}, outside the rank's [{NO_CORE}]" == str(error.value)
