"""The failure matrix: each way in which a job across boards can come to harm, at each of them.

Whatever happens: the launcher ends soon and not with success, one message says where it happened
and what to look at, results that had come out are kept, and no process stays on a board. What
happened to each job stands in a table at the end of the tests' output.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_jobs import FAILING_ENGINE, debians_mpirun, wheels_mpirun

from boards import Board, Boards
from boards.deployments import (
    Launcher,
    asleep,
    chain_for,
    chain_in_turn,
    damage,
    deploy,
    forget_results,
    home,
    of_job,
    run,
    set_version,
    signal_rank,
    sleeping_chain,
    submodel,
)
from boards.failure_matrix import ENDS, End
from rankslice.backend.runtime.sinks.results import read_results

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]

RACK = {"count": 3}

SLEEP_MS = 20
WIDTH = 4096
BOUND_S = 15.0
MENDED_S = 20.0
SOURCE, MIDDLE, SINK = range(3)
PLACES = {SOURCE: "source", MIDDLE: "middle", SINK: "sink"}
STEP = r"(source|segment 0|sink), frame \d+"
CUT_OFF = (
    r"no sign of life for 5 s from VICTIM, last heard at STEP.*; board BOARD"
    r" \(HOST\) did not answer: is it on, and is its cable plugged in"
)


def kill_daemon(board: Board) -> None:
    """Kill what mpirun has started on a board."""
    for process, line in job_processes(board).items():
        if line.split(b"\0")[0].endswith((b"/prted", b"/orted")):
            os.kill(process, signal.SIGKILL)


def kill_job(board: Board) -> None:
    """Kill all processes of the job on a board, its watchdog among them."""
    for process in job_processes(board):
        os.kill(process, signal.SIGKILL)


def job_processes(board: Board) -> dict[int, bytes]:
    """Return the processes of a job on a board, with their command lines."""
    found = {}
    for process in board.processes():
        folder = Path(f"/proc/{process}")
        try:
            if b"RANKSLICE_JOB=" in (folder / "environ").read_bytes():
                found[process] = (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def fill_disk(board: Board) -> None:
    """Leave room for a few frames."""
    board.fill_disk(leave_bytes=200_000)


@dataclass(frozen=True)
class Fault:
    """A way to come to harm."""

    strike: Callable[[Board], None]
    message: str
    """What the message must match; VICTIM, BOARD, HOST and STEP stand for what they say."""
    mend: Callable[[Board], None] = lambda board: None
    places: tuple[int, ...] = (SOURCE, MIDDLE, SINK)
    reachable: bool = True
    """Whether the board can be reached afterwards."""
    frozen: bool = False
    """Whether nothing on the board can do anything, not even end."""


FAULTS = {
    "rank killed": Fault(
        lambda board: signal_rank(board, signal.SIGKILL),
        "VICTIM: the process was killed or crashed, last at STEP; dmesg on its board",
    ),
    "rank stopped": Fault(
        lambda board: signal_rank(board, signal.SIGSTOP),
        "no sign of life for 5 s from VICTIM, last heard at STEP: it is stopped, overloaded",
    ),
    "daemon killed": Fault(
        kill_daemon,
        r"board BOARD \(HOST\): mpirun's daemon there has ended while (ranks were running|the job"
        r" ran); dmesg there",
    ),
    "job killed": Fault(
        kill_job,
        r"board BOARD \(HOST\): (all (processes of the job|ranks) there have ended at once|mpirun's"
        r" daemon there has ended while .*); dmesg there",
    ),
    "power cut": Fault(Board.cut_power, CUT_OFF, Board.power_on, reachable=False),
    "cable pulled": Fault(Board.unplug, CUT_OFF, Board.plug_in, reachable=False),
    "board frozen": Fault(Board.stop, CUT_OFF, Board.resume, reachable=False, frozen=True),
    "disk full": Fault(
        fill_disk,
        r"VICTIM: sink, frame \d+: results file results.bin: No space left on device; make room",
        Board.empty_disk,
        places=(SINK,),
    ),
}
"""What happens while frames flow."""

BEFORE = {
    "disk full before": Fault(
        Board.fill_disk, r"board BOARD \(HOST\): its disk is full; make room", Board.empty_disk
    ),
    "package damaged": Fault(
        lambda board: damage(board, submodel(board)),
        r"board BOARD \(HOST\): its package is damaged"
        r" \(submodels/BOARD_cpu0.0.onnx is not what the manifest says\);"
        r" deploy it again: rankslice deploy \S+",
    ),
    "wrong engine": Fault(
        lambda board: set_version(board, "onnxruntime", "1.2.3"),
        r"board BOARD \(HOST\): .*python3? has onnxruntime 1.2.3, and 1.19 or later is needed;"
        r" install it there: rankslice deploy \S+ --venv",
        lambda board: set_version(board, "onnxruntime", "1.99.0"),
    ),
}
"""What is found before the start."""

CASES = [(name, place) for name, fault in FAULTS.items() for place in fault.places]
EARLY = [(name, place) for name in BEFORE for place in PLACES]
FAST = {
    ("rank killed", MIDDLE),
    ("daemon killed", MIDDLE),
    ("cable pulled", SOURCE),
    ("power cut", MIDDLE),
    ("disk full", SINK),
    ("package damaged", MIDDLE),
}


@pytest.fixture
def ends(pytestconfig: pytest.Config) -> list[End]:
    """What has been seen, for the table."""
    return pytestconfig.stash.setdefault(ENDS, [])


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of a chain of three ranks that sleep, on their boards."""
    return sleeping_chain(rack, tmp_path_factory.mktemp("chain"), SLEEP_MS, WIDTH)


