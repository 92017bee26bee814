"""The environment variables and the cores of a rank's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.process_setup import bind_to_cores, check_binding

USABLE = sorted(os.sched_getaffinity(0))
NO_CORE = 1000

BIND = """
import os, sys, threading
from pathlib import Path
from rankslice.backend.runtime.process_setup import bind_to_cores
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


@pytest.mark.parametrize("others", [[], [USABLE[0]]])
@pytest.mark.parametrize("lacking", [NO_CORE, 10**12])
def test_a_core_that_the_board_lacks_is_told_with_those_that_may_be_used(
    others: list[int], lacking: int
) -> None:
    with pytest.raises(JobError) as error:
        bind_to_cores([*others, lacking])
    message = str(error.value)
    assert message.startswith(f"this board has no core {lacking}; the process may use core")
    assert f" {', '.join(map(str, USABLE))}: name these in the mapping" in message
    assert USABLE == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("online", "expected"),
    [("0\n", "core 1000 is offline"), ("1\n", "core 1000 is not allowed to this process")],
)
def test_a_core_that_is_there_and_cannot_be_used_is_told_with_the_reason(
    online: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = tmp_path / f"sys/devices/system/cpu/cpu{NO_CORE}"
    core.mkdir(parents=True)
    (core / "online").write_text(online)
    monkeypatch.setattr("rankslice.backend.runtime.process_setup.ROOT", tmp_path)
    with pytest.raises(JobError, match=expected):
        bind_to_cores([NO_CORE])


def test_a_binding_that_is_as_wide_as_the_rank_or_narrower_passes() -> None:
    check_binding(USABLE)
    check_binding([*USABLE, NO_CORE])


def test_a_thread_outside_the_ranks_cores_is_told() -> None:
    with pytest.raises(JobError) as error:
        check_binding([NO_CORE])
    assert f"a thread runs on cores {USABLE}, outside the rank's [{NO_CORE}]" == str(error.value)


RESTART = textwrap.dedent("""
    import json, os, sys
    from rankslice.backend.runtime import process_setup
    with open(sys.argv[1], "a") as starts:
        print(os.getpid(), file=starts)
    process_setup.start_again_with(dict(json.loads(sys.argv[2])))
    print(os.environ.get("A", ""), os.environ.get("LD_LIBRARY_PATH", ""), sys.argv[3:])
""")


def started(folder: Path, variables: dict[str, str], **environment: str) -> tuple[str, int]:
    """Return what a rank prints, and how often it was started, in one process."""
    starts = folder / "starts"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RESTART,
            starts,
            json.dumps(variables),
            "--frames",
            "two words",
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    processes = starts.read_text().split()
    assert 1 == len(set(processes))
    return done.stdout.strip(), len(processes)


@pytest.fixture(autouse=True)
def _no_library_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def test_a_rank_that_lacks_variables_starts_once_more_with_the_same_arguments(
    tmp_path: Path,
) -> None:
    output = started(tmp_path, {"A": "x y", "LD_LIBRARY_PATH": "/a"})
    assert ("x y /a ['--frames', 'two words']", 2) == output


def test_a_rank_that_has_its_variables_is_not_started_again(tmp_path: Path) -> None:
    assert ("x  ['--frames', 'two words']", 1) == started(tmp_path, {"A": "x"}, A="x")
    (tmp_path / "starts").unlink()
    assert 1 == started(tmp_path, {})[1]


def test_folders_of_libraries_are_put_before_those_that_are_there(tmp_path: Path) -> None:
    output = started(tmp_path, {"LD_LIBRARY_PATH": "/a:/b"}, LD_LIBRARY_PATH="/mpi")
    assert ("/a:/b:/mpi ['--frames', 'two words']", 2) == output
