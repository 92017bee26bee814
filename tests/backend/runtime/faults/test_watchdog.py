"""Status pages, and the watchdog as the process that it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rankslice.backend.runtime.faults import pages, watchdog
from rankslice.backend.runtime.faults.pages import ALIVE, DONE, FAILED, STOPPED, Status, StatusPage
from rankslice.backend.runtime.faults.private_folder import _LOCK as LOCK, open_private
from rankslice.backend.runtime.faults.watched_process import Process

PATIENCE_S = 60

PAGES = "rankslice-aaaaaaaa"
"""What the folder of a job may be called."""

RANK = """
import os, sys
from rankslice.backend.runtime.faults.pages import StatusPage
folder, number, place, step, state = sys.argv[1:]
page = StatusPage(os.open(folder, os.O_RDONLY), int(number), place)
if step:
    page.at(-1, step.encode())
page.set_state(int(state))
print("ready", flush=True)
taken = bytearray(int(sys.stdin.readline().strip() or 0))
"""
"""A process with a status page that ends when its stdin says so, with a number of bytes to take."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / PAGES


def make(folder: Path) -> None:
    """Make the folder of a job where it is missing."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / LOCK).touch()


def opened(folder: Path) -> int:
    """Return a descriptor of a folder, which is made where it is missing."""
    make(folder)
    return os.open(folder, os.O_RDONLY)


def page_in(folder: Path, number: int, place: str) -> StatusPage:
    return StatusPage(opened(folder), number, place)


def only_page(folder: Path) -> Status:
    (status,) = pages.read_pages(opened(folder))
    return status


@contextmanager
def rank(
    folder: Path, number: int, step: str = "segment 0, frame 7", state: int = ALIVE
) -> Iterator[subprocess.Popen[str]]:
    place = f"rank {number} (edge01_cpu{number} on edge01)"
    make(folder)
    with subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), str(number), place, step, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        yield process
        if process.poll() is None:
            process.kill()


@contextmanager
def memory_group() -> Iterator[Path]:
    """Give a control group whose processes may have 10 MB; skip the test if there can be none."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent, limit = (first, "memory.limit_in_bytes") if first.is_dir() else (second, "memory.max")
    group = parent / f"rankslice-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs to make a control group: {error}")
    try:
        try:
            (group / limit).write_text(str(10 << 20))
        except OSError as error:
            pytest.skip(f"needs a control group of memory: {error}")
        yield group
    finally:
        group.rmdir()


