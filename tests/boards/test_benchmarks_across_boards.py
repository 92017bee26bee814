"""``rankslice bench`` across boards: against the unsliced model on one of them, beside others."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command_line import COMMAND, succeed

from boards import Board, Boards
from boards.deployments import build_for, deploy, sleeping_chain
from rankslice.measurement.bench.bench_records import read_bench

pytestmark = pytest.mark.ci

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"
MAPPING = {"board1_cpu0": ["conv1..pool1"], "board2_cpu0": ["conv3..softmax"]}


def test_boards_are_measured_in_turns_with_the_unsliced_model_on_the_first(
    rack: Boards, tmp_path: Path
) -> None:
    out = build_for(rack, tmp_path, DIGITS, MAPPING)
    assert 0 == deploy(rack, out).code
    options = ("--starts", "1", "--frames", "40", "--load-levels", "none")
    given = ("--against", "unsliced", "--ssh-config", rack.ssh_config)
    succeed("bench", out, *options, *given)
    found = read_bench(out / "bench.json")
    sliced, unsliced = found.subjects
    assert ["board1", "board2"] == [rank.board for rank in sliced.ranks]
    assert ["board1"] == [rank.board for rank in unsliced.ranks]
    assert {0: 2, 1: 1} == {start.subject: len(start.stages) for start in found.starts}
    for start in found.starts:
        assert 40 == len(start.latency_ns)
        assert min(start.latency_ns) > max(min(stage.compute_ns) for stage in start.stages)


BESIDE = ("--load", "cpu", "--busy", "100", "--starts", "1")


def test_each_board_has_a_co_runner_and_is_looked_at(rack: Boards, tmp_path: Path) -> None:
    out = sleeping_chain(rack, tmp_path, 3)
    assert 0 == deploy(rack, out).code
    given = ("--frames", "90", "--fps", "30", "--ssh-config", rack.ssh_config)
    ended = succeed("bench", out, *BESIDE, *given)
    found = read_bench(out / "bench.json")
    names = [board.name for board in rack]
    assert names == [board.name for board in found.boards]
    for start in found.starts:
        assert ["", *names] == [noise.board for noise in start.noise]
        assert (names if start.load == 1 else []) == [own.board for own in start.co_runner]
        assert all(own.cores > 0 for own in start.co_runner)
    # Virtual boards share this machine's processors, so each has the other's co-runner beside it.
    assert f"board {names[0]} was not quiet: " in ended.out
    assert f"({names[1]})" in ended.out
    assert [[], []] == [co_runners(board) for board in rack]


def test_a_co_runner_ends_with_the_launcher_and_without_a_word_of_it(
    rack: Boards, tmp_path: Path
) -> None:
    out = sleeping_chain(rack, tmp_path, 3)
    assert 0 == deploy(rack, out).code
    given = ("--frames", "9000", "--fps", "30", "--ssh-config", rack.ssh_config)
    with_co_runner_first = ("--seed", "0")
    line = [*COMMAND, "bench", out, *BESIDE, *with_co_runner_first, *given]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
        try:
            assert comes(lambda: all(map(co_runners, rack)))
            rack[1].unplug()
        finally:
            launcher.kill()
    try:
        assert comes(lambda: not any(map(co_runners, rack)))
    finally:
        rack[1].plug_in()


CPUFREQ = "/sys/devices/system/cpu/cpufreq"
MAKE_CLOCKS = f"""
mount -t tmpfs clocks {CPUFREQ} && mkdir {CPUFREQ}/policy0 && cd {CPUFREQ}/policy0
seq -s ' ' 0 511 > related_cpus
echo 600000 1200000 1800000 > scaling_available_frequencies
for limit in cpuinfo_min scaling_min; do echo 600000 > ${{limit}}_freq; done
for limit in cpuinfo_max scaling_max; do echo 1800000 > ${{limit}}_freq; done
"""


def limits(board: Board) -> list[str]:
    files = [f"{CPUFREQ}/policy0/scaling_{end}_freq" for end in ("min", "max")]
    return board.run(["cat", *files]).stdout.split()


def test_clocks_of_boards_are_as_before_without_the_launcher_and_without_its_cable(
    rack: Boards, tmp_path: Path
) -> None:
    out = sleeping_chain(rack, tmp_path, 3)
    assert 0 == deploy(rack, out).code
    for board in rack:
        board.run(["sh", "-ec", MAKE_CLOCKS])
    given = ("--frames", "9000", "--fps", "30", "--ssh-config", rack.ssh_config)
    line = [*COMMAND, "bench", out, "--frequency", "1.2G", "--starts", "1", *given]
    try:
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as launcher:
            try:
                assert comes(lambda: all(limits(board) == ["1200000"] * 2 for board in rack))
                rack[1].unplug()
            finally:
                launcher.kill()
        assert comes(lambda: all(limits(board) == ["600000", "1800000"] for board in rack))
    finally:
        rack[1].plug_in()
        for board in rack:
            board.run(["umount", "--lazy", CPUFREQ])


def comes(happens: Callable[[], bool]) -> bool:
    """Wait until something happens; return whether it does within 40 seconds."""
    end = time.monotonic() + 40
    while not happens() and time.monotonic() < end:
        time.sleep(0.1)
    return happens()


def co_runners(board: Board) -> list[psutil.Process]:
    """Return the processes of a board that work: copies of the program that was sent there."""
    found = []
    for number in board.processes():
        with suppress(psutil.Error):
            process = psutil.Process(number)
            parent = process.parent()
            if parent and "sys.version_info" in str(process.cmdline()):
                found += [process] if process.cmdline() == parent.cmdline() else []
    return found