@pytest.fixture(scope="module")
def in_turn(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of four ranks that sleep, two of which take turns on two boards."""
    return asleep(chain_in_turn(rack, tmp_path_factory.mktemp("in-turn"), WIDTH), SLEEP_MS)


@pytest.fixture(scope="module")
def computing(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of a chain of three ranks with an engine, on their boards."""
    return chain_for(rack, tmp_path_factory.mktemp("computing"))


def cases(named: Sequence[tuple[str, int]]) -> pytest.MarkDecorator:
    """Return the parametrisation with faults and places; most of them are slow."""
    return pytest.mark.parametrize(
        ("name", "place"),
        [
            pytest.param(
                *case,
                marks=[] if case in FAST else pytest.mark.slow,
                id="-".join((case[0], PLACES[case[1]])),
            )
            for case in named
        ],
    )


def crowding() -> float:
    """Return how many times more there is to compute than this machine's cores can."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def nothing_left(boards: Sequence[Board], within_s: float) -> list[str]:
    """Wait until no process of a job is on some boards; return those that stay."""
    deadline = time.monotonic() + within_s
    while (left := [line for board in boards for line in of_job(board)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return left


def own_folders(boards: Sequence[Board]) -> set[tuple[str, str]]:
    """Return the folders of jobs in the boards' places for temporary files and for memory."""
    names = "ls -d /tmp/rankslice-???????? /dev/shm/rankslice-???????? 2>/dev/null || true"
    return {
        (board.name, name)
        for board in boards
        for name in board.run(["sh", "-c", names]).stdout.split()
    }


def pattern_of(fault: Fault, place: int, board: Board) -> str:
    """Return what the message of a fault must match."""
    victim = rf"rank {place} \({board.name}_cpu0 on {re.escape(board.address)}\)"
    words = {"VICTIM": victim, "STEP": STEP, "BOARD": board.name, "HOST": re.escape(board.address)}
    text = fault.message
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def told_in(errors: str) -> str:
    """Return the message among what the launcher wrote."""
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    return lines[0].removeprefix("error: ") if lines else errors


def results_on(board: Board) -> Path:
    """Return the results file that a job has left on its sink's board."""
    (found,) = (home(board) / "runs").glob("*/results.bin")
    return found


def frames_in(results: Path) -> list[int]:
    """Return the numbers of the frames whose results are kept."""
    return [int(frame) for frame in read_results(results).records["frame"]]


def check_fault(
    rack: Boards,
    out: Path,
    name: str,
    place: int,
    mpirun: Path,
    ends: list[End],
    part: str = "",
) -> None:
    """Let a job come to harm while frames flow; check how it ends.

    ``part``: what the struck board does, if not what its place says.
    """
    fault, board, sink = FAULTS[name], rack[place], rack[SINK]
    assert 0 == deploy(rack, out).code
    forget_results(sink)
    folders = own_folders(rack)
    launcher = Launcher(rack, out, "--frames", "1000000", "--mpirun", mpirun)
    try:
        had = launcher.wait_for_frames(sink)
        time.sleep(2)  # ranks tell each other once a second what they work on
        struck = time.monotonic()
        crowded = crowding()
        fault.strike(board)
        code = launcher.process.wait(120)
        seconds = time.monotonic() - struck
        crowded = max(crowded, crowding())
        errors = launcher.errors()
        others = [other for other in rack if not fault.frozen or other is not board]
        left = nothing_left(others, max(0, BOUND_S * crowded - seconds))
        clean_s = time.monotonic() - struck
    finally:
        fault.mend(board)
        launcher.close()
    left += nothing_left(list(rack), MENDED_S * crowded)
    if fault.reachable:  # a power cut leaves them to the next start
        left += map(" ".join, own_folders(rack) - folders)
    fetched = fault.reachable or board is not sink
    kept = frames_in(out / "results.bin" if fetched else results_on(sink))
    version = "4.1" if mpirun == Path("/usr/bin/mpirun") else "5.0"
    told = told_in(errors)
    ends.append(
        End(
            name,
            part or PLACES[place],
            version,
            seconds,
            clean_s,
            len(left),
            len(kept),
            crowded,
            told,
        )
    )
    assert 1 == code
    assert re.search(pattern_of(fault, place, board), errors), errors
    assert "Traceback" not in errors
    assert 1 == len(re.findall("^error: rank|^error: board", errors, re.MULTILINE)), errors
    assert list(range(len(kept))) == kept
    assert had <= len(kept)
    assert fetched or "may be on board" in errors
    assert [] == left
    assert seconds <= BOUND_S * crowded


@cases(CASES)
def test_a_fault_ends_the_job_soon_with_one_message_and_leaves_nothing(
    rack: Boards, out: Path, name: str, place: int, ends: list[End]
) -> None:
    check_fault(rack, out, name, place, wheels_mpirun(), ends)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rank killed", "daemon killed", "job killed", "power cut", "cable pulled"]
)
def test_it_is_the_same_with_open_mpi_4(
    rack: Boards, out: Path, name: str, ends: list[End]
) -> None:
    check_fault(rack, out, name, MIDDLE, debians_mpirun(), ends)