@contextmanager
def guarding(
    folder: Path, ranks: int, mpirun: int | None = None, limit_s: float = PATIENCE_S
) -> Iterator[subprocess.Popen[str]]:
    """Run the watchdog of a board; this test plays mpirun, unless another process does."""
    make(folder)
    with subprocess.Popen(
        [*watchdog._command(), str(folder), str(ranks), str(mpirun or os.getpid()), str(limit_s)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        if process.poll() is None:
            process.kill()


def asleep(process: subprocess.Popen[str], watched: int) -> None:
    """Stop a watchdog once it watches so many processes: it misses what happens meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            infos = Path(f"/proc/{process.pid}/fdinfo").iterdir()
            if watched == sum("Pid:" in info.read_text() for info in infos):
                break
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)


def said(process: subprocess.Popen[str]) -> str:
    """Return what the watchdog says until it ends; it ends well."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert 0 == process.returncode
    return errors


def let_end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert 0 == process.wait(PATIENCE_S)


@pytest.mark.parametrize("text", ["", "segment 0, frame 17", "Ärmel ❄", "two\nlines", "a" * 504])
def test_a_page_reads_as_it_was_written(folder: Path, text: str) -> None:
    page = page_in(folder, 3, "rank 3 (edge01_cpu0 on edge01)")
    page.at(-1, text.encode())
    page.set_state(STOPPED)
    status = only_page(folder)
    assert (os.getpid(), STOPPED) == (status.process.number, status.state)
    assert ("rank 3 (edge01_cpu0 on edge01)", text) == (status.rank_name, status.step)
    assert status.process.is_alive


def test_a_text_beyond_the_page_is_cut_even_within_a_letter(folder: Path) -> None:
    page = page_in(folder, 0, "❄" * 1000)
    page.at(-1, b"x" * 10_000)
    status = only_page(folder)
    assert "❄" * 170 + "\N{REPLACEMENT CHARACTER}" == status.rank_name
    assert "x" * 504 == status.step
    assert ALIVE == status.state


def test_a_shorter_text_leaves_nothing_of_a_longer_one(folder: Path) -> None:
    page = page_in(folder, 0, "rank 0")
    page.at(1000, b"segment 0, frame ")
    page.at(2, b"segment 1, frame ")
    assert "segment 1, frame 2" == only_page(folder).step


def test_a_step_is_read_with_its_frame_in_the_middle(folder: Path) -> None:
    page_in(folder, 0, "rank 0").at(17, b"segment 1, frame \0 of surge")
    assert "segment 1, frame 17 of surge" == only_page(folder).step


def test_a_rank_that_is_killed_is_named_with_where_it_was(folder: Path) -> None:
    with guarding(folder, 2) as process, rank(folder, 0) as other, rank(folder, 1) as victim:
        victim.send_signal(signal.SIGKILL)
        assert process.stderr is not None
        assert (
            "rankslice: rank 1 (edge01_cpu1 on edge01): the process was killed or crashed,"
            " last at segment 0, frame 7; dmesg on its board shows whether memory ran out\n"
        ) == process.stderr.readline()
        let_end(other)
        assert "" == said(process)
    assert not folder.exists()


@pytest.mark.ci
def test_a_rank_that_is_killed_as_memory_runs_out_is_named_with_the_reason(folder: Path) -> None:
    with memory_group() as group, guarding(folder, 1) as process, rank(folder, 0) as victim:
        asleep(process, watched=2)
        process.send_signal(signal.SIGCONT)
        (group / "cgroup.procs").write_text(str(victim.pid))
        assert victim.stdin is not None
        victim.stdin.write(f"{100 << 20}\n")
        victim.stdin.flush()
        assert -signal.SIGKILL == victim.wait(PATIENCE_S)
        assert (
            "rankslice: rank 0 (edge01_cpu0 on edge01): the process was killed or crashed, last at"
            " segment 0, frame 7; meanwhile the kernel has killed a process because memory ran out:"
        ) in said(process)


def test_a_rank_that_is_killed_early_was_starting(folder: Path) -> None:
    with guarding(folder, 1) as process, rank(folder, 0, step="") as victim:
        victim.send_signal(signal.SIGKILL)
        assert "killed or crashed, while it started; dmesg on its board" in said(process)


def test_a_rank_that_was_told_to_stop_is_named(folder: Path) -> None:
    with guarding(folder, 1) as process, rank(folder, 0, state=STOPPED) as stopped:
        let_end(stopped)
        assert (
            "rankslice: rank 0 (edge01_cpu0 on edge01): the process was told to stop,"
            " last at segment 0, frame 7\n"
        ) == said(process)


def test_of_several_killed_ranks_the_first_is_named(folder: Path) -> None:
    with guarding(folder, 3) as process, rank(folder, 0) as second, rank(folder, 1) as first:
        with rank(folder, 2, state=DONE) as ended_well:
            asleep(process, watched=4)
            let_end(ended_well)
            for victim in (first, second):
                victim.kill()
                victim.wait(PATIENCE_S)
        process.send_signal(signal.SIGCONT)
        message = said(process)
    assert message.startswith("rankslice: rank 1 (edge01_cpu1 on edge01): the process was killed")
    assert 1 == message.count("\n")


def test_nothing_is_said_of_ranks_that_end_after_mpirun(folder: Path) -> None:
    with (
        rank(folder, 0) as left,
        subprocess.Popen(["sleep", "1000"]) as mpirun,
        guarding(folder, 1, mpirun.pid) as process,
    ):
        asleep(process, watched=2)
        for victim in (mpirun, left):
            victim.kill()
            victim.wait(PATIENCE_S)
        process.send_signal(signal.SIGCONT)
        assert "" == said(process)


@pytest.mark.ci
def test_a_rank_that_was_killed_is_named_before_those_that_were_stopped_then(
    folder: Path,
) -> None:
    with rank(folder, 0, state=STOPPED), rank(folder, 1) as killed:
        killed.kill()
        killed.wait(PATIENCE_S)
        with guarding(folder, 2) as process:
            message = said(process)
    assert message.startswith("rankslice: rank 1 (edge01_cpu1 on edge01): the process was killed")
    assert 1 == message.count("\n")


def test_nothing_is_said_of_a_failure_that_a_rank_has_told_itself(folder: Path) -> None:
    with rank(folder, 0, state=FAILED) as failed, rank(folder, 1) as killed:
        killed.kill()
        killed.wait(PATIENCE_S)
        let_end(failed)
        with guarding(folder, 2) as process:
            assert "" == said(process)
    assert not folder.exists()


def test_nothing_is_said_of_ranks_that_end_well(folder: Path) -> None:
    with (
        guarding(folder, 2) as process,
        rank(folder, 0, state=DONE) as first,
        rank(folder, 1, state=DONE) as second,
    ):
        let_end(first)
        let_end(second)
        assert "" == said(process)
    assert not folder.exists()


@pytest.mark.ci
def test_ranks_that_outlive_a_failure_are_killed_after_a_while(folder: Path) -> None:
    with guarding(folder, 2) as process, rank(folder, 0, state=FAILED) as failed:
        with rank(folder, 1) as stuck:
            stuck.send_signal(signal.SIGSTOP)
            let_end(failed)
            begin = time.monotonic()
            assert -signal.SIGKILL == stuck.wait(PATIENCE_S)
            assert time.monotonic() - begin > 2
        assert "" == said(process)
    assert not folder.exists()


@pytest.mark.ci
def test_ranks_that_do_not_start_in_time_are_told_of_and_killed(folder: Path) -> None:
    with guarding(folder, 2, limit_s=0.5) as process, rank(folder, 0), rank(folder, 1, "") as late:
        assert -signal.SIGKILL == late.wait(PATIENCE_S)
        assert (
            "rankslice: rank 1 (edge01_cpu1 on edge01): the job has not started within 0.5 s: a"
            " rank is missing, or takes longer to load its sub-models (--start-timeout sets the"
            " limit)\n"
        ) == said(process)


@pytest.mark.ci
def test_ranks_that_outlive_mpirun_are_killed(folder: Path) -> None:
    with (
        rank(folder, 0) as left,
        subprocess.Popen(["sleep", "1000"]) as mpirun,
        guarding(folder, 1, mpirun.pid) as process,
    ):
        time.sleep(1)  # the watchdog must have seen it alive
        mpirun.kill()
        mpirun.wait(PATIENCE_S)
        assert -signal.SIGKILL == left.wait(PATIENCE_S)
        assert "" == said(process)
    assert not folder.exists()


@pytest.mark.ci
def test_a_guard_to_whom_nobody_listens_does_its_work_all_the_same(folder: Path) -> None:
    with guarding(folder, 2) as process, rank(folder, 0) as killed, rank(folder, 1) as left:
        assert process.stderr is not None
        process.stderr.close()
        killed.kill()
        assert -signal.SIGKILL == left.wait(PATIENCE_S)
        assert 0 == process.wait(PATIENCE_S)
    assert not folder.exists()


@pytest.mark.ci
def test_a_guard_whose_ranks_never_show_up_ends_and_removes_its_folder(folder: Path) -> None:
    with guarding(folder, 2) as process:
        assert "" == said(process)
    assert not folder.exists()


def test_a_guard_does_not_wait_for_a_launcher_that_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(folder)
    monkeypatch.setenv(watchdog.SESSION, str(folder))
    with open_private(folder):
        began = time.monotonic()
        with guarding(folder, 0) as process:
            assert "" == said(process)
        assert time.monotonic() - began < 1.5  # with the start of a process
        assert folder.exists()
    assert not folder.exists()


def test_a_guard_waits_for_all_ranks_of_its_board(folder: Path) -> None:
    with guarding(folder, 2) as process, rank(folder, 0, state=DONE) as first:
        with rank(folder, 1) as second:
            let_end(first)
            time.sleep(1)
            assert process.poll() is None
            second.kill()
        assert "rank 1" in said(process)


def test_a_hostile_text_in_a_page_takes_one_line_and_controls_no_terminal(folder: Path) -> None:
    step = "\x1b[2Jsegment 0\nrankslice: rank 9: all is well\r\x00 \x7f\x9b"
    page = page_in(folder, 0, "rank 0 (\x1b]0;title\x07 on edge01)")
    page.at(-1, step.encode())
    pages._HEAD.pack_into(page._page, 0, 2**22 + 1, 0, ALIVE)  # no process has this number
    with guarding(folder, 1) as process:
        message = said(process)
    assert 1 == message.count("\n")
    assert message.removesuffix("\n").isprintable()


def test_a_page_that_is_cut_short_or_names_no_process_harms_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "rank-0").write_bytes(b"short")
    assert not only_page(folder).process.is_alive
    assert not Process(-1, -1).is_alive
    assert not Process(0, 0).is_alive
    with guarding(folder, 1) as process:
        said(process)
    assert not folder.exists()
