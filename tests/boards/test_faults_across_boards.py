"""Each way in which a job across three boards can come to harm, at each of them.

Whatever happens: the launcher ends soon and not with success, one message says where it happened
and what to look at, results that had come out are kept, and no process stays on a board.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_jobs import debians_mpirun, wheels_mpirun

from boards import Board, Boards
from boards.deployments import Launcher, deploy, forget_results, of_job, sleeping_chain
from boards.fixtures import skip_without_boards
from rankslice.backend.runtime.results import read_results

pytestmark = pytest.mark.timeout(300)

SLEEP_MS = 20
WIDTH = 4096
BOUND_S = 15.0
SETTLE_S = 8.0
MENDED_S = 20.0
SOURCE, MIDDLE, SINK = range(3)
PLACES = {SOURCE: "source", MIDDLE: "middle", SINK: "sink"}
STEP = r"segment 0, frame \d+"
CUT_OFF = (
    r"no sign of life for 5 s from VICTIM, last at STEP.*; board BOARD \(HOST\) did not answer"
)


def signal_rank(board: Board, number: signal.Signals) -> None:
    """Send a signal to the rank on a board."""
    (rank,) = [
        process
        for process in board.processes()
        if b"driver.py\0--input" in Path(f"/proc/{process}/cmdline").read_bytes()
    ]
    os.kill(rank, number)


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


FAULTS = {
    "killed": Fault(
        lambda board: signal_rank(board, signal.SIGKILL),
        "VICTIM: the process was killed or crashed, last at STEP",
    ),
    "stopped": Fault(
        lambda board: signal_rank(board, signal.SIGSTOP),
        "no sign of life for 5 s from VICTIM, last at STEP",
    ),
    "power cut": Fault(Board.cut_power, CUT_OFF, Board.power_on, reachable=False),
    "unplugged": Fault(Board.unplug, CUT_OFF, Board.plug_in, reachable=False),
    "board stopped": Fault(Board.stop, CUT_OFF, Board.resume, reachable=False),
    "disk full": Fault(
        fill_disk,
        r"VICTIM: sink, frame \d+: results file results.bin: No space left on device",
        Board.empty_disk,
        places=(SINK,),
    ),
}
CASES = [(name, place) for name, fault in FAULTS.items() for place in fault.places]
FAST = {("killed", MIDDLE), ("unplugged", SOURCE), ("power cut", MIDDLE), ("disk full", SINK)}


@pytest.fixture(scope="module")
def rack() -> Iterator[Boards]:
    """Three boards."""
    skip_without_boards()
    with Boards(3, disk_mb=64) as boards:
        yield boards


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Lines that are printed at the end."""
    lines: list[str] = []
    yield lines
    print("\n".join(["", *lines]))


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of a chain of three ranks, on their boards."""
    return sleeping_chain(rack, tmp_path_factory.mktemp("chain"), SLEEP_MS, WIDTH)


def crowding() -> float:
    """Return how many times more there is to compute than this machine's cores can."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def nothing_left(boards: list[Board], within_s: float) -> list[str]:
    """Wait until no process of a job is on some boards; return those that stay."""
    deadline = time.monotonic() + within_s
    while (left := [line for board in boards for line in of_job(board)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return left


def pattern_of(fault: Fault, place: int, board: Board) -> str:
    """Return what the message of a fault must match."""
    victim = rf"rank {place} \({board.name}_cpu0 on {re.escape(board.address)}\)"
    words = {"VICTIM": victim, "STEP": STEP, "BOARD": board.name, "HOST": board.address}
    text = fault.message
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def check_fault(
    rack: Boards, out: Path, name: str, place: int, mpirun: Path, table: list[str]
) -> None:
    """Let a job come to harm; check how it ends."""
    fault, board, sink = FAULTS[name], rack[place], rack[SINK]
    assert 0 == deploy(rack, out).code
    forget_results(sink)
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
        others = [each for each in rack if fault.reachable or each is not board]
        left = nothing_left(others, SETTLE_S * crowded)
    finally:
        fault.mend(board)
        launcher.close()
    table.append(f"{name:14} {PLACES[place]:7} {seconds:5.1f} s  load {crowded:.1f}  {errors!r}")
    assert 1 == code
    assert re.search(pattern_of(fault, place, board), errors), errors
    assert "Traceback" not in errors
    assert 1 == len(re.findall("^error: rank|^error: board", errors, re.MULTILINE)), errors
    assert [] == left
    if fault.reachable or board is not sink:
        kept = [int(frame) for frame in read_results(out / "results.bin").records["frame"]]
        assert list(range(len(kept))) == kept
        assert had <= len(kept)
    assert seconds <= BOUND_S * crowded
    assert [] == nothing_left(list(rack), MENDED_S * crowded)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        pytest.param(
            *case,
            marks=[] if case in FAST else pytest.mark.slow,
            id="-".join((case[0], PLACES[case[1]])),
        )
        for case in CASES
    ],
)
def test_a_fault_ends_the_job_soon_with_one_message_and_leaves_nothing(
    rack: Boards, out: Path, name: str, place: int, table: list[str]
) -> None:
    check_fault(rack, out, name, place, wheels_mpirun(), table)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["killed", "power cut", "unplugged"])
def test_it_is_the_same_with_open_mpi_4(
    rack: Boards, out: Path, name: str, table: list[str]
) -> None:
    check_fault(rack, out, name, MIDDLE, debians_mpirun(), table)