@pytest.mark.parametrize(
    "name",
    [
        "rank killed",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rank stopped", "power cut")),
    ],
)
def test_it_is_the_same_with_a_board_of_two_in_turn(
    rack: Boards, in_turn: Path, name: str, ends: list[End]
) -> None:
    check_fault(rack, in_turn, name, MIDDLE, wheels_mpirun(), ends, "in turn")


def test_a_fault_of_a_rank_in_turn_names_the_frame_of_the_stream(
    rack: Boards, tmp_path: Path, ends: list[End]
) -> None:
    out = chain_in_turn(rack, tmp_path)
    asleep(out, 1, engine=FAILING_ENGINE, options={2: {"fails": "20"}})
    assert 0 == deploy(rack, out).code
    began = time.monotonic()
    ended = run(rack, out, "--frames", "1000")
    seconds = time.monotonic() - began
    left, kept = nothing_left(list(rack), BOUND_S), frames_in(out / "results.bin")
    told = told_in(ended.err)
    ends.append(
        End("engine", "in turn", "5.0", seconds, seconds, len(left), len(kept), crowding(), told)
    )
    victim = f"rank 2 (board3_cpu0 on {rack[SINK].address})"
    assert f"{victim}: segment 0, frame 41: RuntimeError: the accelerator is gone" == told
    assert 1 == ended.code
    assert list(range(len(kept))) == kept
    assert 41 >= len(kept)
    assert [] == left


@cases(EARLY)
def test_a_board_that_cannot_run_its_package_is_named_before_the_start(
    rack: Boards, computing: Path, name: str, place: int, ends: list[End]
) -> None:
    fault, board = BEFORE[name], rack[place]
    assert 0 == deploy(rack, computing).code
    fault.strike(board)
    began = time.monotonic()
    try:
        ended = run(rack, computing)
        seconds = time.monotonic() - began
    finally:
        fault.mend(board)
    left = [line for machine in rack for line in of_job(machine)]
    told = told_in(ended.err)
    ends.append(End(name, PLACES[place], "5.0", seconds, seconds, len(left), 0, crowding(), told))
    assert 1 == ended.code
    assert re.search(pattern_of(fault, place, board), ended.err), ended.err
    assert 1 == ended.err.count("error: "), ended.err
    assert [] == left
    assert seconds <= BOUND_S * crowding()


def test_a_board_that_cannot_call_back_is_told_of(rack: Boards, computing: Path) -> None:
    """A firewall looks like a daemon that starts and says nothing."""
    assert 0 == deploy(rack, computing).code
    daemon, silent = wheels_mpirun().with_name("prted"), "#!/bin/sh\nexec sleep 1000\n"
    rack[MIDDLE].run(["sh", "-c", f"mv {daemon} {daemon}.away; printf '{silent}' > {daemon}"])
    rack[MIDDLE].run(["chmod", "+x", daemon])
    try:
        ended = run(rack, computing, "--start-timeout", "4")
    finally:
        rack[MIDDLE].run(["mv", f"{daemon}.away", daemon])
    assert 1 == ended.code
    address = re.escape(rack[MIDDLE].address)
    expected = rf"board board2 \({address}\): mpirun has started no rank there within 4 s; it must"
    assert re.search(expected, ended.err), ended.err
    assert [] == nothing_left(list(rack), 1)
    sleeping = rack[MIDDLE].run(["pgrep", "--full", "sleep 1000"], check=False)
    assert "" == sleeping.stdout


@pytest.mark.slow
@pytest.mark.parametrize("place", [SOURCE, MIDDLE], ids=PLACES.get)
def test_a_full_disk_where_nothing_is_written_does_no_harm(
    rack: Boards, out: Path, place: int, ends: list[End]
) -> None:
    assert 0 == deploy(rack, out).code
    forget_results(rack[SINK])
    launcher = Launcher(rack, out, "--frames", "400")
    try:
        launcher.wait_for_frames(rack[SINK])
        rack[place].fill_disk()
        struck = time.monotonic()
        code = launcher.process.wait(120)
        seconds = time.monotonic() - struck
    finally:
        rack[place].empty_disk()
        launcher.close()
    left = nothing_left(list(rack), BOUND_S)
    kept = frames_in(out / "results.bin")
    told = f"none: exit code {code}, the job goes on to its end"
    ends.append(
        End("disk full", PLACES[place], "5.0", seconds, seconds, len(left), len(kept), 0, told)
    )
    assert 0 == code, launcher.errors()
    assert list(range(400)) == kept
    assert [] == left
